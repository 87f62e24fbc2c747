//! A child is created in the commit of the reply that asks for it, within its parent's rights and
//! money, or the model gets a refusal as the result.

use super::fixture::ThreadFamily;
use crate::runner::fixture::{raise, says};
use serde_json::{Value, json};
use threadkeep_core::limits::ThreadCaps;
use threadkeep_tests::fixture::MapLibrary;

const SPAWN: &str = "spawn_thread";

#[test]
fn a_child_takes_its_reserve_and_its_bounds_from_its_parent() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let asked =
        json!({"directive": "work", "title": "one", "limits": {"spend": "0.03", "turns": 99}});
    let child = family.spawn(asked);
    let loaded = family.load(&child);
    let (thread, chain) = (&loaded.thread.value, &loaded.chain.value);
    assert_eq!(thread.parent.as_deref(), Some(boss.as_str()));
    assert_eq!((chain.number, chain.depth), (1, 1));
    assert_eq!(family.account(&child), (30_000_000, 0, 0, 0));
    let (limit, _, held, reserved) = family.account(&boss);
    assert_eq!((limit, reserved), (100_000_000, 30_000_000));
    assert!(held > 0, "the next attempt is held beside the reserve");
    assert_eq!(thread.limits.turns, Some(25), "no more than its parent");
    assert_eq!(thread.limits.depth, Some(9), "a level less than its parent");
    assert_eq!(
        thread.capabilities,
        [
            "execute.tool.read",
            "execute.tool.write",
            "execute.tool.ask"
        ]
    );
    assert_eq!(family.load(&boss).head.value.counters.spawns, 1);
    assert_eq!(
        family.due().first().map(|due| due.0.clone()),
        Some(child.clone())
    );
    // The child ends, and gives back the money that it has not spent.
    family.world.start(&child, None).unwrap();
    family.world.submit(&child, says("done")).unwrap();
    assert_eq!(family.status(&child), "completed");
    let spent = family.account(&child).1;
    let (_, own, _, reserved) = family.account(&boss);
    assert_eq!(reserved, 0);
    assert_eq!(
        own - spent,
        family.load(&boss).head.value.counters.spend.get()
    );
    family.world.audit();
}

#[test]
fn a_child_without_a_spend_draws_on_its_parents_account() {
    let mut family = ThreadFamily::new();
    let child = family.spawn(json!({"directive": "work"}));
    let loaded = family.load(&child);
    assert!(!loaded.chain.value.has_account());
    assert_eq!(loaded.chain.value.draws_on(&child), family.boss);
    family.world.start(&child, None).unwrap();
    family.world.submit(&child, says("done")).unwrap();
    let (boss, child) = (family.load(&family.boss), family.load(&child));
    let both = boss.head.value.counters.spend.get() + child.head.value.counters.spend.get();
    assert_eq!(boss.chain.value.account.spent.get(), both);
    family.world.audit();
}

/// Arguments, and a part of the refusal that the model reads.
const REFUSED: [(&str, &str); 13] = [
    (r#"{"directive":"nothing"}"#, "nothing"),
    (r#"{"directive":"work","inputs":{"x":1}}"#, "inputs.x"),
    (r#"{"directive":"work","model":"nothing"}"#, "nothing"),
    (
        r#"{"directive":"work","limits":{"spend":"0.2"}}"#,
        "are left",
    ),
    (
        r#"{"directive":"work","limits":{"spend":-1}}"#,
        "spawn_thread.limits.spend",
    ),
    (
        r#"{"directive":"work","limits":{"spend":"NaN"}}"#,
        "spawn_thread.limits.spend",
    ),
    (
        r#"{"directive":"work","limits":{"spend":1e-3}}"#,
        "spawn_thread.limits.spend",
    ),
    (
        r#"{"directive":"work","limits":{"spend":"0.0000000001"}}"#,
        "spawn_thread.limits.spend",
    ),
    (
        r#"{"directive":"work","limits":{"spend":99999999999}}"#,
        "spawn_thread.limits.spend",
    ),
    (
        r#"{"directive":"work","limits":{"money":1}}"#,
        "spawn_thread.limits.money",
    ),
    (
        r#"{"directive":"work","parent":"other"}"#,
        "spawn_thread.parent",
    ),
    (r#"{"directive":"../work"}"#, "directive"),
    (r#"{"directive":"work","title":"a\nb"}"#, "title"),
];

#[test]
fn impossible_spawn_gets_a_result_and_changes_nothing() {
    for (arguments, part) in REFUSED {
        let mut family = ThreadFamily::new();
        let boss = family.boss.clone();
        let arguments: Value = serde_json::from_str(arguments).unwrap();
        let limit = family.account(&boss).0;
        // The boss's own cap would lower the request, so its account is made smaller than that cap.
        if part == "are left" {
            family.spawn(json!({"directive": "work", "limits": {"spend": "0.05"}}));
        }
        let before = family.load(&boss).chain.value.clone();
        let got = family.reply(&boss, &[(SPAWN, arguments.clone())]);
        assert_eq!((got.len(), got[0].1), (1, true), "{arguments}: {got:?}");
        assert!(got[0].2.contains(part), "{arguments}: {got:?}");
        let now = family.load(&boss);
        assert_eq!(family.status(&boss), "running");
        let chain = &now.chain.value;
        assert_eq!(
            (chain.children, chain.account.users),
            (before.children, before.account.users)
        );
        assert_eq!(
            (chain.account.reserved, family.account(&boss).0),
            (before.account.reserved, limit)
        );
    }
}

#[test]
fn clamp_takes_what_is_left() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    family.spawn(json!({"directive": "work", "limits": {"spend": "0.09"}}));
    let asked = json!({"directive": "work", "limits": {"spend": "0.05"}, "clamp": true});
    let child = family.spawn(asked);
    let (limit, spent, held, reserved) = family.account(&boss);
    let clamped = family.account(&child).0;
    assert_eq!(reserved, 90_000_000 + clamped);
    assert!(clamped < 10_000_000 && spent + held + reserved <= limit);
    assert_eq!(
        family.status(&boss),
        "suspended",
        "it has nothing left for its own next call"
    );
}

#[test]
fn one_reply_spawns_sixteen() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let many: Vec<(&str, Value)> = (0..18)
        .map(|_| (SPAWN, json!({"directive": "work"})))
        .collect();
    let got = family.reply(&boss, &many);
    let failed: Vec<&str> = got
        .iter()
        .filter(|got| got.1)
        .map(|got| got.2.as_str())
        .collect();
    assert_eq!((got.len(), failed.len()), (18, 2), "{got:?}");
    assert!(
        failed.iter().all(|text| text.contains("at most 16")),
        "{failed:?}"
    );
    assert_eq!(family.load(&boss).chain.value.children, 16);
}

#[test]
fn a_cap_on_spawns_stops_the_run_until_it_is_raised() {
    let caps = |spawns, depth| ThreadCaps {
        spawns,
        depth,
        ..ThreadCaps::NONE
    };
    for (caps, higher, code, value) in [
        (
            caps(Some(1), None),
            caps(Some(2), None),
            "spawns_exceeded",
            (1, 1),
        ),
        (
            caps(None, Some(0)),
            caps(None, Some(1)),
            "depth_exceeded",
            (1, 0),
        ),
    ] {
        let mut family = ThreadFamily::new();
        let boss = family.boss.clone();
        family
            .world
            .service
            .signal(&boss, "lower", &raise(caps))
            .unwrap();
        if code == "spawns_exceeded" {
            family.spawn(json!({"directive": "work"}));
        }
        let made = family.load(&boss).chain.value.children;
        let got = family.reply(
            &boss,
            &[(SPAWN, json!({"directive": "work"})), ("read", json!({}))],
        );
        assert_eq!((got.len(), got[0].1), (1, true), "{got:?}");
        let head = family.load(&boss).head.value;
        let cause = head.cause.clone().unwrap();
        assert_eq!(
            (cause.reason.as_str(), cause.code.as_str()),
            ("limit", code)
        );
        assert_eq!((cause.value, cause.maximum), (Some(value.0), Some(value.1)));
        assert_eq!(
            family.load(&boss).chain.value.children,
            made,
            "nothing was spawned"
        );
        family
            .world
            .service
            .signal(&boss, "raise", &raise(higher))
            .unwrap();
        family.world.start(&boss, None).unwrap();
        let outcomes = family.world.outcomes(&boss);
        family.world.submit(&boss, outcomes).unwrap();
        family.spawn(json!({"directive": "work"}));
        family.world.audit();
    }
}

#[test]
fn a_tool_of_the_host_cannot_have_a_name_of_the_runners_own() {
    let tool = r#"{"name":"spawn_thread","description":"another"}"#;
    let library = MapLibrary::small().with("tool", "spawn_thread", tool);
    let world = crate::runner::fixture::RunnerFixture::over(
        std::sync::Arc::new(threadkeep::storage::memory::MemoryStore::new()),
        library,
    );
    let draft = threadkeep_core::thread::ThreadDraft {
        directive: Some("work".to_owned()),
        ..Default::default()
    };
    let error = world.service.create(&draft).unwrap_err();
    assert!(
        format!("{error:?}").contains("threadkeep itself has"),
        "{error:?}"
    );
}
