//! Approvals from end to end against a third-party model server: from the command line, and through
//! the library with the answer in another process.

use crate::cli::fixture::CliProject;
use crate::component::project::open;
use cap_std::fs::Dir;
use serde_json::{Value, json};
use threadkeep::driver::{EventSink, StopReceiver};
use threadkeep_tests::llmock::{LlmockServer, MockWire};

fn project(wire: MockWire, base_url: &str) -> CliProject {
    let project = CliProject::empty();
    let models = format!(
        r#"
providers: {{mock: {{wire: {}, base_url: "{base_url}"}}}}
models:
  a-model: {{provider: mock, window: 128000, output: 2000,
      prices: {{input: "0.15", output: "0.60"}}}}
tiers: {{default: a-model}}
"#,
        wire.as_str()
    );
    project.write(".ai/config/models.yaml", &models);
    let directive = "---\ncapabilities: [execute.tool.read_file]\n\
        approvals: [execute.tool.*]\n---\nRead notes.txt.\n";
    project.write(".ai/directives/look.md", directive);
    project.write("notes.txt", "remember the milk");
    project
}

fn reads_twice() -> Value {
    let read = json!({"name": "read_file", "arguments": {"path": "notes.txt"}});
    json!([
        {"type": "reply", "text": "Let me look.", "tool_calls": [read, read]},
        {"type": "reply", "text": "It reminds of milk."},
    ])
}

#[test]
fn directive_with_approvals_suspends_is_approved_and_ends() {
    let Some(server) = LlmockServer::start() else {
        return;
    };
    for wire in MockWire::ALL {
        server.reset();
        server.queue_behaviors(&reads_twice());
        let project = project(wire, &server.base_url(wire));
        let answer = project.json(&["run", "look", "--id", "t"]);
        assert_eq!(answer["cause"]["code"], "approval_needed", "{answer}");
        let calls = answer["waits_for"]["calls"].as_array().unwrap().clone();
        assert_eq!(calls.len(), 2, "{answer}");
        let ids: Vec<&str> = calls
            .iter()
            .map(|call| call["call"].as_str().unwrap())
            .collect();
        project.json(&["deny", "t", ids[1], "--note", "Once is enough."]);
        let ended = project.json(&["approve", "t", ids[0]]);
        assert_eq!(ended["status"], "completed", "{ended}");
        assert_eq!(ended["result"], "It reminds of milk.", "{ended}");
        let requests = server.requests();
        assert_eq!(requests.len(), 2, "{wire:?}");
        let told = requests[1]["body"].to_string();
        for words in ["remember the milk", "denied: Once is enough."] {
            assert!(told.contains(words), "{wire:?}, {words}: {told}");
        }
        assert_eq!(server.findings(), [] as [Value; 0], "{wire:?}");
        assert_eq!(project.json(&["audit"])["findings"], json!([]));
    }
}

/// The run is of one process, the decision of another, and what goes on is a third one.
#[tokio::test]
async fn library_goes_on_where_another_process_has_decided() {
    let Some(server) = LlmockServer::start() else {
        return;
    };
    server.queue_behaviors(&reads_twice());
    let wire = MockWire::OpenAi;
    let project = project(wire, &server.base_url(wire));
    let answer = project.json(&["run", "look", "--id", "t"]);
    assert_eq!(answer["cause"]["code"], "approval_needed", "{answer}");
    let decided = project.json(&["approve", "t", "--all", "--no-run"]);
    assert_eq!(decided["exit"], 0, "{decided}");
    let dir = Dir::open_ambient_dir(project.path(), cap_std::ambient_authority()).unwrap();
    let opened = open(dir, None, &[]);
    let (sink, stop) = (EventSink::none(), StopReceiver::never());
    let ended = opened.driver().run("t", None, &sink, &stop).await.unwrap();
    assert_eq!(ended.status, "completed");
    assert_eq!(server.requests().len(), 2);
}
