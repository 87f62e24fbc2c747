//! Calls of a model that cannot be done: the refusal is the result of the call and never fails the
//! `submit` of a paid reply.

use super::fixture::ThreadFamily;
use crate::history::code;
use crate::runner::fixture::{RunnerFixture, calls, raise};
use serde_json::{Value, json};
use std::sync::Arc;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_core::id::ID_BYTES_MAX;
use threadkeep_core::limits::{CAP_MAX, COUNT_CAP_MAX, ThreadCaps};
use threadkeep_core::money::NanoUsd;
use threadkeep_core::runner::SPAWNS_MAX;
use threadkeep_tests::fixture::MapLibrary;

const WORK: &str = r#"{"body": "Do the work.", "front": {}}"#;

/// Symptom: a reply that spawned a directive with a name of over 169 bytes could never be answered,
/// and was paid for again at each resume. Cause: the id made from the name was too long, and that
/// failed the `submit`. Fix: an id takes the beginning of a long name, and any error of a spawn is
/// its result. Kind: every length of a valid name, for children and for top threads.
#[test]
fn a_valid_name_of_any_length_can_be_spawned() {
    let names: Vec<String> = [168, 169, 170, 171, 199, ID_BYTES_MAX]
        .iter()
        .map(|length| format!("deep/{}", "d".repeat(length - 5)))
        .chain([["seg-ment-of-12"; 13].join("/")])
        .collect();
    let library = names.iter().fold(MapLibrary::small(), |library, name| {
        library.with("directive", name, WORK)
    });
    let mut world = RunnerFixture::over(Arc::new(MemoryStore::new()), library);
    let boss = world.create(Some("boss"));
    world.start(&boss, None).unwrap();
    let mut family = ThreadFamily { world, boss };
    for name in &names {
        let child = family.spawn(json!({ "directive": name }));
        assert!(child.len() <= ID_BYTES_MAX, "{child}");
        family.world.start(&child, None).unwrap();
        let top = family.world.create(Some(name));
        family.world.start(&top, None).unwrap();
        family.world.audit();
    }
}

/// Tools with arguments that must be refused.
fn refused_calls() -> Vec<(&'static str, Value)> {
    let spawn = |field: &str, value: Value| {
        let mut arguments = json!({"directive": "work"});
        arguments[field] = value;
        ("spawn_thread", arguments)
    };
    let above = json!(CAP_MAX + 1);
    let mut all = vec![
        spawn("directive", json!("none")),
        spawn("directive", json!("con")),
        spawn("directive", json!("d".repeat(ID_BYTES_MAX + 1))),
        spawn("directive", json!("a\u{0}b")),
        spawn("model", json!("none\n\u{0}")),
        spawn("title", json!("")),
        spawn("title", json!("two\nlines")),
        spawn("title", json!("x".repeat(201))),
        spawn("inputs", json!({"unknown": 1})),
        spawn("inputs", json!("x".repeat(70_000))),
        spawn("limits", json!({"spend": "9223372036.854775807"})),
        spawn("limits", json!({"spend": "18446744073.709551615"})),
        ("spawn_thread", json!([])),
        ("read_transcript", json!({"thread": "a\u{0}b"})),
        ("thread_status", json!({"thread": "x".repeat(100_000)})),
        ("wait_threads", json!({"threads": ["../x"]})),
        ("aggregate_results", json!({"threads": ["none"]})),
        ("aggregate_results", json!({"threads": [], "from": 4})),
        ("send_message", json!({"thread": "none", "message": "hi"})),
        ("kill_thread", json!({"thread": "CON"})),
        ("list_threads", json!({"status": "\u{0}"})),
    ];
    for cap in ["turns", "tokens", "spawns", "depth"] {
        let mut caps = json!({});
        caps[cap] = above.clone();
        all.push(spawn("limits", caps));
    }
    all
}

#[test]
fn impossible_call_gets_a_result() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    for (tool, arguments) in refused_calls() {
        // Each stands beside a call that can be done, so that bad rounds do not add up.
        let fine = ("list_threads", json!({}));
        let got = family.reply(&boss, &[(tool, arguments.clone()), fine]);
        let shown: String = arguments.to_string().chars().take(80).collect();
        assert!(got[0].1, "{tool} {shown}: {:?}", got[0].2);
        assert_eq!((got[0].2.is_empty(), got[1].1), (false, false), "{tool}");
        if family.load(&boss).head.value.counters.run_turns > 20 {
            let caps = ThreadCaps {
                turns: Some(100),
                ..ThreadCaps::NONE
            };
            let service = &family.world.service;
            service.signal(&boss, "turns", &raise(caps)).unwrap();
        }
    }
    assert_eq!(family.load(&boss).chain.value.children, 0);
}

/// The largest reserves of one reply, under a parent without a cap on spend, do not overflow.
#[test]
fn the_largest_reserves_are_refused_or_kept() {
    let front = json!({"capabilities": ["execute.tool.*"], "limits": {"turns": 5}});
    let free = json!({"name": "free", "body": "Go.", "front": front});
    let library = MapLibrary::small().with("directive", "free", &free.to_string());
    let mut world = RunnerFixture::over(Arc::new(MemoryStore::new()), library);
    let boss = world.create(Some("free"));
    world.start(&boss, None).unwrap();
    let arguments = r#"{"directive":"work","limits":{"spend":"9223372036.854775807"}}"#;
    let spawns = calls(&[("spawn_thread", arguments); SPAWNS_MAX]);
    world.submit(&boss, spawns).unwrap();
    world.audit();
}

/// Symptom: a cap above 2^63 was accepted and read elsewhere as a negative number. Cause: caps were
/// any number of 64 bits. Fix: the largest is 2^63 - 1, of a count 2^31 - 1. Kind: each cap, at a
/// creation and at a raise; the parser's tests cover a directive's.
#[test]
fn caps_above_the_largest_are_refused() {
    let mut world = RunnerFixture::new();
    let thread = world.create(Some("work"));
    let each = |count: u64, cap: u64| {
        let (count, number, none) = (Some(count), Some(cap), ThreadCaps::NONE);
        [
            ThreadCaps {
                turns: count,
                ..none
            },
            ThreadCaps {
                tokens: number,
                ..none
            },
            ThreadCaps {
                spawns: count,
                ..none
            },
            ThreadCaps {
                depth: count,
                ..none
            },
            ThreadCaps {
                duration: number,
                ..none
            },
            ThreadCaps {
                spend: Some(NanoUsd::new(cap)),
                ..none
            },
        ]
    };
    let above = each(COUNT_CAP_MAX + 1, CAP_MAX + 1);
    for caps in above.into_iter().chain(each(u64::MAX, u64::MAX)) {
        let raised = world.service.signal(&thread, "r", &raise(caps));
        assert_eq!(code(&raised.unwrap_err()), "invalid", "{caps:?}");
        let mut draft = threadkeep_core::thread::ThreadDraft::default();
        draft.overrides.limits = caps;
        let created = world.service.create(&draft);
        assert_eq!(code(&created.unwrap_err()), "invalid", "{caps:?}");
    }
    for (n, caps) in each(COUNT_CAP_MAX, CAP_MAX).into_iter().enumerate() {
        let name = format!("r{n}");
        world.service.signal(&thread, &name, &raise(caps)).unwrap();
    }
    world.audit();
}

/// Symptom: a child that had not begun was raised above its parent's cap, and stopped at that cap
/// all the same. Cause: its caps are lowered to its parent's at its first start. Fix: such a raise
/// is refused at once. Kind: each cap; a raise within the parent's is accepted and stays.
#[test]
fn a_created_child_is_not_raised_above_its_parent() {
    let mut family = ThreadFamily::new();
    let child = family.spawn(json!({"directive": "work", "limits": {"turns": 2}}));
    let above = [
        ThreadCaps {
            turns: Some(26),
            ..ThreadCaps::NONE
        },
        ThreadCaps {
            tokens: Some(1_000_001),
            ..ThreadCaps::NONE
        },
        ThreadCaps {
            spend: Some(NanoUsd::new(100_000_001)),
            ..ThreadCaps::NONE
        },
        ThreadCaps {
            spawns: Some(51),
            ..ThreadCaps::NONE
        },
        ThreadCaps {
            depth: Some(10),
            ..ThreadCaps::NONE
        },
        ThreadCaps {
            duration: Some(1_800_001),
            ..ThreadCaps::NONE
        },
    ];
    let service = &family.world.service;
    let before = family.load(&child);
    for caps in above {
        let refused = service.signal(&child, "r", &raise(caps)).unwrap_err();
        assert_eq!(code(&refused), "invalid", "{caps:?}");
        assert!(format!("{refused:?}").contains("spawned it"), "{refused:?}");
    }
    assert_eq!(family.load(&child), before, "nothing is written");
    let within = ThreadCaps {
        turns: Some(25),
        ..ThreadCaps::NONE
    };
    service.signal(&child, "w", &raise(within)).unwrap();
    family.world.start(&child, None).unwrap();
    assert_eq!(family.load(&child).head.value.limits.turns, Some(25));
    family.world.audit();
}
