//! Refused commands: the exit code, the message, and that nothing was written.

use super::fixture::{CliProject, DIRECTIVE, MODELS};
use serde_json::json;

/// Arguments; the exit code; a piece of the code, message or hint.
pub type RefusalCase<'a> = (&'a [&'a str], i64, &'a [&'a str]);

pub fn check(project: &CliProject, cases: &[RefusalCase<'_>]) {
    for (arguments, exit, words) in cases {
        let document = project.json(arguments);
        assert_eq!(document["exit"], *exit, "{arguments:?}: {document}");
        let error = document["error"].to_string();
        for word in *words {
            assert!(error.contains(word), "{arguments:?}: {word:?} in {error}");
        }
        let person = project.run(arguments);
        assert_eq!(person.code, Some(*exit as i32), "{arguments:?}");
        assert_eq!(person.out, "", "{arguments:?}: an error is no answer");
        assert!(
            person.err.starts_with("error: "),
            "{arguments:?}: {}",
            person.err
        );
    }
}

#[test]
fn directives_and_inputs_that_are_not_there() {
    let project = CliProject::new();
    let long = "x".repeat(300);
    let cases: [RefusalCase<'_>; 11] = [
        (
            &["run", "descrbe"],
            1,
            &["not-found", "descrbe", "did you mean describe?"],
        ),
        (
            &["run", "zzzzzzzz"],
            1,
            &["not-found", "there are: describe"],
        ),
        (&["run", "../describe"], 1, &["invalid", "../describe"]),
        (&["run", "/etc/passwd"], 1, &["invalid"]),
        (&["run", ""], 1, &["invalid", "empty"]),
        (&["run", &long], 1, &["invalid", "200 bytes"]),
        (&["run", "a\u{1b}[2J"], 1, &["invalid"]),
        (
            &["run", "describe"],
            1,
            &["inputs.file", "missing", "--input file=VALUE"],
        ),
        (
            &["run", "describe", "--input", "fle=x"],
            1,
            &["inputs.fle", "did you mean file?"],
        ),
        // `--input` gave the value: to give it once more would not help.
        (
            &["run", "describe", "--input", "zzzzzz=x"],
            1,
            &["inputs.zzzzzz", "\"hint\":null"],
        ),
        (
            &["run", "describe", "--input", "file=x", "--model", "tinny"],
            1,
            &["model", "did you mean tiny?"],
        ),
    ];
    check(&project, &cases);
    assert_eq!(project.threads(), 0, "nothing was created");
}

#[test]
fn contradictory_command_lines_are_refused() {
    let project = CliProject::new();
    // Arguments that follow `run describe`.
    let cases: [RefusalCase<'_>; 10] = [
        (&["--input", "file"], 2, &["usage", "NAME=VALUE"]),
        (&["--inputs", "[]"], 2, &["usage", "object"]),
        (&["--inputs", "{"], 2, &["usage", "JSON"]),
        (
            &["--input", "file=x", "--input", "file=y"],
            2,
            &["usage", "twice"],
        ),
        (
            &["--input", "file=x", "--message", " "],
            2,
            &["usage", "empty"],
        ),
        (&["--spend", "1e3"], 2, &["usage", "plain decimal"]),
        (&["--turns", "-1"], 2, &["usage", "-1"]),
        (
            &["--store", "postgres"],
            2,
            &["usage", "postgres", "memory"],
        ),
        (
            &["--provider", "scripted:none.json"],
            1,
            &["none.json", "missing"],
        ),
        (
            &["--provider", "scripted:notes.txt"],
            1,
            &["bad-script", "notes.txt"],
        ),
    ];
    for (rest, exit, words) in cases {
        let arguments = [&["run", "describe"], rest].concat();
        check(&project, &[(&arguments, exit, words)]);
    }
    check(
        &project,
        &[
            (&["rnu"], 2, &["usage", "rnu"]),
            (&["raise", "x"], 2, &["usage", "--turns"]),
        ],
    );
    assert_eq!(project.threads(), 0, "nothing was created");
}

#[test]
fn invalid_ids_are_refused() {
    let project = CliProject::new();
    let long = "x".repeat(300);
    for id in [
        "",
        "..",
        "../up",
        "a/../b",
        "/a",
        "a/",
        "a//b",
        "a.b",
        "con",
        "a b",
        "a\n",
        "a\u{1b}[2J",
        "é",
        &long,
    ] {
        let run: &[&str] = &["run", "describe", "--input", "file=x", "--id", id];
        check(
            &project,
            &[
                (run, 1, &["invalid"]),
                (&["show", id], 1, &["invalid"]),
                (&["resume", id], 1, &["invalid"]),
            ],
        );
    }
    assert_eq!(project.threads(), 0);
    project.finish_thread("Twin");
    check(
        &project,
        &[
            (
                &["run", "describe", "--input", "file=x", "--id", "twin"],
                4,
                &["exists", "case"],
            ),
            (
                &["run", "describe", "--input", "file=x", "--id", "Twin"],
                4,
                &["exists"],
            ),
        ],
    );
    assert_eq!(project.threads(), 1);
    assert_eq!(
        project.json(&["show", "tWiN"])["thread"]["thread_id"],
        "Twin"
    );
}

#[test]
fn threads_that_are_not_there() {
    let project = CliProject::new();
    project.finish_thread("holiday");
    let near: &[&str] = &["not-found", "holliday", "did you mean holiday?"];
    let far: &[&str] = &["not-found", "threadkeep list"];
    let cases: [RefusalCase<'_>; 8] = [
        (&["show", "holliday"], 1, near),
        (&["transcript", "holliday"], 1, near),
        (&["resume", "holliday"], 1, near),
        (&["cancel", "holliday"], 1, near),
        (&["kill", "holliday"], 1, near),
        (&["raise", "holliday", "--turns", "9"], 1, near),
        (&["repair", "holliday"], 1, near),
        (&["show", "something-else"], 1, far),
    ];
    check(&project, &cases);
}

#[test]
fn ended_threads_take_nothing_more() {
    let project = CliProject::new();
    project.finish_thread("done");
    let cases: [RefusalCase<'_>; 4] = [
        (
            &["resume", "done"],
            1,
            &["invalid", "done has nothing left"],
        ),
        (&["cancel", "done"], 1, &["refused"]),
        (&["kill", "done"], 1, &["refused"]),
        (&["raise", "done", "--spend", "0.90"], 1, &["refused"]),
    ];
    check(&project, &cases);
}

#[test]
fn files_that_are_not_what_they_should_be() {
    let project = CliProject::new();
    project.write(
        ".ai/directives/open.md",
        "---\nlimits: {turns: 5}\nNever closed.",
    );
    project.write(
        ".ai/directives/tabs.md",
        "---\nlimits:\n\tturns: 5\n---\nbody\n",
    );
    project.write(
        ".ai/directives/key.md",
        &DIRECTIVE.replace("limits:", "limts:"),
    );
    project.write(
        ".ai/directives/cap.md",
        &DIRECTIVE.replace("turns: 5", "turn: 5"),
    );
    project.write(
        ".ai/directives/input.md",
        &DIRECTIVE.replace("${inputs.file}", "${inputs.fil}"),
    );
    project.write(".ai/directives/model.md", "---\nmodel: huge\n---\nbody\n");
    let cases: [RefusalCase<'_>; 6] = [
        (&["run", "open"], 1, &["invalid", ".ai/directives/open.md:"]),
        (&["run", "tabs"], 1, &["invalid", ".ai/directives/tabs.md:"]),
        (
            &["run", "key", "--input", "file=x"],
            1,
            &["invalid", "limts", "did you mean limits?"],
        ),
        (
            &["run", "cap", "--input", "file=x"],
            1,
            &["invalid", "turn", "did you mean turns?"],
        ),
        (
            &["run", "input", "--input", "file=x"],
            1,
            &["invalid", "fil"],
        ),
        (&["run", "model"], 1, &["not-found", "huge"]),
    ];
    check(&project, &cases);
    project.write(".ai/config/models.yaml", &MODELS.replace("prices", "price"));
    check(
        &project,
        &[(
            &["run", "describe", "--input", "file=x"],
            1,
            &[".ai/config/models.yaml:", "price"],
        )],
    );
    assert_eq!(project.threads(), 0);
}

#[test]
fn directories_that_are_no_project() {
    let project = CliProject::empty();
    let cases: [RefusalCase<'_>; 4] = [
        (&["list"], 1, &["no-project", ".ai"]),
        (&["run", "describe"], 1, &["no-project", "threadkeep demo"]),
        (
            &["list", "--project", "nowhere"],
            1,
            &["nowhere", "missing", "--project DIR"],
        ),
        (&["recover"], 1, &["no-project"]),
    ];
    check(&project, &cases);
    assert!(!project.exists(".ai"), "nothing was made");
}

/// A provider that cannot be made is reported before a thread exists.
#[test]
fn unusable_providers_are_refused() {
    const WIRE: &str = "wire: scripted, file: script.json";
    let project = CliProject::new();
    let run: &[&str] = &["run", "describe", "--input", "file=x", "--id", "none"];
    for (wire, words) in [
        (
            "wire: anthropic, key: \"${ABSENT_API_KEY}\"",
            &[
                "provider_setup",
                "ABSENT_API_KEY is not set",
                "threadkeep doctor",
            ][..],
        ),
        (
            "wire: openai, key: \"${ABSENT_API_KEY}\"",
            &["provider_setup", "ABSENT_API_KEY is not set"],
        ),
        (
            "wire: openai, base_url: \"http://localhost:1\", key: \"${ABSENT_API_KEY}\"",
            &["ABSENT_API_KEY is not set", "leave key out"],
        ),
        (
            "wire: openai, key: \"${MOCK_KEY}\"",
            &["MOCK_KEY", "must end in _API_KEY"],
        ),
        ("wire: scripted, file: gone.json", &[".ai/gone.json"]),
    ] {
        project.write(".ai/config/models.yaml", &MODELS.replace(WIRE, wire));
        check(&project, &[(run, 1, words)]);
        let found = project.json(&["doctor"]);
        let runs = json!({"directives": false, "chats": false, "own_loops": true});
        assert_eq!(found["runs"], runs, "{wire}: {found}");
        let missing = found["missing"].to_string();
        assert!(!missing.contains("[]"), "{wire}: {missing}");
    }
    let providers = "providers: {other: {wire: scripted, file: script.json}}";
    let unknown = MODELS.replace(
        "providers: {local: {wire: scripted, file: script.json}}",
        providers,
    );
    project.write(".ai/config/models.yaml", &unknown);
    check(&project, &[(run, 1, &["no provider"])]);
    assert_eq!(project.threads(), 0, "nothing was created");
}

#[test]
fn a_thread_whose_provider_is_gone_is_not_resumed() {
    let project = CliProject::new();
    let suspended = project.json(&[
        "run", "describe", "--input", "file=x", "--id", "t", "--turns", "1",
    ]);
    assert_eq!(suspended["exit"], 3);
    project.json(&["raise", "t", "--turns", "4"]);
    let before = project.json(&["show", "t"]);
    let keyed = "wire: openai, key: \"${ABSENT_API_KEY}\"";
    let models = MODELS.replace("wire: scripted, file: script.json", keyed);
    project.write(".ai/config/models.yaml", &models);
    check(
        &project,
        &[(&["resume", "t"], 1, &["ABSENT_API_KEY is not set"])],
    );
    assert_eq!(project.json(&["show", "t"]), before, "nothing was written");
}

#[test]
fn raises_that_lift_nothing() {
    let project = CliProject::new();
    let suspended = project.json(&[
        "run", "describe", "--input", "file=x", "--id", "t", "--turns", "1",
    ]);
    assert_eq!(suspended["exit"], 3);
    let before = project.json(&["show", "t"]);
    let cases: [RefusalCase<'_>; 4] = [
        (
            &["raise", "t", "--spend", "0.25"],
            2,
            &["--spend 0.25 USD lifts nothing", "0.50 USD is in force"],
        ),
        (&["raise", "t", "--turns", "0"], 2, &["1 is in force"]),
        (
            &["raise", "t", "--turns", "1"],
            2,
            &["--turns is too low", "more than 1"],
        ),
        (
            &["raise", "t", "--turns", "3", "--tokens", "5"],
            2,
            &["--tokens 5 lifts nothing"],
        ),
    ];
    check(&project, &cases);
    assert_eq!(project.json(&["show", "t"]), before, "nothing was written");
    let beside = project.run(&["raise", "t", "--spend", "0.60"]);
    assert_eq!(
        (beside.code, beside.err.as_str()),
        (Some(0), ""),
        "{beside:#?}"
    );
    let raised = project.run(&["raise", "t", "--turns", "3"]);
    assert!(raised.err.contains("resume t"), "{raised:#?}");
}

#[test]
fn a_demo_of_another_project() {
    let project = CliProject::empty();
    let cases: [RefusalCase<'_>; 3] = [
        (&["demo", "--project", "."], 2, &["usage", "--project"]),
        (&["demo", "--store", "memory"], 2, &["usage", "--store"]),
        (
            &["demo", "--provider", "scripted:x.json"],
            2,
            &["usage", "--provider"],
        ),
    ];
    check(&project, &cases);
}

/// Errors name places by their path in the project.
#[cfg(unix)]
#[test]
fn places_are_named_as_they_stand_in_the_project() {
    let project = CliProject::new();
    project.write(".ai/threads", "a file where the directory would be");
    let place: &[&str] = &[".ai/threads is not a directory"];
    check(
        &project,
        &[
            (&["list"], 1, place),
            (&["run", "describe", "--input", "file=x"], 1, place),
        ],
    );
    let found = project.json(&["doctor"]);
    assert_eq!(
        (&found["works"], &found["exit"]),
        (&false.into(), &1.into())
    );
    assert!(found["missing"].to_string().contains(place[0]), "{found}");

    let project = CliProject::new();
    project.finish_thread("first");
    std::fs::remove_dir_all(project.path().join(".ai/threads/locks.d")).unwrap();
    project.write(".ai/threads/locks.d", "a file");
    let place: &[&str] = &[".ai/threads/locks.d is not a directory"];
    check(&project, &[(&["title", "first", "A title"], 1, place)]);
    assert_eq!(project.threads(), 1, "what only reads takes no lock");
}

/// A terminal that shows an error must not obey the text in it.
#[test]
fn errors_are_safe_to_show() {
    let project = CliProject::new();
    for arguments in [
        &["show", "a\u{1b}[2J"][..],
        &["run", "a\u{9b}31m"],
        &["\u{1b}]0;x\u{7}"],
        &["list", "--\u{1b}[2J"],
    ] {
        let ran = project.run(arguments);
        assert!(
            !ran.err.contains('\u{1b}') && !ran.err.contains('\u{9b}'),
            "{arguments:?}: {:?}",
            ran.err
        );
    }
}
