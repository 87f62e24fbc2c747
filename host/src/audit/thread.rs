//! The audit of one thread: its records at one moment, compared with its history up to then.

use super::history::HistoryReplay;
use super::record_reader::{
    CollectionNames, RecordSnapshot, escape, index_key, key_of, millis, number, sha256_hex, text,
    tree_root,
};
use super::wait::is_indexed_interruption;
use super::{StoreAudit, StoreInvariant, TRIES_MAX, UnconfirmedFindings, printable_text};
use crate::storage::{RecordKey, StorageError};
use serde_json::Value;

/// Most messages of an inbox that are checked: more than may wait.
const MESSAGES_MAX: u64 = 64;
/// The newest format of a record that this program writes.
const FORMAT: u64 = 1;
/// Threads whose heads are read together.
const HEADS_AT_ONCE: usize = 100;

/// The records of a thread at one moment.
pub(super) struct ThreadRecords {
    pub(super) key: String,
    pub(super) thread: Value,
    pub(super) head: Value,
    pub(super) root: String,
    pub(super) records: RecordSnapshot,
}

impl ThreadRecords {
    pub(super) fn status(&self) -> &str {
        text(&self.head["status"])
    }

    /// Returns the index entries that must exist.
    fn index_names(&self) -> Vec<String> {
        let (moved, made) = (
            number(&self.head["recency"]),
            millis(&self.thread["created"]),
        );
        // A link of a chain is found by the entry of its root.
        let is_link = !self.thread["previous"].is_null();
        let parent = key_of(&self.thread["parent"]);
        let parent = if is_link { "" } else { &parent };
        let forked = key_of(&self.thread["fork"]["chain"]);
        let mut keys = vec![index_key("recency", "", moved, &self.key)];
        for (name, value, at) in [
            ("status", self.status(), moved),
            ("chain", &self.root, made),
            ("directive", text(&self.thread["directive"]), made),
            ("agent", text(&self.thread["agent"]), made),
            ("task", text(&self.thread["task"]), made),
            ("parent", parent, made),
            ("fork", &forked, made),
        ] {
            if !value.is_empty() {
                keys.push(index_key(name, value, at, &self.key));
            }
        }
        let chain = self.records.json("chain", &self.root);
        // Chains of earlier builds have no last spawn number, and their threads no such entries.
        if !chain["spawned"].is_null() && is_indexed_interruption(&self.head, &chain) {
            let tree = tree_root(&self.thread, &chain);
            keys.push(index_key("interrupted", &tree, moved, &self.key));
        }
        keys
    }

    fn due_name(&self) -> Option<String> {
        let due = self.head["due"].as_u64()?;
        Some(format!("{due:016x}\u{1}{}", escape(&self.key)))
    }

    fn inbox_names(&self) -> Vec<String> {
        let (from, to) = (
            number(&self.head["mail_from"]),
            number(&self.head["mail_to"]),
        );
        let to = to.min(from.saturating_add(MESSAGES_MAX));
        (from..to)
            .map(|n| format!("{}\u{1}{n:016x}", escape(&self.root)))
            .collect()
    }

    fn pin_name(&self) -> Option<String> {
        let pin = self.thread["pin"].as_str()?;
        Some(format!("{}\u{1}{pin}", escape(&self.root)))
    }

    /// Returns the keys of everything that the thread and its head name.
    fn record_keys(&self) -> Vec<RecordKey> {
        let own = [
            RecordKey::new("thread", &self.key),
            RecordKey::new("head", &self.key),
        ];
        let chain = (!self.root.is_empty()).then(|| RecordKey::new("chain", &self.root));
        let indexes = self
            .index_names()
            .into_iter()
            .map(|name| RecordKey::new("index", name));
        let due = self.due_name().map(|name| RecordKey::new("due", name));
        let inbox = self
            .inbox_names()
            .into_iter()
            .map(|name| RecordKey::new("inbox", name));
        let pin = self.pin_name().map(|name| RecordKey::new("pin", name));
        let all = own.into_iter().chain(chain).chain(indexes);
        let state = (!self.head["state"].is_null()).then(|| RecordKey::new("state", &self.key));
        all.chain(due)
            .chain(inbox)
            .chain(pin)
            .chain(state)
            .collect()
    }
}

impl StoreAudit<'_> {
    /// Audits one thread; repeats that while others change it.
    pub(super) fn audit_thread(&mut self, key: &str) -> Result<(), StorageError> {
        let mut told = HistoryReplay::new(key);
        for _ in 0..TRIES_MAX {
            let seen = match self.read_thread(key) {
                Ok(Some(seen)) => seen,
                Ok(None) => continue,
                Err(StorageError::Corrupt { message }) => {
                    return self.report_unreadable(key, &message);
                }
                Err(error) => return Err(error),
            };
            self.begin_replay(&seen.thread, &mut told)?;
            self.carry_run(&seen.thread, &mut told)?;
            let version = number(&seen.head["version"]);
            match self.replay_history(key, &mut told, version) {
                Ok(()) => {}
                Err(StorageError::Corrupt { message }) => {
                    return self.report_unreadable(key, &message);
                }
                Err(error) => return Err(error),
            }
            let suspicion = self.compare_thread(&seen, &told)?;
            if suspicion.is_empty() && told.entry_findings.is_empty() {
                return Ok(());
            }
            if seen.records.is_unchanged(self.storage)? {
                if number(&seen.head["counters"]["spend"]) != told.spend {
                    self.note_spent(key, told.spend);
                }
                told.entry_findings.report_to(&mut self.report);
                suspicion.report_to(&mut self.report);
                return Ok(());
            }
        }
        self.report.unsettled += 1;
        Ok(())
    }

    /// Begins the counting of a run where the link before has left it. That link has ended, so its
    /// run does not change any more.
    fn carry_run(&self, thread: &Value, told: &mut HistoryReplay) -> Result<(), StorageError> {
        let before = key_of(&thread["previous"]);
        if !before.is_empty() && !told.has_entries() {
            let head = [RecordKey::new("head", &before)];
            let read = RecordSnapshot::read_in_parts(self.storage, &head);
            match read {
                Ok(read) => told.carry_run(&read.json("head", &before)),
                // It is reported of the link before.
                Err(StorageError::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Remembers the spending by the history, so that accounts are not compared with a wrong
    /// counter.
    fn note_spent(&mut self, key: &str, spend: u64) {
        if self.spent.len() < super::FINDINGS_MAX {
            self.spent.insert(key.to_owned(), spend);
        }
    }

    fn report_unreadable(&mut self, key: &str, message: &str) -> Result<(), StorageError> {
        let mut suspicion = UnconfirmedFindings::for_thread(key);
        let expected = "records and entries that can be read";
        suspicion.add(StoreInvariant::Histories, expected, printable_text(message));
        suspicion.report_to(&mut self.report);
        Ok(())
    }

    /// Reads the records of a thread and all that they name, at one moment. `None` if they changed
    /// meanwhile.
    fn read_thread(&self, key: &str) -> Result<Option<ThreadRecords>, StorageError> {
        let own = [RecordKey::new("thread", key), RecordKey::new("head", key)];
        let first = RecordSnapshot::read_at_one_moment(self.storage, &own)?.unwrap_or_default();
        let mut seen = to_thread_records(key, first);
        for _ in 0..TRIES_MAX {
            let Some(records) =
                RecordSnapshot::read_at_one_moment(self.storage, &seen.record_keys())?
            else {
                return Ok(None);
            };
            let again = to_thread_records(key, records);
            if again.record_keys() == seen.record_keys() {
                return Ok(Some(again));
            }
            seen = again;
        }
        Ok(None)
    }

    fn compare_thread(
        &self,
        seen: &ThreadRecords,
        told: &HistoryReplay,
    ) -> Result<UnconfirmedFindings, StorageError> {
        let mut suspicion = UnconfirmedFindings::for_thread(&seen.key);
        let records = &seen.records;
        for collection in ["thread", "head"] {
            let record = records.json(collection, &seen.key);
            let found = match records.has(collection, &seen.key) {
                true => "a text that is no JSON object",
                false => "none",
            };
            let expected = format!("a record {collection}");
            let wrong = !record.is_object();
            suspicion.add_if(StoreInvariant::Histories, wrong, &expected, found);
        }
        if !seen.head.is_object() {
            return Ok(suspicion);
        }
        self.check_history_end(seen, told, &mut suspicion)?;
        self.check_base(seen, &mut suspicion)?;
        super::fork::check_origin(seen, &mut suspicion);
        super::head::compare_head(seen, told, &mut suspicion);
        told.state.compare(seen, &mut suspicion);
        if seen.thread.is_object() {
            check_named_records(seen, &mut suspicion);
            check_closing_entry(seen, told, &mut suspicion);
        }
        Ok(suspicion)
    }

    /// Checks that the history ends where the head says.
    fn check_history_end(
        &self,
        seen: &ThreadRecords,
        told: &HistoryReplay,
        suspicion: &mut UnconfirmedFindings,
    ) -> Result<(), StorageError> {
        let version = number(&seen.head["version"]);
        let next = version.saturating_sub(told.base()).saturating_add(1);
        let more = self
            .storage
            .read_log("history", &seen.key, next, 1, false)?;
        if let Some(line) = more.first() {
            let expected = format!("a history up to the version {version}, as its head says");
            let found = format!("an entry at the position {}", line.position);
            suspicion.add(StoreInvariant::Histories, expected, found);
        }
        let what = "a history up to the version";
        suspicion.expect_equal(StoreInvariant::Histories, what, version, told.version);
        compare_formats(seen, suspicion);
        let hash = text(&seen.head["hash"]);
        let wrong = told.version == version && hash != told.hash;
        let expected = "the hash of the newest entry in the head";
        suspicion.add_if(StoreInvariant::Histories, wrong, expected, "another hash");
        if told.has_entries() {
            let run = number(&seen.head["run"]);
            suspicion.expect_equal(StoreInvariant::Histories, "run", told.run, run);
        }
        Ok(())
    }

    /// Audits records of threads that have no head.
    pub(super) fn threads_without_heads(&mut self) -> Result<(), StorageError> {
        let mut names = CollectionNames::new(self.storage, "thread");
        let mut heads = Vec::with_capacity(HEADS_AT_ONCE);
        loop {
            let name = names.next_name(&mut self.report)?;
            let last = name.is_none();
            heads.extend(name.map(|name| RecordKey::new("head", name)));
            if heads.len() == HEADS_AT_ONCE || last {
                let found = match RecordSnapshot::read_in_parts(self.storage, &heads) {
                    Ok(found) => found,
                    // The record is reported already.
                    Err(StorageError::Corrupt { .. }) => RecordSnapshot::default(),
                    Err(error) => return Err(error),
                };
                for head in std::mem::take(&mut heads) {
                    if found.is_missing(&head) {
                        self.audit_thread(&head.name)?;
                    }
                }
            }
            if last {
                return Ok(());
            }
        }
    }
}

fn to_thread_records(key: &str, records: RecordSnapshot) -> ThreadRecords {
    let thread = records.json("thread", key);
    ThreadRecords {
        key: key.to_owned(),
        root: key_of(&thread["chain"]),
        head: records.json("head", key),
        thread,
        records,
    }
}

/// Checks that the history of a thread that goes on in another one says so, and that of no other.
fn check_closing_entry(
    seen: &ThreadRecords,
    told: &HistoryReplay,
    suspicion: &mut UnconfirmedFindings,
) {
    let next = key_of(&seen.thread["next"]);
    if next != told.continued_to {
        let expected = format!("{:?} after it, as its history says", told.continued_to);
        let found = format!("{:?}", printable_text(&next));
        suspicion.add(StoreInvariant::Chains, printable_text(&expected), found);
    }
}

/// Checks that everything that the thread and its head name exists.
fn check_named_records(seen: &ThreadRecords, suspicion: &mut UnconfirmedFindings) {
    let records = &seen.records;
    let wrong = !records.has("chain", &seen.root);
    let expected = format!("a record of its chain {}", printable_text(&seen.root));
    suspicion.add_if(StoreInvariant::Chains, wrong, &expected, "none");
    let id = text(&seen.thread["id"]);
    let wrong = !id.eq_ignore_ascii_case(&seen.key);
    let found = format!("a record of {}", printable_text(id));
    suspicion.add_if(StoreInvariant::Histories, wrong, "its own record", &found);
    for name in seen.index_names() {
        if !records.has("index", &name) {
            let expected = format!("the index entry {}", printable_text(&name));
            suspicion.add(StoreInvariant::Indexes, expected, "none");
        }
    }
    if let Some(name) = seen.due_name().filter(|name| !records.has("due", name)) {
        let expected = format!("the due entry {}", printable_text(&name));
        suspicion.add(StoreInvariant::Indexes, expected, "none");
    }
    for name in seen.inbox_names() {
        if !records.has("inbox", &name) {
            let expected = format!("the message {} in its inbox", printable_text(&name));
            suspicion.add(StoreInvariant::Indexes, expected, "none");
        }
    }
    if let Some(name) = seen.pin_name() {
        let pin = records.text("pin", &name);
        let wrong = pin.is_none_or(|pin| !name.ends_with(&sha256_hex(pin)));
        let found = if pin.is_some() {
            "another text"
        } else {
            "none"
        };
        let expected = "a pin whose hash the thread names";
        suspicion.add_if(StoreInvariant::Histories, wrong, expected, found);
    }
}

/// Names a record of a format that this program only reads.
fn compare_formats(seen: &ThreadRecords, suspicion: &mut UnconfirmedFindings) {
    let chain = seen.records.json("chain", &seen.root);
    let records = [
        ("thread", &seen.thread),
        ("head", &seen.head),
        ("chain", &chain),
    ];
    for (name, record) in records {
        let format = number(&record["format"]);
        if format > FORMAT {
            let expected = format!("a {name} of the format {FORMAT}, which this program writes");
            let found = format!("the format {format}: a newer program wrote it; update this one");
            suspicion.add(StoreInvariant::Histories, expected, found);
        }
    }
}
