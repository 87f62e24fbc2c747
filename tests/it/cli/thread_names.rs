//! Names of threads on the command line: ids, their beginnings, and `@last`.

use super::fixture::CliProject;
use serde_json::json;

/// A project with threads whose ids begin alike.
fn project() -> CliProject {
    let project = CliProject::new();
    for id in ["alpha", "alpha-1", "beta/one", "Gamma"] {
        project.json(&["create", "--id", id]);
    }
    project
}

#[test]
fn the_beginning_of_an_id_names_its_thread() {
    let project = project();
    for (name, id) in [
        ("alpha", "alpha"),
        ("ALPHA", "alpha"),
        ("alpha-", "alpha-1"),
        ("b", "beta/one"),
        ("beta/", "beta/one"),
        ("gam", "Gamma"),
    ] {
        assert_eq!(
            project.json(&["show", name])["thread"]["thread_id"],
            id,
            "{name}"
        );
    }
    for command in [
        ["chain", "g"],
        ["state", "g"],
        ["checkpoints", "g"],
        ["tree", "g"],
        ["transcript", "g"],
        ["repair", "g"],
        ["fork", "g"],
        ["cancel", "g"],
    ] {
        let said = project.json(&command);
        // A thread without a history has nothing to fork: it is found all the same.
        let code = &said["error"]["code"];
        assert!(code.is_null() || *code == "invalid", "{command:?}: {said}");
    }
    assert_eq!(project.status("Gamma"), "cancelled");
}

#[test]
fn an_ambiguous_name_changes_nothing_and_names_the_candidates() {
    let project = project();
    for command in [
        &["kill", "al"][..],
        &["cancel", "al"],
        &["title", "al", "New"],
        &["message", "al", "Hello."],
        &["raise", "al", "--turns", "99"],
        &["resume", "al"],
        &["chat", "al"],
        &["open", "al"],
        &["append", "al"],
        &["close", "al", "idle"],
        &["fork", "al"],
        &["budget", "hold", "al", "k", "--amount", "0.1"],
        &["budget", "settle", "al", "1", "--amount", "0.1"],
        &["budget", "release", "al", "1"],
        &["approve", "al"],
        &["deny", "al"],
        &["answer", "al", "text"],
        &["repair", "al"],
        &["prune", "al"],
        &["show", "al"],
        &["list", "--parent", "al"],
    ] {
        let said = project.json(command);
        assert_eq!(said["error"]["code"], "ambiguous", "{command:?}: {said}");
        assert_eq!(said["exit"], 1, "{command:?}");
        let hint = said["error"]["hint"].as_str().unwrap();
        assert!(hint.ends_with("alpha, alpha-1"), "{hint}");
    }
    for id in ["alpha", "alpha-1"] {
        let thread = &project.json(&["show", id])["thread"];
        assert_eq!(
            (&thread["status"], &thread["version"], &thread["title"]),
            (&json!("created"), &json!(0), &json!(null)),
            "{thread}"
        );
    }
}

#[test]
fn a_name_that_begins_no_id_is_told_as_before() {
    let project = project();
    for (name, code) in [("delta", "not-found"), ("a b", "invalid"), ("", "invalid")] {
        let said = project.json(&["show", name]);
        assert_eq!(said["error"]["code"], code, "{name:?}: {said}");
    }
    let near = project.json(&["show", "alpah"]);
    assert!(
        near["error"]["hint"].to_string().contains("alpha"),
        "{near}"
    );
}

#[test]
fn the_last_thread_is_the_newest_that_no_other_spawned() {
    let project = CliProject::new();
    let none = project.json(&["show", "@last"]);
    assert_eq!(none["error"]["code"], "not-found", "{none}");
    project.add_family(5);
    let run = project.json(&["run", "parent", "--id", "family"]);
    assert_eq!(run["status"], "completed", "{run}");
    assert_eq!(
        project.json(&["show", "@last"])["thread"]["thread_id"],
        "family"
    );
    project.json(&["create", "--id", "talk"]);
    assert_eq!(
        project.json(&["title", "@last", "Talk"])["thread"]["thread_id"],
        "talk"
    );
}
