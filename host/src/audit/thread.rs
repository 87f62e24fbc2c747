//! The audit of one thread: its records at one moment, compared with its history up to then.

use super::history::Told;
use super::read::{Names, Snapshot, digest, escape, index_key, key_of, millis, number, text};
use super::{Audit, Invariant, Suspicion, TRIES_MAX, shown};
use crate::storage::{Key, StorageError};
use serde_json::Value;

/// Most messages of an inbox that are checked: more than may wait.
const MAIL_MAX: u64 = 64;
/// Threads whose heads are read together.
const HEADS_AT_ONCE: usize = 100;

/// The records of a thread at one moment.
pub(super) struct Seen {
    pub(super) key: String,
    pub(super) thread: Value,
    pub(super) head: Value,
    pub(super) root: String,
    pub(super) records: Snapshot,
}

impl Seen {
    pub(super) fn status(&self) -> &str {
        text(&self.head["status"])
    }

    /// Returns the index entries that must exist.
    fn indexes(&self) -> Vec<String> {
        let (moved, made) = (
            number(&self.head["recency"]),
            millis(&self.thread["created"]),
        );
        let parent = key_of(&self.thread["parent"]);
        let mut keys = vec![index_key("recency", "", moved, &self.key)];
        for (name, value, at) in [
            ("status", self.status(), moved),
            ("chain", &self.root, made),
            ("directive", text(&self.thread["directive"]), made),
            ("agent", text(&self.thread["agent"]), made),
            ("task", text(&self.thread["task"]), made),
            ("parent", &parent, made),
        ] {
            if !value.is_empty() {
                keys.push(index_key(name, value, at, &self.key));
            }
        }
        keys
    }

    fn due(&self) -> Option<String> {
        let due = self.head["due"].as_u64()?;
        Some(format!("{due:016x}\u{1}{}", escape(&self.key)))
    }

    fn inbox(&self) -> Vec<String> {
        let (from, to) = (
            number(&self.head["mail_from"]),
            number(&self.head["mail_to"]),
        );
        let to = to.min(from.saturating_add(MAIL_MAX));
        (from..to)
            .map(|n| format!("{}\u{1}{n:016x}", escape(&self.root)))
            .collect()
    }

    fn pin(&self) -> Option<String> {
        let pin = self.thread["pin"].as_str()?;
        Some(format!("{}\u{1}{pin}", escape(&self.root)))
    }

    /// Returns the keys of everything that the thread and its head name.
    fn names(&self) -> Vec<Key> {
        let own = [Key::new("thread", &self.key), Key::new("head", &self.key)];
        let chain = (!self.root.is_empty()).then(|| Key::new("chain", &self.root));
        let indexes = self
            .indexes()
            .into_iter()
            .map(|name| Key::new("index", name));
        let due = self.due().map(|name| Key::new("due", name));
        let inbox = self.inbox().into_iter().map(|name| Key::new("inbox", name));
        let pin = self.pin().map(|name| Key::new("pin", name));
        let all = own.into_iter().chain(chain).chain(indexes);
        all.chain(due).chain(inbox).chain(pin).collect()
    }
}

impl Audit<'_> {
    /// Audits one thread; repeats that while others change it.
    pub(super) fn thread(&mut self, key: &str) -> Result<(), StorageError> {
        let mut told = Told::of(key);
        for _ in 0..TRIES_MAX {
            let seen = match self.see(key) {
                Ok(Some(seen)) => seen,
                Ok(None) => continue,
                Err(StorageError::Corrupt { message }) => return self.unreadable(key, &message),
                Err(error) => return Err(error),
            };
            let version = number(&seen.head["version"]);
            match self.follow(key, &mut told, version) {
                Ok(()) => {}
                Err(StorageError::Corrupt { message }) => return self.unreadable(key, &message),
                Err(error) => return Err(error),
            }
            let suspicion = self.compare(&seen, &told)?;
            if suspicion.is_empty() && told.wrong.is_empty() {
                return Ok(());
            }
            if seen.records.stands(self.storage)? {
                if number(&seen.head["counters"]["spend"]) != told.spend {
                    self.note_spent(key, told.spend);
                }
                told.wrong.report(&mut self.report);
                suspicion.report(&mut self.report);
                return Ok(());
            }
        }
        self.report.unsettled += 1;
        Ok(())
    }

    /// Remembers the spending by the history, so that accounts are not compared with a wrong
    /// counter.
    fn note_spent(&mut self, key: &str, spend: u64) {
        if self.spent.len() < super::FINDINGS_MAX {
            self.spent.insert(key.to_owned(), spend);
        }
    }

    fn unreadable(&mut self, key: &str, message: &str) -> Result<(), StorageError> {
        let mut suspicion = Suspicion::about(key);
        let expected = "records and entries that can be read";
        suspicion.of(Invariant::Histories, expected, shown(message));
        suspicion.report(&mut self.report);
        Ok(())
    }

    /// Reads the records of a thread and all that they name, at one moment. `None` if they changed
    /// meanwhile.
    fn see(&self, key: &str) -> Result<Option<Seen>, StorageError> {
        let own = [Key::new("thread", key), Key::new("head", key)];
        let first = Snapshot::take(self.storage, &own)?.unwrap_or_default();
        let mut seen = of_records(key, first);
        for _ in 0..TRIES_MAX {
            let Some(records) = Snapshot::take(self.storage, &seen.names())? else {
                return Ok(None);
            };
            let again = of_records(key, records);
            if again.names() == seen.names() {
                return Ok(Some(again));
            }
            seen = again;
        }
        Ok(None)
    }

    fn compare(&self, seen: &Seen, told: &Told) -> Result<Suspicion, StorageError> {
        let mut suspicion = Suspicion::about(&seen.key);
        let records = &seen.records;
        for collection in ["thread", "head"] {
            let record = records.json(collection, &seen.key);
            let found = match records.has(collection, &seen.key) {
                true => "a text that is no JSON object",
                false => "none",
            };
            let expected = format!("a record {collection}");
            let wrong = !record.is_object();
            suspicion.wrong(Invariant::Histories, wrong, &expected, found);
        }
        if !seen.head.is_object() {
            return Ok(suspicion);
        }
        self.whole(seen, told, &mut suspicion)?;
        super::head::compare(seen, told, &mut suspicion);
        if seen.thread.is_object() {
            named(seen, &mut suspicion);
        }
        Ok(suspicion)
    }

    /// Checks that the history ends where the head says.
    fn whole(
        &self,
        seen: &Seen,
        told: &Told,
        suspicion: &mut Suspicion,
    ) -> Result<(), StorageError> {
        let version = number(&seen.head["version"]);
        let next = version.saturating_add(1);
        let more = self
            .storage
            .read_log("history", &seen.key, next, 1, false)?;
        if let Some(line) = more.first() {
            let expected = format!("a history of {version} entries, as its head says");
            let found = format!("an entry {}", line.position);
            suspicion.of(Invariant::Histories, expected, found);
        }
        let what = "a history of so many entries:";
        suspicion.differ(Invariant::Histories, what, version, told.version);
        let hash = text(&seen.head["hash"]);
        let wrong = told.version == version && hash != told.hash;
        let expected = "the hash of the newest entry in the head";
        suspicion.wrong(Invariant::Histories, wrong, expected, "another hash");
        if told.version > 0 {
            let run = number(&seen.head["run"]);
            suspicion.differ(Invariant::Histories, "run", told.run, run);
        }
        Ok(())
    }

    /// Audits records of threads that have no head.
    pub(super) fn threads_without_heads(&mut self) -> Result<(), StorageError> {
        let mut names = Names::new(self.storage, "thread");
        let mut heads = Vec::with_capacity(HEADS_AT_ONCE);
        loop {
            let name = names.next(&mut self.report)?;
            let last = name.is_none();
            heads.extend(name.map(|name| Key::new("head", name)));
            if heads.len() == HEADS_AT_ONCE || last {
                let found = match Snapshot::in_parts(self.storage, &heads) {
                    Ok(found) => found,
                    // The record is reported already.
                    Err(StorageError::Corrupt { .. }) => Snapshot::default(),
                    Err(error) => return Err(error),
                };
                for head in std::mem::take(&mut heads) {
                    if found.is_missing(&head) {
                        self.thread(&head.name)?;
                    }
                }
            }
            if last {
                return Ok(());
            }
        }
    }
}

fn of_records(key: &str, records: Snapshot) -> Seen {
    let thread = records.json("thread", key);
    Seen {
        key: key.to_owned(),
        root: key_of(&thread["chain"]),
        head: records.json("head", key),
        thread,
        records,
    }
}

/// Checks that everything that the thread and its head name exists.
fn named(seen: &Seen, suspicion: &mut Suspicion) {
    let records = &seen.records;
    let wrong = !records.has("chain", &seen.root);
    let expected = format!("a record of its chain {}", shown(&seen.root));
    suspicion.wrong(Invariant::Chains, wrong, &expected, "none");
    let id = text(&seen.thread["id"]);
    let wrong = !id.eq_ignore_ascii_case(&seen.key);
    let found = format!("a record of {}", shown(id));
    suspicion.wrong(Invariant::Histories, wrong, "its own record", &found);
    for name in seen.indexes() {
        if !records.has("index", &name) {
            let expected = format!("the index entry {}", shown(&name));
            suspicion.of(Invariant::Indexes, expected, "none");
        }
    }
    if let Some(name) = seen.due().filter(|name| !records.has("due", name)) {
        let expected = format!("the due entry {}", shown(&name));
        suspicion.of(Invariant::Indexes, expected, "none");
    }
    for name in seen.inbox() {
        if !records.has("inbox", &name) {
            let expected = format!("the message {} in its inbox", shown(&name));
            suspicion.of(Invariant::Indexes, expected, "none");
        }
    }
    if let Some(name) = seen.pin() {
        let pin = records.text("pin", &name);
        let wrong = pin.is_none_or(|pin| !name.ends_with(&digest(pin)));
        let found = if pin.is_some() {
            "another text"
        } else {
            "none"
        };
        let expected = "a pin whose hash the thread names";
        suspicion.wrong(Invariant::Histories, wrong, expected, found);
    }
}
