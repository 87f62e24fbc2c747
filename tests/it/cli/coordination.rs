//! Settings of coordination as a person meets them: `doctor`, refusals, and their page.

use super::fixture::{CliProject, MODELS};
use super::refusals::check;
use serde_json::{Value, json};
use threadkeep_units::coordination::{COORDINATION_KEYS, SUMMARY_DIRECTIVE};

const PAGE: &str = include_str!("../../../docs/coordination.md");
const FILE: &str = ".ai/config/coordination.yaml";

fn items(found: &Value) -> Vec<Value> {
    let sections = found["sections"].as_array().expect("sections");
    let section = sections
        .iter()
        .find(|section| section["name"] == "coordination");
    section.expect("the section")["items"]
        .as_array()
        .expect("items")
        .clone()
}

fn item(found: &Value, name: &str) -> Value {
    let mut items = items(found).into_iter();
    items.find(|item| item["name"] == name).unwrap_or_default()
}

#[test]
fn the_page_has_every_key_with_its_default() {
    for key in COORDINATION_KEYS {
        let name = key.path.trim_start_matches("coordination.");
        let default = key.default.trim_matches('"');
        let row = format!("| `{name}` | `{default}` |");
        assert!(PAGE.contains(&row), "{row}");
    }
    let rows = PAGE.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, COORDINATION_KEYS.len());
}

#[test]
fn doctor_shows_each_value_and_its_origin() {
    let project = CliProject::new();
    let models = MODELS.replace("tiers: {", "tiers: {fast: tiny, ");
    project.write(".ai/config/models.yaml", &models);
    let found = project.json(&["doctor"]);
    let named: Vec<Value> = items(&found)
        .iter()
        .map(|item| item["name"].clone())
        .collect();
    let keys = COORDINATION_KEYS.map(|key| json!(key.path.trim_start_matches("coordination.")));
    assert_eq!(named, keys);
    for (item, key) in items(&found).iter().zip(COORDINATION_KEYS) {
        let value = item["value"].as_str().unwrap();
        assert!(value.starts_with(key.default.trim_matches('"')), "{item}");
        assert_eq!(
            (&item["origin"], &item["state"]),
            (&json!("default"), &json!("ok"))
        );
    }
    let example = PAGE
        .split("```yaml coordination.yaml\n")
        .nth(1)
        .expect("an example");
    let example = example.split("```").next().expect("it ends");
    let example = example
        .replace("0.9", "0.8")
        .replace(SUMMARY_DIRECTIVE.default.trim_matches('"'), "null");
    project.write(FILE, &example);
    project.write(
        ".ai/directives/brief.md",
        "---\nsummary: {tokens: 500}\n---\nBe brief.\n",
    );
    let found = project.json(&["doctor"]);
    assert_eq!(found["exit"], 0, "{found}");
    for (name, value, origin) in [
        ("continuation.trigger_threshold", "0.8", FILE),
        ("continuation.summary_directive", "none", FILE),
        ("continuation.summary_limit_overrides.spend", "0.02", FILE),
        ("summary of brief", "tokens 500", ".ai/directives/brief.md"),
    ] {
        let item = item(&found, name);
        assert_eq!(
            (&item["value"], &item["origin"]),
            (&json!(value), &json!(origin))
        );
    }
    let integrity = item(&found, "transcript_integrity");
    assert!(
        integrity["value"]
            .as_str()
            .unwrap()
            .contains("without effect until")
    );
}

#[test]
fn doctor_says_who_writes_summaries_without_the_tier() {
    let found = CliProject::new().json(&["doctor"]);
    let item = item(&found, "continuation.summary_model");
    assert_eq!(item["state"], "warning");
    assert!(
        item["value"]
            .as_str()
            .unwrap()
            .contains("the thread's own model"),
        "{item}"
    );
    assert_eq!(found["exit"], 0);
}

/// Symptom: a `summary_directive` or `summary_model` that is not there was marked at each directive
/// and not at the setting that names it. Kind: what settings of coordination name.
#[test]
fn doctor_marks_what_a_setting_names_and_is_not_there() {
    for (key, name, problem) in [
        ("summary_model", "nope", "there is no such model or tier"),
        (
            "summary_directive",
            "my/brief",
            "there is no such directive",
        ),
    ] {
        let project = CliProject::new();
        let settings = format!("coordination: {{continuation: {{{key}: {name}}}}}\n");
        project.write(FILE, &settings);
        let found = project.json(&["doctor"]);
        let item = item(&found, &format!("continuation.{key}"));
        assert_eq!(
            (&item["state"], &item["origin"]),
            (&json!("bad"), &json!(FILE)),
            "{item}"
        );
        assert_eq!(item["value"], format!("{name}: {problem}"));
        let missing = found["missing"].to_string();
        assert!(
            missing.contains(&format!("continuation.{key}")),
            "{missing}"
        );
    }
    let project = CliProject::new();
    project.write(
        FILE,
        "coordination: {continuation: {summary_directive: my/brief}}\n",
    );
    project.write(
        ".ai/directives/my/brief.md",
        "---\ninputs: {transcript_content: {}}\n---\n${inputs.transcript_content}\n",
    );
    let found = project.json(&["doctor"]);
    let item = item(&found, "continuation.summary_directive");
    assert_eq!((&item["state"], &found["exit"]), (&json!("ok"), &json!(0)));
}

#[test]
fn settings_that_do_not_hold_are_refused_and_doctor_says_so() {
    let project = CliProject::new();
    let run: &[&str] = &["run", "describe", "--input", "file=x", "--id", "none"];
    for (text, words) in [
        (
            "continuation: {}\n",
            ["continuation", "its place is coordination.continuation"],
        ),
        (
            "coordination: {continuation: {trigger_treshold: 1}}\n",
            [
                "trigger_treshold",
                "did you mean coordination.continuation.trigger_threshold?",
            ],
        ),
        (
            "coordination: {continuation: {trigger_threshold: 90}}\n",
            ["trigger_threshold", "from 0.01 to 1"],
        ),
        ("coordination: [\n", [FILE, "invalid"]),
    ] {
        project.write(FILE, text);
        check(&project, &[(run, 1, &words)]);
        let found = project.json(&["doctor"]);
        assert_eq!(
            (&found["works"], &found["exit"]),
            (&json!(false), &json!(1)),
            "{text}"
        );
        let missing = found["missing"].to_string();
        assert!(missing.contains("oordination"), "{missing}");
    }
    project.write(FILE, "coordination: {}\n");
    project.write(".ai/config/agent/coordination.yaml", "coordination: {}\n");
    check(
        &project,
        &[(run, 1, &[FILE, "agent/coordination.yaml is there too"])],
    );
    assert_eq!(project.threads(), 0, "nothing was created");
}
