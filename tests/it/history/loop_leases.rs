//! The lease of an external loop: taking it, using it and releasing it.

use super::{LoopHost, call_event, code, message_event, result_event};
use crate::runner::fixture::user;
use serde_json::json;
use threadkeep::storage::{CommitOp, RecordExpectation, RecordKey};
use threadkeep_core::history::parse_user;
use threadkeep_core::runner::{DecisionInputs, HolderProof, OPEN_MILLIS_MAX, Signal};

fn cause(host: &LoopHost) -> String {
    host.head()
        .cause
        .clone()
        .map(|cause| cause.code)
        .unwrap_or_default()
}

#[test]
fn lease_has_a_token_a_holder_and_a_bounded_deadline() {
    let mut host = LoopHost::new();
    let hour = OPEN_MILLIS_MAX / 1_000;
    for (holder, seconds) in [("", 60), ("a\nb", 60), ("h/1", 0), ("h/1", hour + 1)] {
        assert_eq!(
            code(&host.take_lease(holder, seconds).unwrap_err()),
            "invalid",
            "{holder} {seconds}"
        );
    }
    assert_eq!(host.take_lease("h/1", hour).unwrap(), 1);
    let head = host.head();
    assert_eq!(
        (host.world.status(&host.thread).as_str(), head.run),
        ("running", 1)
    );
    // The same call again, and then a later deadline: the same token, and no further entry.
    assert_eq!(host.take_lease("h/1", hour).unwrap(), 1);
    assert_eq!(host.head(), head);
    host.world.advance(5_000);
    assert_eq!(host.take_lease("h/1", hour).unwrap(), 1);
    let moved = host.head();
    assert!(moved.expiry > head.expiry && moved.token == head.token);
    host.world.audit();
    assert_eq!(code(&host.take_lease("h/2", 60).unwrap_err()), "busy");
    assert_eq!(
        code(&host.world.start(&host.thread, Some("hi")).unwrap_err()),
        "busy"
    );
    host.token = None;
    assert_eq!(
        code(&host.append(&[message_event("user", "hi")]).unwrap_err()),
        "busy"
    );
}

/// The effect of each outcome on a thread with an open call.
#[test]
fn lease_ends_with_the_given_outcome() {
    let failed = r#"{"code": "no_answer", "message": "the model said nothing"}"#;
    for (outcome, text, status, why) in [
        ("idle", None, "idle", ""),
        ("completed", None, "completed", ""),
        ("completed", Some(r#"{"n": 0.10}"#), "completed", ""),
        ("error", Some(failed), "error", "no_answer"),
    ] {
        let host = LoopHost::open();
        host.append(&[
            message_event("user", "hi"),
            call_event("a"),
            call_event("b"),
            result_event("b"),
        ])
        .unwrap();
        let closed = host.close(outcome, text).unwrap();
        assert_eq!((closed.status.as_str(), closed.version), (status, 3));
        assert_eq!(cause(&host), why);
        let thread = host.world.service.load(&host.thread).unwrap().thread.value;
        assert_eq!(thread.result.as_deref(), text);
        assert_eq!(thread.outcome.is_some(), outcome != "idle");
        // The same close again succeeds; a different one does not.
        assert_eq!(host.close(outcome, text).unwrap(), closed);
        let other = if outcome == "idle" {
            "completed"
        } else {
            "idle"
        };
        assert_eq!(code(&host.close(other, None).unwrap_err()), "refused");
        assert_eq!(
            code(&host.append(&[message_event("user", "more")]).unwrap_err()),
            "refused"
        );
    }
}

#[test]
fn invalid_outcomes_are_refused() {
    let host = LoopHost::open();
    let large = format!("{:?}", "x".repeat(64 << 10));
    let long = json!({"code": "c", "message": "m".repeat(1_001)}).to_string();
    for (outcome, text) in [
        ("done", None),
        ("idle", Some("1")),
        ("completed", Some("{")),
        ("completed", Some(&large)),
        ("error", None),
        ("error", Some(r#""broken""#)),
        ("error", Some(r#"{"code": "No Answer", "message": "m"}"#)),
        ("error", Some(r#"{"code": "", "message": "m"}"#)),
        ("error", Some(&long)),
    ] {
        assert_eq!(
            code(&host.close(outcome, text).unwrap_err()),
            "invalid",
            "{outcome} {text:?}"
        );
    }
    assert_eq!(host.world.status(&host.thread), "running");
}

#[test]
fn an_older_token_is_fenced() {
    let mut host = LoopHost::open();
    let first = host.token;
    host.close("idle", None).unwrap();
    host.take_lease("h/2", 60).unwrap();
    let second = host.token;
    host.token = first;
    assert_eq!(
        code(&host.append(&[message_event("user", "hi")]).unwrap_err()),
        "fenced"
    );
    assert_eq!(code(&host.close("idle", None).unwrap_err()), "fenced");
    host.token = second;
    host.append(&[message_event("user", "hi")]).unwrap();
    host.world
        .service
        .signal(&host.thread, "k", &Signal::Kill)
        .unwrap();
    assert_eq!(
        code(&host.append(&[message_event("user", "hi")]).unwrap_err()),
        "fenced"
    );
    host.world.audit();
}

/// A driver cannot continue an external loop: it ends the lease, once it may.
#[test]
fn lost_lease_is_ended_by_claim_or_recovery() {
    for how in ["recover", "dead", "watched"] {
        let mut host = LoopHost::open();
        host.append(&[message_event("user", "hi"), call_event("a")])
            .unwrap();
        let step = host.head().step.clone().unwrap().version;
        let proof = match how {
            "watched" => HolderProof::Watched { step, partial: 0 },
            _ => HolderProof::Dead,
        };
        if how == "watched" {
            assert_eq!(
                code(
                    &host
                        .world
                        .service
                        .claim(&host.thread, "d/1", proof)
                        .unwrap_err()
                ),
                "busy"
            );
            host.world.advance(76_000);
            let due = host.world.service.ready(10, None, None).unwrap().threads;
            assert_eq!(due[0].loaded.thread.value.id, host.thread);
        }
        if how == "recover" {
            let dead = ["h/1".to_owned()];
            let closed = host.world.service.recover(&dead, None).unwrap().closed;
            assert_eq!(closed, [host.thread.clone()]);
        } else {
            let handed = host
                .world
                .service
                .claim(&host.thread, "d/1", proof)
                .unwrap();
            assert_eq!(handed.step.kind, None);
        }
        host.world.audit();
        assert_eq!(
            (
                host.world.status(&host.thread).as_str(),
                cause(&host).as_str()
            ),
            ("suspended", "recovered")
        );
        assert_eq!(
            code(
                &host
                    .append(&[message_event("assistant", "late")])
                    .unwrap_err()
            ),
            "fenced"
        );
        // The thread goes on, by an external loop or by the runner.
        host.take_lease("h/2", 60).unwrap();
        host.append(&[message_event("assistant", "where was I?")])
            .unwrap();
        host.close("idle", None).unwrap();
    }
}

#[test]
fn runner_steps_are_not_an_external_loop() {
    let mut host = LoopHost::new();
    let started = host.world.start(&host.thread, Some("hi")).unwrap();
    host.token = Some(started.loaded.head.value.token);
    assert_eq!(
        code(
            &host
                .append(&[message_event("assistant", "hello")])
                .unwrap_err()
        ),
        "refused"
    );
    assert_eq!(code(&host.close("idle", None).unwrap_err()), "refused");
    let mut host = LoopHost::open();
    let handed = host.world.start(&host.thread, Some("hi"));
    assert_eq!(code(&handed.unwrap_err()), "busy");
    let submission = threadkeep_core::runner::StepSubmission {
        token: host.token.take().unwrap(),
        version: host.head().version,
        outcome: crate::runner::fixture::says("hello"),
        inputs: DecisionInputs::default(),
    };
    let refused = host
        .world
        .service
        .submit(&host.thread, &submission, 0)
        .unwrap_err();
    assert_eq!(code(&refused), "refused");
    host.world.audit();
}

/// Mail is delivered with the loop's next commit, not between a call and its result.
#[test]
fn messages_that_are_sent_meanwhile_are_taken() {
    let send = |host: &LoopHost, name: &str| {
        let signal = Signal::Message(parse_user(&user(name)).unwrap());
        host.world
            .service
            .signal(&host.thread, name, &signal)
            .unwrap();
        host.world.audit();
    };
    let host = LoopHost::open();
    send(&host, "one");
    let open = host
        .append(&[message_event("user", "hi"), call_event("a")])
        .unwrap();
    assert_eq!(open.mail, []);
    let answered = host.append(&[result_event("a")]).unwrap();
    assert_eq!(answered.mail[0].joined_text(), "one");
    assert_eq!(host.append_at(2, &[result_event("a")]).unwrap(), answered);
    // An empty append delivers waiting mail, and writes nothing where none waits.
    assert_eq!(host.append(&[]).unwrap().version, 3);
    send(&host, "two");
    let refused = host.close("completed", None).unwrap_err();
    assert_eq!(code(&refused), "refused");
    let taken = host.append(&[]).unwrap();
    assert_eq!(
        (taken.version, taken.mail[0].joined_text().as_str()),
        (4, "two")
    );
    host.append(&[message_event("assistant", "both")]).unwrap();
    send(&host, "three");
    let closed = host.close("idle", None).unwrap();
    assert_eq!(closed.mail[0].joined_text(), "three");
    assert_eq!(host.head().due, Some(0), "somebody should answer it");
}

#[test]
fn a_cancel_takes_effect_at_the_next_commit() {
    for closes in [true, false] {
        let host = LoopHost::open();
        host.append(&[message_event("user", "hi"), call_event("a")])
            .unwrap();
        host.world
            .service
            .signal(&host.thread, "c", &Signal::Cancel)
            .unwrap();
        let written = if closes {
            host.close("completed", Some("1")).unwrap()
        } else {
            host.append(&[json!({"type": "partial", "text": "I was"})])
                .unwrap()
        };
        assert_eq!(written.status.as_str(), "cancelled");
        assert_eq!(host.head().round, None);
        assert_eq!(
            code(&host.append(&[message_event("user", "hi")]).unwrap_err()),
            "refused"
        );
    }
}

/// Nothing continues a thread yet, so the test writes its record as a hand-off will.
#[test]
fn thread_with_a_successor_names_it() {
    let mut host = LoopHost::open();
    host.close("completed", None).unwrap();
    let key = || RecordKey::new("thread", host.thread.to_lowercase());
    let item = host.world.store.get(&[key()]).unwrap().remove(0);
    let value = item.value.replace(r#""next":null"#, r#""next":"chat-2""#);
    let expect = RecordExpectation::Version(item.version);
    let put = CommitOp::Put {
        key: key(),
        expect,
        value,
    };
    host.world.store.commit(&[put], false).unwrap();
    let token = host.token.take();
    let hi = [message_event("user", "hi").to_string()];
    for answer in [
        // Not through the host, which has every commit audited: the successor does not exist.
        host.world
            .service
            .append(&host.thread, None, Some(host.head().version), &hi)
            .unwrap_err(),
        host.take_lease("h/2", 60).unwrap_err(),
        host.world
            .start(&host.thread.clone(), Some("hi"))
            .unwrap_err(),
        host.world
            .service
            .append(&host.thread, token, Some(9), &[])
            .unwrap_err(),
    ] {
        assert_eq!(code(&answer), "continued");
    }
}
