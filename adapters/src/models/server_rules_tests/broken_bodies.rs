//! Bodies with one fault each: the checkers refuse every one of them, and name the rule.
//!
//! `broken_chats` and `broken_messages` have the bodies; here are the tests and the helpers that
//! break a body.

use super::chat_rules::{RuleCheck, ServerRules};
use super::{anthropic_rules, broken_chats, broken_messages};
use crate::models::dialect::{ANTHROPIC, DIALECTS};
use serde_json::{Value, json};

/// A server, the rule that it names, and a change that makes a valid body break the rule.
pub(super) type BrokenBody = (&'static str, &'static str, fn(&mut Value));

pub(super) fn list<'a>(body: &'a mut Value, place: &str) -> &'a mut Vec<Value> {
    let found = body.pointer_mut(place).and_then(Value::as_array_mut);
    found.expect("a list")
}

pub(super) fn messages(body: &mut Value) -> &mut Vec<Value> {
    list(body, "/messages")
}

pub(super) fn add_field(value: &mut Value, name: &str) {
    value[name] = json!("x");
}

pub(super) fn remove_field(value: &mut Value, name: &str) {
    value.as_object_mut().expect("an object").remove(name);
}

fn check(server: &str, body: &Value) -> RuleCheck {
    if server == ANTHROPIC.name {
        anthropic_rules::check(body)
    } else {
        ServerRules::for_dialect(server).check(body)
    }
}

fn valid_body_of(server: &str) -> Value {
    if server == ANTHROPIC.name {
        broken_messages::valid_body()
    } else {
        broken_chats::valid_body(server)
    }
}

#[test]
fn checkers_refuse_every_broken_body() {
    let tables: [&[BrokenBody]; 7] = [
        &broken_chats::ROLES,
        &broken_chats::CALLS,
        &broken_chats::WORDS,
        &broken_chats::THINKING,
        &broken_chats::FIELDS,
        &broken_messages::TURNS,
        &broken_messages::BLOCKS,
    ];
    for (number, (server, rule, break_body)) in tables.concat().into_iter().enumerate() {
        let mut body = valid_body_of(server);
        break_body(&mut body);
        let Err(refused) = check(server, &body) else {
            panic!("number {number} is taken by {server}, though: {rule}");
        };
        let named = refused.contains(rule);
        assert!(
            named,
            "number {number}: {server} says {refused}, not {rule}"
        );
    }
}

#[test]
fn checkers_take_sound_bodies() {
    for dialect in DIALECTS.into_iter().chain([ANTHROPIC]) {
        let server = dialect.name;
        assert_eq!(check(server, &valid_body_of(server)), Ok(()), "{server}");
    }
}

/// A user's message after a result is refused by some servers and accepted by others.
#[test]
fn rules_differ_by_server() {
    for server in DIALECTS.map(|dialect| dialect.name) {
        let mut body = valid_body_of(server);
        messages(&mut body).remove(5);
        let taken = matches!(server, "openai" | "azure" | "gemini" | "groq");
        assert_eq!(check(server, &body).is_ok(), taken, "{server}");
    }
}
