//! Ctrl-C once and twice, and runs that somebody else holds.

use super::fixture::Project;
use serde_json::json;
use std::process::Stdio;
use threadkeep_tests::binary;

#[test]
fn once_cancels_and_the_thread_says_so() {
    let project = Project::new();
    let running = project.unending("once");
    running.interrupt();
    let ran = running.end();
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

#[test]
fn once_answers_a_program_with_one_document() {
    let project = Project::new();
    let running = project.start(&[
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
    while project.json(&["show", "j"])["thread"]["status"] != "running" {}
    running.interrupt();
    let answer = running.end().json();
    assert_eq!(
        (&answer["status"], &answer["exit"]),
        (&json!("cancelled"), &json!(1))
    );
}

/// A tool is left to finish by the first Ctrl-C and dropped by the second.
#[test]
fn twice_stops_at_once() {
    let project = Project::new();
    project.write("long.txt", &"a".repeat(1_000).add_lines(8_000));
    project.write(
        "search.json",
        r#"[{"calls": [{"name": "search_files", "arguments": {"pattern": "(a?){60}b", "regex": true}}]}, {"text": "x"}]"#,
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
    let ran = running.end();
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
fn a_held_thread_is_busy_for_everybody_else() {
    let project = Project::new();
    let running = project.unending("held");
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
    assert_eq!(running.end().code, Some(1));
}

#[test]
fn cancel_and_kill_reach_a_run_of_another_process() {
    let project = Project::new();
    for (word, status) in [("cancel", "cancelled"), ("kill", "killed")] {
        let running = project.unending(status);
        let answer = project.json(&[word, status]);
        assert_eq!(
            (&answer["signal"], &answer["exit"]),
            (&json!(word), &json!(0)),
            "{answer}"
        );
        let ran = running.end();
        assert_eq!(ran.code, Some(1), "{ran:#?}");
        assert!(
            ran.err.contains(&format!("status  {status}")),
            "{}",
            ran.err
        );
        assert_eq!(project.status(status), status);
    }
}

/// Symptom: a terminal that went away left its run to `recover`. Fix: SIGHUP is a request to end, unless whoever started
/// the process had it ignored, as `nohup` does.
#[cfg(target_os = "linux")]
#[test]
fn a_terminal_that_goes_away_ends_a_run_that_is_not_to_outlive_it() {
    let project = Project::new();
    let running = project.unending("hung");
    running.hang_up();
    assert_eq!(running.end().code, Some(1));
    assert_eq!(project.status("hung"), "cancelled");
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
    running.await_out("Begun,");
    running.hang_up();
    assert_eq!(project.status("stays"), "running");
    // Had it been taken, this would be the second press and not the first.
    running.interrupt();
    let ran = running.end();
    assert_eq!(ran.code, Some(1), "{ran:#?}");
    assert!(!ran.err.contains("stopping at once"), "{}", ran.err);
}
