//! Faults of the original's ledger, L1 to L14 of the study of it: each was reproduced there.

use super::loop_family::{LoopFamily, TENTH, denial_cause};
use crate::runner::fixture::{calls, raise, says};
use threadkeep_component::ports::HostPorts;
use threadkeep_core::history::parse_events;
use threadkeep_core::ledger::{LedgerRefusal, ReserveGrant, UnknownBill};
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::plan::{DecisionContext, ThreadChange};
use threadkeep_core::runner::Signal;

/// Price of a short reply: 100 and 10 tokens, at 1 and 2 USD a million.
const REPLY: u64 = 120_000;

/// L1: the spend of a root was never stored, and the report of it raised an error that was
/// swallowed.
#[test]
fn l01_a_roots_own_spend_is_stored() {
    let mut family = LoopFamily::new(Some(10 * TENTH));
    let world = &mut family.world;
    world.start("root", Some("go")).unwrap();
    world.submit("root", says("done")).unwrap();
    assert_eq!(world.status("root"), "idle");
    world.audit();
    let account = family.account("root");
    assert_eq!(account.spent.get(), REPLY);
    assert_eq!((account.held.get(), account.reserved.get()), (0, 0));
    assert_eq!(family.own_cost("root"), REPLY);
}

/// L2: a grandchild's spend was written into its parent's row, and overwritten there by the
/// parent's own report.
#[test]
fn l02_a_grandchilds_spend_is_not_overwritten_by_its_parents() {
    let mut family = LoopFamily::new(Some(30 * TENTH));
    family.child("root", "child", 10 * TENTH);
    family.child("child", "grandchild", 5 * TENTH);
    family.spend("grandchild", 4 * TENTH);
    family.end("grandchild");
    assert_eq!(family.tenths("child"), [10, 4, 0, 0]);
    family.spend("child", TENTH);
    family.end("child");
    assert_eq!(family.tenths("child"), [10, 5, 0, 0]);
    assert_eq!(family.tenths("root"), [30, 5, 0, 0]);
    let room = family.account("root").room(None).get();
    assert_eq!(room, 25 * TENTH);
    // Nothing is counted twice: own costs add up to what the root's account says.
    let own = ["root", "child", "grandchild"].map(|thread| family.own_cost(thread));
    assert_eq!(own.iter().sum::<u64>(), 5 * TENTH);
}

/// L3: a child that was started in the background reserved twice, once by its parent and once by
/// itself.
#[test]
fn l03_a_child_is_reserved_once_however_it_is_started() {
    let mut family = LoopFamily::new(Some(10 * TENTH));
    family.child("root", "child", 6 * TENTH);
    assert_eq!(family.tenths("root"), [10, 0, 0, 6]);
    // Its own start reserves nothing more, and it has all of its reserve.
    family.open("child");
    assert_eq!(family.tenths("root"), [10, 0, 0, 6]);
    family.hold("child", 6 * TENTH).unwrap();
    assert_eq!(family.tenths("root"), [10, 0, 0, 6]);
    // The same reserve once more does not fit, and the refusal names the amount that does.
    let short = LedgerRefusal::Short {
        need: NanoUsd::new(6 * TENTH),
        room: NanoUsd::new(4 * TENTH),
    };
    assert_eq!(reserve_refusal(&family, 6 * TENTH), Some(short));
    assert_eq!(reserve_refusal(&family, 4 * TENTH), None);
}

/// Returns the refusal of a reserve of this size from the root; nothing is written.
fn reserve_refusal(family: &LoopFamily, nanos: u64) -> Option<LedgerRefusal> {
    let loaded = family.world.service.load("root").unwrap();
    let moment = DecisionContext {
        now: family.world.service.ports().now(),
        commit: "0123456789abcdef",
        ceiling: ThreadCaps::NONE,
        unknown_bill: UnknownBill::Estimate,
        store_full_message: None,
    };
    let grant = ReserveGrant::Exactly(NanoUsd::new(nanos));
    ThreadChange::new(&loaded, moment)
        .fund_child(Some(grant))
        .err()
}

/// L4: no record showed that a child cost more than its reserve: its row had its limit, its
/// parent's the real cost.
#[test]
fn l04_an_overrun_is_recorded_in_every_account_on_the_way_and_owed_at_the_root() {
    let mut family = LoopFamily::new(Some(10 * TENTH));
    family.child("root", "child", TENTH);
    let held = family.hold("child", TENTH).unwrap();
    family.settle("child", held.version, 3 * TENTH).unwrap();
    assert_eq!(family.tenths("child"), [3, 3, 0, 0]);
    assert_eq!(family.tenths("root"), [10, 0, 0, 3]);
    family.end("child");
    assert_eq!(family.tenths("root"), [10, 3, 0, 0]);
    let held = family.hold("root", TENTH).unwrap();
    family.settle("root", held.version, 9 * TENTH).unwrap();
    assert_eq!(family.tenths("root"), [10, 12, 0, 0]);
    let owed = denial_cause(family.hold("root", 0));
    assert!(owed.message.contains("owes 0.20 USD"), "{owed:?}");
    family.raise("root", 13 * TENTH).unwrap();
    family.spend("root", TENTH);
}

/// L5: a crash left its hold for ever, and no sweep released it.
#[test]
fn l05_a_crash_leaves_no_hold() {
    let mut family = LoopFamily::new(Some(10 * TENTH));
    let handed = family.world.start("root", Some("go")).unwrap();
    let holder = handed.loaded.head.value.holder.clone().unwrap();
    let held = family.account("root").held;
    assert!(held > NanoUsd::ZERO);
    // Time enough for all tokens that the model may write.
    family.world.advance(10_000);
    let recovered = family.world.service.recover(&[holder], None).unwrap();
    assert_eq!(recovered.closed, ["root"]);
    family.world.audit();
    let account = family.account("root");
    assert_eq!(
        (account.held, account.spent),
        (NanoUsd::ZERO, held),
        "charged"
    );
    // And the thread goes on in place.
    family.world.start("root", None).unwrap();
    family.world.submit("root", says("done")).unwrap();
    assert_eq!(family.account("root").spent.get(), held.get() + REPLY);
}

/// L6: a new root deleted the rows of the living children of a parent that had finished, or failed
/// on them.
#[test]
fn l06_a_new_root_touches_nobody_elses_account() {
    let mut family = LoopFamily::new(Some(10 * TENTH));
    family.child("root", "child", 6 * TENTH);
    family.child("child", "grandchild", 2 * TENTH);
    family.end("root");
    let before = ["root", "child", "grandchild"].map(|thread| family.account(thread));
    family.root("another", Some(TENTH));
    family.end("another");
    family.root("third", Some(TENTH));
    let after = ["root", "child", "grandchild"].map(|thread| family.account(thread));
    assert_eq!(after, before);
    family.spend("grandchild", 2 * TENTH);
    family.end("grandchild");
    family.end("child");
    assert_eq!(family.tenths("root"), [10, 2, 0, 0]);
}

/// L7: a killed child was never released.
#[test]
fn l07_killed_child_returns_unspent_money() {
    let mut family = LoopFamily::new(Some(10 * TENTH));
    family.child("root", "child", 6 * TENTH);
    family.spend("child", TENTH);
    family.hold("child", 2 * TENTH).unwrap();
    assert_eq!(family.tenths("root"), [10, 0, 0, 6]);
    let kill = family.world.service.signal("child", "k", &Signal::Kill);
    kill.unwrap();
    family.world.audit();
    assert_eq!(family.world.status("child"), "killed");
    // The call under way may have been made: it is charged.
    assert_eq!(family.tenths("child"), [6, 3, 0, 0]);
    assert_eq!(family.tenths("root"), [10, 3, 0, 0]);
    assert_eq!(family.account("root").room(None).get(), 7 * TENTH);
}

/// L8: a child's spend after its parent had finished was dropped.
#[test]
fn l08_a_child_that_outlives_its_parent_still_reports() {
    let mut family = LoopFamily::new(Some(10 * TENTH));
    family.child("root", "child", 6 * TENTH);
    family.child("child", "grandchild", 4 * TENTH);
    family.child_without_account("grandchild", "poor");
    family.spend("child", TENTH);
    family.end("child");
    family.end("root");
    // The money stays reserved as long as a child lives below.
    assert_eq!(family.tenths("root"), [10, 0, 0, 6]);
    family.end("grandchild");
    family.spend("poor", 3 * TENTH);
    assert_eq!(family.tenths("poor"), [4, 3, 0, 0]);
    family.end("poor");
    assert_eq!(family.tenths("child"), [6, 4, 0, 0]);
    assert_eq!(family.tenths("root"), [10, 4, 0, 0]);
}

/// L9: a missing limit, documented as unlimited, left no money.
#[test]
fn l09_no_limit_is_unlimited_and_zero_is_zero() {
    let mut family = LoopFamily::new(None);
    family.spend("root", 1_000 * TENTH);
    family.child("root", "child", 1_000_000 * TENTH);
    family.spend("child", 1_000_000 * TENTH);
    family.end("child");
    assert_eq!(family.account("root").limit, None);
    family.root("nothing", Some(0));
    let cause = denial_cause(family.hold("nothing", 1));
    assert_eq!((cause.value, cause.maximum), (Some(1), Some(0)));
}

/// L10: sums were floats: three times 0.1 could not be reserved out of 0.3.
#[test]
fn l10_three_tenths_are_three_times_one_tenth() {
    let mut family = LoopFamily::new(Some(3 * TENTH));
    for _ in 0..3 {
        family.hold("root", TENTH).unwrap();
    }
    assert_eq!(family.tenths("root"), [3, 0, 3, 0]);
    denial_cause(family.hold("root", 1));
    let mut parent = LoopFamily::new(Some(3 * TENTH));
    for child in ["a", "b", "c"] {
        parent.child("root", child, TENTH);
    }
    assert_eq!(reserve_refusal(&parent, 0), None);
    assert!(reserve_refusal(&parent, 1).is_some());
    parent.end("a");
    assert_eq!(parent.account("root").room(None).get(), TENTH);
}

/// L11: a negative amount was accepted, and raised the remaining money.
#[test]
fn l11_nothing_negative_is_an_amount() {
    for text in ["-5", "-0.1", "-0"] {
        assert!(NanoUsd::parse(text).is_err(), "{text}");
    }
    let event = r#"{"type":"tool_result","id":"x","text":"t","cost":-5}"#;
    assert!(parse_events(&[event.to_owned()]).is_err());
    // As a number of the contract it would be a very large one.
    let mut family = LoopFamily::new(None);
    for nanos in [u64::MAX, u64::MAX - 5 * TENTH + 1] {
        let held = family.hold("root", nanos).unwrap_err();
        assert!(format!("{held:?}").contains("estimate.amount"), "{held:?}");
    }
    let held = family.hold("root", TENTH).unwrap();
    assert!(family.settle("root", held.version, u64::MAX).is_err());
    assert_eq!(family.tenths("root"), [0, 0, 1, 0]);
}

/// L12: a child that was reserved again under another parent was checked against the new parent and
/// charged to the first.
#[test]
fn l12_a_child_is_reserved_once_and_its_parent_never_changes() {
    let mut family = LoopFamily::new(Some(10 * TENTH));
    family.root("other", Some(10 * TENTH));
    family.child("root", "child", 4 * TENTH);
    let again = family.world.try_spawn("other", "Child", Some(2 * TENTH));
    assert!(!again, "it exists, in whatever case");
    assert_eq!(family.tenths("other"), [10, 0, 0, 0]);
    assert_eq!(family.tenths("root"), [10, 0, 0, 4]);
    family.spend("child", TENTH);
    family.end("child");
    // It resumes, and reserves the rest of its own money where it did before.
    assert_eq!(family.account("child").parent.as_deref(), Some("root"));
    assert_eq!(family.tenths("root"), [10, 1, 0, 0]);
    assert_eq!(family.tenths("other"), [10, 0, 0, 0]);
}

/// L13: a thread that was its own parent was charged twice.
#[test]
fn l13_a_thread_is_not_its_own_parent() {
    let mut family = LoopFamily::new(Some(10 * TENTH));
    assert!(!family.world.try_spawn("root", "root", Some(2 * TENTH)));
    assert!(!family.world.try_spawn("root", "ROOT", None));
    assert_eq!(family.tenths("root"), [10, 0, 0, 0]);
    family.child("root", "child", 2 * TENTH);
    assert!(
        !family.world.try_spawn("child", "root", Some(TENTH)),
        "a cycle"
    );
    assert_eq!(family.tenths("child"), [2, 0, 0, 0]);
    family.spend("root", TENTH);
    assert_eq!(family.tenths("root"), [10, 1, 0, 2]);
}

/// L14: a continued run began with the whole budget again, and counted from zero. (Hand-offs are
/// another issue's.)
#[test]
fn l14_continuing_keeps_the_spent_budget() {
    let mut family = LoopFamily::new(Some(10 * TENTH));
    for _ in 0..3 {
        family.spend("root", 3 * TENTH);
        family.close_idle("root");
    }
    assert_eq!(family.tenths("root"), [10, 9, 0, 0]);
    let cause = denial_cause(family.hold("root", 2 * TENTH));
    assert_eq!(cause.maximum, Some(TENTH));
    family.close_idle("root");

    // A run that is suspended and raised keeps its earlier figures, with a higher limit.
    let mut family = LoopFamily::new(Some(10 * TENTH));
    let turns = |turns| {
        raise(ThreadCaps {
            turns: Some(turns),
            ..ThreadCaps::NONE
        })
    };
    let world = &mut family.world;
    world.service.signal("root", "one", &turns(1)).unwrap();
    world.start("root", Some("go")).unwrap();
    world.submit("root", calls(&[("read", "{}")])).unwrap();
    let spent = family.own_cost("root");
    let world = &mut family.world;
    world.service.signal("root", "more", &turns(3)).unwrap();
    world.start("root", None).unwrap();
    world.submit("root", says("done")).unwrap();
    assert_eq!(family.own_cost("root"), spent + REPLY);
    assert_eq!(family.account("root").spent.get(), spent + REPLY);
}
