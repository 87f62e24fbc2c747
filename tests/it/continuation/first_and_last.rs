//! The two models of the field's commonest complaint after a hand-off: one that answers the last
//! message of a user, and one that starts whatever stands first. The test shows both what they were
//! given.

use super::fixture::{DrivenChain, library, words};
use serde_json::json;
use threadkeep_core::thread::ThreadStatus;

const SUMMARY: &str = "Completed Work: question 0 was answered, and a.txt was read.";

/// A reply of a scripted model to a request.
type ScriptedModel = fn(&[(String, String)]) -> String;

/// Answers the last message of a user.
fn answer_last(request: &[(String, String)]) -> String {
    let last = request.iter().rfind(|(role, _)| role == "user");
    format!("answered: {}", last.unwrap().1)
}

/// Starts whatever stands first.
fn restart_first(request: &[(String, String)]) -> String {
    format!("started: {}", request[0].1)
}

/// A chat in the second link, in the middle of the question of this number.
fn chat_after_hand_off() -> (DrivenChain, String) {
    let mut chain = DrivenChain::start(library(json!({})), None, Some("the first question"));
    for n in 0..9 {
        chain.say(&format!("answer {n} {}", words(90)));
        let question = format!("question {n}");
        chain.ask(&question);
        if chain.is_summarizing() {
            chain.say(SUMMARY);
            return (chain, question);
        }
    }
    panic!("no hand-off was due: {:?}", chain.request());
}

/// A directive's thread in the second link, whose first step is done.
fn directive_after_hand_off() -> DrivenChain {
    let mut chain = DrivenChain::start(library(json!({})), Some("work"), None);
    while chain.links.len() == 1 {
        match chain.is_summarizing() {
            true => chain.say(SUMMARY),
            false => chain.call_tool(110),
        };
    }
    chain
}

/// Checks what opens a link: the summary, as background that nothing is asked in.
fn check_opening(request: &[(String, String)]) {
    let (role, opening) = &request[0];
    assert_eq!(role, "user");
    assert!(
        opening.starts_with("## Thread Handoff Context"),
        "{opening}"
    );
    assert!(opening.contains("it asks for nothing"), "{opening}");
    assert!(opening.contains("do not start over"), "{opening}");
    assert!(opening.contains(SUMMARY), "{opening}");
}

#[test]
fn in_a_chat_the_last_message_is_the_question_and_the_first_asks_for_nothing() {
    for (model, given) in [
        (answer_last as ScriptedModel, "answered"),
        (restart_first, "started"),
    ] {
        let (mut chain, question) = chat_after_hand_off();
        let request = chain.request();
        check_opening(&request);
        let asked = request.iter().filter(|(_, text)| *text == question);
        assert_eq!(asked.count(), 1, "{request:?}");
        let reply = model(&request);
        match given {
            "answered" => assert_eq!(reply, format!("answered: {question}")),
            _ => assert_eq!(reply, format!("started: {}", request[0].1)),
        }
        chain.say(&reply);
        assert_eq!(chain.status(), ThreadStatus::Idle);
        // What is asked next stands last, whatever the model did before.
        chain.ask("the next question");
        assert_eq!(answer_last(&chain.request()), "answered: the next question");
        chain.check();
    }
}

#[test]
fn in_a_directive_the_last_message_goes_on_and_the_first_says_what_is_done() {
    for (model, given) in [
        (answer_last as ScriptedModel, "answered"),
        (restart_first, "started"),
    ] {
        let mut chain = directive_after_hand_off();
        let request = chain.request();
        check_opening(&request);
        let reply = model(&request);
        match given {
            "answered" => assert_eq!(
                reply,
                "answered: Continue executing the directive. Pick up where the previous thread \
                 left off."
            ),
            _ => assert_eq!(reply, format!("started: {}", request[0].1)),
        }
        // Before that stands what the tools said last.
        let (role, text) = &request[request.len() - 2];
        assert_eq!(role, "tool", "{text}");
        chain.say(&reply);
        assert_eq!(chain.status(), ThreadStatus::Completed);
        chain.check();
    }
}
