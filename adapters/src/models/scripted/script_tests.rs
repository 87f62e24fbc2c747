//! The choice of replies, and the scripts that are refused.

use super::*;

/// Returns the choice as a word: the text of an answer, or the code of a failure.
fn choice_text(script: &ReplyScript, opening: &str, turns: u64, tries: u64) -> String {
    match script.choose(&[opening], turns, tries) {
        ScriptChoice::Answer(answer) => match answer.completion.blocks.first() {
            Some(ReplyBlock::Text { text } | ReplyBlock::Thinking { text, .. }) => text.clone(),
            Some(ReplyBlock::ToolUse { name, .. }) => name.clone(),
            None => String::new(),
        },
        ScriptChoice::Fail(fail) => fail.code.clone(),
        ScriptChoice::Ended => "ended".to_owned(),
    }
}

#[test]
fn the_nth_request_of_a_conversation_gets_the_nth_reply() {
    let script = ReplyScript::parse(
        r#"[{"text":"a","repeat":2},{"fail":{"code":"x","times":2}},
            {"fail":{"code":"y"},"text":"b"},
            {"text":"c","repeat":"forever"}]"#,
    )
    .unwrap();
    for (turns, tries, want) in [
        (0, 0, "a"),
        (0, 5, "a"),
        (1, 0, "a"),
        (2, 0, "x"),
        (2, 1, "x"),
        (2, 2, "y"),
        (2, 3, "b"),
        (2, 9, "b"),
        (3, 0, "c"),
        (900, 0, "c"),
    ] {
        assert_eq!(
            choice_text(&script, "", turns, tries),
            want,
            "{turns} {tries}"
        );
    }
}

#[test]
fn a_script_may_end_in_failures_or_just_end() {
    let script = ReplyScript::parse(r#"[{"text":"a"},{"fail":{"code":"x"}}]"#).unwrap();
    assert_eq!(choice_text(&script, "", 1, 0), "x");
    assert_eq!(choice_text(&script, "", 1, 1), "ended");
    assert_eq!(choice_text(&script, "", 2, 0), "ended");
    let script = ReplyScript::parse(r#"[{"fail":{"code":"x","times":"forever"}}]"#).unwrap();
    assert_eq!(choice_text(&script, "", 0, 1_000), "x");
}

#[test]
fn conversations_are_told_apart_by_a_text_they_begin_with() {
    let script = ReplyScript::parse(
        "{\"text\":\"other\"}\n\n{\"for\":\"child\",\"text\":\"c1\"}\n\
         {\"for\":\"sum\",\"text\":\"s\"}\n\
         {\"for\":\"child\",\"text\":\"c2\"}\n",
    )
    .unwrap();
    for (opening, turns, want) in [
        ("a parent", 0, "other"),
        ("a parent", 1, "ended"),
        ("a child", 0, "c1"),
        ("a child", 1, "c2"),
        ("a child sums", 2, "ended"),
        ("a sum", 0, "s"),
    ] {
        assert_eq!(
            choice_text(&script, opening, turns, 0),
            want,
            "{opening} {turns}"
        );
    }
}

#[test]
fn scripts_that_are_refused() {
    let large = format!(r#"[{{"text":"{}"}}]"#, "x".repeat(REPLY_BYTES_MAX + 1));
    for (text, want) in [
        ("", "the script has no reply"),
        ("[]", "the script has no reply"),
        ("{\"text\":\"a\"}\n{", "line 2 of the script is not JSON"),
        ("[\n{]", "line 2 of the script is not JSON"),
        ("[7]", "reply 1 of the script: invalid type"),
        (r#"[{}]"#, "reply 1 of the script: it has none of"),
        (r#"[{"txt":"a"}]"#, "unknown field `txt`"),
        (
            r#"[{"text":"a","repeat":0}]"#,
            "expected a number from 1 or \"forever\", found 0",
        ),
        (
            r#"[{"text":"a","repeat":"forever"},{"text":"b"}]"#,
            "reply 2 of the script: it is never reached",
        ),
        (
            r#"[{"fail":{"times":"forever"}},{"text":"b"}]"#,
            "reply 2 of the script: it is never reached",
        ),
        (
            r#"[{"fail":{"times":"forever"},"text":"b"}]"#,
            "reply 1 of the script: it is never reached",
        ),
        (
            r#"[{"fail":{},"repeat":2}]"#,
            "a reply that only fails has no",
        ),
        (
            r#"[{"fail":{"kind":"odd"}}]"#,
            "`fail.kind` is `odd`; it is one of transient, rate-limited,",
        ),
        (
            r#"[{"fail":{"retry_after_ms":600001}}]"#,
            "`fail.retry_after_ms` is more than 600000",
        ),
        (r#"[{"text":"a","chunk":0}]"#, "`chunk` is 0"),
        (
            r#"[{"text":"a","delay_ms":600001}]"#,
            "`delay_ms` is 600001",
        ),
        (
            r#"[{"text":"a","pause_ms":600001}]"#,
            "`pause_ms` is 600001",
        ),
        (
            r#"[{"calls":[{"name":"f","arguments":[1]}]}]"#,
            "`arguments` of `f` is [1]",
        ),
        (r#"[{"text":"a","usage":{"in":1}}]"#, "unknown field `in`"),
        (r#"[{"text":"a","usage":"some"}]"#, "reply 1 of the script"),
        (&large, "reply 1 of the script: it has 4194305 bytes"),
        (
            &" ".repeat(SCRIPT_BYTES_MAX + 1),
            "the script has 16777217 bytes, at most 16777216 are read",
        ),
    ] {
        let error = ReplyScript::parse(text).unwrap_err().to_string();
        assert!(
            error.contains(want),
            "{}: {error}",
            &text[..text.len().min(60)]
        );
    }
}
