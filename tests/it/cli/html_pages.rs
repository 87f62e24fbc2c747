//! `export html`: one page that stands alone, whatever a thread holds.

use super::fixture::CliProject;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};
use std::process::{Command, Stdio};

/// Where a hostile text would become an element of the page, a script of it, or a style.
const HOSTILE: &str = "</pre></details><script>document.title='owned'</script>\
                       <img src=x onerror=\"document.title='owned'\">\
                       <style>main{display:none}</style>\u{202e}&lt;b&gt;";

/// A project with a thread that has hostile text in its title, agent, task, message, calls,
/// results, notes and state.
fn hostile_project() -> CliProject {
    let project = CliProject::new();
    project.write("notes.txt", HOSTILE);
    let call = serde_json::json!({"name": HOSTILE, "arguments": {"path": HOSTILE}});
    let read = serde_json::json!({"name": "read_file", "arguments": {"path": "notes.txt"}});
    let script = serde_json::json!([
        {"text": HOSTILE, "calls": [read, call]},
        {"text": HOSTILE},
    ]);
    project.write(".ai/script.json", &script.to_string());
    let run = [
        "run",
        "describe",
        "--id",
        "t",
        "--input",
        &format!("file={HOSTILE}"),
        "--title",
        "A page",
        "--agent",
        HOSTILE,
        "--task",
        HOSTILE,
        "--message",
        HOSTILE,
    ];
    let ran = project.json(&run);
    assert!(ran["error"].is_null(), "{ran}");
    project
}

#[test]
fn the_style_is_the_one_that_the_policy_names() {
    let project = CliProject::new();
    project.finish_thread("t");
    let page = project.run(&["export", "html", "t"]).out;
    let between = |start: &str, end: &str| {
        let rest = page.split_once(start).expect("it is there").1;
        rest.split_once(end).expect("it ends").0.to_owned()
    };
    let hash = BASE64_STANDARD.encode(Sha256::digest(between("<style>", "</style>")));
    assert_eq!(between("style-src 'sha256-", "'"), hash);
    assert!(
        between("content=\"", "\"").starts_with("default-src 'none';"),
        "{page}"
    );
}

#[test]
fn nothing_that_a_thread_holds_becomes_markup() {
    let project = hostile_project();
    let page = project.run(&["export", "html", "t"]);
    assert_eq!(page.code, Some(0), "{}", page.err);
    let page = page.out;
    for word in [
        "<script",
        "<img",
        "<a ",
        "onerror=\"",
        "<b>&lt;",
        "\u{202e}",
    ] {
        assert!(!page.contains(word), "{word}");
    }
    assert_eq!(page.matches("<style").count(), 1);
    assert!(page.matches("&lt;script&gt;").count() >= 6, "{page}");
    let document = project.json(&["export", "html", "t"]);
    assert_eq!(document["text"], page);
    assert_eq!(document["format"], "html");
}

/// The browser itself says that no script ran, and what a person sees. It is skipped by name where
/// there is no Chromium.
#[test]
fn a_browser_shows_the_page_and_runs_nothing() {
    let browsers = [
        "chromium-headless-shell",
        "chromium",
        "chromium-browser",
        "google-chrome",
    ];
    let runs = |name: &&&str| {
        let tried = Command::new(name)
            .arg("--version")
            .stdout(Stdio::null())
            .status();
        tried.is_ok_and(|status| status.success())
    };
    let Some(browser) = browsers.iter().find(runs) else {
        println!("skipped: Chromium is not installed");
        return;
    };
    let project = hostile_project();
    let page = project.run(&["export", "html", "t"]).out;
    project.write("page.html", &page);
    let address = format!("file://{}", project.path().join("page.html").display());
    let browse = |arguments: &[&str]| {
        let profile = format!(
            "--user-data-dir={}",
            project.path().join("profile").display()
        );
        let output = Command::new(browser)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                &profile,
            ])
            .args(arguments)
            .arg(&address)
            .output()
            .expect("the browser starts");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let shown = browse(&["--dump-dom"]);
    assert!(shown.contains("<title>A page</title>"), "{shown}");
    assert!(
        !shown.contains("<script") && !shown.contains("<img"),
        "{shown}"
    );
    let picture = project.path().join("page.png");
    let screenshot = format!("--screenshot={}", picture.display());
    browse(&["--window-size=390,844", &screenshot]);
    let bytes = std::fs::read(&picture).expect("a picture");
    assert!(
        bytes.starts_with(b"\x89PNG") && bytes.len() > 10_000,
        "{} bytes",
        bytes.len()
    );
}
