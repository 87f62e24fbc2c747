//! What is refused: the exit code, what is said, and that nothing was written.

use super::fixture::{DIRECTIVE, MODELS, Project};

/// Arguments; the exit code; a piece of the code, message or hint.
type Case<'a> = (&'a [&'a str], i64, &'a [&'a str]);

fn check(project: &Project, cases: &[Case<'_>]) {
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
    let project = Project::new();
    let long = "x".repeat(300);
    let cases: [Case<'_>; 10] = [
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
fn command_lines_that_cannot_be_meant() {
    let project = Project::new();
    // What comes after `run describe`.
    let cases: [Case<'_>; 10] = [
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
fn ids_that_cannot_be() {
    let project = Project::new();
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
    project.finished("Twin");
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
    let project = Project::new();
    project.finished("holiday");
    let near: &[&str] = &["not-found", "holliday", "did you mean holiday?"];
    let far: &[&str] = &["not-found", "threadkeep list"];
    let cases: [Case<'_>; 8] = [
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
    let project = Project::new();
    project.finished("done");
    let cases: [Case<'_>; 4] = [
        (&["resume", "done"], 1, &["refused", "done is completed"]),
        (&["cancel", "done"], 1, &["refused"]),
        (&["kill", "done"], 1, &["refused"]),
        (&["raise", "done", "--spend", "0.90"], 1, &["refused"]),
    ];
    check(&project, &cases);
}

#[test]
fn files_that_are_not_what_they_should_be() {
    let project = Project::new();
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
    let cases: [Case<'_>; 6] = [
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
    let project = Project::empty();
    let cases: [Case<'_>; 4] = [
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

/// A terminal that shows an error is not to obey what is in it.
#[test]
fn errors_are_safe_to_show() {
    let project = Project::new();
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
