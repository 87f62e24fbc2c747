//! `doctor --probe`, and fields that a server refuses by name.

use super::judged_project::{JudgedProject, ProjectPlan};
use serde_json::json;
use threadkeep_tests::judge::{ServerAnswer, answer_in_order, refuse, text_reply};
use threadkeep_tests::llmock::MockWire;

/// A server that refuses each of these fields by name, and answers requests without any of them.
fn picky_server(
    fields: &'static [&'static str],
) -> impl Fn(usize, &serde_json::Value, &str) -> ServerAnswer + Send + Sync + 'static {
    move |_, body, _| match fields.iter().find(|field| body.get(**field).is_some()) {
        Some(field) => {
            let message = format!("body.{field}: Extra inputs are not permitted");
            refuse(400, &json!({"error": {"message": message}}))
        }
        None => text_reply("ready"),
    }
}

/// Symptom: a server that does not know a field of ours refused every request for ever. Fix: the
/// field is left out from then on, which costs nothing. Kind: fields that a server refuses by name.
#[test]
fn a_field_that_is_refused_by_name_is_left_out() {
    let judged = JudgedProject::new(&ProjectPlan::default(), picky_server(&["stream_options"]));
    let document = judged.run();
    assert_eq!(document["status"], "completed", "{document}");
    assert_eq!(document["result"], "ready", "{document}");
    let asked = judged.server.requests();
    assert_eq!(asked.len(), 2, "refused once, then answered");
    assert!(asked[1].body.get("stream_options").is_none());
    assert_eq!(judged.events("error").len(), 1, "the refusal is told");
    assert_eq!(
        judged.spent_amount(),
        "0.00012",
        "100 tokens read and 10 written"
    );
    // A field that cannot be left out is asked about once.
    let stubborn = JudgedProject::new(&ProjectPlan::default(), picky_server(&["messages"]));
    assert_eq!(stubborn.run()["cause"]["code"], "provider_permanent");
    assert_eq!(stubborn.server.requests().len(), 1);
}

#[test]
fn a_probe_says_what_it_found() {
    for (what, keys, answer, answered, words) in [
        (
            "an answer",
            "",
            text_reply("ready"),
            true,
            vec!["ready", "stop", "generic"],
        ),
        (
            "a wrong key",
            "",
            refuse(401, &json!({"error": {"message": "no such key"}})),
            false,
            vec!["401", "no such key", "/chat/completions"],
        ),
        (
            "a named dialect",
            "dialect: mistral",
            text_reply("yes"),
            true,
            vec!["yes", "mistral"],
        ),
    ] {
        let plan = ProjectPlan {
            provider_keys: keys,
            ..ProjectPlan::of_wire(MockWire::OpenAi)
        };
        let judged = JudgedProject::new(&plan, answer_in_order(vec![answer]));
        let document = judged.project.json(&["doctor", "--probe", "p"]);
        assert_eq!(document["answered"], answered, "{what}: {document}");
        assert_eq!(document["exit"], i32::from(!answered), "{what}: {document}");
        let shown = judged.project.run(&["doctor", "--probe", "p"]);
        for word in words {
            assert!(
                document.to_string().contains(word),
                "{what}: {word} in {document}"
            );
            assert!(shown.out.contains(word), "{what}: {word} in {}", shown.out);
        }
        assert_eq!(
            judged.server.requests().len(),
            2,
            "{what}: one request each"
        );
        assert!(
            !judged.project.path().join(".ai/threads").exists(),
            "{what}: nothing is made"
        );
    }
}

#[test]
fn a_probe_says_which_fields_were_refused_and_refuses_names_that_are_none() {
    let judged = JudgedProject::new(&ProjectPlan::default(), picky_server(&["stream_options"]));
    let document = judged.project.json(&["doctor", "--probe", "p"]);
    assert_eq!(document["answered"], true, "{document}");
    let refused = document["refused"][0].as_str().unwrap_or_default();
    assert!(refused.contains("stream_options"), "{document}");
    let unknown = judged.project.run(&["doctor", "--probe", "q"]);
    assert_eq!(unknown.code, Some(1));
    assert!(unknown.err.contains("no provider \"q\""), "{}", unknown.err);
}
