//! Histories: read in pages as they are stored, and written by external loops.

use super::store::DecisionOutcome;
use super::{Error, ThreadService};
use crate::ports::HostPorts;
use threadkeep_core::error::Error as CoreError;
use threadkeep_core::hash::sha256;
use threadkeep_core::history::{CommitReason, Entry, Event, Message, MessageRole, parse_events};
use threadkeep_core::plan::LoadedThread;
use threadkeep_core::runner::{self, AppendRequest, LoopEnding};
use threadkeep_core::thread::{CHARGED_MAX, ThreadStatus};
use threadkeep_core::time::UnixTime;

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
    /// Reads entries after `after`, up to `until` (the newest if it is `None`). The head is read
    /// first, so several calls agree about all entries below its version.
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
        let newest = loaded.head.value.version;
        let until = until.unwrap_or(newest);
        for (field, version) in [("after", after), (field, until)] {
            if version > newest {
                let problem = format!("is not reached: the newest version is {newest}");
                return Err(CoreError::invalid(field, &version.to_string(), problem).into());
            }
        }
        let wanted = u32::try_from(until.saturating_sub(after))
            .unwrap_or(u32::MAX)
            .min(limit);
        if wanted == 0 {
            return Ok((loaded, Vec::new(), None));
        }
        let texts = self
            .ports
            .read_history(&loaded.key(), after + 1, wanted, false)?;
        let mut lines = Vec::with_capacity(texts.len());
        for (expected, (position, text)) in (after + 1..).zip(texts) {
            if position != expected {
                return Err(missing_entry(&loaded, expected));
            }
            lines.push(StoredEntry {
                entry: Entry::from_text(&text)?,
                text,
            });
        }
        let last = after + lines.len() as u64;
        if lines.is_empty() {
            return Err(missing_entry(&loaded, after + 1));
        }
        Ok((loaded, lines, (last < until).then_some(last)))
    }

    /// Loads a thread with a version that it has reached (the newest if it is `None`) and the hash of
    /// its history up to there.
    pub fn snapshot(
        &self,
        thread: &str,
        version: Option<u64>,
    ) -> Result<(LoadedThread, u64, String), Error> {
        let loaded = self.load(thread)?;
        let newest = loaded.head.value.version;
        let version = version.unwrap_or(newest);
        if version > newest {
            let problem = format!("is not reached: the newest version is {newest}");
            return Err(CoreError::invalid("version", &version.to_string(), problem).into());
        }
        let hash = match self.entry_after(&loaded, version)? {
            // The next entry names it, also where there is no entry before.
            Some(next) => next.previous,
            None if version == newest => loaded.head.value.hash.clone(),
            None => return Err(missing_entry(&loaded, version + 1)),
        };
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

    /// Adds events to a history, with the token of its holder, or without one if the thread has no
    /// holder: after the version `expected`, or after whichever it has.
    pub fn append(
        &self,
        thread: &str,
        token: Option<u64>,
        expected: Option<u64>,
        texts: &[String],
    ) -> Result<AppendOutcome, Error> {
        let events = parse_events(texts)?;
        let count = events.len();
        let mut parts = vec!["append"];
        parts.extend(texts.iter().map(String::as_str));
        let digest = sha256(&parts);
        let done = self.decide(thread, &|loaded, moment| {
            let round = self.round(loaded)?;
            let answer = match expected {
                Some(version) => self.entry_after(loaded, version)?,
                None => None,
            };
            let append = AppendRequest {
                token,
                expected,
                digest: digest.clone(),
                events: &events,
                mail: self.mail(loaded)?,
            };
            Ok(runner::append(
                loaded,
                round.as_ref(),
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
                (loaded.head.value, entry)
            }
        };
        let before = expected.unwrap_or(head.version);
        Ok(append_outcome(head.status, entry, count, before))
    }

    /// Reads the entry after a version that the history has passed.
    fn entry_after(&self, loaded: &LoadedThread, version: u64) -> Result<Option<Entry>, Error> {
        match version < loaded.head.value.version {
            true => self.entry(&loaded.key(), version + 1),
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
                round.as_ref(),
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
                (loaded.head.value, entry)
            }
        };
        Ok(append_outcome(head.status, entry, 0, head.version))
    }

    /// Reads the newest entry that is no late settlement of a charged call. After the end of a
    /// lease there is at most one such settlement for each charged call.
    fn newest_own_entry(&self, loaded: &LoadedThread) -> Result<Option<Entry>, Error> {
        let key = loaded.key();
        let newest = loaded.head.value.version;
        for version in (1..=newest).rev().take(CHARGED_MAX + 1) {
            let entry = self.entry(&key, version)?;
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

/// Returns the result of a call whose entry begins with `count` events of the caller. Users'
/// messages after them came from the inbox.
fn append_outcome(
    status: ThreadStatus,
    entry: Option<Entry>,
    count: usize,
    before: u64,
) -> AppendOutcome {
    let version = entry.as_ref().map_or(before, |entry| entry.version);
    let mut mail = Vec::new();
    if let Some(entry) = entry {
        for event in entry.events.into_iter().skip(count) {
            match event {
                Event::Message(message) if message.role == MessageRole::User => mail.push(message),
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

fn missing_entry(loaded: &LoadedThread, version: u64) -> Error {
    CoreError::Corrupt(format!(
        "version {version} of {} is missing",
        loaded.thread.value.id
    ))
    .into()
}
