//! Fields of steps, and what is said of their outcomes.

use super::super::project::engine;
use super::{THREAD, draft_of, refusal};
use std::sync::Arc;
use threadkeep::component::TenantContext;
use threadkeep::storage::memory::MemoryStore;
use threadkeep::tenant::Tenant;
use threadkeep::wit::llm::Completion;
use threadkeep::wit::runner::{Handle, Outcome};
use threadkeep::wit::{ToolCall, ToolOutcome};
use threadkeep_tests::auditor::audit;
use threadkeep_tests::fixture::MapLibrary;

/// Tools with the longest time that each may take, in milliseconds, and what a step says of it.
const TIMES: [(&str, u64, u32); 4] = [
    ("read", 5_000, 5_000),
    ("slow", (1 << 31) - 1, (1 << 31) - 1),
    ("slower", 1 << 31, (1 << 31) - 1),
    ("slowest", (1 << 63) - 1, (1 << 31) - 1),
];

fn tenant_with_tools(store: &Arc<MemoryStore>) -> Tenant {
    let names = TIMES.map(|(name, ..)| format!("execute.tool.{name}"));
    let work = serde_json::json!({
        "name": "work", "body": "Do the work.", "front": {"capabilities": names},
    });
    let mut library = MapLibrary::small().with("directive", "work", &work.to_string());
    for (name, timeout, _) in TIMES {
        let tool = serde_json::json!({
            "name": name, "description": "a tool", "schema": {"type": "object"},
            "timeout": timeout,
        });
        library = library.with("tool", name, &tool.to_string());
    }
    let storage = Arc::<MemoryStore>::clone(store);
    Tenant::new(engine(), TenantContext::new(storage, Arc::new(library)))
}

/// Starts the thread and submits a reply that calls each tool once; returns the handle and the
/// calls that are handed out, with their version.
async fn call_all_tools(tenant: &Tenant) -> (Handle, u64, Vec<ToolCall>) {
    tenant.create(draft_of(THREAD)).await.unwrap();
    let handle = tenant.start(THREAD, None, "h/1", "k", None).await.unwrap();
    let blocks = TIMES.map(|(name, ..)| {
        serde_json::json!({"type": "tool_use", "id": "x", "name": name, "arguments": "{}"})
    });
    let reply = completion(&serde_json::json!(blocks), "tool_use");
    let (token, version) = (handle.token, handle.step.version);
    let step = tenant.submit(THREAD, token, version, reply, 0).await;
    let step = step.unwrap();
    assert_object(&step.more);
    (handle, step.version, step.calls)
}

pub(super) fn completion(blocks: &serde_json::Value, finish: &str) -> Outcome {
    Outcome::Completion(Completion {
        blocks: blocks.to_string(),
        finish: finish.to_owned(),
        usage: None,
        session: None,
        id: None,
        model: None,
    })
}

#[track_caller]
fn assert_object(text: &str) {
    let value: serde_json::Value = serde_json::from_str(text).unwrap();
    assert!(value.is_object(), "{text}");
}

pub(super) fn outcomes(calls: &[ToolCall], content: &str) -> Outcome {
    let outcome = |call: &ToolCall| ToolOutcome {
        version: call.version,
        index: call.index,
        state: "done".to_owned(),
        failed: false,
        content: content.to_owned(),
        patches: String::new(),
        operations: String::new(),
        cost: 0,
    };
    Outcome::Outcomes(calls.iter().map(outcome).collect())
}

/// Symptom: a tool with a time from 2^31 to 2^32 - 1 ms was handed out with it, although a call
/// says that it has less. Cause: only a time that does not fit 32 bits was cut. Fix: each is cut at
/// 2^31 - 1. Kind: times at and above both bounds. What else a step says is a JSON object in each
/// kind of step.
#[tokio::test]
async fn a_step_cuts_times_and_says_more_in_an_object() {
    let store = Arc::new(MemoryStore::new());
    let tenant = tenant_with_tools(&store);
    let (handle, version, calls) = call_all_tools(&tenant).await;
    assert_object(&handle.step.more);
    assert_object(&handle.thread.more);
    let times = calls.iter().map(|call| (&*call.name, call.timeout));
    let expected = TIMES.map(|(name, _, told)| (name, told));
    assert_eq!(times.collect::<Vec<_>>(), expected);
    let answer = outcomes(&calls, r#"[{"type": "text", "text": "ok"}]"#);
    let next = tenant
        .submit(THREAD, handle.token, version, answer, 0)
        .await;
    let next = next.unwrap();
    assert_eq!(next.kind, "call-llm");
    assert_object(&next.more);
    let stopped = completion(
        &serde_json::json!([{"type": "text", "text": "done"}]),
        "stop",
    );
    let version = next.version;
    let last = tenant
        .submit(THREAD, handle.token, version, stopped, 0)
        .await;
    let last = last.unwrap();
    assert_eq!(last.kind, "finished");
    assert_object(&last.more);
    assert_eq!(audit(&*store), Vec::<String>::new());
}

/// Wrong outcomes are named by the field that the contract lists, and the step stays.
#[tokio::test]
async fn wrong_outcomes_are_refused_by_field_and_leave_the_step() {
    let store = Arc::new(MemoryStore::new());
    let tenant = tenant_with_tools(&store);
    let (handle, version, calls) = call_all_tools(&tenant).await;
    let text = r#"[{"type": "text", "text": "ok"}]"#;
    let mut turned = calls.clone();
    turned.reverse();
    for (token, answer, expected) in [
        (
            0,
            outcomes(&calls, "ok"),
            ("invalid", "outcomes[0].content"),
        ),
        (
            0,
            outcomes(&calls, r#""ok""#),
            ("invalid", "outcomes[0].content"),
        ),
        (0, outcomes(&calls[1..], text), ("conflict", "outcomes")),
        (0, outcomes(&turned, text), ("conflict", "outcomes")),
        // A token that the thread has not given yet is no better than one that it gave before.
        (1, outcomes(&calls, text), ("fenced", "token")),
    ] {
        let token = handle.token + token;
        let told = tenant.submit(THREAD, token, version, answer, 0).await;
        assert_eq!(refusal(told), (expected.0, expected.1.to_owned()));
    }
    let answer = outcomes(&calls, text);
    let next = tenant
        .submit(THREAD, handle.token, version, answer, 0)
        .await;
    assert_eq!(next.unwrap().kind, "call-llm");
    assert_eq!(audit(&*store), Vec::<String>::new());
}
