//! Threads that rest on entries which leave calls open, and on entries that cannot be read.

use super::fixture::{create, run_to_end};
use crate::history::branch_fixture::{LINK, ROOT};
use crate::history::code;
use crate::runner::fixture::RunnerFixture;
use std::sync::Arc;
use threadkeep::audit::{StoreInvariant, audit};
use threadkeep::storage::{CommitOp, RecordExpectation, RecordKey, StorageBackend};
use threadkeep_component::ports::HostPorts;
use threadkeep_component::service::ErrorKind;
use threadkeep_core::history::{CommitReason, Event, ThreadResumed, ToolResult, ToolResultState};
use threadkeep_core::ledger::UnknownBill;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::plan::{DecisionContext, ThreadChange};
use threadkeep_core::thread::{HistoryPath, open_successor};
use threadkeep_tests::edited_log::EditedLog;
use threadkeep_tests::fixture::MapLibrary;

/// The entry of [`run_to_end`] that holds its two calls, which the entry after it answers.
const ROUND: u64 = 2;

/// A run of [`ROOT`], and a link that rests on its entries up to a version and begins with results
/// of these calls of [`ROUND`].
fn world_with_link(store: Arc<EditedLog>, until: u64, answered: &[u32]) -> RunnerFixture {
    let mut world = RunnerFixture::over(store, MapLibrary::small());
    create(&world, ROOT, Some("work"));
    run_to_end(&mut world, ROOT);
    let tip = world.service.load(ROOT).unwrap();
    let hash = world.service.hash_at(&tip, until).unwrap();
    let now = world.service.ports().now();
    let moment = DecisionContext {
        now,
        commit: "0123456789abcdef",
        ceiling: ThreadCaps::NONE,
        unknown_bill: UnknownBill::Estimate,
        store_full_message: None,
    };
    let mut closing = ThreadChange::new(&tip, moment);
    closing.thread_mut().next = Some(LINK.to_owned());
    closing.push_event(Event::ThreadResumed(ThreadResumed {
        new_thread_id: LINK.to_owned(),
        directive: None,
        message_preview: String::new(),
        reconstructed_turns: 0,
    }));
    let closing = closing.into_plan(CommitReason::Changed).unwrap();
    let base = |_: &_| {
        let path = HistoryPath::of(&tip.thread.value, tip.head.value.version).until(until);
        path.to_base(&|_| Some(hash.clone()))
    };
    let bounds = (ThreadCaps::NONE, false);
    let link = open_successor(&tip, *closing, &base, bounds, now).unwrap();
    let mut change = ThreadChange::new(&link.loaded, moment);
    for index in answered {
        change.push_event(Event::ToolResult(ToolResult {
            version: ROUND,
            index: *index,
            name: "read".to_owned(),
            text: "nobody knows whether it ran".to_owned(),
            failed: true,
            state: ToolResultState::Interrupted,
            blocks: Vec::new(),
            cost: NanoUsd::ZERO,
        }));
    }
    let first = change.into_plan(CommitReason::Changed).unwrap();
    let plan = link.plan.join(first).unwrap();
    assert!(world.service.commit(&plan).unwrap());
    world
}

/// Symptom: the results of calls that a base leaves open were findings, "no such call". Cause: the
/// audit replayed a thread's own entries alone. Fix: it begins with the calls that are open at the
/// end of the base. Kind: calls of a base that are answered, or not, by the thread that rests on
/// it, once or twice.
#[test]
fn results_answer_the_open_calls_of_a_base_once() {
    for (until, answered, expected) in [
        (ROUND, vec![0, 1], None),
        (ROUND, vec![0], Some("the open calls {(2, 1)}")),
        (ROUND, vec![], Some("the open calls {(2, 0), (2, 1)}")),
        (ROUND, vec![0, 1, 1], Some("one result of the call 1")),
        (ROUND, vec![0, 1, 2], Some("one result of the call 2")),
        (ROUND + 1, vec![], None),
        (ROUND + 1, vec![0], Some("one result of the call 0")),
        (1, vec![0], Some("one result of the call 0")),
    ] {
        let store = Arc::new(EditedLog::default());
        let world = world_with_link(store, until, &answered);
        let report = audit(&*world.store).unwrap();
        let shown: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
        match expected {
            None => assert_eq!(shown, Vec::<String>::new(), "{until} {answered:?}"),
            Some(expected) => {
                let found = &report.findings[..];
                let one = found.len() == 1 && found[0].thread == "link";
                assert!(one, "{until} {answered:?}: {shown:#?}");
                assert_eq!(found[0].invariant, StoreInvariant::Calls);
                assert!(found[0].expected.contains(expected), "{shown:#?}");
            }
        }
    }
}

/// Replaces the record of [`ROOT`] by a text that is no record.
fn break_root(store: &dyn StorageBackend) {
    let put = CommitOp::Put {
        key: RecordKey::new("thread", "root"),
        expect: RecordExpectation::Any,
        value: "{".to_owned(),
    };
    store.commit(&[put], false).unwrap();
}

/// A base that cannot be read takes the reading of its thread away and nothing else: the audit
/// names both threads and blames no result for it, and lists go on.
#[test]
fn an_unreadable_base_is_told_by_whoever_reads_along_it() {
    for whole_record in [true, false] {
        let store = Arc::new(EditedLog::default());
        let mut world = world_with_link(Arc::clone(&store), ROUND, &[0, 1]);
        create(&world, "beside", Some("work"));
        match whole_record {
            true => break_root(&*store),
            false => store.edit(r#""type":"tool_use""#, r#""type":"tool_u"#),
        }
        for answer in [
            world.service.entries(LINK, 0, None, 500).map(drop),
            world.service.messages(LINK, 0, None).map(drop),
            world
                .service
                .render(LINK, "markdown", None, 0, None)
                .map(drop),
        ] {
            let error = answer.expect_err("a part of its base is unreadable");
            assert!(error.is_damage(), "{error:?}");
        }
        let (page, _) = world.service.list(None, 100, None).unwrap();
        let listed = page.threads.iter().map(|one| &*one.thread.value.id);
        let listed: Vec<&str> = listed.filter(|id| *id != ROOT).collect();
        assert_eq!(
            (listed.len(), page.unreadable.len()),
            (2, usize::from(whole_record))
        );
        let report = audit(&*world.store).unwrap();
        let of_link = report.findings.iter().filter(|one| one.thread == "link");
        let of_link: Vec<String> = of_link.map(ToString::to_string).collect();
        assert_eq!(of_link.len(), 1, "{of_link:#?}");
        assert!(of_link[0].contains("on which it rests"), "{of_link:#?}");
        // A run is begun and asks the driver to read the conversation, which is refused there.
        let handed = world.start(LINK, Some("go on")).unwrap();
        assert_eq!((handed.since, handed.messages.len()), (ROUND + 2, 0));
        let read = world.service.messages(LINK, 0, Some(handed.since));
        let refused = read.as_ref().is_err_and(|error| {
            matches!(error.kind(), ErrorKind::Core(_)) && code(error) == "other"
        });
        assert!(refused, "{read:?}");
    }
}
