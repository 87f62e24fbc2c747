//! Files become histories, or are refused by name.

use super::*;
use std::time::Duration;

fn document() -> Value {
    json!({
        "thread_id": "a", "directive": null, "version": "1.1.0", "saved_at": "now",
        "limits": {"spend": 0.045, "turns": 3, "duration_seconds": 1.5},
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Go"},
            {"role": "assistant", "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "call_3_1", "name": "read", "arguments": "{}"},
            ]},
            {"role": "tool", "content": [
                {"type": "tool_result", "id": "call_3_1", "name": "read", "text": "x",
                 "failed": true},
            ]},
        ],
    })
}

#[test]
fn history_has_the_messages_with_ids_of_its_own() {
    let file = StateFile::parse(document()).unwrap();
    let caps = (file.cap("turns"), file.spend_cap(), file.duration_cap());
    let time = Duration::from_millis(1_500);
    assert_eq!(caps, (Some(3), Some("0.045".to_owned()), Some(time)));
    let kinds = |has_prompt| {
        let history = file.to_history(has_prompt, &[]).unwrap();
        let events = history.batches.concat();
        let events: Vec<Value> = events
            .iter()
            .map(|text| serde_json::from_str(text).unwrap())
            .collect();
        events
    };
    let with_prompt = kinds(true);
    let names: Vec<&str> = with_prompt
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["note", "message", "message", "tool_use", "tool_result"]
    );
    assert_eq!(with_prompt[3]["id"], with_prompt[4]["id"]);
    assert_eq!(with_prompt[3]["id"], "imported_0");
    let without = kinds(false);
    assert!(
        without[1]["content"]
            .as_str()
            .unwrap()
            .ends_with("Be brief.")
    );
    assert_eq!(without.len(), with_prompt.len() + 1);
}

#[test]
fn what_is_no_checkpoint_is_refused_by_name() {
    let check = |change: &dyn Fn(&mut Value), expected: &str| {
        let mut changed = document();
        change(&mut changed);
        let error =
            StateFile::parse(changed).and_then(|file| file.to_history(false, &[]).map(drop));
        let error = error.expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}: {expected}");
    };
    check(&|d| d["version"] = json!("1.2.0"), "version 1.2.0");
    check(&|d| d["version"] = json!(1), "version must be there");
    check(&|d| d["thread_id"] = json!(null), "thread_id must be there");
    check(&|d| d["directive"] = json!(7), "directive must be there");
    check(
        &|d| d["limits"]["turns"] = json!("3"),
        "limits.turns must be a number",
    );
    check(
        &|d| d["limits"]["turns"] = json!(-1),
        "limits.turns must be a number",
    );
    check(&|d| d["cost"] = json!([]), "cost must be an object");
    check(&|d| d["state"] = json!([]), "state must be an object");
    check(
        &|d| d["state"] = json!({"thread": 1}),
        "state must be an object whose scopes",
    );
    check(&|d| d["messages"] = json!("x"), "messages must be a list");
    check(
        &|d| d["messages"][1]["role"] = json!("robot"),
        "messages[1].role",
    );
    check(
        &|d| d["messages"][1]["content"] = json!(7),
        "messages[1].content",
    );
    check(
        &|d| d["messages"][3]["content"][0]["id"] = json!("x"),
        "names no call",
    );
    check(
        &|d| d["messages"][3]["content"] = json!("x"),
        "blocks that name their calls",
    );
    check(
        &|d| d["messages"][1]["content"] = json!([{"type": "image"}]),
        "messages[1].content[0] must name an image",
    );
    check(
        &|d| d["messages"][1]["content"] = json!([{"type": "sound"}]),
        "sound of the role user is not imported",
    );
    check(
        &|d| {
            let outside =
                json!({"type": "image", "blob": "../../x", "media": "image/png", "size": 1});
            d["messages"][3]["content"][0]["images"] = json!([outside]);
        },
        "messages[3].content[0].images[0] must name an image",
    );
    check(
        &|d| d["messages_hash"] = json!("0".repeat(64)),
        "were edited",
    );
    check(&|d| *d = json!([]), "no JSON object");
}

/// Symptom: a cap of 1.5, 5.0, 2^40 or 2^64 turns or tokens, or of 1e300 seconds, was dropped
/// without a word, and the thread got a default, maybe a larger one; so was a cap with a slip in
/// its name. Cause: a number that did not convert was taken for none. Fix: a whole number is taken
/// however it is written, and any other cap is refused by its field. Kind: a bound that cannot be
/// kept is not dropped.
#[test]
fn caps_are_kept_or_refused_by_name() {
    let parse = |limits: &str| {
        let mut changed = document();
        changed["limits"] = serde_json::from_str(limits).unwrap();
        StateFile::parse(changed)
    };
    for limits in [
        r#"{"turns": 5}"#,
        r#"{"turns": 5.0}"#,
        r#"{"turns": 5e0}"#,
        r#"{"turns": 0.5e1, "tokens": null, "other": null}"#,
    ] {
        assert_eq!(parse(limits).unwrap().cap("turns"), Some(5), "{limits}");
    }
    let large = parse(r#"{"tokens": 18446744073709551615, "spawns": 4294967295}"#).unwrap();
    assert_eq!(large.cap("tokens"), Some(u64::MAX));
    assert_eq!(large.cap("spawns"), Some(u64::from(u32::MAX)));
    for (limits, field) in [
        (r#"{"turns": 1.5}"#, "limits.turns"),
        (r#"{"turns": 1099511627776}"#, "limits.turns"),
        (r#"{"depth": 4294967296}"#, "limits.depth"),
        (r#"{"spawns": 1e300}"#, "limits.spawns"),
        (r#"{"tokens": 18446744073709551616}"#, "limits.tokens"),
        (r#"{"tokens": "5"}"#, "limits.tokens"),
        (r#"{"duration_seconds": 1e300}"#, "limits.duration_seconds"),
        (r#"{"duration_seconds": 1e17}"#, "limits.duration_seconds"),
        (r#"{"spend": -0.5}"#, "limits.spend"),
        (r#"{"turn": 3}"#, "limits.turn is no cap"),
    ] {
        let error = parse(limits).expect_err(limits).to_string();
        assert!(error.starts_with(field), "{limits}: {error}");
    }
}

/// Symptom: a thread made from the file of one that waited for consent ran that tool unasked.
/// Cause: the file had no field for the patterns of calls that need consent. Fix: they are in the
/// file, and of a file without them the calls that waited name their tools. Kind: an import takes
/// over each bound of a thread, not only its capabilities.
#[test]
fn approvals_are_those_of_the_file_and_of_calls_that_waited() {
    let mut waiting = document();
    let content = &mut waiting["messages"][2]["content"];
    for (id, name) in [
        ("call_3_2", "send_mail"),
        ("call_3_3", "send_mail"),
        ("call_3_4", "a b"),
    ] {
        let call = json!({"type": "tool_use", "id": id, "name": name, "arguments": "{}"});
        content.as_array_mut().unwrap().push(call);
    }
    let approvals = |document: &Value| StateFile::parse(document.clone()).unwrap().approvals();
    assert_eq!(approvals(&waiting), [""; 0], "it did not wait for consent");
    waiting["suspend_reason"] = json!("approval");
    assert_eq!(approvals(&waiting), ["execute.tool.send_mail"]);
    waiting["approvals"] = json!(["execute.tool.read_*", "execute.tool.send_mail"]);
    assert_eq!(
        approvals(&waiting),
        ["execute.tool.read_*", "execute.tool.send_mail"]
    );
    waiting["approvals"] = json!("execute.tool.read_*");
    let error = StateFile::parse(waiting)
        .expect_err("it is no list")
        .to_string();
    assert!(
        error.starts_with("approvals must be a list of texts"),
        "{error}"
    );
}

#[test]
fn of_a_state_the_scope_of_the_thread_alone_is_carried() {
    for (state, snapshot) in [
        (json!(null), None),
        (json!({}), None),
        (
            json!({"thread": {}, "run": {"a": 1}, "tool_call": {}}),
            None,
        ),
        (
            serde_json::from_str(r#"{"thread": {"n": 1.00}, "run": {"a": 1}, "tool_call": {}}"#)
                .unwrap(),
            Some(r#"{"thread":{"n":1.00}}"#),
        ),
    ] {
        let mut document = document();
        document["state"] = state;
        let file = StateFile::parse(document).unwrap();
        let history = file.to_history(true, &[]).unwrap();
        assert_eq!(history.snapshot.as_deref(), snapshot);
    }
}

/// An image is named if its bytes were carried; else the model is told which one was left out.
#[test]
fn images_are_carried_or_told_of() {
    let name = |digit: &str| BlobName {
        hash: digit.repeat(64),
        media: "image/png".to_owned(),
        size: 9,
    };
    let (one, other) = (name("a"), name("b"));
    let mut document = document();
    let block = |name: &BlobName| {
        let mut block = name.image_block();
        block["chain"] = json!("of another store");
        block
    };
    let text = json!({"type": "text", "text": "See?"});
    document["messages"][1]["content"] = json!([text, block(&one), block(&other)]);
    document["messages"][3]["content"][0]["images"] = json!([block(&one), block(&other)]);
    let file = StateFile::parse(document).unwrap();
    assert_eq!(file.images(), [one.clone(), other.clone()]);
    let history = file.to_history(true, std::slice::from_ref(&one)).unwrap();
    let events: Vec<Value> = (history.batches.concat().iter())
        .map(|text| serde_json::from_str(text).unwrap())
        .collect();
    let left = "[image png, 9 bytes, bbbbbbbbbbbb: left out by the import]";
    assert_eq!(
        events[1]["content"],
        json!([text, one.image_block(), {"type": "text", "text": left}])
    );
    let result = events.last().unwrap();
    assert_eq!(result["blocks"], json!([one.image_block()]));
    assert_eq!(result["text"], json!(format!("x\n{left}")));
}
