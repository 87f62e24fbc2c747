//! The choice of a summary by settings, front matter and summary directive.

use super::*;
use crate::error::ErrorKind;
use crate::settings::CoordinationSettings;
use threadkeep_units::coordination::{
    SUMMARY_DIRECTIVE, SUMMARY_MODEL, SUMMARY_SPEND, SUMMARY_TURNS,
};

fn directive(front: &str, body: &str) -> Result<Directive, Error> {
    let body = crate::json::to_text(body);
    Directive::parse(&format!(r#"{{"name":"d","body":{body},"front":{front}}}"#))
}

fn model(name: &str, priced: bool) -> Model {
    let prices = r#","prices":{"input":"1","output":"2"}"#;
    let prices = if priced { prices } else { "" };
    Model::parse(&format!(r#"{{"name":"{name}","provider":"p"{prices}}}"#)).unwrap()
}

#[test]
fn the_built_in_summary_is_that_of_the_table() {
    let text = |value: &str| format!("\"{value}\"");
    assert_eq!(text(BUILTIN_SUMMARY), SUMMARY_DIRECTIVE.default);
    assert_eq!(text(SUMMARY_TIER), SUMMARY_MODEL.default);
    assert_eq!(TURNS_DEFAULT.to_string(), SUMMARY_TURNS.default);
    assert_eq!(
        SPEND_DEFAULT,
        NanoUsd::parse(SUMMARY_SPEND.default).unwrap()
    );
    let inputs = r#"{"inputs":{"transcript_content":{"required":true},"max_summary_tokens":null}}"#;
    check_summary_directive(&directive(inputs, BUILTIN_BODY).unwrap()).unwrap();
    for section in [
        "Completed Work",
        "Pending Work",
        "Key Decisions",
        "Tool Results",
    ] {
        assert!(
            BUILTIN_BODY.contains(&format!("\n## {section}\n")),
            "{section}"
        );
    }
    assert!(BUILTIN_BODY.contains("It is data"));
}

#[test]
fn front_matter_overrides_the_settings() {
    let settings = CoordinationSettings::parse(Some(
        r#"{"coordination":{"continuation":{"summary_model":"m","summary_max_tokens":9}}}"#,
    ))
    .unwrap();
    let none = CoordinationSettings {
        summary_directive: None,
        ..settings.clone()
    };
    let builtin =
        |model: &str, tokens| Some((BUILTIN_SUMMARY.to_owned(), model.to_owned(), tokens));
    let by = |model: &str, tokens| Some(("own/brief".to_owned(), model.to_owned(), tokens));
    for (front, given, without) in [
        ("{}", builtin("m", 9), None),
        (r#"{"summary":false}"#, None, None),
        (r#"{"summary":null}"#, None, None),
        (r#"{"summary":{}}"#, builtin("m", 9), builtin("m", 9)),
        (
            r#"{"summary":{"tokens":5}}"#,
            builtin("m", 5),
            builtin("m", 5),
        ),
        (
            r#"{"summary":{"model":"x"}}"#,
            builtin("x", 9),
            builtin("x", 9),
        ),
        (
            r#"{"summary":{"directive":"own/brief"}}"#,
            by("m", 9),
            by("m", 9),
        ),
    ] {
        let directive = directive(front, "").unwrap();
        for (settings, expected) in [(&settings, given), (&none, without)] {
            let choice = settings.choose_summary(Some(&directive));
            let found = choice.map(|choice| {
                let model = choice.model_name(None).to_owned();
                (choice.directive, model, choice.tokens)
            });
            assert_eq!(found, expected, "{front}");
        }
    }
    assert_eq!(none.choose_summary(None), None);
    assert!(settings.choose_summary(None).unwrap().is_builtin());
}

#[test]
fn bad_front_matter_is_refused_by_field() {
    for (value, field) in [
        ("true", "directives/d.summary"),
        ("\"fast\"", "directives/d.summary"),
        ("[]", "directives/d.summary"),
        (r#"{"modle":"x"}"#, "directives/d.summary.modle"),
        (r#"{"model":4}"#, "directives/d.summary.model"),
        (r#"{"tokens":0}"#, "directives/d.summary.tokens"),
        (r#"{"tokens":"5"}"#, "directives/d.summary.tokens"),
        (r#"{"directive":"../up"}"#, "directives/d.summary.directive"),
    ] {
        let Err(ErrorKind::Invalid { field: at, .. }) =
            directive(&format!(r#"{{"summary":{value}}}"#), "").map_err(Error::into_kind)
        else {
            panic!("{value} is accepted")
        };
        assert_eq!(at, field, "{value}");
    }
}

#[test]
fn a_summary_directive_gives_prompt_model_and_caps() {
    let front = concat!(
        r#"{"model":"small","limits":{"turns":7,"spend":0.5},"#,
        r#""inputs":{"transcript_content":{"required":true},"max_summary_tokens":null}}"#
    );
    let body = "At most ${inputs.max_summary_tokens}:\n${inputs.transcript_content}\n$${x}";
    let own = directive(front, body).unwrap();
    let choice = CoordinationSettings::default()
        .choose_summary(None)
        .unwrap();
    assert_eq!(choice.model_name(Some(&own)), "small");
    let pinned = PinnedSummary::new(&choice, Some(&own), model("small", true)).unwrap();
    assert_eq!((pinned.turns, pinned.spend), (7, NanoUsd::new(500_000_000)));
    let said = pinned.render("they said ${inputs.max_summary_tokens}", 4_000);
    assert_eq!(
        said,
        "At most 4000:\nthey said ${inputs.max_summary_tokens}\n${x}"
    );
    let set = SummaryChoice {
        model: Some("m".to_owned()),
        turns: Some(2),
        spend: Some(NanoUsd::ZERO),
        ..choice
    };
    assert_eq!(set.model_name(Some(&own)), "m", "the settings come first");
    let pinned = PinnedSummary::new(&set, Some(&own), model("m", true)).unwrap();
    assert_eq!((pinned.turns, pinned.spend), (2, NanoUsd::ZERO));
    let stored = crate::json::to_text(&pinned);
    assert_eq!(crate::json::read::<PinnedSummary>(&stored).unwrap(), pinned);
}

#[test]
fn unusable_summary_directives_are_refused() {
    let choice = CoordinationSettings::default()
        .choose_summary(None)
        .unwrap();
    for (front, body, field) in [
        ("{}", "Summarize.", "directives/d"),
        (
            r#"{"inputs":{"transcript_content":null,"topic":{"default":"x"}}}"#,
            "${inputs.transcript_content} ${inputs.topic}",
            "directives/d.inputs.topic",
        ),
        (
            r#"{"inputs":{"transcript_content":null},"limits":{"turns":0}}"#,
            "${inputs.transcript_content}",
            "directives/d.limits.turns",
        ),
        (
            r#"{"inputs":{"transcript_content":null}}"#,
            "$${inputs.transcript_content}",
            "directives/d",
        ),
    ] {
        let own = directive(front, body).unwrap();
        let Err(ErrorKind::Invalid { field: at, .. }) =
            PinnedSummary::new(&choice, Some(&own), model("m", true)).map_err(Error::into_kind)
        else {
            panic!("{front} {body} is accepted")
        };
        assert_eq!(at, field);
    }
}

#[test]
fn the_own_model_stands_in_for_a_missing_tier() {
    let own = model("own", true);
    let choose = |name, found, unpriced| SummaryChoice::choose_model(name, found, &own, unpriced);
    let cheap = || Some(model("cheap", true));
    let free = || Some(model("free", false));
    assert_eq!(choose(SUMMARY_TIER, cheap(), false).unwrap().name, "cheap");
    assert_eq!(choose(SUMMARY_TIER, None, false).unwrap().name, "own");
    assert_eq!(choose(SUMMARY_TIER, free(), false).unwrap().name, "own");
    assert_eq!(choose(SUMMARY_TIER, free(), true).unwrap().name, "free");
    assert_eq!(choose("cheap", cheap(), false).unwrap().name, "cheap");
    assert!(choose("free", free(), false).is_err());
}
