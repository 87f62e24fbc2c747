//! Random conversations, and a selection that tries every cut.

use super::super::WindowNeeds;
use super::super::context_texts;
use super::*;
use crate::history::{
    AssistantText, ContextInjected, Event, Message, MessageRole, NoteEvent, ThinkingEvent,
    ToolResult, ToolResultState, ToolUse, provider_messages_of,
};
use crate::json::JsonValue;
use crate::money::NanoUsd;
use proptest::prelude::*;
use serde_json::Value;
use std::collections::BTreeSet;

/// An entry on the path, in the order of the path.
#[derive(Debug, Clone)]
struct PathEntry {
    thread: String,
    version: u64,
    events: Vec<Event>,
}

impl PathEntry {
    fn texts(&self) -> Vec<String> {
        provider_messages_of(self.version, &self.events)
    }

    fn window_entry(&self) -> WindowEntry {
        WindowEntry {
            hash: format!("of {}", self.version),
            ..WindowEntry::pending(&self.thread, self.version, &self.events)
        }
    }
}

/// A step of a random conversation.
#[derive(Debug, Clone)]
enum RandomStep {
    /// Messages of users, each with its length; in one entry or in one each.
    Users(Vec<usize>, bool),
    /// A reply.
    Reply(RandomReply),
    /// An entry of an external loop: a user's message, a call, and perhaps its result.
    Loop(usize, bool),
    /// A message of the program.
    Injected,
    /// An entry without messages, or with one that is not sent.
    Silent(bool),
    /// The next entry has a later version than that after this one.
    Gap(u64),
    /// The next entry is of another thread.
    Link,
}

#[derive(Debug, Clone)]
struct RandomReply {
    thinks: bool,
    text: usize,
    /// Lengths of the results of its calls.
    calls: Vec<usize>,
    /// Number of results that are in entries of their own; the others are in the last one.
    apart: usize,
    /// True if an entry without messages stands before the results.
    waits: bool,
    /// Length of a message that came with the last result.
    mail: Option<usize>,
}

fn any_reply() -> impl Strategy<Value = RandomReply> {
    let calls = prop::collection::vec(0_usize..300, 0..4);
    let mail = prop::option::weighted(0.3, 1_usize..200);
    (
        any::<bool>(),
        0_usize..200,
        calls,
        0_usize..4,
        any::<bool>(),
        mail,
    )
        .prop_map(|(thinks, text, calls, apart, waits, mail)| RandomReply {
            thinks,
            text,
            calls,
            apart,
            waits,
            mail,
        })
}

fn any_step() -> impl Strategy<Value = RandomStep> {
    let lengths = prop::collection::vec(1_usize..200, 1..3);
    prop_oneof![
        2 => (lengths, any::<bool>()).prop_map(|(all, apart)| RandomStep::Users(all, apart)),
        6 => any_reply().prop_map(RandomStep::Reply),
        1 => (1_usize..200, any::<bool>()).prop_map(|(n, done)| RandomStep::Loop(n, done)),
        1 => Just(RandomStep::Injected),
        2 => any::<bool>().prop_map(RandomStep::Silent),
        1 => (1_u64..5).prop_map(RandomStep::Gap),
        1 => Just(RandomStep::Link),
    ]
}

/// Writer of random conversations.
struct PathWriter {
    entries: Vec<PathEntry>,
    thread: usize,
    version: u64,
    words: usize,
}

impl PathWriter {
    fn word(&mut self, length: usize) -> String {
        self.words += 1;
        let script = if self.words.is_multiple_of(3) {
            "漢"
        } else {
            "x"
        };
        format!("{} {}", self.words, script.repeat(length))
    }

    fn user(&mut self, length: usize) -> Event {
        Event::Message(Message::text(MessageRole::User, self.word(length)))
    }

    fn push(&mut self, events: Vec<Event>) -> u64 {
        let version = self.version;
        self.entries.push(PathEntry {
            thread: format!("t-{}", self.thread),
            version,
            events,
        });
        self.version += 1;
        version
    }

    fn call(&mut self) -> Event {
        Event::ToolUse(ToolUse {
            name: "read".into(),
            arguments: "{}".into(),
            id: "same".into(),
            raw: None,
        })
    }

    fn result(&mut self, (version, index): (u64, u32), length: usize) -> Event {
        Event::ToolResult(ToolResult {
            version,
            index,
            name: "read".into(),
            text: self.word(length),
            failed: false,
            state: ToolResultState::Done,
            cost: NanoUsd::ZERO,
            blocks: Vec::new(),
        })
    }

    fn reply(&mut self, reply: &RandomReply) {
        let mut events = Vec::new();
        if reply.thinks {
            let (text, raw) = (self.word(3), Some("{\"signature\":\"s\"}".to_owned()));
            events.push(Event::Thinking(ThinkingEvent { text, raw }));
        }
        if reply.text > 0 || reply.calls.is_empty() {
            let text = self.word(reply.text);
            events.push(Event::AssistantText(AssistantText { text }));
        }
        let first = events.len() as u32;
        for _ in &reply.calls {
            events.push(self.call());
        }
        let version = self.push(events);
        if reply.calls.is_empty() {
            return;
        }
        if reply.waits {
            self.push(Vec::new());
        }
        let mut results: Vec<Event> = Vec::new();
        for (index, length) in (first..).zip(&reply.calls) {
            results.push(self.result((version, index), *length));
        }
        while results.len() > 1.max(reply.calls.len().saturating_sub(reply.apart)) {
            let result = results.pop();
            self.push(result.into_iter().collect());
        }
        if let Some(length) = reply.mail {
            results.push(self.user(length));
        }
        self.push(results);
    }

    fn step(&mut self, step: &RandomStep) {
        match step {
            RandomStep::Users(lengths, apart) => {
                let users: Vec<Event> = lengths.iter().map(|length| self.user(*length)).collect();
                for events in users.chunks(if *apart { 1 } else { users.len() }) {
                    self.push(events.to_vec());
                }
            }
            RandomStep::Reply(reply) => self.reply(reply),
            RandomStep::Loop(length, done) => {
                let version = self.version;
                let mut events = vec![self.user(*length), self.call()];
                let result = self.result((version, 1), *length);
                if *done {
                    events.push(result);
                    self.push(events);
                } else {
                    self.push(events);
                    self.push(vec![result]);
                }
            }
            RandomStep::Injected => {
                let text = self.word(9);
                let role = MessageRole::User;
                self.push(vec![Event::ContextInjected(ContextInjected { role, text })]);
            }
            RandomStep::Silent(synthetic) => {
                let note = NoteEvent {
                    name: "n".into(),
                    body: JsonValue::Null,
                };
                self.push(vec![match synthetic {
                    true => Event::Message(Message::synthetic("(stopped by user)")),
                    false => Event::Note(note),
                }]);
            }
            RandomStep::Gap(versions) => self.version += versions,
            RandomStep::Link => self.thread += 1,
        }
    }
}

/// Writes a conversation; `context` is the length of what an earlier hand-off put before it. The
/// last entry is the pending one.
fn write_path(steps: &[RandomStep], context: Option<usize>, pending: bool) -> Vec<PathEntry> {
    let mut writer = PathWriter {
        entries: Vec::new(),
        thread: 0,
        version: 1,
        words: 0,
    };
    if context.is_none() {
        let first = writer.user(4);
        writer.push(vec![first]);
    }
    steps.iter().for_each(|step| writer.step(step));
    if pending {
        writer.push(Vec::new());
    }
    let mut entries = writer.entries;
    if let Some(length) = context {
        let texts = context_texts(Some(&"s".repeat(length)), "", true);
        let inject = |(role, text)| Event::ContextInjected(ContextInjected { role, text });
        entries.insert(
            0,
            PathEntry {
                thread: "own".into(),
                version: 10_000,
                events: texts.into_iter().map(inject).collect(),
            },
        );
    }
    if entries.is_empty() {
        writer = PathWriter { entries, ..writer };
        writer.push(Vec::new());
        entries = writer.entries;
    }
    entries
}

/// Loads the window as the service does: from its end as far as `most`, and the group of the last
/// user's message.
fn load(entries: &[PathEntry], most: ContentSize) -> LiveWindow {
    let context = entries.first().filter(|entry| entry.thread == "own");
    let entries = &entries[context.iter().len()..];
    let needs = WindowNeeds {
        carried: most,
        transcript: None,
    };
    let context = context.map(PathEntry::window_entry);
    let mut window = LiveWindow::new(needs, context, entries.len() as u64);
    for entry in entries.iter().rev() {
        window.push_older(entry.window_entry());
        if !window.needs_older() {
            break;
        }
    }
    if !window.has_user_text()
        && let Some((from, to)) = asked_block(entries)
    {
        // Entries without messages stay with those before them.
        let silent = entries[to + 1..].iter();
        let silent = silent.take_while(|entry| entry.texts().is_empty());
        let group = entries[from..=to + silent.count()].iter().rev();
        window.asked = group.map(PathEntry::window_entry).collect();
    }
    window
}

/// Checks messages as both wires do: it begins with a user's, results come right behind their
/// calls, and no id comes twice.
fn check_wire(texts: &[String]) -> Result<(), String> {
    let (mut open, mut ids) = (BTreeSet::new(), BTreeSet::new());
    let mut first = true;
    for text in texts {
        let message: Value = serde_json::from_str(text).map_err(|wrong| wrong.to_string())?;
        let role = message["role"].as_str().unwrap_or_default();
        if first && role != "user" {
            return Err("the first message is not a user's".into());
        }
        first = false;
        if role != "tool" && !open.is_empty() {
            return Err("a call has no result in the next message".into());
        }
        for block in message["content"].as_array().into_iter().flatten() {
            let id = block["id"].as_str().unwrap_or_default().to_owned();
            let is_sound = match block["type"].as_str() {
                Some("tool_use") => ids.insert(id.clone()) && open.insert(id),
                Some("tool_result") => open.remove(&id),
                _ => true,
            };
            if !is_sound {
                return Err(format!(
                    "a call comes twice, or a result without one: {block}"
                ));
            }
        }
    }
    open.is_empty()
        .then_some(())
        .ok_or_else(|| "a call has no result at the end".into())
}

fn texts_of(entries: &[PathEntry]) -> Vec<String> {
    entries.iter().flat_map(PathEntry::texts).collect()
}

/// Returns true if a part of a conversation can be sent behind a user's message.
fn stands_alone(entries: &[PathEntry]) -> bool {
    let opening = r#"{"role":"user","content":[]}"#.to_owned();
    let texts: Vec<String> = [opening].into_iter().chain(texts_of(entries)).collect();
    check_wire(&texts).is_ok()
}

/// Returns the fewest consecutive entries around the last message of a user that stand alone.
fn asked_block(entries: &[PathEntry]) -> Option<(usize, usize)> {
    let asked = entries
        .iter()
        .rposition(|entry| entry.window_entry().has_user_text())?;
    let blocks = (0..=asked)
        .rev()
        .flat_map(|from| (asked..entries.len()).map(move |to| (from, to)));
    let mut sound: Vec<(usize, usize)> = blocks
        .filter(|(from, to)| stands_alone(&entries[*from..=*to]))
        .collect();
    sound.sort_by_key(|(from, to)| to - from);
    sound.first().copied()
}

/// Returns the texts that each possible cut carries, with the place of the cut; the latest first.
fn every_cut(entries: &[PathEntry]) -> Vec<(Vec<String>, usize)> {
    let block = asked_block(entries);
    let cuts = (0..entries.len()).rev().filter_map(|cut| {
        if texts_of(&entries[cut..]).is_empty() || !stands_alone(&entries[cut..]) {
            return None;
        }
        let kept = block.filter(|(from, _)| *from < cut);
        let kept = kept.map_or(&entries[..0], |(from, to)| &entries[from..=to]);
        Some((texts_of(&[kept, &entries[cut..]].concat()), cut))
    });
    cuts.collect()
}

fn size_of(texts: &[String]) -> ContentSize {
    let sizes = texts.iter().map(|text| ContentSize::of(text));
    sizes.fold(ContentSize::default(), ContentSize::plus)
}

/// Reads the entries of parts along the path.
fn read_parts(entries: &[PathEntry], parts: &[BasePart]) -> Vec<PathEntry> {
    let part_entries = |part: &BasePart| -> Vec<PathEntry> {
        let versions = part.from..=part.to;
        let found = entries
            .iter()
            .filter(|entry| entry.thread == part.thread && versions.contains(&entry.version));
        let found: Vec<PathEntry> = found.cloned().collect();
        assert_eq!(found.len() as u64, part.to - part.from + 1, "{part:?}");
        found
    };
    parts.iter().flat_map(part_entries).collect()
}

/// Checks what a selection says of its messages, and that a model can be sent them.
fn check_description(
    path: &[PathEntry],
    pending: &WindowEntry,
    selection: &TrailingSelection,
) -> Result<(), TestCaseError> {
    let texts = selection.texts.clone();
    let of_assistant = |text: &&String| text.starts_with(r#"{"role":"assistant""#);
    prop_assert_eq!(
        selection.turns as usize,
        texts.iter().filter(of_assistant).count()
    );
    prop_assert_eq!(selection.leaves_out, texts.len() < texts_of(path).len());
    let last = selection
        .parts
        .last()
        .expect("it ends with the pending entry");
    prop_assert_eq!((&last.thread, last.to), (&pending.thread, pending.version));
    let first_is_user = texts
        .first()
        .is_some_and(|text| text.starts_with(r#"{"role":"user""#));
    prop_assert_eq!(selection.starts_with_user, first_is_user);
    let opening = context_texts(None, "", selection.starts_with_user).into_iter();
    let inject = |(role, text)| Event::ContextInjected(ContextInjected { role, text });
    let opening: Vec<Event> = opening.map(inject).collect();
    let sent = [provider_messages_of(1, &opening), texts].concat();
    prop_assert_eq!(check_wire(&sent), Ok(()));
    Ok(())
}

fn check_selection(
    entries: &[PathEntry],
    bounds: TrailingBounds,
) -> Result<Option<TrailingSelection>, TestCaseError> {
    let is_context = entries.first().is_some_and(|entry| entry.thread == "own");
    let path = &entries[usize::from(is_context && entries.len() > 1)..];
    let (pending, stored) = entries.split_last().expect("it has a pending entry");
    let pending = pending.window_entry();
    let whole = load(
        stored,
        ContentSize {
            tokens: u64::MAX,
            bytes: u64::MAX,
        },
    );
    prop_assert_eq!(whole.left, 0);
    let selected = select_trailing(&whole, &pending, bounds);
    let mut partly = select_trailing(&load(stored, bounds.wanted), &pending, bounds);
    if let (Ok(whole), Ok(partly)) = (&selected, &mut partly) {
        // Entries that are not loaded may have no messages.
        prop_assert!(partly.leaves_out >= whole.leaves_out);
        partly.leaves_out = whole.leaves_out;
    }
    prop_assert_eq!(&selected, &partly, "a window that is loaded in part");
    let cuts = every_cut(path);
    let fewest = cuts
        .first()
        .map(|(texts, _)| size_of(texts))
        .unwrap_or_default();
    let selection = match selected {
        Ok(selection) => selection,
        Err(refusal) => {
            prop_assert_eq!(refusal.needed, fewest);
            prop_assert!(!fewest.fits(bounds.most));
            return Ok(None);
        }
    };
    prop_assert!(fewest.fits(bounds.most));
    let fits = |(texts, _): &&(Vec<String>, usize)| size_of(texts).fits(bounds.wanted);
    let longest = cuts
        .iter()
        .rfind(fits)
        .or(cuts.first())
        .cloned()
        .unwrap_or_default();
    let carried = read_parts(entries, &selection.parts);
    let texts = texts_of(&carried);
    prop_assert_eq!(&texts, &longest.0, "the longest end that fits");
    prop_assert_eq!(selection.size, size_of(&texts));
    prop_assert_eq!(&selection.texts, &texts);
    for part in &selection.parts {
        prop_assert_eq!(&part.hash, &format!("of {}", part.to));
    }
    check_description(path, &pending, &selection)?;
    Ok(Some(selection))
}

fn any_path() -> impl Strategy<Value = Vec<PathEntry>> {
    let steps = prop::collection::vec(any_step(), 0..14);
    let context = prop::option::weighted(0.3, 0_usize..400);
    (steps, context, any::<bool>())
        .prop_map(|(steps, context, pending)| write_path(&steps, context, pending))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_longest_end_that_fits_is_selected(
        entries in any_path(),
        share in 0_u64..=110,
        bytes in prop::option::weighted(0.2, 0_u64..4_000),
        most in prop::option::weighted(0.3, 0_u64..1_500),
    ) {
        let all = size_of(&texts_of(&entries));
        let wanted = ContentSize {
            tokens: all.tokens * share / 100,
            bytes: bytes.unwrap_or(u64::MAX),
        };
        let most = ContentSize {
            tokens: most.unwrap_or(u64::MAX),
            bytes: u64::MAX,
        };
        check_selection(&entries, TrailingBounds { wanted, most, parts: usize::MAX })?;
    }
}

/// Each case: the conversation, the most tokens, and the ranges that are carried.
#[test]
fn the_last_question_is_kept_behind_a_gap() {
    let ask = RandomStep::Users(vec![40], false);
    let round = RandomStep::Reply(RandomReply {
        thinks: true,
        text: 10,
        calls: vec![40, 40],
        apart: 0,
        waits: false,
        mail: None,
    });
    let mut steps = vec![ask];
    steps.extend(std::iter::repeat_n(round, 20));
    let entries = write_path(&steps, None, true);
    let all = size_of(&texts_of(&entries)).tokens;
    let unbounded = ContentSize {
        tokens: u64::MAX,
        bytes: u64::MAX,
    };
    for (tokens, parts, expected) in [
        (all / 4, 64, vec![(2, 2), (35, 43)]),
        (0, 64, vec![(2, 2), (41, 43)]),
        (all / 4, 1, vec![(2, 2), (41, 43)]),
        (all, 64, vec![(1, 43)]),
    ] {
        let bounds = TrailingBounds {
            wanted: ContentSize {
                tokens,
                ..unbounded
            },
            most: unbounded,
            parts,
        };
        let (pending, stored) = entries.split_last().unwrap();
        let window = load(stored, bounds.wanted);
        let selection = select_trailing(&window, &pending.window_entry(), bounds).unwrap();
        let ranges: Vec<(u64, u64)> = selection.parts.iter().map(|p| (p.from, p.to)).collect();
        assert_eq!(ranges, expected, "{tokens} tokens in {parts} parts");
        assert_eq!(selection.leaves_out, tokens != all);
    }
}

/// A path that carries as many parts as a base may have is cut where one part more begins.
#[test]
fn parts_are_bounded() {
    let mut steps = Vec::new();
    for _ in 0..10 {
        steps.extend([RandomStep::Users(vec![5], false), RandomStep::Link]);
    }
    let entries = write_path(&steps, None, true);
    let unbounded = ContentSize {
        tokens: u64::MAX,
        bytes: u64::MAX,
    };
    for parts in 1..=12 {
        let bounds = TrailingBounds {
            wanted: unbounded,
            most: unbounded,
            parts,
        };
        let (pending, stored) = entries.split_last().unwrap();
        let window = load(stored, unbounded);
        let selection = select_trailing(&window, &pending.window_entry(), bounds).unwrap();
        // The pending entry is of a thread of its own, and the newest message is always carried.
        assert_eq!(selection.parts.len(), parts.clamp(2, 11));
        assert_eq!(selection.leaves_out, parts < 11);
    }
}
