//! The measure of a window: its bounds, and how it follows what a provider reports.

use super::*;
use crate::estimate::estimate_tokens;
use crate::json;
use crate::limits::{CAP_MAX, ThreadCaps};
use crate::settings::{Model, PinnedContinuation};
use crate::thread::FORMAT;
use proptest::prelude::*;

fn pin(window: u64, trigger: Option<u64>) -> PinnedSettings {
    let model = format!(r#"{{"name":"m","provider":"p","window":{window}}}"#);
    let settings = CoordinationSettings::default();
    PinnedSettings {
        format: FORMAT,
        prompt: String::new(),
        model: Model::parse(&model).unwrap(),
        tools: Vec::new(),
        limits: ThreadCaps::NONE,
        capabilities: Vec::new(),
        continuation: trigger.map(|trigger| PinnedContinuation {
            trigger,
            ..PinnedContinuation::new(&settings, None)
        }),
        approvals: Vec::new(),
    }
}

/// A head as a program before these counts has stored it.
fn earlier_head(context: u64) -> Head {
    let text = format!(
        concat!(
            r#"{{"format":1,"status":"idle","cause":null,"run":1,"token":1,"holder":null,"#,
            r#""expiry":null,"request":null,"due":null,"recency":0,"step":null,"round":null,"#,
            r#""hold":null,"counters":{{"turns":0,"usage":{{"input":0,"output":0,"read":0,"#,
            r#""write":0,"reasoning":0}},"spend":0,"duration":0,"run_turns":0,"run_tokens":0,"#,
            r#""run_duration":0}},"bad_rounds":0,"lost":0,"context":{},"prefix":"","version":1,"#,
            r#""hash":"","intent":null,"mail_from":0,"mail_to":0,"limits":{{"turns":null,"#,
            r#""tokens":null,"spend":null,"spawns":null,"depth":null,"duration":null}},"#,
            r#""session":null,"updated":{{"seconds":0,"nanos":0}}}}"#
        ),
        context
    );
    json::read(&text).unwrap()
}

#[test]
fn a_thread_is_over_its_trigger_by_tokens_or_bytes() {
    let half = pin(1_000, Some(500_000));
    for (tokens, bytes, over) in [
        (0, 0, false),
        (499, 0, false),
        (500, 0, true),
        (u64::MAX, 0, true),
        (0, WINDOW_BYTES_MAX - 1, false),
        (0, WINDOW_BYTES_MAX, true),
    ] {
        let mut head = earlier_head(tokens);
        head.window_bytes = bytes;
        let usage = ContextUsage::new(&head, &half);
        assert_eq!(usage.is_over_trigger(), over, "{tokens} {bytes}");
    }
    for (window, trigger, expected) in [
        (1_000, None, 900),
        (1_001, None, 901),
        (1, Some(10_000), 1),
        (CAP_MAX, Some(MILLION), CAP_MAX),
    ] {
        let usage = ContextUsage::new(&earlier_head(0), &pin(window, trigger));
        assert_eq!(usage.trigger, expected, "{window} {trigger:?}");
    }
}

#[test]
fn usage_is_told_as_json() {
    let mut head = earlier_head(0);
    assert_eq!(
        usage_json(&head, None),
        concat!(
            r#"{"tokens":0,"window":null,"trigger":null,"ratio":null,"over":false,"#,
            r#""estimated":0,"bytes":0,"bytes_max":8388608}"#
        )
    );
    head.add_to_window("twelve bytes", false);
    head.anchor_context(250);
    assert_eq!(
        usage_json(&head, Some(&pin(1_000, Some(250_000)))),
        concat!(
            r#"{"tokens":250,"window":1000,"trigger":250,"ratio":250000,"over":true,"#,
            r#""estimated":3,"bytes":12,"bytes_max":8388608}"#
        )
    );
}

/// Counts that an earlier program has not kept begin at what it knew, so one new text does not look
/// like the whole conversation.
#[test]
fn an_earlier_head_begins_at_its_tokens() {
    let mut head = earlier_head(4_000);
    head.add_to_window(&"x".repeat(400), false);
    assert_eq!(
        (head.context, head.estimated, head.window_bytes),
        (4_100, 4_100, 16_400)
    );
}

/// One message of a random conversation, and whether the provider reports after it.
fn message() -> impl Strategy<Value = (String, bool)> {
    let text = prop_oneof!["[ -~]{40,400}", "[а-я ]{40,200}", "[一-龥]{40,200}"];
    (text, any::<bool>())
}

proptest! {
    /// For each way to count a text (half to four times the estimate), the count is exact
    /// where it reports, and between two reports it is off by no more than the provider's own count
    /// differs from text to text.
    #[test]
    fn counts_follow_the_reports_of_a_provider(
        messages in prop::collection::vec(message(), 1..40),
        (numerator, denominator) in (2_u64..=8, 2_u64..=4),
    ) {
        let real = |text: &str| (estimate_tokens(text) * numerator).div_ceil(denominator);
        let mut head = earlier_head(0);
        let (mut counted, mut estimated, mut bytes, mut reported) = (0, 0, 0, false);
        for (text, reports) in &messages {
            counted += real(text);
            estimated += estimate_tokens(text);
            bytes += text.len() as u64;
            head.add_to_window(text, false);
            if *reports {
                head.anchor_context(counted);
                reported = counted > 0;
            }
            prop_assert_eq!((head.estimated, head.window_bytes), (estimated, bytes));
            // Each text has 10 tokens or more and is rounded to whole ones, so the scale is off by
            // a fifth at most.
            let slack = 2 * messages.len() as u64;
            if reported {
                prop_assert!(head.context.abs_diff(counted) <= slack + counted / 5);
            } else {
                prop_assert_eq!(head.context, estimated);
            }
        }
    }
}
