//! The end of a reply: by its provider's finish reason, by silence, or by the time limit of a call
//! or a run.

use super::judged_project::{JudgedProject, ProjectPlan};
use serde_json::Value;
use std::time::{Duration, Instant};
use threadkeep_tests::judge::{
    ServerAnswer, answer_in_order, anthropic_events, finish_chunk, stream_reply, text_chunk,
    text_reply, usage_chunk,
};
use threadkeep_tests::llmock::MockWire;

const SECOND: Duration = Duration::from_secs(1);
/// Pause between two words of a slow stream: well within the silence that these tests allow.
const HALF_SECOND: Duration = Duration::from_millis(500);

/// Symptom: a truncated reply was the result of a completed run. Cause: an unknown finish reason
/// counted as a good one. Fix: the finish reasons of a whole reply are a closed set. Kind: silent
/// truncation.
#[test]
fn only_a_known_word_makes_a_reply_whole() {
    let (whole, cut) = (None, Some("reply_truncated"));
    let (filtered, unknown) = (Some("reply_filtered"), Some("reply_unfinished"));
    for (word, code) in [
        ("stop", whole),
        ("STOP", whole),
        ("eos", whole),
        ("end_turn", whole),
        ("length", cut),
        ("max_tokens", cut),
        ("MAX_TOKENS", cut),
        ("model_length", cut),
        ("model_context_window_exceeded", cut),
        ("content_filter", filtered),
        ("SAFETY", filtered),
        ("insufficient_system_resource", unknown),
        ("banana", unknown),
    ] {
        let chunks = [
            text_chunk("Half of an ans"),
            finish_chunk(word),
            usage_chunk(100, 10),
        ];
        check_word(word, MockWire::OpenAi, stream_reply(&chunks), code);
    }
    for (word, code) in [
        ("end_turn", whole),
        ("stop_sequence", whole),
        ("max_tokens", cut),
        ("model_context_window_exceeded", cut),
        ("refusal", filtered),
        ("banana", unknown),
    ] {
        let answer = ServerAnswer::stream().send_events(&anthropic_events(word, "Half of an ans"));
        check_word(word, MockWire::Anthropic, answer, code);
    }
}

/// Runs a project whose reply ends with this finish reason, and checks that the run is completed,
/// or suspended with `code`.
fn check_word(word: &str, wire: MockWire, answer: ServerAnswer, code: Option<&str>) {
    let judged = JudgedProject::new(&ProjectPlan::of_wire(wire), answer_in_order(vec![answer]));
    let document = judged.run();
    let (status, exit) = match code {
        None => ("completed", 0),
        Some(_) => ("suspended", 3),
    };
    assert_eq!(document["status"], status, "{wire:?} {word}: {document}");
    assert_eq!(document["exit"], exit, "{wire:?} {word}: {document}");
    assert_eq!(document["cause"]["code"].as_str(), code, "{wire:?} {word}");
    let result = document["result"].as_str();
    let expected = code.is_none().then_some("Half of an ans");
    assert_eq!(result, expected, "{wire:?} {word}");
    assert_eq!(judged.server.requests().len(), 1, "{wire:?} {word}");
}

/// A whole reply with a word every half second.
fn slow_reply(words: u32) -> ServerAnswer {
    let say = |answer: ServerAnswer, number: u32| {
        let word = text_chunk(&format!("w{number} "));
        answer.send_chunk(&word).pause_for(HALF_SECOND)
    };
    let said = (0..words).fold(ServerAnswer::stream(), say);
    said.send_chunks(&[finish_chunk("stop"), usage_chunk(100, 10)])
        .send_done()
}

/// The usual project, whose provider entry has these time limits.
fn project_with_times(wire: MockWire, times: &str, answers: Vec<ServerAnswer>) -> JudgedProject {
    let plan = ProjectPlan {
        provider_keys: times,
        ..ProjectPlan::of_wire(wire)
    };
    JudgedProject::new(&plan, answer_in_order(answers))
}

/// Symptom: a healthy, slow stream was cut, thrown away and paid again. Cause: a fixed bound on its
/// whole duration. Fix: silence is bounded, and the whole stream by the time of the run. Kind: a
/// bound on a stream.
#[test]
fn a_slow_stream_that_goes_on_is_whole() {
    let answers = vec![slow_reply(10), text_reply("The second.")];
    let judged = project_with_times(MockWire::OpenAi, "times: {idle: 2}", answers);
    let document = judged.run();
    assert_eq!(document["status"], "completed", "{document}");
    let result = document["result"].as_str().expect("a text");
    assert!(
        result.starts_with("w0 w1 ") && result.contains("w9"),
        "{result}"
    );
    assert_eq!(judged.server.requests().len(), 1);
}

/// Symptom: a call whose model was gone lasted for ever. Cause: keep-alive messages of a gateway
/// counted as those of the model. Fix: only a piece of the reply ends a silence. Kind: a bound on
/// silence.
#[test]
fn a_stream_that_only_shows_signs_of_life_is_stalled() {
    let half = || ServerAnswer::stream().send_chunk(&text_chunk("Half"));
    let events = anthropic_events("end_turn", "Half");
    let half_of_events = || ServerAnswer::stream().send_events(&events[..3]);
    let whole_of_events =
        ServerAnswer::stream().send_events(&anthropic_events("end_turn", "Done."));
    let ping = "event: ping\ndata: {\"type\": \"ping\"}\n\n";
    for (wire, begun, sign, second) in [
        (
            MockWire::OpenAi,
            half(),
            ": waiting\n\n",
            text_reply("Done."),
        ),
        (MockWire::OpenAi, half(), "data:\n\n", text_reply("Done.")),
        (MockWire::Anthropic, half_of_events(), ping, whole_of_events),
    ] {
        let live = |answer: ServerAnswer, _| answer.send_bytes(sign).pause_for(SECOND);
        let first = (0..20).fold(begun, live);
        let judged = project_with_times(wire, "times: {idle: 2}", vec![first, second]);
        let began = Instant::now();
        let document = judged.run();
        let took = began.elapsed();
        assert_eq!(document["result"], "Done.", "{wire:?} {sign:?}: {document}");
        let errors = judged.events("error");
        let codes: Vec<&Value> = errors.iter().map(|error| &error["code"]).collect();
        assert_eq!(codes, ["stalled"], "{wire:?} {sign:?}");
        assert!(
            took < Duration::from_secs(15),
            "{wire:?} {sign:?}: {took:?}"
        );
    }
}

/// Symptom: an operator could not bound a call whose stream never ends. Cause: no key bounded its
/// whole duration. Fix: `whole` does. Kind: a bound on a stream.
#[test]
fn a_stream_is_cut_where_its_whole_time_is_over() {
    let answers = vec![slow_reply(12), text_reply("Done.")];
    let judged = project_with_times(MockWire::OpenAi, "times: {whole: 3}", answers);
    let document = judged.run();
    assert_eq!(document["result"], "Done.", "{document}");
    assert_eq!(judged.server.requests().len(), 2);
    assert_eq!(judged.events("error").len(), 1);
    let partials = judged.events("partial");
    let partial = partials[0]["text"].as_str().expect("what had arrived");
    assert!(
        partial.starts_with("w0 ") && !partial.contains("w11"),
        "{partial}"
    );
}

/// Symptom: a run lasted longer than its cap allowed. Cause: the cap was checked between calls
/// alone. Fix: it ends a call that is under way, and there is no further attempt. Kind: a bound on
/// a run.
#[test]
fn a_cap_on_duration_ends_the_call_that_is_under_way() {
    let plan = ProjectPlan {
        limits: "turns: 5, spend: 1.00, duration: 3",
        ..ProjectPlan::default()
    };
    let answers = vec![slow_reply(60), text_reply("Done.")];
    let judged = JudgedProject::new(&plan, answer_in_order(answers));
    let began = Instant::now();
    let document = judged.run();
    let took = began.elapsed();
    assert_eq!(document["status"], "suspended", "{document}");
    assert_eq!(document["cause"]["code"], "duration_exceeded", "{document}");
    assert_eq!(judged.server.requests().len(), 1);
    assert!(took < Duration::from_secs(20), "{took:?}");
    let raised = judged.project.json(&["raise", "t", "--duration", "5m"]);
    assert_eq!(raised["exit"], 0, "{raised}");
    let document = judged.project.json(&["resume", "t"]);
    assert_eq!(document["result"], "Done.", "{document}");
}
