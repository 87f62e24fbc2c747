//! Calls that break before their usage is known: charged by estimate, reported, and corrected once.

use super::judged_project::{JudgedProject, ProjectPlan};
use serde_json::{Value, json};
use threadkeep_tests::judge::{ServerAnswer, answer_in_order, text_chunk, text_reply};

/// The usual project, whose model writes a token a second, so a moment is one token.
fn project_of(answers: Vec<ServerAnswer>) -> JudgedProject {
    let plan = ProjectPlan {
        model_keys: "rate: 1",
        ..ProjectPlan::default()
    };
    JudgedProject::new(&plan, answer_in_order(answers))
}

fn number(event: &Value, name: &str) -> u64 {
    event[name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name} of {event}"))
}

/// Symptom: a connection that was closed before its first byte cost a whole budget. Cause: an
/// unknown bill was charged as the whole hold. Fix: it is charged as the input and the output that
/// its time allowed. Kind: each way in which a call breaks without usage.
#[test]
fn a_call_that_breaks_costs_its_input_and_its_time() {
    let half = "half a reply, ".repeat(40);
    let broken = ServerAnswer::stream().send_chunk(&text_chunk(&half));
    for (what, answer, output) in [
        ("closed before a byte", ServerAnswer::hang_up(), 0..60),
        ("closed without an event", ServerAnswer::stream(), 0..60),
        ("broken in the middle", broken, 140..200),
    ] {
        let judged = project_of(vec![answer, text_reply("Done.")]);
        let document = judged.run();
        assert_eq!(document["status"], "completed", "{what}: {document}");
        let charges = judged.events("charged");
        let [charge] = charges.as_slice() else {
            panic!("{what}: {charges:?}");
        };
        let (spend, most) = (number(charge, "spend"), number(charge, "most"));
        let (input, written) = (
            number(&charge["usage"], "input"),
            number(&charge["usage"], "output"),
        );
        assert!(output.contains(&written), "{what}: {charge}");
        assert_eq!(spend, input * 1_000 + written * 2_000, "{what}");
        assert_eq!(most, input * 1_000 + 1_000 * 2_000, "{what}");
        let audit = judged.project.json(&["audit"]);
        assert_eq!(audit["findings"], json!([]), "{what}");
        let page = judged.project.run(&["transcript", "t"]).out;
        assert!(
            page.contains("USD are charged, of at most"),
            "{what}: {page}"
        );
    }
}

/// Symptom: of three broken calls the last one alone was named at the end. Kind: the report of
/// estimated money. A later bill replaces the estimate.
#[test]
fn all_broken_calls_of_a_run_are_named_and_can_be_corrected() {
    let cut = || ServerAnswer::stream().send_chunk(&text_chunk("Half"));
    let judged = project_of(vec![ServerAnswer::hang_up(), cut(), text_reply("Done.")]);
    let ran = judged.project.run(&["run", "go", "--id", "t"]);
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    let said = "no usage was reported for 2 calls: 0.000";
    assert!(ran.err.contains(said), "{}", ran.err);
    let charges = judged.events("charged");
    let version = number(&charges[0], "version").to_string();
    let told = [
        "budget", "settle", "t", &version, "--input", "7", "--output", "0",
    ];
    judged.project.json(&told);
    let corrected = judged.events("usage_corrected");
    assert_eq!(corrected[0]["charged"], charges[0]["spend"]);
    assert_eq!(corrected[0]["spend"], 7_000);
    let audit = judged.project.json(&["audit"]);
    assert_eq!(audit["findings"], json!([]));
}

/// An operator may choose to charge the whole hold.
#[test]
fn a_policy_may_charge_all_that_was_held() {
    let judged = project_of(vec![ServerAnswer::hang_up(), text_reply("Done.")]);
    let outside = tempfile::TempDir::new().expect("a directory");
    let policy = outside.path().join("policy.yaml");
    std::fs::write(&policy, "unknown_bill: full\n").expect("written");
    let policy = policy.to_str().expect("text");
    let document = judged
        .project
        .json(&["--policy", policy, "run", "go", "--id", "t"]);
    assert_eq!(document["status"], "completed", "{document}");
    let charges = judged.events("charged");
    assert_eq!(charges[0]["spend"], charges[0]["most"]);
    assert!(charges[0].get("usage").is_none(), "{charges:?}");
}
