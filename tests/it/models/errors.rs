//! Errors of refused calls: their kind, the provider's own sentence in whichever form it comes, and
//! the address where the address is wrong.

use super::judged_project::{JudgedProject, ProjectPlan};
use serde_json::{Value, json};
use std::net::TcpListener;
use threadkeep_tests::judge::{ServerAnswer, answer_in_order, refuse, text_reply};

/// Runs a project whose server gives this answer each time; returns the cause that suspends the
/// run.
fn cause_of(place: &str, plan: &ProjectPlan<'_>, answer: ServerAnswer) -> Value {
    let judged = JudgedProject::new(plan, answer_in_order(vec![answer]));
    let document = judged.run();
    assert_eq!(document["status"], "suspended", "{place}: {document}");
    document["cause"].clone()
}

/// Error bodies of many kinds of servers, each for a request that is larger than the window.
fn overflows() -> [Value; 15] {
    let said = |message: &str| json!({"error": {"message": message}});
    let typed = |message: &str, kind: &str| json!({"error": {"message": message, "type": kind}});
    let coded = |message: &str, code: Value| json!({"error": {"message": message, "code": code}});
    let listed =
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).";
    let flat =
        "Prompt contains 40000 tokens, too large for model with 32768 maximum context length";
    [
        json!([{"error": {"code": 400, "message": listed, "status": "INVALID_ARGUMENT"}}]),
        json!({"code": "invalid-argument", "error": "This model's maximum prompt length is 131072 \
            but the request contains 537812 tokens."}),
        typed(
            "Your input exceeds the context window of this model.",
            "invalid_request_error",
        ),
        typed(
            "You passed 4097 input tokens and requested 1 output tokens. However, the model's \
             context length is only 4096 tokens.",
            "BadRequestError",
        ),
        said("The input (9000 tokens) is longer than the model's context length (4096 tokens)."),
        said("Your request exceeded model token limit: 262144 (requested: 300000)"),
        coded(
            "Range of input length should be [1, 129024]",
            json!("invalid_parameter_error"),
        ),
        coded("Prompt exceeds max length", json!("1261")),
        said("Input is too long for requested model."),
        said("invalid params, context window exceeds limit"),
        json!({"error": "The number of tokens to keep from the initial prompt is greater than the \
            context length"}),
        coded(
            "prompt token count of 140000 exceeds the limit of 128000",
            json!("model_max_prompt_tokens_exceeded"),
        ),
        json!({"object": "error", "message": flat, "code": "3051"}),
        coded(
            "This endpoint's maximum context length is 4096 tokens.",
            json!(400),
        ),
        typed(
            "the request exceeds the available context size",
            "exceed_context_size_error",
        ),
    ]
}

/// Symptom: a full window was classified as a bad request. Cause: the wording of a few servers was
/// known. Fix: that of many is. Kind: the classification of a refusal.
#[test]
fn a_full_window_is_known_by_the_words_of_each_server() {
    for body in overflows() {
        let place = body.to_string();
        let cause = cause_of(&place, &ProjectPlan::default(), refuse(400, &body));
        assert_eq!(
            cause["code"], "provider_context_overflow",
            "{place}: {cause}"
        );
    }
}

/// Symptom, cause and fix as above. Kind: refusals that mention a size and are about something
/// else.
#[test]
fn words_of_size_alone_are_no_full_window() {
    let rate = "Rate limit reached on tokens per minute (TPM): Limit 6000, Used 5990, Requested 70";
    let output =
        "max_tokens is too large: 1000. This model supports at most 512 completion tokens.";
    for (status, message, code) in [
        (429, rate, "provider_rate_limited"),
        (400, output, "provider_permanent"),
        (400, "the name of a tool is too long", "provider_permanent"),
        (401, "the token is too long", "provider_permanent"),
    ] {
        let body = json!({"error": {"message": message, "code": "refused"}});
        let cause = cause_of(message, &ProjectPlan::default(), refuse(status, &body));
        assert_eq!(cause["code"], code, "{message}: {cause}");
    }
}

/// Runs a project whose server refuses with this answer and status 400, and checks that the cause
/// repeats this sentence.
fn check_sentence(place: &str, answer: ServerAnswer, sentence: &str) {
    let cause = cause_of(place, &ProjectPlan::default(), answer);
    let message = cause["message"].as_str().expect("a sentence");
    assert!(message.contains(sentence), "{place}: {message}");
    assert!(message.contains("400"), "{place}: {message}");
    assert!(!message.contains('<'), "{place}: {message}");
}

/// Symptom: a wrong key read as `status 400` and nothing else. Cause: one form of error bodies was
/// known. Fix: the provider's sentence is found in each. Kind: a lost reason.
#[test]
fn the_sentence_of_the_provider_is_told_whatever_document_holds_it() {
    let listed = json!({"error": {"code": 400, "message": "API key not valid.",
        "status": "INVALID_ARGUMENT"}});
    let fault = json!({"type": "extra_forbidden", "loc": ["body", "stream_options"],
        "msg": "Extra inputs are not permitted"});
    let nested = json!({"object": "error", "message": {"detail": [fault]}, "code": null,
        "type": "invalid_request_error"});
    let not_permitted = "Extra inputs are not permitted";
    for (place, body, sentence) in [
        ("a list", json!([listed]), "API key not valid."),
        ("a message that is an object", nested.clone(), not_permitted),
        (
            "the same in an error",
            json!({"error": nested}),
            not_permitted,
        ),
        (
            "an error whose message is an object",
            json!({"error": {"message": {"detail": "no such deployment"}}}),
            "no such deployment",
        ),
        (
            "a list of details",
            json!({"detail": [{"loc": ["body", "x"], "msg": "field required"}]}),
            "field required",
        ),
        (
            "a detail",
            json!({"detail": "Unauthorized: no such key"}),
            "no such key",
        ),
        (
            "a message",
            json!({"message": "too many tools"}),
            "too many tools",
        ),
        (
            "a list of errors",
            json!({"errors": [{"message": "no such route"}]}),
            "no such route",
        ),
        (
            "an error that is a text",
            json!({"error": "it is down"}),
            "it is down",
        ),
    ] {
        check_sentence(place, refuse(400, &body), sentence);
    }
}

/// Symptom, cause and fix as above. Kind: a reason outside of any JSON document.
#[test]
fn the_sentence_of_a_server_that_sends_text_or_a_page_is_told() {
    let page = "<!DOCTYPE html>\n<html><head><style>p { margin: 0 }</style>\n\
        <title>Access denied by the gateway</title></head><body><p>Ray 17</p></body></html>";
    for (content_type, body, sentence) in [
        ("text/plain", "404 page not found\n", "page not found"),
        ("application/json", "upstream is gone", "upstream is gone"),
        (
            "text/html; charset=utf-8",
            page,
            "Access denied by the gateway",
        ),
    ] {
        let answer = ServerAnswer::new(400, content_type).send_bytes(body);
        check_sentence(content_type, answer, sentence);
    }
}

/// Symptom: a user whose `base_url` lacked `/v1` read `status 404`. Cause: neither the address nor
/// a remedy was shown. Fix: both are. Kind: an address that is not quite right.
#[test]
fn an_address_without_its_version_is_told_with_a_hint() {
    let plan = ProjectPlan {
        base_path: Some(""),
        ..ProjectPlan::default()
    };
    for (status, body) in [
        (404, "404 page not found"),
        (405, "Method Not Allowed"),
        (404, ""),
    ] {
        let judged = JudgedProject::new(&plan, move |_, _, path| {
            if path.starts_with("/v1/") {
                text_reply("Done.")
            } else {
                ServerAnswer::new(status, "text/plain").send_bytes(body)
            }
        });
        let document = judged.run();
        assert_eq!(document["status"], "suspended", "{status}: {document}");
        let message = document["cause"]["message"].as_str().expect("a sentence");
        let asked = format!("http://{}/chat/completions", judged.server.address());
        for words in [asked.as_str(), "/v1", body] {
            assert!(message.contains(words), "{status}, {words}: {message}");
        }
        assert_eq!(judged.server.requests().len(), 1, "{status}");
    }
}

/// Symptom: an address that had moved was reported as a status. Cause: redirects are not followed,
/// and their target was not shown. Fix: it is. Kind: an address that is not quite right.
#[test]
fn a_redirect_is_told_with_where_it_leads() {
    for status in [301, 302, 307, 308] {
        for place in [
            "https://elsewhere.test/v1/chat/completions",
            "/api/v1/chat/completions",
        ] {
            let answer = ServerAnswer::new(status, "text/plain").with_header("location", place);
            let cause = cause_of(place, &ProjectPlan::default(), answer);
            let message = cause["message"].as_str().expect("a sentence");
            assert!(message.contains(place), "{status}: {message}");
            assert_eq!(cause["code"], "provider_permanent", "{status}: {message}");
        }
    }
}

/// Symptom: a server that was not started read as `connection refused` and nothing else. Cause: the
/// address was not shown. Fix: it is. Kind: an address that is not quite right.
#[test]
fn a_connection_that_is_refused_is_told_with_its_address() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    drop(listener);
    let project = ProjectPlan::default().make_project(&address);
    let document = project.json(&["run", "go", "--id", "t"]);
    assert_eq!(document["status"], "suspended", "{document}");
    let message = document["cause"]["message"].as_str().expect("a sentence");
    assert!(message.contains(&address), "{message}");
    assert!(message.contains("refused"), "{message}");
}

/// Symptom: in another system a directive vanished silently. Cause: a colon in text without quotes
/// is no YAML. Fix: it is refused with file, line and advice. Kind: front matter that people write
/// by hand.
#[test]
fn a_colon_in_unquoted_text_is_told_with_its_line() {
    let judged = JudgedProject::new(
        &ProjectPlan::default(),
        answer_in_order(vec![text_reply("Done.")]),
    );
    let project = &judged.project;
    for (line, exit) in [
        ("description: Looks for faults. Examples: one that fails", 1),
        ("description: Use it when: a test fails", 1),
        (
            "description: \"Looks for faults. Examples: one that fails\"",
            0,
        ),
        ("description: Looks for faults at 10:30", 0),
    ] {
        let directive = format!("---\nname: hunt\n{line}\n---\nLook.\n");
        project.write(".ai/directives/hunt.md", &directive);
        let document = project.json(&["run", "hunt"]);
        assert_eq!(document["exit"], exit, "{line}: {document}");
        let message = document["error"]["message"].as_str().unwrap_or_default();
        assert_eq!(
            message.contains("hunt.md:3"),
            exit == 1,
            "{line}: {message}"
        );
        let missing = project.json(&["doctor"])["missing"].to_string();
        assert_eq!(missing.contains("hunt.md"), exit == 1, "{line}: {missing}");
    }
}
