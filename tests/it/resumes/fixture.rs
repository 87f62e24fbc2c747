//! Steps that the tests of resumes do again and again.

use crate::runner::fixture::{RunnerFixture, user};
use threadkeep_component::service::runner::StepHandle;
use threadkeep_component::service::{Error, ErrorKind};
use threadkeep_core::error::ErrorKind as CoreErrorKind;
use threadkeep_core::history::Event;

/// Resumes a thread under a new holder; returns the id of the thread that goes on.
pub fn resume(
    world: &mut RunnerFixture,
    thread: &str,
    input: Option<&str>,
) -> Result<String, Error> {
    world.count("resumed");
    let holder = format!("r/{}", world.counts["resumed"]);
    let begun = resume_as(world, thread, input, &holder)?;
    let id = begun.loaded.thread.value.id.clone();
    world.hold(&id, Ok(begun)).map(|_| id)
}

/// Resumes a thread as a holder, whose name is the key, too.
pub fn resume_as(
    world: &RunnerFixture,
    thread: &str,
    input: Option<&str>,
    holder: &str,
) -> Result<StepHandle, Error> {
    let message = input.map(user);
    let service = &world.service;
    service.resume(thread, message.as_deref(), holder, holder, None)
}

/// Everything that a provider would be sent of a thread.
pub fn sent_messages(world: &RunnerFixture, thread: &str) -> Vec<String> {
    let (mut texts, mut after) = (Vec::new(), 0);
    loop {
        let (page, cursor) = world.service.messages(thread, after, None).unwrap();
        texts.extend(page);
        match cursor {
            Some(next) => after = next,
            None => return texts,
        }
    }
}

/// The events of the newest entry of a thread.
pub fn newest_events(world: &RunnerFixture, thread: &str) -> Vec<Event> {
    let loaded = world.service.load(thread).unwrap();
    let entry = world.service.entry(&loaded, loaded.head.value.version);
    entry.unwrap().unwrap().events
}

/// Returns the refusal of the core.
#[track_caller]
pub fn core_error<T: std::fmt::Debug>(done: Result<T, Error>) -> CoreErrorKind {
    match done.map_err(Error::into_kind) {
        Err(ErrorKind::Core(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// The holder of a running thread.
pub fn holder_of(world: &RunnerFixture, thread: &str) -> String {
    let head = world.service.load(thread).unwrap().head.value;
    head.holder.clone().expect("it is held")
}
