//! `state.json` and its copies: their form, by an independent validator, and what is kept of them.

use super::fixture::{DocumentsFixture, draft};
use cap_std::fs::Dir;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use threadkeep::documents::ThreadDocuments;
use threadkeep::documents::checkpoints::{
    COPIES_DIR, CheckpointSettings, CompletionAction, STATE_FILE, StateFile,
};
use threadkeep::driver::{CommitNotice, CommitObserver};
use threadkeep::wit::registry;
use threadkeep::wit::runner::{Raised, SignalKind};

const SCHEMA: &str = include_str!("../../../docs/state.schema.json");

/// A parent that spawns a part and waits, a part that reads a file, and a chat with a small window.
const MODELS: &str = r#"
providers:
  local: {wire: scripted, file: script.json}
  above: {wire: scripted, file: parent.json}
  long: {wire: scripted, file: long.json}
models:
  tiny: {provider: local, window: 32000, output: 1000, prices: {input: "1.00", output: "2.00"}}
  boss: {provider: above, window: 32000, output: 1000, prices: {input: "1.00", output: "2.00"}}
  talker: {provider: long, window: 32000, output: 1000, prices: {input: "1.00", output: "2.00"}}
tiers: {default: tiny}
"#;
const PARENT: &str = "---\nmodel: boss\nlimits: {turns: 5, spend: 0.50}\n\
capabilities: [execute.tool.*]\n---\nHave it done.\n";
const PART: &str = "---\nlimits: {turns: 1}\ncapabilities: [execute.tool.read_file]\n---\nDo it.\n";
const PARENT_SCRIPT: &str = r#"[
  {"calls": [{"name": "spawn_thread", "arguments": {"directive": "part"}},
     {"name": "wait_threads", "arguments": {}}], "usage": {"input": 100, "output": 10}},
  {"text": "It waits.", "usage": {"input": 100, "output": 10}}
]"#;
const PART_SCRIPT: &str = r#"[
  {"text": "I look.", "thinking": "hm\u200b",
   "calls": [{"name": "read_file", "arguments": {"path": "notes.txt"}}],
   "usage": {"input": 100, "output": 10}},
  {"text": "A note.", "usage": {"input": 150, "output": 20}}
]"#;
const LONG_SCRIPT: &str = r#"[
  {"text": "One.", "usage": {"input": 30000, "output": 10}},
  {"text": "Completed work: one.", "usage": {"input": 30100, "output": 20}},
  {"text": "Two.", "usage": {"input": 500, "output": 10}}
]"#;

fn family() -> DocumentsFixture {
    DocumentsFixture::with_files(&[
        (".ai/config/models.yaml", MODELS),
        (".ai/parent.json", PARENT_SCRIPT),
        (".ai/script.json", PART_SCRIPT),
        (".ai/long.json", LONG_SCRIPT),
        (".ai/directives/parent.md", PARENT),
        (".ai/directives/part.md", PART),
    ])
}

/// The JSON Schema of `state.json`.
pub(super) fn schema() -> Value {
    serde_json::from_str(SCHEMA).unwrap()
}

/// Returns the names of the fields of an object.
pub(super) fn names(value: &Value) -> BTreeSet<String> {
    value.as_object().unwrap().keys().cloned().collect()
}

/// Checks documents by their JSON Schema, with a validator that shares no code with the project.
pub(super) struct SchemaJudge {
    schemas: boon::Schemas,
    index: boon::SchemaIndex,
}

impl SchemaJudge {
    pub(super) fn new() -> Self {
        let schema = schema();
        let id = schema["$id"].as_str().unwrap().to_owned();
        let mut schemas = boon::Schemas::new();
        let mut compiler = boon::Compiler::new();
        compiler.enable_format_assertions();
        compiler.add_resource(&id, schema).unwrap();
        let index = compiler.compile(&id, &mut schemas).unwrap();
        Self { schemas, index }
    }

    pub(super) fn check(&self, text: &str) {
        let document: Value = serde_json::from_str(text).unwrap();
        if let Err(error) = self.schemas.validate(&document, self.index) {
            panic!("{error:#}\n{text}");
        }
    }

    fn refuses(&self, text: &str) -> bool {
        let document: Value = serde_json::from_str(text).unwrap();
        self.schemas.validate(&document, self.index).is_err()
    }
}

/// Saves the checkpoint of a thread within each commit, and keeps its text.
pub(super) struct SaveOnCommit {
    documents: ThreadDocuments,
    settings: CheckpointSettings,
    threads: Dir,
    saved: Mutex<Vec<String>>,
}

impl SaveOnCommit {
    pub(super) fn new(world: &DocumentsFixture) -> Arc<Self> {
        Arc::new(Self {
            documents: world.documents.clone(),
            settings: CheckpointSettings {
                completion: CompletionAction::Keep,
                ..CheckpointSettings::parse(None).unwrap()
            },
            threads: world.open.threads().unwrap().try_clone().unwrap(),
            saved: Mutex::default(),
        })
    }

    pub(super) fn documents(&self) -> Vec<Value> {
        let saved = self.texts().into_iter();
        let parsed = saved.map(|text| serde_json::from_str(&text).unwrap());
        parsed.collect()
    }

    pub(super) fn texts(&self) -> Vec<String> {
        self.saved.lock().unwrap().clone()
    }

    /// Saves the checkpoint of a thread, and keeps its text.
    pub(super) async fn save(&self, thread: &str) {
        let saved = self.documents.save_checkpoint(thread, &self.settings);
        let saved = saved.await.expect("nothing is in the way");
        assert!(saved.copies_problem.is_none(), "{saved:?}");
        let dir = self.threads.open_dir(&saved.thread.id).unwrap();
        let text = dir.read_to_string(STATE_FILE).unwrap();
        let copy = format!("{COPIES_DIR}/{}.json", saved.version);
        assert_eq!(dir.read_to_string(copy).unwrap(), text);
        self.saved.lock().unwrap().push(text);
    }
}

impl CommitObserver for SaveOnCommit {
    fn on_commit(&self, commit: &CommitNotice<'_>) {
        block_on(self.save(commit.thread));
    }
}

pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(future))
}

/// Returns the values that the checkpoints have in a field.
fn values(documents: &[Value], field: &str) -> BTreeSet<String> {
    let values = documents.iter().map(|document| document[field].to_string());
    values.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_checkpoint_of_a_tree_and_of_a_hand_off_satisfies_the_schema() {
    let (world, judge) = (family(), SchemaJudge::new());
    let observer = SaveOnCommit::new(&world);
    let tenant = world.open.tenant();
    let parent = registry::Draft {
        directive: Some("parent".to_owned()),
        ..draft("top")
    };
    let top = tenant.create(parent).await.unwrap().id;
    let own = || Arc::<SaveOnCommit>::clone(&observer);
    world.say_observed(&top, "go", own()).await;
    let tree = observer.documents();
    let status = values(&tree, "status");
    for expected in ["running", "waiting", "suspended", "completed"] {
        assert!(
            status.contains(&format!("\"{expected}\"")),
            "{expected}: {status:?}"
        );
    }
    let suspended = tree
        .iter()
        .find(|one| one["status"] == "suspended")
        .unwrap();
    assert_eq!(suspended["suspend_reason"], "limit");
    let why = &suspended["suspend_metadata"];
    assert_eq!(
        (
            &why["limit_code"],
            &why["current_value"],
            &why["current_max"]
        ),
        (&"turns_exceeded".into(), &1.into(), &1.into())
    );
    assert_eq!(suspended["parent_thread_id"], "top");
    let roles: Vec<&str> = suspended["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool"]);
    assert_eq!(suspended["messages"][0]["content"], "Do it.\n");
    assert_eq!(suspended["cost"]["tokens"]["input_tokens"], 100);
    // The part goes on in place and ends.
    let part = suspended["thread_id"].as_str().unwrap().to_owned();
    let caps = threadkeep::wit::Limits {
        turns: Some(3),
        ..registry_limits()
    };
    let raise = SignalKind::Raise(Raised {
        caps,
        through: false,
    });
    tenant.signal(&part, "raise", raise).await.unwrap();
    let ended = world.say_observed(&part, "go on", own()).await;
    assert_eq!(ended.status, "completed", "{:?}", ended.cause);
    let next = hand_chat_off(&world, &observer).await;
    let documents = observer.documents();
    assert!(values(&documents, "status").contains("\"continued\""));
    let next = documents
        .iter()
        .rfind(|one| one["thread_id"] == next.as_str());
    assert_eq!(next.unwrap()["chain_id"], "talk");
    for text in observer.texts().iter() {
        judge.check(text);
        let file = StateFile::parse(serde_json::from_str(text).unwrap());
        file.expect("its own hash fits its messages");
    }
}

/// Talks with a chat until it goes on in another thread; returns that one.
async fn hand_chat_off(world: &DocumentsFixture, observer: &Arc<SaveOnCommit>) -> String {
    let chat = registry::Draft {
        model: Some("talker".to_owned()),
        ..draft("talk")
    };
    let chat = world.open.tenant().create(chat).await.unwrap().id;
    let own = || Arc::<SaveOnCommit>::clone(observer);
    // A provider is believed no more tokens than a text has bytes.
    let long = "word ".repeat(8_000);
    world.say_observed(&chat, &long, own()).await;
    let ended = world.say_observed(&chat, "second", own()).await;
    assert_ne!(ended.thread, chat, "it is handed off");
    ended.thread
}

fn registry_limits() -> threadkeep::wit::Limits {
    threadkeep::wit::Limits {
        turns: None,
        tokens: None,
        spend: None,
        spawns: None,
        depth: None,
        duration: None,
    }
}

/// The schema has the fields that are written, and refuses what none of them may be.
#[tokio::test(flavor = "multi_thread")]
async fn schema_is_that_of_what_is_written() {
    let (world, judge) = (family(), SchemaJudge::new());
    let chat = world.chat("talk").await;
    world.say(&chat, "hello").await;
    let piece = world
        .open
        .tenant()
        .render(&chat, "checkpoint", None, 0, None);
    let written: Value = serde_json::from_str(&piece.await.unwrap().text).unwrap();
    let schema = schema();
    assert_eq!(names(&written), names(&schema["properties"]));
    for part in ["cost", "limits"] {
        let expected = names(&schema["properties"][part]["properties"]);
        assert_eq!(names(&written[part]), expected, "{part}");
    }
    for (field, wrong) in [
        ("thread_id", Value::Null),
        ("version", "1.2.0".into()),
        ("saved_at", "yesterday".into()),
        ("status", "paused".into()),
        ("suspend_reason", "mood".into()),
        ("turn_number", "one".into()),
        ("limits", serde_json::json!({"spend": "1.00"})),
        ("state", serde_json::json!({"thread": {}, "run": {}})),
        (
            "suspend_metadata",
            serde_json::json!({"calls": [{"id": "call_2_0"}]}),
        ),
        (
            "messages",
            serde_json::json!([{"role": "robot", "content": ""}]),
        ),
        ("messages", serde_json::json!([{"role": "user"}])),
        (
            "partial_cognition",
            serde_json::json!({"text": "x", "completion_percentage": 101}),
        ),
    ] {
        let mut changed = written.clone();
        changed[field] = wrong;
        assert!(judge.refuses(&changed.to_string()), "{field}");
    }
    let then = world
        .open
        .tenant()
        .render(&chat, "checkpoint", Some(1), 0, None);
    judge.check(&then.await.unwrap().text);
}

/// A window above what one piece holds is rendered in pieces, all of the version of the first.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_window_is_saved_in_pieces() {
    let world = DocumentsFixture::new();
    let tenant = world.open.tenant();
    let chat = world.chat("large").await;
    let text = "x".repeat(300 << 10);
    let event = serde_json::json!({"type": "message", "role": "user", "content": text});
    for version in 0..16 {
        let events = vec![event.to_string()];
        tenant.append(&chat, None, version, events).await.unwrap();
    }
    let first = tenant
        .render(&chat, "checkpoint", None, 0, None)
        .await
        .unwrap();
    assert!(first.cursor.is_some() && first.text.len() <= 4 << 20);
    let events = vec![event.to_string()];
    tenant.append(&chat, None, 16, events).await.unwrap();
    let mut whole = first.text;
    let mut cursor = first.cursor;
    while cursor.is_some() {
        let piece = tenant
            .render(&chat, "checkpoint", None, 0, cursor)
            .await
            .unwrap();
        assert_eq!(piece.version, 16);
        whole += &piece.text;
        cursor = piece.cursor;
    }
    let document: Value = serde_json::from_str(&whole).unwrap();
    assert_eq!(document["messages"].as_array().unwrap().len(), 16);
    assert_eq!(document["history_version"], 16);
    StateFile::parse(document).expect("its own hash fits its messages");
    let settings = CheckpointSettings::parse(None).unwrap();
    let saved = world
        .documents
        .save_checkpoint(&chat, &settings)
        .await
        .unwrap();
    assert_eq!(saved.version, 17);
    let size = world.thread_dir(&chat).metadata(STATE_FILE).unwrap().len();
    assert!(size > 4 << 20, "{size}");
    for cursor in ["", "16", "16:0:2", "99:0:1"] {
        let told = tenant.render(&chat, "checkpoint", Some(16), 0, Some(cursor.to_owned()));
        assert!(told.await.is_err(), "{cursor}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_are_full_or_patches_and_may_be_compressed() {
    let world = DocumentsFixture::new();
    let chat = world.chat("talk").await;
    let settings = CheckpointSettings {
        incremental: true,
        ..CheckpointSettings::parse(None).unwrap()
    };
    let note = r#"{"type":"note","name":"n","body":1}"#.to_owned();
    let mut compressed = settings.clone();
    compressed.compress = true;
    for version in 0..12 {
        let events = vec![note.clone()];
        world
            .open
            .tenant()
            .append(&chat, None, version, events)
            .await
            .unwrap();
        let settings = if version < 11 { &settings } else { &compressed };
        let saved = world
            .documents
            .save_checkpoint(&chat, settings)
            .await
            .unwrap();
        assert!(saved.copies_problem.is_none(), "{saved:?}");
    }
    // The newest ten, and the full one that they rest on.
    let copies = world.thread_dir(&chat).open_dir(COPIES_DIR).unwrap();
    let names = file_names(&copies);
    let mut expected: Vec<String> = (3..=10).map(|n| format!("{n}.patch-1.json")).collect();
    expected.extend(["1.json", "11.json", "12.patch-11.json.gz"].map(str::to_owned));
    expected.sort();
    assert_eq!(names, expected);
    for (name, version) in [
        ("5.patch-1.json", 5),
        ("12.patch-11.json.gz", 12),
        ("11.json", 11),
    ] {
        let file = StateFile::read(&copies, name).unwrap();
        assert_eq!(file.history_version(), Some(version), "{name}");
    }
    copies.remove_file("11.json").unwrap();
    let torn = StateFile::read(&copies, "12.patch-11.json.gz").unwrap_err();
    assert!(torn.to_string().contains("11.json"), "{torn}");
}

fn file_names(dir: &Dir) -> Vec<String> {
    let names = dir.entries().unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_of_an_ended_thread_are_archived_removed_or_kept() {
    for (completion, at_place, archived) in [
        (CompletionAction::Archive, false, true),
        (CompletionAction::Delete, false, false),
        (CompletionAction::Keep, true, false),
    ] {
        let world = DocumentsFixture::new();
        let chat = world.chat("talk").await;
        world.say(&chat, "hello").await;
        let settings = CheckpointSettings {
            completion,
            archive_dir: "old.d".to_owned(),
            ..CheckpointSettings::parse(None).unwrap()
        };
        world
            .documents
            .save_checkpoint(&chat, &settings)
            .await
            .unwrap();
        assert!(
            world.thread_dir(&chat).exists(STATE_FILE),
            "an idle thread has not ended"
        );
        let kill = world.open.tenant().signal(&chat, "k", SignalKind::Kill);
        let last = kill.await.unwrap();
        for _ in 0..2 {
            // Repeated, as after a crash in the middle, it comes to the same.
            let saved = world
                .documents
                .save_checkpoint(&chat, &settings)
                .await
                .unwrap();
            assert!(saved.copies_problem.is_none(), "{saved:?}");
            let dir = world.thread_dir(&chat);
            let copy = format!("{last}.json");
            assert_eq!(dir.exists(STATE_FILE), at_place, "{completion:?}");
            assert_eq!(dir.exists(format!("{COPIES_DIR}/{copy}")), at_place);
            assert_eq!(dir.exists(format!("old.d/{STATE_FILE}")), archived);
            assert_eq!(dir.exists(format!("old.d/{copy}")), archived);
            assert_eq!(dir.exists(COPIES_DIR), at_place);
        }
    }
}

/// A link in the place of the copies is neither followed nor removed, and `state.json` is saved.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn a_link_in_the_place_of_the_copies_leads_nowhere() {
    let world = DocumentsFixture::new();
    let chat = world.chat("talk").await;
    world.documents.refresh(&chat).await.unwrap();
    world.root.create_dir("outside").unwrap();
    world.root.write("outside/1.json", "keep").unwrap();
    let dir = world.thread_dir(&chat);
    dir.symlink_contents("../../../../outside", COPIES_DIR)
        .unwrap();
    let settings = CheckpointSettings::parse(None).unwrap();
    let saved = world
        .documents
        .save_checkpoint(&chat, &settings)
        .await
        .unwrap();
    let problem = saved.copies_problem.expect("it is told").to_string();
    assert!(problem.contains("checkpoints.d"), "{problem}");
    assert!(dir.exists(STATE_FILE));
    assert_eq!(
        file_names(&world.root.open_dir("outside").unwrap()),
        ["1.json"]
    );
    assert!(
        world
            .documents
            .prune(&chat, &settings, false)
            .await
            .is_err()
    );
    assert_eq!(world.root.read("outside/1.json").unwrap(), b"keep");
}

/// A pruning removes what its rehearsal named, whatever else lies beside.
#[tokio::test(flavor = "multi_thread")]
async fn prune_removes_exactly_what_the_rehearsal_named() {
    let world = DocumentsFixture::new();
    let chat = world.chat("talk").await;
    world.documents.refresh(&chat).await.unwrap();
    let dir = world.thread_dir(&chat);
    dir.create_dir(COPIES_DIR).unwrap();
    for version in 1..=5 {
        dir.write(format!("{COPIES_DIR}/{version}.json"), "{}")
            .unwrap();
    }
    for beside in [
        "state.json.new",
        "checkpoints.d/6.json.new",
        "checkpoints.d/notes.txt",
    ] {
        dir.write(beside, "").unwrap();
    }
    let settings = CheckpointSettings {
        copies_max: 3,
        ..CheckpointSettings::parse(None).unwrap()
    };
    let before = files_below(&dir);
    let named = world.documents.prune_all(&settings, true).await.unwrap();
    assert_eq!(files_below(&dir), before, "a rehearsal removes nothing");
    let named: Vec<(String, &str)> = named
        .files
        .iter()
        .map(|file| (file.path.clone(), file.reason.as_str()))
        .collect();
    let path = |name: &str| format!(".ai/threads/talk/{name}");
    assert_eq!(
        named,
        [
            (path("state.json.new"), "left-behind"),
            (path("checkpoints.d/6.json.new"), "left-behind"),
            (path("checkpoints.d/2.json"), "too-many"),
            (path("checkpoints.d/1.json"), "too-many"),
        ]
    );
    world.documents.prune_all(&settings, false).await.unwrap();
    let after = files_below(&dir);
    let removed: BTreeSet<String> = before.difference(&after).map(|name| path(name)).collect();
    assert_eq!(removed, named.into_iter().map(|(path, _)| path).collect());
    assert!(after.is_subset(&before));
    let again = world.documents.prune_all(&settings, false).await.unwrap();
    assert!(again.files.is_empty() && again.failed.is_empty());
}

fn files_below(dir: &Dir) -> BTreeSet<String> {
    let mut files: BTreeSet<String> = file_names(dir).into_iter().collect();
    let inner = file_names(&dir.open_dir(COPIES_DIR).unwrap());
    files.extend(inner.iter().map(|name| format!("{COPIES_DIR}/{name}")));
    files
}
