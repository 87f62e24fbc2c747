//! Threads as people see them: lists by several filters, trees with titles, calls with their
//! arguments, the end of a transcript, and one that is followed.

use super::fixture::CliProject;
use serde_json::{Value, json};

fn ids(list: &Value) -> Vec<&str> {
    let threads = list["threads"].as_array().expect("a list").iter();
    threads
        .map(|row| row["thread_id"].as_str().expect("an id"))
        .collect()
}

#[test]
fn filters_combine_and_pages_join() {
    let project = CliProject::new();
    let mut made = Vec::new();
    for number in 0..9 {
        let (id, agent) = (
            format!("t{number}"),
            if number % 3 == 0 { "ann" } else { "bob" },
        );
        let chat = ["create", "--id", &id, "--agent", agent];
        let directive = ["describe", "--input", "file=notes.txt"];
        match number % 2 {
            0 => project.json(&chat),
            _ => project.json(&[&chat[..], &directive].concat()),
        };
        made.push(id);
    }
    project.json(&["kill", "t3"]);
    let list = |more: &[&str]| project.json(&[&["list"], more].concat());
    let wanted = [
        "--agent",
        "bob",
        "--directive",
        "describe",
        "--status",
        "created",
    ];
    let all = list(&wanted);
    assert_eq!(ids(&all), ["t7", "t5", "t1"]);
    assert_eq!(all["cursor"], Value::Null);
    let first = list(&[&wanted[..], &["--limit", "1"]].concat());
    assert_eq!(ids(&first), ["t7"]);
    let cursor = first["cursor"].as_str().expect("there is more");
    let rest = list(&[&wanted[..], &["--cursor", cursor]].concat());
    assert_eq!(ids(&rest), ["t5", "t1"]);
    let rest = list(&[&wanted[..], &["--after", "t7", "--limit", "1"]].concat());
    assert_eq!(ids(&rest), ["t5"]);
    let rest = list(&["--after", "t1"]);
    assert_eq!(ids(&rest), ["t0"], "without a filter as well");
    let said = list(&["--agent", "ann", "--after", "t1"]);
    assert_eq!(said["error"]["code"], "not-found", "{said}");
    let whole = list(&["--all"]);
    assert_eq!(ids(&whole).len(), made.len());
    assert_eq!(ids(&list(&["--since", "1h"])).len(), made.len());
    assert_eq!(ids(&list(&["--since", "2100-01-01"])).len(), 0);
    let killed = list(&["--status", "killed", "--since", "1h", "--agent", "ann"]);
    assert_eq!(ids(&killed), ["t3"]);
    let shown = project.run(&["list", "--limit", "2"]);
    assert_eq!(shown.err, "more: --after t8\n", "{}", shown.out);
}

#[test]
fn children_stand_below_the_thread_that_spawned_them() {
    let project = CliProject::new();
    project.add_family(1);
    let run = project.json(&["run", "parent", "--id", "family", "--title", "The family"]);
    assert_eq!(run["status"], "completed", "{run}");
    let shown = project.run(&["list"]).out;
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[1].starts_with("family "), "{shown}");
    assert!(lines[2].starts_with("  part-"), "{shown}");
    assert!(lines[2].contains("suspended (turns_exceeded)"), "{shown}");
    assert_eq!(ids(&project.json(&["list", "--roots"])), ["family"]);
    let tree = project.run(&["tree", "fam"]).out;
    let lines: Vec<&str> = tree.lines().collect();
    assert!(lines[0].ends_with(" TITLE"), "{tree}");
    assert!(lines[1].ends_with("The family"), "{tree}");
    let rows = project.json(&["tree", "family"])["threads"].clone();
    assert_eq!(
        (&rows[0]["title"], &rows[1]["title"], &rows[1]["directive"]),
        (&json!("The family"), &Value::Null, &json!("part"))
    );
}

#[test]
fn show_has_arguments_documents_and_absolute_times() {
    let project = CliProject::new();
    project.finish_thread("t");
    let shown = project.run(&["show", "t", "--utc"]).out;
    assert!(
        shown.contains("tool_use        read_file {\"path\":\"notes.txt\"}"),
        "{shown}"
    );
    assert!(shown.contains("documents      .ai/threads/t\n"), "{shown}");
    let created = shown
        .lines()
        .find(|line| line.starts_with("created"))
        .expect("a time");
    let time = created.trim_start_matches("created").trim();
    assert!(
        time.len() == "2026-03-10 12:00:00Z".len() && time.ends_with('Z'),
        "{created}"
    );
    assert!(!shown.contains(" ago"), "{shown}");
    for command in [["checkpoints", "t"], ["list", "--all"]] {
        let shown = project.run(&[&command[..], &["--utc"]].concat()).out;
        assert!(
            !shown.contains(" ago") && !shown.contains(" now"),
            "{shown}"
        );
    }
    let memory = project.json(&["show", "t"]);
    assert_eq!(memory["documents"], ".ai/threads/t");
}

#[test]
fn the_end_of_a_transcript() {
    let project = CliProject::new();
    project.finish_thread("t");
    let last = |count: &str| project.run(&["transcript", "t", "--last", count]).out;
    let (one, two, many) = (last("1"), last("2"), last("1000"));
    assert!(
        one.contains("It holds a") && !one.contains("Let me look."),
        "{one}"
    );
    assert!(
        two.contains("Let me look.") && !two.contains("Execute the directive."),
        "{two}"
    );
    assert_eq!(many, project.run(&["transcript", "t"]).out);
    let lines = project
        .run(&["transcript", "t", "--last", "1", "--format", "jsonl"])
        .out;
    assert!(
        lines.starts_with('{') && lines.contains("\"threadId\":\"t\""),
        "{lines}"
    );
    assert!(!lines.contains("Let me look."), "{lines}");
    let json = project.json(&["transcript", "t", "--last", "1"]);
    assert_eq!(json["text"], one);
    let state = project.json(&["transcript", "t", "--last", "1", "--format", "state"]);
    assert_eq!(state["exit"], 2, "{state}");
}

/// Another process runs the thread: `--follow` prints what is committed as it comes, and ends when
/// the run does.
#[test]
fn a_running_thread_is_followed_to_its_end() {
    let project = CliProject::new();
    let script = r#"[
      {"text": "Let me look.",
       "calls": [{"name": "read_file", "arguments": {"path": "notes.txt"}}]},
      {"text": "It is done.", "chunk": 4, "pause_ms": 700}
    ]"#;
    project.write(".ai/script.json", script);
    let run = ["run", "describe", "--input", "file=notes.txt", "--id", "t"];
    let running = project.start(&run);
    running.await_err("turn 1");
    let whole = project.run(&["transcript", "t", "--follow"]);
    assert_eq!(whole.code, Some(0), "{}", whole.err);
    assert!(
        whole.out.contains("Let me look.") && whole.out.contains("It is done."),
        "{whole:?}"
    );
    assert!(whole.err.contains("t is completed"), "{}", whole.err);
    assert_eq!(running.wait_for_end().code, Some(0));
    // A thread that nobody runs is printed, and its status is the exit code.
    project.json(&["create", "describe", "--input", "file=x", "--id", "new"]);
    assert_eq!(project.run(&["transcript", "new", "-f"]).code, Some(0));
    let again = project.json(&["transcript", "t", "--follow"]);
    assert_eq!(again["text"], whole.out);
}

/// Symptom: a thread whose process was killed was followed for ever. Cause: only the status was
/// looked at. Fix: a thread is followed while its holder is not known to be dead.
#[test]
fn a_thread_whose_process_was_killed_is_followed_to_there() {
    let project = CliProject::new();
    let running = project.start_unending("t");
    running.kill();
    drop(running.wait_for_end());
    let followed = project.run(&["transcript", "t", "--follow"]);
    assert_eq!(followed.code, Some(4), "{}", followed.err);
    let told = "the process that ran t is dead: `threadkeep resume t` goes on";
    assert!(followed.err.contains(told), "{}", followed.err);
    let whole = project.json(&["transcript", "t", "--follow"]);
    assert_eq!(whole["text"], followed.out);
}

#[test]
fn top_looks_no_more_often_than_a_screen_shows() {
    let project = CliProject::new();
    for short in ["0", "1ms", "99ms"] {
        let refused = project.run(&["top", "--every", short]);
        assert_eq!(refused.code, Some(2), "{short}");
        assert!(
            refused.err.contains("the shortest time is 100 ms"),
            "{}",
            refused.err
        );
    }
}

/// Most of the money is spent, the thread can go on, and a person who looks at it is told.
#[test]
fn a_person_is_warned_before_the_money_is_gone() {
    let project = CliProject::new();
    let script = r#"[{"text": "Let me look.", "usage": {"input": 100, "output": 1000},
        "calls": [{"name": "read_file", "arguments": {"path": "notes.txt"}}]}]"#;
    project.write(".ai/script.json", script);
    let run = [
        "run",
        "describe",
        "--input",
        "file=notes.txt",
        "--id",
        "t",
        "--turns",
        "1",
    ];
    let told = "warning: 87 % of the money of t is spent, 0.0021 of 0.0024 USD: `threadkeep \
                raise t --spend USD` lifts its cap\n";
    let ran = project.run(&[&run[..], &["--spend", "0.0024"]].concat());
    assert!(ran.err.contains(told), "{}", ran.err);
    for command in [&["show", "t"][..], &["budget", "show", "t"]] {
        let shown = project.run(command);
        assert_eq!(shown.err, told, "{command:?}");
    }
    project.json(&["raise", "t", "--spend", "0.10"]);
    assert_eq!(project.run(&["show", "t"]).err, "");
    project.json(&["raise", "t", "--spend", "0.50"]);
    project.json(&["kill", "t"]);
    assert_eq!(project.run(&["budget", "show", "t"]).err, "");
}

/// The sums are those of the threads: of a fork and a successor only what they used themselves.
#[test]
fn usage_adds_up_what_the_ledger_says() {
    let project = CliProject::new();
    project.add_family(5);
    let run = [
        "run",
        "describe",
        "--input",
        "file=notes.txt",
        "--agent",
        "ann",
    ];
    project.json(&[&run[..], &["--id", "t"]].concat());
    project.json(&["run", "parent", "--id", "family"]);
    project.json(&["fork", "t", "--at", "2"]);
    project.json(&["resume", "t", "And now?"]);
    let usage = project.json(&["usage", "--by", "directive"]);
    let ledger = project.json(&["audit"]);
    assert_eq!(ledger["exit"], 0, "{ledger}");
    let nanos = |value: &Value| {
        let text = value["spend"].as_str().expect("it is text");
        threadkeep_core::money::NanoUsd::parse(text)
            .expect("exact")
            .get()
    };
    let listed = project.json(&["list", "--all"])["threads"].clone();
    let listed = listed.as_array().expect("rows").iter();
    // The successor of `t` carries its cost on, as one chain.
    let own = listed.filter(|row| row["status"] != "continued");
    let of = |directive: &str| {
        let rows = own.clone().filter(|row| row["directive"] == directive);
        rows.map(|row| nanos(&row["cost"])).sum::<u64>()
    };
    let rows = usage["usage"].as_array().expect("rows");
    for directive in ["parent", "part"] {
        let row = rows
            .iter()
            .find(|row| row["directive"] == directive)
            .expect("a sum");
        assert_eq!(nanos(row), of(directive), "{directive}: {usage}");
    }
    let sum: u64 = rows.iter().map(nanos).sum();
    assert_eq!(nanos(&usage["total"]), sum);
    for by in ["day", "model", "agent", "day,model,directive,agent"] {
        let other = project.json(&["usage", "--by", by]);
        assert_eq!(other["total"], usage["total"], "{by}");
    }
    let ann = project.json(&["usage", "--agent", "ann", "--by", "agent"]);
    assert_eq!(ann["usage"].as_array().map(Vec::len), Some(1), "{ann}");
    assert_eq!(ann["usage"][0]["agent"], "ann");
    let none = project.run(&["usage", "--since", "2100-01-01"]);
    assert_eq!(
        (none.out.as_str(), none.err.as_str()),
        ("", "nothing was used\n")
    );
    assert_eq!(
        project.json(&["usage", "--since", "1h"])["total"],
        usage["total"]
    );
}
