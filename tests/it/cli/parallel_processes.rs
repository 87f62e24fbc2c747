//! Two processes create and run threads in one directory at the same time: every acknowledged event
//! is there once, in order.

use super::fixture::CliProject;
use serde_json::Value;

const PROCESSES: usize = 2;
/// Runs of each process.
const RUNS: usize = 8;

/// Kinds of the events of a finished run, in order.
const EVENTS: [&str; 7] = [
    "message",
    "assistant_text",
    "tool_use",
    "result",
    "tool_result",
    "message",
    "result",
];

#[test]
fn runs_of_two_processes_do_not_disturb_each_other() {
    run_at_once(&CliProject::new());
}

#[test]
fn runs_of_two_processes_do_not_disturb_each_other_in_plain_files() {
    let project = CliProject::new();
    // Where it is, it is used.
    std::fs::create_dir_all(project.path().join(".ai/threads/store.d")).unwrap();
    run_at_once(&project);
    assert!(!project.exists(".ai/threads/registry.db"));
    assert_eq!(project.json(&["audit"])["findings"], serde_json::json!([]));
}

fn run_at_once(project: &CliProject) {
    let many = |process: usize| {
        let runs = (0..RUNS).map(|run| {
            let id = format!("p{process}-{run}");
            let answer =
                project.json(&["run", "describe", "--input", "file=notes.txt", "--id", &id]);
            assert_eq!(
                (answer["exit"].as_i64(), answer["thread_id"].as_str()),
                (Some(0), Some(id.as_str())),
                "{answer}"
            );
            id
        });
        runs.collect::<Vec<String>>()
    };
    let ids: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..PROCESSES)
            .map(|process| scope.spawn(move || many(process)))
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("it runs"))
            .collect()
    });
    assert_eq!(project.threads(), PROCESSES * RUNS);
    check_usage(project, &ids);
    for id in &ids {
        let shown = project.json(&["show", id, "--events", "100"]);
        assert_eq!(shown["thread"]["cost"]["spend"], "0.00031", "charged once");
        check_events(&shown["events"]);
        let lines = std::fs::read_to_string(
            project
                .path()
                .join(format!(".ai/threads/{id}/transcript.jsonl")),
        )
        .unwrap();
        assert_eq!(
            lines.lines().count(),
            1 + EVENTS.len(),
            "the manifest, then each event once"
        );
    }
}

/// Checks for whole lines, one for each reply, whichever process wrote them.
fn check_usage(project: &CliProject, ids: &[String]) {
    let log = std::fs::read_to_string(project.path().join(".ai/threads/usage.jsonl")).unwrap();
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), ids.len() * 2, "{log}");
    for id in ids {
        let own = lines.iter().filter(|line| line["threadId"] == **id);
        let cost: Vec<String> = own.map(|line| line["costUsd"].to_string()).collect();
        assert_eq!(cost, ["0.00012", "0.00019"], "{id}");
    }
}

fn check_events(events: &Value) {
    let events = events.as_array().expect("events");
    let kinds: Vec<&str> = events
        .iter()
        .filter_map(|event| event["type"].as_str())
        .collect();
    assert_eq!(kinds, EVENTS);
    let names: Vec<(u64, u64)> = events
        .iter()
        .map(|event| {
            (
                event["version"].as_u64().unwrap(),
                event["index"].as_u64().unwrap(),
            )
        })
        .collect();
    assert!(names.windows(2).all(|pair| pair[0] < pair[1]), "{names:?}");
}

/// Of several processes that want the same new id only one gets it.
#[test]
fn parallel_creates_get_an_id_once() {
    let project = CliProject::new();
    let exits: Vec<i64> = std::thread::scope(|scope| {
        let attempt = || {
            let answer = project.json(&[
                "run",
                "describe",
                "--input",
                "file=notes.txt",
                "--id",
                "same",
            ]);
            answer["exit"].as_i64().expect("an exit code")
        };
        let workers: Vec<_> = (0..4).map(|_| scope.spawn(attempt)).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().expect("it runs"))
            .collect()
    });
    assert_eq!(
        exits.iter().filter(|exit| **exit == 0).count(),
        1,
        "{exits:?}"
    );
    assert_eq!(
        exits.iter().filter(|exit| **exit == 4).count(),
        3,
        "{exits:?}"
    );
}
