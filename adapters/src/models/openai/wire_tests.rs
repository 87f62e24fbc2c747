//! Request bodies that conversations make.

use super::*;
use crate::models::RequestImage;
use crate::models::dialect::GENERIC;
use normal_form::REQUEST_BYTES_MAX;

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

fn encode_body(
    request: &CompletionRequest,
    dialect: ServerDialect,
) -> Result<Vec<u8>, EncodeError> {
    encode(request, "p", dialect, &Map::new())
}

fn body(request: &CompletionRequest) -> String {
    String::from_utf8(encode_body(request, GENERIC).unwrap()).unwrap()
}

const USER: &str =
    r#"{"role":"user","content":[{"type":"text","text":"Grüße"},{"type":"text","text":"2"}]}"#;
const CALLS: &str = r#"{"role":"assistant","content":[{"type":"thinking","text":"hm",
    "raw":"{\"provider\":\"p\",\"field\":\"reasoning_content\"}"},
    {"type":"text","text":"I "},{"type":"text","text":"look."},
    {"type":"tool_use","id":"call_3_0","name":"read","arguments":"{ \"path\": \"a\",\"n\":1.0 }",
     "raw":"{\"provider\":\"p\",\"id\":\"own.0\",\"extra_content\":{\"x\":{\"b\":1.50,\"a\":1}}}"},
    {"type":"tool_use","id":"call_3_1","name":"read","arguments":"{\"path\": "}]}"#;
const RESULTS: &str = r#"{"role":"tool","content":[
    {"type":"tool_result","id":"call_3_0","name":"read","text":"x","failed":false},
    {"type":"tool_result","id":"call_3_1","name":"read","text":"broken","failed":true}]}"#;

#[test]
fn a_conversation_on_the_wire() {
    let mut request = request(&[USER, CALLS, RESULTS]);
    request.tools = vec![ToolSpec {
        name: "read".into(),
        description: "Reads.".into(),
        schema: r#"{"type": "object", "b": 1.0, "a": 12345678901234567890123}"#.into(),
    }];
    let want = concat!(
        r#"{"model":"m-1","max_tokens":100,"stream":true,"stream_options":{"include_usage":true},"#,
        r#""tools":[{"type":"function","function":{"name":"read","description":"Reads.","#,
        r#""parameters":{"type":"object","b":1.0,"a":12345678901234567890123}}}],"messages":["#,
        r#"{"role":"system","content":"Be brief."},"#,
        r#"{"role":"user","content":"Grüße\n\n2"},"#,
        r#"{"role":"assistant","content":"I look.","reasoning_content":"hm","tool_calls":["#,
        r#"{"id":"own.0","type":"function","function":{"name":"read","#,
        r#""arguments":"{ \"path\": \"a\",\"n\":1.0 }"},"extra_content":{"x":{"b":1.50,"a":1}}},"#,
        r#"{"id":"lWC6xcQci","type":"function","function":{"name":"read","arguments":"{}"}}]},"#,
        r#"{"role":"tool","tool_call_id":"own.0","content":"x"},"#,
        r#"{"role":"tool","tool_call_id":"lWC6xcQci","content":"broken"}]}"#,
    );
    assert_eq!(body(&request), want);
}

#[test]
fn each_body_is_a_prefix_of_the_next() {
    let all = [USER, CALLS, RESULTS, USER];
    // A model call follows only a user's message or results.
    for (n, m) in [(1, 3), (3, 4)] {
        let (before, after) = (body(&request(&all[..n])), body(&request(&all[..m])));
        let prefix = before.strip_suffix("]}").unwrap();
        assert!(
            after.starts_with(prefix),
            "the body changed before message {n}"
        );
        assert_eq!(
            after,
            body(&request(&all[..m])),
            "the same request, other bytes"
        );
    }
}

#[test]
fn a_dialect_names_leaves_out_and_adds_fields() {
    let thought = r#"{"role":"assistant","content":[{"type":"thinking","text":"hm",
        "raw":"{\"provider\":\"p\",\"field\":\"reasoning_content\"}"},
        {"type":"text","text":"x"}]}"#;
    let call = r#"{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"n",
        "arguments":"{}",
        "raw":"{\"provider\":\"other\",\"id\":\"x\",\"extra_content\":{\"y\":1}}"}]}"#;
    let result =
        r#"{"role":"tool","content":[{"type":"tool_result","id":"c","name":"n","text":"r"}]}"#;
    let request = request(&[USER, thought, USER, call, result, USER]);
    let text = |dialect| String::from_utf8(encode_body(&request, dialect).unwrap()).unwrap();
    let named = |name| text(ServerDialect::find_by_name(name).unwrap());
    for (text, present, absent) in [
        (
            text(GENERIC),
            r#""role":"assistant","content":"Understood.""#,
            "reasoning_content",
        ),
        (
            named("openai"),
            r#""max_completion_tokens":100"#,
            "Understood.",
        ),
        (
            named("mistral"),
            r#""max_tokens":100,"stream":true,"messages""#,
            "reasoning_content",
        ),
        (
            named("deepseek"),
            r#""content":null,"reasoning_content":"","tool_calls""#,
            r#""content":"x","tool_calls""#,
        ),
        (
            named("gemini"),
            concat!(
                r#""extra_content":{"google":{"#,
                r#""thought_signature":"skip_thought_signature_validator"}}"#
            ),
            r#""y":1"#,
        ),
    ] {
        assert!(text.contains(present), "{present} in {text}");
        assert!(!text.contains(absent), "{absent} in {text}");
    }
}

#[test]
fn options_stand_in_the_body() {
    let options = serde_json::json!({"temperature": 0.2, "reasoning": {"effort": "low"}});
    let options = options.as_object().unwrap();
    let body = encode(&request(&[USER]), "p", GENERIC, options).unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["temperature"], 0.2);
    assert_eq!(body["reasoning"]["effort"], "low");
}

#[test]
fn what_is_not_in_the_normal_form_is_refused() {
    let result = r#"{"type":"tool_result","id":"c","name":"n","text":"x","failed":false}"#;
    let text = r#"{"type":"text","text":"x"}"#;
    let one = |role: &str, block: &str| format!(r#"{{"role":"{role}","content":[{block}]}}"#);
    for (message, want) in [
        ("{".to_owned(), EncodeError::Message(1)),
        (one("system", text), EncodeError::Message(1)),
        (
            one("user", r#"{"type":"video","url":"x"}"#),
            EncodeError::Message(1),
        ),
        (one("user", result), EncodeError::Misplaced(1)),
        (one("assistant", result), EncodeError::Misplaced(1)),
        (one("tool", text), EncodeError::Misplaced(1)),
        (
            one(
                "user",
                &text.replace(r#""x""#, &format!("{:?}", "x".repeat(REQUEST_BYTES_MAX))),
            ),
            EncodeError::TooLarge,
        ),
    ] {
        let got = encode_body(&request(&[USER, &message]), GENERIC);
        assert_eq!(got, Err(want), "{}", &message[..message.len().min(80)]);
    }
    let mut request = request(&[USER]);
    request.tools = vec![ToolSpec {
        name: "t".into(),
        description: String::new(),
        schema: "{".into(),
    }];
    assert_eq!(
        encode_body(&request, GENERIC),
        Err(EncodeError::Schema("t".into()))
    );
}

/// Images that a request has under the names `a`, which is sent, and `b`, which is left out.
fn images() -> crate::models::RequestImages {
    let sent = RequestImage::Sent {
        media: "image/png",
        base64: "aGk=".into(),
    };
    let left_out = RequestImage::LeftOut("[image png, 9 KB, b: it is gone]".to_owned());
    let images = [("a", sent), ("b", left_out)].map(|(name, image)| (name.to_owned(), image));
    crate::models::RequestImages::new(images.into(), ["a"].into_iter())
}

/// A message of the user has its images in place; those of results follow the results, in a message
/// of the user that the next one is added to. Without images every content is a text.
#[test]
fn images_travel_in_messages_of_the_user() {
    let image = |name: &str| {
        format!(r#"{{"type":"image","blob":"{name}","chain":"c","media":"image/png","size":9}}"#)
    };
    let (a, b) = (image("a"), image("b"));
    let user = format!(r#"{{"role":"user","content":[{{"type":"text","text":"See"}},{a},{b}]}}"#);
    let call = r#"{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"n",
        "arguments":"{}"}]}"#;
    let result = format!(
        r#"{{"role":"tool","content":[{{"type":"tool_result","id":"c","name":"n","text":"r",
           "failed":false,"images":[{a},{b}]}}]}}"#
    );
    let mut request = request(&[&user, call, &result]);
    request.images = images();
    let data = r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,aGk="}}"#;
    let text = |text: &str| format!(r#"{{"text":"{text}","type":"text"}}"#);
    let sorted = |body: Vec<u8>| {
        let body: Value = serde_json::from_slice(&body).unwrap();
        body["messages"].as_array().unwrap().clone()
    };
    let parse = |text: String| serde_json::from_str::<Value>(&text).unwrap();
    let messages = sorted(encode_body(&request, GENERIC).unwrap());
    let gone = text("[image png, 9 KB, b: it is gone]");
    assert_eq!(
        messages[1]["content"],
        parse(format!("[{},{data},{gone}]", text("See")))
    );
    assert_eq!(
        messages[3]["content"],
        "r\n[image png, 9 KB, b: it is gone]"
    );
    assert_eq!(messages[4]["content"], "Understood.");
    let id = messages[3]["tool_call_id"].as_str().unwrap();
    let heading = text(&format!("Images in the result of {id}:"));
    assert_eq!(messages[5]["content"], parse(format!("[{heading},{data}]")));
    assert_eq!(messages.len(), 6);
    // No two messages of the user meet.
    request.messages.push(USER.to_owned());
    let messages = sorted(encode_body(&request, GENERIC).unwrap());
    let said = text("Grüße\\n\\n2");
    assert_eq!(
        messages[5]["content"],
        parse(format!("[{heading},{data},{said}]"))
    );
    assert_eq!(messages.len(), 6);
}

/// An image that is sent at its newest place alone is a text at the older one, of which a result
/// without its call is one.
#[test]
fn older_places_of_an_image_are_texts() {
    let image = r#"{"type":"image","blob":"a","chain":"c","media":"image/png","size":9}"#;
    let user = format!(r#"{{"role":"user","content":[{image}]}}"#);
    let lost = format!(
        r#"{{"role":"tool","content":[{{"type":"tool_result","id":"none","name":"n","text":"r",
           "failed":false,"images":[{image}]}}]}}"#
    );
    let mut request = request(&[&user, &lost, &user]);
    let named = ["a", "a", "a"].into_iter();
    let sent = RequestImage::Sent {
        media: "image/png",
        base64: "aGk=".into(),
    };
    let all = crate::models::RequestImages::new([("a".to_owned(), sent)].into(), named);
    for (older, texts, shown) in [(0, 0, 2), (1, 1, 1), (2, 1, 1), (3, 2, 0)] {
        request.images = all
            .clone()
            .leave_out_older("a", older, "[older]".to_owned());
        assert_eq!(request.images.count(), 3 - older);
        let body = encode_body(&request, GENERIC).unwrap();
        let body = String::from_utf8(body).unwrap();
        assert_eq!(body.matches("[older]").count(), texts, "{body}");
        assert_eq!(body.matches("aGk=").count(), shown, "{body}");
    }
}
