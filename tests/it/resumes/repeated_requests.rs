//! Repeated and competing resumes.

use super::fixture::{core_error, holder_of, resume_as, sent_messages};
use crate::runner::fixture::{RunnerFixture, says};
use threadkeep_core::error::ErrorKind as CoreErrorKind;

fn ended_thread(world: &mut RunnerFixture) -> String {
    let thread = world.create(Some("work"));
    world.start(&thread, None).unwrap();
    world.submit(&thread, says("done")).unwrap();
    thread
}

/// The same request finds its successor while the first step is pending, and is told of it later.
#[test]
fn a_repeated_resume_makes_one_successor() {
    let mut world = RunnerFixture::new();
    let thread = ended_thread(&mut world);
    let first = resume_as(&world, &thread, Some("go on"), "a").unwrap();
    let next = first.loaded.thread.value.id.clone();
    let again = resume_as(&world, &thread, Some("go on"), "a").unwrap();
    assert_eq!(again.loaded.thread.value.id, next);
    assert_eq!(again.step, first.step);
    assert_eq!((&again.more, again.more.is_some()), (&first.more, true));
    // By any link.
    let by_tip = resume_as(&world, &next, Some("go on"), "a").unwrap();
    assert_eq!((&by_tip.step, &by_tip.more), (&first.step, &first.more));
    match core_error(resume_as(&world, &thread, Some("another"), "a")) {
        CoreErrorKind::Conflict { field, .. } => assert_eq!(field, "input"),
        other => panic!("{other:?}"),
    }
    match core_error(resume_as(&world, &thread, Some("go on"), "b")) {
        CoreErrorKind::Busy { thread, holder, .. } => {
            assert_eq!((thread, &*holder), (next.clone(), "a"))
        }
        other => panic!("{other:?}"),
    }
    world.hold(&next, Ok(first)).unwrap();
    world.submit(&next, says("done")).unwrap();
    match core_error(resume_as(&world, &thread, Some("go on"), "a")) {
        CoreErrorKind::Continued {
            thread: old,
            next: new,
        } => assert_eq!((old, new), (thread, next.clone())),
        other => panic!("{other:?}"),
    }
    assert!(sent_messages(&world, &next).len() == 4);
    world.audit();
}

/// A key of a signal and a key of a resume do not meet.
#[test]
fn keys_of_signals_and_resumes_are_apart() {
    let mut world = RunnerFixture::new();
    let thread = world.create(Some("work"));
    world.start(&thread, None).unwrap();
    let cancel = threadkeep_core::runner::Signal::Kill;
    world.service.signal(&thread, "same", &cancel).unwrap();
    let begun = resume_as(&world, &thread, Some("go on"), "same").unwrap();
    assert_eq!(holder_of(&world, &begun.loaded.thread.value.id), "same");
    world.audit();
}

/// Names that are no names are refused before anything is read.
#[test]
fn bad_requests_are_refused() {
    let mut world = RunnerFixture::new();
    let thread = ended_thread(&mut world);
    for holder in ["", "a\nb"] {
        let refused = core_error(resume_as(&world, &thread, Some("x"), holder));
        assert!(
            matches!(refused, CoreErrorKind::Invalid { .. }),
            "{holder:?}: {refused:?}"
        );
    }
    let none = core_error(resume_as(&world, "nobody", Some("x"), "a"));
    assert!(matches!(none, CoreErrorKind::NotFound { .. }));
    let broken = world.service.resume(&thread, Some("{"), "a", "a", None);
    assert!(matches!(core_error(broken), CoreErrorKind::Invalid { .. }));
    world.audit();
}
