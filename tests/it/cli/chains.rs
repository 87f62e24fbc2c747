//! Threads that were continued, on the command line: `chain`, and what other commands do where an
//! earlier link is named.

use super::fixture::CliProject;
use serde_json::{Value, json};
use threadkeep_tests::binary;

/// A project with a directive's thread that was resumed, and a chat that was handed off.
fn project_with_chains() -> CliProject {
    let project = CliProject::new();
    project.finish_thread("done");
    project.continue_thread("done", "done-2");
    let mut chat = project.command(&["chat", "--id", "talk", "--json"]);
    chat.args(["--provider", "scripted:talk.json"]);
    project.write("talk.json", r#"[{"text": "Hello."}, {"text": "Yes."}]"#);
    binary::run_with_input(chat, "Hello.");
    project.continue_thread("talk", "talk-2");
    project
}

#[test]
fn chain_is_shown_from_any_link() {
    let project = project_with_chains();
    let told = project.json(&["chain", "talk"]);
    assert_eq!(told, project.json(&["chain", "talk-2"]));
    let ids: Vec<&Value> = told["chain"].as_array().unwrap().iter().collect();
    assert_eq!(
        (&ids[0]["thread_id"], &ids[1]["thread_id"]),
        (&json!("talk"), &json!("talk-2"))
    );
    assert_eq!(
        (&told["chain_length"], &told["tip"]),
        (&json!(2), &json!("talk-2"))
    );
    assert_eq!(told["chain"][0]["continued"]["how"], "handed-off");
    let shown = project.run(&["chain", "done"]);
    assert_eq!(shown.code, Some(0), "{}", shown.err);
    for part in [
        "1  done    completed",
        "2  done-2  created",
        "resumed at version",
        "2 links",
    ] {
        assert!(shown.out.contains(part), "{part:?} is not in {}", shown.out);
    }
    assert!(
        shown.err.contains("done was continued in done-2"),
        "{}",
        shown.err
    );
    let alone = project.run(&["chain", "done-2"]);
    assert!(!alone.err.contains("continued"), "{}", alone.err);
    let unknown = project.run(&["chain", "don"]);
    assert_eq!(
        (unknown.code, unknown.err.contains("done")),
        (Some(1), true),
        "{}",
        unknown.err
    );
    let help = project.run(&["chain", "--help"]);
    assert!(
        help.out.contains("threadkeep chain describe-"),
        "{}",
        help.out
    );
}

/// A signal that is meant for a thread is done to the tip of its chain, and the user is told so.
#[test]
fn signals_go_to_the_tip_and_say_so() {
    let project = project_with_chains();
    for (arguments, done) in [
        (&["message", "talk", "And?"][..], "the message goes there"),
        (
            &["raise", "talk", "--spend", "9"],
            "its caps are raised there",
        ),
        (&["title", "talk", "A talk"], "the title is set there"),
        (&["cancel", "done"], "it is cancelled there"),
        (&["kill", "talk"], "it is killed there"),
    ] {
        let ran = project.run(arguments);
        let tip = format!("{}-2", arguments[1]);
        assert_eq!(ran.code, Some(0), "{arguments:?}: {}", ran.err);
        let note = format!("{} was continued in {tip}: {done}", arguments[1]);
        assert!(ran.err.contains(&note), "{note:?} is not in {}", ran.err);
        assert!(ran.out.contains(&tip), "{arguments:?}: {}", ran.out);
    }
    assert_eq!(project.status("talk"), "continued");
    assert_eq!(project.status("talk-2"), "killed");
    assert_eq!(project.status("done-2"), "cancelled");
    let told = project.json(&["show", "talk-2"]);
    assert_eq!(told["thread"]["title"], "A talk");
    assert_eq!(told["continued_in"], Value::Null);
    let audited = project.run(&["audit"]);
    assert_eq!(audited.code, Some(0), "{}{}", audited.out, audited.err);
}

#[test]
fn answers_name_the_tip_in_a_field() {
    let project = project_with_chains();
    for arguments in [
        &["message", "talk", "And?"][..],
        &["raise", "talk", "--turns", "99"],
    ] {
        let told = project.json(arguments);
        assert_eq!(
            (&told["thread_id"], &told["continued_in"]),
            (&json!("talk-2"), &json!("talk-2")),
            "{told}"
        );
    }
    let direct = project.json(&["message", "talk-2", "And?"]);
    assert_eq!(direct["continued_in"], Value::Null);
    // Reading stays with the link that is named.
    for command in ["show", "transcript"] {
        let told = project.json(&[command, "talk"]);
        assert_eq!(told["continued_in"], "talk-2", "{told}");
        let named = told
            .pointer("/thread/thread_id")
            .unwrap_or(&told["thread_id"]);
        assert_eq!(named, "talk");
        let shown = project.run(&[command, "talk"]);
        let note = format!("talk was continued in talk-2: `threadkeep {command} talk-2`");
        assert!(shown.err.contains(&note), "{}", shown.err);
    }
}

/// Symptom: `fork`, `checkpoints` and `budget show` of an earlier link said nothing of the thread
/// that it goes on in. Fix: they do, as `show` does. Kind: commands that read or copy a thread.
#[test]
fn forks_checkpoints_and_budgets_name_the_tip() {
    let project = project_with_chains();
    for command in [&["fork"][..], &["checkpoints"], &["budget", "show"]] {
        let name = command.join(" ");
        let told = project.json(&[command, &["talk"]].concat());
        assert_eq!(
            (&told["continued_in"], &told["exit"]),
            (&json!("talk-2"), &json!(0)),
            "{told}"
        );
        let tip = project.json(&[command, &["talk-2"]].concat());
        assert_eq!(tip["continued_in"], Value::Null, "{tip}");
        let shown = project.run(&[command, &["talk"]].concat());
        let note = format!("talk was continued in talk-2: `threadkeep {name} talk-2`");
        assert!(shown.err.contains(&note), "{}", shown.err);
    }
}

/// Symptom: `open` and `append` of the first of three links named the second, which takes nothing
/// either. Fix: the tip is named as well. Kind: commands of an external loop.
#[test]
fn refused_loops_are_sent_to_the_tip() {
    let project = project_with_chains();
    project.continue_thread("talk-2", "talk-3");
    let hello = r#"{"type":"message","role":"user","content":"Hello."}"#;
    for (arguments, next) in [
        (&["open", "talk"][..], "open"),
        (&["append", "talk"], "append"),
        (&["close", "talk", "idle", "--token", "talk#1"], "close"),
        (
            &[
                "budget", "hold", "talk", "k", "--token", "talk#1", "--amount", "0.1",
            ],
            "budget hold",
        ),
    ] {
        let mut command = project.command(arguments);
        command.arg("--json");
        let late = binary::run_with_input(command, hello).json();
        assert_eq!(late["error"]["code"], "continued", "{late}");
        let hint = late["error"]["hint"].as_str().unwrap();
        let expected = format!("`threadkeep {next} talk-3`");
        assert!(hint.contains(&expected), "{arguments:?}: {hint}");
    }
}

/// Symptom: `list --parent` showed a child that was continued as its first link alone, with the
/// status `continued` and no word of the thread that runs. Kind: the links of a child.
#[test]
fn children_are_listed_with_their_later_links() {
    let project = CliProject::new();
    project.add_family(5);
    project.json(&["run", "parent", "--id", "top"]);
    let children = |project: &CliProject| -> Vec<Value> {
        let listed = project.json(&["list", "--parent", "top"]);
        let rows = listed["threads"].as_array().unwrap().iter();
        rows.map(|row| row["thread_id"].clone()).collect()
    };
    let first = children(&project);
    assert_eq!(first.len(), 1);
    let child = first[0].as_str().unwrap().to_owned();
    project.continue_thread(&child, "part-2");
    project.continue_thread("part-2", "part-3");
    let expected = [json!("part-3"), json!("part-2"), first[0].clone()];
    assert_eq!(children(&project), expected);
}

/// Symptom: the answer of a run that was handed off counted turns, tokens and money of its last
/// link alone. Fix: those of the links that it has left are added, summaries included. Kind: the
/// JSON answer, the closing lines, and the line after each turn.
#[test]
fn the_cost_of_a_run_is_that_of_all_its_links() {
    for words in [&["--json"][..], &[]] {
        let project = CliProject::new();
        let replies = r#"[{"text": "One.", "usage": {"input": 31000, "output": 10}},
            {"text": "Two.", "usage": {"input": 500, "output": 20}}]"#;
        project.write("full.json", replies);
        let scripted = ["--provider", "scripted:full.json"];
        let chat = project.command(&[&["chat", "--id", "talk"], &scripted[..]].concat());
        binary::run_with_input(chat, &format!("{}\n", "long ".repeat(12_000)));
        let resume = [&["resume", "talk", "And now?"], &scripted[..], words];
        let said = project.run(&resume.concat());
        let chain = project.json(&["chain", "talk"]);
        let totals = &chain["totals"];
        assert_eq!(
            (&chain["chain_length"], &totals["turns"]),
            (&json!(2), &json!(2)),
            "{chain}"
        );
        let input = totals["input_tokens"].as_u64().unwrap();
        assert!(input > 31_000, "{chain}");
        if words.is_empty() {
            // Its own tokens and those of the summary.
            let turn = format!("turn 2: {} input and ", input - 31_000);
            assert!(said.err.contains(&turn), "{}", said.err);
            let closing = format!("for 2 turns, {input} input and ");
            assert!(said.err.contains(&closing), "{}", said.err);
        } else {
            let answer = said.json();
            assert_eq!(&answer["cost"], totals, "{answer}");
            assert_eq!(answer["handed_off"], json!(["talk"]));
            let last = &chain["chain"][1];
            assert_ne!(&last["cost"], totals, "{chain}");
            assert!(answer["text"].as_str().is_some_and(|text| !text.is_empty()));
        }
    }
}

#[test]
fn chat_goes_on_in_the_tip() {
    let project = project_with_chains();
    let mut chat = project.command(&["chat", "talk", "--provider", "scripted:talk.json"]);
    chat.arg("--json");
    let told = binary::run_with_input(chat, "And?").json();
    assert_eq!(
        (&told["thread_id"], &told["status"]),
        (&json!("talk-2"), &json!("idle")),
        "{told}"
    );
    // An external loop names the thread that it writes to.
    let late = project.json(&["open", "talk"]);
    assert_eq!(
        (&late["error"]["code"], &late["exit"]),
        (&json!("continued"), &json!(1)),
        "{late}"
    );
    assert!(
        late["error"]["message"]
            .as_str()
            .unwrap()
            .contains("talk-2"),
        "{late}"
    );
}

/// A chain that was broken by hand: `chain` names the link, `list`, `show` and `doctor` answer, and
/// other threads run.
#[test]
fn broken_chain_is_told_and_takes_nobody_along() {
    for (planted, link) in [
        (
            "UPDATE record_thread SET value = json_set(value, '$.next', 'talk') WHERE name = \
             'talk'",
            "talk",
        ),
        ("DELETE FROM record_thread WHERE name = 'talk'", "talk"),
        (
            "UPDATE record_thread SET value = '{' WHERE name = 'talk'",
            "talk",
        ),
        (
            "UPDATE record_thread SET value = json_set(value, '$.previous', NULL) WHERE name = \
             'talk-2'",
            "talk-2",
        ),
    ] {
        let project = project_with_chains();
        let store = rusqlite::Connection::open(project.path().join(".ai/threads/registry.db"));
        assert_eq!(store.unwrap().execute(planted, []), Ok(1), "{planted}");
        let told = project.json(&["chain", "talk-2"]);
        assert_eq!(
            (&told["error"]["code"], &told["exit"]),
            (&json!("corrupt"), &json!(1)),
            "{told}"
        );
        let message = told["error"]["message"].as_str().unwrap();
        assert!(
            message.contains(&format!("broken at {link}:")),
            "{planted}: {message}"
        );
        let listed = project.run(&["list"]);
        assert_eq!(listed.code, Some(0), "{planted}: {}", listed.err);
        assert!(listed.out.contains("done-2"), "{planted}: {}", listed.out);
        assert_eq!(project.run(&["show", "talk-2"]).code, Some(0), "{planted}");
        let audited = project.run(&["audit"]);
        assert_eq!(audited.code, Some(1), "{planted}: {}", audited.out);
        assert!(audited.out.contains("talk"), "{planted}: {}", audited.out);
        assert_eq!(project.run(&["doctor"]).code, Some(0), "{planted}");
        project.finish_thread("other");
    }
}

/// Symptom: the documents of a thread that was handed off were never written, and those of its
/// forks ended after the first entry. Cause: the writer took the versions of a path for ascending,
/// and such a thread is read along its own first entry before what it carries. Fix: the writer
/// follows the path. Kind: documents of links and of forks, continued and written anew.
#[test]
fn documents_of_a_thread_that_was_handed_off_are_whole() {
    let project = CliProject::new();
    let replies = r#"[{"text": "One.", "usage": {"input": 31000, "output": 10}},
        {"text": "Two."}, {"text": "Three."}, {"text": "Four."}]"#;
    project.write("full.json", replies);
    let chat = |words: &[&str], line: &str| {
        let scripted = ["--provider", "scripted:full.json"];
        let command = project.command(&[&["chat"], words, &scripted].concat());
        let said = binary::run_with_input(command, line);
        assert_eq!(said.code, Some(0), "{}", said.err);
        assert!(!said.err.contains("documents"), "{}", said.err);
    };
    chat(&["--id", "talk"], &format!("{}\n", "long ".repeat(12_000)));
    chat(&["talk"], "And now?\n");
    let chain = project.json(&["chain", "talk"]);
    assert_eq!(chain["chain_length"], 2, "{chain}");
    let tip = chain["tip"].as_str().unwrap().to_owned();
    chat(&[&tip], "And then?\n");
    let fork = project.json(&["fork", &tip])["thread"]["thread_id"].clone();
    let fork = fork.as_str().unwrap().to_owned();
    chat(&[&fork], "And else?\n");
    for thread in ["talk", &tip, &fork] {
        let path = project
            .path()
            .join(format!(".ai/threads/{thread}/transcript.md"));
        let file = std::fs::read_to_string(path).unwrap();
        let printed = project.run(&["transcript", thread]).out;
        assert!(file.starts_with(&format!("# {thread}\n\n")), "{file}");
        // Both links say where the conversation came from and went.
        let link = match thread {
            "talk" => format!("*handed off to {tip}, with "),
            thread if thread == tip => format!("# {tip}\n\n*continues talk*\n\n"),
            thread => format!("# {thread}\n\n*forked from {tip} at version "),
        };
        assert!(file.contains(&link), "{link:?} is not in {file}");
        let headings = |text: &str| text.lines().filter(|line| line.starts_with("## ")).count();
        assert_eq!(headings(&file), headings(&printed), "{thread}");
        assert!(
            file.contains(printed.trim().lines().last().unwrap()),
            "{thread}"
        );
        assert_eq!(project.run(&["repair", thread]).code, Some(0), "{thread}");
    }
    let audited = project.json(&["audit"]);
    assert_eq!(
        (&audited["findings"], &audited["exit"]),
        (&json!([]), &json!(0))
    );
}

/// Symptom: each try to go on with a thread whose earlier link cannot be read held money for a call
/// that was never made, and charged it once the process had ended. Cause: the driver failed after
/// the call was admitted. Fix: it reports a call that was not sent, which gives the money back and
/// suspends the run. Kind: damage that is found between a step and its performance.
#[test]
fn a_thread_whose_earlier_link_is_lost_costs_nothing() {
    let project = project_with_chains();
    let store = rusqlite::Connection::open(project.path().join(".ai/threads/registry.db"));
    let planted = "DELETE FROM record_thread WHERE name = 'talk'";
    assert_eq!(store.unwrap().execute(planted, []), Ok(1));
    for _ in 0..2 {
        let mut chat = project.command(&["chat", "talk-2", "--json"]);
        chat.args(["--provider", "scripted:talk.json"]);
        let told = binary::run_with_input(chat, "And?").json();
        assert_eq!(told["status"], "suspended", "{told}");
        let message = told["cause"]["message"].as_str().unwrap();
        assert!(message.contains("history_unreadable"), "{told}");
    }
    let shown = project.json(&["show", "talk-2"]);
    assert_eq!(shown["thread"]["cost"]["spend"], "0.00", "{shown}");
    assert_eq!(shown["thread"]["run"]["holder"], Value::Null, "{shown}");
}
