//! The switches of an entry in `models.yaml`: each changes the request as documented, and an
//! invalid value is refused.

use super::judged_project::{JudgedProject, ProjectPlan};
use serde_json::{Value, json};
use threadkeep_tests::judge::{SeenRequest, answer_in_order, text_reply};

/// A project whose entries have these further keys.
fn project_with(provider_keys: &str, model_keys: &str) -> JudgedProject {
    let plan = ProjectPlan {
        provider_keys,
        model_keys,
        ..ProjectPlan::default()
    };
    JudgedProject::new(&plan, answer_in_order(vec![text_reply("Done.")]))
}

/// Returns a request's path, a header, or a value of its body by its JSON pointer; null if the
/// request has none.
fn find_in(request: &SeenRequest, place: &str) -> Value {
    match place.strip_prefix("header ") {
        Some(name) => json!(request.header(name)),
        None if place == "path" => json!(request.path),
        None => request.body.pointer(place).cloned().unwrap_or_default(),
    }
}

/// Runs a project whose entries have these further keys, and checks each place of its request.
fn check_request(provider_keys: &str, model_keys: &str, places: &[(&str, Value)]) {
    let judged = project_with(provider_keys, model_keys);
    let answer = judged.run();
    let keys = format!("{provider_keys:?}, {model_keys:?}");
    assert_eq!(answer["status"], "completed", "{keys}: {answer}");
    let request = &judged.server.requests()[0];
    for (place, expected) in places {
        assert_eq!(find_in(request, place), *expected, "{keys}: {place}");
    }
}

/// Symptom: servers that differ in a field or a header could not be used. Cause: the adapter knew
/// some differences, and no key of the file set them. Fix: a provider has keys for them. Kind: a
/// request that one kind of server wants otherwise.
#[test]
fn each_key_of_a_provider_changes_the_request_as_it_says() {
    let usage = || json!({"include_usage": true});
    let absent = || Value::Null;
    let usual = [
        ("path", json!("/v1/chat/completions")),
        ("header x-team", absent()),
        ("/max_tokens", json!(1_000)),
        ("/stream", json!(true)),
        ("/stream_options", usage()),
        ("/temperature", absent()),
    ];
    check_request("", "", &usual);
    let renamed = [
        ("/max_completion_tokens", json!(1_000)),
        ("/max_tokens", absent()),
    ];
    check_request("max_tokens: max_completion_tokens", "", &renamed);
    let without = [("/stream", json!(true)), ("/stream_options", absent())];
    check_request("stream_options: false", "", &without);
    check_request("dialect: mistral", "", &without);
    let switched = [("/stream_options", usage()), ("/max_tokens", json!(1_000))];
    check_request("dialect: mistral, stream_options: true", "", &switched);
    check_request(
        "headers: {x-team: blue}",
        "",
        &[("header x-team", json!("blue"))],
    );
    let versioned = json!("/v1/chat/completions?api-version=2024-10-21");
    let version = "query: {api-version: \"2024-10-21\"}";
    check_request(version, "", &[("path", versioned)]);
}

/// Symptom: a model could not be asked to think less, or at another temperature. Cause: no key of
/// the file adds fields to a request. Fix: `options` does. Kind: a field that one model wants and
/// no other.
#[test]
fn options_of_a_model_stand_in_its_requests() {
    let options = "options: {temperature: 0.2, reasoning_effort: low}";
    let places = [
        ("/temperature", json!(0.2)),
        ("/reasoning_effort", json!("low")),
        ("/max_tokens", json!(1_000)),
        ("/model", json!("m")),
    ];
    check_request("", options, &places);
    check_request("stream_options: false", options, &places);
    let nested = "options: {extra: {top_k: 20, stop: [\"a\", \"b\"], seed: null}}";
    let extra = json!({"top_k": 20, "stop": ["a", "b"], "seed": null});
    check_request("", nested, &[("/extra", extra)]);
}

/// Symptom: a misspelled switch would change nothing, without any message. Cause: a value of
/// another kind is easily skipped. Fix: it is refused with file and key, before anything is sent.
/// Kind: invalid settings.
#[test]
fn invalid_value_is_refused_by_its_key() {
    for (provider_keys, model_keys, key) in [
        ("max_tokens: tokens", "", "max_tokens"),
        ("max_token: max_completion_tokens", "", "max_token"),
        ("stream_options: perhaps", "", "stream_options"),
        ("return_thinking: sometimes", "", "return_thinking"),
        ("dialect: mistrall", "", "dialect"),
        ("headers: [x-team]", "", "headers"),
        ("query: api-version", "", "query"),
        ("times: {idel: 2}", "", "idel"),
        ("times: {idle: soon}", "", "idle"),
        ("times: {idle: 0}", "", "idle"),
        ("", "options: low", "options"),
        ("", "options: {messages: []}", "messages"),
        ("", "options: {max_tokens: 5}", "max_tokens"),
        ("", "option: {temperature: 0.2}", "option"),
    ] {
        let judged = project_with(provider_keys, model_keys);
        let answer = judged.run();
        let keys = format!("{provider_keys:?}, {model_keys:?}");
        assert_eq!(answer["exit"], 1, "{keys}: {answer}");
        let message = answer["error"]["message"].as_str().expect("a sentence");
        assert!(
            message.contains("models.yaml") && message.contains(key),
            "{keys}: {message}"
        );
        assert!(judged.server.requests().is_empty(), "{keys}");
    }
}
