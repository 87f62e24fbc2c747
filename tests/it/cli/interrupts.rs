//! Ctrl-C once and twice, termination signals of the system, and runs of other processes.

use super::fixture::CliProject;
#[cfg(unix)]
use crate::models::judged_project::{JudgedProject, ProjectPlan};
use serde_json::json;
use std::process::Stdio;
#[cfg(unix)]
use std::time::Duration;
use threadkeep_tests::binary;
use threadkeep_tests::binary::RunningProcess;
#[cfg(unix)]
use threadkeep_tests::judge::{
    ServerAnswer, answer_in_order, call_reply, read_file_call, text_chunk, text_reply,
};

#[test]
fn first_interrupt_cancels_and_is_recorded() {
    let project = CliProject::new();
    let running = project.start_unending("once");
    running.interrupt();
    let ran = running.wait_for_end();
    assert_eq!(ran.code, Some(1), "{ran:#?}");
    assert!(
        ran.err.contains("cancelling; press Ctrl-C again"),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("status  cancelled"), "{}", ran.err);
    let shown = project.json(&["show", "once"]);
    assert_eq!(shown["thread"]["status"], "cancelled");
    assert_eq!(shown["thread"]["run"]["holder"], json!(null));
    let transcript = project.json(&["transcript", "once"]);
    let text = transcript["text"].as_str().unwrap();
    assert!(text.contains("Begun,"), "what had arrived is kept: {text}");
    assert!(text.contains("(stopped by user)"), "{text}");
    assert_eq!(
        project.json(&["doctor"])["missing"],
        json!([]),
        "documents are up to date"
    );
}

/// Starts the slow run `j` with `--json`, and waits until it runs.
fn start_for_program(project: &CliProject) -> RunningProcess {
    let mut running = project.start(&[
        "run",
        "describe",
        "--input",
        "file=x",
        "--id",
        "j",
        "--provider",
        "scripted:slow.json",
        "--json",
    ]);
    while project.json(&["show", "j"])["thread"]["status"] != "running" {
        assert!(running.is_alive(), "it ended before it was seen");
    }
    running
}

#[test]
fn first_interrupt_prints_one_document() {
    let project = CliProject::new();
    let running = start_for_program(&project);
    running.interrupt();
    let answer = running.wait_for_end().json();
    assert_eq!(
        (&answer["status"], &answer["exit"]),
        (&json!("cancelled"), &json!(1))
    );
}

/// The first Ctrl-C lets a tool finish and the second drops it.
#[test]
fn second_interrupt_stops_at_once() {
    let project = CliProject::new();
    project.write("long.txt", &"a".repeat(1_000).add_lines(8_000));
    project.write(
        "search.json",
        concat!(
            r#"[{"calls": [{"name": "search_files", "arguments": {"pattern": "(a?){60}b","#,
            r#" "regex": true}}]}, {"text": "x"}]"#
        ),
    );
    let mut running = project.start(&[
        "run",
        "describe",
        "--input",
        "file=x",
        "--id",
        "twice",
        "--provider",
        "scripted:search.json",
    ]);
    running.await_err("search_files {");
    running.interrupt();
    running.await_err("cancelling");
    assert!(running.is_alive(), "the tool goes on");
    running.interrupt();
    running.await_err("stopping at once");
    let ran = running.wait_for_end();
    assert_eq!(ran.code, Some(130), "{ran:#?}");
    assert!(
        !ran.err.contains("search_files done"),
        "the call was dropped: {}",
        ran.err
    );
    assert_eq!(project.status("twice"), "cancelled");
    let events = project.json(&["show", "twice"])["events"].to_string();
    assert!(
        events.contains("interrupted"),
        "its result says so: {events}"
    );
}

trait AddLines {
    fn add_lines(self, count: usize) -> String;
}

impl AddLines for String {
    fn add_lines(self, count: usize) -> String {
        format!("{self}\n").repeat(count)
    }
}

#[test]
fn held_thread_is_busy_for_other_processes() {
    let project = CliProject::new();
    let running = project.start_unending("held");
    let holder = project.json(&["show", "held"])["thread"]["run"]["holder"].clone();
    let holder = holder.as_str().expect("somebody holds it");
    let resumed = project.json(&["resume", "held"]);
    assert_eq!(
        (&resumed["error"]["code"], &resumed["exit"]),
        (&json!("busy"), &json!(4))
    );
    let message = resumed["error"]["message"].as_str().unwrap();
    assert!(
        message.contains(holder) && message.contains("until 20"),
        "holder and expiry: {message}"
    );
    assert!(resumed["error"]["hint"].as_str().unwrap().contains("alive"));
    let created = project.json(&["run", "describe", "--input", "file=x", "--id", "HELD"]);
    assert_eq!(
        (&created["error"]["code"], &created["exit"]),
        (&json!("exists"), &json!(4))
    );
    assert_eq!(
        project.json(&["recover"])["recovered"],
        json!([]),
        "its holder lives"
    );
    let shown = project.run(&["show", "held"]);
    assert!(
        shown.out.contains(holder) && shown.out.contains("expires in"),
        "{}",
        shown.out
    );
    running.interrupt();
    assert_eq!(running.wait_for_end().code, Some(1));
}

#[test]
fn cancel_and_kill_reach_a_run_of_another_process() {
    let project = CliProject::new();
    for (word, status) in [("cancel", "cancelled"), ("kill", "killed")] {
        let running = project.start_unending(status);
        let answer = project.json(&[word, status]);
        assert_eq!(
            (&answer["signal"], &answer["exit"]),
            (&json!(word), &json!(0)),
            "{answer}"
        );
        let ran = running.wait_for_end();
        assert_eq!(ran.code, Some(1), "{ran:#?}");
        assert!(
            ran.err.contains(&format!("status  {status}")),
            "{}",
            ran.err
        );
        assert_eq!(project.status(status), status);
    }
}

/// Sends a signal to a process.
#[cfg(unix)]
type SignalSender = fn(&RunningProcess);

/// Symptom: a deploy or a closed terminal ended a run for ever, and it could not be resumed. Cause:
/// SIGTERM and SIGHUP were treated as a person's cancel. Fix: they suspend the run, and `resume`
/// goes on with it. Kind: an end of the process that no user of its thread wanted, beside SIGKILL,
/// which leaves the run to `recover`.
#[cfg(unix)]
#[test]
fn a_run_that_the_system_ends_goes_on_where_it_stood() {
    let rows: [(&str, SignalSender, Option<i32>, &str); 3] = [
        ("SIGTERM", RunningProcess::terminate, Some(3), "stopped"),
        ("SIGHUP", RunningProcess::hang_up, Some(3), "stopped"),
        ("SIGKILL", RunningProcess::kill, None, "recovered"),
    ];
    for (name, signal, code, cause) in rows {
        let half = ServerAnswer::stream().send_chunk(&text_chunk("Half"));
        let answers = vec![
            call_reply(&[read_file_call(0, "notes.txt", "a")]),
            call_reply(&[read_file_call(0, "other.txt", "b")]),
            half.pause_for(Duration::from_secs(60)),
            text_reply("Done."),
        ];
        let judged = JudgedProject::new(&ProjectPlan::default(), answer_in_order(answers));
        let project = &judged.project;
        let running = project.start(&["run", "go", "--id", "t"]);
        running.await_err("a reply is under way");
        signal(&running);
        let ran = running.wait_for_end();
        assert_eq!(ran.code, code, "{name}: {ran:#?}");
        project.json(&["recover"]);
        let shown = project.json(&["show", "t"]);
        assert_eq!(shown["thread"]["status"], "suspended", "{name}");
        assert_eq!(shown["thread"]["cause"]["code"], cause, "{name}");
        assert_eq!(shown["thread"]["run"]["holder"], json!(null), "{name}");
        let answer = project.json(&["resume", "t"]);
        assert_eq!(answer["result"], "Done.", "{name}: {answer}");
        let requests = judged.server.requests();
        assert_eq!(requests.len(), 4, "{name}");
        assert_eq!(
            requests[3].call_ids(),
            ["a", "b"],
            "{name}: nothing was lost"
        );
    }
}

/// A request to end that meets a tool lets it finish, keeps its result and says how to go on. Kind:
/// the same as for a model call.
#[cfg(unix)]
#[test]
fn a_request_to_end_lets_a_tool_finish() {
    let signals: [SignalSender; 2] = [RunningProcess::terminate, RunningProcess::hang_up];
    for (id, signal) in ["t", "h"].into_iter().zip(signals) {
        let project = CliProject::new();
        project.write("long.txt", &"a".repeat(1_000).add_lines(2_000));
        project.write(
            "search.json",
            concat!(
                r#"[{"calls": [{"name": "search_files", "arguments": {"pattern": "(a?){60}b","#,
                r#" "regex": true}}]}, {"text": "Found."}]"#
            ),
        );
        let provider = ["--provider", "scripted:search.json"];
        let begun = ["run", "describe", "--input", "file=x", "--id", id];
        let running = project.start(&[&begun[..], &provider[..]].concat());
        running.await_err("search_files {");
        signal(&running);
        let ran = running.wait_for_end();
        assert_eq!(ran.code, Some(3), "{ran:#?}");
        let next = format!("threadkeep resume {id}");
        assert!(ran.err.contains(&next), "it says how to go on: {}", ran.err);
        let shown = project.json(&["show", id]);
        assert_eq!(shown["thread"]["status"], "suspended");
        assert_eq!(shown["thread"]["cause"]["code"], "stopped");
        let events = shown["events"].as_array().unwrap();
        let results = events.iter().filter(|event| event["type"] == "tool_result");
        assert_eq!(results.count(), 1, "the tool was let finish: {shown}");
        let answer = project.json(&[&["resume", id][..], &provider[..]].concat());
        assert_eq!(answer["status"], "completed", "{answer}");
        assert_eq!(answer["text"], "Found.");
        assert_eq!(
            (&answer["resumed"], &answer["exit"]),
            (&json!(false), &json!(0))
        );
    }
}

/// A repeated SIGTERM or SIGHUP means no more than the first one: unlike a person, its sender does
/// not watch the run.
#[cfg(unix)]
#[test]
fn a_request_to_end_that_is_repeated_still_suspends() {
    let project = CliProject::new();
    let running = project.start_unending("often");
    for _ in 0..3 {
        running.terminate();
        running.hang_up();
    }
    let ran = running.wait_for_end();
    assert_eq!(ran.code, Some(3), "{ran:#?}");
    assert!(!ran.err.contains("stopping at once"), "{}", ran.err);
    let shown = project.json(&["show", "often"]);
    assert_eq!(shown["thread"]["status"], "suspended");
    assert_eq!(shown["thread"]["cause"]["code"], "stopped");
    let transcript = project.json(&["transcript", "often"]);
    let text = transcript["text"].as_str().unwrap();
    assert!(text.contains("Begun,"), "what had arrived is kept: {text}");
    let answer = project.json(&["resume", "often"]);
    assert_eq!(answer["status"], "completed", "{answer}");
}

/// A person's cancel takes precedence over a signal of the system.
#[cfg(unix)]
#[test]
fn a_cancel_that_is_followed_by_a_request_to_end_stays_one() {
    let project = CliProject::new();
    let running = project.start_unending("mine");
    running.interrupt();
    running.await_err("cancelling");
    running.terminate();
    assert_eq!(running.wait_for_end().code, Some(1));
    assert_eq!(project.status("mine"), "cancelled");
}

#[cfg(unix)]
#[test]
fn a_request_to_end_answers_a_program_with_one_document() {
    let project = CliProject::new();
    let running = start_for_program(&project);
    running.terminate();
    let answer = running.wait_for_end().json();
    assert_eq!(
        (&answer["status"], &answer["exit"]),
        (&json!("suspended"), &json!(3))
    );
    assert_eq!(answer["cause"]["code"], "stopped");
}

/// Symptom: a terminal that was closed left its run to `recover`. Fix: SIGHUP asks the run to end,
/// unless the parent process had it ignored, as `nohup` does.
#[cfg(target_os = "linux")]
#[test]
fn a_terminal_that_goes_away_stops_a_run_that_is_not_to_outlive_it() {
    let project = CliProject::new();
    let running = project.start_unending("hung");
    running.hang_up();
    assert_eq!(running.wait_for_end().code, Some(3));
    assert_eq!(project.status("hung"), "suspended");
    let inner = project.command(&[
        "run",
        "describe",
        "--input",
        "file=x",
        "--id",
        "stays",
        "--provider",
        "scripted:slow.json",
    ]);
    let mut outer = std::process::Command::new("sh");
    outer
        .args(["-c", "trap '' HUP; exec \"$0\" \"$@\""])
        .arg(inner.get_program())
        .args(inner.get_args())
        .current_dir(project.path())
        .envs(
            inner
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let running = binary::start(outer);
    running.await_err("a reply is under way");
    running.hang_up();
    assert_eq!(project.status("stays"), "running");
    // If SIGHUP had been taken, this would be the second press and not the first.
    running.interrupt();
    let ran = running.wait_for_end();
    assert_eq!(ran.code, Some(1), "{ran:#?}");
    assert!(!ran.err.contains("stopping at once"), "{}", ran.err);
}
