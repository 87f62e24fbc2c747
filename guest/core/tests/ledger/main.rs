//! Random requests against trees of chains, their accounts and their states. After each request,
//! independent books must agree with the records. `cargo xtask soak` runs more of them.

mod auditor;
mod bugs;
mod chains;
mod joined_plans;
mod random_request;
mod request_outcome;
mod state_requests;
mod states;
mod store;
mod world;

use auditor::LedgerAuditor;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use random_request::{RandomRequest, request_strategy};
use std::collections::BTreeMap;
use std::sync::Mutex;
use world::TestWorld;

/// Requests of one case.
const REQUESTS: usize = 200;

/// Fewest times that each of [`OUTCOMES`] must occur in the run.
const OCCURS_MIN: u64 = 500;
const OUTCOMES: [&str; 19] = [
    "admitted",
    "denied",
    "overrun",
    "debt",
    "replay",
    "integrity error",
    "fenced",
    "settled",
    "released",
    "estimated",
    "charged",
    "corrected",
    "closed",
    "reopened",
    "reserved",
    "conflict",
    "forked",
    "resumed",
    "handed off",
];

/// Fewest times of what needs several others before it. An earlier link is corrected after an
/// attempt whose driver is lost, its charge, and another link.
const RARER_OUTCOMES: [(&str, u64); 13] = [
    ("corrected in an earlier link", 20),
    ("state patched", 500),
    ("state operated on", 500),
    ("state replaced", 500),
    ("state written down", 50),
    ("edits refused", 200),
    ("edits of a call refused", 200),
    ("forked with a state", 50),
    ("stopped for approval", 200),
    ("asked by its tool", 30),
    ("approved", 200),
    ("denied by a person", 200),
    ("answered", 200),
];

/// Number of random histories of a test run.
const CASES: u32 = 640;

/// Returns [`CASES`], times the factor that `cargo xtask soak` asks for.
#[expect(
    clippy::disallowed_methods,
    reason = "only the machine that tests knows how long"
)]
fn cases() -> u32 {
    let factor = std::env::var("THREADKEEP_SOAK");
    CASES * factor.map_or(1, |asked| asked.parse().expect("a whole number"))
}

static TOTAL: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

/// Performs requests; returns the first problem found.
fn run_requests(world: &mut TestWorld, requests: &[RandomRequest]) -> Result<(), String> {
    let mut auditor = LedgerAuditor::default();
    for request in requests {
        let done = world.request(request);
        done.and_then(|()| auditor.audit(&world.store))
            .map_err(|problem| format!("{request:?}: {problem}"))?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(),
        max_shrink_iters: 5_000,
        ..ProptestConfig::default()
    })]

    fn the_books_say_the_same(requests in prop::collection::vec(request_strategy(), REQUESTS)) {
        let mut world = TestWorld::new(None);
        let found = run_requests(&mut world, &requests);
        prop_assert!(found.is_ok(), "{found:?}");
        let mut total = TOTAL.lock().expect("no panic before");
        for (outcome, count) in world.outcomes {
            *total.entry(outcome).or_default() += count;
        }
    }
}

#[test]
fn the_books_say_the_same_after_every_request_and_every_outcome_occurs() {
    the_books_say_the_same();
    let total = TOTAL.lock().expect("no panic before").clone();
    println!("{total:#?}");
    let bounds = OUTCOMES.map(|outcome| (outcome, OCCURS_MIN));
    for (outcome, least) in bounds.into_iter().chain(RARER_OUTCOMES) {
        let count = total.get(outcome).copied().unwrap_or(0);
        assert!(count >= least, "{outcome}: {count}");
    }
}

#[test]
fn every_planted_bug_is_found() {
    for bug in bugs::BUGS {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let strategy = prop::collection::vec(request_strategy(), REQUESTS);
        let found = (0..50).find_map(|case| {
            let tree = strategy.new_tree(&mut runner).expect("requests");
            let problem = run_requests(&mut TestWorld::new(Some(bug)), &tree.current()).err()?;
            Some(format!("case {case}: {problem}"))
        });
        println!("{bug:?}: {found:?}");
        assert!(found.is_some(), "{bug:?} was not found");
    }
}
