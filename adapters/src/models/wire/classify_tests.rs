//! The kind and code of every fault.

use super::*;
use FailureKind::{Permanent, Transient};

fn check(fault: ExchangeFault, kind: FailureKind, code: &str, sent: bool) {
    let got = classify(&fault, "http://host/v1");
    assert_eq!(
        (got.kind, got.code.as_str(), got.sent),
        (kind, code, sent),
        "{fault:?}"
    );
}

fn provider_error(code: &str, r#type: &str, message: &str) -> ProviderError {
    ProviderError {
        code: code.into(),
        r#type: r#type.into(),
        message: message.into(),
        param: String::new(),
    }
}

/// Columns: status, the provider's words, kind, code.
const STATUSES: &str = "
    302  -                                permanent         http_302
    400  -                                permanent         http_400
    400  type:invalid_request_error       permanent         http_400
    400  code:context_length_exceeded     context-overflow  context_length_exceeded
    400  type:exceed_context_size_error   context-overflow  context_length_exceeded
    400  too_long                         context-overflow  context_length_exceeded
    413  -                                permanent         http_413
    413  code:context_length_exceeded     context-overflow  context_length_exceeded
    401  code:invalid_api_key             permanent         http_401
    402  -                                quota             http_402
    403  -                                permanent         http_403
    404  code:model_not_found             permanent         http_404
    408  -                                transient         http_408
    409  -                                transient         http_409
    422  -                                permanent         http_422
    425  -                                transient         http_425
    429  code:rate_limit_exceeded         rate-limited      http_429
    429  too_long                         rate-limited      http_429
    429  code:insufficient_quota          quota             insufficient_quota
    429  type:insufficient_quota          quota             insufficient_quota
    500  -                                transient         http_500
    500  code:context_length_exceeded     transient         http_500
    502  -                                transient         http_502
    503  type:overloaded_error            transient         http_503
    504  -                                transient         http_504
    529  type:overloaded_error            transient         http_529
    400  no_room                          context-overflow  context_length_exceeded
    400  poor                             quota             insufficient_quota
    400  capped                           quota             insufficient_quota
    402  type:billing_error               quota             insufficient_quota
    413  type:request_too_large           permanent         http_413
    429  type:rate_limit_error            rate-limited      http_429
    500  type:api_error                   transient         http_500
";

/// The same for errors inside a stream, which have no status.
const STREAM_ERRORS: &str = "
    -  -                                  transient         stream_error
    -  type:server_error                  transient         stream_error
    -  code:502                           transient         stream_error
    -  code:429                           rate-limited      stream_error
    -  code:rate_limit_exceeded           rate-limited      stream_error
    -  type:invalid_request_error         permanent         stream_error
    -  code:403                           permanent         stream_error
    -  code:200                           transient         stream_error
    -  type:overloaded_error              transient         stream_error
    -  type:api_error                     transient         stream_error
    -  type:timeout_error                 transient         stream_error
    -  type:rate_limit_error              rate-limited      stream_error
    -  type:authentication_error          permanent         stream_error
    -  type:permission_error              permanent         stream_error
    -  type:not_found_error               permanent         stream_error
    -  type:request_too_large             permanent         stream_error
    -  type:billing_error                 quota             insufficient_quota
    -  no_room                            context-overflow  context_length_exceeded
    -  code:insufficient_quota            quota             insufficient_quota
    -  code:context_length_exceeded       context-overflow  context_length_exceeded
";

#[test]
fn refusals() {
    for row in STATUSES
        .lines()
        .chain(STREAM_ERRORS.lines())
        .filter(|row| !row.trim().is_empty())
    {
        let cells: Vec<&str> = row.split_whitespace().collect();
        let [status, said, kind, code] = cells[..] else {
            panic!("{row}")
        };
        let said = match said.split_once(':') {
            Some(("code", word)) => provider_error(word, "", ""),
            Some((_, word)) => provider_error("", word, ""),
            None if said == "too_long" => {
                provider_error("400", "", "The maximum context length is 4096.")
            }
            None if said == "no_room" => provider_error(
                "",
                "",
                "prompt and `max_tokens` exceed context limit: 9 > 8",
            ),
            None if said == "poor" => {
                provider_error("", "", "Your credit balance is too low to go on.")
            }
            None if said == "capped" => {
                provider_error("", "", "You have reached your specified API usage limits.")
            }
            None => ProviderError::default(),
        };
        let fault = match status.parse() {
            Ok(status) => ExchangeFault::Status {
                status,
                said,
                retry_after: None,
                location: None,
            },
            Err(_) => ExchangeFault::StreamError(said),
        };
        let got = classify(&fault, "http://host/v1");
        assert_eq!(
            (got.kind.as_str(), got.code.as_str(), got.sent),
            (kind, code, true),
            "{row}"
        );
    }
}

/// Sentences of servers about a request that is larger than the window. Those of a further fifteen
/// are sent by a server in the tests of errors.
const OVERFLOW_ANSWERS: [&str; 21] = [
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 \
     tokens. Please reduce the length of the messages.",
    "prompt is too long: 208310 tokens > 200000 maximum",
    "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input \
     length or `max_tokens` and try again",
    "Please reduce the length of the messages or completion. Current length is 9000 while limit is \
     8192",
    "The decoder prompt (length 9000) is longer than the maximum model length of 8192.",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 \
     `inputs` tokens and 100 `max_new_tokens`",
    "Input validation error: `inputs` must have less than 1024 tokens. Given: 2000",
    "Prompt length (9000) exceeds maximum input length (8192)",
    "Input Tokens Exceeded: Number of input tokens exceeds maximum length. Please update the input",
    "Input length 34784 exceeds the maximum length 32768.",
    "length of prompt_tokens (9000) must be less than max_seq_len (8192).",
    "Prompt length 9000 is greater than max_seq_len 8192",
    "Request body too large for gpt-4o model. Max size: 8000 tokens.",
    "prompt tokens too long",
    "The estimated number of input and maximum output tokens (5000) exceeded this model context \
     window limit (4096).",
    "Trying to keep the first 6234 tokens when context the overflows. However, the model is loaded \
     with context length of only 4096 tokens, which is not enough.",
    "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000",
    "Requested token count exceeds the model's maximum context length of 8192 tokens.",
    "prompt too long; exceeded max context length by 120 tokens",
    "Requested tokens (9000) exceed context window of 2048",
    "litellm.ContextWindowExceededError: the prompt is too long",
];

/// Sentences about something else that name a size.
const OTHER_ANSWERS: [&str; 6] = [
    "tools[0].function.description exceeds the maximum length of 1024 characters",
    "max_tokens is too large: 1000. This model supports at most 512 completion tokens.",
    "Request too large on tokens per minute (TPM): Limit 6000, Requested 7012",
    "tools.0.name exceeds 64 characters",
    "max_new_tokens must be <= 4096",
    "The image exceeds the maximum size of 5 MB",
];

#[test]
fn a_full_window_is_known_by_its_words() {
    let kind_of = |status: u16, message: &str| {
        let said = provider_error("", "invalid_request_error", message);
        let fault = ExchangeFault::Status {
            status,
            said,
            retry_after: None,
            location: None,
        };
        classify(&fault, "http://host/v1").kind
    };
    for message in OVERFLOW_ANSWERS {
        for status in [400, 413, 422] {
            let kind = kind_of(status, message);
            assert_eq!(kind, FailureKind::ContextOverflow, "{status}: {message}");
        }
        // Inside a stream, and in upper case.
        let said = provider_error("", "", &message.to_uppercase());
        let kind = classify(&ExchangeFault::StreamError(said), "").kind;
        assert_eq!(kind, FailureKind::ContextOverflow, "{message}");
    }
    for message in OTHER_ANSWERS {
        assert_eq!(kind_of(400, message), Permanent, "{message}");
    }
}

#[test]
fn everything_else() {
    let wait = Duration::from_secs(1);
    let connect = ExchangeFault::Connect {
        problem: "refused".into(),
    };
    let schema = ExchangeFault::Encode(EncodeError::Schema("t".into()));
    check(
        ExchangeFault::Encode(EncodeError::Message(3)),
        Permanent,
        "request_unreadable",
        false,
    );
    check(
        ExchangeFault::Encode(EncodeError::Misplaced(3)),
        Permanent,
        "request_unreadable",
        false,
    );
    check(schema, Permanent, "request_unreadable", false);
    check(
        ExchangeFault::Encode(EncodeError::TooLarge),
        Permanent,
        "request_too_large",
        false,
    );
    check(connect, Transient, "connect", false);
    check(ExchangeFault::OutOfReach, Permanent, "out_of_reach", false);
    let problem = "expired".to_owned();
    check(
        ExchangeFault::Certificate { problem },
        Permanent,
        "certificate",
        false,
    );
    check(ExchangeFault::NoTls, Permanent, "no_tls", false);
    check(ExchangeFault::TlsFailed, Permanent, "tls", false);
    check(ExchangeFault::Timeout(wait), Transient, "timeout", true);
    check(ExchangeFault::Disconnected, Transient, "disconnected", true);
    check(
        ExchangeFault::NotAStream(ProviderError::default()),
        Permanent,
        "not_a_stream",
        true,
    );
    check(ExchangeFault::BadChunk, Transient, "bad_chunk", true);
    check(ExchangeFault::TooLarge, Permanent, "reply_too_large", true);
    check(ExchangeFault::Stalled(wait), Transient, "stalled", true);
    check(
        ExchangeFault::Unfinished,
        Transient,
        "stream_unfinished",
        true,
    );
    check(
        ExchangeFault::CallsMissing,
        Transient,
        "calls_missing",
        true,
    );
}

#[test]
fn waits_are_passed_on_and_capped() {
    let fault = |wait| ExchangeFault::Status {
        status: 503,
        said: ProviderError::default(),
        retry_after: Some(wait),
        location: None,
    };
    let wait = |seconds| classify(&fault(Duration::from_secs(seconds)), "").retry_after;
    assert_eq!(wait(2), Some(Duration::from_secs(2)));
    assert_eq!(wait(1 << 40), Some(RETRY_AFTER_MAX));
}

#[test]
fn retry_after_in_every_form() {
    let now: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    for (ms, after, sent_at, want) in [
        ("", "", "", None),
        ("1500", "9", "", Some(1_500)),
        ("0.5", "", "", Some(0)),
        ("soon", "2", "", Some(2_000)),
        ("", "0", "", Some(0)),
        ("", "1.25", "", Some(1_250)),
        ("", "-1", "", None),
        ("", "NaN", "", None),
        ("", "1e300", "", None),
        ("", "later", "", None),
        ("", "Thu, 01 Jan 2026 00:00:30 GMT", "", Some(30_000)),
        ("", "Wed, 31 Dec 2025 23:59:00 GMT", "", Some(0)),
        (
            "",
            "Thu, 01 Jan 2026 00:00:30 GMT",
            "Thu, 01 Jan 2026 00:00:20 GMT",
            Some(10_000),
        ),
    ] {
        let header = |name: &str| {
            let value = match name {
                "retry-after-ms" => ms,
                "retry-after" => after,
                _ => sent_at,
            };
            (!value.is_empty()).then(|| value.to_owned())
        };
        let got = parse_retry_after(header, now).map(|wait| wait.as_millis());
        assert_eq!(got, want, "{ms:?} {after:?} {sent_at:?}");
    }
}

#[test]
fn a_person_is_told_what_to_try() {
    let status = |status, location: Option<&str>| ExchangeFault::Status {
        status,
        said: ProviderError::default(),
        retry_after: None,
        location: location.map(str::to_owned),
    };
    let certificate = ExchangeFault::Certificate {
        problem: "expired".into(),
    };
    for (fault, path, advised) in [
        (status(404, None), "/chat/completions", "/v1"),
        (status(405, None), "/v1/chat/completions", "model"),
        (status(308, Some("https://x/v1")), "/", "base_url"),
        (status(401, None), "/", "key"),
        (
            ExchangeFault::NotAStream(ProviderError::default()),
            "/",
            "/v1",
        ),
        (certificate, "/", "authority"),
        (ExchangeFault::OutOfReach, "/", "private: true"),
        (status(500, None), "/", ""),
        (ExchangeFault::BadChunk, "/", ""),
    ] {
        let advice = advice(&fault, path).unwrap_or_default();
        assert_eq!(advice.is_empty(), advised.is_empty(), "{fault:?}: {advice}");
        assert!(advice.contains(advised), "{fault:?}: {advice}");
    }
    let away = status(302, Some("https://x/v1?key=secret\u{1b}#y"));
    let sentence = classify(&away, "http://host/v1").sentence;
    assert_eq!(
        sentence,
        "the provider answered http://host/v1 with status 302 and a redirect to https://x/v1"
    );
}
