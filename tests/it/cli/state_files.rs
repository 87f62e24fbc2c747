//! Checkpoints as a person meets them: `state.json` of runs, `prune`, `import`, the settings and
//! their page.

use super::fixture::CliProject;
use super::refusals::check;
use serde_json::{Value, json};
use threadkeep_units::persistence::PERSISTENCE_KEYS;

const PAGE: &str = include_str!("../../../docs/checkpoints.md");
const FILE: &str = ".ai/config/state_persistence.yaml";

/// The example of seed 002.
const SEED_EXAMPLE: &str = r#"{
  "thread_id": "planner-1739012630",
  "directive": "apps/task-manager/build_crud_app",
  "version": "1.0.0",
  "saved_at": "2026-02-12T15:30:00Z",
  "parent_thread_id": null,
  "inputs": {"app_name": "Task Manager", "features": ["crud", "auth"]},
  "turn_number": 3,
  "cost": {
    "turns": 3,
    "tokens": {"input_tokens": 4500, "output_tokens": 3200},
    "spend": 0.045,
    "duration_seconds": 45.5
  },
  "limits": {"spend": 1.0, "turns": 10, "tokens": 100000, "spawns": 5},
  "status": "suspended",
  "suspend_reason": "limit",
  "suspend_metadata": {"limit_code": "spend_exceeded", "current_value": 1.05, "current_max": 1.0},
  "hooks": [{"event": "limit", "directive": "my_app/custom_limit_handler", "inputs": {}}],
  "required_caps": ["rye.execute.tool.*"],
  "messages": [
    {"role": "system", "content": "You are building an app..."},
    {"role": "assistant", "content": "I'll help you build..."}
  ],
  "partial_cognition": {
    "text": "Let me analyze the requirements...",
    "is_partial": true,
    "completion_percentage": 35
  }
}"#;

/// A file as the original wrote it.
const ORIGINAL: &str = r#"{"thread_id":"demo/scan/scan-1790000001000","directive":"demo/scan",
"version":"1.0.0","saved_at":"2026-03-01T08:00:07Z",
"parent_thread_id":"demo/plan/plan-1790000000123",
"inputs":{"dir":"."},"turn_number":1,"cost":{"turns":1,"tokens":{"input_tokens":450,
"output_tokens":40},"spend":0.0016,"duration_seconds":2.1},"limits":{"spend":0.2,"turns":6,
"tokens":50000,"spawns":2},"status":"suspended","suspend_reason":"limit","suspend_metadata":
{"limit_code":"spend_exceeded","current_value":0.21,"current_max":0.2},"hooks":[],
"required_caps":[],"messages":[],"partial_cognition":null}"#;

fn items(found: &Value) -> Vec<Value> {
    let sections = found["sections"].as_array().expect("sections");
    let section = sections
        .iter()
        .find(|section| section["name"] == "state_persistence");
    section.expect("the section")["items"]
        .as_array()
        .expect("items")
        .clone()
}

#[test]
fn the_page_has_every_key_with_its_default() {
    for key in PERSISTENCE_KEYS {
        let row = format!("| `{}` | `{}` |", key.path, key.default.trim_matches('"'));
        assert!(PAGE.contains(&row), "{row}");
    }
    let rows = PAGE.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, PERSISTENCE_KEYS.len());
}

#[test]
fn doctor_shows_each_value_and_its_origin() {
    let project = CliProject::new();
    let check_items = |origin: &str| {
        let found = items(&project.json(&["doctor"]));
        assert_eq!(found.len(), PERSISTENCE_KEYS.len());
        for (item, key) in found.iter().zip(PERSISTENCE_KEYS) {
            assert_eq!(item["name"], key.path);
            assert_eq!(item["value"], key.default.trim_matches('"'), "{item}");
            assert_eq!(item["origin"], origin, "{item}");
        }
    };
    check_items("default");
    let example = PAGE.split("```yaml state_persistence.yaml\n").nth(1);
    let example = example.and_then(|text| text.split("```").next());
    project.write(FILE, example.expect("the example"));
    check_items(FILE);
    // As the original overrides its own.
    project.write(
        FILE,
        "extends: \"rye/agent/threads/config/state_schema.yaml\"\n\
         checkpoint:\n  triggers:\n    pre_turn:\n      enabled: false # Skip\n\
         \x20     description: \"not needed\"\n  performance:\n    incremental: true\n\
         retention:\n  max_checkpoints: 20\n  cleanup:\n    keep_last_n: 5\n",
    );
    let found = project.json(&["doctor"]);
    assert_eq!(found["exit"], 0);
    let value = |name: &str| {
        let found = items(&found).into_iter().find(|item| item["name"] == name);
        found.expect(name)["value"].clone()
    };
    assert_eq!(value("retention.max_checkpoints"), "20");
    assert_eq!(value("checkpoint.triggers.pre_turn.enabled"), "false");
}

/// Symptom: a setting that no code read was an empty promise, so it was refused. Now each key has
/// an effect, and what would have none is refused by name.
#[test]
fn settings_that_do_not_hold_are_refused_and_doctor_says_so() {
    let project = CliProject::new();
    let run: &[&str] = &["run", "describe", "--input", "file=x", "--id", "none"];
    for (text, words) in [
        ("a: 1\n", [FILE, "is no setting"]),
        ("a: [\n", [FILE, "invalid"]),
        (
            "checkpoint: {performance: {atomic: false}}\n",
            [FILE, "checkpoint.performance.atomic"],
        ),
        ("state: {required: []}\n", [FILE, "docs/state.schema.json"]),
    ] {
        project.write(FILE, text);
        check(&project, &[(run, 1, &words)]);
        let found = project.json(&["doctor"]);
        assert_eq!(
            (&found["works"], &found["exit"]),
            (&false.into(), &1.into())
        );
        let missing = found["missing"].to_string();
        assert!(missing.contains(FILE), "{missing}");
    }
    project.write(FILE, "# nothing\n");
    assert_eq!(project.json(&["doctor"])["exit"], 0, "it is empty");
    assert_eq!(project.threads(), 0, "nothing was created");
}

/// Runs the thread `t` for a turn, after which its cap stops it.
fn stop_after_one_turn(project: &CliProject) {
    let input = ["--input", "file=notes.txt", "--id", "t", "--turns", "1"];
    let ran = project.json(&[&["run", "describe"], &input[..]].concat());
    assert_eq!(ran["exit"], 3, "{ran}");
}

fn read(project: &CliProject, path: &str) -> Value {
    let text = std::fs::read_to_string(project.path().join(path)).expect(path);
    serde_json::from_str(&text).expect(path)
}

#[test]
fn a_run_leaves_its_checkpoint_and_a_cancel_writes_it() {
    let project = CliProject::new();
    stop_after_one_turn(&project);
    let state = read(&project, ".ai/threads/t/state.json");
    assert_eq!(
        (&state["status"], &state["suspend_metadata"]["limit_code"]),
        (&json!("suspended"), &json!("turns_exceeded"))
    );
    assert_eq!(state["inputs"], json!({"file": "notes.txt"}));
    let version = &state["history_version"];
    assert!(project.exists(&format!(".ai/threads/t/checkpoints.d/{version}.json")));
    let printed = project.run(&["transcript", "t", "--format", "state"]);
    let printed: Value = serde_json::from_str(&printed.out).unwrap();
    assert_eq!(printed["messages"], state["messages"]);
    project.json(&["cancel", "t"]);
    let archived = read(&project, ".ai/threads/t/archive.d/state.json");
    assert_eq!(archived["status"], "cancelled");
    assert!(!project.exists(".ai/threads/t/state.json"));
}

#[test]
fn prune_removes_exactly_what_the_rehearsal_named() {
    let project = CliProject::new();
    stop_after_one_turn(&project);
    let copies = project.path().join(".ai/threads/t/checkpoints.d");
    for version in 100..112 {
        std::fs::write(copies.join(format!("{version}.json")), "{}").unwrap();
    }
    let names = || -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(&copies)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    let before = names();
    let named = project.json(&["prune", "--dry-run"]);
    assert_eq!(
        (&named["dry_run"], &named["exit"]),
        (&true.into(), &0.into())
    );
    assert_eq!(names(), before);
    let person = project.run(&["prune", "--dry-run"]);
    assert!(
        person
            .out
            .contains("100.json: more copies than max_checkpoints"),
        "{}",
        person.out
    );
    assert!(person.err.contains("would be removed"), "{}", person.err);
    let removed = project.json(&["prune", "t"]);
    assert_eq!(removed["files"], named["files"]);
    let after = names();
    assert_eq!(after.len(), 10);
    let gone: Vec<Value> = before
        .iter()
        .filter(|name| !after.contains(name))
        .map(|name| json!(format!(".ai/threads/t/checkpoints.d/{name}")))
        .collect();
    let mut files: Vec<Value> = removed["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["file"].clone())
        .collect();
    files.sort_by_key(Value::to_string);
    assert_eq!(files, gone);
    assert_eq!(project.json(&["prune"])["files"], json!([]));
    check(&project, &[(&["prune", "nothing"], 1, &["nothing"])]);
}

#[test]
fn example_of_the_seed_and_files_of_the_original_are_imported() {
    let project = CliProject::new();
    project.write("seed.json", SEED_EXAMPLE);
    project.write("original.json", ORIGINAL);
    let import = |file: &str, id: &str| {
        let path = project.path().join(file);
        project.json(&["import", "--state", &path.display().to_string(), "--id", id])
    };
    let made = import("seed.json", "seed");
    assert_eq!(made["exit"], 0, "{made}");
    assert_eq!(made["imported_from"], "planner-1739012630");
    assert_eq!(
        (&made["status_then"], &made["messages"]),
        (&json!("suspended"), &json!(2))
    );
    let thread = &made["thread"];
    assert_eq!(
        (&thread["status"], &thread["directive"]),
        (&json!("idle"), &Value::Null)
    );
    assert_eq!(thread["limits"]["turns"], 10);
    assert_eq!(thread["limits"]["spend"], "1.00");
    assert_eq!(thread["cost"]["spend"], "0.00", "nothing is spent again");
    assert_eq!(project.json(&["audit"])["findings"], json!([]));
    let state = project.run(&["transcript", "seed", "--format", "state"]);
    let state: Value = serde_json::from_str(&state.out).unwrap();
    let texts: Vec<&str> = state["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["content"].as_str().unwrap())
        .collect();
    assert_eq!(texts.len(), 2);
    assert!(
        texts[0].ends_with("You are building an app..."),
        "{texts:?}"
    );
    assert_eq!(texts[1], "I'll help you build...");
    assert_eq!(
        state["partial_cognition"]["text"],
        "Let me analyze the requirements..."
    );
    let history = project
        .run(&["transcript", "seed", "--format", "jsonl"])
        .out;
    assert!(
        history.contains("imported_state") && history.contains("3200"),
        "{history}"
    );
    let more = project.json(&["resume", "seed", "Go on."]);
    assert_eq!(
        (&more["status"], &more["exit"]),
        (&json!("idle"), &json!(0)),
        "{more}"
    );
    let made = import("original.json", "original");
    assert_eq!(
        (&made["messages"], &made["exit"]),
        (&json!(0), &json!(0)),
        "{made}"
    );
}

#[test]
fn a_checkpoint_of_this_project_comes_back_with_its_directive() {
    let project = CliProject::new();
    stop_after_one_turn(&project);
    let version = read(&project, ".ai/threads/t/state.json")["history_version"].clone();
    let copy = format!(".ai/threads/t/checkpoints.d/{version}.json");
    for (path, id) in [(".ai/threads/t/state.json", "one"), (&copy, "two")] {
        let path = project.path().join(path);
        let made = project.json(&[
            "import",
            "--state",
            &path.display().to_string(),
            "--id",
            id,
            "--turns",
            "4",
        ]);
        assert_eq!(made["thread"]["directive"], "describe", "{made}");
        let more = project.json(&["resume", id, "And?"]);
        assert_eq!(more["exit"], 0, "{more}");
    }
    let before = read(&project, ".ai/threads/t/state.json");
    let after = project.run(&["transcript", "one", "--format", "state"]);
    let after: Value = serde_json::from_str(&after.out).unwrap();
    let kinds = |state: &Value| -> Vec<String> {
        let messages = state["messages"].as_array().unwrap().iter();
        messages
            .map(|message| message["role"].to_string())
            .collect()
    };
    let (before, after) = (kinds(&before), kinds(&after));
    assert_eq!(after[..before.len()], before[..]);
    assert_eq!(project.json(&["audit"])["findings"], json!([]));
}

#[test]
fn files_that_are_no_checkpoint_are_refused_by_name_and_make_nothing() {
    let project = CliProject::new();
    stop_after_one_turn(&project);
    let path = project.path().join(".ai/threads/t/state.json");
    let good = std::fs::read_to_string(&path).unwrap();
    let threads = project.threads();
    let file = project.path().join("bad.json");
    let refused = |text: &str| -> Value {
        std::fs::write(&file, text).unwrap();
        let told = project.json(&["import", "--state", &file.display().to_string()]);
        assert_eq!(told["exit"], 1, "{told}");
        told["error"].clone()
    };
    for (text, code, word) in [
        (good[..good.len() / 2].to_owned(), "torn-state", "torn"),
        (String::new(), "torn-state", "torn"),
        (
            good.replace("\"1.1.0\"", "\"2.0.0\""),
            "newer-state",
            "2.0.0",
        ),
        (
            good.replace("remember the milk", "forget the milk"),
            "edited-state",
            "messages_hash",
        ),
        (
            good.replace("\"role\":\"tool\"", "\"role\":\"robot\""),
            "invalid",
            "messages[",
        ),
        (
            good.replace("\"thread_id\"", "\"id\""),
            "invalid",
            "thread_id",
        ),
    ] {
        let error = refused(&text);
        assert_eq!(error["code"], code, "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
    let missing = project.path().join("missing.json");
    check(
        &project,
        &[(
            &["import", "--state", &missing.display().to_string()],
            1,
            &["missing.json"],
        )],
    );
    assert_eq!(project.threads(), threads, "nothing was created");
}

/// An edit that a person means: without the hash the file is taken as it is.
#[test]
fn an_edited_file_is_imported_without_its_hash() {
    let project = CliProject::new();
    stop_after_one_turn(&project);
    let mut state = read(&project, ".ai/threads/t/state.json");
    state.as_object_mut().unwrap().remove("messages_hash");
    let edited = state
        .to_string()
        .replace("remember the milk", "forget the milk");
    project.write("edited.json", &edited);
    let file = project.path().join("edited.json").display().to_string();
    let made = project.json(&["import", "--state", &file]);
    assert_eq!(made["exit"], 0, "{made}");
    let id = made["thread"]["thread_id"].as_str().unwrap();
    let text = project.run(&["transcript", id]).out;
    assert!(text.contains("forget the milk"), "{text}");
}
