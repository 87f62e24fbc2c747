//! A tree under one budget from the command line, against a third-party model server over real
//! HTTP: it runs out of money, is raised, goes on in place and completes.

use crate::cli::fixture::CliProject;
use serde_json::{Value, json};
use threadkeep_tests::llmock::{LlmockServer, MockWire};

/// A project with directives on three levels: each spawns the next and waits for it.
fn project(base_url: &str) -> CliProject {
    let project = CliProject::empty();
    project.write(
        ".ai/config/models.yaml",
        &format!(
            r#"
providers: {{mock: {{wire: openai, base_url: "{base_url}"}}}}
models:
  a-model: {{provider: mock, window: 128000, output: 2000,
      prices: {{input: "0.15", output: "0.60"}}}}
tiers: {{default: a-model}}
"#
        ),
    );
    for (name, spend) in [
        ("top", "limits: {spend: 0.003}\n"),
        ("mid", ""),
        ("leaf", ""),
    ] {
        let text = format!("---\n{spend}capabilities: [execute.tool.*]\n---\nYou are {name}.\n");
        project.write(&format!(".ai/directives/{name}.md"), &text);
    }
    project.write("notes.txt", "remember the milk");
    project
}

/// A reply with these calls and this text.
fn calls(calls: &[(&str, Value)], text: &str) -> Value {
    let calls: Vec<Value> = calls
        .iter()
        .map(|(name, arguments)| json!({"name": name, "arguments": arguments}))
        .collect();
    json!({"type": "reply", "text": text, "tool_calls": calls})
}

fn nanos(amount: &Value) -> u64 {
    let (whole, fraction) = amount
        .as_str()
        .expect("a decimal")
        .split_once('.')
        .expect("a point");
    format!("{whole}{fraction:0<9}").parse().expect("digits")
}

/// Returns the branches of a tree, after checking that their figures add up to the nano-USD.
fn tree(project: &CliProject, top: &str) -> Vec<Value> {
    let tree = project.json(&["tree", top]);
    let branches = tree["threads"].as_array().expect("a list").clone();
    let used: u64 = branches.iter().map(|branch| nanos(&branch["spend"])).sum();
    let account = &branches[0]["account"];
    assert_eq!(nanos(&account["spent"]), used, "{tree}");
    let figures = ["spent", "held", "reserved", "remaining"].map(|name| nanos(&account[name]));
    assert_eq!(
        figures.iter().sum::<u64>(),
        nanos(&account["limit"]),
        "{tree}"
    );
    let audit = project.json(&["audit"]);
    assert_eq!(audit["findings"], json!([]), "{audit}");
    branches
}

fn statuses(branches: &[Value]) -> Vec<&str> {
    branches
        .iter()
        .map(|branch| branch["status"].as_str().unwrap_or_default())
        .collect()
}

#[test]
fn three_levels_run_out_of_money_are_raised_and_go_on_in_place() {
    let Some(server) = LlmockServer::start() else {
        return;
    };
    // About 1,500 tokens, which cost a third of the budget; in one word, so that it is sent at
    // once.
    let long = "x".repeat(6_000);
    let spawns = |next: &str| {
        let spawn = ("spawn_thread", json!({"directive": next}));
        calls(&[spawn, ("wait_threads", json!({}))], &long)
    };
    let reads = calls(&[("read_file", json!({"path": "notes.txt"}))], &long);
    server.queue_behaviors(&json!([spawns("mid"), spawns("leaf"), reads]));
    let project = project(&server.base_url(MockWire::OpenAi));
    let answer = project.json(&["run", "top", "--id", "top-1"]);
    assert_eq!(answer["status"], "suspended", "{answer}");
    assert_eq!(answer["cause"]["reason"], "budget", "{answer}");
    assert_eq!(statuses(&tree(&project, "top-1")), ["suspended"; 3]);
    assert_eq!(server.pending(), [] as [Value; 0], "each was asked once");
    // Without money nothing goes on.
    let answer = project.json(&["resume", "top-1"]);
    assert_ne!(answer["exit"], 0, "{answer}");
    project.json(&["raise", "top-1", "--spend", "0.10"]);
    // The first thread asked waits for its own child; the leaf has no child to wait for and goes on
    // at once.
    let waits = || calls(&[("wait_threads", json!({}))], "I wait.");
    server.queue_behaviors(&json!([waits(), waits(), waits()]));
    let answer = project.json(&["resume", "top-1"]);
    assert_eq!(answer["status"], "completed", "{answer}");
    let branches = tree(&project, "top-1");
    assert_eq!(statuses(&branches), ["completed"; 3]);
    assert_eq!(server.findings(), [] as [Value; 0]);
}
