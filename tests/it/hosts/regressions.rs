//! Faults that a host in another language was the first to meet, by the lines of the scenario that
//! show them.

use super::native::ScenarioAnswer;
use super::{native_answers, scenario};
use serde_json::Value;

/// Returns the lines of the scenario that a test is about, each with the answer to it.
fn answers_to(concerned: impl Fn(&Value) -> bool) -> Vec<(Value, &'static Value)> {
    let script = scenario::read_scenario();
    let answers = native_answers().iter();
    answers
        .filter(|ScenarioAnswer { line, .. }| concerned(&script[*line]))
        .map(|ScenarioAnswer { line, answer }| (script[*line].clone(), answer))
        .collect()
}

/// Symptom: a commit was made, its answer and then the store were lost, and `start`, `submit`,
/// `append` and `signal` answered `unavailable`, which says that nothing was written. Cause: the
/// error of looking for the entry took the place of the unknown outcome. Fix: after an unknown
/// outcome that cannot be looked for, the answer is `unknown`. Kind: errors that hide an earlier
/// one.
#[test]
fn an_unknown_outcome_that_cannot_be_looked_for_is_unknown() {
    let lost = answers_to(|line| line["faults"]["storage.commit"] == "lost");
    assert!(lost.len() >= 5, "{} calls", lost.len());
    for (line, answer) in lost {
        assert_eq!(answer["err"]["kind"], "unknown", "{line}: {answer}");
    }
}

/// Symptom: a deadline of 4,294,967,295 nanoseconds, which is a wrapped -1, was taken. Cause: it
/// was cut to 999,999,999 as a time of the clock is. Fix: core refuses it. Kind: numbers of a
/// caller that are mended in silence.
#[test]
fn a_deadline_with_too_many_nanoseconds_is_refused() {
    let is_too_much = |nanos: &Value| nanos == -1 || nanos == 1_000_000_000;
    let wrong = answers_to(|line| is_too_much(&line["with"]["deadline"]["nanos"]));
    assert!(wrong.len() >= 2, "{} calls", wrong.len());
    for (line, answer) in wrong {
        let expected = serde_json::json!({"err": {"kind": "invalid", "details":
            {"$json": {"field": "deadline.nanos"}}}});
        assert!(scenario::holds(&expected, answer), "{line}: {answer}");
    }
}

/// Symptom: the hosts of this folder told `have: 0` with each result, so nobody had tried whether a
/// driver that holds the messages is sent the right ones across a hand-off. Cause: they knew no
/// `since`. Fix: they hold what a thread was sent, replace it where a request is whole, and follow
/// a step into another thread. Kind: parts of the contract that only our own driver uses.
#[test]
fn a_host_that_holds_messages_sends_the_right_ones_across_a_hand_off() {
    let models = answers_to(|line| line["drive"].is_object());
    let models: Vec<(Value, &Value)> = models
        .into_iter()
        .filter(|(_, answer)| answer["model"].is_object())
        .collect();
    let adds = |(_, answer): &&(Value, &Value)| answer["since"] != 0;
    assert!(models.iter().filter(adds).count() >= 3, "few were held");
    let mut handed_off = models
        .iter()
        .filter(|(line, _)| line["drive"]["holder"] == "f3");
    let mut next = || &handed_off.next().expect("a request").1["model"];
    let (summary, first, second) = (next(), next(), next());
    assert_ne!(summary["thread"], first["thread"]);
    assert_eq!(first["thread"], second["thread"]);
    let texts = |sent: &Value| -> Vec<String> {
        let messages = sent["messages"].as_array().unwrap().iter();
        messages
            .map(|text| text.as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(texts(summary).len(), 1, "a summary's request is whole");
    let (first, second) = (texts(first), texts(second));
    assert!(first[0].contains("They said abc and def."), "{first:?}");
    assert!(first.last().unwrap().contains("And now?"), "{first:?}");
    assert_eq!(second[..first.len()], first[..], "what was held stays");
    assert!(
        second[first.len()..].concat().contains("oats"),
        "{second:?}"
    );
    assert_eq!(handed_off.next().map(|(_, answer)| answer), None);
}
