//! `doctor`: it shows settings, their sources and anything missing; it changes nothing and reveals
//! no secrets.

use super::fixture::{CliProject, DIRECTIVE, MODELS};
use serde_json::{Value, json};
use threadkeep_tests::binary;
use threadkeep_tests::llmock::MockWire;

fn item<'a>(document: &'a Value, section: &str, name: &str) -> &'a Value {
    let sections = document["sections"].as_array().expect("sections");
    let section = sections
        .iter()
        .find(|found| found["name"] == section)
        .expect("the section");
    let items = section["items"].as_array().expect("items");
    items
        .iter()
        .find(|found| found["name"] == name)
        .unwrap_or(&Value::Null)
}

/// Symptom: `doctor` reported a working provider as broken. Cause: it has a wire check of its own.
/// Fix: a test of each wire.
#[test]
fn providers_of_every_wire() {
    let project = CliProject::new();
    for wire in MockWire::ALL {
        let keyed = format!("wire: {}, key: abc", wire.as_str());
        let models = MODELS.replace("wire: scripted, file: script.json", &keyed);
        assert!(models.contains(&keyed));
        project.write(".ai/config/models.yaml", &models);
        let found = project.json(&["doctor"]);
        assert_eq!(
            (&found["works"], &found["missing"]),
            (&json!(true), &json!([])),
            "{found}"
        );
        let provider = &item(&found, "models", "provider local")["value"];
        let provider = provider.as_str().expect("it is shown");
        assert!(provider.starts_with(wire.as_str()), "{provider}");
        assert!(
            provider.contains("key set") && !provider.contains("abc"),
            "{provider}"
        );
    }
}

#[test]
fn a_project_that_works() {
    let project = CliProject::new();
    project.finish_thread("one");
    let found = project.json(&["doctor", "--project", "."]);
    assert_eq!(
        (&found["works"], &found["missing"], &found["exit"]),
        (&json!(true), &json!([]), &json!(0))
    );
    for (section, name, value, origin) in [
        ("project", "directory", ".", json!("--project")),
        ("project", "directives", "1 of 1 can be used", json!(null)),
        (
            "models",
            "tier default",
            "tiny",
            json!(".ai/config/models.yaml"),
        ),
        ("store", "kind", "sqlite", json!("the default")),
        ("store", "threads", "1 completed", json!(null)),
        ("locks", "processes at work", "0", json!(null)),
        ("documents", "up to date", "1 of the newest 1", json!(null)),
    ] {
        let item = item(&found, section, name);
        assert_eq!(
            (&item["value"], &item["origin"]),
            (&json!(value), &origin),
            "{section} {name}"
        );
    }
    assert!(
        item(&found, "engine", "component")["value"]
            .as_str()
            .unwrap()
            .contains("sha256")
    );
    assert_eq!(
        item(&found, "engine", "native code")["origin"],
        "THREADKEEP_CACHE"
    );
    assert!(
        item(&found, "limits", "caps of a thread")["value"]
            .as_str()
            .unwrap()
            .contains("25 turns")
    );
    assert!(item(&found, "tools", "read_file")["value"].is_string());
    let person = project.run(&["doctor"]);
    assert!(
        person
            .out
            .ends_with("nothing is missing\na directive can be run\n"),
        "{}",
        person.out
    );
}

#[test]
fn the_version_of_wasmtime_is_the_one_in_the_lock_file() {
    let lock =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock")).unwrap();
    let (_, rest) = lock
        .split_once("name = \"wasmtime\"\nversion = \"")
        .expect("wasmtime is locked");
    let (version, _) = rest.split_once('"').unwrap();
    let found = CliProject::new().json(&["doctor"]);
    assert_eq!(item(&found, "engine", "wasmtime")["value"], version);
}

#[test]
fn an_empty_directory_is_told_what_it_lacks_and_stays_empty() {
    let project = CliProject::empty();
    let found = project.json(&["doctor"]);
    assert_eq!(
        (&found["works"], &found["exit"]),
        (&json!(false), &json!(1))
    );
    let missing = found["missing"].to_string();
    assert!(
        missing.contains("no directory .ai") && missing.contains("threadkeep demo"),
        "{missing}"
    );
    assert_eq!(
        std::fs::read_dir(project.path()).unwrap().count(),
        0,
        "it makes nothing"
    );
    let nowhere = project.json(&["doctor", "--project", "nowhere"]);
    assert_eq!(nowhere["exit"], 1);
    assert!(nowhere["missing"].to_string().contains("nowhere"));
}

#[test]
fn wrong_directives_are_named_with_their_line() {
    let project = CliProject::new();
    project.write(
        ".ai/directives/open.md",
        "---\nlimits: {turns: 5}\nNever closed.",
    );
    project.write(
        ".ai/directives/key.md",
        &DIRECTIVE.replace("limits:", "limts:"),
    );
    let found = project.json(&["doctor"]);
    assert_eq!(
        item(&found, "project", "directives")["value"],
        "1 of 3 can be used"
    );
    let open = item(&found, "project", "directive open");
    assert_eq!(open["state"], "bad");
    assert!(
        open["value"]
            .as_str()
            .unwrap()
            .contains(".ai/directives/open.md:"),
        "{open}"
    );
    assert!(
        item(&found, "project", "directive key")["value"]
            .as_str()
            .unwrap()
            .contains("did you mean limits?")
    );
    assert_eq!(found["exit"], 0, "one can be run");
}

/// Variables are named, values never.
#[test]
fn keys_are_never_shown() {
    const SECRET: &str = "sk-do-not-show-me";
    let project = CliProject::new();
    std::fs::remove_file(project.path().join(".ai/config/models.yaml")).unwrap();
    let without = project.json(&["doctor"]);
    // Symptom: exit 1 where nothing was wrong. An external loop needs no provider. Kind: optional
    // settings.
    let runs = json!({"directives": false, "chats": false, "own_loops": true});
    assert_eq!((&without["runs"], &without["exit"]), (&runs, &json!(0)));
    let optional = |missing: &Value| missing["optional"] == true;
    assert!(
        without["missing"].as_array().unwrap().iter().all(optional),
        "{without}"
    );
    let shown = item(&without, "models", "provider openai")["value"].to_string();
    assert!(shown.contains("https://api.openai.com/v1"), "{shown}");
    assert_eq!(
        item(&without, "models", "table")["origin"],
        "the built-in table"
    );
    assert!(
        without["missing"]
            .to_string()
            .contains("set OPENAI_API_KEY"),
        "{}",
        without["missing"]
    );
    for json in [true, false] {
        let arguments: &[&str] = match json {
            true => &["doctor", "--json"],
            false => &["doctor"],
        };
        let doctor = |address: &str| {
            let mut command = project.command(arguments);
            command
                .env("OPENAI_API_KEY", SECRET)
                .env("OPENAI_BASE_URL", address);
            let ran = binary::run_to_end(command);
            let shown = ran.out.contains(SECRET) || ran.out.contains("hidden");
            assert!(!shown, "{}", ran.out);
            ran
        };
        let refused = doctor("https://user:hidden@example.org/v1");
        assert_eq!(refused.code, Some(0), "own loops work: {refused:#?}");
        let ran = doctor("https://example.org/hidden/v1");
        assert_eq!(ran.code, Some(0), "{ran:#?}");
        assert!(ran.out.contains("key set by OPENAI_API_KEY"), "{}", ran.out);
        assert!(
            ran.out.contains("address by OPENAI_BASE_URL"),
            "{}",
            ran.out
        );
    }
}

/// Symptom: `doctor` ended with 1 in a project of chats. Cause: it required a directive. Fix: it
/// reports by kind which runs are possible. Kinds: no directive, and a directive whose provider
/// does not work beside a chat's that does.
#[test]
fn a_project_of_chats_works() {
    let project = CliProject::new();
    std::fs::remove_dir_all(project.path().join(".ai/directives")).unwrap();
    let found = project.json(&["doctor"]);
    let runs = json!({"directives": false, "chats": true, "own_loops": true});
    assert_eq!(
        (&found["runs"], &found["exit"]),
        (&runs, &json!(0)),
        "{found}"
    );
    assert_eq!(found["missing"][0]["optional"], true, "{found}");
    let shown = project.run(&["doctor"]).out;
    assert!(
        shown.contains("   note: the project has no directive"),
        "{shown}"
    );
    assert!(
        shown.ends_with("a chat can be run, and no directive yet\n"),
        "{shown}"
    );
}

#[test]
fn a_cache_that_others_may_use_is_refused_and_costs_only_time() {
    use std::os::unix::fs::PermissionsExt;
    let project = CliProject::new();
    let cache = project.path().join("cache");
    std::fs::create_dir(&cache).unwrap();
    std::fs::set_permissions(&cache, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = project.command(&["doctor", "--json"]);
    command.env("THREADKEEP_CACHE", &cache);
    let found = binary::run_to_end(command).json();
    let native = item(&found, "engine", "native code");
    assert_eq!(
        (&native["state"], &native["origin"]),
        (&json!("warning"), &json!("THREADKEEP_CACHE"))
    );
    assert!(
        native["value"].as_str().unwrap().contains("0700"),
        "{native}"
    );
    assert_eq!(found["exit"], 0);
    assert_eq!(std::fs::read_dir(&cache).unwrap().count(), 0);
}

#[test]
fn a_broken_store_is_found() {
    let project = CliProject::new();
    project.write(
        ".ai/threads/registry.db",
        "this is no database, and long enough to look like one",
    );
    let found = project.json(&["doctor"]);
    assert_eq!(found["exit"], 1);
    assert_eq!(found["works"], false);
    let listed = project.json(&["list"]);
    assert_eq!(
        (&listed["error"]["code"], &listed["exit"]),
        (&json!("store"), &json!(1))
    );
}

/// Symptom: `doctor` offered `repair` for a damaged store, though `repair` reads that store. Cause:
/// nothing checked the file. Fix: SQLite's own check, and no offer for a damaged file.
#[test]
fn damage_in_the_store_is_named_and_nothing_is_offered() {
    let project = CliProject::new();
    for id in ["one", "two", "three"] {
        project.finish_thread(id);
    }
    let store = project.path().join(".ai/threads/registry.db");
    let mut bytes = std::fs::read(&store).unwrap();
    let pages = bytes.len() / 4096;
    assert!(pages > 3, "everything is in the file: {pages} pages");
    // The header and the schema stay as they are.
    bytes[2 * 4096..].fill(0x5a);
    std::fs::write(&store, bytes).unwrap();
    let found = project.json(&["doctor"]);
    assert_eq!(
        (&found["works"], &found["exit"]),
        (&json!(false), &json!(1))
    );
    let missing = found["missing"].to_string();
    assert!(
        missing.contains("the store cannot be used") && missing.contains("keep a copy"),
        "{missing}"
    );
    assert!(!missing.contains("threadkeep repair"), "{missing}");
}
