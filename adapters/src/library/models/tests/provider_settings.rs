//! Tests of the settings of a provider and of its models: dialect, headers, query, times, options.

use super::*;
use crate::models::dialect::{OutputField, ReturnThinking};

const SPOKEN: &str = r#"
providers:
  p:
    wire: openai
    base_url: https://api.mistral.ai/v1
    max_tokens: max_completion_tokens
    stream_options: true
    return_thinking: always
    headers: {x-team: "blue", x-gateway-key: "${GATE_API_KEY}"}
    query: {api-version: 2024-10-21, n: 1}
    times: {connect: 1, answer: 2, idle: 0.5, whole: 120}
  q: {wire: anthropic, cache: false}
models:
  m: {provider: p, options: {temperature: 0.20, stop: [x]}}
  n: {provider: q}
"#;

#[test]
fn how_a_provider_is_spoken_to_is_read() {
    let pairs = [
        ("GATE_API_KEY", "gate-key"),
        ("GATE_BASE_URL", "https://api.mistral.ai/v1"),
    ];
    let load = || ModelTable::load(Some(SPOKEN), environment(&pairs)).expect("it is valid");
    let spec = load().provider("p").expect("it can be used");
    let dialect = spec.settings.dialect(spec.wire, &spec.base_url);
    assert_eq!(dialect.name, "mistral");
    assert_eq!(dialect.output_field, OutputField::MaxCompletionTokens);
    assert_eq!(dialect.return_thinking, ReturnThinking::Always);
    assert!(dialect.stream_options && !dialect.cache);
    let headers: Vec<(&str, &str)> = spec
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.expose()))
        .collect();
    assert_eq!(headers, [("x-team", "blue"), ("x-gateway-key", "gate-key")]);
    assert_eq!(
        spec.settings.query[0],
        ("api-version".into(), "2024-10-21".into())
    );
    let options = Value::from(spec.model_options["m"].clone()).to_string();
    assert_eq!(options, r#"{"temperature":0.20,"stop":["x"]}"#);
    let anthropic = load().provider("q").expect("it can be used");
    assert!(
        !anthropic
            .settings
            .dialect(WireProtocol::Anthropic, "")
            .cache
    );
    let millis =
        |table: &ModelTable, name| table.model(name).unwrap().to_document()["call_millis"].clone();
    assert_eq!(millis(&load(), "m"), 120_000);
    assert!(millis(&load(), "n").is_null());
    // An operator's times are upper bounds: they lengthen no time.
    for (ceilings, idle, whole, usual) in [
        ("{idle_time: 0.25, call_time: 60}", 250, 60_000, 60_000),
        ("{idle_time: 900, call_time: 9000}", 500, 120_000, 3_600_000),
    ] {
        let bounded = load().restrict_to_policy(&policy(&format!("ceilings: {ceilings}")));
        let times = bounded.provider("p").unwrap().settings.times;
        assert_eq!(times.idle.unwrap().as_millis(), idle, "{ceilings}");
        assert_eq!(millis(&bounded, "m"), whole, "{ceilings}");
        assert_eq!(millis(&bounded, "n"), usual, "{ceilings}");
    }
}

/// A header may carry the operator's key, so its variables are restricted like those of the key.
#[test]
fn a_header_sends_no_key_to_a_stranger() {
    let table = |pairs| ModelTable::load(Some(SPOKEN), environment(pairs)).expect("it is valid");
    let stolen = table(&[("GATE_API_KEY", "gate-key")]).provider("p");
    let error = stolen
        .map(drop)
        .expect_err("the address is not its own")
        .to_string();
    assert!(error.contains("GATE_API_KEY may go to"), "{error}");
    let unset = table(&[])
        .provider("p")
        .map(drop)
        .expect_err("not set")
        .to_string();
    assert!(
        unset.contains("x-gateway-key") && unset.contains("GATE_API_KEY"),
        "{unset}"
    );
}

#[test]
fn settings_that_mean_nothing_are_refused_by_name() {
    let provider = |entry: &str| format!("providers: {{p: {{{entry}}}}}\n");
    let openai = |setting: &str| provider(&format!("wire: openai, {setting}"));
    let model = |options: &str| {
        format!(
            "providers: {{p: {{wire: openai}}}}\nmodels: {{m: {{provider: p, options: \
             {options}}}}}\n"
        )
    };
    let many: Vec<String> = (0..40).map(|n| format!("h{n}: x")).collect();
    for (text, word) in [
        (openai("dialect: mistrall"), "mistral"),
        (openai("dialect: 7"), "dialect"),
        (openai("max_tokens: output"), "max_tokens"),
        (openai("stream_options: maybe"), "stream_options"),
        (openai("return_thinking: sometimes"), "return_thinking"),
        (openai("cache: true"), "anthropic"),
        (provider("wire: anthropic, dialect: mistral"), "openai"),
        (openai("times: {idle: 0}"), "idle"),
        (openai("times: {idle: -1}"), "idle"),
        (openai("times: {whole: 90000}"), "whole"),
        (openai("times: {total: 1}"), "total"),
        (openai("headers: [x]"), "headers"),
        (openai("headers: {x: [1]}"), "headers.x"),
        (openai(&format!("headers: {{{}}}", many.join(", "))), "40"),
        (openai("headers: {x: \"${HOME}\"}"), "HOME"),
        (openai("query: {a: true}"), "query.a"),
        (openai("query: {a: \"${X_API_KEY}\"}"), "query.a"),
        (model("{temperature: \"${X_API_KEY}\"}"), "variable"),
        (model("{messages: []}"), "messages"),
        (model("{max_tokens: 5}"), "max_tokens"),
        (model("7"), "options"),
        (model(&format!("{{a: {}}}", "x".repeat(20_000))), "bytes"),
    ] {
        let table = ModelTable::load(Some(&text), EnvironmentSnapshot::default());
        let error = table.map(drop).expect_err(&text).to_string();
        assert!(error.contains(word), "{text}: {error}");
    }
}
