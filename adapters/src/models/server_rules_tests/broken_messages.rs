//! Bodies of Anthropic's messages with one fault each.

use super::broken_bodies::{BrokenBody, add_field, list, messages, remove_field};
use serde_json::{Value, json};

/// Messages: user, assistant with two calls, results and a text, assistant, user.
pub(super) fn valid_body() -> Value {
    let call =
        |id: &str| json!({"type": "tool_use", "id": id, "name": "read_file", "input": {"a": 1}});
    json!({"model": "m-1", "max_tokens": 100, "stream": true, "system": "Be brief.",
        "cache_control": {"type": "ephemeral"}, "messages": [
        {"role": "user", "content": [{"type": "text", "text": "user-1."}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "", "signature": "c2ln"},
            {"type": "redacted_thinking", "data": "AAEC"},
            {"type": "text", "text": "words-2."}, call("toolu_1"), call("toolu_2")]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "result-3."},
            {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": true},
            {"type": "text", "text": "user-4."}]},
        {"role": "assistant", "content": [{"type": "text", "text": "words-5."}]},
        {"role": "user", "content": [{"type": "text", "text": "user-6."}]},
    ]})
}

pub(super) const TURNS: [BrokenBody; 14] = [
    ("anthropic", "first message", |body| {
        drop(messages(body).remove(0))
    }),
    ("anthropic", "one role in a row", |body| {
        drop(messages(body).remove(3))
    }),
    ("anthropic", "one role in a row", |body| {
        drop(messages(body).remove(2))
    }),
    ("anthropic", "the last message", |body| {
        drop(messages(body).pop())
    }),
    ("anthropic", "no result at the end", |body| {
        messages(body).truncate(2)
    }),
    ("anthropic", "no result in the next", |body| {
        list(body, "/messages/2/content").remove(0);
    }),
    ("anthropic", "without its call", |body| {
        list(body, "/messages/1/content").pop();
    }),
    ("anthropic", "without its call", |body| {
        let result = body["messages"][2]["content"][0].clone();
        list(body, "/messages/4/content").insert(0, result);
    }),
    ("anthropic", "behind a text", |body| {
        list(body, "/messages/2/content").swap(1, 2)
    }),
    ("anthropic", "empty message", |body| {
        list(body, "/messages/3/content").clear()
    }),
    ("anthropic", "no list", |body| {
        body["messages"][3]["content"] = json!("words-8.")
    }),
    ("anthropic", "unknown role", |body| {
        body["messages"][1]["role"] = json!("system")
    }),
    ("anthropic", "not a user's", |body| {
        body["messages"][4]["content"] = body["messages"][1]["content"].clone();
    }),
    ("anthropic", "not an assistant's", |body| {
        body["messages"][3]["content"][0] = body["messages"][2]["content"][0].clone();
    }),
];

pub(super) const BLOCKS: [BrokenBody; 22] = [
    ("anthropic", "blank text", |body| {
        body["messages"][0]["content"][0]["text"] = json!("")
    }),
    ("anthropic", "blank text", |body| {
        body["messages"][1]["content"][2]["text"] = json!(" \n")
    }),
    ("anthropic", "blank result", |body| {
        body["messages"][2]["content"][0]["content"] = json!(" ");
    }),
    ("anthropic", "no boolean", |body| {
        body["messages"][2]["content"][1]["is_error"] = json!("yes");
    }),
    ("anthropic", "without a signature", |body| {
        remove_field(&mut body["messages"][1]["content"][0], "signature");
    }),
    ("anthropic", "without a signature", |body| {
        body["messages"][1]["content"][0]["signature"] = json!("");
    }),
    ("anthropic", "without its data", |body| {
        body["messages"][1]["content"][1]["data"] = json!("");
    }),
    ("anthropic", "at the end", |body| {
        let thinking = body["messages"][1]["content"][0].clone();
        list(body, "/messages/3/content").push(thinking);
    }),
    ("anthropic", "bad id", |body| {
        body["messages"][1]["content"][3]["id"] = json!("")
    }),
    ("anthropic", "bad id", |body| {
        body["messages"][1]["content"][3]["id"] = json!("f.read:0")
    }),
    ("anthropic", "bad id", |body| {
        body["messages"][1]["content"][3]["id"] = json!("x".repeat(65));
    }),
    ("anthropic", "comes twice", |body| {
        body["messages"][1]["content"][3]["id"] = json!("toolu_2");
    }),
    ("anthropic", "bad name", |body| {
        body["messages"][1]["content"][3]["name"] = json!("a b")
    }),
    ("anthropic", "no object", |body| {
        body["messages"][1]["content"][3]["input"] = json!("{}")
    }),
    ("anthropic", "of a call", |body| {
        add_field(&mut body["messages"][1]["content"][3], "extra_content");
    }),
    ("anthropic", "of a result", |body| {
        add_field(&mut body["messages"][2]["content"][0], "name")
    }),
    ("anthropic", "of a text", |body| {
        add_field(&mut body["messages"][0]["content"][0], "id")
    }),
    ("anthropic", "of a message", |body| {
        add_field(&mut body["messages"][0], "name")
    }),
    ("anthropic", "no max_tokens", |body| {
        body["max_tokens"] = json!(0)
    }),
    ("anthropic", "empty system", |body| {
        body["system"] = json!(" ")
    }),
    ("anthropic", "not a stream", |body| {
        remove_field(body, "stream")
    }),
    ("anthropic", "another provider", |body| {
        body["messages"][1]["content"][0]["thinking"] = json!("other-8.");
    }),
];
