//! Appends: the events that are accepted, and the answer of an append.

use super::{LoopHost, call_event, code, message_event, result_event};
use crate::runner::fixture::RunnerFixture;
use serde_json::{Value, json};
use std::sync::Arc;
use threadkeep::storage::StorageBackend;
use threadkeep_component::service::history::ChangeTexts;
use threadkeep_component::service::{Error, ErrorKind};
use threadkeep_core::error::ErrorKind as CoreErrorKind;
use threadkeep_tests::edited_log::EditedLog;
use threadkeep_tests::fixture::MapLibrary;

/// Builds an event from a word.
fn event(word: &str) -> Value {
    match word {
        "hi" => message_event("user", "hi"),
        "hello" => message_event("assistant", "hello"),
        "greeting" => {
            json!({"type": "message", "role": "assistant", "content": "?", "synthetic": true})
        }
        "text" => json!({"type": "assistant_text", "text": "let me see"}),
        "error" => json!({"type": "error", "kind": "k", "code": "c", "message": "m", "attempt": 1}),
        "A" | "B" => call_event(word),
        "a" | "b" => result_event(&word.to_uppercase()),
        "ours" => result_event("call_2_1"),
        "place" => json!({"type": "tool_result", "version": 2, "index": 1, "text": "42"}),
        "misnamed" => json!({"type": "tool_result", "id": "A", "name": "write", "text": "42"}),
        _ => panic!("{word}"),
    }
}

/// Conversations that a provider accepts, and ones that it does not; with a token and without.
#[test]
fn appends_keep_a_valid_conversation() {
    for (words, held, free) in [
        ("hi hello", "ok", "ok"),
        ("hi hi hello hello", "ok", "ok"),
        ("greeting hi hello", "ok", "ok"),
        ("hello hi", "invalid", "invalid"),
        ("hi A a hello", "ok", "ok"),
        ("hi A place", "ok", "ok"),
        ("hi A ours", "ok", "ok"),
        ("hi text A text B error b a", "ok", "ok"),
        ("hi A a a", "invalid", "invalid"),
        ("hi hello a", "invalid", "invalid"),
        ("hi A hi a", "invalid", "invalid"),
        ("hi A B a text b", "invalid", "invalid"),
        ("hi A A a", "invalid", "invalid"),
        ("hi A misnamed", "invalid", "invalid"),
        ("hi a A", "invalid", "invalid"),
        ("hi A", "ok", "invalid"),
        ("", "ok", "invalid"),
    ] {
        let events: Vec<Value> = words.split_whitespace().map(event).collect();
        for (mut host, expected) in [(LoopHost::open(), held), (LoopHost::new(), free)] {
            if host.token.is_none() {
                // Now both are at version 1, and the call has version 2.
                host.append(&[json!({"type": "partial", "text": ""})])
                    .unwrap();
            }
            let got = host.append(&events).map_or_else(|e| code(&e), |_| "ok");
            assert_eq!(got, expected, "{words}, held: {}", host.token.is_some());
            if host.token.take().is_none() {
                continue;
            }
            let dead = ["h/1".to_owned()];
            host.world.service.recover(&dead, None).unwrap();
            host.world.audit();
        }
    }
}

#[test]
fn a_round_is_answered_over_several_appends_and_only_so() {
    let host = LoopHost::open();
    host.append(&[
        message_event("user", "hi"),
        call_event("a"),
        call_event("b"),
    ])
    .unwrap();
    for wrong in [
        message_event("user", "and?"),
        message_event("assistant", "so"),
        call_event("c"),
        result_event("c"),
    ] {
        assert_eq!(code(&host.append(&[wrong]).unwrap_err()), "invalid");
    }
    host.append(&[result_event("b")]).unwrap();
    assert_eq!(
        code(&host.append(&[result_event("b")]).unwrap_err()),
        "invalid"
    );
    let partial = json!({"type": "partial", "text": "hm"});
    host.append(&[partial]).unwrap();
    host.append(&[result_event("call_2_1"), message_event("assistant", "done")])
        .unwrap();
    assert_eq!(host.head().round, None);
    host.close("idle", None).unwrap();
}

#[test]
fn at_most_32_calls_are_open() {
    let host = LoopHost::open();
    let calls = |n: usize| (0..n).map(|n| call_event(&n.to_string()));
    let with = |n| {
        [message_event("user", "hi")]
            .into_iter()
            .chain(calls(n))
            .collect::<Vec<_>>()
    };
    assert_eq!(code(&host.append(&with(33)).unwrap_err()), "invalid");
    host.append(&with(32)).unwrap();
    host.close("idle", None).unwrap();
}

/// An append repeated after an unknown outcome is done once; another append at its place is a
/// conflict.
#[test]
fn an_append_may_be_repeated_and_never_doubles() {
    for held in [true, false] {
        let host = if held {
            LoopHost::open()
        } else {
            LoopHost::new()
        };
        let at = host.head().version;
        let append_at = |at: u64, events: &[Value]| {
            let texts = ChangeTexts {
                events: events.iter().map(Value::to_string).collect(),
                // The token of a lease names its holder as well as this does.
                request: (!held).then(|| "r".to_owned()),
                ..ChangeTexts::default()
            };
            let service = &host.world.service;
            let written = service.append_change(&host.thread, host.token, Some(at), &texts);
            host.world.audit();
            written
        };
        let first = append_at(at, &[message_event("user", "hi")]).unwrap();
        assert_eq!(first.version, at + 1);
        let before = host.head();
        assert_eq!(
            append_at(at, &[message_event("user", "hi")]).unwrap(),
            first
        );
        for (expected, text) in [(at, "hi!"), (at + 2, "hi"), (u64::MAX, "hi")] {
            let error = append_at(expected, &[message_event("user", text)]).unwrap_err();
            assert_eq!(code(&error), "conflict", "{expected} {text}");
        }
        assert_eq!(host.head(), before);
        // The same at a later position, and by a holder that has lost the thread since.
        host.append(&[message_event("assistant", "hello")]).unwrap();
        assert_eq!(
            append_at(at, &[message_event("user", "hi")])
                .unwrap()
                .version,
            first.version
        );
        if held {
            host.close("completed", None).unwrap();
            let again = append_at(at, &[message_event("user", "hi")]).unwrap();
            assert_eq!(
                (again.version, again.status.as_str()),
                (first.version, "completed")
            );
        }
    }
}

#[test]
fn the_bounds_of_an_append_fire() {
    let host = LoopHost::open();
    let partial = |bytes: usize| json!({"type": "partial", "text": "x".repeat(bytes)});
    host.append(&[partial(500 << 10)]).unwrap();
    assert_eq!(
        code(&host.append(&[partial(513 << 10)]).unwrap_err()),
        "invalid"
    );
    // Stored size: a raw control character would not be JSON, and one byte may become six.
    let many = vec![partial(0); 257];
    assert_eq!(code(&host.append(&many).unwrap_err()), "invalid");
    host.append(&many[..256]).unwrap();
    host.close("idle", None).unwrap();
}

/// Symptom: a reader of an entry whose text names an earlier version went round for ever. Cause:
/// the cursor of a page was the entry's own word. Fix: the place in the log decides, and a page
/// with another word is refused. Kind: the entries of a page.
#[test]
fn an_entry_that_names_another_version_is_refused() {
    let store = Arc::new(EditedLog::default());
    let shared: Arc<dyn StorageBackend> = Arc::<EditedLog>::clone(&store);
    let mut world = RunnerFixture::over(shared, MapLibrary::small());
    let chat = world.create(None);
    for text in ["one", "two", "three"] {
        let events = [message_event("user", text).to_string()];
        world.service.append(&chat, None, None, &events).unwrap();
    }
    for (word, named) in [("3", "2"), ("2", "1"), ("1", "3")] {
        let version = |word: &str| format!(r#""version":{word},"reason""#);
        store.edit(&version(word), &version(named));
        let after = word.parse::<u64>().unwrap() - 1;
        let read = world.service.entries(&chat, after, None, 1);
        let Err(ErrorKind::Core(CoreErrorKind::Corrupt(message))) =
            read.as_ref().map_err(Error::kind)
        else {
            panic!("{word} says {named}: {read:?}");
        };
        assert!(message.contains(&format!("version {word} ")), "{message}");
    }
}
