//! Request bodies that conversations make.

use super::*;
use crate::models::wire::normal_form::REQUEST_BYTES_MAX;
use crate::models::{RequestImage, RequestImages};
use serde_json::json;

fn request(messages: &[&str]) -> CompletionRequest {
    CompletionRequest {
        model: "m-1".into(),
        system: "Be brief.".into(),
        tools: Vec::new(),
        messages: messages.iter().map(|text| (*text).to_owned()).collect(),
        images: Default::default(),
        output_max: 100,
        session: None,
    }
}

fn encode_body(request: &CompletionRequest, cache: bool) -> Result<Vec<u8>, EncodeError> {
    encode(request, "p", cache, &Map::new())
}

fn body(request: &CompletionRequest) -> String {
    String::from_utf8(encode_body(request, true).unwrap()).unwrap()
}

/// Encodes messages; returns the `messages` field of the body.
fn messages(messages: &[&str]) -> String {
    let body = body(&request(messages));
    let (_, messages) = body.split_once(r#""messages":"#).unwrap();
    messages.strip_suffix('}').unwrap().to_owned()
}

/// Makes a message of one role with these blocks.
fn message(role: &str, content: Value) -> String {
    json!({"role": role, "content": content}).to_string()
}

const SIGNED: &str = r#"{"type":"thinking","thinking":"Gr\u00fc\u00dfe","signature":"EqQB\/+=="}"#;
const REDACTED: &str = r#"{"type":"redacted_thinking","data":"AAEC"}"#;
const USER: &str =
    r#"{"role":"user","content":[{"type":"text","text":"Grüße"},{"type":"text","text":"2"}]}"#;
const RESULTS: &str = r#"{"role":"tool","content":[
    {"type":"tool_result","id":"call_3_0","name":"read","text":"x","failed":false},
    {"type":"tool_result","id":"call_3_1","name":"read","text":"broken","failed":true},
    {"type":"tool_result","id":"call_3_2","name":"read","text":" ","failed":false}]}"#;

fn calls() -> String {
    let call = |n: u32, arguments: &str| {
        let raw = format!("{{\"provider\":\"p\",\"id\":\"toolu_{n}\"}}");
        json!({"type": "tool_use", "id": format!("call_3_{n}"), "name": "read",
            "arguments": arguments, "raw": raw})
    };
    let content = json!([
        {"type": "thinking", "text": "Grüße", "raw": SIGNED},
        {"type": "thinking", "text": "", "raw": REDACTED},
        {"type": "text", "text": "I look."},
        call(0, r#"{ "path": "a","n":1.0 }"#),
        call(1, r#"{"path": "#),
        call(2, "{}"),
    ]);
    message("assistant", content)
}

#[test]
fn a_conversation_on_the_wire() {
    let mut request = request(&[USER, &calls(), RESULTS, USER]);
    request.tools = vec![
        ToolSpec {
            name: "read".into(),
            description: "Reads.".into(),
            schema: r#"{"type": "object", "b": 1.0, "a": 12345678901234567890123}"#.into(),
        },
        ToolSpec {
            name: "now".into(),
            description: String::new(),
            schema: r#"{"type":"object"}"#.into(),
        },
    ];
    let user = r#"{"type":"text","text":"Grüße"},{"type":"text","text":"2"}"#;
    let want = [
        r#"{"model":"m-1","max_tokens":100,"stream":true,"cache_control":{"type":"ephemeral"},"#,
        r#""system":"Be brief.","tools":[{"name":"read","description":"Reads.","#,
        r#""input_schema":{"type":"object","b":1.0,"a":12345678901234567890123}},"#,
        r#"{"name":"now","input_schema":{"type":"object"}}],"messages":["#,
        r#"{"role":"user","content":["#,
        user,
        r#"]},{"role":"assistant","content":["#,
        SIGNED,
        ",",
        REDACTED,
        r#",{"type":"text","text":"I look."},"#,
        r#"{"type":"tool_use","id":"toolu_0","name":"read","input":{ "path": "a","n":1.0 }},"#,
        r#"{"type":"tool_use","id":"toolu_1","name":"read","input":{}},"#,
        r#"{"type":"tool_use","id":"toolu_2","name":"read","input":{}}]},"#,
        r#"{"role":"user","content":["#,
        r#"{"type":"tool_result","tool_use_id":"toolu_0","content":"x"},"#,
        r#"{"type":"tool_result","tool_use_id":"toolu_1","content":"broken","is_error":true},"#,
        r#"{"type":"tool_result","tool_use_id":"toolu_2"},"#,
        user,
        "]}]}",
    ];
    assert_eq!(body(&request), want.concat());
    let plain = String::from_utf8(encode_body(&request, false).unwrap()).unwrap();
    let cache = r#""cache_control":{"type":"ephemeral"},"#;
    assert_eq!(plain, want.concat().replace(cache, ""));
    serde_json::from_str::<Value>(&plain).unwrap();
}

#[test]
fn each_body_is_a_prefix_of_the_next() {
    let (calls, said) = (
        calls(),
        message("assistant", json!([{"type": "text", "text": "ok"}])),
    );
    let all = [USER, &calls, RESULTS, USER, &said, USER];
    // The last message before a model call is never the assistant's.
    for (n, m) in [(1, 3), (3, 4), (4, 6)] {
        let (before, after) = (body(&request(&all[..n])), body(&request(&all[..m])));
        let prefix = before.strip_suffix("]}]}").unwrap();
        assert!(
            after.starts_with(prefix),
            "the body changed before message {n}"
        );
        assert_eq!(
            after,
            body(&request(&all[..m])),
            "same request, other bytes"
        );
    }
}

#[test]
fn an_assistant_that_is_to_go_on_is_asked_to() {
    let said = |text: &str| message("assistant", json!([{"type": "text", "text": text}]));
    let (one, two) = (said("one"), said("two"));
    let first = messages(&[USER, &one]);
    let second = messages(&[USER, &one, &two, USER]);
    let asked = r#"{"role":"user","content":[{"type":"text","text":"Continue."}]}"#;
    assert!(
        first.ends_with(&format!(r#""text":"one"}}]}},{asked}]"#)),
        "{first}"
    );
    assert!(
        second.starts_with(first.strip_suffix(']').unwrap()),
        "what was sent stays: {second}"
    );
}

#[test]
fn results_come_first_and_blank_texts_never() {
    let blank = json!([{"type": "text", "text": " \n"}, {"type": "text", "text": ""}]);
    let user = message("user", json!([{"type": "text", "text": "and"}, blank[0]]));
    let call = message(
        "assistant",
        json!([{"type": "tool_use", "id": "c", "name": "n", "arguments": "{}"}]),
    );
    let result = |id: &str| {
        json!({"type": "tool_result", "id": id, "name": "n", "text": "r",
        "failed": false})
    };
    let tool = message("tool", json!([result("c"), result("without a call")]));
    let id = "GFyU8eZ2b";
    let want = format!(
        "{}{}{}",
        concat!(
            r#"[{"role":"user","content":[{"type":"text","text":"and"}]},"#,
            r#"{"role":"assistant","content":["#
        ),
        format_args!(
            r#"{{"type":"tool_use","id":"{id}","name":"n","input":{{}}}}]}},{}"#,
            r#"{"role":"user","content":["#
        ),
        format_args!(
            r#"{{"type":"tool_result","tool_use_id":"{id}","content":"r"}},{}"#,
            r#"{"type":"text","text":"and"}]}]"#
        )
    );
    assert_eq!(
        messages(&[&user, &call, &tool, &message("assistant", blank), &user]),
        want
    );
    let mut silent = request(&[&user]);
    silent.system = "\n".into();
    assert!(!body(&silent).contains("system"));
}

#[test]
fn thinking_is_sent_back_verbatim_or_not_at_all() {
    let text = json!({"type": "text", "text": "x"});
    let thinking = |raw: Option<&str>| json!({"type": "thinking", "text": "t", "raw": raw});
    for (raw, sent) in [
        (Some(SIGNED), true),
        (Some(REDACTED), true),
        (
            Some(r#"{"type":"thinking","thinking":"","signature":"s"}"#),
            true,
        ),
        (
            Some(r#"{"type":"thinking","thinking":"t","signature":""}"#),
            false,
        ),
        (Some(r#"{"type":"thinking","thinking":"t"}"#), false),
        (Some(r#"{"type":"redacted_thinking"}"#), false),
        (Some(r#"{"type":"reasoning","summary":[]}"#), false),
        (Some(r#"{"type":"thinking","#), false),
        (Some("null"), false),
        (None, false),
    ] {
        let got = messages(&[
            USER,
            &message("assistant", json!([thinking(raw), text])),
            USER,
        ]);
        let before = raw.filter(|_| sent).map(|raw| format!("{raw},"));
        let want = format!(
            r#"{{"role":"assistant","content":[{}{text}]}}"#,
            before.unwrap_or_default()
        );
        assert!(got.contains(&want), "{raw:?}: {got}");
    }
    let last = json!([text, thinking(Some(SIGNED)), {"type": "text", "text": ""},
        thinking(Some(REDACTED))]);
    let only = json!([thinking(Some(SIGNED))]);
    let got = messages(&[
        &message("assistant", last),
        USER,
        &message("assistant", only),
        USER,
    ]);
    assert!(
        !got.contains("signature") && !got.contains("redacted"),
        "{got}"
    );
}

#[test]
fn what_is_not_in_the_normal_form_is_refused() {
    let result = r#"{"type":"tool_result","id":"c","name":"n","text":"x","failed":false}"#;
    let text = r#"{"type":"text","text":"x"}"#;
    let call = r#"{"type":"tool_use","id":"c","name":"n","arguments":"{}"}"#;
    let one = |role: &str, block: &str| format!(r#"{{"role":"{role}","content":[{block}]}}"#);
    let long = format!(
        r#"{{"type":"text","text":"{}"}}"#,
        "x".repeat(REQUEST_BYTES_MAX)
    );
    for (message, want) in [
        ("{".to_owned(), EncodeError::Message(1)),
        (one("system", text), EncodeError::Message(1)),
        (one("user", r#"{"type":"video"}"#), EncodeError::Message(1)),
        (one("user", result), EncodeError::Misplaced(1)),
        (one("user", call), EncodeError::Misplaced(1)),
        (one("assistant", result), EncodeError::Misplaced(1)),
        (one("tool", text), EncodeError::Misplaced(1)),
        (one("user", &long), EncodeError::TooLarge),
    ] {
        let got = encode_body(&request(&[USER, &message]), true);
        assert_eq!(got, Err(want), "{}", &message[..message.len().min(80)]);
    }
    let mut request = request(&[USER]);
    request.tools = vec![ToolSpec {
        name: "t".into(),
        description: String::new(),
        schema: "{".into(),
    }];
    let got = encode_body(&request, true);
    assert_eq!(got, Err(EncodeError::Schema("t".into())));
}

/// Images stand where they are: among the texts of the user, and in results.
#[test]
fn images_stand_in_their_place() {
    let image = |name: &str| {
        json!({"type": "image", "blob": name, "chain": "c",
        "media": "image/png", "size": 9})
    };
    let user = message(
        "user",
        json!([image("a"), {"type": "text", "text": "See"}, image("b")]),
    );
    let result = |text: &str| {
        message(
            "tool",
            json!([{"type": "tool_result", "id": "call_3_0",
        "name": "read", "text": text, "failed": false, "images": [image("a")]}]),
        )
    };
    let sent = RequestImage::Sent {
        media: "image/png",
        base64: "aGk=".into(),
    };
    let images = std::collections::BTreeMap::from([("a".to_owned(), sent)]);
    let data = r#"{"type":"image","source":{"type":"base64","media_type":"image/png","#;
    let data = format!(r#"{data}"data":"aGk="}}}}"#);
    let text = |text: &str| format!(r#"{{"type":"text","text":"{text}"}}"#);
    for (said, shown) in [("r", format!("{},{data}", text("r"))), ("", data.clone())] {
        let mut request = request(&[&user, &calls(), &result(said)]);
        request.images = RequestImages::new(images.clone(), ["a"].into_iter());
        let body = body(&request);
        let gone = text("[image that is not there]");
        let user = format!(
            r#"{{"role":"user","content":[{data},{},{gone}]}}"#,
            text("See")
        );
        assert!(body.contains(&user), "{user} in {body}");
        let result = format!(r#""tool_use_id":"toolu_0","content":[{shown}]}}"#);
        assert!(body.contains(&result), "{result} in {body}");
    }
}
