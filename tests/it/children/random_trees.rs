//! Random requests against trees of threads: the auditor finds nothing after any of them, and every
//! thread that was begun comes to its end.

use super::random_forest::RandomForest;
use super::random_requests::request;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use std::collections::BTreeMap;
use threadkeep_tests::soak::repetitions;

/// Number of random histories of a test run, unless `cargo xtask soak` asks for more.
const CASES: u32 = 56;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: repetitions(CASES),
        max_shrink_iters: 4_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn trees_stay_sound_and_come_to_their_end(
        requests in prop::collection::vec(request(), 1..120)
    ) {
        let mut forest = RandomForest::new();
        for request in requests {
            forest.perform(request);
            forest.world.audit();
        }
        forest.settle();
        forest.world.audit();
        forest.check_at_rest();
        forest.check_blobs();
        forest.end_all_threads();
        forest.world.audit();
    }
}

/// Outcomes that must each occur among the same number of histories of these requests.
const OUTCOMES: [&str; 65] = [
    "aggregate_results",
    "answer",
    "approve",
    "cancel",
    "cancel refused",
    "cancel_thread",
    "cancel_thread refused",
    "claim",
    "claim refused",
    "completed before its children",
    "costly",
    "decided while it runs",
    "deny",
    "due",
    "fail",
    "fork",
    "fork refused",
    "handed off",
    "kill",
    "kill_thread",
    "late truth",
    "late truth known",
    "list_threads",
    "message",
    "message refused",
    "no room",
    "raise",
    "raise refused",
    "raise through",
    "raise through refused",
    "read_transcript",
    "recover",
    "reply",
    "resume",
    "resume in a successor",
    "resume refused",
    "resume_thread",
    "send_message",
    "send_message refused",
    "spawn_thread",
    "spawn_thread refused",
    "spawn_thread with money",
    "start",
    "start refused",
    "stop",
    "summary",
    "suspended approval_needed",
    "suspended by its child spend_exceeded",
    "suspended depth_exceeded",
    "suspended provider_permanent",
    "suspended recovered",
    "suspended spawns_exceeded",
    "suspended spend_exceeded",
    "suspended stopped",
    "suspended turns_exceeded",
    "sweep",
    "sweep when due",
    "thread_status",
    "tools",
    "wait_threads",
    "wait_threads late",
    "wait_threads refused",
    "waited",
    "waits",
    "wake",
];

/// Outcomes that must occur so many times among the histories of a test run, whose requests are
/// always the same: each is reached in several ways.
const FREQUENT_OUTCOMES: [(&str, u64); 16] = [
    ("answer", 10),
    ("approve", 20),
    ("blob named", 10),
    ("blob without a reference", 2),
    ("crossing calls", 4),
    ("decided while it runs", 1),
    ("deny", 5),
    ("edit large", 15),
    ("edit operation", 30),
    ("edit patch", 30),
    ("edit snapshot", 30),
    ("edit wrong refused", 20),
    ("edits of a call that do not apply", 15),
    ("handed off", 20),
    ("state changed", 200),
    ("state written down", 4),
];

#[test]
fn every_outcome_occurs() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut counts = BTreeMap::<String, u64>::new();
    for _ in 0..repetitions(CASES) {
        let mut forest = RandomForest::new();
        for _ in 0..150 {
            let request = request().new_tree(&mut runner).unwrap().current();
            forest.perform(request);
        }
        forest.check_blobs();
        forest.end_all_threads();
        forest.world.audit();
        for (what, n) in forest.world.counts {
            *counts.entry(what).or_default() += n;
        }
    }
    println!("outcomes: {counts:#?}");
    for what in OUTCOMES {
        assert!(counts.contains_key(what), "{what} never occurred");
    }
    for (what, least) in FREQUENT_OUTCOMES {
        let count = counts.get(what).copied().unwrap_or_default();
        assert!(count >= least, "{what} occurred {count} times");
    }
}
