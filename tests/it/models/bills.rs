//! The cost of a reply, to the nano-USD, wherever and however its server counts the tokens. A token
//! costs 1000 nano-USD to read and 2000 to write.

use super::judged_project::{JudgedProject, ProjectPlan};
use serde_json::{Value, json};
use threadkeep_tests::judge::{
    ServerAnswer, answer_in_order, chunk, finish_chunk, refuse, stream_reply, text_chunk,
    text_reply, usage_chunk,
};

/// Text of the replies with unbelievable usage.
const SENTENCE: &str = "Hello there, this is a whole sentence.";

/// Tokens of a failed attempt: 0.000054 USD.
const FAILED: [u64; 2] = [50, 2];

/// The usual project with a server that gives these answers.
fn project_of(answers: Vec<ServerAnswer>) -> JudgedProject {
    JudgedProject::new(&ProjectPlan::default(), answer_in_order(answers))
}

/// A whole reply with this usage in its last chunk.
fn reply_with(usage: &Value) -> ServerAnswer {
    let last = json!({"id": "c1", "choices": [], "usage": usage});
    stream_reply(&[text_chunk(SENTENCE), finish_chunk("stop"), last])
}

/// Runs a project whose only reply is `answer`, and checks the tokens and the cost of the run.
fn check_bill(place: &str, answer: ServerAnswer, [input, output]: [u64; 2], spend: &str) {
    let judged = project_of(vec![answer]);
    let document = judged.run();
    assert_eq!(document["status"], "completed", "{place}: {document}");
    let cost = json!({"turns": 1, "input_tokens": input, "output_tokens": output, "spend": spend});
    assert_eq!(document["cost"], cost, "{place}");
    assert_eq!(judged.spent_amount(), spend, "{place}");
}

/// Symptom: of 342 tokens that a model wrote 2 were charged. Cause: its server counts reasoning
/// beside the output, and others count it within. Fix: the total distinguishes the two. Kind: too
/// low a bill.
#[test]
fn reasoning_is_charged_whether_it_stands_beside_or_within_the_output() {
    let usage = |output: u64, total: u64, reasoning: Option<u64>| {
        let mut usage = json!({"prompt_tokens": 12, "completion_tokens": output,
            "total_tokens": total, "prompt_tokens_details": {"cached_tokens": 0}});
        if let Some(tokens) = reasoning {
            usage["completion_tokens_details"] = json!({"reasoning_tokens": tokens});
        }
        usage
    };
    for (place, usage, output, spend) in [
        ("beside", usage(2, 354, Some(340)), 342, "0.000696"),
        ("within", usage(342, 354, Some(340)), 342, "0.000696"),
        ("none", usage(2, 14, Some(0)), 2, "0.000016"),
        ("not named", usage(2, 354, None), 342, "0.000696"),
        ("not there", usage(2, 14, None), 2, "0.000016"),
        (
            "a total that is too small",
            usage(2, 0, None),
            2,
            "0.000016",
        ),
    ] {
        check_bill(place, reply_with(&usage), [12, output], spend);
    }
    let without_total = json!({"prompt_tokens": 12, "completion_tokens": 2});
    check_bill("no total", reply_with(&without_total), [12, 2], "0.000016");
}

/// Symptom: replies cost nothing, so no cap of money or tokens was ever reached. Cause: a gateway
/// reports zeros, and they were believed. Fix: impossible counts are ignored, and the reply costs
/// as much as one without usage. Kind: a bill from an empty report.
#[test]
fn impossible_token_counts_are_ignored() {
    let spend_of = |place: &str, answer: ServerAnswer| {
        let judged = project_of(vec![answer]);
        let document = judged.run();
        assert_eq!(document["status"], "completed", "{place}: {document}");
        let spend = judged.spent_amount();
        assert_eq!(document["cost"]["spend"], spend, "{place}");
        spend
    };
    let silent = stream_reply(&[text_chunk(SENTENCE), finish_chunk("stop")]);
    let unreported = spend_of("no usage", silent);
    assert_ne!(unreported, "0.00", "a reply is not free");
    let counts = |input: Value, output: Value| {
        let total = input.as_u64().unwrap_or(0) + output.as_u64().unwrap_or(0);
        json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": total})
    };
    for (place, usage) in [
        ("both zero", counts(json!(0), json!(0))),
        ("input zero", counts(json!(0), json!(12))),
        ("output zero beside text", counts(json!(100), json!(0))),
        ("input null", counts(Value::Null, json!(12))),
        ("output null", counts(json!(100), Value::Null)),
        ("input a text", counts(json!("many"), json!(12))),
        ("output a text", counts(json!(100), json!("many"))),
        ("input negative", counts(json!(-100), json!(12))),
        ("output negative", counts(json!(100), json!(-12))),
        ("an empty object", json!({})),
        ("null", Value::Null),
    ] {
        let spend = spend_of(place, reply_with(&usage));
        assert_eq!(spend, unreported, "{place}");
    }
}

/// Symptom: a reply was charged with its worst cost, though its usage was reported. Cause: only one
/// place was searched for usage. Fix: it counts in every place. Kind: too high a bill.
#[test]
fn usage_counts_wherever_it_stands() {
    let usage = json!({"prompt_tokens": 50, "completion_tokens": 2});
    let with_usage = |mut chunk: Value, place: &str| {
        chunk.pointer_mut(place).expect("an object")["usage"] = usage.clone();
        chunk
    };
    let whole = chunk(&json!({"content": "Hi"}), Some("stop"));
    let (text, end) = (text_chunk("Hi"), finish_chunk("stop"));
    let grown = json!({"id": "c1", "choices": [], "usage": usage});
    let begun = json!({"id": "c1", "choices": [],
        "usage": {"prompt_tokens": 50, "completion_tokens": 1}});
    for (place, chunks) in [
        (
            "in the choice",
            vec![with_usage(whole.clone(), "/choices/0")],
        ),
        ("in the only chunk", vec![with_usage(whole, "")]),
        (
            "before the last",
            vec![with_usage(text.clone(), ""), end.clone()],
        ),
        (
            "in the choice before",
            vec![with_usage(text.clone(), "/choices/0"), end.clone()],
        ),
        (
            "at the beginning",
            vec![grown.clone(), text.clone(), end.clone()],
        ),
        ("twice, growing", vec![begun, text, end, grown]),
    ] {
        check_bill(place, stream_reply(&chunks), FAILED, "0.000054");
    }
}

/// The beginning of a reply with its usage, for an attempt that fails behind it.
fn begun_attempt() -> ServerAnswer {
    let [input, output] = FAILED;
    ServerAnswer::stream().send_chunks(&[text_chunk("Half"), usage_chunk(input, output)])
}

/// Symptom: an attempt that failed was charged with its worst cost, though its usage came with the
/// error. Cause: only the error was read from its chunk. Fix: its usage is read first. Kind: too
/// high a bill.
#[test]
fn an_attempt_that_fails_is_charged_what_was_reported() {
    let usage = json!({"prompt_tokens": 50, "completion_tokens": 2, "total_tokens": 52});
    let error = json!({"message": "overloaded", "code": 503});
    let together = json!({"id": "c1", "choices": [], "error": error, "usage": usage});
    let begun = ServerAnswer::stream().send_chunk(&text_chunk("Half"));
    for (place, failing) in [
        ("in the chunk of the error", begun.send_chunk(&together)),
        (
            "before the error",
            begun_attempt().send_chunk(&json!({"error": error})),
        ),
        ("before the stream breaks", begun_attempt()),
    ] {
        let judged = project_of(vec![failing, text_reply("Done.")]);
        let document = judged.run();
        assert_eq!(document["result"], "Done.", "{place}: {document}");
        // 0.000054 and 0.00012 USD.
        assert_eq!(document["cost"]["spend"], "0.000174", "{place}");
        assert_eq!(judged.spent_amount(), "0.000174", "{place}");
    }
}

/// Symptom: the same failure was paid four times. Cause: a failure that the request itself causes
/// counted as transient. Fix: after the same paid failure twice in a row there is no third attempt.
/// Kind: repeated bills.
#[test]
fn the_same_paid_failure_is_not_asked_a_third_time() {
    let error = json!({"error": {"message": "the template cannot be applied", "code": 500}});
    for (place, failing) in [
        (
            "a broken chunk",
            begun_attempt().send_bytes("data: {\"broken\n\n"),
        ),
        ("no end", begun_attempt()),
        ("an error", begun_attempt().send_chunk(&error)),
    ] {
        let judged = project_of(vec![failing]);
        let document = judged.run();
        assert_eq!(document["status"], "suspended", "{place}: {document}");
        assert_eq!(judged.server.requests().len(), 2, "{place}");
        assert_eq!(judged.spent_amount(), "0.000108", "{place}");
    }
}

/// Symptom: a model that costs nothing was refused where there was no money. Cause: another system
/// checked the budget before the price. Fix: the hold is the price. Kind: a call that needs no
/// money.
#[test]
fn a_free_model_needs_no_money() {
    for usage in [
        json!({"prompt_tokens": 100, "completion_tokens": 10}),
        Value::Null,
    ] {
        let plan = ProjectPlan {
            prices: ["0", "0"],
            limits: "turns: 3, spend: 0",
            ..ProjectPlan::default()
        };
        let judged = JudgedProject::new(&plan, answer_in_order(vec![reply_with(&usage)]));
        let document = judged.run();
        assert_eq!(document["status"], "completed", "{usage}: {document}");
        assert_eq!(judged.spent_amount(), "0.00", "{usage}");
    }
    let plan = ProjectPlan {
        limits: "turns: 3, spend: 0",
        ..ProjectPlan::default()
    };
    let judged = JudgedProject::new(&plan, answer_in_order(vec![text_reply("Done.")]));
    let document = judged.run();
    assert_eq!(document["cause"]["code"], "spend_exceeded", "{document}");
    assert!(judged.server.requests().is_empty(), "the other does");
}

/// Symptom: a request that is larger than a limit per minute was repeated again and again. Cause:
/// another system believed the rate limit's code, whatever the status. Fix: the status decides, and
/// the provider's sentence is shown. Kind: a refusal that no waiting helps.
#[test]
fn a_request_above_a_limit_a_minute_is_asked_once() {
    let message = "Request too large on tokens per minute (TPM): Limit 6000, Requested 7012";
    let error = json!({"message": message, "type": "tokens", "code": "rate_limit_exceeded"});
    let refusal = refuse(413, &json!({"error": error})).with_header("retry-after", "1");
    let judged = project_of(vec![refusal]);
    let document = judged.run();
    assert_eq!(document["status"], "suspended", "{document}");
    let told = document["cause"]["message"].as_str().expect("a sentence");
    assert!(told.contains("Requested 7012"), "{told}");
    assert_eq!(judged.server.requests().len(), 1);
    assert_eq!(judged.spent_amount(), "0.00", "a refusal costs nothing");
}

/// Whole streams as real servers send them, each with its bill.
fn recorded_streams() -> [(&'static str, ServerAnswer, [u64; 2], &'static str); 4] {
    let part = |delta: Value| chunk(&delta, None);
    let xai = |delta: Value, usage: Value| {
        json!({"id": "x", "model": "grok", "choices":
        [{"index": 0, "delta": delta, "finish_reason": null}], "usage": usage})
    };
    let grows = |output: u64| {
        json!({"prompt_tokens": 21, "completion_tokens": output, "total_tokens": 21 + 320 + output,
            "prompt_tokens_details": {"text_tokens": 21, "cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 320,
                "accepted_prediction_tokens": 0}})
    };
    let said = |text: &str| json!({"role": "assistant", "content": text});
    let thought = |text: &str| {
        json!({"content": [{"type": "thinking", "thinking": [{"type": "text",
        "text": text}]}]})
    };
    let gemini = json!({"id": "g", "choices": [{"index": 0, "delta": {"content": "Four."},
        "finish_reason": "stop"}], "usage": {"prompt_tokens": 9, "completion_tokens": 3,
        "total_tokens": 112}});
    [
        (
            // A usage that grows in every chunk, reasoning beside it, and a part of the input
            // cached.
            "xAI",
            stream_reply(&[
                xai(
                    json!({"role": "assistant", "reasoning_content": "Two and two."}),
                    grows(0),
                ),
                xai(said("It is "), grows(1)),
                xai(said("four."), grows(3)),
                json!({"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
                    "usage": grows(3)}),
            ]),
            [21, 323],
            "0.000667",
        ),
        (
            // Thinking as lists within a list, and the usage beside the finish reason.
            "Mistral reasoning",
            stream_reply(&[
                part(json!({"role": "assistant", "content": ""})),
                part(thought("Two and ")),
                part(thought("two.")),
                part(json!({"content": [{"type": "text", "text": "Four."}]})),
                json!({"id": "m", "choices": [{"index": 0, "delta": {"content": ""},
                    "finish_reason": "stop"}], "usage": {"prompt_tokens": 15,
                    "total_tokens": 60, "completion_tokens": 45}}),
            ]),
            [15, 45],
            "0.000105",
        ),
        (
            // Never a finish reason; only the usage and the end mark.
            "Snowflake Cortex",
            stream_reply(&[
                part(said("Fo")),
                part(json!({"content": "ur."})),
                json!({"id": "s", "choices": [], "usage": {"prompt_tokens": 22,
                    "completion_tokens": 5, "total_tokens": 27}}),
            ]),
            [22, 5],
            "0.000032",
        ),
        // One chunk, and reasoning that only the total includes.
        ("Gemini", stream_reply(&[gemini]), [9, 103], "0.000215"),
    ]
}

#[test]
fn streams_as_servers_send_them_are_billed_to_the_nano() {
    for (server, answer, tokens, spend) in recorded_streams() {
        check_bill(server, answer, tokens, spend);
    }
}
