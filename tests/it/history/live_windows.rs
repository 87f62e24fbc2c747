//! The live window, read from its end: how much is read, what is carried along two hand-offs, and
//! what the request for a summary holds.

use super::{LoopHost, call_event, message_event, result_event};
use crate::runner::fixture::RunnerFixture;
use serde_json::{Value, json};
use std::sync::Arc;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_component::ports::HostPorts;
use threadkeep_core::continuation::{
    ContentSize, LiveWindow, SUMMARY_BYTES_MAX, SummaryRequest, SummaryTerms, TrailingBounds,
    TrailingSelection, WindowEntry, WindowNeeds, context_texts, select_trailing, summary_request,
};
use threadkeep_core::history::{CommitReason, ContextInjected, Event, ThreadHandoff};
use threadkeep_core::ledger::UnknownBill;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::plan::{
    CommitPlan, DecisionContext, LoadedThread, StoreWrite, ThreadChange, WriteCondition,
};
use threadkeep_core::settings::{Model, PinnedSummary};
use threadkeep_core::thread::{self, BasePart, ChainLink, HistoryBase, ThreadStatus};
use threadkeep_core::{json as core_json, key};
use threadkeep_tests::counting_store::CallCountingStore;
use threadkeep_tests::fixture::MapLibrary;

/// Entries that may be read beyond those that are carried.
const READ_BEYOND_MAX: u64 = 64;

/// A held chat over a store that counts.
fn counted_host() -> (LoopHost, Arc<CallCountingStore>) {
    let store = CallCountingStore::over(Arc::new(MemoryStore::new()));
    let mut world =
        RunnerFixture::over(Arc::<CallCountingStore>::clone(&store), MapLibrary::small());
    let thread = world.create(None);
    let mut host = LoopHost {
        world,
        thread,
        token: None,
    };
    host.take_lease("h/1", 3_000).unwrap();
    (host, store)
}

/// Appends without the audit after each.
fn append(host: &LoopHost, events: &[Value]) -> u64 {
    let texts: Vec<String> = events.iter().map(Value::to_string).collect();
    let service = &host.world.service;
    let written = service.append(&host.thread, host.token, None, &texts);
    written.unwrap().version
}

/// Appends rounds, each a reply with a call and the entry with its result.
fn append_rounds(host: &LoopHost, words: &str, rounds: usize) {
    for round in 0..rounds {
        let said = json!({"type": "assistant_text", "text": format!("{words} {round}.")});
        append(host, &[said, call_event("c")]);
        append(host, &[result_event("c")]);
    }
}

fn carry_tokens(tokens: u64) -> WindowNeeds {
    WindowNeeds {
        carried: ContentSize {
            tokens,
            bytes: 1 << 20,
        },
        transcript: None,
    }
}

fn load(world: &RunnerFixture, thread: &str, needs: WindowNeeds) -> (LoadedThread, LiveWindow) {
    let loaded = world.service.load(thread).unwrap();
    let until = loaded.head.value.version;
    let window = world.service.load_window(&loaded, until, needs).unwrap();
    (loaded, window)
}

fn select(loaded: &LoadedThread, window: &LiveWindow, tokens: u64) -> TrailingSelection {
    let head = &loaded.head.value;
    let pending = WindowEntry::pending(&loaded.thread.value.id, head.version + 1, &[]);
    let none = ContentSize::default();
    let most = ContentSize {
        tokens: 100_000,
        bytes: 1 << 20,
    };
    let bounds = TrailingBounds::with_summary(none, none, most, tokens);
    select_trailing(window, &pending, bounds).expect("it fits")
}

fn ranges(parts: &[BasePart]) -> Vec<(&str, u64, u64)> {
    let range = |part: &'_ BasePart| (part.from, part.to);
    parts
        .iter()
        .map(|part| (part.thread.as_str(), range(part).0, range(part).1))
        .collect()
}

fn entries_of(parts: &[BasePart]) -> u64 {
    parts.iter().map(|part| part.to - part.from + 1).sum()
}

#[test]
fn the_last_question_is_found_behind_500_rounds() {
    let (host, store) = counted_host();
    append(&host, &[message_event("user", "an early question")]);
    append_rounds(&host, "early", 20);
    let asked = append(&host, &[message_event("user", "the question")]);
    append_rounds(&host, "late", 500);
    let newest = host.head().version;
    assert_eq!(host.head().asked_version, Some(asked));
    for tokens in [0, 50, 1_000, 5_000] {
        store.take_calls();
        let (loaded, window) = load(&host.world, &host.thread, carry_tokens(tokens));
        let read = store.take_calls().entries as u64;
        let selection = select(&loaded, &window, tokens);
        let (kept, tail) = (&selection.parts[0], &selection.parts[1]);
        assert_eq!((kept.from, kept.to), (asked, asked), "{tokens} tokens");
        assert_eq!(tail.to, newest + 1);
        assert!(selection.texts[0].contains("the question"));
        assert!(selection.starts_with_user && selection.leaves_out);
        let most = entries_of(&selection.parts) + READ_BEYOND_MAX;
        assert!(read <= most, "{tokens} tokens: {read} of {most} entries");
        assert!(selection.size.tokens <= tokens.max(200), "{selection:?}");
        let hash = host.world.service.hash_at(&loaded, asked).unwrap();
        assert_eq!(kept.hash, hash);
    }
    // Everything is read only where everything fits; the first entry has no messages.
    let (loaded, window) = load(&host.world, &host.thread, carry_tokens(1_000_000));
    assert_eq!(window.newest.len() as u64, newest);
    let selection = select(&loaded, &window, 1_000_000);
    assert_eq!(ranges(&selection.parts), [(&*host.thread, 2, newest + 1)]);
    assert!(!selection.leaves_out);
}

/// Symptom: none yet; heads that earlier programs wrote do not say where a user spoke last. The
/// window is read on until the question is found, and never ends before.
#[test]
fn a_head_of_an_earlier_program_is_read_back_to_the_question() {
    let (host, store) = counted_host();
    append(&host, &[message_event("user", "an early question")]);
    append_rounds(&host, "early", 20);
    let asked = append(&host, &[message_event("user", "the question")]);
    append_rounds(&host, "late", 100);
    let mut loaded = host.world.service.load(&host.thread).unwrap();
    loaded.head.value_mut().asked_version = None;
    let put = StoreWrite::Put {
        collection: key::HEAD,
        key: loaded.key(),
        expect: WriteCondition::Any,
        value: core_json::to_text(&*loaded.head.value),
    };
    let ports = host.world.service.ports();
    assert!(ports.commit(vec![put], false).unwrap());
    store.take_calls();
    let (loaded, window) = load(&host.world, &host.thread, carry_tokens(50));
    let selection = select(&loaded, &window, 50);
    assert_eq!(
        (selection.parts[0].from, selection.parts[0].to),
        (asked, asked)
    );
    assert_eq!(window.newest.last().map(|entry| entry.version), Some(asked));
    // Not the 42 entries before it.
    assert!(store.take_calls().entries <= 201 + 32 + 1);
}

fn moment(world: &RunnerFixture) -> DecisionContext<'static> {
    DecisionContext {
        now: world.service.ports().now(),
        commit: "0123456789abcdef",
        ceiling: ThreadCaps::NONE,
        unknown_bill: UnknownBill::Estimate,
        store_full_message: None,
    }
}

fn commit(world: &RunnerFixture, plan: &CommitPlan) {
    assert!(matches!(world.service.commit(plan), Ok(true)));
}

/// Plants what a hand-off writes: the closing entry, the link, and its first entry.
fn hand_off(world: &RunnerFixture, tip: &str, link: &str, tokens: u64) -> TrailingSelection {
    let (loaded, window) = load(world, tip, carry_tokens(tokens));
    let mut selection = select(&loaded, &window, tokens);
    let mut change = ThreadChange::new(&loaded, moment(world));
    change.thread_mut().next = Some(link.to_owned());
    change.push_event(Event::ThreadHandoff(ThreadHandoff {
        new_thread_id: link.to_owned(),
        trailing_turns: selection.turns,
        summary_generated: false,
        summary_tokens: 0,
        summary_problem: None,
    }));
    change.thread_mut().outcome = Some(ThreadStatus::Continued);
    change.head.status = ThreadStatus::Continued;
    change.head.due = None;
    change.stop_drawing();
    let closing = change.into_plan(CommitReason::Handoff).unwrap();
    let tip = closing.apply_to(&loaded).unwrap();
    let head = &tip.head.value;
    let last = selection.parts.last_mut().unwrap();
    assert_eq!((last.to, last.hash.as_str()), (head.version, ""));
    last.hash.clone_from(&head.hash);
    let own = BasePart {
        thread: link.to_owned(),
        from: head.version + 1,
        to: head.version + 1,
        hash: String::new(),
    };
    let place = ChainLink {
        tip: &tip,
        base: HistoryBase::from_parts(selection.parts.clone()).map(|base| HistoryBase {
            parts: [vec![own], base.parts].concat(),
            ..base
        }),
        ceiling: ThreadCaps::NONE,
        takes_draw: false,
    };
    let now = world.service.ports().now();
    let created = thread::create_link(place, link.to_owned(), now).unwrap();
    commit(world, &closing.join(created).unwrap());
    let loaded = world.service.load(link).unwrap();
    let mut change = ThreadChange::new(&loaded, moment(world));
    let summary = format!("SUMMARY-FOR-{link}");
    for (role, text) in context_texts(Some(&summary), "", selection.starts_with_user) {
        change.push_event(Event::ContextInjected(ContextInjected { role, text }));
    }
    commit(world, &change.into_plan(CommitReason::Resumed).unwrap());
    selection
}

fn summary_of_window(window: u64) -> PinnedSummary {
    let model = format!(r#"{{"name":"m","provider":"p","window":{window}}}"#);
    PinnedSummary::builtin(Model::parse(&model).unwrap(), 300)
}

/// Makes the request for a summary as it was at a version.
fn request_at(
    world: &RunnerFixture,
    thread: &str,
    until: Option<u64>,
    terms: SummaryTerms<'_>,
) -> SummaryRequest {
    let loaded = world.service.load(thread).unwrap();
    let until = until.unwrap_or(loaded.head.value.version);
    let needs = WindowNeeds {
        carried: ContentSize::default(),
        transcript: Some(terms.most()),
    };
    let window = world.service.load_window(&loaded, until, needs).unwrap();
    summary_request(&window, None, terms).expect("there is room")
}

#[test]
fn a_second_hand_off_holds_nothing_that_the_first_left_behind() {
    let (mut host, _) = counted_host();
    append(&host, &[message_event("user", "FIRST-TASK")]);
    append_rounds(&host, "left behind", 60);
    append(&host, &[message_event("user", "SECOND-TASK")]);
    append_rounds(&host, "rounds of the first link", 60);
    host.close("idle", None).unwrap();
    let first = hand_off(&host.world, &host.thread.clone(), "Link-2", 600);
    assert_eq!(first.parts.len(), 2);
    // The next link goes on, and is handed off without a new message of a person.
    (host.thread, host.token) = ("Link-2".to_owned(), None);
    host.take_lease("h/2", 3_000).unwrap();
    append_rounds(&host, "rounds of the second link", 2);
    host.close("idle", None).unwrap();
    let summary = summary_of_window(100_000);
    let terms = SummaryTerms {
        summary: &summary,
        tokens: 300,
        output: 300,
    };
    let version = host.head().version;
    let request = request_at(&host.world, "Link-2", None, terms).message;
    for held in [
        "SUMMARY-FOR-Link-2",
        "SECOND-TASK",
        "the first link 59.",
        "second link 1.",
    ] {
        assert_eq!(request.matches(held).count(), 1, "{held}: {request}");
    }
    for left in ["FIRST-TASK", "left behind", "the first link 0."] {
        assert!(!request.contains(left), "{left}: {request}");
    }
    assert!(!request.contains("does not fit here"), "{request}");
    host.token = None;
    append(&host, &[message_event("user", "a later one")]);
    let again = request_at(&host.world, "Link-2", Some(version), terms).message;
    assert_eq!(again, request, "a retry sends the same bytes");
    let second = hand_off(&host.world, "Link-2", "Link-3", 250);
    let texts = second.texts.concat();
    assert!(
        texts.contains("a later one") && !texts.contains("SUMMARY-FOR"),
        "{texts}"
    );
    let request = request_at(&host.world, "Link-3", None, terms).message;
    assert!(request.contains("SUMMARY-FOR-Link-3") && !request.contains("SUMMARY-FOR-Link-2"));
    host.world.audit();
}

/// Reads the conversation page by page.
fn read_messages(world: &RunnerFixture, thread: &str) -> Vec<String> {
    let (mut all, mut after) = (Vec::new(), Some(0));
    while let Some(from) = after {
        let (page, cursor) = world.service.messages(thread, from, None).unwrap();
        all.extend(page);
        after = cursor;
    }
    all
}

/// The last question is carried behind a gap by every link, and never twice.
#[test]
fn a_question_is_carried_from_link_to_link() {
    let (mut host, store) = counted_host();
    append(&host, &[message_event("user", "THE-QUESTION")]);
    append_rounds(&host, "rounds of link 1", 40);
    host.close("idle", None).unwrap();
    for link in 2..=5 {
        let (before, next) = (host.thread.clone(), format!("Link-{link}"));
        store.take_calls();
        let selection = hand_off(&host.world, &before, &next, 400);
        assert_eq!(selection.texts.concat().matches("THE-QUESTION").count(), 1);
        assert!(selection.texts[0].contains("THE-QUESTION"));
        assert_eq!(selection.parts[0].to, 2, "{:?}", ranges(&selection.parts));
        assert!(selection.leaves_out);
        (host.thread, host.token) = (next, None);
        host.take_lease(&format!("h/{link}"), 3_000).unwrap();
        append_rounds(&host, &format!("rounds of link {link}"), 40);
        host.close("idle", None).unwrap();
        let sent = read_messages(&host.world, &host.thread);
        assert!(sent[0].contains("SUMMARY-FOR-Link"), "{}", sent[0]);
        assert_eq!(sent.concat().matches("THE-QUESTION").count(), 1);
    }
    host.world.audit();
}

/// Where the transcript does not fit, the window is read as far as it does, and the request says
/// how much is missing. CJK counts one token a character.
#[test]
fn a_summary_reads_as_far_as_its_window_takes() {
    let (host, store) = counted_host();
    append(&host, &[message_event("user", "FIRST-TASK")]);
    append_rounds(&host, &"漢字".repeat(20), 400);
    let newest = host.head().version;
    for window in [1_000, 4_000, 16_000, 200_000] {
        let summary = summary_of_window(window);
        let terms = SummaryTerms {
            summary: &summary,
            tokens: 300,
            output: 300,
        };
        store.take_calls();
        let request = request_at(&host.world, &host.thread, None, terms);
        let read = store.take_calls().entries as u64;
        assert!(request.size.tokens + 300 <= window, "{:?}", request.size);
        assert!(request.size.bytes <= SUMMARY_BYTES_MAX);
        let left_out = request.message.split_once("does not fit here: ");
        let left_out = left_out.map_or(0, |(_, rest)| {
            rest.split(' ').next().unwrap().parse().unwrap()
        });
        assert_eq!(left_out == 0, window == 200_000, "{window}");
        assert!(
            read <= newest - left_out + READ_BEYOND_MAX,
            "{window}: {read}"
        );
        assert_eq!(request.message.contains("FIRST-TASK"), left_out == 0);
        assert!(
            left_out == 0 || request.size.tokens + 300 > window * 3 / 4,
            "{window}"
        );
    }
}
