//! `usage.jsonl`: one line for each reply with reported final usage; a bad file in its place fails
//! no run.

use crate::cli::fixture::CliProject;
use crate::component::fixture::message;
use crate::component::project::{describe_draft, open, project_dir};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use threadkeep::driver::{EventSink, RunEvent, StopReceiver};
use threadkeep::project::OpenProject;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_tests::canned::{CannedServer, SSE};
use threadkeep_tests::faulty::{DeathPoint, FaultyStore};
use threadkeep_tests::fixture::{SCRIPTED_MODELS, draft};
use threadkeep_tests::llmock::MockWire;

fn lines(project: &Path) -> Vec<Value> {
    let log = std::fs::read_to_string(project.join(".ai/threads/usage.jsonl"));
    let log = log.unwrap_or_default();
    let lines = log
        .lines()
        .map(|line| serde_json::from_str(line).expect(line));
    lines.collect()
}

fn chunk(json: &Value) -> String {
    format!("data: {json}\n\n")
}

/// A reply on the OpenAI wire, with this usage or without any.
fn reply(usage: Option<Value>) -> String {
    let hello = json!({"choices": [{"index": 0, "delta": {"content": "Hello."}}]});
    let stop = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let usage = usage.map(|usage| chunk(&json!({"choices": [], "usage": usage})));
    let usage = usage.unwrap_or_default();
    format!(
        "{SSE}{}{}{usage}data: [DONE]\n\n",
        chunk(&hello),
        chunk(&stop)
    )
}

fn project_at(base_url: &str) -> (tempfile::TempDir, OpenProject) {
    let models = format!(
        r#"
providers: {{mock: {{wire: openai, base_url: "{base_url}"}}}}
models:
  a-model: {{provider: mock, window: 128000, output: 2000,
      prices: {{input: "0.15", cache_read: "0.075", output: "0.60"}}}}
tiers: {{default: a-model}}
"#
    );
    let (kept, dir) = project_dir(&models);
    (kept, open(dir, None, &[]))
}

async fn say(project: &OpenProject, thread: &str) {
    let run = project
        .driver()
        .run(
            thread,
            Some(message("hi")),
            &EventSink::none(),
            &StopReceiver::never(),
        )
        .await;
    assert_eq!(run.unwrap().status, "idle");
    project.wait_for_usage_log().await;
}

#[tokio::test]
async fn only_reported_final_usage_is_noted() {
    let usage = json!({
        "prompt_tokens": 100, "completion_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 40},
    });
    let broken = reply(Some(usage.clone())).replace("data: [DONE]\n\n", "");
    let (broken, _) = broken.split_once("finish_reason").unwrap();
    let server = CannedServer::start(vec![
        reply(Some(usage.clone())),
        reply(None),
        broken.to_owned(),
        reply(Some(usage)),
    ]);
    let (kept, project) = project_at(&server.base_url(MockWire::OpenAi));
    let mut chat = draft(None);
    chat.agent = Some("Kiwi".to_owned());
    let thread = project.tenant().create(chat).await.unwrap().id;
    say(&project, &thread).await;
    let first = lines(kept.path());
    let [line] = &first[..] else {
        panic!("{first:#?}");
    };
    let timestamp = line["timestamp"].as_str().unwrap();
    assert!(
        timestamp.ends_with('Z') && timestamp.len() == 24,
        "{timestamp}"
    );
    let mut expected = json!({
        "timestamp": timestamp, "agentId": "Kiwi", "threadId": thread, "inputTokens": 60,
        "outputTokens": 10, "cacheReadTokens": 40, "cacheCreationTokens": 0, "costUsd": 0,
        "durationMs": line["durationMs"],
        "turns": 1, "model": "a-model", "version": 2,
    });
    expected["costUsd"] = serde_json::from_str("0.000018").unwrap();
    assert_eq!(line, &expected);
    let names =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    assert_eq!(names(line), names(&expected), "in this order");
    // A reply without usage is charged in full. A broken stream is no reply; the attempt after it
    // is.
    say(&project, &thread).await;
    assert_eq!(lines(kept.path()), first);
    say(&project, &thread).await;
    let third = lines(kept.path());
    assert_eq!(third.len(), 2, "{third:#?}");
    assert!(third[1]["version"].as_u64() > Some(5), "{}", third[1]);
}

const SCRIPT: &str = r#"[
  {"calls": [{"name": "read_file", "arguments": {"path": "notes.txt"}}], 
   "usage": {"input": 100, "output": 10}},
  {"text": "It holds a note.", "usage": {"input": 150, "output": 20}}
]"#;

/// Each commit of the run had an unknown outcome for a while; a repeated commit is noted once.
#[tokio::test]
async fn repeated_commit_is_noted_once() {
    // The first commit creates the thread, and is requested once.
    for n in 2..=5 {
        for death in [DeathPoint::Unknown(n), DeathPoint::UnknownLost(n)] {
            let (kept, dir) = project_dir(SCRIPTED_MODELS);
            dir.write(".ai/script.json", SCRIPT).unwrap();
            let store = Arc::new(FaultyStore::new(Arc::new(MemoryStore::new()), death));
            let project = open(dir, Some(Arc::<FaultyStore>::clone(&store)), &[]);
            let thread = project.tenant().create(describe_draft()).await.unwrap().id;
            let run = project
                .driver()
                .run(&thread, None, &EventSink::none(), &StopReceiver::never())
                .await;
            assert_eq!(run.unwrap().status, "completed", "{death:?}");
            project.wait_for_usage_log().await;
            let outputs: Vec<Value> = lines(kept.path())
                .into_iter()
                .map(|line| line["outputTokens"].clone())
                .collect();
            assert_eq!(outputs, [json!(10), json!(20)], "{death:?}");
            assert!(store.commits() >= 5, "{}", store.commits());
        }
    }
}

/// An observer gets the error; the run is not affected.
#[tokio::test]
async fn failing_usage_log_is_reported_and_changes_no_run() {
    let (kept, dir) = project_dir(SCRIPTED_MODELS);
    dir.write(".ai/script.json", SCRIPT).unwrap();
    let project = open(dir, None, &[]);
    std::fs::create_dir(kept.path().join(".ai/threads/usage.jsonl")).unwrap();
    let thread = project.tenant().create(describe_draft()).await.unwrap().id;
    let (sink, mut events) = EventSink::channel();
    let ended = project
        .driver()
        .run(&thread, None, &sink, &StopReceiver::never())
        .await
        .unwrap();
    assert_eq!((ended.status.as_str(), ended.costs.turns), ("completed", 2));
    project.wait_for_usage_log().await;
    drop(sink);
    let mut told = Vec::new();
    while let Some(event) = events.recv().await {
        if let RunEvent::AfterFailed { work, message } = event {
            told.push(format!("{work}: {message}"));
        }
    }
    let message =
        "usage.jsonl: a document cannot be had: .ai/threads/usage.jsonl is not a regular file";
    assert_eq!(told, [message, message]);
}

/// Through the command: the answer, exit code and messages are those of a run with a good log.
#[cfg(unix)]
#[test]
fn foreign_object_at_the_usage_log_fails_no_run() {
    let run = |project: &CliProject| {
        let input = ["--input", "file=notes.txt", "--id", "a", "--json"];
        let mut answer = project
            .run(&[&["run", "describe"], &input[..]].concat())
            .json();
        answer["cost"]["duration"] = json!(0);
        answer
    };
    let good = CliProject::new();
    let expected = run(&good);
    let doctor = good.run(&["doctor"]).out;
    assert!(
        doctor.contains("usage.jsonl") && !doctor.contains("is not noted"),
        "{doctor}"
    );
    for (what, plant) in [
        ("a directory", plant_directory as fn(&Path)),
        ("a link", |place| {
            std::os::unix::fs::symlink("../../notes.txt", place).unwrap()
        }),
        ("a link to nothing", |place| {
            std::os::unix::fs::symlink("made.txt", place).unwrap()
        }),
        ("a link to the store", |place| {
            std::os::unix::fs::symlink("registry.db", place).unwrap()
        }),
        ("a second name", |place| {
            let notes = place.ancestors().nth(3).unwrap().join("notes.txt");
            std::fs::hard_link(notes, place).unwrap();
        }),
        ("a pipe", plant_pipe),
    ] {
        let project = CliProject::new();
        let threads = project.path().join(".ai/threads");
        std::fs::create_dir_all(&threads).unwrap();
        plant(&threads.join("usage.jsonl"));
        assert_eq!(run(&project), expected, "{what}");
        let notes = std::fs::read_to_string(project.path().join("notes.txt")).unwrap();
        assert_eq!(notes, "remember the milk", "{what}");
        assert!(!threads.join("made.txt").exists(), "{what}");
        let found = project.json(&["doctor"]);
        let missing = found["missing"].to_string();
        assert!(
            missing.contains("what replies use is not noted"),
            "{what}: {missing}"
        );
        assert_eq!(found["exit"], 0, "{what}");
        assert_eq!(project.json(&["audit"])["exit"], 0, "{what}");
    }
}

#[cfg(unix)]
fn plant_directory(place: &Path) {
    std::fs::create_dir(place).unwrap();
}

#[cfg(unix)]
fn plant_pipe(place: &Path) {
    let made = Command::new("mkfifo").arg(place).status();
    assert!(made.unwrap().success());
}

/// Above the file size limit, in whichever unit the shell counts, and without a block on the disk.
#[cfg(target_os = "linux")]
const SPARSE_BYTES: u64 = 3 << 30;

/// The file has no more room: the write itself fails, as on a full disk.
#[cfg(target_os = "linux")]
#[test]
fn a_write_that_fails_hurts_no_run() {
    let project = CliProject::new();
    let log = project.path().join(".ai/threads/usage.jsonl");
    project.write(".ai/threads/usage.jsonl", "");
    let large = std::fs::OpenOptions::new().write(true).open(&log).unwrap();
    large.set_len(SPARSE_BYTES).unwrap();
    // The process is not killed for trying.
    let limited = "trap '' XFSZ; ulimit -f 1048576; exec \"$0\" \"$@\"";
    let command = project.command(&[
        "run",
        "describe",
        "--input",
        "file=notes.txt",
        "--id",
        "a",
        "--json",
    ]);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", limited])
        .arg(command.get_program())
        .args(command.get_args());
    let envs = command.get_envs();
    shell
        .env_clear()
        .envs(envs.filter_map(|(name, value)| Some((name, value?))))
        .current_dir(project.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let ran = threadkeep_tests::binary::run_to_end(shell);
    assert_eq!(ran.json()["status"], "completed", "{ran:#?}");
    assert_eq!(std::fs::metadata(&log).unwrap().len(), SPARSE_BYTES);
    assert_eq!(project.json(&["audit"])["exit"], 0);
}
