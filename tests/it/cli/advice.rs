//! Advice to a person: about charges by estimate, runs that were cancelled, records that `repair`
//! cannot mend, and replies that are too large.

use super::fixture::CliProject;
use serde_json::{Value, json};
use threadkeep_tests::binary::ProcessOutput;

fn store(project: &CliProject) -> rusqlite::Connection {
    rusqlite::Connection::open(project.path().join(".ai/threads/registry.db")).unwrap()
}

/// Leaves a run behind whose process was killed during a model call.
fn leave_dead_run(project: &CliProject, id: &str) {
    let running = project.start_unending(id);
    running.kill();
    drop(running.wait_for_end());
}

/// Checks that a person is told of one charge by estimate, and how often.
#[track_caller]
fn tells_charge(ran: &ProcessOutput, whose: &str) {
    let said = format!("no usage was reported for one call{whose}: 0.");
    assert_eq!(ran.err.matches(&said).count(), 1, "{}", ran.err);
    let estimate = "is charged by estimate; at most it was 0.";
    assert!(ran.err.contains(estimate), "{}", ran.err);
}

/// Symptom: after a kill of the process of a run, neither `resume` nor `recover` told what was
/// charged by estimate, and the row of the event in `show` was blank. Cause: the charge stands in
/// the entry that closes the run, which is before the next run begins. Kind: `recover`, `resume` of
/// the thread itself, `resume` of another one.
#[test]
fn what_was_charged_for_a_dead_run_is_told() {
    let project = CliProject::new();
    leave_dead_run(&project, "lost");
    tells_charge(&project.run(&["recover"]), " of lost");
    let shown = project.run(&["show", "lost"]).out;
    let row = shown.lines().find(|line| line.contains("charged"));
    assert!(
        row.is_some_and(|row| row.contains("USD is charged by estimate")),
        "{shown}"
    );
    leave_dead_run(&project, "next");
    tells_charge(&project.run(&["resume", "next"]), "");
    for id in ["one", "other"] {
        leave_dead_run(&project, id);
    }
    let answer = project.json(&["resume", "one"]);
    let charged = answer["charged"].as_array().unwrap();
    let mut named: Vec<&str> = charged
        .iter()
        .map(|row| row["thread_id"].as_str().unwrap())
        .collect();
    named.sort_unstable();
    assert_eq!(named, ["one", "other"], "{answer:#}");
    for row in charged {
        let amount = |name: &str| row[name].as_str().unwrap().parse::<f64>().unwrap();
        assert_eq!(row["calls"], 1);
        assert!(
            0.0 < amount("spend") && amount("spend") <= amount("most"),
            "{row}"
        );
    }
}

/// Symptom: `recover` advised to resume a thread that it had just cancelled. Kind: `recover`, and
/// `resume` of another thread.
#[test]
fn nobody_is_told_to_resume_what_a_recovery_has_ended() {
    let project = CliProject::new();
    for id in ["lost", "beside"] {
        leave_dead_run(&project, id);
        assert_eq!(project.json(&["cancel", id])["status"], "running");
    }
    let recovered = project.run(&["recover"]);
    assert_eq!(project.status("lost"), "cancelled");
    assert!(
        recovered.err.contains("they have ended"),
        "{}",
        recovered.err
    );
    assert!(!recovered.err.contains("resume"), "{}", recovered.err);
    leave_dead_run(&project, "third");
    project.json(&["cancel", "third"]);
    leave_dead_run(&project, "fourth");
    let ran = project.run(&["resume", "fourth"]);
    assert!(
        ran.err.contains("died: the thread is cancelled now"),
        "{}",
        ran.err
    );
    assert!(!ran.err.contains("resume third"), "{}", ran.err);
    leave_dead_run(&project, "last");
    project.json(&["cancel", "last"]);
    let recovered = project.json(&["recover"]);
    assert_eq!(
        (&recovered["recovered"], &recovered["ended"]),
        (&json!(["last"]), &json!(["last"]))
    );
}

/// SQL that swaps the histories of `a` and `b`.
const SWAP_HISTORIES: &str = "
    UPDATE partition SET name = 'c' WHERE log = 'history' AND name = 'a';
    UPDATE partition SET name = 'a' WHERE log = 'history' AND name = 'b';
    UPDATE partition SET name = 'b' WHERE log = 'history' AND name = 'c';";
/// SQL that swaps their heads.
const SWAP_HEADS: &str = "
    UPDATE record_head SET name = 'c' WHERE name = 'a';
    UPDATE record_head SET name = 'a' WHERE name = 'b';
    UPDATE record_head SET name = 'b' WHERE name = 'c';";
/// SQL that makes an entry of `a` as large as 100 MB.
const HUGE_ENTRY: &str = "
    UPDATE entry SET value = printf('%.*c', 100000000, 'x') WHERE id >> 32 =
        (SELECT id FROM partition WHERE log = 'history' AND name = 'a') AND id & 0xffffffff = 2";

/// Symptom: `doctor` advised `repair` where histories of two threads were swapped, and where an
/// entry of 100 MB stood. Cause: it looked at documents alone, and took whatever differed for an
/// edit. Fix: it audits the records of documents that differ. Kind: `doctor`, and what `repair`
/// itself says.
#[test]
fn nobody_is_told_to_repair_documents_of_unsound_records() {
    let both = format!("{SWAP_HISTORIES}{SWAP_HEADS}");
    for (damage, named) in [
        (SWAP_HISTORIES, &["a", "b"][..]),
        (&both, &["a", "b"]),
        (HUGE_ENTRY, &["a"]),
    ] {
        let project = CliProject::new();
        for id in ["a", "b", "sound"] {
            project.finish_thread(id);
        }
        store(&project).execute_batch(damage).unwrap();
        project.write(
            ".ai/threads/sound/transcript.jsonl",
            "somebody edited this\n",
        );
        let found = project.json(&["doctor"]);
        let mends = |id: &str| {
            let rows = found["missing"].as_array().into_iter().flatten();
            let of = |row: &&Value| {
                row["what"]
                    .as_str()
                    .unwrap()
                    .starts_with(&format!("{id}: "))
            };
            let mends: Vec<&str> = rows
                .filter(of)
                .map(|row| row["mend"].as_str().unwrap())
                .collect();
            mends.join("; ")
        };
        for id in named {
            let mend = mends(id);
            assert!(
                mend.contains("keep a copy of .ai/threads"),
                "{damage}: {found:#}"
            );
            assert!(mend.contains("threadkeep audit"), "{damage}: {found:#}");
            assert!(!mend.contains("threadkeep repair"), "{damage}: {found:#}");
        }
        assert_eq!(mends("sound"), "threadkeep repair sound", "{damage}");
    }
    let project = CliProject::new();
    project.finish_thread("a");
    store(&project).execute_batch(HUGE_ENTRY).unwrap();
    let repaired = project.json(&["repair"]);
    assert_eq!(repaired["exit"], 1);
    let failed = repaired["failed"][0].as_str().unwrap();
    assert!(failed.contains("`repair` mends no records"), "{failed}");
}

/// Symptom: the error of a store that ran out of memory had no hint. Kind: failures that have only
/// a code.
#[test]
fn an_error_of_memory_has_a_hint() {
    let project = CliProject::new();
    project.finish_thread("a");
    let huge = "INSERT INTO record_index (name, version, value) \
                VALUES ('recency' || char(1, 1) || 'huge', 1, zeroblob(100000000))";
    store(&project).execute_batch(huge).unwrap();
    let listed = project.json(&["list"]);
    assert_eq!(listed["error"]["code"], "out-of-memory", "{listed:#}");
    let hint = listed["error"]["hint"].as_str().unwrap_or_default();
    assert!(hint.contains("threadkeep doctor"), "{listed:#}");
}

/// Symptom: the end of a run whose reply was too large offered a resume, which pays for the same
/// reply again.
#[test]
fn a_reply_that_is_too_large_is_not_offered_to_be_paid_again() {
    let project = CliProject::new();
    let reply = json!([{"text": "x".repeat(600 << 10)}]);
    project.write(".ai/script.json", &reply.to_string());
    let ran = project.run(&["run", "describe", "--input", "file=x", "--id", "large"]);
    assert_eq!(ran.code, Some(3), "{}", ran.err);
    assert!(ran.err.contains("(reply_too_large)"), "{}", ran.err);
    let next = ran.err.lines().find(|line| line.starts_with("next"));
    let next = next.unwrap_or_default();
    assert!(next.contains("ask for less: "), "{next}");
    assert!(!next.ends_with("threadkeep resume large"), "{next}");
    let raised = project.run(&["raise", "large", "--turns", "9"]);
    assert_eq!(raised.code, Some(0), "{}", raised.err);
    assert!(!raised.err.contains("resume"), "{}", raised.err);
}
