//! A directive runs through the bundle against a server that judges its clients.

use super::stock_command::{BundleProject, ONLINE, creation, run_call};
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
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
    write_models(&bundle, "base_url: \"http://127.0.0.1:9/v1\"");
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
    let transcript = read_events(&bundle);
    assert!(
        transcript.contains("the connection was refused"),
        "{transcript}"
    );
    assert!(!transcript.contains("ErrorCode"), "{transcript}");
}

/// Writes a model of a provider of this entry.
fn write_models(bundle: &BundleProject, entry: &str) {
    let models = format!(
        "providers: {{p: {{wire: openai, {entry}}}}}\n\
         models: {{m: {{provider: p, window: 32000, output: 1000, prices: {{input: \"1\", output: \
         \"2\"}}}}}}\n\
         tiers: {{default: m}}\n"
    );
    bundle.project.write(".ai/config/models.yaml", &models);
}

fn read_events(bundle: &BundleProject) -> String {
    let arguments = ["transcript", "one", "--format", "jsonl"];
    bundle.project.run(&arguments).out
}

/// Serves connections on a port of its own: reads once, answers this and leaves them open. Returns
/// the address.
fn serve_connections(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else {
                return;
            };
            let mut request = [0; 1 << 16];
            // A client that has gone is answered nothing.
            let _ = connection.read(&mut request);
            let _ = connection.write_all(answer.as_bytes());
            open.push(connection);
        }
    });
    address
}

/// Symptom: a failure of TLS was `ErrorCode::TlsProtocolError`, and was tried again.
#[test]
fn a_failure_of_tls_is_final_and_said_in_words() {
    let Some(bundle) = BundleProject::new() else {
        return;
    };
    let address = serve_connections("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
    write_models(&bundle, &format!("base_url: \"https://{address}/v1\""));
    let granted = ["-S", "http", "--dir", ".::/"];
    let ended = bundle.run_granted(ONLINE, &granted, &["run", "hello", "--id", "one"]);
    assert_eq!(ended.code, Some(3), "{ended:#?}");
    assert!(ended.err.starts_with("run 1 of one\n"), "{ended:#?}");
    let words = "no secure connection to the server at https://";
    assert_eq!(ended.err.matches(words).count(), 1, "{ended:#?}");
}

/// Symptom: a call whose whole time was over "brought nothing of a reply for 300s", though less
/// time had passed.
#[test]
fn a_call_whose_time_is_over_names_that_time() {
    let Some(bundle) = BundleProject::new() else {
        return;
    };
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    for answer in ["", head] {
        let address = serve_connections(answer);
        let entry = format!("base_url: \"http://{address}/v1\", times: {{whole: 1}}");
        write_models(&bundle, &entry);
        let id = if answer.is_empty() { "one" } else { "two" };
        let arguments = ["-S", "http", "--dir", ".::/"];
        let invoke = |call: &str| bundle.invoke_with(ONLINE, &arguments, call);
        assert!(invoke(&creation(id, None)).out.starts_with("ok("));
        invoke(&run_call(id, "first"));
        let arguments = ["transcript", id, "--format", "jsonl"];
        let transcript = bundle.project.run(&arguments).out;
        let words = "the model's reply was not whole after 1 s, the time of this call";
        assert!(transcript.contains(words), "{transcript}");
    }
}
