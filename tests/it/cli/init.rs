//! `init`, and how a project is found.

use super::fixture::CliProject;
use serde_json::json;
use std::process::Command;
use threadkeep_tests::binary;

fn read(project: &CliProject, path: &str) -> String {
    std::fs::read_to_string(project.path().join(path)).expect(path)
}

/// The command, in a directory below the project.
fn command_below(project: &CliProject, folder: &str, arguments: &[&str]) -> Command {
    let below = project.path().join(folder);
    std::fs::create_dir_all(&below).unwrap();
    let mut command = binary::command(&below);
    command.args(arguments);
    command
}

#[test]
fn init_writes_what_is_missing_and_keeps_what_is_there() {
    let project = CliProject::empty();
    let mut first = project.command(&["init", "--json"]);
    first.env("ANTHROPIC_API_KEY", "sk-secret");
    let answer = binary::run_to_end(first).json();
    let written = |path: &str| json!({"path": path, "state": "written"});
    let paths = [
        ".ai/directives/describe.md",
        ".ai/config/models.yaml",
        ".gitignore",
    ];
    assert_eq!(answer["files"], json!(paths.map(written)), "{answer}");
    assert_eq!(
        (&answer["model"], &answer["keys"]),
        (&json!("claude-haiku-4-5"), &json!(["ANTHROPIC_API_KEY"]))
    );
    let table = read(&project, ".ai/config/models.yaml");
    for words in [
        "# ANTHROPIC_API_KEY is set.",
        "# OPENAI_API_KEY is not set",
        "tiers: {default: claude-haiku-4-5",
    ] {
        assert!(table.contains(words), "{words}: {table}");
    }
    assert!(!table.contains("sk-secret"));
    assert_eq!(read(&project, ".gitignore"), ".ai/threads/\n");
    project.write(".ai/directives/describe.md", "mine");
    project.write(".gitignore", "target");
    let again = project.json(&["init"]);
    let states: Vec<&str> = again["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["state"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["kept", "kept", "extended"]);
    assert_eq!(read(&project, ".ai/directives/describe.md"), "mine");
    assert_eq!(read(&project, ".gitignore"), "target\n.ai/threads/\n");
    assert_eq!(project.json(&["init"])["files"][2]["state"], "kept");
    assert_eq!(read(&project, ".gitignore"), "target\n.ai/threads/\n");
}

/// What `init` writes can be used as it is: `doctor` finds nothing wrong but keys.
#[test]
fn a_new_project_is_sound() {
    let project = CliProject::empty();
    let person = project.run(&["init"]);
    assert!(
        person
            .err
            .contains("next: set OPENAI_API_KEY or ANTHROPIC_API_KEY"),
        "{}",
        person.err
    );
    let mut doctor = project.command(&["doctor", "--json"]);
    doctor.env("OPENAI_API_KEY", "k");
    let found = binary::run_to_end(doctor).json();
    assert_eq!(
        (&found["works"], &found["exit"]),
        (&json!(true), &json!(0)),
        "{found}"
    );
    let missing: Vec<&str> = found["missing"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["what"].as_str().unwrap())
        .collect();
    assert_eq!(missing.len(), 1, "{missing:?}");
    assert!(
        missing[0].contains("ANTHROPIC_API_KEY is not set"),
        "{missing:?}"
    );
}

#[test]
fn a_project_is_found_from_below() {
    let project = CliProject::new();
    project.finish_thread("done");
    let below =
        |arguments: &[&str]| binary::run_to_end(command_below(&project, "src/deep", arguments));
    let listed = below(&["list", "--json"]).json();
    assert_eq!(listed["threads"][0]["thread_id"], "done");
    let told = below(&["list", "--verbose"]).err;
    assert!(
        told.contains("(found above the working directory)"),
        "{told}"
    );
    // The named one counts, and a project of its own.
    let named = below(&["list", "--project", ".", "--json"]).json();
    assert_eq!(named["error"]["code"], "no-project");
    let begun = below(&["init"]);
    assert!(begun.err.contains("is a project as well"), "{}", begun.err);
    assert_eq!(below(&["list", "--json"]).json()["threads"], json!([]));
}

/// Another user could put a `.ai` into a directory above, such as `/tmp`, and hand out directives
/// to all who work below, with their keys.
#[cfg(unix)]
#[test]
fn a_project_of_another_user_is_not_taken_silently() {
    let project = CliProject::new();
    let other = 65_534;
    // Only root can give a directory away.
    if std::os::unix::fs::chown(project.path().join(".ai"), Some(other), None).is_err() {
        println!("skipped: this user cannot give files away");
        return;
    }
    for folder in [".", "src"] {
        for arguments in [&["list", "--json"][..], &["run", "describe", "--json"]] {
            let refused = binary::run_to_end(command_below(&project, folder, arguments)).json();
            assert_eq!(refused["error"]["code"], "foreign-project", "{refused}");
            let hint = refused["error"]["hint"].as_str().unwrap();
            assert!(hint.contains("--project "), "{hint}");
        }
    }
    let mut sudo = project.command(&["list", "--json"]);
    sudo.env("SUDO_UID", other.to_string());
    assert_eq!(binary::run_to_end(sudo).json()["exit"], 0);
    assert_eq!(project.json(&["list", "--project", "."])["exit"], 0);
}

/// In an empty directory a chat needs a key and nothing else; without one it leaves nothing.
#[test]
fn a_chat_begins_a_project() {
    let project = CliProject::empty();
    let refused = binary::run_with_input(project.command(&["chat", "--json"]), "Hello.").json();
    assert_eq!(refused["error"]["code"], "provider_setup", "{refused}");
    assert!(!project.exists(".ai"));
    project.write("answers.json", r#"[{"text": "Hello to you."}]"#);
    let arguments = [
        "chat",
        "--id",
        "talk",
        "--provider",
        "scripted:answers.json",
    ];
    let ran = binary::run_with_input(project.command(&arguments), "Hello.");
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(0), "Hello to you.\n"),
        "{ran:#?}"
    );
    assert_eq!(project.status("talk"), "idle");
}

#[test]
fn versions_are_told_in_detail() {
    let project = CliProject::empty();
    let short = project.json(&["--version"]);
    assert_eq!(short.as_object().unwrap().len(), 2, "{short}");
    let long = project.json(&["--version", "--verbose"]);
    for name in ["component", "contract", "wasmtime", "sqlite", "build"] {
        assert!(long[name].is_string(), "{name}: {long}");
    }
    let person = project.run(&["--version", "--verbose"]).out;
    assert!(
        person.contains("contract   threadkeep:threads@0."),
        "{person}"
    );
}
