//! Whole runs against a third-party model server: llmock speaks both wires over real HTTP, injects
//! a fault, and judges its client's reaction. Its verdict has no FAIL and no WARN after any of
//! them.

use super::project::{describe_draft, open, project_dir};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use threadkeep::driver::{Driver, EndedRun, EventSink, ModelProviders, RunEvent, StopReceiver};
use threadkeep::models::{ModelFailure, ModelProvider};
use threadkeep::project::OpenProject;
use threadkeep_tests::llmock::{LlmockServer, MockWire};

fn models_yaml(wire: MockWire, base_url: &str) -> String {
    format!(
        r#"
providers: {{mock: {{wire: {}, base_url: "{base_url}", key: "${{MOCK_API_KEY}}"}}}}
models:
  a-model: {{provider: mock, window: 128000, output: 2000,
      prices: {{input: "0.15", cache_read: "0.015", cache_write: "0.20", output: "0.60"}}}}
tiers: {{default: a-model}}
"#,
        wire.as_str()
    )
}

/// A project whose one model is at this address.
pub(super) fn project_of(wire: MockWire, base_url: &str) -> (tempfile::TempDir, OpenProject) {
    let (kept, dir) = project_dir(&models_yaml(wire, base_url));
    (
        kept,
        open(dir, None, &[("MOCK_API_KEY", "sk-secret-of-the-test")]),
    )
}

fn calls_tool(name: &str, arguments: &Value) -> Value {
    json!({"type": "reply", "tool_calls": [{"name": name, "arguments": arguments}]})
}

#[tokio::test]
async fn a_directive_reads_a_file_with_a_tool_and_answers_while_it_streams() {
    let Some(server) = LlmockServer::start() else {
        return;
    };
    for wire in MockWire::ALL {
        server.reset();
        reads_a_file(&server, wire).await;
        assert_eq!(server.findings(), [] as [Value; 0], "{wire:?}");
    }
}

async fn reads_a_file(server: &LlmockServer, wire: MockWire) {
    server.queue_behaviors(&json!([
        calls_tool("read_file", &json!({"path": "notes.txt"})),
        {"type": "reply", "text": "It reminds of milk."},
    ]));
    let (_kept, project) = project_of(wire, &server.base_url(wire));
    let thread = project.tenant().create(describe_draft()).await.unwrap();
    let (sink, mut stream) = EventSink::channel();
    let ended = project
        .driver()
        .run(&thread.id, None, &sink, &StopReceiver::never())
        .await
        .unwrap();
    assert_eq!((ended.status.as_str(), ended.costs.turns), ("completed", 2));
    assert_eq!(ended.result.as_deref(), Some(r#""It reminds of milk.""#));
    assert!(ended.costs.spend_nanos > 0, "real usage was priced");
    drop(sink);
    let mut deltas = 0;
    let mut tools = Vec::new();
    while let Some(event) = stream.recv().await {
        match event {
            RunEvent::Text(_) => deltas += 1,
            RunEvent::ToolDone { name, failed, .. } => tools.push((name, failed)),
            _ => {}
        }
    }
    assert!(deltas > 1, "the answer came in {deltas} pieces");
    assert_eq!(tools, [("read_file".to_owned(), false)]);
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert!(
        requests[1]["body"]
            .to_string()
            .contains("remember the milk 漢🙂"),
        "the next request holds the file's text: {}",
        requests[1]
    );
}

/// A fault, and the end of a run that meets it once.
struct RunFaultCase {
    name: &'static str,
    behaviors: Value,
    requests: usize,
    status: &'static str,
    /// An event kind that the history must have.
    leaves: &'static str,
}

fn cases(wire: MockWire) -> Vec<RunFaultCase> {
    // The bytes after the start of the stream and two words.
    let begun = match wire {
        MockWire::OpenAi => 3,
        MockWire::Anthropic => 5,
    };
    let stream = |kind: &str| {
        json!([
            {"type": "reply", "text": "one two three four five six seven eight nine ten"},
            {"type": "stream_fault", "kind": kind, "after_chunks": begun, "stall_seconds": 20.0},
        ])
    };
    let case = |name, behaviors, requests, leaves| RunFaultCase {
        name,
        behaviors,
        requests,
        status: "completed",
        leaves,
    };
    vec![
        case(
            "429 with retry-after",
            json!([{"type": "fail", "status": 429, "retry_after": 1}]),
            2,
            "error",
        ),
        case("503", json!([{"type": "fail", "status": 503}]), 2, "error"),
        case(
            "529",
            json!([{"type": "fail", "status": 529, "times": 2}]),
            3,
            "error",
        ),
        case("disconnect", stream("disconnect"), 2, "partial"),
        case("truncated stream", stream("truncate"), 2, "partial"),
        case("corrupted chunk", stream("malformed"), 2, "error"),
        case("stall", stream("stall"), 2, "partial"),
        case(
            "malformed arguments",
            json!([{"type": "tool_fault", "kind": "malformed_arguments"}]),
            2,
            "tool_result",
        ),
        case(
            "unknown tool",
            json!([{"type": "tool_fault", "kind": "unknown_tool"}]),
            2,
            "tool_result",
        ),
        RunFaultCase {
            status: "suspended",
            ..case(
                "refusal",
                json!([{"type": "fail", "status": 401}]),
                1,
                "suspended",
            )
        },
        RunFaultCase {
            status: "suspended",
            ..case(
                "an outage",
                json!([{"type": "fail", "status": 503, "times": 4}]),
                4,
                "suspended",
            )
        },
    ]
}

#[tokio::test]
async fn a_run_copes_with_each_fault_of_openai() {
    each_fault(MockWire::OpenAi).await;
}

#[tokio::test]
async fn a_run_copes_with_each_fault_of_anthropic() {
    each_fault(MockWire::Anthropic).await;
}

async fn each_fault(wire: MockWire) {
    let Some(server) = LlmockServer::start() else {
        return;
    };
    for case in cases(wire) {
        fault(&server, wire, case).await;
    }
}

async fn fault(server: &LlmockServer, wire: MockWire, case: RunFaultCase) {
    let name = case.name;
    server.reset();
    server.queue_behaviors(&case.behaviors);
    let (_kept, project) = project_of(wire, &server.base_url(wire));
    let thread = project.tenant().create(describe_draft()).await.unwrap();
    let ended = impatient(server, wire, &project)
        .run(&thread.id, None, &EventSink::none(), &StopReceiver::never())
        .await
        .expect(name);
    assert_eq!(ended.status, case.status, "{name}: {ended:?}");
    assert_eq!(
        server.pending(),
        [] as [Value; 0],
        "{name}: the fault was not consumed"
    );
    let requests = server.requests();
    let asked = requests.len();
    assert!(asked >= case.requests, "{name}: {asked} requests");
    let events = project
        .tenant()
        .events(&thread.id, 0, 500, None)
        .await
        .unwrap()
        .events;
    assert!(
        events.iter().any(|event| event.kind == case.leaves),
        "{name}: no {}",
        case.leaves
    );
    if case.leaves == "tool_result" {
        let told = events
            .iter()
            .find(|event| event.kind == "tool_result")
            .unwrap();
        let body: Value = serde_json::from_str(&told.body).unwrap();
        assert_eq!(
            (&body["failed"], &body["state"]),
            (&json!(true), &json!("denied")),
            "{name}"
        );
    }
    turns_are_whole(name, &ended, &events);
    if case.status == "completed" && case.leaves != "tool_result" {
        assert_eq!(
            requests[0]["fingerprint"], requests[1]["fingerprint"],
            "{name}: another body was retried"
        );
    }
    assert_eq!(server.findings(), [] as [Value; 0], "{name}");
    let findings = threadkeep_tests::auditor::audit(&*project.tenant().context().storage);
    assert!(findings.is_empty(), "{name}: {findings:#?}");
}

/// Checks that every counted turn ended with a finish reason, and no partial reply counted as one.
fn turns_are_whole(name: &str, ended: &EndedRun, events: &[threadkeep::wit::Event]) {
    let results = events.iter().filter(|event| event.kind == "result").count() as u64;
    assert_eq!(ended.costs.turns, results, "{name}");
    for event in events.iter().filter(|event| event.kind == "message") {
        let body: Value = serde_json::from_str(&event.body).unwrap();
        let synthetic = body["synthetic"] == true;
        let partial = body["content"][0]["text"].as_str().unwrap_or_default() == "one two";
        assert!(
            synthetic || !partial,
            "{name}: a partial text became a message"
        );
    }
}

/// A driver whose provider waits only a second for the next chunk.
fn impatient(server: &LlmockServer, wire: MockWire, project: &OpenProject) -> Driver {
    struct ImpatientModels(Arc<dyn ModelProvider>);
    impl ModelProviders for ImpatientModels {
        fn provider(&self, model: &str) -> Result<(Arc<dyn ModelProvider>, String), ModelFailure> {
            Ok((Arc::clone(&self.0), model.to_owned()))
        }
    }
    let (answer, idle) = (Duration::from_secs(120), Duration::from_secs(1));
    let provider = ImpatientModels(wire.adapter(server.base_url(wire), None, answer, idle));
    project.driver_with_models(Arc::new(provider))
}
