//! Ids of callers' messages, which a chain remembers, and what entries say of runs.

use super::{LoopHost, code};
use crate::runner::fixture::{RunnerFixture, says};
use serde_json::{Value, json};
use threadkeep_component::service::{Error, ErrorKind};
use threadkeep_core::error::ErrorKind as CoreErrorKind;
use threadkeep_core::history::parse_user;
use threadkeep_core::runner::Signal;

fn message_with_id(id: &str, text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": text, "id": id})
}

fn input(id: &str, text: &str) -> String {
    json!({"role": "user", "content": text, "id": id}).to_string()
}

fn field<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result.map_err(Error::into_kind) {
        Err(ErrorKind::Core(CoreErrorKind::Invalid { field, .. })) => field,
        other => panic!("{other:?}"),
    }
}

fn texts(host: &LoopHost) -> Vec<String> {
    let messages = host
        .world
        .service
        .messages(&host.thread, 0, None)
        .unwrap()
        .0;
    let text = |message: &String| {
        let message: Value = serde_json::from_str(message).unwrap();
        message["content"][0]["text"].as_str().unwrap().to_owned()
    };
    messages.iter().map(text).collect()
}

#[test]
fn a_message_of_a_known_id_is_added_once() {
    let host = LoopHost::new();
    let first = host
        .append(&[message_with_id("m1", "one"), message_with_id("m2", "two")])
        .unwrap();
    // Known ones are skipped, at whichever version.
    let again = host.append(&[message_with_id("m1", "one")]).unwrap();
    assert_eq!(again.version, first.version);
    let more = host.append(&[
        message_with_id("m2", "two"),
        message_with_id("m3", "three"),
        message_with_id("m3", "three"),
    ]);
    let more = more.unwrap();
    assert_eq!((more.version, more.mail.len()), (first.version + 1, 0));
    assert_eq!(texts(&host), ["one", "two", "three"]);
    let other = host.append(&[
        message_with_id("m4", "four"),
        message_with_id("m1", "another"),
    ]);
    assert_eq!(field(other), "events[1].id");
    let twice = host.append(&[
        message_with_id("m5", "five"),
        message_with_id("m5", "another"),
    ]);
    assert_eq!(field(twice), "events[1].id");
    assert_eq!(host.head().version, more.version);
}

#[test]
fn ids_are_known_to_starts_signals_and_appends_of_the_chain() {
    let mut host = LoopHost::new();
    host.append(&[message_with_id("m1", "one")]).unwrap();
    let thread = host.thread.clone();
    let service = &host.world.service;
    let start =
        |id: &str, text: &str| service.start(&thread, Some(&input(id, text)), "h/1", "k", None);
    assert_eq!(field(start("m1", "another")), "input.id");
    // The message waits for its answer already, and is not there twice.
    let begun = start("m1", "one").unwrap();
    assert_eq!(start("m1", "one").unwrap().step.version, begun.step.version);
    host.world.hold(&thread, Ok(begun)).unwrap();
    host.world.submit(&thread, says("hello")).unwrap();
    assert_eq!(texts(&host), ["one", "hello"]);
    let send = |key: &str, id: &str, text: &str| {
        let message = Signal::Message(parse_user(&input(id, text)).unwrap());
        host.world.service.signal(&thread, key, &message)
    };
    send("s1", "m2", "two").unwrap();
    send("s2", "m2", "two").unwrap();
    assert_eq!(field(send("s3", "m2", "another")), "input.id");
    assert_eq!(texts(&host), ["one", "hello", "two"]);
    host.world.audit();
}

#[test]
fn a_successor_knows_the_ids_of_its_chain_and_a_fork_has_its_own() {
    let host = LoopHost::new();
    host.append(&[message_with_id("m1", "one")]).unwrap();
    let service = &host.world.service;
    let fork = service
        .fork(&host.thread, 1, "f", None)
        .unwrap()
        .thread
        .value
        .id
        .clone();
    let kill = Signal::Kill;
    service.signal(&host.thread, "k", &kill).unwrap();
    let resume = |id: &str, text: &str| {
        service.resume(&host.thread, Some(&input(id, text)), "h/1", "r", None)
    };
    assert_eq!(field(resume("m1", "another")), "input.id");
    let next = resume("m2", "two").unwrap().loaded.thread.value.id.clone();
    let message = Signal::Message(parse_user(&input("m1", "another")).unwrap());
    assert_eq!(field(service.signal(&next, "s", &message)), "input.id");
    service.signal(&fork, "s", &message).unwrap();
    host.world.audit();
}

/// Returns the entry of a version.
fn entry(world: &RunnerFixture, thread: &str, version: u64) -> Value {
    let loaded = world.service.load(thread).unwrap();
    let entry = world.service.entry(&loaded, version).unwrap().unwrap();
    serde_json::from_str(&entry.to_text()).unwrap()
}

#[test]
fn entries_tell_where_a_run_comes_from_and_how_it_ended() {
    let mut world = RunnerFixture::new();
    let thread = world.create(None);
    let about = json!({"origin": "acme", "parent_run": "r-1"});
    let begun = world.service.start(
        &thread,
        Some(&input("m1", "hi")),
        "h/1",
        "k",
        Some(&about.to_string()),
    );
    world.hold(&thread, begun).unwrap();
    world.submit(&thread, says("hello")).unwrap();
    assert_eq!(entry(&world, &thread, 1)["about"], about);
    assert_eq!(entry(&world, &thread, 1)["ended"], Value::Null);
    let last = entry(&world, &thread, 2);
    assert_eq!(last["reason"], "run-finished");
    let expected = json!({"status": "idle", "turns": 1, "tokens": 110, "duration": 0});
    assert_eq!(last["ended"], expected);
    // A run that a person ends has ended, too.
    world.start(&thread, Some("again")).unwrap();
    world.service.signal(&thread, "s", &Signal::Kill).unwrap();
    world.audit();
    let newest = world.service.load(&thread).unwrap().head.value.version;
    let last = entry(&world, &thread, newest);
    assert_eq!(last["ended"]["status"], "killed", "{last}");
    assert_eq!(
        code(&world.start(&thread, Some("more")).unwrap_err()),
        "refused"
    );
}
