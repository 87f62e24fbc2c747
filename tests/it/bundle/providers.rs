//! A directive runs through the bundle against a server that judges its clients.

use super::stock_command::{BundleProject, ONLINE, creation, run_call};
use serde_json::json;
use threadkeep_tests::llmock::{LlmockServer, MockWire};

const KEY: &str = "sk-mock-0123456789";

#[test]
fn a_directive_runs_over_http_with_a_tool_call() {
    let (Some(bundle), Some(server)) = (BundleProject::new(), LlmockServer::start()) else {
        return;
    };
    let directive = "---\ncapabilities: [execute.tool.list_threads]\n---\nSay hello.\n";
    bundle.project.write(".ai/directives/hello.md", directive);
    for wire in MockWire::ALL {
        server.reset();
        let (name, url) = (wire.as_str(), server.base_url(wire));
        let models = format!(
            "providers: {{p: {{wire: {name}, base_url: \"{url}\", key: \"${{MOCK_API_KEY}}\"}}}}\n\
             models: {{m: {{provider: p, window: 32000, output: 1000, prices: {{input: \"1\", \
             output: \"2\"}}}}}}\n\
             tiers: {{default: m}}\n"
        );
        bundle.project.write(".ai/config/models.yaml", &models);
        server.queue_behaviors(&json!([
            {"type": "reply", "text": "Let me look.",
                "tool_calls": [{"name": "list_threads", "arguments": {}}]},
            {"type": "fail", "status": 503},
            {"type": "reply", "text": "All is well."},
        ]));
        let key = format!("MOCK_API_KEY={KEY}");
        let arguments = ["-S", "http", "--dir", ".::/", "--env", key.as_str()];
        let invoke = |call: &str| bundle.invoke_with(ONLINE, &arguments, call);
        assert!(invoke(&creation(name, None)).out.starts_with("ok("));
        let answer = run_to_end(|turn| invoke(&run_call(name, &format!("key-{turn}"))).out);
        assert!(answer.contains("All is well."), "{name}: {answer}");
        assert!(!answer.contains(KEY), "{answer}");
        assert_eq!(server.findings(), Vec::<serde_json::Value>::new(), "{name}");
        assert_eq!(server.requests().len(), 3, "{name}");
        assert!(server.pending().is_empty(), "{name}");
    }
    bundle.assert_sound();
    let transcript = bundle.project.run(&["transcript", "openai"]).out;
    assert!(transcript.contains("list_threads") && !transcript.contains(KEY));
}

/// Repeats a call of `run` while it answers that the thread waits for a time.
fn run_to_end(call: impl Fn(u32) -> String) -> String {
    let mut answer = String::new();
    for turn in 0..30 {
        answer = call(turn);
        if !answer.contains("more") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    answer
}

#[test]
fn a_server_that_is_not_there_is_tried_again_later() {
    let Some(bundle) = BundleProject::new() else {
        return;
    };
    let models = "providers: {p: {wire: openai, base_url: \"http://127.0.0.1:9/v1\"}}\n\
                  models: {m: {provider: p, window: 32000, output: 1000, prices: {input: \"1\", \
                  output: \"2\"}}}\n\
                  tiers: {default: m}\n";
    bundle.project.write(".ai/config/models.yaml", models);
    let arguments = ["-S", "http", "--dir", ".::/"];
    let invoke = |call: &str| bundle.invoke_with(ONLINE, &arguments, call);
    assert!(invoke(&creation("one", None)).out.starts_with("ok("));
    let answer = invoke(&run_call("one", "first")).out;
    assert!(answer.contains("until"), "{answer}");
    let shown = bundle.project.json(&["budget", "show", "one"]);
    assert!(
        shown.to_string().contains("\"tree_spend\":\"0.00\""),
        "nothing was sent: {shown}"
    );
}
