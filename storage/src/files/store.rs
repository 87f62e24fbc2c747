//! The store: reads from a view that is up to date, and publishes commits.

use super::commit_text::{CommitHeader, read_commit, write_body, write_commit};
use super::compaction::compact_if_due;
use super::file_name::{commit_name, segment_name};
use super::opening::{
    FilePublisher, PublishFault, check_base, learn_segments, open_view, read_file,
    read_newer_commits, read_segment_index,
};
use super::protocol::{PlantedFault, SegmentLayout, StoreProtocol};
use super::segment::SegmentIndex;
use super::view::{CommitIdentity, StoreView};
use super::{EntryPlace, StoreFault};
use crate::directory::FileDirectory;
use crate::growth::{StoreContents, meets_conditions, plan_growth};
use crate::locks::SleepingMutex;
use crate::whole_store::{ListedStore, LogName, logs_after};
use crate::{
    CommitOp, CommitOutcome, LogEntry, PAGE_BYTES_MAX, RecordKey, RecordPage, StorageBackend,
    StorageError, StorageQuota, StoredRecord, check_commit, check_log,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most indexes of segments that are kept in memory.
const INDEXES_MAX: usize = 32;
/// Most times that a commit is decided again because others were faster.
const ROUNDS_MAX: usize = 1_000;

/// Options of an opening of a store.
#[derive(Debug, Clone)]
pub struct FilesOptions {
    /// A name that no other opening of any store has: letters and digits, at most 64, made at
    /// random.
    pub writer: String,
    /// True to make every commit durable before it is acknowledged.
    pub durable: bool,
    /// A bound on the contents.
    pub quota: Option<StorageQuota>,
}

/// Figures of a store, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilesUsage {
    /// The number of the newest commit.
    pub commits: u64,
    /// Number of segments.
    pub segments: u64,
    /// Number of commits that are in no segment.
    pub loose: u64,
    /// Places of log entries that are kept in memory: runs in segments, and loose entries.
    pub places: u64,
    /// Bytes that count for the quota.
    pub used_bytes: u64,
}

/// A store of files; see the documentation of the module.
pub struct FilesStore {
    directory: Box<dyn FileDirectory>,
    options: FilesOptions,
    protocol: StoreProtocol,
    state: SleepingMutex<StoreState>,
}

impl std::fmt::Debug for FilesStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FilesStore")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct StoreState {
    view: StoreView,
    /// Number of files that this opening has written: part of their writers' names.
    written: u64,
    /// Indexes of segments that were read lately, by first commit.
    indexes: SleepingMutex<BTreeMap<u64, Arc<SegmentIndex>>>,
    /// The last failure of packing, which no commit waits for.
    packing_failure: Option<String>,
}

impl FilesStore {
    /// Opens the store of a directory; makes one where it is empty.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`] if a file is torn, edited or missing; `other` with the code
    /// `newer-format`, `read-only` or `no-hard-links`; [`StorageError::Unavailable`].
    pub fn open(
        directory: Box<dyn FileDirectory>,
        options: FilesOptions,
    ) -> Result<Self, StorageError> {
        Self::open_with_layout(directory, options, SegmentLayout::STANDARD, None)
    }

    /// Opens a store that packs sooner, and breaks a rule: for tests of the protocol.
    #[doc(hidden)]
    pub fn open_with_layout(
        directory: Box<dyn FileDirectory>,
        options: FilesOptions,
        layout: SegmentLayout,
        fault: Option<PlantedFault>,
    ) -> Result<Self, StorageError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric();
        if !(1..=64).contains(&options.writer.len()) || !options.writer.bytes().all(plain) {
            let message = "the name of a writer has 1 to 64 letters and digits";
            return Err(crate::check::other_error("invalid-writer", message));
        }
        let writer = format!("{}-0", options.writer);
        let protocol = StoreProtocol {
            durable: options.durable,
            layout,
            fault,
        };
        let publisher = FilePublisher {
            writer: &writer,
            protocol: &protocol,
        };
        let view = open_view(&*directory, publisher)?;
        Ok(Self {
            directory,
            options,
            protocol,
            state: SleepingMutex::new(StoreState {
                view,
                written: 0,
                indexes: SleepingMutex::default(),
                packing_failure: None,
            }),
        })
    }

    /// Figures of the store as it was seen last.
    pub fn usage(&self) -> FilesUsage {
        let state = self.state.lock();
        let view = &state.view;
        let logs = view.logs.values().flat_map(BTreeMap::values);
        let places = logs.map(|log| (log.runs.len() + log.loose.len()) as u64);
        FilesUsage {
            commits: view.tip.number,
            segments: view.segments.len() as u64,
            loose: view.loose.len() as u64,
            places: places.sum(),
            used_bytes: view.used_bytes,
        }
    }

    /// The failure of the last packing, if it failed. Commits do not wait for it; the next one
    /// tries again.
    pub fn packing_failure(&self) -> Option<String> {
        self.state.lock().packing_failure.clone()
    }

    /// Brings the view up to date, or opens the store anew.
    fn refresh(&self, state: &mut StoreState) -> Result<(), StoreFault> {
        match read_newer_commits(&*self.directory, &mut state.view, &self.protocol) {
            Ok(()) => Ok(()),
            Err(StoreFault::Stale) => self.reopen(state),
            Err(fault) => Err(fault),
        }
    }

    fn reopen(&self, state: &mut StoreState) -> Result<(), StoreFault> {
        let writer = self.next_writer(state);
        state.view = open_view(&*self.directory, self.publisher(&writer))?;
        state.indexes.lock().clear();
        Ok(())
    }

    fn next_writer(&self, state: &mut StoreState) -> String {
        state.written += 1;
        format!("{}-{}", self.options.writer, state.written)
    }

    fn publisher<'a>(&'a self, writer: &'a str) -> FilePublisher<'a> {
        FilePublisher {
            writer,
            protocol: &self.protocol,
        }
    }

    /// Decides a commit from the newest contents and publishes it. `None`: another commit was
    /// faster, decide again.
    fn try_commit(
        &self,
        state: &mut StoreState,
        ops: &[CommitOp],
        (closing, again): (bool, bool),
    ) -> Result<Option<CommitOutcome>, StoreFault> {
        let contents = self.contents(state);
        let unchecked = again && self.protocol.has(PlantedFault::RepeatsWithoutConditions);
        if !unchecked && !meets_conditions(&contents, ops) {
            return Ok(Some(CommitOutcome::Conflict));
        }
        let growth = plan_growth(&contents, ops).map_err(StoreFault::Told)?;
        let used = state.view.used_bytes;
        let used = match self.options.quota {
            Some(quota) => quota
                .admit(used, growth, closing)
                .map_err(StoreFault::Told)?,
            None => used.saturating_add_signed(growth),
        };
        let body = write_body(ops, |key| {
            let found = state.view.records.find(&key.collection, &key.name);
            found.map_or(1, |record| record.version + 1)
        });
        if body.is_empty() {
            // Conditions alone: they hold, and there is nothing to write.
            return Ok(Some(CommitOutcome::Committed));
        }
        let writer = self.next_writer(state);
        let before = state.view.tip.clone();
        let number = before.number + 1;
        let (text, header) = write_commit((number, &writer), &before.hash, used, &body);
        let name = commit_name(number);
        let published = self
            .publisher(&writer)
            .publish(&*self.directory, &name, number, &text);
        match published {
            Ok(false) => return Ok(None),
            Ok(true) => {}
            Err(PublishFault::Before(fault)) => return Err(fault),
            Err(PublishFault::During(fault)) => {
                return self.find_own_commit(state, &(&header).into(), fault);
            }
            Err(PublishFault::After(fault)) => return Err(unknown_outcome(&fault)),
        }
        let unchecked = self.protocol.has(PlantedFault::CommitWithoutBaseCheck);
        match check_base(&*self.directory, &before, &self.protocol) {
            Ok(()) => {}
            Err(_) if unchecked => {}
            Err(StoreFault::Stale) => {
                let lost = StoreFault::Stale;
                return self.find_own_commit(state, &(&header).into(), lost);
            }
            Err(fault) => return Err(unknown_outcome(&fault)),
        }
        state.view.apply(&header, &body, &name)?;
        Ok(Some(CommitOutcome::Committed))
    }

    /// Looks in the store as it is now for a commit of which its writer does not know whether it is
    /// one. Where another has its number it is none, and what was linked is nobody's.
    fn find_own_commit(
        &self,
        state: &mut StoreState,
        own: &CommitIdentity,
        fault: StoreFault,
    ) -> Result<Option<CommitOutcome>, StoreFault> {
        if self.protocol.has(PlantedFault::TakesGoneBaseForCommitted) {
            return Ok(Some(CommitOutcome::Committed));
        }
        let reopened = self.reopen(state);
        if self.protocol.has(PlantedFault::TakesGoneBaseForLost) {
            return Ok(None);
        }
        reopened.map_err(|fault| unknown_outcome(&fault))?;
        if state.view.tip.number < own.number {
            // The link was not made.
            return match fault {
                StoreFault::Stale => Ok(None),
                fault => Err(fault),
            };
        }
        let found = self.read_commit_file(state, own.number);
        let content = found.map_err(|fault| unknown_outcome(&fault))?;
        let header = CommitHeader::parse(&content, "a commit")?;
        match CommitIdentity::from(&header) == *own {
            true => Ok(Some(CommitOutcome::Committed)),
            false => Ok(None),
        }
    }

    /// The text of a commit that the view has, from its file or its segment.
    fn read_commit_file(&self, state: &mut StoreState, number: u64) -> Result<Vec<u8>, StoreFault> {
        if let Some(commit) = state.view.loose.get(&number) {
            let name = commit_name(number);
            match read_file(&*self.directory, &name) {
                Ok(content) => {
                    let (header, _) = read_commit(&content, &name)?;
                    if header.writer == commit.writer {
                        return Ok(content);
                    }
                }
                Err(fault) if fault.is_missing() => {}
                Err(fault) => return Err(fault),
            }
            // It was packed since.
            learn_segments(&*self.directory, &mut state.view)?;
        }
        let range = state.view.segments.iter();
        let range = range
            .copied()
            .find(|(first, last)| (*first..=*last).contains(&number));
        let range = range.ok_or(StoreFault::Stale)?;
        let index = self.segment_index(state, range)?;
        let name = segment_name(range);
        let torn = || StoreFault::corrupt(format!("{name} does not hold commit {number}"));
        let (offset, bytes) = index.commit_place(number).ok_or_else(torn)?;
        let io = |error| StoreFault::io(&name, error);
        let mut file = self.directory.open(&name).map_err(io)?;
        let content = file
            .read_at(offset, usize::try_from(bytes).unwrap_or(0))
            .map_err(io)?;
        let (header, _) = read_commit(&content, &name)?;
        match header.number == number {
            true => Ok(content),
            false => Err(torn()),
        }
    }

    fn segment_index(
        &self,
        state: &StoreState,
        range: (u64, u64),
    ) -> Result<Arc<SegmentIndex>, StoreFault> {
        if let Some(index) = state.indexes.lock().get(&range.0) {
            return Ok(Arc::clone(index));
        }
        let index = Arc::new(read_segment_index(&*self.directory, range)?);
        let mut indexes = state.indexes.lock();
        if indexes.len() >= INDEXES_MAX {
            indexes.pop_first();
        }
        indexes.insert(range.0, Arc::clone(&index));
        Ok(index)
    }

    fn contents<'a>(&'a self, state: &'a StoreState) -> ViewContents<'a> {
        ViewContents { store: self, state }
    }

    /// The place of an entry that the view has.
    fn entry_place(
        &self,
        state: &StoreState,
        (log, partition): (&str, &str),
        position: u64,
    ) -> Result<EntryPlace, StoreFault> {
        let places = state.view.find_log(log, partition);
        if let Some(place) = places.and_then(|log| log.loose_place(position)) {
            return Ok(place);
        }
        let run = places.and_then(|log| log.run_of(position));
        let range = run.and_then(|run| {
            let mut segments = state.view.segments.iter().copied();
            segments.find(|(first, _)| *first == run.segment)
        });
        let place = match range {
            Some(range) => {
                let index = self.segment_index(state, range)?;
                index.entry_place(log, partition, position)
            }
            None => None,
        };
        place.ok_or_else(|| {
            StoreFault::corrupt(format!(
                "entry {position} of log {log}/{partition} is nowhere"
            ))
        })
    }

    /// Reads entries one after the other, as many as a page takes.
    fn read_entries(
        &self,
        state: &mut StoreState,
        of: (&str, &str),
        positions: &mut dyn Iterator<Item = u64>,
    ) -> Result<Vec<LogEntry>, StoreFault> {
        let (mut entries, mut bytes) = (Vec::new(), 0);
        let mut commit: Option<(u64, Vec<u8>)> = None;
        for position in positions {
            let place = self.entry_place(state, of, position)?;
            bytes += place.bytes as usize;
            if bytes > PAGE_BYTES_MAX && !entries.is_empty() {
                break;
            }
            let content = match commit.take() {
                Some((number, content)) if number == place.commit => content,
                _ => self.read_commit_file(state, place.commit)?,
            };
            let (start, end) = (place.offset as usize, (place.offset + place.bytes) as usize);
            let value = content
                .get(start..end)
                .and_then(|it| std::str::from_utf8(it).ok());
            let value = value.ok_or_else(|| {
                let (log, partition) = of;
                let number = place.commit;
                StoreFault::corrupt(format!(
                    "commit {number} does not hold entry {position} of log {log}/{partition}"
                ))
            })?;
            let value = value.to_owned();
            entries.push(LogEntry { position, value });
            commit = Some((place.commit, content));
        }
        Ok(entries)
    }

    /// Reads from a view that is up to date; begins again where files were packed meanwhile.
    fn read<T>(
        &self,
        read: impl Fn(&Self, &mut StoreState) -> Result<T, StoreFault>,
    ) -> Result<T, StorageError> {
        let mut state = self.state.lock();
        for _ in 0..ROUNDS_MAX {
            self.refresh(&mut state)?;
            match read(self, &mut state) {
                Err(StoreFault::Stale) => self.reopen(&mut state)?,
                read => return Ok(read?),
            }
        }
        Err(StoreFault::Stale.into())
    }

    /// Packs what is due. A failure does not concern the commit after which it is tried.
    fn compact(&self, state: &mut StoreState) {
        let writer = self.next_writer(state);
        let packed = compact_if_due(&*self.directory, &mut state.view, self.publisher(&writer));
        match packed {
            Ok(true) => state.packing_failure = None,
            Ok(false) => {}
            Err(fault) => {
                if matches!(fault, StoreFault::Stale) || fault.is_missing() {
                    // Another process was faster. The next call opens the store anew.
                    return;
                }
                state.packing_failure = Some(StorageError::from(fault).to_string());
            }
        }
    }
}

impl StorageBackend for FilesStore {
    fn get(&self, keys: &[RecordKey]) -> Result<Vec<StoredRecord>, StorageError> {
        crate::check_get(keys)?;
        self.read(|_, state| state.view.records.get(keys).map_err(StoreFault::Told))
    }

    fn scan(
        &self,
        collection: &str,
        start: &str,
        end: &str,
        limit: u32,
        reverse: bool,
    ) -> Result<RecordPage, StorageError> {
        crate::check_scan(collection, start, end, limit)?;
        self.read(|_, state| {
            let records = &state.view.records;
            let page = records.scan(collection, (start, end), limit, reverse);
            page.map_err(StoreFault::Told)
        })
    }

    fn read_log(
        &self,
        log: &str,
        partition: &str,
        start: u64,
        limit: u32,
        reverse: bool,
    ) -> Result<Vec<LogEntry>, StorageError> {
        check_log(log, partition, limit)?;
        self.read(|store, state| {
            let Some(places) = state.view.find_log(log, partition) else {
                return Ok(Vec::new());
            };
            let (first, next, limit) = (places.first, places.next_position(), limit as usize);
            let above = match start {
                0 => next,
                start => next.min(start.saturating_add(1)),
            };
            match reverse {
                true => {
                    let mut positions = (first..above).rev().take(limit);
                    store.read_entries(state, (log, partition), &mut positions)
                }
                false => {
                    let mut positions = (first.max(start)..next).take(limit);
                    store.read_entries(state, (log, partition), &mut positions)
                }
            }
        })
    }

    fn commit(&self, ops: &[CommitOp], closing: bool) -> Result<CommitOutcome, StorageError> {
        check_commit(ops)?;
        let mut state = self.state.lock();
        for round in 0..ROUNDS_MAX {
            self.refresh(&mut state)?;
            if let Some(outcome) = self.try_commit(&mut state, ops, (closing, round > 0))? {
                if outcome == CommitOutcome::Committed {
                    self.compact(&mut state);
                }
                return Ok(outcome);
            }
        }
        Err(StorageError::Unavailable {
            message: "other writers were faster each time: try again".to_owned(),
        })
    }
}

impl ListedStore for FilesStore {
    fn list_collections(&self) -> Result<Vec<String>, StorageError> {
        self.read(|_, state| Ok(state.view.records.collection_names()))
    }

    fn list_logs(&self, after: Option<&LogName>) -> Result<Vec<LogName>, StorageError> {
        self.read(|_, state| Ok(logs_after(&state.view.logs, after)))
    }
}

/// The contents of a view, as a commit is decided by them.
struct ViewContents<'a> {
    store: &'a FilesStore,
    state: &'a StoreState,
}

impl StoreContents for ViewContents<'_> {
    fn record(&self, key: &RecordKey) -> Option<(u64, usize)> {
        let found = self.state.view.records.find(&key.collection, &key.name);
        found.map(|record| (record.version, record.value.len()))
    }

    fn log_bounds(&self, log: &str, partition: &str) -> Option<(u64, u64)> {
        let found = self.state.view.find_log(log, partition);
        found.map(|log| (log.first, log.next_position()))
    }

    fn entry_size(&self, log: &str, partition: &str, position: u64) -> Result<usize, StorageError> {
        let place = self
            .store
            .entry_place(self.state, (log, partition), position)?;
        Ok(place.bytes as usize)
    }
}

/// The error for a commit that was published, and of which nobody knows whether it stands.
fn unknown_outcome(fault: &StoreFault) -> StoreFault {
    let message = match fault {
        StoreFault::Io { place, source } => format!("{place}: {source}"),
        StoreFault::Told(error) => error.to_string(),
        StoreFault::Stale => "the files of the store are being packed".to_owned(),
    };
    StoreFault::Told(StorageError::OutcomeUnknown { message })
}
