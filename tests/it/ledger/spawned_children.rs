//! The same faults where runs spawn their children by the tool `spawn_thread`, and where the parent
//! waits for them.

use crate::children::fixture::ThreadFamily;
use crate::runner::fixture::{raise, reply, says, usage};
use serde_json::{Value, json};
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::runner::ReplyBlock;

/// Returns a thread's own spend.
fn own_spend(family: &ThreadFamily, thread: &str) -> u64 {
    family.load(thread).head.value.counters.spend.get()
}

/// Spawns a child of the boss that may spawn, with its own money.
fn spawn_middle(family: &mut ThreadFamily, spend: &str) -> String {
    let child = family.spawn(json!({"directive": "boss", "limits": {"spend": spend}}));
    family.world.start(&child, None).unwrap();
    child
}

/// L2 and L8: a grandchild's spend arrives at the top once, whichever thread ends first.
#[test]
fn l02_spend_of_three_levels_adds_up_in_any_order() {
    for (order, name) in [
        ([2, 1, 0], "from below"),
        ([0, 1, 2], "from above"),
        ([1, 2, 0], "mixed"),
    ] {
        let mut family = ThreadFamily::new();
        let boss = family.boss.clone();
        let child = spawn_middle(&mut family, "0.06");
        let asked = json!({"directive": "work", "limits": {"spend": "0.02"}});
        let grandchild = family.spawn_under(&child, asked);
        family.world.start(&grandchild, None).unwrap();
        let threads = [boss, child, grandchild];
        for at in order {
            family.world.submit(&threads[at], says("done")).unwrap();
            assert_eq!(family.status(&threads[at]), "completed", "{name}");
            family.world.audit();
        }
        let all: u64 = threads
            .iter()
            .map(|thread| own_spend(&family, thread))
            .sum();
        assert_eq!(
            family.account(&threads[0]),
            (100_000_000, all, 0, 0),
            "{name}"
        );
        let below = own_spend(&family, &threads[1]) + own_spend(&family, &threads[2]);
        assert_eq!(family.account(&threads[1]).1, below, "{name}");
    }
}

/// L3: a child's own money is reserved when it is spawned, and not again when it starts.
#[test]
fn l03_a_spawned_child_is_reserved_once() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let child = family.spawn(json!({"directive": "work", "limits": {"spend": "0.06"}}));
    assert_eq!(family.account(&boss).3, 60_000_000);
    family.world.start(&child, None).unwrap();
    assert_eq!(family.account(&boss).3, 60_000_000);
    let again = json!({"directive": "work", "limits": {"spend": "0.06"}});
    let got = family.reply(&boss, &[("spawn_thread", again)]);
    assert!(got[0].1 && got[0].2.contains("are left"), "{got:?}");
    assert_eq!(family.account(&boss).3, 60_000_000);
    let rest = json!({"directive": "work", "limits": {"spend": "0.03"}});
    family.spawn(rest);
    assert_eq!(family.account(&boss).3, 90_000_000);
}

/// L4 and L7: a child that costs more than its reserve, and is killed then, leaves nothing reserved
/// and nothing lost.
#[test]
fn l04_an_overrun_of_a_spawned_child_is_paid_by_those_above() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let child = family.spawn(json!({"directive": "work", "limits": {"spend": "0.01"}}));
    family.world.start(&child, None).unwrap();
    let block = ReplyBlock::ToolUse {
        id: "x".to_owned(),
        name: "read".to_owned(),
        arguments: "{}".to_owned(),
        raw: None,
    };
    // 0.01 USD read and 0.02 written: no more than is believed.
    let dear = reply(vec![block], usage(10_000, 10_000));
    family.world.submit(&child, dear).unwrap();
    family.world.audit();
    assert_eq!(family.account(&child).0, 30_000_000, "its limit was raised");
    assert_eq!(
        family.account(&boss).3,
        30_000_000,
        "and so was its reserve"
    );
    let kill = threadkeep_core::runner::Signal::Kill;
    family.world.service.signal(&child, "k", &kill).unwrap();
    family.world.audit();
    let (_, spent, _, reserved) = family.account(&boss);
    assert_eq!(
        (spent, reserved),
        (30_000_000 + own_spend(&family, &boss), 0)
    );
}

/// 66 (claude-agent-sdk 1273): a cap that was hit inside a child left its parent without a result
/// for ever.
#[test]
fn e66_a_child_that_has_run_out_is_a_result_for_its_parent() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let poor = family.spawn(json!({"directive": "poor"}));
    family.world.start(&poor, None).unwrap();
    family.reply(&boss, &[("wait_threads", json!({"threads": [poor]}))]);
    assert_eq!(family.status(&boss), "waiting");
    let block = ReplyBlock::ToolUse {
        id: "x".to_owned(),
        name: "read".to_owned(),
        arguments: "{}".to_owned(),
        raw: None,
    };
    // 0.0009 of its 0.001 USD.
    let dear = reply(vec![block], usage(300, 300));
    family.world.submit(&poor, dear).unwrap();
    let outcomes = family.world.outcomes(&poor);
    family.world.submit(&poor, outcomes).unwrap();
    family.world.audit();
    assert_eq!(family.status(&poor), "suspended");
    family.claim(&boss).unwrap();
    assert_eq!(family.status(&boss), "running");
    let told: Value = serde_json::from_str(&family.results(&boss)[0].2).unwrap();
    assert_eq!(told["threads"][0]["status"], "suspended", "{told}");
    let cause = told["threads"][0]["cause"].as_str().unwrap();
    assert!(cause.starts_with("spend_exceeded"), "{cause}");
    // A raise lets the child go on in place; its parent has gone on meanwhile.
    let caps = ThreadCaps {
        spend: Some(NanoUsd::new(5_000_000)),
        ..ThreadCaps::NONE
    };
    let raised = family.world.service.signal(&poor, "r", &raise(caps));
    raised.unwrap();
    family.world.start(&poor, None).unwrap();
    family.world.submit(&poor, says("done")).unwrap();
    assert_eq!(family.status(&poor), "completed");
    family.world.audit();
}
