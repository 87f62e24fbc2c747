//! `recover` and `repair`, and that every command answers with one document.

use super::fixture::CliProject;
use serde_json::json;
use threadkeep_tests::binary;

#[test]
fn a_killed_run_is_recovered_at_once_and_goes_on_in_place() {
    let project = CliProject::new();
    let running = project.start_unending("lost");
    running.kill();
    assert_eq!(running.wait_for_end().code, None);
    assert_eq!(
        project.status("lost"),
        "running",
        "nobody has said otherwise yet"
    );
    let busy = project.json(&["open", "lost"]);
    assert_eq!(busy["exit"], 4);
    assert!(
        busy["error"]["hint"]
            .as_str()
            .unwrap()
            .contains("its process is dead: `threadkeep resume lost`")
    );
    let found = project.run(&["doctor"]);
    assert!(
        found.out.contains("mend: threadkeep recover"),
        "{}",
        found.out
    );
    let mut recovered = project.json(&["recover"]);
    let charged = recovered["charged"].take();
    assert_eq!(charged.as_array().map(Vec::len), Some(1), "{charged}");
    assert_eq!(charged[0]["thread_id"], "lost");
    let nothing = json!({"recovered": [], "ended": [], "charged": [], "held": [],
        "unreadable": [], "left": [], "exit": 0});
    let mut expected = nothing.clone();
    (expected["recovered"], expected["charged"]) = (json!(["lost"]), json!(null));
    assert_eq!(recovered, expected);
    assert_eq!(project.json(&["recover"]), nothing);
    let shown = project.json(&["show", "lost"]);
    assert_eq!(shown["thread"]["cause"]["code"], "recovered");
    assert_eq!(
        project.json(&["doctor"])["missing"],
        json!([]),
        "lock swept, documents up to date"
    );
    let resumed = project.json(&["resume", "lost"]);
    assert_eq!(
        (&resumed["status"], &resumed["thread_id"]),
        (&json!("completed"), &json!("lost"))
    );
}

/// Symptom: `resume` and `chat` told a person to recover a run whose process was dead. Fix: they
/// recover it. Kinds: a directive's thread, a chat, beside a run of another dead process.
#[test]
fn resume_and_chat_take_over_from_a_dead_process() {
    let project = CliProject::new();
    let slow = ["chat", "--id", "talk", "--provider", "scripted:slow.json"];
    let chat = binary::start_with_input(project.command(&slow), "hi\n");
    chat.await_err("a reply is under way");
    chat.kill();
    chat.wait_for_end();
    let lost = project.start_unending("lost");
    lost.kill();
    lost.wait_for_end();
    let resumed = project.run(&["resume", "lost"]);
    assert_eq!(resumed.code, Some(0), "{resumed:#?}");
    for said in [
        "the process that held lost died: it goes on",
        "the process that held talk died, too: `threadkeep resume talk` goes on with it",
    ] {
        assert!(resumed.err.contains(said), "{said}: {}", resumed.err);
    }
    let again = project.start_unending("again");
    again.kill();
    again.wait_for_end();
    let talked = binary::run_with_input(project.command(&["chat", "talk"]), "again\n");
    assert_eq!(talked.code, Some(0), "{talked:#?}");
    assert_eq!(
        project.status("again"),
        "running",
        "nothing was in the way of the chat"
    );
    let chat = binary::start_with_input(
        project.command(&slow.map(|word| match word {
            "talk" => "other",
            word => word,
        })),
        "hi\n",
    );
    chat.await_err("a reply is under way");
    chat.kill();
    chat.wait_for_end();
    let talked = binary::run_with_input(project.command(&["chat", "other"]), "again\n");
    assert_eq!(talked.code, Some(0), "{talked:#?}");
    assert_eq!(project.json(&["audit"])["exit"], 0);
}

/// Symptom: the documents of a killed run stayed old until `repair`. Fix: the next command that
/// writes updates them. Kinds: a command about another thread, a run, a message to the thread
/// itself.
#[test]
fn documents_of_a_killed_run_are_brought_up_by_the_next_command_that_writes() {
    let rows: [&[&str]; 3] = [
        &["title", "one", "A title"],
        &[
            "run",
            "describe",
            "--input",
            "file=notes.txt",
            "--id",
            "next",
        ],
        &["message", "lost", "Hello."],
    ];
    for row in rows {
        let project = CliProject::new();
        project.finish_thread("one");
        let lost = project.start_unending("lost");
        lost.kill();
        lost.wait_for_end();
        for name in ["thread.json", "transcript.md", "transcript.jsonl"] {
            // A document that the killed process had not yet written.
            let _ = std::fs::remove_file(project.path().join(".ai/threads/lost").join(name));
        }
        assert_eq!(
            project.json(&["list"])["exit"],
            0,
            "what only reads writes nothing"
        );
        assert!(!project.exists(".ai/threads/lost/thread.json"), "{row:?}");
        let ran = project.json(row);
        assert_eq!(ran["exit"], 0, "{row:?}: {ran}");
        for name in ["thread.json", "transcript.md", "transcript.jsonl"] {
            let path = format!(".ai/threads/lost/{name}");
            assert!(project.exists(&path), "{row:?}: {path}");
        }
        assert_eq!(
            project.json(&["recover"])["recovered"],
            json!(["lost"]),
            "{row:?}"
        );
    }
}

#[test]
fn a_holder_that_is_named_as_dead_is_believed() {
    let project = CliProject::new();
    let running = project.start_unending("far");
    let holder = project.json(&["show", "far"])["thread"]["run"]["holder"].clone();
    let holder = holder.as_str().expect("somebody holds it");
    assert_eq!(
        project.json(&["recover", "--dead", "nobody/1"])["recovered"],
        json!([])
    );
    assert_eq!(
        project.json(&["recover", "--dead", holder])["recovered"],
        json!(["far"])
    );
    let ran = running.wait_for_end();
    assert_eq!(ran.code, Some(4), "it was fenced: {ran:#?}");
    assert!(ran.err.contains("held by somebody else now"), "{}", ran.err);
    assert_eq!(project.status("far"), "suspended");
}

/// Symptom: after a cleanup of `.ai/threads/locks.d`, `recover` ended the runs of living processes.
/// Cause: a missing lock file counted as the death of its holder. Fix: only a lock file that exists
/// and is free does.
#[test]
fn a_holder_that_lives_is_safe_without_its_lock_file() {
    let project = CliProject::new();
    let locks = project.path().join(".ai/threads/locks.d");
    for (id, whole) in [("file", false), ("folder", true)] {
        let running = project.start_unending(id);
        match whole {
            true => std::fs::remove_dir_all(&locks).unwrap(),
            false => std::fs::read_dir(&locks)
                .unwrap()
                .for_each(|entry| std::fs::remove_file(entry.unwrap().path()).unwrap()),
        }
        assert_eq!(project.json(&["recover"])["recovered"], json!([]), "{id}");
        assert_eq!(project.status(id), "running", "{id}");
        let busy = project.json(&["resume", id]);
        let hint = busy["error"]["hint"].as_str().unwrap();
        assert!(hint.contains("recover --dead native-"), "{hint}");
        assert_eq!(project.json(&["cancel", id])["exit"], 0);
        let ran = running.wait_for_end();
        assert!(!ran.err.contains("held by somebody else"), "{}", ran.err);
        assert_eq!(project.status(id), "cancelled", "{id}");
    }
}

/// Neither a killed process nor one that ended in order leaves files for ever.
#[test]
fn lock_files_go_with_their_processes_or_with_the_recovery_after_it() {
    let project = CliProject::new();
    let locks = project.path().join(".ai/threads/locks.d");
    let left = || std::fs::read_dir(&locks).unwrap().count();
    project.finish_thread("done");
    assert_eq!(left(), 0);
    let running = project.start_unending("lost");
    running.kill();
    running.wait_for_end();
    assert_eq!(left(), 1, "it says that its process is dead");
    assert_eq!(project.json(&["recover"])["recovered"], json!(["lost"]));
    assert_eq!(left(), 0);
}

/// Symptom: one unreadable record made `list`, `repair` and `recover` fail, and `doctor` saw
/// nothing. Cause: commands that read many threads gave up at the first. Fix: they go on without it
/// and name it.
#[test]
fn unreadable_record_hides_no_others() {
    for (table, value) in [
        ("thread", "'{'"),
        ("head", "x'01ff'"),
        ("chain", "CAST(x'22ff22' AS TEXT)"),
    ] {
        let what = format!("{table} {value}");
        let project = CliProject::new();
        for id in ["a", "b", "c"] {
            project.finish_thread(id);
        }
        let store = project.path().join(".ai/threads/registry.db");
        let planted = format!("UPDATE record_{table} SET value = {value} WHERE name = 'b'");
        let shell = rusqlite::Connection::open(store).unwrap();
        assert_eq!(shell.execute(&planted, []), Ok(1));
        drop(shell);

        let list = project.json(&["list"]);
        let ids: Vec<_> = list["threads"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| &row["thread_id"])
            .collect();
        assert_eq!(ids, ["c", "a"], "{what}");
        let bad = &list["unreadable"][0];
        assert_eq!(
            (&bad["thread_id"], &bad["code"]),
            (&json!("b"), &json!("corrupt")),
            "{what}"
        );
        let person = project.run(&["list"]);
        assert!(
            person.err.contains("b cannot be read: "),
            "{what}: {}",
            person.err
        );

        let repaired = project.json(&["repair"]);
        assert_eq!(repaired["repaired"], json!(["c", "a"]), "{what}");
        let failed = repaired["failed"][0].as_str().unwrap();
        assert!(failed.starts_with("b: "), "{what}: {failed}");
        assert_eq!(
            project.json(&["show", "b"])["error"]["code"],
            "corrupt",
            "{what}"
        );
        assert_eq!(project.json(&["recover"])["exit"], 0, "{what}");
        let found = project.json(&["doctor"])["missing"].to_string();
        assert!(found.contains("b cannot be read"), "{what}: {found}");
        project.finish_thread("d");
    }
}

/// An index entry's name is all that a list needs: its thread is shown and named.
#[test]
fn an_unreadable_entry_of_the_index_is_named() {
    let project = CliProject::new();
    project.finish_thread("a");
    let store = project.path().join(".ai/threads/registry.db");
    let planted = "UPDATE record_index SET value = x'01' WHERE name LIKE 'status%'";
    let shell = rusqlite::Connection::open(store).unwrap();
    assert_eq!(shell.execute(planted, []), Ok(1));
    drop(shell);
    let listed = project.json(&["list", "--status", "completed"]);
    assert_eq!(listed["threads"][0]["thread_id"], "a");
    let bad = &listed["unreadable"][0];
    assert_eq!(bad["thread_id"], "a");
    assert!(bad["message"].to_string().contains("is no text"), "{bad}");
    let found = project.json(&["doctor"])["missing"].to_string();
    assert!(
        found.contains("the record index status") && found.contains("is not text"),
        "{found}"
    );
}

#[test]
fn documents_are_written_anew() {
    let project = CliProject::new();
    project.finish_thread("a");
    project.finish_thread("b");
    let transcript = project.path().join(".ai/threads/a/transcript.md");
    let before = std::fs::read_to_string(&transcript).unwrap();
    std::fs::remove_file(&transcript).unwrap();
    project.write(".ai/threads/b/transcript.jsonl", "somebody edited this\n");
    let found = project.json(&["doctor"]);
    let missing = found["missing"].to_string();
    assert!(
        missing.contains("threadkeep repair a") && missing.contains("threadkeep repair b"),
        "{missing}"
    );
    assert_eq!(found["exit"], 0, "something can still be run");
    assert_eq!(
        project.json(&["repair", "A"]),
        json!({"repaired": ["a"], "failed": [], "exit": 0})
    );
    assert_eq!(std::fs::read_to_string(&transcript).unwrap(), before);
    let all = project.json(&["repair"]);
    assert_eq!(all["repaired"].as_array().unwrap().len(), 2);
    assert_eq!(project.json(&["doctor"])["missing"], json!([]));
    let person = project.run(&["repair", "b"]);
    assert_eq!((person.out.as_str(), person.code), ("b\n", Some(0)));
    assert!(
        person.err.contains("the documents of 1 thread were"),
        "{}",
        person.err
    );
}

/// The store is authoritative: a run whose documents cannot be written is done, and reports that.
#[test]
fn documents_that_cannot_be_written_are_a_warning() {
    let project = CliProject::new();
    project.write(".ai/threads/w", "a file where the directory would be");
    let ran = project.run(&[
        "run", "describe", "--input", "file=x", "--id", "w", "--json",
    ]);
    assert_eq!(ran.json()["status"], "completed");
    assert!(
        ran.err
            .starts_with("warning: the documents of w are not up to date"),
        "{}",
        ran.err
    );
    let repaired = project.json(&["repair", "w"]);
    assert_eq!(repaired["exit"], 1);
    assert!(
        repaired["failed"][0].as_str().unwrap().starts_with("w: "),
        "{repaired}"
    );
}

#[test]
fn every_command_answers_with_one_document() {
    let project = CliProject::new();
    project.finish_thread("one");
    for (arguments, field) in [
        (&["run", "describe", "--input", "file=x"][..], "thread_id"),
        (&["run", "nothing"], "error"),
        (&["resume", "one"], "error"),
        (&["list"], "threads"),
        (&["show", "one"], "thread"),
        (&["transcript", "one"], "text"),
        (&["raise", "one", "--turns", "9"], "error"),
        (&["cancel", "one"], "error"),
        (&["kill", "one"], "error"),
        (&["recover"], "recovered"),
        (&["repair"], "repaired"),
        (&["doctor"], "sections"),
        (&["demo"], "run"),
        (&["--version"], "version"),
        (&["--help"], "help"),
        (&[], "error"),
        (&["frobnicate"], "error"),
    ] {
        let ran = project.run(&[arguments, &["--json"]].concat());
        assert!(ran.json().get(field).is_some(), "{arguments:?}: {ran:#?}");
        assert_eq!(ran.err, "", "{arguments:?}");
    }
}
