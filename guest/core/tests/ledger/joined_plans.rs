//! Two decisions in one commit: the joined plan writes what both write one after the other, on the
//! conditions of both.

use super::random_request::{RandomRequest, request_strategy};
use super::store::TestStore;
use super::world::{RequestAnswer, TestWorld};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use threadkeep_core::error::{Error, ErrorKind};
use threadkeep_core::history::{CommitReason, Entry, provider_messages};
use threadkeep_core::key;
use threadkeep_core::ledger::UnknownBill;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::plan::{
    CommitPlan, DecisionContext, LoadedThread, StoreWrite, StoredRecord, ThreadChange,
    WriteCondition,
};
use threadkeep_core::runner::CommitDecision;
use threadkeep_core::thread::{self, BasePart, ChainLink, HistoryBase, ThreadStatus};
use threadkeep_core::time::UnixTime;

/// Requests before the pairs of a case, and pairs.
const BEFORE: usize = 30;
const PAIRS: usize = 12;
/// Fewest pairs of the run that are joined, and of those that write the same record.
const JOINED_MIN: u64 = 500;

static JOINED: Mutex<(u64, u64)> = Mutex::new((0, 0));

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 640,
        max_shrink_iters: 2_000,
        ..ProptestConfig::default()
    })]

    fn pairs_join(
        before in prop::collection::vec(request_strategy(), 0..BEFORE),
        pairs in prop::collection::vec((request_strategy(), request_strategy()), PAIRS),
    ) {
        let mut world = TestWorld::new(None);
        for request in &before {
            world.request(request).map_err(TestCaseError::fail)?;
        }
        for (first, second) in &pairs {
            let joined = join_pair(&mut world, first, second);
            joined.map_err(|problem| {
                TestCaseError::fail(format!("{first:?}, {second:?}: {problem}"))
            })?;
        }
    }
}

#[test]
fn random_pairs_of_plans_join_to_what_both_do_in_order() {
    pairs_join();
    let (joined, overlapping) = *JOINED.lock().expect("no panic before");
    println!("{joined} joined, {overlapping} of them write a record twice");
    assert!(joined >= JOINED_MIN, "{joined}");
    assert!(overlapping >= JOINED_MIN / 2, "{overlapping}");
}

/// Returns the plan of a decision, if it makes one.
fn plan_of(answer: Option<(String, RequestAnswer)>) -> Option<Box<CommitPlan>> {
    match answer?.1 {
        RequestAnswer::Made(
            CommitDecision::Commit(plan) | CommitDecision::CommitThenFail(plan, _),
        ) => Some(plan),
        _ => None,
    }
}

/// Decides two requests one after the other, commits them as one and as two, and compares.
fn join_pair(
    world: &mut TestWorld,
    first: &RandomRequest,
    second: &RandomRequest,
) -> Result<(), String> {
    let before = world.clone();
    let Some(earlier) = plan_of(before.decide(first)) else {
        return world.request(first);
    };
    world.request(first)?;
    // The records as the first plan leaves them, at the versions that it has read.
    let mut planned = world.clone();
    planned.store = at_versions_of(&world.store, &before.store);
    let Some(later) = plan_of(planned.decide(second)) else {
        return world.request(second);
    };
    for thread in &before.threads {
        let mut applied = earlier.apply_to(&before.store.load(thread));
        let expected = planned.store.load(thread);
        let parent_of = |loaded: &LoadedThread| loaded.parent.clone().map(|parent| parent.id);
        if let Ok(applied) = &mut applied
            && parent_of(applied) != parent_of(&expected)
        {
            // The parent went on in another link, which only a load finds.
            applied.parent.clone_from(&expected.parent);
        }
        if applied.as_ref() != Ok(&expected) {
            return Err(format!(
                "{thread} is planned as {applied:?}, not {expected:?}"
            ));
        }
    }
    let apart = plan_of(world.decide(second)).ok_or("the second decision has no plan")?;
    if !world.store.clone().commit(&apart.writes) {
        return Err("the second plan does not fit".to_owned());
    }
    let mut in_order = world.store.clone();
    in_order.commit(&apart.writes);
    let joined = earlier.clone().join(later.clone());
    let joined = joined.map_err(|error| error.to_string())?;
    count_pair(&earlier, &later);
    for plan in [&earlier, &later, &joined] {
        check_messages(plan)?;
    }
    check_joined(&before.store, &in_order, &joined)?;
    check_shown(&earlier, &later, &joined)?;
    check_guards(&before.store, &earlier, &joined)?;
    world.request(second)
}

/// The messages of a plan are those of its entry, which a driver is handed without reading it.
fn check_messages(plan: &CommitPlan) -> Result<(), String> {
    let expected = plan.entry.as_deref().map(provider_messages);
    match plan.messages == expected.unwrap_or_default() {
        true => Ok(()),
        false => Err(format!("{:?} are not of {:?}", plan.messages, plan.entry)),
    }
}

/// Returns the records of one store at the versions of another; 0 where that has none.
fn at_versions_of(records: &TestStore, versions: &TestStore) -> TestStore {
    let mut planned = records.clone();
    for (name, (version, _)) in &mut planned.records {
        *version = versions
            .records
            .get(name)
            .map_or(0, |(version, _)| *version);
    }
    planned
}

fn names_of(plan: &CommitPlan) -> Vec<(&'static str, &str)> {
    let name = |write| match write {
        &StoreWrite::Check {
            collection,
            ref key,
            ..
        }
        | &StoreWrite::Put {
            collection,
            ref key,
            ..
        }
        | &StoreWrite::Delete {
            collection,
            ref key,
        } => Some((collection, key.as_str())),
        StoreWrite::Append { .. } | StoreWrite::Trim { .. } => None,
    };
    plan.writes.iter().filter_map(name).collect()
}

fn count_pair(earlier: &CommitPlan, later: &CommitPlan) {
    let named: BTreeSet<_> = names_of(earlier).into_iter().collect();
    let shared = names_of(later).iter().any(|name| named.contains(name));
    let mut joined = JOINED.lock().expect("no panic before");
    joined.0 += 1;
    joined.1 += u64::from(shared);
}

/// Checks that the joined plan names a key once, and that it leaves the records and histories that
/// both leave in order.
fn check_joined(
    before: &TestStore,
    in_order: &TestStore,
    joined: &CommitPlan,
) -> Result<(), String> {
    let names = names_of(joined);
    let once: BTreeSet<_> = names.iter().collect();
    if once.len() != names.len() {
        return Err(format!("a key is named twice: {names:?}"));
    }
    let mut at_once = before.clone();
    if !at_once.commit(&joined.writes) {
        return Err("the joined plan does not fit".to_owned());
    }
    let texts = |store: &TestStore| -> BTreeMap<_, _> {
        let records = store.records.clone().into_iter();
        records.map(|(name, (_, text))| (name, text)).collect()
    };
    if texts(&at_once) != texts(in_order) || at_once.histories != in_order.histories {
        return Err(format!("{at_once:?} is not {in_order:?}"));
    }
    let Some(logged) = &joined.logged else {
        return Ok(());
    };
    let line = &at_once.histories[&logged.partition][logged.position as usize - 1];
    let entry = Entry::from_text(line).map_err(|error| error.to_string())?;
    match entry.commit == logged.commit {
        true => Ok(()),
        false => Err(format!("{logged:?} names the entry of {}", entry.commit)),
    }
}

/// Checks that the joined plan is about the thread of the later.
fn check_shown(
    earlier: &CommitPlan,
    later: &CommitPlan,
    joined: &CommitPlan,
) -> Result<(), String> {
    let shown = joined.thread == later.thread
        && joined.head == later.head
        && joined.chain == later.chain
        && joined.above == later.above
        && joined.closing == (earlier.closing && later.closing)
        && (later.entry.is_none() || joined.entry == later.entry)
        && joined.logged.is_some() == (earlier.logged.is_some() || later.logged.is_some());
    match shown {
        true => Ok(()),
        false => Err(format!("{joined:?} does not show {later:?}")),
    }
}

/// Checks that the joined plan fails where a record is not as the earlier plan expects it.
fn check_guards(
    before: &TestStore,
    earlier: &CommitPlan,
    joined: &CommitPlan,
) -> Result<(), String> {
    for write in &earlier.writes {
        let (StoreWrite::Put {
            collection,
            key,
            expect,
            ..
        }
        | StoreWrite::Check {
            collection,
            key,
            expect,
        }) = write
        else {
            continue;
        };
        if *expect == WriteCondition::Any {
            continue;
        }
        let mut changed = before.clone();
        let name = ((*collection).to_owned(), key.clone());
        changed.records.insert(name, (u64::MAX, String::new()));
        let mut unchanged = changed.clone();
        if changed.commit(&earlier.writes) {
            return Err(format!(
                "the earlier plan does not guard {collection} {key}"
            ));
        }
        if unchanged.commit(&joined.writes) {
            return Err(format!("the joined plan does not guard {collection} {key}"));
        }
    }
    Ok(())
}

fn moment(commit: &str) -> DecisionContext<'_> {
    DecisionContext {
        now: UnixTime {
            seconds: 1_800_000_000,
            nanos: 0,
        },
        commit,
        ceiling: ThreadCaps::NONE,
        unknown_bill: UnknownBill::Estimate,
        store_full_message: None,
    }
}

/// Returns the plan of the end of a tip that is continued by `next`.
fn continue_tip(tip: &LoadedThread, next: &str) -> Box<CommitPlan> {
    let mut change = ThreadChange::new(tip, moment("00000000000000aa"));
    let thread = change.thread_mut();
    thread.next = Some(next.to_owned());
    thread.outcome = Some(ThreadStatus::Continued);
    change.head.status = ThreadStatus::Continued;
    change.head.due = None;
    change.stop_drawing();
    change.into_plan(CommitReason::RunFinished).expect("a plan")
}

/// Returns the plan that creates the next link after a tip, on all of its entries.
fn link_plan(tip: &LoadedThread, id: &str) -> Result<Box<CommitPlan>, Error> {
    let head = &tip.head.value;
    let base = HistoryBase {
        length: head.version,
        parts: vec![BasePart {
            thread: tip.thread.value.id.clone(),
            from: tip.thread.value.version_at(1),
            to: head.version,
            hash: head.hash.clone(),
        }],
    };
    let link = ChainLink {
        tip,
        base: Some(base),
        ceiling: ThreadCaps::NONE,
        takes_draw: false,
    };
    thread::create_link(link, id.to_owned(), moment("").now)
}

#[test]
fn a_link_is_created_with_the_end_of_its_tip_and_two_entries_in_one_commit() {
    let mut world = TestWorld::new(None);
    world.request(&RandomRequest::Start(0)).unwrap();
    let reply = RandomRequest::Reply(0, 1, 1, 0);
    world.request(&reply).unwrap();
    let loaded = world.store.load("root-0");
    let ended = continue_tip(&loaded, "link");
    let tip = ended.apply_to(&loaded).unwrap();
    let link = link_plan(&tip, "link").unwrap();
    let mut joined = ended.join(link).unwrap();
    // Both entries of the link are decided before anything is written.
    let mut begun = LoadedThread {
        thread: StoredRecord::absent(joined.thread.clone()),
        head: StoredRecord::absent(joined.head.clone()),
        chain: tip.chain.clone(),
        above: tip.above.clone(),
        parent: None,
        state: None,
    };
    for commit in ["00000000000000bb", "00000000000000cc"] {
        begun = joined.apply_to(&begun).unwrap();
        let change = ThreadChange::new(&begun, moment(commit));
        let plan = change.into_plan(CommitReason::Changed).unwrap();
        joined = joined.join(plan).unwrap();
    }
    check_messages(&joined).unwrap();
    let ended_at = tip.head.value.version;
    let logged = joined.logged.clone().unwrap();
    assert_eq!((logged.position, &*logged.partition), (2, "link"));
    assert!(world.store.commit(&joined.writes), "{:?}", joined.writes);
    let link = world.store.load("link");
    assert_eq!(link, joined.apply_to(&link).unwrap());
    assert_eq!(link.head.value.version, ended_at + 2);
    assert_eq!(link.chain.value.tip, "link");
    assert_eq!(link.chain.value.account.users, 1);
    assert_eq!(link.thread.value.previous.as_deref(), Some("root-0"));
    let lines = &world.store.histories["link"];
    let entries: Vec<Entry> = lines
        .iter()
        .map(|line| Entry::from_text(line).unwrap())
        .collect();
    let versions: Vec<u64> = entries.iter().map(|entry| entry.version).collect();
    assert_eq!(versions, [ended_at + 1, ended_at + 2]);
    let base = link.thread.value.base.as_ref();
    let genesis = thread::genesis_hash("link", "root-0", base);
    assert_eq!(entries[0].previous, genesis);
    assert_eq!(entries[1].previous, Entry::hash_of(&lines[0]));
    // The chain goes on from its tip only.
    let before = world.store.load("root-0");
    let refused = link_plan(&before, "other");
    let next = "link".to_owned();
    let thread = "root-0".to_owned();
    let expected = ErrorKind::Continued { thread, next };
    assert_eq!(refused, Err(expected.into()));
    assert_eq!(world.store.text(key::HEAD, "other"), None);
}

#[test]
fn a_link_and_a_change_of_its_tip_by_another_writer_exclude_each_other() {
    let mut world = TestWorld::new(None);
    let loaded = world.store.load("root-0");
    let ended = continue_tip(&loaded, "link");
    let link = link_plan(&ended.apply_to(&loaded).unwrap(), "link").unwrap();
    let joined = ended.join(link).unwrap();
    world.request(&RandomRequest::Start(0)).unwrap();
    assert!(!world.store.commit(&joined.writes));
    assert_eq!(world.store.text(key::THREAD, "link"), None);
}
