//! Threads that rest on others: their versions count on from the base, and they are read along
//! their path.

use super::branch_fixture::{LINK, ROOT, chain_of_two, link_of_root, link_plan, plant_link};
use super::{call_event, code, message_event, result_event};
use crate::audit::fixture::{create, open, run_to_end};
use crate::runner::fixture::{RunnerFixture, calls, says};
use std::collections::BTreeSet;
use std::sync::Arc;
use threadkeep::audit::{AuditReport, StoreInvariant, audit};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::{CommitOp, CommitOutcome, RecordExpectation, RecordKey, StorageBackend};
use threadkeep_component::ports::HostPorts;
use threadkeep_component::service::history::ChangeTexts;
use threadkeep_component::service::ledger::UnresolvedEstimate;
use threadkeep_core::id;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::plan::index_write;
use threadkeep_core::runner::CallBill;
use threadkeep_core::thread::StepKind;
use threadkeep_tests::faulty::{DeathPoint, FaultyStore};
use threadkeep_tests::fixture::MapLibrary;

fn memory() -> Arc<dyn StorageBackend> {
    Arc::new(MemoryStore::new())
}

fn read_versions(world: &RunnerFixture, thread: &str, after: u64, limit: u32) -> Vec<u64> {
    let (mut all, mut after) = (Vec::new(), after);
    loop {
        let page = world.service.entries(thread, after, None, limit).unwrap();
        all.extend(page.1.iter().map(|line| line.entry.version));
        match page.2 {
            Some(cursor) => after = cursor,
            None => return all,
        }
    }
}

fn newest(world: &RunnerFixture, thread: &str) -> u64 {
    world.service.load(thread).unwrap().head.value.version
}

fn render_whole(world: &RunnerFixture, thread: &str, what: &str) -> String {
    let (mut text, mut next) = (String::new(), Some(None));
    while let Some(cursor) = next {
        let piece = world.service.render(thread, what, None, 0, cursor);
        let piece = piece.unwrap();
        text.push_str(&piece.text);
        next = piece.cursor.map(Some);
    }
    text
}

fn read_messages(world: &RunnerFixture, thread: &str) -> Vec<String> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let page = world.service.messages(thread, after, None).unwrap();
        all.extend(page.0);
        match page.1 {
            Some(cursor) => after = cursor,
            None => return all,
        }
    }
}

/// Returns a transcript with the versions of its parts and without their lengths.
fn without_lengths(text: &str) -> String {
    let lines = text.lines().map(|line| match line.split_once(", ") {
        Some((version, _)) if line.starts_with("<!-- version ") => version,
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn link_without_entries_shows_what_it_rests_on() {
    let world = chain_of_two(memory(), Some("work"), 1);
    let length = newest(&world, ROOT);
    assert_eq!(newest(&world, LINK), length);
    let all: Vec<u64> = (1..=length).collect();
    for limit in [1, 2, 500] {
        assert_eq!(read_versions(&world, LINK, 0, limit), all);
    }
    assert!(read_versions(&world, LINK, length, 500).is_empty());
    // A person is told where it comes from, which makes the part of the first entry longer.
    for (what, opening) in [("markdown", "*continues Root*\n\n"), ("jsonl", "")] {
        let (own, root) = (
            render_whole(&world, LINK, what),
            render_whole(&world, ROOT, what),
        );
        let carried = own.strip_prefix(opening).expect("it opens so");
        let (carried, root) = (without_lengths(carried), without_lengths(&root));
        assert!(!carried.is_empty() && carried == root, "{what}: {own}");
    }
    assert_eq!(read_messages(&world, LINK), read_messages(&world, ROOT));
    let (link, root) = (
        world.service.load(LINK).unwrap(),
        world.service.load(ROOT).unwrap(),
    );
    for version in 0..=length {
        let hash = |loaded| world.service.hash_at(loaded, version).unwrap();
        assert_eq!(hash(&link), hash(&root), "{version}");
    }
    world.audit();
}

#[test]
fn link_runs_on_with_versions_of_its_own() {
    let mut world = chain_of_two(memory(), Some("work"), 1);
    let length = newest(&world, ROOT);
    let carried = read_messages(&world, ROOT);
    let handed = world.start(LINK, Some("and now?")).unwrap();
    assert_eq!(handed.step.kind, Some(StepKind::CallLlm));
    assert_eq!(handed.step.version, length + 1);
    // The driver reads the conversation in pages, from its beginning on.
    assert_eq!((handed.since, handed.messages.len()), (length + 1, 0));
    let asked = read_messages(&world, LINK);
    assert_eq!(asked[..carried.len()], carried);
    assert!(asked.len() > carried.len() && asked.last().unwrap().contains("and now?"));
    world.audit();
    let called = world.submit(LINK, calls(&[("read", "{}"), ("write", "{}")]));
    let called = called.unwrap().step;
    assert_eq!(called.version, length + 2);
    let again = world.held[LINK].last.clone().unwrap().0;
    let repeated = world.service.submit(LINK, &again, length + 1).unwrap();
    assert_eq!(repeated.step.version, length + 2);
    world.audit();
    let outcomes = world.outcomes(LINK);
    let next = world.submit(LINK, outcomes).unwrap();
    // From its own versions on, the driver is given what is new.
    assert_eq!((next.since, next.messages.len()), (length + 2, 1));
    world.submit(LINK, says("done again")).unwrap();
    world.audit();
    assert_eq!(world.status(LINK), "completed");
    let all: Vec<u64> = (1..=length + 4).collect();
    assert_eq!(read_versions(&world, LINK, 0, 3), all);
    let texts = read_messages(&world, LINK);
    let ids = texts.iter().flat_map(|text| text.split('"'));
    let ids: Vec<&str> = ids.filter(|part| part.starts_with("call_")).collect();
    let different: BTreeSet<&&str> = ids.iter().collect();
    // Each id stands in its call and in its result.
    assert_eq!((ids.len(), different.len()), (8, 4), "{ids:?}");
    assert!(render_whole(&world, LINK, "markdown").contains("done again"));
    assert!(!render_whole(&world, ROOT, "markdown").contains("done again"));
}

#[test]
fn external_loop_holds_and_appends_on_a_link() {
    let mut world = chain_of_two(memory(), None, 1);
    let length = newest(&world, LINK);
    let change = ChangeTexts {
        events: vec![message_event("user", "hello").to_string()],
        request: Some("r".to_owned()),
        ..ChangeTexts::default()
    };
    for _ in 0..2 {
        let service = &world.service;
        let written = service.append_change(LINK, None, Some(length), &change);
        assert_eq!(written.unwrap().version, length + 1);
    }
    let lower = world.service.append(LINK, None, Some(1), &[]);
    assert_eq!(lower.map_err(|error| code(&error)).unwrap_err(), "conflict");
    let deadline = world.service.load(LINK).unwrap().head.value.updated;
    let opened = world
        .service
        .open(LINK, "h/9", deadline.plus_millis(60_000));
    let token = opened.unwrap().head.value.token;
    let amount = UnresolvedEstimate::Amount(NanoUsd::new(1_000));
    let deadline = deadline.plus_millis(30_000);
    let held = world.service.hold(LINK, token, "turn", &amount, deadline);
    let held = held.unwrap();
    assert_eq!(held.version, length + 3);
    world.audit();
    let no_call = world.service.settle(LINK, 1, CallBill::Nothing);
    assert_eq!(no_call.map_err(|error| code(&error)), Err("invalid"));
    let bill = CallBill::Amount(NanoUsd::new(900));
    world.service.settle(LINK, held.version, bill).unwrap();
    let events = [call_event("A"), result_event("A")].map(|event| event.to_string());
    let expected = newest(&world, LINK);
    let written = world
        .service
        .append(LINK, Some(token), Some(expected), &events);
    assert_eq!(written.unwrap().version, expected + 1);
    let closed = world.service.close(LINK, token, "idle", None).unwrap();
    let repeated = world.service.close(LINK, token, "idle", None).unwrap();
    assert_eq!(closed.version, repeated.version);
    world.audit();
    world.held.clear();
}

#[test]
fn versions_that_a_base_leaves_out_are_refused() {
    let world = chain_of_two(memory(), Some("work"), 3);
    let length = newest(&world, LINK);
    let carried: Vec<u64> = (3..=length).collect();
    assert_eq!(read_versions(&world, LINK, 0, 2), carried);
    for version in [1, 2, length + 1] {
        let link = world.service.load(LINK).unwrap();
        let hash = world.service.hash_at(&link, version).map(drop);
        let page = world.service.entries(LINK, version, None, 10).map(drop);
        let until = world.service.entries(LINK, 0, Some(version), 10).map(drop);
        let charges = world.service.charges(LINK, version).map(drop);
        for answer in [hash, page, until, charges] {
            assert_eq!(answer.map_err(|error| code(&error)), Err("invalid"));
        }
    }
    let (_, lines, cursor) = world.service.entries(LINK, 3, Some(4), 10).unwrap();
    assert_eq!((lines[0].entry.version, lines.len(), cursor), (4, 1, None));
    let (_, lines, _) = world.service.entries(LINK, 4, Some(3), 10).unwrap();
    assert!(lines.is_empty());
}

/// Symptom: after an unknown outcome, a commit of several threads was taken for lost although it
/// was written. Cause: the entry to look for was that of the last write of the plan, which may be
/// of another thread, or no entry. Fix: the plan names the entry. Kind: any plan whose last write
/// is no entry.
#[test]
fn unknown_outcome_of_a_joined_plan_is_found_out() {
    for (death, written) in [
        (DeathPoint::Unknown(1), true),
        (DeathPoint::UnknownLost(1), false),
    ] {
        let inner = memory();
        let mut world = RunnerFixture::over(Arc::clone(&inner), MapLibrary::small());
        create(&world, ROOT, None);
        run_to_end(&mut world, ROOT);
        let plan = link_plan(&world, link_of_root(1));
        let faulty = Arc::new(FaultyStore::new(Arc::clone(&inner), death));
        let store: Arc<dyn StorageBackend> = Arc::<FaultyStore>::clone(&faulty);
        let over = RunnerFixture::over(store, MapLibrary::small());
        assert!(matches!(over.service.commit(&plan), Ok(true)), "{death:?}");
        // One that was written is not made again.
        assert_eq!(faulty.commits(), if written { 1 } else { 2 });
        assert_eq!(world.status(LINK), "created");
        world.audit();
        assert!(matches!(over.service.commit(&plan), Ok(false)), "{death:?}");
    }
}

/// Replaces a part of a record's text.
fn replace_text(store: &dyn StorageBackend, planted: &PlantedText) {
    let key = RecordKey::new(planted.record.0, planted.record.1);
    let before = store.get(std::slice::from_ref(&key)).unwrap()[0]
        .value
        .clone();
    let value = before.replace(&planted.from, &planted.to);
    assert_ne!(before, value, "nothing is planted: {}", planted.from);
    let put = CommitOp::Put {
        key,
        expect: RecordExpectation::Any,
        value,
    };
    let done = store.commit(&[put], false).unwrap();
    assert!(matches!(done, CommitOutcome::Committed));
}

/// Returns the audit of a chain with a planted text, and the outcome of reading the link.
fn report_after(
    store: Arc<dyn StorageBackend>,
    planted: &PlantedText,
) -> (AuditReport, &'static str) {
    let mut world = chain_of_two(Arc::clone(&store), Some("work"), 1);
    if planted.runs {
        world.start(LINK, Some("go on")).unwrap();
        world.submit(LINK, says("done")).unwrap();
    }
    replace_text(&*store, planted);
    let read = world.service.entries(LINK, 0, None, 500);
    let read = read.map_or_else(|error| code(&error), |_| "ok");
    (audit(&*store).unwrap(), read)
}

/// A text of a record that is replaced.
struct PlantedText {
    record: (&'static str, &'static str),
    from: String,
    to: String,
    /// True if the link makes a run before.
    runs: bool,
    /// Part of what the audit expects instead.
    expected: &'static str,
    /// Outcome of reading the link's entries.
    read: &'static str,
}

/// Every text by which a base and a history can contradict each other.
fn planted_texts() -> Vec<PlantedText> {
    let world = chain_of_two(memory(), Some("work"), 1);
    let link = world.service.load(LINK).unwrap();
    let (length, hash) = (link.head.value.version, link.head.value.hash.clone());
    let base = link.thread.value.base.clone().unwrap();
    let other = "0".repeat(64);
    let part = base.parts[0].hash.clone();
    let thread = |from: &str, to: &str, expected| PlantedText {
        record: ("thread", "link"),
        from: from.to_owned(),
        to: to.to_owned(),
        runs: false,
        expected,
        read: "other",
    };
    let (to, long) = (format!("\"to\":{length}"), format!("\"length\":{length}"));
    vec![
        thread(&part, &other, "the hash of the entry"),
        PlantedText {
            runs: true,
            ..thread(&part, &other, "to name the hash of its thread")
        },
        PlantedText {
            record: ("head", "link"),
            read: "ok",
            ..thread(&hash, &other, "the hash of the newest entry")
        },
        PlantedText {
            record: ("head", "link"),
            ..thread(
                &format!("\"version\":{length},\"hash\""),
                "\"version\":1,\"hash\"",
                "a history up to the version",
            )
        },
        thread(&to, "\"to\":2", "reaches to"),
        thread(&long, "\"length\":99", "reaches to"),
        thread("\"from\":1", "\"from\":0", "in order"),
        thread(
            "\"thread\":\"Root\"",
            "\"thread\":\"gone\"",
            "on which it rests",
        ),
    ]
}

#[test]
fn contradictions_between_base_and_history_are_found() {
    for planted in planted_texts() {
        let temp = tempfile::tempdir().unwrap();
        for store in [memory(), open(temp.path())] {
            let (report, answer) = report_after(store, &planted);
            let found = report.findings.iter().any(|finding| {
                finding.invariant == StoreInvariant::Histories
                    && finding.thread == "link"
                    && finding.expected.contains(planted.expected)
            });
            let what = (&planted.from, &planted.to);
            assert!(found, "{what:?}: {:#?}", report.findings);
            assert_eq!(answer, planted.read, "{what:?}");
        }
    }
}

/// Symptom that is prevented: `registry.list` of a parent shows each link of a child as another
/// child. Cause: each link had an entry in the index of parents. Fix: only a chain's root has one.
#[test]
fn a_parent_has_one_entry_for_a_continued_child() {
    let mut world = RunnerFixture::over(memory(), MapLibrary::small());
    let boss = world.create(Some("boss"));
    world.spawn(&boss, ROOT, None);
    world.start(ROOT, Some("go")).unwrap();
    world.submit(ROOT, says("done")).unwrap();
    plant_link(&world, link_of_root(1));
    let record = world.service.load(LINK).unwrap().thread.value;
    assert_eq!(record.parent.as_deref(), Some(&*boss));
    let (page, _) = world
        .service
        .list(Some(("parent", &boss)), 9, None)
        .unwrap();
    let ids: Vec<&str> = page
        .threads
        .iter()
        .map(|one| &*one.thread.value.id)
        .collect();
    assert_eq!(ids, [ROOT]);
    world.audit();
    // An entry for the link is found.
    let made = world.service.load(LINK).unwrap().thread.value.created;
    let entry = index_write("parent", &boss, made.millis(), &id::key(LINK));
    assert!(world.service.ports().commit(vec![entry], false).unwrap());
    let report = audit(&*world.store).unwrap();
    assert!(!report.findings.is_empty());
}
