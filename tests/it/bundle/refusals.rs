//! Refusals of the bundle, each with a line that says what to do.

use super::stock_command::{BundleProject, OFFLINE, ONLINE, creation, run_call};

const GRANTED: [&str; 2] = ["--dir", ".::/"];

/// Files below the project, arguments of the command, and words of the answer to `get`.
const STORES: [(&str, &[&str], &[&str]); 5] = [
    ("", &[], &["no-directory", "wasmtime run --dir .::/"]),
    (
        "",
        &["--dir", ".::/project"],
        &["no-directory", "--dir .::/"],
    ),
    (
        ".ai/threads/registry.db",
        &GRANTED,
        &["sqlite-store", "threadkeep copy --to files"],
    ),
    (
        ".ai/threads/current-store",
        &GRANTED,
        &["being-copied", "threadkeep copy --to files"],
    ),
    (
        ".ai/threads",
        &GRANTED,
        &["not-a-directory", "/.ai/threads"],
    ),
];

#[test]
fn stores_that_the_bundle_cannot_use() {
    for (file, arguments, words) in STORES {
        let Some(bundle) = BundleProject::new() else {
            return;
        };
        if !file.is_empty() {
            bundle.project.write(file, "");
        }
        let answer = bundle.invoke_with(OFFLINE, arguments, "get(\"one\")");
        for word in words {
            assert!(
                answer.out.contains(word),
                "{file} {arguments:?}: {answer:?}"
            );
        }
        assert!(!bundle.project.exists(".ai/threads/store.d"), "{file}");
    }
}

#[cfg(unix)]
#[test]
fn a_link_does_not_move_the_store() {
    let Some(bundle) = BundleProject::new() else {
        return;
    };
    let project = bundle.project.path();
    std::fs::create_dir(project.join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("../elsewhere", project.join(".ai/threads")).unwrap();
    let answer = bundle.invoke("get(\"one\")");
    assert!(answer.out.contains("not-a-directory"), "{answer:?}");
    assert!(!bundle.project.exists("elsewhere/store.d"));
}

/// A bundle, arguments of the command, and words that a person reads of a model call.
const MODELS: [(&str, &[&str], &[&str]); 6] = [
    (
        OFFLINE,
        &["--env", "THREADKEEP_PROVIDER=openai"],
        &["THREADKEEP_PROVIDER", "scripted:FILE"],
    ),
    (
        OFFLINE,
        &["--env", "THREADKEEP_PROVIDER=scripted:none.json"],
        &["there is no file none.json"],
    ),
    (
        OFFLINE,
        &["--env", "THREADKEEP_PROVIDER=scripted:../answers.json"],
        &["THREADKEEP_PROVIDER"],
    ),
    (
        OFFLINE,
        &[
            "--env",
            "THREADKEEP_PROVIDER=scripted:.ai/directives/hello.md",
        ],
        &["not JSON"],
    ),
    (
        OFFLINE,
        &["--env", "OPENAI_API_KEY=sk-0123456789"],
        &["wasmtime run -S http --dir .::/"],
    ),
    (
        ONLINE,
        &["-S", "http"],
        &["wasmtime run -S http --env OPENAI_API_KEY --dir .::/"],
    ),
];

#[test]
fn models_that_the_bundle_cannot_call() {
    let Some(bundle) = BundleProject::new() else {
        return;
    };
    for (n, (file, arguments, words)) in MODELS.into_iter().enumerate() {
        let id = format!("asked-{n}");
        assert!(bundle.invoke(&creation(&id, None)).out.starts_with("ok("));
        let arguments = [&GRANTED[..], arguments].concat();
        let answer = bundle.invoke_with(file, &arguments, &run_call(&id, "first"));
        assert!(answer.out.contains("suspended"), "{answer:?}");
        let shown = bundle.project.run(&["show", &id]).out;
        for word in words {
            assert!(answer.err.contains(word), "{arguments:?}: {answer:?}");
            assert!(shown.contains(word), "{arguments:?}: {shown}");
        }
        assert!(!answer.err.contains("sk-0123456789") && !shown.contains("sk-0123456789"));
        assert_eq!(answer.err.trim().lines().count(), 1, "{answer:?}");
    }
    bundle.assert_sound();
}

/// The text of `models.yaml`, a bundle, options of the command, and words that a person reads.
const SET_UPS: [(&str, &str, &[&str], &str); 7] = [
    ("", ONLINE, &["-S", "http"], "--env OPENAI_API_KEY"),
    (
        "",
        OFFLINE,
        &["--env", "OPENAI_API_KEY=sk-0123456789"],
        "wasmtime run -S http --dir .::/",
    ),
    (
        "",
        OFFLINE,
        &["--env", "THREADKEEP_PROVIDER=scripted:none.json"],
        "there is no file none.json",
    ),
    (
        "",
        OFFLINE,
        &["--env", "THREADKEEP_PROVIDER=foo:bar"],
        "scripted:FILE",
    ),
    (
        "",
        OFFLINE,
        &["--env", "THREADKEEP_PROVIDER=scripted:"],
        "scripted:FILE",
    ),
    (BAD_ADDRESS, ONLINE, &["-S", "http"], "base_url"),
    (NO_SCRIPT, OFFLINE, &[], "none.json"),
];

const BAD_ADDRESS: &str = "providers: {p: {wire: openai, base_url: \"ftp://127.0.0.1/v1\"}}\n\
    models: {m: {provider: p, window: 32000, output: 1000, prices: {input: \"1\", \
    output: \"2\"}}}\n\
    tiers: {default: m}\n";

const NO_SCRIPT: &str = "providers: {p: {wire: scripted, file: none.json}}\n\
    models: {m: {provider: p, window: 32000, output: 1000, prices: {input: \"1\", \
    output: \"2\"}}}\n\
    tiers: {default: m}\n";

/// Symptom: a command whose model could not be called made a thread, which it suspended. Cause: the
/// provider was made by the first call. Fix: it is made before anything is created, from a
/// rehearsal over a store in memory.
#[test]
fn a_broken_set_up_makes_no_thread() {
    let Some(bundle) = BundleProject::new() else {
        return;
    };
    for (models, file, options, words) in SET_UPS {
        if !models.is_empty() {
            bundle.project.write(".ai/config/models.yaml", models);
        }
        let granted = [&GRANTED[..], options].concat();
        let ended = bundle.run_granted(file, &granted, &["run", "hello"]);
        assert_eq!(ended.code, Some(1), "{options:?}: {ended:#?}");
        assert!(ended.err.contains(words), "{options:?}: {ended:#?}");
        assert_eq!(ended.err.matches(words).count(), 1, "{ended:#?}");
        assert!(ended.err.starts_with("error: "), "{ended:#?}");
        assert!(!bundle.project.exists(".ai/threads"), "{options:?}");
    }
}

/// Symptom: `list` found no threads, and ended with 0. Only what is not there is missing.
#[test]
fn a_place_of_threads_that_is_no_directory_is_not_empty() {
    for is_link in [false, true] {
        let Some(bundle) = BundleProject::new() else {
            return;
        };
        let threads = bundle.project.path().join(".ai/threads");
        match is_link {
            #[cfg(unix)]
            true => std::os::unix::fs::symlink("nowhere", threads).unwrap(),
            _ => std::fs::write(threads, "").unwrap(),
        }
        for command in [&["list"][..], &["show", "one"], &["run", "hello"]] {
            let ended = bundle.run_granted(OFFLINE, &GRANTED, command);
            assert_eq!(ended.code, Some(1), "{command:?}: {ended:#?}");
            let words = "/.ai/threads is a link or a file";
            assert!(ended.err.contains(words), "{command:?}: {ended:#?}");
        }
    }
}
