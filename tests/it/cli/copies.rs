//! `threadkeep copy`: a project's threads are the same in both kinds of stores, whatever stops the
//! command.

use super::fixture::CliProject;
use serde_json::{Value, json};
use std::time::Instant;

/// All that the store says of threads: the list, and each thread with its events.
fn read_threads(project: &CliProject) -> Vec<Value> {
    let list = project.json(&["list"]);
    let ids: Vec<String> = list["threads"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|row| row["thread_id"].as_str().expect("an id").to_owned())
        .collect();
    let shown = ids
        .iter()
        .map(|id| project.json(&["show", id, "--events", "100"]));
    let shown = shown.collect::<Vec<_>>();
    [vec![list], shown].concat()
}

fn add_threads(project: &CliProject) {
    project.finish_thread("done");
    project.json(&["create", "--id", "chat"]);
    project.json(&["message", "chat", "Hello."]);
    project.add_family(1);
    let parent = project.json(&["run", "parent", "--id", "parent"]);
    assert_eq!(parent["exit"], 0, "its child meets a cap: {parent}");
}

#[test]
fn threads_are_the_same_after_a_move_and_go_on() {
    let project = CliProject::new();
    add_threads(&project);
    let before = read_threads(&project);
    for (to, from, place) in [
        ("files", "sqlite", "store.d"),
        ("sqlite", "files", "registry.db"),
    ] {
        let moved = project.run(&["copy", "--to", to]);
        assert_eq!(moved.code, Some(0), "{}{}", moved.out, moved.err);
        let words = format!("threads moved from {from} to {to}");
        assert!(moved.out.contains(&words), "{}", moved.out);
        assert!(project.exists(&format!(".ai/threads/{place}")));
        assert_eq!(read_threads(&project), before);
        let audited = project.json(&["audit"]);
        assert_eq!(
            (&audited["findings"], &audited["exit"]),
            (&json!([]), &json!(0))
        );
        let doctor = project.run(&["doctor"]);
        assert!(doctor.out.contains(to), "{}", doctor.out);
    }
    assert!(project.exists(".ai/threads/replaced.d/1/registry.db"));
    assert!(project.exists(".ai/threads/replaced.d/2/store.d"));
    project.json(&["copy", "--to", "files"]);
    let titled = project.json(&["title", "done", "In plain files"]);
    assert_eq!(titled["exit"], 0, "{titled}");
    let run = ["run", "parent", "--id", "another"];
    assert_eq!(project.json(&run)["exit"], 0);
    assert_eq!(project.json(&["audit"])["exit"], 0);
}

#[track_caller]
fn check_refusal(project: &CliProject, arguments: &[&str], (exit, code): (i64, &str), words: &str) {
    let answer = project.json(arguments);
    assert_eq!(
        (&answer["exit"], &answer["error"]["code"]),
        (&json!(exit), &json!(code)),
        "{answer}"
    );
    let told = answer["error"].to_string();
    assert!(told.contains(words), "{told}");
}

#[test]
fn what_cannot_be_moved_is_named() {
    let project = CliProject::new();
    let to_files = ["copy", "--to", "files"];
    check_refusal(&project, &to_files, (1, "no-store"), "nothing to copy");
    project.json(&["create", "--id", "chat"]);
    let to_sqlite = ["copy", "--to", "sqlite"];
    check_refusal(
        &project,
        &to_sqlite,
        (1, "same-store"),
        "registry.db already",
    );
    let named = ["copy", "--to", "files", "--store", "sqlite"];
    check_refusal(&project, &named, (2, "usage"), "no --store");
    let memory = ["copy", "--to", "memory"];
    assert_eq!(project.run(&memory).code, Some(2));
    let running = project.start_unending("busy");
    check_refusal(&project, &to_files, (4, "busy"), "has the project open");
    // A command that begins while another process copies.
    let lock = std::fs::read_dir(project.path().join(".ai/threads/locks.d")).unwrap();
    let lock = lock.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let lock = lock.last().expect("a lock");
    let choice = format!("sqlite\n{}\n", lock.trim_end_matches(".lock"));
    project.write(".ai/threads/current-store", &choice);
    check_refusal(&project, &["create"], (4, "busy"), "is being copied");
    check_refusal(&project, &to_files, (4, "busy"), "is being copied");
    running.kill();
    running.wait_for_end();
    let created = project.json(&["create"]);
    assert_eq!(created["exit"], 0, "{created}");
    // Another store without a word which counts.
    std::fs::remove_file(project.path().join(".ai/threads/current-store")).unwrap();
    project.write(".ai/threads/store.d/notes.txt", "mine");
    check_refusal(&project, &to_files, (1, "two-stores"), "two stores");
    assert!(project.exists(".ai/threads/store.d/notes.txt"));
}

/// Symptom: a copy put a store of plain files away under a bundle that waited for its model, whose
/// reply was lost. Cause: the copy looks for lock files, and a bundle has none. Fix: a lease of an
/// unknown holder stops it. A loop in a shell has no lock file either.
#[test]
fn a_store_in_which_a_thread_is_held_is_not_moved() {
    let project = CliProject::new();
    let created = project.json(&["--store", "files", "create", "--id", "talk"]);
    assert_eq!(created["exit"], 0, "{created}");
    let opened = project.json(&["open", "talk"]);
    let holder = opened["holder"].as_str().expect("a holder").to_owned();
    let to_sqlite = ["copy", "--to", "sqlite"];
    check_refusal(&project, &to_sqlite, (4, "busy"), &holder);
    assert!(!project.exists(".ai/threads/registry.db"));
    project.json(&["recover", "--dead", &holder]);
    let moved = project.json(&to_sqlite);
    assert_eq!(moved["exit"], 0, "{moved}");
}

#[test]
fn a_damaged_store_counts_as_before() {
    let project = CliProject::new();
    project.finish_thread("done");
    let store = rusqlite::Connection::open(project.path().join(".ai/threads/registry.db"));
    let store = store.unwrap();
    let broken = "UPDATE record_head SET value = '{' WHERE name = 'done'";
    assert_eq!(store.execute(broken, []), Ok(1));
    drop(store);
    let to_files = ["copy", "--to", "files"];
    check_refusal(&project, &to_files, (1, "audit"), "counts as before");
    assert!(!project.exists(".ai/threads/store.d"));
    let list = project.json(&["list"]);
    assert_eq!(
        list["unreadable"][0]["thread_id"], "done",
        "the old store is read: {list}"
    );
}

/// Kills a command after a while, again and again, and lets it end at last.
#[cfg(unix)]
#[test]
fn a_killed_copy_leaves_one_whole_store() {
    let project = CliProject::new();
    add_threads(&project);
    let before = read_threads(&project);
    // Each wait is a part of what one whole copy takes here.
    let began = Instant::now();
    assert_eq!(project.json(&["copy", "--to", "files"])["exit"], 0);
    let whole = began.elapsed();
    let (mut kills, mut to) = (0, "sqlite");
    for part in 0..24_u32 {
        let copying = project.start(&["copy", "--to", to]);
        std::thread::sleep(whole * part / 20);
        copying.kill();
        let ended = copying.wait_for_end();
        match ended.code {
            None => kills += 1,
            Some(0) => {}
            // An earlier one was killed after its store counted.
            code => assert!(ended.err.contains("already"), "{code:?}: {}", ended.err),
        }
        assert_eq!(
            read_threads(&project),
            before,
            "killed after {part} of 20 parts of {whole:?}"
        );
        if ended.code.is_some() {
            to = if to == "files" { "sqlite" } else { "files" };
        }
    }
    assert!(kills > 5, "{kills} kills");
    let to_files = project.json(&["copy", "--to", "files"]);
    if to_files["exit"] != 0 {
        assert_eq!(to_files["error"]["code"], "same-store", "{to_files}");
        assert_eq!(project.json(&["copy", "--to", "sqlite"])["exit"], 0);
    }
    assert_eq!(read_threads(&project), before);
    assert_eq!(project.json(&["audit"])["exit"], 0);
}

/// Symptom: a project could not get rid of what an interrupted copy had left, but by removing files
/// by hand, and bundles refused it. Cause: a copy to the store that counts was refused before it
/// looked. Fix: it removes the leftovers, and says so.
#[test]
fn a_copy_to_the_store_that_counts_removes_what_is_left() {
    for (current, other) in [
        ("sqlite", "store.d/000000000000.commit"),
        ("files", "registry.db"),
    ] {
        let project = CliProject::new();
        add_threads(&project);
        if current == "files" {
            assert_eq!(project.json(&["copy", "--to", "files"])["exit"], 0);
        }
        let before = read_threads(&project);
        let copy = ["copy", "--to", current];
        check_refusal(&project, &copy, (1, "same-store"), "already");
        for second in ["copy.d/half", other] {
            project.write(
                ".ai/threads/current-store",
                &format!("{current}\nnative-gone\n"),
            );
            project.write(&format!(".ai/threads/{second}"), "half of a copy");
            let doctor = project.run(&["doctor"]).out;
            let told = format!("`threadkeep copy --to {current}` removes it");
            assert!(doctor.contains(&told), "{doctor}");
            check_refusal(&project, &copy, (1, "same-store"), "was removed");
            for gone in ["current-store", "copy.d", other] {
                let left = project.path().join(".ai/threads").join(gone);
                assert!(!left.exists(), "{gone} of {current}");
            }
            assert_eq!(read_threads(&project), before);
        }
        check_refusal(&project, &copy, (1, "same-store"), "already");
    }
}

/// `doctor` and the next command that writes say what an interrupted copy has left; `doctor` also
/// names the stores that were replaced.
#[test]
fn leftovers_of_copies_are_named() {
    let project = CliProject::new();
    project.json(&["create", "--id", "chat"]);
    let says = |words: &str| {
        let doctor = project.run(&["doctor"]);
        let written = project.run(&["message", "chat", "Hello."]);
        [doctor.out, written.err].map(|text| text.contains(words))
    };
    let interrupted = "a `threadkeep copy` was interrupted";
    assert_eq!(says(interrupted), [false, false]);
    assert_eq!(project.json(&["copy", "--to", "files"])["exit"], 0);
    assert_eq!(project.json(&["copy", "--to", "sqlite"])["exit"], 0);
    assert_eq!(says("2 stores of"), [true, false]);
    project.write(".ai/threads/current-store", "sqlite\nnative-gone\n");
    project.write(".ai/threads/copy.d/registry.db", "half of a copy");
    assert_eq!(says(interrupted), [true, true]);
    assert_eq!(
        says(".ai/threads/copy.d with 14 bytes is not in use"),
        [true, true]
    );
    assert_eq!(project.json(&["copy", "--to", "files"])["exit"], 0);
    assert_eq!(says(interrupted), [false, false]);
}
