//! Results of calls that were made, as drivers tell them: each can be recorded, at a cost that its
//! call can have had.

use super::fixture::{assert_sound, message, tenant};
use std::sync::Arc;
use threadkeep::error::CallError;
use threadkeep::storage::StorageBackend;
use threadkeep::storage::memory::MemoryStore;
use threadkeep::tenant::Tenant;
use threadkeep::wit::registry::Draft;
use threadkeep::wit::{self, Error, Usage, ledger, llm, runner};

/// 100 input tokens at 1 and 10 output tokens at 2 USD a million.
const REPLY_NANOS: u64 = 120_000;

/// The usage that a wrapped -1 tells.
const WRAPPED: Usage = Usage {
    input: u64::MAX,
    output: u64::MAX,
    read: u64::MAX,
    write: u64::MAX,
    reasoning: u64::MAX,
};

/// More than what is believed of an attempt of the small library, which may write 400 tokens: some
/// 12,000 tokens read, 10,800 written.
const BELIEVED_NANOS: std::ops::RangeInclusive<u64> = 20_000_000..=40_000_000;

struct PaidRun {
    store: Arc<MemoryStore>,
    tenant: Tenant,
    handle: runner::Handle,
}

impl PaidRun {
    async fn start() -> Self {
        let store = Arc::new(MemoryStore::new());
        let storage: Arc<dyn StorageBackend> = Arc::<MemoryStore>::clone(&store);
        let tenant = tenant(storage);
        let thread = tenant.create(Draft::for_directive("work")).await.unwrap();
        let started = tenant.start(&thread.id, Some(message("go")), "p/1", "k", None);
        let handle = started.await.unwrap();
        Self {
            store,
            tenant,
            handle,
        }
    }

    fn id(&self) -> &str {
        &self.handle.thread.id
    }

    async fn submit(&self, outcome: runner::Outcome) -> Result<runner::Step, CallError> {
        let version = self.handle.step.version;
        let (token, id) = (self.handle.token, self.id());
        self.tenant.submit(id, token, version, outcome, 0).await
    }

    async fn account(&self) -> wit::Account {
        self.tenant.account(self.id()).await.unwrap()
    }

    /// Returns the bodies of the newest entry's events.
    async fn newest_events(&self) -> Vec<serde_json::Value> {
        let version = self.tenant.get(self.id()).await.unwrap().version;
        let page = self
            .tenant
            .events(self.id(), version - 1, 100, None)
            .await
            .unwrap();
        let events = page.events.iter();
        events
            .map(|event| serde_json::from_str(&event.body).unwrap())
            .collect()
    }
}

fn completion(blocks: &str, usage: Option<Usage>) -> runner::Outcome {
    runner::Outcome::Completion(llm::Completion {
        blocks: blocks.to_owned(),
        finish: "stop".to_owned(),
        usage,
        session: None,
        id: Some("chatcmpl-7".to_owned()),
        model: Some("routed-model".to_owned()),
    })
}

fn usage(input: u64, output: u64) -> Usage {
    Usage {
        input,
        output,
        read: 0,
        write: 0,
        reasoning: 0,
    }
}

fn failure_of(refused: bool, usage: Option<Usage>) -> llm::LlmError {
    llm::LlmError {
        kind: "permanent".to_owned(),
        code: "http_400".to_owned(),
        message: "no".to_owned(),
        retry: Some(u64::MAX),
        sent: true,
        refused,
        usage,
        partial: String::new(),
    }
}

/// Checks the event of a reply that was just recorded.
async fn check_result_event(run: &PaidRun, blocks: &str) {
    let events = run.newest_events().await;
    let result = events
        .iter()
        .find(|event| event["type"] == "result")
        .unwrap();
    assert_eq!(result["response_id"], "chatcmpl-7", "{blocks}");
    assert_eq!(result["response_model"], "routed-model", "{blocks}");
    if blocks.contains("kept") {
        let partial = events.iter().find(|event| event["type"] == "partial");
        assert_eq!(partial.unwrap()["text"], "kept");
    }
}

/// Symptom: `submit` answered `invalid` for a reply that was paid: its money stayed held and the
/// thread running. Cause: a reply that cannot be read was an error of the call. Fix: it is a
/// result. Kind: what `json.dumps` and `JSON.stringify` write, and blocks of other versions.
#[tokio::test]
async fn a_paid_reply_is_recorded_whatever_it_is() {
    let call = |rest: &str| format!(r#"[{{"type":"tool_use","name":"read",{rest}}}]"#);
    let cases = [
        (
            r#"[{"type":"text","text":"cut \ud83d"}]"#.to_owned(),
            "completed",
            None,
        ),
        (call(r#""id":null,"arguments":"{}""#), "running", None),
        (
            call(r#""id":"x","arguments":{"path":"a"}"#),
            "running",
            None,
        ),
        (call(r#""arguments":null"#), "running", None),
        (
            r#"[{"type":"text","text":NaN}]"#.to_owned(),
            "suspended",
            Some("bad_reply"),
        ),
        (
            r#"[{"type":"image","url":"x"}]"#.to_owned(),
            "suspended",
            Some("bad_reply"),
        ),
        (
            r#"[{"type":"text","text":"kept"},{"type":"new_kind"}]"#.to_owned(),
            "suspended",
            Some("bad_reply"),
        ),
        ("plain text".to_owned(), "suspended", Some("bad_reply")),
        (String::new(), "suspended", Some("bad_reply")),
        ("[]".to_owned(), "suspended", Some("empty_reply")),
    ];
    for (blocks, status, code) in cases {
        let run = PaidRun::start().await;
        assert!(run.account().await.held > 0);
        let outcome = || completion(&blocks, Some(usage(100, 10)));
        let step = run.submit(outcome()).await.expect(&blocks);
        let thread = run.tenant.get(run.id()).await.unwrap();
        assert_eq!(thread.status, status, "{blocks}");
        let found = thread.cause.map(|cause| cause.code);
        assert_eq!(found.as_deref(), code, "{blocks}");
        let account = run.account().await;
        // A call without arguments is told to the model: the next attempt is admitted.
        let asks_again = step.kind == "call-llm";
        assert_eq!(
            (account.held > 0, account.spent),
            (asks_again, REPLY_NANOS),
            "{blocks}"
        );
        assert_eq!(thread.cost.turns, 1, "{blocks}");
        check_result_event(&run, &blocks).await;
        // Told again, nothing is paid again.
        let again = run.submit(outcome()).await.expect(&blocks);
        assert_eq!(
            (again.kind, again.version),
            (step.kind, step.version),
            "{blocks}"
        );
        assert_eq!(run.account().await.spent, REPLY_NANOS, "{blocks}");
        assert_sound(&*run.store);
    }
}

#[tokio::test]
async fn an_unreadable_reply_without_usage_is_charged_by_its_text() {
    let run = PaidRun::start().await;
    let blocks = format!(r#"[{{"type":"image","data":"{}"}}]"#, "a".repeat(800));
    run.submit(completion(&blocks, None)).await.unwrap();
    let account = run.account().await;
    // 200 tokens of the image's text at 2 USD a million.
    assert!(account.held == 0 && account.spent >= 400_000, "{account:?}");
    assert_sound(&*run.store);
}

/// Symptom: a usage of -1, which bindings of other languages wrap in silence, charged a million
/// dollars to a thread with a cap of ten cents. Cause: only the native host cut usage. Fix: the
/// component does. Kind: every way to tell a usage.
#[tokio::test]
async fn usage_is_cut_wherever_it_is_told() {
    let text = r#"[{"type":"text","text":"done"}]"#;
    let outcomes = [
        completion(text, Some(WRAPPED)),
        runner::Outcome::Failure(failure_of(false, Some(WRAPPED))),
        runner::Outcome::Failure(failure_of(true, Some(WRAPPED))),
        runner::Outcome::Stopped(failure_of(false, Some(WRAPPED))),
    ];
    for outcome in outcomes {
        let name = format!("{outcome:?}");
        let run = PaidRun::start().await;
        run.submit(outcome).await.expect(&name);
        let (spent, used) = (run.account().await.spent, run.tenant.get(run.id()).await);
        assert!(BELIEVED_NANOS.contains(&spent), "{name}: {spent}");
        let used = used.unwrap().cost.usage;
        assert!(
            used.output == 10_800 && used.reasoning <= 10_800,
            "{name}: {used:?}"
        );
        assert_sound(&*run.store);
    }
    // A driver that is fenced tells what its attempt has used.
    let run = PaidRun::start().await;
    run.tenant
        .recover(vec!["p/1".to_owned()], None)
        .await
        .unwrap();
    let told = run.submit(completion(text, Some(WRAPPED))).await;
    assert!(
        matches!(told, Err(CallError::Refused(Error::Fenced(_)))),
        "{told:?}"
    );
    let spent = run.account().await.spent;
    assert!(BELIEVED_NANOS.contains(&spent), "fenced: {spent}");
    assert_sound(&*run.store);
}

#[tokio::test]
async fn bills_of_external_loops_are_cut() {
    for charged_first in [false, true] {
        let store = Arc::new(MemoryStore::new());
        let tenant = tenant(Arc::<MemoryStore>::clone(&store));
        let thread = tenant
            .create(Draft::for_directive("work"))
            .await
            .unwrap()
            .id;
        let now = threadkeep::clock::HostClock::now(&threadkeep::clock::SystemClock);
        let deadline = wit::Instant {
            seconds: now.seconds + 600,
            nanos: 0,
        };
        let opened = tenant
            .open_thread(&thread, "own/1", deadline)
            .await
            .unwrap();
        let estimate = ledger::Estimate::Tokens(ledger::ModelCall {
            model: "default".to_owned(),
            input: 1_000,
            output: 100,
        });
        let held = tenant.hold(&thread, opened.token, "call", estimate, deadline);
        let held = held.await.unwrap();
        if charged_first {
            let closed = tenant
                .close_thread(&thread, opened.token, "idle", None)
                .await;
            closed.unwrap();
        }
        // Of a bill, 2^63 and more is `invalid`.
        let most = i64::MAX as u64;
        let bill = || ledger::Bill::Usage(usage(most, most));
        tenant.settle(&thread, held.version, bill()).await.unwrap();
        let spent = tenant.account(&thread).await.unwrap().spent;
        // 22,000 tokens read at 1, 10,200 written at 2 USD a million.
        assert_eq!(spent, 42_400_000, "{charged_first}");
        tenant.settle(&thread, held.version, bill()).await.unwrap();
        assert_eq!(tenant.account(&thread).await.unwrap().spent, spent);
        assert_sound(&*store);
    }
}

/// Symptom: a host that said `sent` of a refusal with a status was charged the worst case, unless
/// it knew to tell a usage of zeros. Cause: no field said what a refusal costs. Fix: `refused`.
#[tokio::test]
async fn a_refusal_with_a_status_costs_nothing() {
    for (refused, usage, free) in [
        (true, None, true),
        (false, None, false),
        (false, Some(usage(0, 0)), true),
        (true, Some(usage(100, 10)), false),
    ] {
        let run = PaidRun::start().await;
        let outcome = runner::Outcome::Failure(failure_of(refused, usage));
        run.submit(outcome).await.unwrap();
        let account = run.account().await;
        assert_eq!(account.held, 0);
        assert_eq!(account.spent == 0, free, "{refused} {usage:?}: {account:?}");
        let cause = run.tenant.get(run.id()).await.unwrap().cause.unwrap();
        assert_eq!(cause.retry, Some(i64::MAX as u64));
        assert_sound(&*run.store);
    }
}

#[tokio::test]
async fn steps_say_for_whom_a_request_or_a_call_is() {
    let run = PaidRun::start().await;
    let step = &run.handle.step;
    let request = step.request.as_ref().unwrap();
    assert_eq!(
        (request.thread.as_str(), request.attempt),
        (run.id(), step.version)
    );
    assert_eq!(request.options, "{}");
    let blocks = r#"[{"type":"tool_use","id":"a","name":"read","arguments":"{}"},
        {"type":"tool_use","id":"a","name":"write","arguments":"{}"}]"#;
    let step = run.submit(completion(blocks, Some(usage(100, 10)))).await;
    let step = step.unwrap();
    let ids: Vec<&str> = step.calls.iter().map(|call| call.id.as_str()).collect();
    let expected = [0, 1].map(|index| format!("call_{}_{index}", step.calls[0].version));
    assert_eq!(ids, expected);
    for call in &step.calls {
        assert_eq!(
            (call.thread.as_str(), call.origin.as_str()),
            (run.id(), "model")
        );
    }
    let outcome = |content: &str, call: &wit::ToolCall| wit::ToolOutcome {
        version: call.version,
        index: call.index,
        state: "done".to_owned(),
        failed: false,
        content: content.to_owned(),
        patches: String::new(),
        operations: String::new(),
        cost: 0,
    };
    let submit = async |content: &str| {
        let outcomes = step.calls.iter().map(|call| outcome(content, call));
        let outcomes = runner::Outcome::Outcomes(outcomes.collect());
        let (token, version) = (run.handle.token, step.version);
        run.tenant
            .submit(run.id(), token, version, outcomes, 0)
            .await
    };
    for (content, field) in [
        ("plain", "outcomes[0].content"),
        (
            r#"[{"type":"image","data":""}]"#,
            "outcomes[0].content[0].data",
        ),
        (
            r#"[{"type":"text","text":"a"},{"type":"blob","id":"b"}]"#,
            "outcomes[0].content[1]",
        ),
    ] {
        match submit(content).await {
            Err(CallError::Refused(Error::Invalid(invalid))) => assert_eq!(invalid.field, field),
            other => panic!("{content}: {other:?}"),
        }
    }
    let content = r#"[{"type":"text","text":"a"},{"type":"text","text":"b\ud83d"}]"#;
    submit(content).await.unwrap();
    let events = run.newest_events().await;
    let results = events.iter().filter(|event| event["type"] == "tool_result");
    let texts: Vec<_> = results.map(|event| event["text"].clone()).collect();
    assert_eq!(texts, ["a\nb\u{fffd}", "a\nb\u{fffd}"]);
}
