//! Hand-offs: the messages that they carry, and those that the next link is sent.

use super::fixture::{DrivenChain, library, library_without_summary, message, words};
use serde_json::json;
use threadkeep_core::thread::ThreadStatus;

fn roles(request: &[(String, String)]) -> Vec<&str> {
    request.iter().map(|(role, _)| role.as_str()).collect()
}

/// A chat that is asked until its window is nearly full.
fn filled_chat() -> DrivenChain {
    let mut chain = DrivenChain::start(library(json!({})), None, Some("first question"));
    for n in 0..8 {
        chain.say(&format!("answer {n} {}", words(90)));
        chain.ask(&format!("question {n}"));
        if chain.is_summarizing() {
            return chain;
        }
    }
    panic!("no hand-off was due: {:?}", chain.request());
}

#[test]
fn a_chat_is_handed_off_in_the_middle_of_a_question() {
    let mut chain = filled_chat();
    let asked = chain.request();
    assert_eq!(roles(&asked), ["user"]);
    assert!(asked[0].1.contains("first question"), "{asked:?}");
    let before = chain.load(&chain.thread);
    chain.say("They talked about questions.");
    chain.check();
    assert_eq!(chain.links.len(), 2);
    let request = chain.request();
    assert!(request[0].1.starts_with("## Thread Handoff Context"));
    assert!(request[0].1.contains("They talked about questions."));
    let last = request.last().unwrap();
    assert_eq!(last.0, "user");
    assert!(last.1.starts_with("question"), "{last:?}");
    let after = chain.load(&chain.thread);
    assert_eq!(after.head.value.run, before.head.value.run);
    assert_eq!(after.head.value.token, before.head.value.token);
    assert_eq!(after.head.value.holder, before.head.value.holder);
    let counted = |head: &threadkeep_core::thread::Head| head.counters.run_turns;
    assert_eq!(counted(&after.head.value), counted(&before.head.value));
    let old = chain.links[0].clone();
    assert_eq!(
        chain.event(&old, "context_limit_reached")["tokens_limit"],
        1_000
    );
    let told = chain.event(&old, "thread_handoff");
    assert_eq!(told["new_thread_id"], chain.thread);
    assert_eq!(told["summary_generated"], true);
    chain.say("the answer");
    assert_eq!(chain.status(), ThreadStatus::Idle);
    chain.check();
}

#[test]
fn tool_results_stay_last_and_no_summary_is_asked_for() {
    let mut chain = DrivenChain::start(library_without_summary(), Some("work"), None);
    while chain.links.len() == 1 {
        chain.call_tool(110);
        assert!(!chain.is_summarizing());
    }
    chain.check();
    let request = chain.request();
    let shown = roles(&request).join(" ");
    assert!(shown.ends_with("assistant tool user"), "{request:?}");
    let last = &request.last().unwrap().1;
    assert!(
        last.starts_with("Continue executing the directive."),
        "{last}"
    );
    let told = chain.event(&chain.links[0], "thread_handoff");
    assert_eq!(told["summary_generated"], false);
    chain.say("done");
    assert_eq!(chain.status(), ThreadStatus::Completed);
    chain.check();
}

#[test]
fn mail_that_comes_while_the_summary_is_written_is_answered_in_the_next_link() {
    let mut chain = filled_chat();
    let thread = chain.thread.clone();
    let sent = message("by the way");
    chain.world.service.signal(&thread, "m", &sent).unwrap();
    chain.say("a summary");
    assert_eq!(chain.links.len(), 2);
    assert_eq!(chain.request().last().unwrap().1, "by the way");
    chain.check();
}
