//! Histories: read in pages as they are stored, and written by external loops.

use super::blobs::NamedBlobs;
use super::store::{DecisionOutcome, find_thread_record};
use super::{Error, ThreadService};
use crate::ports::HostPorts;
use std::rc::Rc;
use threadkeep_core::error::Error as CoreError;
use threadkeep_core::hash::sha256;
use threadkeep_core::history::{
    AppendedEvent, CommitReason, Entry, Event, Message, MessageRole, parse_events,
};
use threadkeep_core::plan::LoadedThread;
use threadkeep_core::runner::{self, AppendRequest, LoopEnding};
use threadkeep_core::state::StateEdits;
use threadkeep_core::thread::{
    CHARGED_MAX, HistoryPath, PathRange, ThreadRecord, ThreadStatus, check_own_history,
};
use threadkeep_core::time::UnixTime;
use threadkeep_core::{id, key};

/// Most entries of one page.
pub const PAGE_ENTRIES_MAX: u32 = 500;

/// An entry with its stored text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEntry {
    /// The entry.
    pub entry: Entry,
    /// The text as it is stored.
    pub text: String,
}

/// A change as its caller wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChangeTexts {
    /// The events, each a JSON object.
    pub events: Vec<String>,
    /// Patches of the state, each a JSON object.
    pub patches: Vec<String>,
    /// Operations on the state, each a JSON object.
    pub operations: Vec<String>,
    /// A whole document of the state, JSON.
    pub snapshot: Option<String>,
    /// The caller's name of the append.
    pub request: Option<String>,
}

impl ChangeTexts {
    /// Returns a digest, by which a repeated append is known.
    fn digest(&self) -> String {
        let mut parts = vec!["append"];
        parts.extend(self.events.iter().map(String::as_str));
        for (name, texts) in [("patches", &self.patches), ("operations", &self.operations)] {
            if !texts.is_empty() {
                parts.push(name);
                parts.extend(texts.iter().map(String::as_str));
            }
        }
        if let Some(snapshot) = &self.snapshot {
            parts.extend(["snapshot", snapshot]);
        }
        if let Some(request) = &self.request {
            parts.extend(["request", request]);
        }
        sha256(&parts)
    }

    fn parse_edits(&self) -> Result<StateEdits, CoreError> {
        let snapshot = self.snapshot.as_deref();
        StateEdits::parse(&self.patches, &self.operations, snapshot, None).map_err(|refusal| {
            CoreError::invalid(format!("change.{}", refusal.place), "", refusal.problem)
        })
    }
}

/// The result of an append, or of the end of an external loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendOutcome {
    /// The version that the call made.
    pub version: u64,
    /// The current status of the thread.
    pub status: ThreadStatus,
    /// Messages that the call took from the inbox.
    pub mail: Vec<Message>,
}

/// A page of entries: the thread, the entries after a version, and the start of the next page.
pub type EntryPage = (LoadedThread, Vec<StoredEntry>, Option<u64>);

impl<P: HostPorts> ThreadService<P> {
    /// Returns the version after which a page begins: that of its cursor, or else `after`. A cursor
    /// lies behind `after` on the path; where that begins with later versions than it goes on with,
    /// it is the lower number.
    pub fn page_start(
        &self,
        thread: &str,
        after: u64,
        cursor: Option<String>,
    ) -> Result<u64, Error> {
        let Some(cursor) = cursor else {
            return Ok(after);
        };
        let follows = match cursor.parse() {
            Ok(version) if version < after => {
                let loaded = self.load(thread)?;
                let rest = thread_path(&loaded).after(after);
                rest.range_of(version).map(|_| version)
            }
            version => version.ok(),
        };
        follows
            .ok_or_else(|| CoreError::invalid("cursor", &cursor, "is not one of this list").into())
    }

    /// Reads entries along the path of a thread after `after`, up to `until` (the newest if it is
    /// `None`). The head is read first, so several calls agree about all entries below its version.
    pub fn entries(
        &self,
        thread: &str,
        after: u64,
        until: Option<u64>,
        limit: u32,
    ) -> Result<EntryPage, Error> {
        self.entries_up_to(thread, after, ("until", until), limit)
    }

    /// Reads entries; `field` is the name of the argument that says where they end.
    pub(super) fn entries_up_to(
        &self,
        thread: &str,
        after: u64,
        (field, until): (&str, Option<u64>),
        limit: u32,
    ) -> Result<EntryPage, Error> {
        if limit == 0 || limit > PAGE_ENTRIES_MAX {
            return Err(CoreError::invalid("limit", &limit.to_string(), "must be 1 to 500").into());
        }
        let loaded = self.load(thread)?;
        let until = until.unwrap_or(loaded.head.value.version);
        let path = thread_path(&loaded);
        check_on_path(&loaded, &path, "after", after)?;
        check_on_path(&loaded, &path, field, until)?;
        // A page ends with the entries of one thread, so that its bytes are those of one read.
        let rest = path.after(after).until(until);
        let mut lines: Vec<StoredEntry> = Vec::new();
        if let Some(range) = rest.ranges.first() {
            for (version, text) in self.range_entries(&loaded, *range, range.from, limit, false)? {
                let entry = Entry::from_text(&text)?;
                // Its own word is the cursor of the page: a reader could go round for ever.
                if entry.version != version {
                    return Err(missing_entry(range.thread, version));
                }
                lines.push(StoredEntry { entry, text });
            }
        }
        let last = lines.last().map(|line| line.entry.version);
        let cursor = last.filter(|last| *last != until);
        Ok((loaded, lines, cursor))
    }

    /// Checks that the history with which a run goes on is the thread's own.
    pub(super) fn check_own_history(&self, loaded: &LoadedThread) -> Result<(), Error> {
        let (thread, head) = (&loaded.thread.value, &loaded.head.value);
        let first = thread.version_at(1);
        if head.version < first {
            return Ok(());
        }
        let missing = || missing_entry(&thread.id, head.version);
        let newest = self.own_entries(loaded, head.version, 1)?;
        let newest = newest.first().ok_or_else(missing)?;
        let first = match head.version == first {
            true => Entry::from_text(&newest.1)?,
            false => self.entry(loaded, first)?.ok_or_else(missing)?,
        };
        Ok(check_own_history(thread, head, &first, &newest.1)?)
    }

    /// Reads a thread's own entries from a version on: versions and texts, fewer if a page is full.
    pub(super) fn own_entries(
        &self,
        loaded: &LoadedThread,
        from: u64,
        limit: u32,
    ) -> Result<Vec<(u64, String)>, Error> {
        let range = PathRange {
            thread: &loaded.thread.value.id,
            from,
            to: loaded.head.value.version,
            hash: None,
        };
        self.range_entries(loaded, range, from, limit, false)
    }

    /// Reads entries of a range of a thread's path from a version of it on, upwards or downwards:
    /// versions and texts, at least one, fewer than `limit` if a page is full.
    pub(super) fn range_entries(
        &self,
        loaded: &LoadedThread,
        range: PathRange<'_>,
        from: u64,
        limit: u32,
        reverse: bool,
    ) -> Result<Vec<(u64, String)>, Error> {
        let key = id::key(range.thread);
        let other;
        let owner = match key == loaded.key() {
            true => &loaded.thread.value,
            false => {
                other = self.carried_thread(loaded, &key)?;
                &other
            }
        };
        let missing = |version: u64| missing_entry(range.thread, version);
        let limit = u32::try_from(range.to - range.from + 1).map_or(limit, |all| all.min(limit));
        let position = owner.position(from).ok_or_else(|| missing(from))?;
        let read = self
            .ports
            .read_log(key::HISTORY, &key, position, limit, reverse)?;
        let mut texts = Vec::with_capacity(read.len());
        let mut expected = from;
        for (position, text) in read {
            let version = owner.version_at(position);
            if version != expected {
                return Err(missing(expected));
            }
            let hash = range.hash.filter(|_| version == range.to);
            if hash.is_some_and(|hash| hash != Entry::hash_of(&text)) {
                let (of, id) = (range.thread, &loaded.thread.value.id);
                let message = format!("version {version} of {of} is not that on which {id} rests");
                return Err(CoreError::corrupt(message).into());
            }
            let next = if reverse { version - 1 } else { version + 1 };
            texts.push((version, text));
            if !range.contains(next) {
                break;
            }
            expected = next;
        }
        match texts.is_empty() {
            true => Err(missing(from)),
            false => Ok(texts),
        }
    }

    /// Reads the record of a thread whose entries another carries in its base.
    fn carried_thread(&self, loaded: &LoadedThread, key: &str) -> Result<Rc<ThreadRecord>, Error> {
        let items = self.ports.get(&[(key::THREAD, key)])?;
        let record = find_thread_record(&items, key)?;
        record.map(|record| record.value).ok_or_else(|| {
            let id = &loaded.thread.value.id;
            let message = format!("the thread {key}, on whose entries {id} rests, is missing");
            CoreError::corrupt(message).into()
        })
    }

    /// Returns the hash of the entry of a version on a thread's path; at version 0, of what the
    /// path begins with.
    pub fn hash_at(&self, loaded: &LoadedThread, version: u64) -> Result<String, Error> {
        let (path, head) = (thread_path(loaded), &loaded.head.value);
        check_on_path(loaded, &path, "version", version)?;
        if version == head.version && version >= loaded.thread.value.version_at(1) {
            return Ok(head.hash.clone());
        }
        let range = path.range_of(version).or(path.ranges.first().copied());
        let Some(range) = range else {
            return Ok(head.hash.clone());
        };
        let first = version.max(range.from);
        let texts = self.range_entries(loaded, range, first, 1, false)?;
        match (texts.first(), version) {
            (Some((_, text)), 0) => Ok(Entry::from_text(text)?.previous),
            (Some((_, text)), _) => Ok(Entry::hash_of(text)),
            (None, _) => Err(missing_entry(range.thread, first)),
        }
    }

    /// Reads the hashes that a base needs which is made from a path of the thread: of the entries
    /// that ranges end with and that nothing else fixes. The head has that of the newest.
    pub(super) fn range_hashes(
        &self,
        loaded: &LoadedThread,
        path: &HistoryPath<'_>,
    ) -> Result<Vec<(u64, String)>, Error> {
        let open = path.ranges.iter().filter(|range| range.hash.is_none());
        open.map(|range| Ok((range.to, self.hash_at(loaded, range.to)?)))
            .collect()
    }

    /// Loads a thread with a version on its path (the newest if it is `None`) and the hash of that
    /// version's entry.
    pub fn snapshot(
        &self,
        thread: &str,
        version: Option<u64>,
    ) -> Result<(LoadedThread, u64, String), Error> {
        let loaded = self.load(thread)?;
        let version = version.unwrap_or(loaded.head.value.version);
        let hash = self.hash_at(&loaded, version)?;
        Ok((loaded, version, hash))
    }

    /// Leases a thread to an external loop.
    pub fn open(
        &self,
        thread: &str,
        holder: &str,
        deadline: UnixTime,
    ) -> Result<LoadedThread, Error> {
        let done = self.decide(thread, &|loaded, moment| {
            let mail = self.mail(loaded)?;
            let moment = self.with_operator_caps(moment)?;
            Ok(runner::open(loaded, holder, deadline, mail, moment)?)
        })?;
        Ok(done.into_loaded())
    }

    /// Adds events to a history: see [`ThreadService::append_change`].
    pub fn append(
        &self,
        thread: &str,
        token: Option<u64>,
        expected: Option<u64>,
        events: &[String],
    ) -> Result<AppendOutcome, Error> {
        let change = ChangeTexts {
            events: events.to_vec(),
            ..ChangeTexts::default()
        };
        self.append_change(thread, token, expected, &change)
    }

    /// Adds events and edits of the state to a history, with the token of its holder, or without
    /// one if the thread has no holder: after the version `expected`, or after whichever it has.
    pub fn append_change(
        &self,
        thread: &str,
        token: Option<u64>,
        expected: Option<u64>,
        texts: &ChangeTexts,
    ) -> Result<AppendOutcome, Error> {
        let events = parse_events(&texts.events)?;
        let edits = texts.parse_edits()?;
        let digest = texts.digest();
        let done = self.decide(thread, &|loaded, moment| {
            self.check_blobs(loaded, &NamedBlobs::of_events(&events))?;
            let round = self.round(loaded)?;
            let answer = match expected {
                Some(version) => self.entry_after(loaded, version)?,
                None => None,
            };
            let append = AppendRequest {
                token,
                expected,
                request: texts.request.as_deref(),
                digest: digest.clone(),
                events: &events,
                edits: &edits,
                mail: self.mail(loaded)?,
                known: self.known_messages(loaded, &events)?,
            };
            Ok(runner::append(
                loaded,
                round.as_deref(),
                answer.as_ref(),
                append,
                moment,
            )?)
        })?;
        let (head, entry) = match done {
            DecisionOutcome::Committed(plan) => (plan.head, plan.entry),
            DecisionOutcome::Unchanged(loaded) => {
                let version = expected.unwrap_or(loaded.head.value.version);
                let entry = self.entry_after(&loaded, version)?;
                (loaded.head.value, entry.map(Rc::new))
            }
        };
        let before = expected.unwrap_or(head.version);
        Ok(append_outcome(head.status, entry, &events, before))
    }

    /// Reads the entry after a version that the history has passed.
    fn entry_after(&self, loaded: &LoadedThread, version: u64) -> Result<Option<Entry>, Error> {
        match version < loaded.head.value.version {
            true => self.entry(loaded, version + 1),
            false => Ok(None),
        }
    }

    /// Ends the lease of an external loop.
    pub fn close(
        &self,
        thread: &str,
        token: u64,
        outcome: &str,
        result: Option<String>,
    ) -> Result<AppendOutcome, Error> {
        let ending = LoopEnding::parse(outcome, result)?;
        let done = self.decide(thread, &|loaded, moment| {
            let head = &loaded.head.value;
            // Only a repeated call needs the newest entry: the lease has ended then.
            let newest = match head.step {
                None => self.newest_own_entry(loaded)?,
                Some(_) => None,
            };
            let (round, mail) = (self.round(loaded)?, self.mail(loaded)?);
            Ok(runner::close(
                loaded,
                round.as_deref(),
                newest.as_ref(),
                (token, ending.clone()),
                mail,
                moment,
            )?)
        })?;
        let (head, entry) = match done {
            DecisionOutcome::Committed(plan) => (plan.head, plan.entry),
            DecisionOutcome::Unchanged(loaded) => {
                let entry = self.newest_own_entry(&loaded)?;
                (loaded.head.value, entry.map(Rc::new))
            }
        };
        Ok(append_outcome(head.status, entry, &[], head.version))
    }

    /// Reads the newest entry that is no late settlement of a charged call. After the end of a
    /// lease there is at most one such settlement for each charged call.
    pub(super) fn newest_own_entry(&self, loaded: &LoadedThread) -> Result<Option<Entry>, Error> {
        let newest = loaded.head.value.version;
        let first = loaded.thread.value.version_at(1);
        for version in (first..=newest).rev().take(CHARGED_MAX + 1) {
            let entry = self.entry(loaded, version)?;
            if entry
                .as_ref()
                .is_none_or(|entry| entry.reason != CommitReason::Settled)
            {
                return Ok(entry);
            }
        }
        Ok(None)
    }
}

/// Returns the result of a call whose entry begins with the events of the caller, apart from those
/// that its chain knew already. Users' messages after them came from the inbox.
fn append_outcome(
    status: ThreadStatus,
    entry: Option<Rc<Entry>>,
    given: &[AppendedEvent],
    before: u64,
) -> AppendOutcome {
    let version = entry.as_ref().map_or(before, |entry| entry.version);
    let mut mail = Vec::new();
    if let Some(entry) = entry {
        let count = count_given(&entry.events, given);
        for event in entry.events.iter().skip(count) {
            match event {
                Event::Message(message) if message.role == MessageRole::User => {
                    mail.push(message.clone());
                }
                _ => {}
            }
        }
    }
    AppendOutcome {
        version,
        status,
        mail,
    }
}

/// Counts the events of an entry that its caller gave. A message with an id that is not at its
/// place was skipped.
fn count_given(stored: &[Event], given: &[AppendedEvent]) -> usize {
    let mut count = 0;
    for event in given {
        let skipped = match event {
            AppendedEvent::Event(Event::Message(message)) if message.id.is_some() => {
                stored.get(count) != Some(&Event::Message(message.clone()))
            }
            _ => false,
        };
        count += usize::from(!skipped);
    }
    count
}

/// Returns the ranges that a thread is read along.
pub(super) fn thread_path(loaded: &LoadedThread) -> HistoryPath<'_> {
    HistoryPath::of(&loaded.thread.value, loaded.head.value.version)
}

/// Checks that a version is 0 or on the path of a thread.
pub(super) fn check_on_path(
    loaded: &LoadedThread,
    path: &HistoryPath<'_>,
    field: &str,
    version: u64,
) -> Result<(), Error> {
    let (newest, length) = (loaded.head.value.version, loaded.thread.value.base_length());
    if version == 0 || path.range_of(version).is_some() {
        return Ok(());
    }
    let problem = match version > newest {
        true => format!("is not reached: the newest version is {newest}"),
        false => format!(
            "is not on the path of the thread: its own versions begin after {length}, and its \
             base leaves this one out"
        ),
    };
    Err(CoreError::invalid(field, &version.to_string(), problem).into())
}

pub(super) fn missing_entry(thread: &str, version: u64) -> Error {
    CoreError::corrupt(format!("version {version} of {thread} is missing")).into()
}
