//! Fields of `state.json` that tell of calls that wait for decisions and of the state of a thread.

use super::checkpoint_saves::{SaveOnCommit, SchemaJudge, names, schema};
use super::fixture::{DocumentsFixture, draft};
use serde_json::{Value, json};
use std::sync::Arc;
use threadkeep::documents::checkpoints::StateFile;
use threadkeep::wit::history::{ChangeSet, Expected};
use threadkeep::wit::registry;
use threadkeep::wit::runner::SignalKind;

const MODELS: &str = r#"
providers: {local: {wire: scripted, file: script.json}}
models:
  tiny: {provider: local, window: 32000, output: 1000, prices: {input: "1.00", output: "2.00"}}
tiers: {default: tiny}
"#;
const DIRECTIVE: &str = "---\nlimits: {turns: 9, spend: 0.50}\n\
capabilities: [execute.tool.read_file, execute.tool.list_files]\n\
approvals: [execute.tool.read_*]\n---\nLook around.\n";

/// A reply whose call waits for a decision, one that fills the window, its summary, and the end.
const SCRIPT: &str = r#"[
  {"text": "I look.", "calls": [{"name": "read_file", "arguments": {"path": "notes.txt"}}],
   "usage": {"input": 100, "output": 10}},
  {"text": "And here.", "calls": [{"name": "list_files", "arguments": {}}],
   "usage": {"input": 30000, "output": 10}},
  {"text": "Completed work: a look.", "usage": {"input": 30100, "output": 20}},
  {"text": "It is done.", "usage": {"input": 500, "output": 10}}
]"#;

fn asking_world() -> DocumentsFixture {
    // A provider is believed no more tokens than a text has bytes.
    let long = "word ".repeat(8_000);
    DocumentsFixture::with_files(&[
        ("notes.txt", &long),
        (".ai/config/models.yaml", MODELS),
        (".ai/script.json", SCRIPT),
        (".ai/directives/look.md", DIRECTIVE),
    ])
}

/// Begins a thread that has a state, and runs it until its call waits for a decision.
async fn run_until_it_asks(world: &DocumentsFixture, observer: &Arc<SaveOnCommit>) -> String {
    let tenant = world.open.tenant();
    let looking = registry::Draft {
        directive: Some("look".to_owned()),
        ..draft("look")
    };
    let thread = tenant.create(looking).await.unwrap().id;
    let mut change = ChangeSet::of_events(Vec::new());
    change.snapshot = Some(r#"{"thread": {"total": 1.50, "mark": "\u200b"}}"#.to_owned());
    let appended = tenant.append_change(&thread, None, Expected::Exact(0), change);
    appended.await.unwrap();
    let observer = Arc::<SaveOnCommit>::clone(observer);
    let asked = world.say_observed(&thread, "go", observer).await;
    assert_eq!(asked.status, "suspended", "{:?}", asked.cause);
    thread
}

#[tokio::test(flavor = "multi_thread")]
async fn every_checkpoint_of_a_run_with_an_approval_a_state_and_a_hand_off_satisfies_the_schema() {
    let (world, judge) = (asking_world(), SchemaJudge::new());
    let observer = SaveOnCommit::new(&world);
    let tenant = world.open.tenant();
    let thread = run_until_it_asks(&world, &observer).await;
    let asked = observer.documents().pop().unwrap();
    let why = &asked["suspend_metadata"];
    assert_eq!(
        (&asked["suspend_reason"], &why["code"]),
        (&json!("approval"), &json!("approval_needed"))
    );
    let [call] = why["calls"].as_array().unwrap().as_slice() else {
        panic!("one call waits: {why}")
    };
    let used = &asked["messages"][2]["content"][1];
    assert_eq!(
        (&call["id"], &call["name"], &call["arguments"]),
        (&used["id"], &json!("read_file"), &used["arguments"])
    );
    let properties = &schema()["properties"];
    let described = &properties["suspend_metadata"]["properties"]["calls"]["items"];
    assert_eq!(names(call), names(&described["properties"]));
    assert_eq!(
        names(&asked["state"]),
        names(&properties["state"]["properties"])
    );
    assert_eq!(
        asked["state"]["thread"].to_string(),
        "{\"total\":1.50,\"mark\":\"\u{200b}\"}"
    );

    let id = call["id"].as_str().unwrap();
    let counted = json!({"scope": "run", "op": "add", "path": "/looks", "value": 1});
    let own = json!({"scope": "tool-call", "call": id, "op": "max", "path": "/n", "value": 7});
    let mut change = ChangeSet::of_events(Vec::new());
    change.operations = vec![counted.to_string(), own.to_string()];
    let appended = tenant.append_change(&thread, None, Expected::Any, change);
    appended.await.unwrap();
    observer.save(&thread).await;
    let changed = observer.documents().pop().unwrap();
    assert_eq!(changed["state"]["run"], json!({"looks": 1}));
    assert_eq!(changed["state"]["tool_call"], json!({id: {"n": 7}}));
    assert_eq!(changed["suspend_metadata"]["calls"], why["calls"]);

    let decision = json!({"call": id, "approve": true}).to_string();
    let decision = SignalKind::Decision(decision);
    tenant.signal(&thread, "approve", decision).await.unwrap();
    let own = Arc::<SaveOnCommit>::clone(&observer);
    let ended = world.go_on_observed(&thread, own).await;
    assert_eq!(ended.status, "completed", "{:?}", ended.cause);
    assert_ne!(ended.thread, thread, "it was handed off");
    let documents = observer.documents();
    let last = documents.last().unwrap();
    assert_eq!(last["state"]["thread"], asked["state"]["thread"]);
    assert_eq!(last["suspend_metadata"], Value::Null);
    assert!(
        documents.iter().any(|one| one["status"] == "continued"),
        "the hand-off is among them"
    );
    for text in observer.texts() {
        judge.check(&text);
        let file = StateFile::parse(serde_json::from_str(&text).unwrap());
        file.expect("its own hash fits its messages");
    }
    check_first_version(&world, &judge, &thread).await;
}

/// An earlier version has the state that it had, and no figures.
async fn check_first_version(world: &DocumentsFixture, judge: &SchemaJudge, thread: &str) {
    let tenant = world.open.tenant();
    let then = tenant.render(thread, "checkpoint", Some(1), 0, None);
    let then = then.await.unwrap().text;
    judge.check(&then);
    let then: Value = serde_json::from_str(&then).unwrap();
    assert_eq!(then["state"]["thread"]["mark"], "\u{200b}");
    assert_eq!(then["state"]["run"], json!({}));
    assert_eq!(then["suspend_metadata"], Value::Null);
}
