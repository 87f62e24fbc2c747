//! Many stores in one process, for many tenants: each opens on first use and closes when idle.
//!
//! A closed store holds nothing: no file, no directory, no thread. One maintenance thread serves
//! all of them. When the maximal number is open, the least recently used one is closed for the
//! next. A store that opens again must be the same file as before: a missing or another file is an
//! error and never a new, empty store.
//!
//! A caller that comes while a store opens waits for that opening and shares its outcome, also a
//! failure: many callers of a store that cannot be opened fail after one opening, not after one
//! each.
//!
//! Two locks: the state of one store, locked while it closes and otherwise for a moment, and the
//! list of all. A thread that holds the list, or another store's state, never waits for a store's
//! state.

use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use threadkeep_storage::locks::{MutexGuard, SleepingCondvar, SleepingMutex};

use cap_std::fs::Dir;

use super::super::{
    CommitOp, CommitOutcome, LogEntry, RecordKey, RecordPage, StorageBackend, StorageError,
    StoredRecord,
};
use super::files::{FileIdentity, StoreFiles, unavailable_error};
use super::maintenance::{MaintenanceTask, MaintenanceThread};
use super::{SqliteOptions, SqliteStore};

/// Bounds on the number of open stores and their idle time. There is no default: name a preset,
/// then change what must differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorePoolOptions {
    /// Most stores that are open at once. Each takes about seven file descriptors, and two more for
    /// each read that runs beside another.
    pub open_max: usize,
    /// Time that an idle store stays open.
    pub idle_after: Duration,
}

impl StorePoolOptions {
    /// For a service with the 1,024 file descriptors that a process usually has.
    pub const fn service() -> Self {
        Self {
            open_max: 64,
            idle_after: Duration::from_secs(30),
        }
    }
}

/// The stores of a process. Clones share them.
#[derive(Debug, Clone)]
pub struct StorePool {
    shared: Arc<StorePoolShared>,
}

/// A store that opens on first use.
#[derive(Debug)]
pub struct LazyStore {
    slot: Arc<StoreSlot>,
}

#[derive(Debug)]
struct StorePoolShared {
    options: StorePoolOptions,
    keeper: Arc<MaintenanceThread>,
    all: SleepingMutex<StoreList>,
}

#[derive(Debug, Default)]
struct StoreList {
    /// Number of stores that are open, opening or closing.
    open: usize,
    slots: Vec<Weak<StoreSlot>>,
}

type DirOpener = Box<dyn Fn() -> io::Result<Dir> + Send + Sync>;

struct StoreSlot {
    shared: Arc<StorePoolShared>,
    directory: DirOpener,
    name: String,
    options: SqliteOptions,
    state: SleepingMutex<SlotState>,
    /// Notified when an opening has ended.
    opened: SleepingCondvar,
}

#[derive(Debug)]
struct SlotState {
    store: Option<Arc<SqliteStore>>,
    users: usize,
    used: Instant,
    /// The identity of the file when it was last open.
    identity: Option<FileIdentity>,
    /// True while a caller opens the store.
    opening: bool,
    /// Number of openings that have ended.
    openings: u64,
    /// The error of the last opening.
    failure: Option<StorageError>,
}

/// An open store, which stays open as long as this value.
struct OpenStoreGuard<'a> {
    slot: &'a StoreSlot,
    store: Option<Arc<SqliteStore>>,
}

impl StorePool {
    /// An empty set of stores.
    pub fn new(options: StorePoolOptions) -> Self {
        let shared = Arc::new_cyclic(|shared: &Weak<StorePoolShared>| StorePoolShared {
            options,
            keeper: Arc::new(MaintenanceThread::new(Some(shared.clone()))),
            all: SleepingMutex::default(),
        });
        Self { shared }
    }

    /// The store `name` in the directory that `directory` opens. Nothing is opened until the first
    /// use: the errors of [`SqliteStore::open`] are returned by the calls, and by every one of them
    /// until the reason is gone. `directory` is called at each opening and must open the same
    /// directory each time, without following anything that a tenant can change.
    pub fn store(
        &self,
        directory: impl Fn() -> io::Result<Dir> + Send + Sync + 'static,
        name: &str,
        options: SqliteOptions,
    ) -> LazyStore {
        let state = SlotState {
            store: None,
            users: 0,
            used: Instant::now(),
            identity: None,
            opening: false,
            openings: 0,
            failure: None,
        };
        let slot = Arc::new(StoreSlot {
            shared: Arc::clone(&self.shared),
            directory: Box::new(directory),
            name: name.to_owned(),
            options,
            state: SleepingMutex::new(state),
            opened: SleepingCondvar::new(),
        });
        let mut all = self.shared.all.lock();
        // Dropped stores are removed when the list would have to grow.
        if all.slots.len() == all.slots.capacity() {
            all.slots.retain(|slot| slot.strong_count() > 0);
        }
        all.slots.push(Arc::downgrade(&slot));
        LazyStore { slot }
    }

    /// Number of stores that are open now.
    pub fn open_count(&self) -> usize {
        self.shared.all.lock().open
    }

    /// Closes every store that is idle at this moment.
    pub fn close_idle(&self) {
        self.shared.close_unused_for(Duration::ZERO);
    }
}

impl StorePoolShared {
    fn slots(&self) -> Vec<Arc<StoreSlot>> {
        self.all
            .lock()
            .slots
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
    }

    /// Closes the stores that were idle for at least `idle`; returns the time until the next may
    /// be.
    fn close_unused_for(&self, idle: Duration) -> Option<Duration> {
        let mut next: Option<Duration> = None;
        for slot in self.slots() {
            // A locked state means that the store is in use.
            let Some(mut state) = slot.state.try_lock() else {
                next = Some(idle);
                continue;
            };
            if state.store.is_none() {
                continue;
            }
            let unused = state.used.elapsed();
            if state.users == 0 && unused >= idle {
                slot.close_store(&mut state);
            } else {
                let wait = idle.saturating_sub(unused).max(Duration::from_millis(1));
                next = Some(next.map_or(wait, |before| before.min(wait)));
            }
        }
        next
    }

    /// Reserves room for one more open store, and closes another for it if need be.
    fn reserve_room(&self) -> Result<(), StorageError> {
        loop {
            {
                let mut all = self.all.lock();
                if all.open < self.options.open_max {
                    all.open += 1;
                    return Ok(());
                }
            }
            let unused = |slot: &Arc<StoreSlot>| {
                let state = slot.state.try_lock()?;
                (state.users == 0 && state.store.is_some()).then_some(state.used)
            };
            let slots = self.slots();
            let oldest = slots
                .iter()
                .filter_map(|slot| Some((unused(slot)?, slot)))
                .min_by_key(|(used, _)| *used);
            let Some((_, slot)) = oldest else {
                let message = format!(
                    "{} stores are open and all are in use",
                    self.options.open_max
                );
                return Err(StorageError::Unavailable { message });
            };
            if let Some(mut state) = slot.state.try_lock()
                && state.users == 0
            {
                slot.close_store(&mut state);
            }
        }
    }

    fn release_room(&self) {
        self.all.lock().open -= 1;
    }
}

impl MaintenanceTask for StorePoolShared {
    fn run_task(&self) -> Option<Duration> {
        self.close_unused_for(self.options.idle_after)
    }
}

impl StoreSlot {
    /// Opens the store if it is closed, and marks it as used.
    fn open_and_use(&self) -> Result<OpenStoreGuard<'_>, StorageError> {
        let mut state = self.state.lock();
        let before = state.openings;
        loop {
            if let Some(store) = &state.store {
                let store = Some(Arc::clone(store));
                state.users += 1;
                return Ok(OpenStoreGuard { slot: self, store });
            }
            if state.openings > before
                && let Some(failure) = &state.failure
            {
                return Err(failure.clone());
            }
            if !state.opening {
                return self.open_store(state);
            }
            self.opened.wait_while(&mut state, |state| state.opening);
        }
    }

    /// Opens the store, while other callers wait.
    fn open_store(
        &self,
        mut state: MutexGuard<'_, SlotState>,
    ) -> Result<OpenStoreGuard<'_>, StorageError> {
        state.opening = true;
        let was = state.identity;
        drop(state);
        let opening = PendingOpening { slot: Some(self) };
        let opened = self.open_with_room(was);
        opening.disarm();
        self.finish_opening(opened)
    }

    /// Publishes the outcome of an opening to the waiting callers; the caller that opened the store
    /// is its first user.
    fn finish_opening(
        &self,
        opened: Result<(SqliteStore, FileIdentity), StorageError>,
    ) -> Result<OpenStoreGuard<'_>, StorageError> {
        let mut state = self.state.lock();
        state.opening = false;
        state.openings += 1;
        state.failure = opened.as_ref().err().cloned();
        self.opened.notify_all();
        let (store, identity) = opened?;
        let store = Arc::new(store);
        state.store = Some(Arc::clone(&store));
        state.identity = Some(identity);
        state.used = Instant::now();
        state.users += 1;
        drop(state);
        self.shared
            .keeper
            .schedule_task(self.shared.options.idle_after);
        let store = Some(store);
        Ok(OpenStoreGuard { slot: self, store })
    }

    fn open_with_room(
        &self,
        was: Option<FileIdentity>,
    ) -> Result<(SqliteStore, FileIdentity), StorageError> {
        self.shared.reserve_room()?;
        // Given back also when `directory` panics.
        let room = ReservedRoom {
            shared: Some(&self.shared),
        };
        let opened = self.open_at(was)?;
        room.disarm();
        Ok(opened)
    }

    fn open_at(
        &self,
        was: Option<FileIdentity>,
    ) -> Result<(SqliteStore, FileIdentity), StorageError> {
        let dir = (self.directory)().map_err(|error| unavailable_error("the directory", &error))?;
        let place = Arc::new(StoreFiles::new(&dir, &self.name)?);
        let keeper = Arc::clone(&self.shared.keeper);
        let store = SqliteStore::open_checked(&place, &self.options, keeper, was)?;
        let identity = place
            .file_identity()?
            .ok_or_else(|| place.replaced_error())?;
        Ok((store, identity))
    }

    fn close_store(&self, state: &mut SlotState) {
        if state.store.take().is_some() {
            self.shared.release_room();
        }
    }
}

impl Drop for StoreSlot {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        if state.store.take().is_some() {
            self.shared.release_room();
        }
    }
}

/// Room for one open store, given back unless it is kept.
struct ReservedRoom<'a> {
    shared: Option<&'a StorePoolShared>,
}

impl ReservedRoom<'_> {
    fn disarm(mut self) {
        self.shared = None;
    }
}

impl Drop for ReservedRoom<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared {
            shared.release_room();
        }
    }
}

/// An opening under way: if it panics, the waiting callers get an error.
struct PendingOpening<'a> {
    slot: Option<&'a StoreSlot>,
}

impl PendingOpening<'_> {
    fn disarm(mut self) {
        self.slot = None;
    }
}

impl Drop for PendingOpening<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            let panicked = io::Error::other("opening it panicked");
            drop(slot.finish_opening(Err(unavailable_error("the store", &panicked))));
        }
    }
}

impl Drop for OpenStoreGuard<'_> {
    fn drop(&mut self) {
        // Before the store counts as idle: a caller that closes it then drops the last reference.
        self.store = None;
        let mut state = self.slot.state.lock();
        state.users -= 1;
        state.used = Instant::now();
    }
}

impl LazyStore {
    /// Forgets which file the store was: the file at the next use is the store from then on, and is
    /// made if there is none. For an operator who has deliberately put a backup in its place;
    /// without this, such a store returns `replaced` for as long as this value lives. A call under
    /// way ends on the file on which it began.
    pub fn forget_identity(&self) {
        let slot = &self.slot;
        let mut state = slot.state.lock();
        slot.opened.wait_while(&mut state, |state| state.opening);
        slot.close_store(&mut state);
        state.identity = None;
    }

    fn with_store<T>(
        &self,
        question: impl FnOnce(&SqliteStore) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let using = self.slot.open_and_use()?;
        match &using.store {
            Some(store) => question(store),
            None => Err(unavailable_error(
                "the store",
                &io::ErrorKind::NotConnected.into(),
            )),
        }
    }
}

impl StorageBackend for LazyStore {
    fn get(&self, keys: &[RecordKey]) -> Result<Vec<StoredRecord>, StorageError> {
        self.with_store(|store| store.get(keys))
    }

    fn scan(
        &self,
        collection: &str,
        start: &str,
        end: &str,
        limit: u32,
        reverse: bool,
    ) -> Result<RecordPage, StorageError> {
        self.with_store(|store| store.scan(collection, start, end, limit, reverse))
    }

    fn visit_names(
        &self,
        collection: &str,
        visit: &mut dyn FnMut(&str),
    ) -> Result<(), StorageError> {
        self.with_store(|store| store.visit_names(collection, visit))
    }

    fn visit_records(
        &self,
        collection: &str,
        visit: &mut dyn FnMut(&str, Option<&str>),
    ) -> Result<(), StorageError> {
        self.with_store(|store| store.visit_records(collection, visit))
    }

    fn read_log(
        &self,
        log: &str,
        partition: &str,
        start: u64,
        limit: u32,
        reverse: bool,
    ) -> Result<Vec<LogEntry>, StorageError> {
        self.with_store(|store| store.read_log(log, partition, start, limit, reverse))
    }

    fn commit(&self, ops: &[CommitOp], closing: bool) -> Result<CommitOutcome, StorageError> {
        self.with_store(|store| store.commit(ops, closing))
    }
}

impl std::fmt::Debug for StoreSlot {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = formatter.debug_struct("Slot");
        shown.field("name", &self.name).field("state", &self.state);
        shown.finish_non_exhaustive()
    }
}
