//! `--policy FILE`: what a person sees of the operator's policy.

use crate::cli::fixture::Project;
use threadkeep_tests::binary::Ran;

/// Everything in the fixture's project, at these ceilings.
fn policy(more: &str) -> String {
    format!(
        "models: {{tiny: {{prices: {{input: \"1.00\", output: \"2.00\"}}}}}}\nproviders: {{local: {{wire: scripted}}}}\n{more}\n"
    )
}

/// A policy in a directory of the operator's own.
struct Operator {
    temp: tempfile::TempDir,
    project: Project,
}

impl Operator {
    fn new(text: &str) -> Self {
        let operator = Self {
            temp: tempfile::TempDir::new().expect("a temporary directory"),
            project: Project::new(),
        };
        operator.write(text);
        operator
    }

    fn write(&self, text: &str) {
        std::fs::write(self.temp.path().join("policy.yaml"), text).expect("written");
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        let path = self.temp.path().join("policy.yaml");
        let mut all = vec!["--policy", path.to_str().expect("it is UTF-8")];
        all.extend(arguments);
        self.project.run(&all)
    }

    fn describe(&self, id: &str) -> serde_json::Value {
        let run = [
            "run",
            "describe",
            "--input",
            "file=notes.txt",
            "--json",
            "--id",
            id,
        ];
        self.run(&run).json()
    }
}

#[test]
fn a_run_at_a_ceiling_ends_with_3_and_says_who_can_lift_it() {
    let operator = Operator::new(&policy("ceilings: {model_calls: 1}"));
    let ran = operator.run(&["run", "describe", "--input", "file=notes.txt", "--id", "a"]);
    assert_eq!(ran.code, Some(3), "{ran:#?}");
    for words in [
        "suspended (ceiling_model_calls): the ceiling model_calls is reached: 1 of 1 calls are used",
        "by the operator's policy, policy.yaml",
        "next    let the operator raise model_calls in the policy, then threadkeep resume a",
    ] {
        assert!(ran.err.contains(words), "{words}: {}", ran.err);
    }
    let again = operator.run(&["resume", "a", "--json"]).json();
    // A command without a book counts anew: the second call is the first one of this process.
    assert_eq!(
        (&again["status"], &again["exit"]),
        (&"completed".into(), &0.into()),
        "{again}"
    );
}

#[test]
fn a_book_keeps_what_was_used_between_commands() {
    let operator = Operator::new(&policy("ceilings: {spend: 0.02}\nbook: used.json"));
    assert_eq!(operator.describe("a")["status"], "completed");
    let book = operator.temp.path().join("used.json");
    let used: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&book).expect("it is there")).expect("JSON");
    assert_eq!(
        (&used["spend_nanos"], &used["model_calls"]),
        (&310_000.into(), &2.into())
    );
    std::fs::write(&book, r#"{"spend_nanos": 19999999}"#).expect("written");
    let stopped = operator.describe("b");
    assert_eq!(
        (&stopped["cause"]["code"], &stopped["exit"]),
        (&"ceiling_spend".into(), &3.into())
    );
    operator.write(&policy("ceilings: {spend: 0.10}\nbook: used.json"));
    let resumed = operator.run(&["resume", "b", "--json"]).json();
    assert_eq!(resumed["status"], "completed", "{resumed}");
    std::fs::write(&book, "not a book").expect("written");
    let broken = operator.describe("c");
    assert_eq!(broken["cause"]["code"], "ceiling_book", "{broken}");
}

#[test]
fn files_that_ask_for_more_than_the_policy_are_refused_or_lowered() {
    let strange = "models: {tinny: {}}\nproviders: {local: {}}";
    let (many, other) = (
        policy("limits: {turns: 1}"),
        policy("tools: [search_files]"),
    );
    for (text, code, words) in [
        (
            strange,
            "invalid",
            "is not granted by the operator's policy, policy.yaml: it grants tinny",
        ),
        ("providers: {other: {}}", "invalid", "it grants other"),
        (&many, "turns_exceeded", "1 of 1 turns"),
        (&other, "completed", ""),
    ] {
        let operator = Operator::new(text);
        let answer = operator.describe("a");
        let said = format!(
            "{} {} {}",
            answer["error"]["code"], answer["cause"]["code"], answer["status"]
        );
        assert!(said.contains(&format!("\"{code}\"")), "{text}: {answer}");
        assert!(answer.to_string().contains(words), "{text}: {answer}");
    }
}

#[test]
fn a_policy_that_cannot_hold_is_refused() {
    for (text, words) in [
        (
            "ceilings: {spent: 1}",
            "policy.yaml:1: ceilings.spent: this key is not known here",
        ),
        ("ceilings: {spent: 1}", "did you mean \\\"spend\\\"?"),
        ("preset: strikt", "did you mean \\\"strict\\\"?"),
        ("quota: 1GB", "a whole number"),
    ] {
        let answer = Operator::new(text).describe("a");
        assert_eq!(
            (&answer["error"]["code"], &answer["exit"]),
            (&"bad-policy".into(), &1.into())
        );
        assert!(answer.to_string().contains(words), "{text}: {answer}");
    }
    let project = Project::new();
    project.write("policy.yaml", "preset: strict");
    let answer = project.json(&["list", "--policy", "policy.yaml"]);
    assert_eq!(answer["error"]["code"], "bad-policy");
    assert!(
        answer.to_string().contains("inside the project"),
        "{answer}"
    );
    let answer = project.json(&["list", "--policy", "nowhere/policy.yaml"]);
    assert_eq!(answer["error"]["code"], "missing", "{answer}");
}

#[test]
fn a_quota_of_the_policy_bounds_the_store() {
    let operator = Operator::new(&policy("quota: 100"));
    let answer = operator.describe("a");
    assert_eq!(
        (&answer["error"]["code"], &answer["exit"]),
        (&"full".into(), &1.into()),
        "{answer}"
    );
    operator.write(&policy("quota: 1000000"));
    assert_eq!(operator.describe("a")["status"], "completed");
}

#[test]
fn doctor_shows_the_policy() {
    let operator = Operator::new(&policy(
        "ceilings: {spend: 0.5, runs: 2}\ntools: [read_file]\nquota: 5000000",
    ));
    let answer = operator.run(&["doctor", "--json"]).json();
    let sections = answer["sections"].as_array().expect("sections");
    let section = sections
        .iter()
        .find(|section| section["name"] == "policy")
        .expect("it is shown");
    let items = section["items"].as_array().expect("items");
    for (name, value) in [
        ("models", "tiny"),
        ("tools", "read_file"),
        ("provider local", "scripted"),
        ("ceiling spend", "0.5"),
        ("ceiling runs", "2"),
        ("quota", "5000000 bytes"),
    ] {
        let shown = items.iter().any(|item| {
            item["name"] == name
                && item["value"]
                    .as_str()
                    .is_some_and(|shown| shown.contains(value))
                && item["origin"] == "policy.yaml"
        });
        assert!(shown, "{name}: {section}");
    }
}
