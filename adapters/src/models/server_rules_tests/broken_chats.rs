//! Bodies of OpenAI's chat completions with one fault each.

use super::broken_bodies::{BrokenBody, add_field, list, messages, remove_field};
use serde_json::{Value, json};

/// Messages: system, user, assistant with two calls, two results, assistant, user.
pub(super) fn valid_body(server: &str) -> Value {
    let call = |id: &str| {
        json!({"id": id, "type": "function",
            "function": {"name": "read_file", "arguments": "{\"path\":\"a\"}"}})
    };
    let mut body = json!({"model": "m-1", "max_tokens": 100, "stream": true, "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "user-1."},
        {"role": "assistant", "content": null,
            "tool_calls": [call("aaaaaaaa1"), call("aaaaaaaa2")]},
        {"role": "tool", "tool_call_id": "aaaaaaaa1", "content": "result-2."},
        {"role": "tool", "tool_call_id": "aaaaaaaa2", "content": ""},
        {"role": "assistant", "content": "words-3."},
        {"role": "user", "content": "user-4."},
    ]});
    if server != "mistral" {
        body["stream_options"] = json!({"include_usage": true});
    }
    if matches!(server, "openai" | "azure" | "groq" | "xai") {
        rename_output(&mut body);
    }
    if matches!(server, "deepseek" | "kimi") {
        body["messages"][2]["reasoning_content"] = json!("own-thought-5.own-thought-6.");
        let none = if server == "kimi" { " " } else { "" };
        body["messages"][5]["reasoning_content"] = json!(none);
    }
    if server == "gemini" {
        body["messages"][2]["tool_calls"][0]["extra_content"] = signature_fields("own-signature");
    }
    body
}

fn signature_fields(signature: &str) -> Value {
    json!({"google": {"thought_signature": signature}})
}

fn rename_output(body: &mut Value) {
    let fields = body.as_object_mut().expect("a body");
    let most = fields.remove("max_tokens").expect("a maximum");
    fields.insert("max_completion_tokens".to_owned(), most);
}

fn user() -> Value {
    json!({"role": "user", "content": "user-7."})
}

fn assistant_text() -> Value {
    json!({"role": "assistant", "content": "words-7."})
}

/// Gives a later message the call of an earlier one, with a result.
fn call_again(body: &mut Value) {
    let mut call = body["messages"][2].clone();
    list(&mut call, "/tool_calls").truncate(1);
    body["messages"][5] = call;
    let result = body["messages"][3].clone();
    messages(body).insert(6, result);
}

fn rename_call(body: &mut Value, id: &str) {
    body["messages"][2]["tool_calls"][0]["id"] = json!(id);
    body["messages"][3]["tool_call_id"] = json!(id);
}

fn write_arguments(body: &mut Value, arguments: &str) {
    body["messages"][2]["tool_calls"][0]["function"]["arguments"] = json!(arguments);
}

fn name_function(body: &mut Value, name: &str) {
    body["messages"][2]["tool_calls"][0]["function"]["name"] = json!(name);
}

pub(super) const ROLES: [BrokenBody; 15] = [
    ("generic", "first message", |body| {
        drop(messages(body).remove(1))
    }),
    ("generic", "two users", |body| {
        messages(body).insert(1, user())
    }),
    ("generic", "two assistants", |body| {
        messages(body).insert(5, assistant_text())
    }),
    ("generic", "the last message", |body| {
        drop(messages(body).pop())
    }),
    ("generic", "without its call", |body| {
        drop(messages(body).remove(2))
    }),
    ("generic", "no result before", |body| {
        drop(messages(body).remove(4))
    }),
    ("generic", "no result before", |body| {
        messages(body).insert(4, user())
    }),
    ("generic", "no result before", |body| {
        messages(body).insert(4, assistant_text())
    }),
    ("generic", "no result at the end", |body| {
        messages(body).truncate(4)
    }),
    ("generic", "without its call", |body| {
        let again = messages(body)[4].clone();
        messages(body).insert(5, again);
    }),
    ("generic", "behind a result", |body| {
        drop(messages(body).remove(5))
    }),
    ("mistral", "behind a result", |body| {
        drop(messages(body).remove(5))
    }),
    ("generic", "system message behind", |body| {
        messages(body).swap(0, 1)
    }),
    ("generic", "unknown role", |body| {
        body["messages"][1]["role"] = json!("human")
    }),
    ("generic", "no list", |body| remove_field(body, "messages")),
];

pub(super) const CALLS: [BrokenBody; 19] = [
    ("generic", "without its call", |body| {
        body["messages"][4]["tool_call_id"] = json!("other");
    }),
    ("generic", "comes twice", |body| {
        rename_call(body, "aaaaaaaa2")
    }),
    ("generic", "comes twice", call_again),
    ("generic", "bad id", |body| rename_call(body, "")),
    ("generic", "bad id", |body| rename_call(body, "an id")),
    ("mistral", "bad id", |body| rename_call(body, "call_3_0")),
    ("mistral", "bad id", |body| rename_call(body, "aaaaaaaa12")),
    ("generic", "bad name", |body| name_function(body, "")),
    ("generic", "bad name", |body| {
        name_function(body, "functions.read")
    }),
    ("generic", "bad name", |body| {
        name_function(body, &"x".repeat(65))
    }),
    ("generic", "arguments", |body| write_arguments(body, "")),
    ("generic", "arguments", |body| write_arguments(body, "[1]")),
    ("generic", "arguments", |body| {
        write_arguments(body, r#"{"a": "#)
    }),
    ("generic", "arguments", |body| {
        body["messages"][2]["tool_calls"][0]["function"]["arguments"] = json!({});
    }),
    ("generic", "empty list", |body| {
        list(body, "/messages/2/tool_calls").clear()
    }),
    ("generic", "another type", |body| {
        body["messages"][2]["tool_calls"][0]["type"] = json!("custom");
    }),
    ("generic", "of a call", |body| {
        add_field(&mut body["messages"][2]["tool_calls"][0], "raw")
    }),
    ("generic", "of a result", |body| {
        add_field(&mut body["messages"][3], "name")
    }),
    ("generic", "without a text", |body| {
        body["messages"][3]["content"] = json!(null)
    }),
];

pub(super) const WORDS: [BrokenBody; 10] = [
    ("generic", "empty system", |body| {
        body["messages"][0]["content"] = json!("")
    }),
    ("generic", "empty user", |body| {
        body["messages"][1]["content"] = json!("")
    }),
    ("generic", "empty user", |body| {
        body["messages"][1]["content"] = json!(" \n")
    }),
    ("generic", "empty user", |body| {
        body["messages"][1]["content"] = json!(null)
    }),
    ("generic", "empty assistant", |body| {
        body["messages"][5]["content"] = json!("\t")
    }),
    ("generic", "empty assistant", |body| {
        body["messages"][5]["content"] = json!(null)
    }),
    ("generic", "empty assistant", |body| {
        body["messages"][2]["content"] = json!("")
    }),
    ("generic", "empty assistant", |body| {
        remove_field(&mut body["messages"][2], "content")
    }),
    ("generic", "of a message", |body| {
        add_field(&mut body["messages"][2], "raw")
    }),
    ("generic", "of a message", |body| {
        add_field(&mut body["messages"][1], "name")
    }),
];

pub(super) const THINKING: [BrokenBody; 15] = [
    ("deepseek", "no reasoning_content", |body| {
        remove_field(&mut body["messages"][5], "reasoning_content");
    }),
    ("kimi", "no reasoning_content", |body| {
        body["messages"][2]["reasoning_content"] = json!(null);
    }),
    ("kimi", "empty reasoning_content", |body| {
        body["messages"][5]["reasoning_content"] = json!("");
    }),
    ("mistral", "field of thinking", |body| {
        body["messages"][2]["reasoning_content"] = json!("");
    }),
    ("groq", "field of thinking", |body| {
        body["messages"][2]["reasoning_details"] = json!([]);
    }),
    ("generic", "without calls", |body| {
        body["messages"][5]["reasoning_content"] = json!("own-thought-8.");
    }),
    ("xai", "did not come", |body| {
        body["messages"][2]["reasoning_content"] = json!("own-thought-8.lost-thought-9.");
    }),
    ("kimi", "did not come", |body| {
        body["messages"][5]["reasoning_content"] = json!("signed-thought-8.");
    }),
    ("openai", "another provider", |body| {
        body["messages"][2]["reasoning_content"] = json!("other-8.");
    }),
    ("generic", "another provider", |body| {
        body["messages"][2]["reasoning_details"] = json!([{"text": "other-detail"}]);
    }),
    ("generic", "another provider", |body| {
        body["messages"][2]["tool_calls"][1]["extra_content"] = signature_fields("other-signature");
    }),
    ("generic", "for another server", |body| {
        body["messages"][2]["tool_calls"][0]["extra_content"] =
            signature_fields("skip_thought_signature_validator");
    }),
    ("gemini", "without a signature", |body| {
        remove_field(&mut body["messages"][2]["tool_calls"][0], "extra_content");
    }),
    ("gemini", "without a signature", |body| {
        list(body, "/messages/2/tool_calls").swap(0, 1);
    }),
    ("gemini", "foreign signature", |body| {
        body["messages"][2]["tool_calls"][1]["extra_content"] = signature_fields("");
    }),
];

pub(super) const FIELDS: [BrokenBody; 9] = [
    ("mistral", "stream_options", |body| {
        add_field(body, "stream_options")
    }),
    ("generic", "output field", |body| {
        remove_field(body, "max_tokens")
    }),
    ("generic", "output field", |body| {
        body["max_completion_tokens"] = json!(100)
    }),
    ("generic", "output field", rename_output),
    ("mistral", "output field", rename_output),
    ("generic", "output field", |body| {
        body["model"] = json!("openai/o3")
    }),
    ("openai", "output field", |body| {
        body["max_tokens"] = json!(100)
    }),
    ("generic", "not a stream", |body| {
        body["stream"] = json!(false)
    }),
    ("generic", "no server knows", |body| {
        add_field(body, "session")
    }),
];
