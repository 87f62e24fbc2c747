//! Names that callers give, and threads that have not ended.

use super::fixture::{core_error, resume_as};
use crate::runner::fixture::{RunnerFixture, says};
use threadkeep_component::ports::HostPorts;
use threadkeep_core::error::ErrorKind as CoreErrorKind;
use threadkeep_core::ledger::UnknownBill;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::plan::DecisionContext;
use threadkeep_core::runner::{self, DecisionInputs, HolderProof, ResumeRequest, StartRequest};

fn invalid_field(error: &CoreErrorKind) -> String {
    match error {
        CoreErrorKind::Invalid { field, .. } => field.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Symptom: a resume of a thread that had ended, and a claim, took any name for the holder: an
/// empty one, or one of a megabyte, which then stood in the head. Cause: only a start checked it.
/// Fix: all three check. Kind: names of callers that a record keeps.
#[test]
fn the_name_of_a_holder_is_checked_by_each_request() {
    let mut world = RunnerFixture::new();
    let ended = world.create(Some("work"));
    world.start(&ended, None).unwrap();
    world.submit(&ended, says("done")).unwrap();
    let running = world.create(Some("work"));
    world.start(&running, None).unwrap();
    let long = "x".repeat(129);
    for holder in ["", "a\nb", &long] {
        let service = &world.service;
        let resumed = service.resume(&ended, Some(&next_message()), holder, "key", None);
        assert_eq!(invalid_field(&core_error(resumed)), "holder");
        let resumed = service.resume(&ended, Some(&next_message()), "r/1", holder, None);
        assert!(matches!(core_error(resumed), CoreErrorKind::Invalid { .. }));
        let claimed = service.claim(&running, holder, HolderProof::Dead);
        assert_eq!(invalid_field(&core_error(claimed)), "holder");
    }
    assert_eq!(world.status(&ended), "completed");
    resume_as(&world, &ended, Some("go on"), &long[1..]).unwrap();
    world.audit();
}

fn next_message() -> String {
    crate::runner::fixture::user("go on")
}

/// Symptom: the decision about a resume closed a tip that was under way. Cause: only its caller had
/// looked at the status. Fix: it is refused. Kind: what a decision takes for granted of its
/// records.
#[test]
fn a_thread_that_has_not_ended_gets_no_successor() {
    let mut world = RunnerFixture::new();
    let thread = world.create(Some("work"));
    for started in [false, true] {
        if started {
            world.start(&thread, None).unwrap();
        }
        let loaded = world.service.load(&thread).unwrap();
        let request = ResumeRequest {
            start: StartRequest {
                round: None,
                input: None,
                holder: "h/1",
                key: "k",
                about: None,
                inputs: DecisionInputs::default(),
            },
            random: "0123456789",
            hashes: Vec::new(),
        };
        let moment = DecisionContext {
            now: world.service.ports().now(),
            commit: "0123456789abcdef",
            ceiling: ThreadCaps::NONE,
            unknown_bill: UnknownBill::Estimate,
            store_full_message: None,
        };
        let refused = runner::resume(&loaded, None, None, request, moment).unwrap_err();
        match refused.kind() {
            CoreErrorKind::Refused { .. } => {
                assert!(refused.kind().to_full_text().contains("not ended"))
            }
            other => panic!("{other:?}"),
        }
    }
}
