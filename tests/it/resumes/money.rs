//! The money of a resume: accounts that open again, and those that do not.

use super::fixture::{core_error, resume};
use crate::children::fixture::ThreadFamily;
use crate::runner::fixture::says;
use serde_json::json;
use threadkeep_core::error::ErrorKind as CoreErrorKind;
use threadkeep_core::runner::Signal;

/// A child with an account of its own whose parent has spent what is left: refused, with what is
/// available, and nothing is written.
#[test]
fn a_child_whose_parent_has_too_little_is_refused_with_what_is_left() {
    let mut family = ThreadFamily::new();
    let child = family.spawn(json!({"directive": "work", "limits": {"spend": "0.06"}}));
    family.world.start(&child, None).unwrap();
    family.world.submit(&child, says("done")).unwrap();
    // The parent has 0.1 USD; this takes most of it.
    let second = family.spawn(json!({"directive": "work", "limits": {"spend": "0.06"}}));
    family.world.start(&second, None).unwrap();
    let before = family.load(&child);
    match core_error(resume(&mut family.world, &child, Some("go on"))) {
        CoreErrorKind::Exceeded(cause) => {
            assert_eq!(cause.code, "spend_exceeded");
            assert!(
                cause.maximum.is_some_and(|left| left < 50_000_000),
                "{cause:?}"
            );
            assert!(cause.message.contains("are left"), "{cause:?}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(family.load(&child), before);
    family.world.audit();
    // What the second gives back is enough.
    family.world.submit(&second, says("done")).unwrap();
    let next = resume(&mut family.world, &child, Some("go on")).unwrap();
    let chain = family.load(&next).chain.value;
    assert_eq!(
        (chain.account.users, chain.account.reported.get() > 0),
        (1, true)
    );
    family.world.submit(&next, says("done")).unwrap();
    family.world.audit();
}

/// A child below a parent that was killed cannot draw on the frozen account above: it is refused
/// and told whose it is. Once that is resumed, it can.
#[test]
fn a_frozen_account_is_thawed_by_the_thread_that_owns_it() {
    for own in [None, Some("0.02")] {
        let mut family = ThreadFamily::new();
        let boss = family.boss.clone();
        let child = match own {
            None => family.spawn(json!({"directive": "work"})),
            Some(spend) => family.spawn(json!({"directive": "work", "limits": {"spend": spend}})),
        };
        family.world.start(&child, None).unwrap();
        family.world.submit(&child, says("done")).unwrap();
        family
            .world
            .service
            .signal(&boss, "k", &Signal::Kill)
            .unwrap();
        family.sweep();
        match core_error(resume(&mut family.world, &child, Some("go on"))) {
            CoreErrorKind::Refused { advice, .. } => assert!(advice.contains(&boss), "{advice}"),
            other => panic!("{own:?}: {other:?}"),
        }
        family.world.audit();
        let next = resume(&mut family.world, &boss, Some("go on")).unwrap();
        assert!(!family.load(&next).chain.value.account.frozen);
        let again = resume(&mut family.world, &child, Some("go on")).unwrap();
        family.world.submit(&again, says("done")).unwrap();
        family.world.submit(&next, says("done")).unwrap();
        family.world.audit();
    }
}

/// The cap on spend bounds the chain: a successor at the cap suspends in the commit of its resume.
#[test]
fn a_cap_on_spend_does_not_begin_again() {
    let mut world = crate::runner::fixture::RunnerFixture::new();
    let thread = world.create(Some("poor"));
    world.start(&thread, None).unwrap();
    // 1,000 nano-USD a token: 900 tokens are most of the 0.001 USD.
    let dear = crate::runner::fixture::reply(
        vec![threadkeep_core::runner::ReplyBlock::Text {
            text: "done".to_owned(),
        }],
        crate::runner::fixture::usage(990, 1),
    );
    world.submit(&thread, dear).unwrap();
    let next = resume(&mut world, &thread, Some("go on")).unwrap();
    assert_eq!(world.status(&next), "suspended");
    let head = world.service.load(&next).unwrap().head.value;
    assert_eq!(head.cause.clone().unwrap().code, "spend_exceeded");
    world.audit();
}
