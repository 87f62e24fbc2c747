//! Resumes that are too large for the window: the successor is handed off before its first call.

use super::fixture::{DrivenChain, library, library_without_summary, words};
use crate::runner::fixture::user;
use serde_json::json;
use threadkeep_core::runner::StepOutcome;
use threadkeep_core::thread::{StepKind, ThreadStatus};
use threadkeep_tests::fixture::MapLibrary;

/// A directive's thread that has ended with most of its window used, resumed with a message that
/// does not fit beside that.
fn resume_large(library: MapLibrary) -> DrivenChain {
    let mut chain = DrivenChain::start(library, Some("work"), None);
    for _ in 0..4 {
        chain.call_tool(110);
    }
    chain.say("the work is done");
    assert_eq!(chain.status(), ThreadStatus::Completed);
    assert_eq!(chain.links.len(), 1, "it was handed off before");
    let message = user(&format!("{}and one thing more", words(200)));
    let (service, thread) = (&chain.world.service, &chain.thread);
    let begun = service.resume(thread, Some(&message), "r/1", "r/1", None);
    chain.take_step(begun.unwrap());
    chain
}

/// Checks a chain of three links of which the second was never asked anything but a summary.
fn check_three(chain: &DrivenChain, first_spent: u64, summary: u64) {
    assert_eq!(chain.links.len(), 3, "{:?}", chain.links);
    let [first, second, third] = [0, 1, 2].map(|at| chain.load(&chain.links[at]));
    assert_eq!(first.head.value.status, ThreadStatus::Completed);
    assert_eq!(second.head.value.status, ThreadStatus::Continued);
    assert_eq!(second.head.value.counters.turns, 0);
    for (before, after) in [(&first, &second), (&second, &third)] {
        let (before, after) = (&before.thread.value, &after.thread.value);
        assert_eq!(before.next.as_ref(), Some(&after.id));
        assert_eq!(after.previous.as_ref(), Some(&before.id));
        assert_eq!(after.chain, before.chain);
    }
    assert_eq!(third.chain.value.tip, third.thread.value.id);
    let account = &third.chain.value.account;
    assert_eq!(
        (account.users, account.limit),
        (1, first.chain.value.account.limit)
    );
    assert_eq!(account.spent.get(), first_spent + summary);
    assert_eq!(third.head.value.spend_under_cap(), account.spent);
    let request = chain.request();
    assert!(
        request[0].1.starts_with("## Thread Handoff Context"),
        "{request:?}"
    );
    let last = &request.last().unwrap().1;
    assert!(last.ends_with("and one thing more"), "{last}");
    chain.world.audit();
}

#[test]
fn a_resume_too_large_for_the_window_hands_off_before_its_first_call() {
    let mut chain = resume_large(library_without_summary());
    assert_eq!(chain.links.len(), 2);
    assert_eq!(chain.handed.step.kind, Some(StepKind::Wait));
    let spent = chain.load(&chain.links[0]).head.value.counters.spend.get();
    chain.world.audit();
    chain.submit(StepOutcome::Waited);
    check_three(&chain, spent, 0);
    chain.say("that, too");
    assert_eq!(chain.status(), ThreadStatus::Completed);
    chain.world.audit();
}

#[test]
fn its_summary_is_the_only_attempt_of_the_link_between() {
    let mut chain = resume_large(library(json!({})));
    let spent = chain.load(&chain.links[0]).head.value.counters.spend.get();
    chain.submit(StepOutcome::Waited);
    assert_eq!(chain.links.len(), 2);
    assert!(chain.is_summarizing());
    chain.say("The work was done.");
    let summary = chain.load(&chain.links[1]).head.value.counters.spend.get();
    assert!(summary > 0);
    check_three(&chain, spent, summary);
    assert!(chain.request()[0].1.contains("The work was done."));
    chain.say("that, too");
    assert_eq!(chain.status(), ThreadStatus::Completed);
    chain.world.audit();
}
