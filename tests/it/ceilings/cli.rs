//! `--policy FILE`: the operator's policy as a person sees it on the command line.

use crate::cli::fixture::CliProject;
use threadkeep_tests::binary::ProcessOutput;

/// A policy that allows everything in the fixture's project, with these ceilings.
fn policy(more: &str) -> String {
    format!(
        "models: {{tiny: {{prices: {{input: \"1.00\", output: \"2.00\"}}}}}}\nproviders: {{local: \
         {{wire: scripted}}}}\n{more}\n"
    )
}

/// A policy file in a directory of the operator's own, and a project under it.
struct OperatorPolicy {
    temp: tempfile::TempDir,
    project: CliProject,
}

impl OperatorPolicy {
    fn new(text: &str) -> Self {
        let operator = Self {
            temp: tempfile::TempDir::new().expect("a temporary directory"),
            project: CliProject::new(),
        };
        operator.write(text);
        operator
    }

    fn write(&self, text: &str) {
        std::fs::write(self.temp.path().join("policy.yaml"), text).expect("written");
    }

    fn run(&self, arguments: &[&str]) -> ProcessOutput {
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
    let operator = OperatorPolicy::new(&policy("ceilings: {model_calls: 1}"));
    let ran = operator.run(&["run", "describe", "--input", "file=notes.txt", "--id", "a"]);
    assert_eq!(ran.code, Some(3), "{ran:#?}");
    for words in [
        "suspended (ceiling_model_calls): the ceiling model_calls is reached: 1 of 1 calls are \
         used",
        "by the operator's policy, policy.yaml",
        "next    let the operator raise model_calls in the policy, then threadkeep resume a",
    ] {
        assert!(ran.err.contains(words), "{words}: {}", ran.err);
    }
    let again = operator.run(&["resume", "a", "--json"]).json();
    // Without a book each command counts from zero: the second call is the first one of this
    // process.
    assert_eq!(
        (&again["status"], &again["exit"]),
        (&"completed".into(), &0.into()),
        "{again}"
    );
    operator.write(&policy("ceilings: {spend: 0.000000001}"));
    let run = ["run", "describe", "--input", "file=notes.txt", "--id", "b"];
    let ran = operator.run(&run);
    let words = "the ceiling spend is reached: 0.00 of 0.000000001 USD are used, and 0.";
    assert!(ran.err.contains(words), "{}", ran.err);
}

/// Symptom: a run that was refused for want of room left the thread that had been made for it. Fix:
/// room is asked for first.
#[test]
fn without_room_for_a_run_no_thread_is_made() {
    let operator = OperatorPolicy::new(&policy("ceilings: {runs: 0}"));
    let refused = operator.describe("a");
    assert_eq!(
        (&refused["error"]["code"], &refused["exit"]),
        (&"ceiling_runs".into(), &4.into()),
        "{refused}"
    );
    let listed = operator.run(&["list", "--json"]).json();
    assert_eq!(listed["threads"], serde_json::json!([]), "{listed}");
}

#[test]
fn a_book_keeps_what_was_used_between_commands() {
    let operator = OperatorPolicy::new(&policy("ceilings: {spend: 0.02}\nbook: used.json"));
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
    let advice = operator.run(&["resume", "c"]).err;
    let mends = "next    let the operator mend or remove the book that the policy names, then";
    assert!(advice.contains(mends), "{advice}");
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
        let operator = OperatorPolicy::new(text);
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
        let answer = OperatorPolicy::new(text).describe("a");
        assert_eq!(
            (&answer["error"]["code"], &answer["exit"]),
            (&"bad-policy".into(), &1.into())
        );
        assert!(answer.to_string().contains(words), "{text}: {answer}");
    }
    let project = CliProject::new();
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
    let operator = OperatorPolicy::new(&policy("quota: 100"));
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
    let operator = OperatorPolicy::new(&policy(
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

/// Symptom: a suspended thread could not be resumed once its tier stood for another model, and was
/// resumed where its own model was gone. Cause: the check looked the tier up in today's table. Fix:
/// a thread names the model that is pinned for it.
#[test]
fn a_suspended_thread_is_held_to_its_own_model_and_not_to_its_tier() {
    let project = CliProject::new();
    let run = [
        "run",
        "describe",
        "--input",
        "file=notes.txt",
        "--turns",
        "1",
        "--id",
        "a",
    ];
    assert_eq!(project.json(&run)["cause"]["code"], "turns_exceeded");
    assert_eq!(project.json(&["show", "a"])["thread"]["model"], "tiny");
    project.json(&["raise", "a", "--turns", "5"]);
    let with = |more: &str| {
        let file = "providers: {local: {wire: scripted, file: script.json}, \
                    gone: {wire: scripted, file: gone.json}}";
        project.write(".ai/config/models.yaml", &format!("{file}\n{more}\n"));
    };
    with("models: {other: {provider: local, output: 9}}\ntiers: {default: other}");
    let refused = project.json(&["resume", "a"]);
    assert_eq!(refused["error"]["code"], "unknown_model", "{refused}");
    with(
        "models: {tiny: {provider: local, output: 9}, other: {provider: gone, output: 9}}\ntiers: \
         {default: other}",
    );
    assert_eq!(project.json(&["resume", "a"])["status"], "completed");
}

#[test]
fn misspelled_capability_is_refused_and_unknown_one_reported() {
    let project = CliProject::new();
    let directive = |capability: &str| {
        project.write(
            ".ai/directives/odd.md",
            &format!("---\ncapabilities: [{capability}]\n---\nDo it.\n"),
        );
    };
    directive("execute.tool.raed_file");
    let refused = project.json(&["run", "odd"]);
    assert_eq!(refused["error"]["code"], "invalid", "{refused}");
    assert_eq!(
        refused["error"]["hint"],
        "did you mean execute.tool.read_file?"
    );
    directive("rye.execute.tool.scraping.gmaps.scrape_gmaps");
    assert_eq!(project.json(&["run", "odd"])["status"], "completed");
    let found = project.run(&["doctor"]).out;
    let told =
        "the capability rye.execute.tool.scraping.gmaps.scrape_gmaps grants no tool that there is";
    assert!(found.contains(told), "{found}");
    // Symptom: `doctor` said the same of the tools that the runner itself performs.
    directive("execute.tool.spawn_thread, execute.tool.wait_*");
    let found = project.run(&["doctor"]).out;
    assert!(!found.contains("grants no tool"), "{found}");
}

/// Symptom: a policy was accepted that a link inside the project leads to: a process that can write
/// there could aim it elsewhere.
#[cfg(unix)]
#[test]
fn a_policy_that_is_reached_through_the_project_is_refused() {
    let operator = OperatorPolicy::new(&policy("ceilings: {runs: 1}"));
    let (project, own) = (operator.project.path(), operator.temp.path());
    let link = |target: &std::path::Path, at: &std::path::Path| {
        std::os::unix::fs::symlink(target, at).expect("linked");
    };
    link(&own.join("policy.yaml"), &project.join("pol.yaml"));
    link(own, &project.join("etc"));
    link(&project.join("pol.yaml"), &own.join("twice.yaml"));
    link(&own.join("policy.yaml"), &own.join("once.yaml"));
    std::fs::create_dir(project.join("sub")).expect("made");
    let listed = |path: &std::path::Path| {
        let path = path.to_str().expect("it is UTF-8");
        operator.project.json(&["list", "--policy", path])
    };
    for path in [
        "pol.yaml".into(),
        project.join("pol.yaml"),
        "etc/policy.yaml".into(),
        own.join("twice.yaml"),
        project.join("sub").join("..").join("pol.yaml"),
    ] {
        let refused = listed(&path);
        assert_eq!(
            refused["error"]["code"], "bad-policy",
            "{path:?}: {refused}"
        );
        assert!(
            refused.to_string().contains("reached through it"),
            "{refused}"
        );
    }
    for path in [own.join("policy.yaml"), own.join("once.yaml")] {
        assert_eq!(listed(&path)["exit"], 0, "{path:?}");
    }
}

/// Symptom: `raise` was advised where the policy refuses it.
#[test]
fn policy_cap_refers_to_the_operator() {
    let operator = OperatorPolicy::new(&policy("limits: {turns: 1}"));
    let run = ["run", "describe", "--input", "file=notes.txt", "--id", "a"];
    let resume = ["resume", "a"];
    for arguments in [&run[..], &resume] {
        let ran = operator.run(arguments);
        assert_eq!(ran.code, Some(3), "{ran:#?}");
        for words in [
            "the operator's policy allows no more",
            "let the operator raise limits.turns in the policy, then threadkeep raise a --turns N",
        ] {
            assert!(ran.err.contains(words), "{words}: {}", ran.err);
        }
    }
    operator.write(&policy("limits: {turns: 5}"));
    let raised = operator.run(&["raise", "a", "--turns", "5"]);
    assert_eq!(raised.code, Some(0), "{raised:#?}");
    // The policy becomes tighter than the thread: the thread's own cap has room.
    operator.write(&policy("limits: {turns: 0}"));
    let ran = operator.run(&resume);
    let next = "next: let the operator raise limits.turns in the policy, then threadkeep";
    assert!(ran.err.contains(next), "{}", ran.err);
    operator.write(&policy("limits: {turns: 5}"));
    assert_eq!(operator.run(&resume).code, Some(0));
}

/// Symptom: "0 of 1000 bytes are used" about a store that held more. Cause: a thread is tried out
/// in memory first, and that store had the quota too.
#[test]
fn a_quota_says_what_the_store_holds() {
    let operator = OperatorPolicy::new(&policy(""));
    assert_eq!(operator.describe("a")["status"], "completed");
    operator.write(&policy("quota: 1000"));
    let refused = operator.describe("b");
    assert_eq!(refused["error"]["code"], "full", "{refused}");
    let message = refused["error"]["message"].as_str().expect("why");
    let used = message
        .split_once(": ")
        .and_then(|(_, rest)| rest.split_once(" of 1000 bytes"));
    let used: u64 = used.expect(message).0.parse().expect("bytes");
    assert!(used > 1000, "{message}");
}

/// Symptom: `doctor` reported nothing missing where the book cannot be read and every call is
/// refused.
#[test]
fn doctor_reads_the_book() {
    let operator = OperatorPolicy::new(&policy("ceilings: {spend: 1}\nbook: used.json"));
    assert_eq!(operator.run(&["doctor"]).code, Some(0), "none is there yet");
    std::fs::write(operator.temp.path().join("used.json"), "garbage").expect("written");
    let found = operator.run(&["doctor", "--json"]).json();
    assert_eq!(
        (&found["exit"], &found["works"]),
        (&1.into(), &false.into())
    );
    let missing = found["missing"].to_string();
    assert!(missing.contains("used.json cannot be kept"), "{missing}");
}
