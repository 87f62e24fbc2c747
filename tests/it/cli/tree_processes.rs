//! Trees that several processes drive, and processes that die in the middle: no result is lost, and
//! every tree comes to an end.

use super::fixture::{CliProject, MODELS};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use threadkeep_tests::binary::{self, RunningProcess};

/// The children of the top.
const CHILDREN: usize = 5;

/// A script: the top spawns five children and waits for them; each child answers after this many
/// milliseconds.
fn script(child_millis: u64) -> String {
    let spawn = json!({"name": "spawn_thread", "arguments": {"directive": "leaf"}});
    let mut calls = vec![spawn; CHILDREN];
    calls.push(json!({"name": "wait_threads", "arguments": {}}));
    json!([
        {"for": "You are the top", "calls": calls},
        {"for": "You are the top", "text": "All is done."},
        {"for": "You are a leaf", "text": "A leaf is done.", "delay_ms": child_millis}
    ])
    .to_string()
}

/// A project with directives, a script whose children take ten minutes, one whose children take a
/// moment, and a policy that allows two runs at once in a process.
fn project() -> CliProject {
    let project = CliProject::empty();
    project.write(".ai/config/models.yaml", MODELS);
    let top = "---\ncapabilities: [execute.tool.*]\nlimits: {spend: 0.50}\n---\nYou are the top.\n";
    project.write(".ai/directives/top.md", top);
    let leaf = "---\nlimits: {turns: 3}\n---\nYou are a leaf.\n";
    project.write(".ai/directives/leaf.md", leaf);
    project.write("slow.json", &script(590_000));
    project.write("quick.json", &script(300));
    project
}

/// A policy that allows this many runs at once in a process.
fn policy(runs: u64) -> tempfile::TempDir {
    let temp = tempfile::TempDir::new().expect("a temporary directory");
    let text = format!(
        "models: {{tiny: {{prices: {{input: \"1.00\", output: \"2.00\"}}}}}}\nproviders: {{local: \
         {{wire: scripted}}}}\nceilings: {{runs: {runs}}}\n"
    );
    std::fs::write(temp.path().join("policy.yaml"), text).expect("written");
    temp
}

fn start(project: &CliProject, policy: &tempfile::TempDir, arguments: &[&str]) -> RunningProcess {
    let path = policy.path().join("policy.yaml");
    let mut all = vec!["--policy", path.to_str().expect("it is UTF-8")];
    all.extend(arguments);
    binary::start(project.command(&all))
}

fn slow_top(project: &CliProject, policy: &tempfile::TempDir) -> RunningProcess {
    let provider = "scripted:slow.json";
    start(
        project,
        policy,
        &["run", "top", "--id", "top-1", "--provider", provider],
    )
}

fn resume(project: &CliProject, policy: &tempfile::TempDir) -> RunningProcess {
    let arguments = ["resume", "top-1", "--provider", "scripted:quick.json"];
    start(project, policy, &arguments)
}

fn statuses(project: &CliProject) -> Vec<String> {
    let tree = project.json(&["tree", "top-1"]);
    // There is no tree before the run has made its thread.
    let branches = tree["threads"].as_array().into_iter().flatten();
    let status = |branch: &Value| branch["status"].as_str().unwrap_or_default().to_owned();
    branches.map(status).collect()
}

/// Waits until this many threads of the tree have this status.
fn await_status(project: &CliProject, status: &str, threads: usize) {
    let began = Instant::now();
    loop {
        let found = statuses(project);
        if found.iter().filter(|one| *one == status).count() == threads {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(120), "{found:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Checks that the top has ended with the results of all children, each child ran to its end, and
/// the audit is clean.
fn check_complete(project: &CliProject) {
    assert_eq!(statuses(project), ["completed"; CHILDREN + 1]);
    let shown = project.json(&["show", "top-1", "--events", "100"]);
    let events = shown["events"].as_array().expect("a list").iter();
    let waits: Vec<String> = events
        .map(Value::to_string)
        .filter(|event| event.contains("timed_out"))
        .collect();
    assert_eq!(waits.len(), 1, "{shown:#}");
    let results = waits[0].matches("A leaf is done.").count();
    assert_eq!(results, CHILDREN, "{}", waits[0]);
    assert_eq!(project.json(&["audit"])["findings"], json!([]));
    let budget = project.json(&["budget", "show", "top-1"]);
    for money in ["held", "reserved"] {
        assert_eq!(budget["account"][money], "0.00", "{budget}");
    }
}

/// Symptom: a waiting driver did not notice the death of another process of its tree until the
/// leases were over, after ten minutes and more. Fix: it checks the locks of the holders of its
/// tree's threads, and takes over those of dead ones.
#[test]
fn a_driver_takes_over_what_another_process_held_when_it_is_killed() {
    let (project, policy) = (project(), policy(2));
    let first = slow_top(&project, &policy);
    await_status(&project, "running", 2);
    let second = resume(&project, &policy);
    // The second process performs the three that found no room in the first.
    await_status(&project, "completed", 3);
    await_status(&project, "running", 2);
    first.kill();
    let ran = second.wait_for_end();
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    check_complete(&project);
}

/// Same kind: many processes resume the same tree, and two of them are killed. The others and the
/// tree come to their ends. (Each process claimed the dead ones' threads, and fenced the one
/// before, until the children counted as a crash loop.)
#[test]
fn several_that_resume_a_tree_at_once_come_to_an_end() {
    let (project, policy) = (project(), policy(64));
    let first = slow_top(&project, &policy);
    await_status(&project, "running", CHILDREN);
    let others: Vec<RunningProcess> = (0..4).map(|_| resume(&project, &policy)).collect();
    std::thread::sleep(Duration::from_millis(500));
    others[0].kill();
    first.kill();
    let codes: Vec<Option<i32>> = others
        .into_iter()
        .map(|one| one.wait_for_end().code)
        .collect();
    let ended = |code: &Option<i32>| matches!(code, Some(0 | 4));
    assert!(codes[1..].iter().all(ended), "{codes:?}");
    assert!(codes[1..].contains(&Some(0)), "{codes:?}");
    check_complete(&project);
}

/// Symptom: after SIGTERM the children stayed suspended when their tree was resumed.
#[test]
fn a_tree_that_was_asked_to_end_goes_on_when_it_is_resumed() {
    let (project, policy) = (project(), policy(64));
    let first = slow_top(&project, &policy);
    await_status(&project, "running", CHILDREN);
    first.terminate();
    let ran = first.wait_for_end();
    assert_eq!(ran.code, Some(3), "{ran:#?}");
    assert!(ran.err.contains("suspended (stopped)"), "{}", ran.err);
    // Symptom: only what was charged for calls of the top was told. Fix: that of its children, too.
    let told = ran
        .err
        .matches("no usage was reported for one call of ")
        .count();
    assert_eq!(told, CHILDREN, "{}", ran.err);
    assert_eq!(statuses(&project), ["suspended"; CHILDREN + 1]);
    let ran = resume(&project, &policy).wait_for_end();
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    check_complete(&project);
}

/// The top spawns five and ends without them.
fn ends_above(child_millis: u64) -> String {
    let spawn = json!({"name": "spawn_thread", "arguments": {"directive": "leaf"}});
    json!([
        {"for": "You are the top", "calls": vec![spawn; CHILDREN]},
        {"for": "You are the top", "text": "All is done."},
        {"for": "You are a leaf", "text": "A leaf is done.", "delay_ms": child_millis}
    ])
    .to_string()
}

/// Symptom: a child that was created and whose account is frozen kept a run of its tree for ever,
/// and nobody said why. Fix: the run leaves it alone, says what to do, and ends.
#[test]
fn a_run_ends_though_children_are_left_whose_account_is_frozen() {
    let (project, policy) = (project(), policy(1));
    project.write("slow.json", &ends_above(590_000));
    let first = slow_top(&project, &policy);
    await_status(&project, "completed", 1);
    await_status(&project, "running", 1);
    first.kill();
    drop(first.wait_for_end());
    let store = project.path().join(".ai/threads/registry.db");
    let store = rusqlite::Connection::open(store).expect("it is there");
    let frozen = "UPDATE record_chain SET value = \
                  json_set(value, '$.account.frozen', json('true')) WHERE name = 'top-1'";
    assert_eq!(store.execute(frozen, []), Ok(1));
    drop(store);
    // Symptom: the document of the run did not name what the stream of a person did.
    let provider = "scripted:quick.json";
    let arguments = ["resume", "top-1", "--provider", provider, "--json"];
    let answer = start(&project, &policy, &arguments).wait_for_end().json();
    let left = answer["left_alone"].as_array().map(Vec::as_slice);
    assert_eq!(left.map(<[Value]>::len), Some(CHILDREN - 1), "{answer:#}");
    assert!(
        answer["left_alone"][0]["message"]
            .to_string()
            .contains("is frozen"),
        "{answer:#}"
    );
    let ran = resume(&project, &policy).wait_for_end();
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    let why = "is left alone: ";
    assert_eq!(ran.err.matches(why).count(), CHILDREN - 1, "{}", ran.err);
    let what = "that of top-1, is frozen: `kill` ends the thread";
    assert!(ran.err.contains(what), "{}", ran.err);
}

/// Symptom: `resume` of one thread said of a run of another tree, which it had closed, that it goes
/// on.
#[test]
fn resume_speaks_only_of_its_own_tree() {
    let project = CliProject::new();
    for id in ["one", "other"] {
        let running = project.start_unending(id);
        running.kill();
        drop(running.wait_for_end());
    }
    let ran = project.run(&["resume", "one", "--provider", "scripted:.ai/script.json"]);
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    let goes_on = |id: &str| {
        ran.err
            .contains(&format!("the process that held {id} died: it goes on"))
    };
    assert!(goes_on("one") && !goes_on("other"), "{}", ran.err);
    let advice = "the process that held other died, too: `threadkeep resume other`";
    assert!(ran.err.contains(advice), "{}", ran.err);
}

/// Symptom: no command named the children of an ended thread that still have to be driven, and none
/// could drive them.
#[test]
fn recover_names_threads_below_an_ended_one() {
    let (project, policy) = (project(), policy(2));
    project.write("slow.json", &ends_above(590_000));
    let first = slow_top(&project, &policy);
    await_status(&project, "completed", 1);
    await_status(&project, "running", 2);
    assert_eq!(
        project.json(&["recover"])["left"],
        json!([]),
        "it is driven"
    );
    first.kill();
    drop(first.wait_for_end());
    let recovered = project.json(&["recover"]);
    assert_eq!(recovered["left"], json!(["top-1"]), "{recovered}");
    assert_eq!(recovered["recovered"].as_array().map(Vec::len), Some(2));
    let ran = resume(&project, &policy).wait_for_end();
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    assert_eq!(statuses(&project), ["completed"; CHILDREN + 1]);
    assert_eq!(project.json(&["recover"])["left"], json!([]));
}

/// Symptom: `recover` said nothing of a thread that waits and cannot be read; `list` and `doctor`
/// did.
#[test]
fn recover_names_a_thread_that_waits_and_cannot_be_read() {
    for damage in [
        "DELETE FROM record_thread WHERE name = 'top-1'",
        "UPDATE record_head SET value = '{' WHERE name = 'top-1'",
    ] {
        let (project, policy) = (project(), policy(64));
        let first = slow_top(&project, &policy);
        await_status(&project, "running", CHILDREN);
        first.kill();
        drop(first.wait_for_end());
        let store = project.path().join(".ai/threads/registry.db");
        let store = rusqlite::Connection::open(store).expect("it is there");
        assert_eq!(store.execute(damage, []), Ok(1));
        drop(store);
        // Once with the runs that it closes, once with nothing else to do.
        for closed in [CHILDREN, 0] {
            let recovered = project.json(&["recover"]);
            let runs = recovered["recovered"].as_array().map(Vec::len);
            assert_eq!((runs, &recovered["exit"]), (Some(closed), &json!(0)));
            let named = recovered["unreadable"].as_array().into_iter().flatten();
            let named: Vec<&Value> = named.map(|row| &row["thread_id"]).collect();
            assert_eq!(named, ["top-1"], "{damage}: {recovered}");
        }
    }
}
