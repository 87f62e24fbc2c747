//! Reading a thread at a version, and going on from there: `show --at`, `transcript --at`,
//! `checkpoints` and `fork`.

use super::fixture::CliProject;
use serde_json::Value;
use threadkeep_tests::binary::{self, ProcessOutput};

/// Talks with a chat; returns what was printed.
fn talk(project: &CliProject, words: &[&str], line: &str) -> ProcessOutput {
    let replies = r#"[{"text": "One."}, {"text": "Two."}, {"text": "Three."}]"#;
    project.write("talk.json", replies);
    let scripted = ["--provider", "scripted:talk.json"];
    let command = project.command(&[&["chat"], words, &scripted].concat());
    binary::run_with_input(command, line)
}

fn texts(value: &Value, field: &str) -> Vec<String> {
    let rows = value.as_array().unwrap().iter();
    rows.map(|row| row[field].to_string()).collect()
}

/// A project with a run that has ended.
fn project() -> CliProject {
    let project = CliProject::new();
    let run = [
        "run",
        "describe",
        "--input",
        "file=notes.txt",
        "--id",
        "done",
    ];
    assert_eq!(project.json(&run)["exit"], 0);
    project
}

#[test]
fn checkpoints_are_the_committed_versions_newest_first() {
    let project = project();
    let newest = project.json(&["show", "done"])["thread"]["version"]
        .as_u64()
        .unwrap();
    let all = project.json(&["checkpoints", "done"]);
    let expected: Vec<String> = (1..=newest)
        .rev()
        .map(|version| version.to_string())
        .collect();
    assert_eq!(texts(&all["checkpoints"], "version"), expected);
    assert_eq!(all["next"], Value::Null);
    let (mut paged, mut at) = (Vec::new(), None);
    loop {
        let at_text = at.map(|at: u64| at.to_string());
        let mut words = vec!["checkpoints", "done", "--limit", "1"];
        words.extend(at_text.iter().flat_map(|at| ["--at", at.as_str()]));
        let page = project.json(&words);
        paged.extend(texts(&page["checkpoints"], "version"));
        at = page["next"].as_u64();
        if at.is_none() {
            break;
        }
    }
    assert_eq!(paged, expected);
    let replies = all["checkpoints"].as_array().unwrap().iter();
    let replies = replies.filter(|row| row["reason"] == "assistant-turn");
    for reply in replies {
        assert!(reply["input_tokens"].as_u64().unwrap() > 0, "{reply}");
    }
    let printed = project.run(&["checkpoints", "done"]).out;
    assert!(printed.contains("user-message"), "{printed}");
    for wrong in ["0", "99"] {
        let refused = project.json(&["checkpoints", "done", "--at", wrong]);
        assert_eq!(refused["exit"], 1, "{wrong}: {refused}");
    }
}

#[test]
fn a_thread_is_shown_and_printed_as_it_was() {
    let project = project();
    let whole = project.run(&["transcript", "done"]).out;
    let newest = project.json(&["show", "done"])["thread"]["version"]
        .as_u64()
        .unwrap();
    for version in 1..=newest {
        let at = version.to_string();
        let shown = project.json(&["show", "done", "--at", &at]);
        assert_eq!(shown["at"]["version"], version);
        let events = shown["events"].as_array().unwrap();
        assert_eq!(events.last().unwrap()["version"], version);
        let then = project.run(&["transcript", "done", "--at", &at]).out;
        assert!(whole.starts_with(then.trim_end()), "{version}: {then}");
        for format in ["jsonl", "state"] {
            let words = ["transcript", "done", "--format", format, "--at", &at];
            assert_eq!(project.json(&words)["version"], version, "{format}");
        }
    }
    let state = ["transcript", "done", "--format", "state", "--at", "1"];
    let state = project.json(&state)["text"].as_str().unwrap().to_owned();
    let state: Value = serde_json::from_str(&state).unwrap();
    let then = (
        &state["status"],
        &state["turn_number"],
        &state["history_version"],
    );
    assert_eq!(then, (&Value::Null, &Value::Null, &1.into()));
    // The prompt, and the opening.
    let roles = state["messages"].as_array().unwrap().iter();
    let roles: Vec<_> = roles.map(|message| message["role"].clone()).collect();
    assert_eq!(roles, ["system", "user"]);
    for command in ["show", "transcript"] {
        for wrong in ["99", "-1", "x"] {
            let refused = project.json(&[command, "done", "--at", wrong]);
            assert!(
                [1, 2].contains(&refused["exit"].as_u64().unwrap()),
                "{refused}"
            );
        }
    }
    let zero = project.json(&["show", "done", "--at", "0"]);
    assert_eq!(zero["exit"], 1, "{zero}");
}

#[test]
fn a_fork_says_how_to_go_on_and_is_found_from_its_original() {
    let project = project();
    let made = project.run(&["fork", "done", "--at", "2", "--title", "Another way"]);
    let id = made.out.trim().to_owned();
    for part in ["done was at version 2", &format!("threadkeep resume {id}")] {
        assert!(made.err.contains(part), "{part}: {}", made.err);
    }
    let thread = &project.json(&["show", &id])["thread"];
    assert_eq!(thread["forked_from"]["thread_id"], "done");
    assert_eq!(thread["cause"]["code"], "forked");
    assert_eq!(thread["title"], "Another way");
    assert_eq!(thread["cost"]["turns"], 0);
    let shown = project.json(&["show", "done"]);
    assert_eq!(shown["thread"]["forks"], 1);
    let forks = project.json(&["list", "--forks", "done"]);
    assert_eq!(texts(&forks["threads"], "thread_id"), [format!("{id:?}")]);
    // Each line tells whose entry it is.
    let path = project.json(&["checkpoints", &id]);
    let owners = texts(&path["checkpoints"], "thread_id");
    assert_eq!(
        owners,
        [format!("{id:?}"), "\"done\"".into(), "\"done\"".into()]
    );
    let resumed = project.json(&["resume", &id]);
    assert_eq!(
        (&resumed["exit"], &resumed["status"]),
        (&0.into(), &"completed".into())
    );
    let tree = project.run(&["tree", "done"]).out;
    assert!(tree.contains(&id), "{tree}");
    assert_eq!(project.json(&["audit"])["exit"], 0);
}

#[test]
fn a_fork_of_a_chat_is_talked_with() {
    let project = CliProject::new();
    let said = talk(&project, &["--id", "talk"], "Hello.\n");
    assert_eq!(said.code, Some(0), "{}", said.err);
    let forked = project.json(&["fork", "talk"]);
    let id = forked["thread"]["thread_id"].as_str().unwrap().to_owned();
    assert_eq!(forked["thread"]["status"], "idle");
    let made = project.run(&["fork", "talk", "--at", "1"]);
    assert!(made.err.contains("threadkeep chat"), "{}", made.err);
    let said = talk(&project, &[&id], "And now?\n");
    assert_eq!(said.code, Some(0), "{}", said.err);
    let refused = project.json(&["fork", "talk", "--at", "0"]);
    assert_eq!(refused["error"]["code"], "invalid");
    let missing = project.json(&["fork", "tlak"]);
    assert_eq!(missing["error"]["code"], "not-found");
    assert_eq!(project.json(&["audit"])["exit"], 0);
}
