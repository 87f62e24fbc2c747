//! The guard against a model that fills its window again and again: it counts hand-offs since the
//! last message from outside, however that came.

use super::fixture::{DrivenChain, library_without_summary, message, words};
use crate::runner::fixture::raise;
use serde_json::json;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::thread::ThreadStatus;

/// A directive's chain that is suspended because it was handed off too often in a row.
fn looping() -> DrivenChain {
    let mut chain = DrivenChain::start(library_without_summary(), Some("work"), None);
    let turns = ThreadCaps {
        turns: Some(10_000),
        ..ThreadCaps::NONE
    };
    let (thread, raised) = (chain.thread.clone(), raise(turns));
    chain.world.service.signal(&thread, "r", &raised).unwrap();
    while chain.status() == ThreadStatus::Running {
        chain.call_tool(110);
    }
    assert_eq!(chain.cause(), "handoff_loop");
    chain
}

/// Symptom: a message that was sent or appended to a suspended chain did not let it go on, and a
/// chat that was served by signals was suspended after twelve hand-offs of its whole life. Cause:
/// the count began anew where a start or the inbox brings a message, and nowhere else. Fix: it does
/// where the messages of an entry are counted. Kind: the ways in which a message reaches a history.
#[test]
fn a_message_by_signal_or_append_lets_a_suspended_chain_go_on() {
    for by_signal in [true, false] {
        let mut chain = looping();
        let thread = chain.thread.clone();
        let service = &chain.world.service;
        if by_signal {
            service.signal(&thread, "m", &message("go on")).unwrap();
        } else {
            let event = json!({"type": "message", "role": "user", "content": "go on"});
            let events = [event.to_string()];
            service.append(&thread, None, None, &events).unwrap();
        }
        assert_eq!(chain.load(&thread).head.value.hand_offs, 0);
        chain.try_start(None).unwrap();
        assert_eq!(chain.links.len(), 14);
        assert_eq!(chain.status(), ThreadStatus::Running);
        chain.check();
    }
}

#[test]
fn a_chat_that_is_served_by_signals_counts_from_the_last_message() {
    let mut chain = DrivenChain::start(library_without_summary(), None, Some("first"));
    for n in 0..12 {
        chain.say(&format!("answer {n} {}", words(90)));
        let (thread, sent) = (chain.thread.clone(), message(&format!("question {n}")));
        let name = format!("m{n}");
        chain.world.service.signal(&thread, &name, &sent).unwrap();
        assert_eq!(chain.load(&thread).head.value.hand_offs, 0);
        chain.try_start(None).unwrap();
    }
    assert!(chain.links.len() > 2, "{}", chain.links.len());
    chain.check();
}
