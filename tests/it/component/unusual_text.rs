//! Text that breaks things: NUL, lone surrogates, invalid UTF-8, CJK, emoji, and a tool result of
//! five megabytes. It comes back unchanged, or is refused, or is cut on a character boundary with a
//! notice.

use super::project::{describe_draft, open, project_dir};
use serde_json::{Value, json};
use threadkeep::driver::{EndedRun, EventSink, StopReceiver};
use threadkeep::wit::Event;

const MODELS: &str = r#"
providers: {local: {wire: scripted, file: script.json}}
models:
  tiny: {provider: local, window: 2000000, output: 1000, prices: {input: "0.01", output: "0.02"}}
tiers: {default: tiny}
"#;

async fn run(replies: Value, files: &[(&str, &[u8])]) -> (EndedRun, Vec<Event>) {
    let (_kept, dir) = project_dir(MODELS);
    dir.write(".ai/script.json", replies.to_string()).unwrap();
    for (name, bytes) in files {
        dir.write(name, bytes).unwrap();
    }
    let project = open(dir, None, &[]);
    let thread = project.tenant().create(describe_draft()).await.unwrap();
    let driver = project.driver();
    let ended = driver
        .run(&thread.id, None, &EventSink::none(), &StopReceiver::never())
        .await
        .unwrap();
    let findings = threadkeep_tests::auditor::audit(&*project.tenant().context().storage);
    assert!(findings.is_empty(), "{findings:#?}");
    let page = project
        .tenant()
        .events(&thread.id, 0, 500, None)
        .await
        .unwrap();
    (ended, page.events)
}

fn reads(path: &str) -> Value {
    json!([
        {"calls": [{"name": "read_file", "arguments": {"path": path}}]},
        {"text": "done"},
    ])
}

fn result(events: &[Event]) -> Value {
    let event = events
        .iter()
        .find(|event| event.kind == "tool_result")
        .expect("the call has a result");
    serde_json::from_str(&event.body).unwrap()
}

#[tokio::test]
async fn model_text_round_trips() {
    let said = "a\0b \u{1}\u{2} 漢字 🙂 \u{202e}x \u{7f} \"quotes\" \\ and\nlines\r\n";
    let (ended, events) = run(json!([{"text": said}]), &[]).await;
    let result: String = serde_json::from_str(ended.result.as_deref().unwrap()).unwrap();
    assert_eq!(result, said);
    let message = events
        .iter()
        .rev()
        .find(|event| event.kind == "message")
        .unwrap();
    let body: Value = serde_json::from_str(&message.body).unwrap();
    assert_eq!(body["content"][0]["text"], said);
}

#[tokio::test]
async fn lone_surrogates_in_arguments_are_an_error_for_the_model() {
    let replies = json!([
        {"calls": [{"name": "read_file", "arguments": "{\"path\": \"\\ud800\"}"}]},
        {"text": "done"},
    ]);
    let (ended, events) = run(replies, &[]).await;
    assert_eq!(ended.status, "completed");
    let result = result(&events);
    assert_eq!(
        (&result["failed"], &result["state"]),
        (&json!(true), &json!("denied"))
    );
}

#[tokio::test]
async fn five_megabytes_are_cut_on_a_character_with_a_word_about_it() {
    let line = "漢字と🙂 and text\n";
    let large = line.repeat(5_000_000 / line.len());
    let (ended, events) = run(reads("large.txt"), &[("large.txt", large.as_bytes())]).await;
    assert_eq!(ended.status, "completed");
    let result = result(&events);
    let text = result["text"].as_str().unwrap();
    assert!(text.len() < 100_000, "{} bytes", text.len());
    assert!(text.starts_with(line));
    assert!(!text.contains('\u{fffd}'), "a character was cut in two");
    let last = text.lines().last().unwrap();
    assert!(
        last.contains("offset") || last.contains("cut") || last.contains("of"),
        "{last}"
    );
}

#[tokio::test]
async fn invalid_utf8_in_a_file_is_shown_with_a_word_about_it() {
    let (ended, events) = run(reads("bad.txt"), &[("bad.txt", b"good \xff\xfe text\n")]).await;
    assert_eq!(ended.status, "completed");
    let text = result(&events)["text"].as_str().unwrap().to_owned();
    assert!(text.contains("good ") && text.contains("UTF-8"), "{text}");
}
