//! Threads whose history is appended in several commits: nothing builds on a part of it.

use super::fixture::RunnerFixture;
use serde_json::json;
use threadkeep_component::ports::HostPorts;
use threadkeep_component::service::{Error, ErrorKind};
use threadkeep_core::error::ErrorKind as CoreErrorKind;
use threadkeep_core::history::parse_user;
use threadkeep_core::runner::Signal;
use threadkeep_core::thread::ThreadDraft;
use threadkeep_core::time::UnixTime;

const THREAD: &str = "imported";

fn new_world() -> RunnerFixture {
    let world = RunnerFixture::new();
    let draft = ThreadDraft {
        id: Some(THREAD.to_owned()),
        incomplete: true,
        ..ThreadDraft::default()
    };
    let made = world.service.create(&draft).unwrap();
    assert_eq!(made.head.value.due, None, "no driver is to start it");
    world
}

fn deadline(world: &RunnerFixture) -> UnixTime {
    let now = world.service.ports().now();
    now.plus_millis(60_000)
}

fn message(text: &str) -> Vec<String> {
    vec![json!({"type": "message", "role": "user", "content": text}).to_string()]
}

/// Opens the thread and appends the first part of its history; returns the token and the version.
fn open_and_append(world: &RunnerFixture) -> (u64, u64) {
    let opened = world.service.open(THREAD, "import/1", deadline(world));
    let head = opened.unwrap().head.value;
    let appended = world
        .service
        .append(THREAD, Some(head.token), None, &message("one"));
    (head.token, appended.unwrap().version)
}

/// Asserts that nothing goes on with the thread as it is.
fn check_refused(world: &mut RunnerFixture, what: &str) {
    let version = world.service.load(THREAD).unwrap().head.value.version;
    let tried = [
        ("start", world.start(THREAD, Some("Go on.")).map(drop)),
        ("resume", {
            let input = super::fixture::user("Go on.");
            world
                .service
                .resume(THREAD, Some(&input), "h/7", "h/7", None)
                .map(drop)
        }),
        (
            "append",
            world
                .service
                .append(THREAD, None, None, &message("x"))
                .map(drop),
        ),
        (
            "fork",
            world.service.fork(THREAD, version, "f", None).map(drop),
        ),
    ];
    for (call, done) in tried {
        if call == "fork" && version == 0 {
            // There is nothing to fork yet.
            assert!(done.is_err());
            continue;
        }
        let Err(ErrorKind::Core(CoreErrorKind::Refused { advice, .. })) =
            done.as_ref().map_err(Error::kind)
        else {
            panic!("{what}: {call}: {done:?}");
        };
        // An append to an ended thread is refused because of its end.
        let words = ["is not whole", "has ended"];
        assert!(
            words.iter().any(|words| advice.contains(words)),
            "{what}: {call}: {advice}"
        );
    }
    let now = world.service.load(THREAD).unwrap().head.value;
    assert_eq!((now.version, now.due), (version, None), "{what}");
}

/// Symptom: an import that was killed left the first parts of a history, and `resume` went on with
/// them as with a whole one. Cause: only an orderly failure of the import closed the thread. Fix: a
/// thread can be made as incomplete, and is so until its holder has closed it well; until then no
/// run, fork or append builds on it. Kind: what takes several commits is marked from the first of
/// them on, so that a death at each of them is seen.
#[test]
fn nothing_goes_on_with_a_history_that_is_not_whole() {
    let mut world = new_world();
    check_refused(&mut world, "created");
    let (token, _) = open_and_append(&world);
    let now = world.service.load(THREAD).unwrap();
    assert_eq!(now.head.value.status.as_str(), "running");
    world
        .service
        .recover(&["import/1".to_owned()], None)
        .unwrap();
    let now = world.service.load(THREAD).unwrap();
    let cause = now.head.value.cause.clone().unwrap();
    assert_eq!(cause.code, "recovered");
    assert!(cause.message.contains("repeat the import"), "{cause:?}");
    check_refused(&mut world, "its holder died");
    let late = world.service.close(THREAD, token, "idle", None);
    assert!(late.is_err(), "the holder that died is fenced");
}

/// As above, of an import that found out itself that it cannot go on.
#[test]
fn nothing_resumes_an_import_that_failed() {
    let mut world = new_world();
    let (token, _) = open_and_append(&world);
    let why = json!({"code": "import_failed", "message": "x"}).to_string();
    world
        .service
        .close(THREAD, token, "error", Some(why))
        .unwrap();
    check_refused(&mut world, "its import failed");
}

#[test]
fn a_history_that_was_closed_well_goes_on() {
    let mut world = new_world();
    let (token, version) = open_and_append(&world);
    let more = world
        .service
        .append(THREAD, Some(token), Some(version), &message("two"));
    more.unwrap();
    world.service.close(THREAD, token, "idle", None).unwrap();
    assert!(!world.service.load(THREAD).unwrap().head.value.incomplete);
    world.start(THREAD, Some("Go on.")).unwrap();
}

/// A holder that died in the middle of a round: another goes on with the same thread, and the calls
/// get their own results. A message that was sent meanwhile stands behind the history.
#[test]
fn another_holder_goes_on_with_a_history_that_is_not_whole() {
    let world = new_world();
    let (token, version) = open_and_append(&world);
    let call = json!({"type": "tool_use", "name": "read", "arguments": "{}", "id": "imported_0"});
    let called = world
        .service
        .append(THREAD, Some(token), Some(version), &[call.to_string()]);
    called.unwrap();
    let told = super::fixture::user("Are you there?");
    let signal = Signal::Message(parse_user(&told).unwrap());
    world.service.signal(THREAD, "hello", &signal).unwrap();
    let dead = ["import/1".to_owned()];
    world.service.recover(&dead, None).unwrap();
    let stopped = world.service.load(THREAD).unwrap().head.value;
    assert_eq!((stopped.due, stopped.mail_count()), (None, 1));
    assert!(stopped.round.is_some(), "its call is open");
    let opened = world.service.open(THREAD, "import/2", deadline(&world));
    let head = opened.unwrap().head.value;
    assert_eq!(head.mail_count(), 1);
    let result = json!({"type": "tool_result", "id": "imported_0", "text": "milk"});
    let reply = json!({"type": "message", "role": "assistant", "content": "Milk."});
    for event in [result, reply] {
        let appended = world
            .service
            .append(THREAD, Some(head.token), None, &[event.to_string()]);
        assert_eq!(appended.unwrap().mail.len(), 0);
    }
    world
        .service
        .close(THREAD, head.token, "idle", None)
        .unwrap();
    let whole = world.service.load(THREAD).unwrap().head.value;
    assert_eq!((whole.incomplete, whole.mail_count()), (false, 0));
    assert_eq!(whole.due, Some(0), "its mail makes it due");
}
