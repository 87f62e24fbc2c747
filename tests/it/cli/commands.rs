//! Each command, with its output for a person and for a program.

use super::fixture::CliProject;
use serde_json::{Value, json};

#[test]
fn run_streams_text_and_reports_on_standard_error() {
    let project = CliProject::new();
    let ran = project.run(&[
        "run",
        "describe",
        "--input",
        "file=notes.txt",
        "--id",
        "first",
        "--title",
        "A title",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    assert_eq!(
        ran.out, "Let me look.\nIt holds a \u{1b}[31mnote\u{7}.\n",
        "a pipe gets what the model wrote"
    );
    for part in [
        "run 1 of first\n",
        "turn 1: 100 input and 10 output tokens, 0.00012 USD\n",
        "  read_file {\"path\":\"notes.txt\"}\n",
        "  read_file done, 17 bytes\n",
        "turn 2: 150 input and 20 output tokens, 0.00019 USD\n",
        "thread  first\nstatus  completed\ncost    0.00031 USD for 2 turns, 250 input and 30 \
         output tokens\n",
    ] {
        assert!(ran.err.contains(part), "{part:?} in {}", ran.err);
    }
    assert!(
        !ran.err.contains('\u{1b}') && !ran.err.contains('\r'),
        "no cursor tricks in a pipe"
    );
    for document in ["thread.json", "transcript.md", "transcript.jsonl"] {
        assert!(
            project.exists(&format!(".ai/threads/first/{document}")),
            "{document}"
        );
    }
}

#[test]
fn run_answers_a_program_with_one_document() {
    let project = CliProject::new();
    let inputs = r#"{"file": "notes.txt"}"#;
    let ran = project.run(&[
        "run", "describe", "--inputs", inputs, "--id", "a/b", "--json",
    ]);
    assert_eq!(ran.err, "");
    assert_eq!(
        ran.json(),
        json!({
            "thread_id": "a/b",
            "chain_id": "a/b",
            "handed_off": [],
            "run": 1,
            "status": "completed",
            "outcome": "completed",
            "text": "It holds a \u{1b}[31mnote\u{7}.",
            "result": "It holds a \u{1b}[31mnote\u{7}.",
            "cause": null, "waits_for": null,
            "cost": {"turns": 2, "input_tokens": 250, "output_tokens": 30, "spend": "0.00031"},
            "tree_spend": "0.00031",
            "tree_threads": 1,
            "suspended": [],
            "suspended_left_out": 0,
            "tree_unreadable": [],
            "charged": [],
            "left_alone": [],
            "exit": 0,
        })
    );
    assert!(ran.out.starts_with(r#"{"thread_id":"a/b","chain_id":"#));
}

#[test]
fn a_cap_suspends_and_a_raise_lets_it_go_on_in_place() {
    let project = CliProject::new();
    let suspended = project.json(&[
        "run",
        "describe",
        "--input",
        "file=notes.txt",
        "--id",
        "t",
        "--turns",
        "1",
    ]);
    assert_eq!(
        (&suspended["status"], &suspended["exit"]),
        (&json!("suspended"), &json!(3))
    );
    assert_eq!(suspended["cause"]["code"], "turns_exceeded");
    let refused = project.json(&["resume", "t"]);
    assert_eq!(
        (&refused["error"]["code"], &refused["exit"]),
        (&json!("exceeded"), &json!(3))
    );
    assert!(
        refused["error"]["hint"]
            .as_str()
            .unwrap()
            .contains("raise t --turns N")
    );
    let person = project.run(&["resume", "t"]);
    assert!(
        person
            .err
            .contains("next: threadkeep raise t --turns N, then threadkeep resume t"),
        "{}",
        person.err
    );
    let raised = project.json(&["raise", "t", "--turns", "4", "--spend", "0.75"]);
    assert_eq!(raised["limits"]["turns"], 4);
    assert_eq!(raised["limits"]["spend"], "0.75");
    let done = project.json(&["resume", "t"]);
    assert_eq!(
        (&done["status"], &done["thread_id"]),
        (&json!("completed"), &json!("t"))
    );
    assert_eq!(project.threads(), 1, "in place");
    let again = project.json(&["resume", "t"]);
    assert_eq!(
        (&again["error"]["code"], &again["exit"]),
        (&json!("invalid"), &json!(1))
    );
    let hint = again["error"]["hint"].as_str().unwrap();
    assert!(hint.contains("threadkeep resume t --message"), "{hint}");
}

#[test]
fn a_message_is_part_of_the_run() {
    let project = CliProject::new();
    let answer = project.json(&[
        "run",
        "describe",
        "--input",
        "file=x",
        "--message",
        "Be brief. 漢",
        "--id",
        "m",
    ]);
    assert_eq!(answer["exit"], 0, "{answer}");
    let shown = project.json(&["transcript", "m"]);
    assert!(shown["text"].as_str().unwrap().contains("Be brief. 漢"));
}

#[test]
fn options_reach_the_thread() {
    let project = CliProject::new();
    let answer = project.json(&[
        "run",
        "describe",
        "--input",
        "file=x",
        "--id",
        "o",
        "--title",
        "T",
        "--model",
        "tiny",
        "--tokens",
        "900",
        "--spend",
        "0.25",
        "--duration",
        "2m",
    ]);
    assert_eq!(answer["exit"], 0, "{answer}");
    let thread = &project.json(&["show", "O"])["thread"];
    assert_eq!(thread["title"], "T");
    assert_eq!(thread["model"], "tiny");
    assert_eq!(thread["inputs"], json!({"file": "x"}));
    let limits = &thread["limits"];
    assert_eq!(
        (&limits["tokens"], &limits["spend"], &limits["duration"]),
        (&json!(900), &json!("0.25"), &json!(120_000))
    );
}

#[test]
fn memory_keeps_nothing_and_a_script_may_answer() {
    let project = CliProject::new();
    project.write("answers.json", r#"[{"text": "From the script."}]"#);
    let answer = project.json(&[
        "run",
        "describe",
        "--input",
        "file=x",
        "--store",
        "memory",
        "--provider",
        "scripted:answers.json",
    ]);
    assert_eq!(
        (&answer["text"], &answer["exit"]),
        (&json!("From the script."), &json!(0))
    );
    assert!(!project.exists(".ai/threads/registry.db"));
    assert_eq!(project.threads(), 0);
    let id = answer["thread_id"].as_str().unwrap();
    assert!(
        !project.exists(&format!(".ai/threads/{id}")),
        "no document outlives its records"
    );
}

#[test]
fn lists_are_filtered_and_paged() {
    let project = CliProject::new();
    let empty = project.run(&["list"]);
    assert_eq!(
        (empty.out.as_str(), empty.err.as_str(), empty.code),
        (
            "",
            "there is no store yet: the first `threadkeep run` makes it\nno threads\n",
            Some(0)
        )
    );
    for id in ["one", "two", "three"] {
        project.finish_thread(id);
    }
    let person = project.run(&["list"]);
    let lines: Vec<&str> = person.out.lines().collect();
    assert!(
        lines[0].starts_with("THREAD  STATUS     TURNS  TOKENS         COST  UPDATED"),
        "{}",
        person.out
    );
    assert!(
        lines[1].starts_with("three   completed      2     280  0.00031 USD  "),
        "newest first: {}",
        person.out
    );
    assert_eq!(lines.len(), 4);
    let ids = |document: &Value| -> Vec<String> {
        let threads = document["threads"].as_array().unwrap().iter();
        threads
            .map(|thread| thread["thread_id"].as_str().unwrap().to_owned())
            .collect()
    };
    let first = project.json(&["list", "--limit", "2"]);
    assert_eq!(ids(&first), ["three", "two"]);
    let cursor = first["cursor"].as_str().expect("there is more");
    let second = project.json(&["list", "--limit", "2", "--cursor", cursor]);
    assert_eq!(ids(&second), ["one"]);
    assert_eq!(second["cursor"], Value::Null);
    let newest_first = ["three", "two", "one"];
    for filter in [["--status", "completed"], ["--directive", "describe"]] {
        let filtered = project.json(&[&["list"], &filter[..]].concat());
        assert_eq!(ids(&filtered), newest_first, "{filter:?}");
        let page = ["list", "--limit", "2", filter[0], filter[1]];
        let first = project.json(&page);
        let cursor = first["cursor"].as_str().expect("there is more");
        let rest = project.json(&[&page[..], &["--cursor", cursor]].concat());
        assert_eq!(
            [ids(&first), ids(&rest)].concat(),
            newest_first,
            "{filter:?}"
        );
    }
    assert_eq!(
        ids(&project.json(&["list", "--status", "suspended"])).len(),
        0
    );
    assert_eq!(
        ids(&project.json(&["list", "--directive", "describe"])).len(),
        3
    );
    let near = project.json(&["list", "--status", "complete"]);
    assert!(
        near["error"]["message"].to_string().contains("'completed'"),
        "{near}"
    );
    assert_eq!(project.json(&["list", "--cursor", "zzz"])["exit"], 1);
}

#[test]
fn show_tells_the_thread_and_its_last_events() {
    let project = CliProject::new();
    project.finish_thread("s");
    let person = project.run(&["show", "s", "--events", "2"]);
    assert_eq!(person.code, Some(0));
    for part in [
        "thread         s\n",
        "cost           0.00031 USD for 2 turns",
        "EVENT  WHEN",
        "  4.0  ",
    ] {
        assert!(person.out.contains(part), "{part:?} in\n{}", person.out);
    }
    let answer = project.json(&["show", "s", "--events", "3"]);
    let kinds: Vec<&str> = answer["events"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|event| event["type"].as_str())
        .collect();
    assert_eq!(kinds, ["tool_result", "message", "result"]);
    assert_eq!(
        answer["thread"]["run"],
        json!({"number": 1, "holder": null, "expiry": null, "step": null})
    );
    assert_eq!(
        project.json(&["show", "s", "--events", "0"])["events"],
        json!([])
    );
}

#[test]
fn transcripts_in_every_format() {
    let project = CliProject::new();
    project.finish_thread("t");
    for (format, part) in [
        ("markdown", "Let me look."),
        ("jsonl", "\"threadId\":\"t\""),
        ("state", "\"messages\""),
    ] {
        let person = project.run(&["transcript", "t", "--format", format]);
        assert_eq!(person.code, Some(0), "{format}: {}", person.err);
        assert!(person.out.contains(part), "{format}: {}", person.out);
        let answer = project.json(&["transcript", "T", "--format", format]);
        assert_eq!(
            (&answer["thread_id"], &answer["format"]),
            (&json!("t"), &json!(format))
        );
        if format != "state" {
            assert_eq!(answer["text"].as_str().unwrap(), person.out, "{format}");
        }
    }
    let lines = project.run(&["transcript", "t", "--format", "jsonl"]).out;
    assert!(
        lines
            .lines()
            .all(|line| serde_json::from_str::<Value>(line).is_ok())
    );
}

#[test]
fn demo_needs_nothing_and_leaves_nothing() {
    let project = CliProject::empty();
    project.write("tmp/keep", "");
    for arguments in [&["demo"][..], &["demo", "--json"]] {
        let mut command = project.command(arguments);
        command.env("TMPDIR", project.path().join("tmp"));
        let ran = threadkeep_tests::binary::run_to_end(command);
        assert_eq!(ran.code, Some(0), "{ran:#?}");
        if arguments.contains(&"--json") {
            let answer = ran.json();
            assert_eq!(answer["run"]["status"], "completed");
            assert_eq!(answer["run"]["cost"]["turns"], 3);
            assert!(
                answer["transcript"]
                    .as_str()
                    .unwrap()
                    .contains("notes/ideas.txt:1:")
            );
        } else {
            for part in [
                "$ threadkeep run tour",
                "The word coffee is written twice",
                "$ threadkeep show tour-",
                "## Tool call: search_files",
            ] {
                assert!(ran.out.contains(part), "{part:?} in\n{}", ran.out);
            }
            assert!(ran.err.contains("status  completed"), "{}", ran.err);
        }
    }
    let left: Vec<_> = std::fs::read_dir(project.path().join("tmp"))
        .unwrap()
        .collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(!project.exists(".ai"));
}

#[test]
fn logs_are_off_until_they_are_asked_for() {
    let project = CliProject::new();
    assert_eq!(project.run(&["list", "--json"]).err, "");
    let mut wrong = project.command(&["list", "--json"]);
    wrong.env("THREADKEEP_LOG", "=x=");
    let ran = threadkeep_tests::binary::run_to_end(wrong);
    assert!(
        ran.err.contains("THREADKEEP_LOG is no filter"),
        "{}",
        ran.err
    );
    assert_eq!(ran.json()["exit"], 0);
}

#[test]
fn help_and_version() {
    let project = CliProject::empty();
    for (arguments, part) in [
        (&["--help"][..], "Exit codes: 0 done"),
        (&["-h"], "Exit codes"),
        (&["help", "run"], "--input <NAME=VALUE>"),
        (&["run", "--help"], "Ctrl-C once cancels"),
        (&["--version"], "threadkeep 0."),
    ] {
        let ran = project.run(arguments);
        assert_eq!(ran.code, Some(0), "{arguments:?}");
        assert!(ran.out.contains(part), "{arguments:?}: {}", ran.out);
        assert!(
            ran.out.lines().all(|line| line.chars().count() <= 110),
            "{arguments:?}"
        );
    }
    assert!(
        project.json(&["--version"])["version"]
            .as_str()
            .unwrap()
            .starts_with("threadkeep")
    );
    assert!(
        project.json(&["run", "--help"])["help"]
            .as_str()
            .unwrap()
            .contains("--inputs")
    );
}
