//! The exports of the component over [`HostPorts`]: load, ask the core, commit.
//!
//! Each function here does bounded work. A conflict is decided again from fresh records, at most
//! [`store::DECISION_TRIES_MAX`] times. Then the caller gets `unavailable` with the code
//! [`store::CONTENTION`] and may repeat the same call. The error `busy` is not for this: it names a
//! lease of another holder, which a repeated call does not end.

pub mod blobs;
pub mod chain;
pub mod checkpoint;
pub mod child_chains;
pub mod children;
pub mod decisions;
pub mod due;
pub mod due_entries;
mod fork;
pub mod history;
mod inner_loop;
pub mod ledger;
pub mod live_window;
pub mod maintenance;
mod message_ids;
pub mod place;
pub mod progress;
pub mod registry;
mod remembered_records;
pub mod resolve;
mod resume;
pub mod runner;
mod state;
pub mod store;
pub mod sweep;
mod thread_queries;
pub mod transcript;
pub mod tree;

use crate::ports::{CONTRADICTION, HostPorts, LibraryError, RecordDamage, StorageError};
use std::cell::RefCell;
use std::rc::Rc;
use threadkeep_core::error::{Error as CoreError, ErrorKind as CoreErrorKind};
use threadkeep_core::settings::PinnedSettings;

/// Most pins that a warm instance keeps. A pin never changes, so a turn need not read and parse it
/// again.
const PINS_MAX: usize = 8;

/// An error of an export. It is one word large, as core's is, because nearly every function here
/// may fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(Box<ErrorKind>);

/// The kind of an error, with what a caller needs to know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorKind {
    /// A refusal of the core.
    Core(CoreErrorKind),
    /// The thread was deleted.
    Deleted(String),
    /// An error of storage.
    Storage(StorageError),
    /// An error of the library.
    Library(LibraryError),
    /// An import gave an answer that its contract does not allow.
    BadAnswer(String),
}

/// Code of a record that a newer version of the program wrote.
pub const NEWER_FORMAT: &str = "newer-format";
/// Random bytes in an id.
const ID_BYTES: u32 = 8;

impl Error {
    /// Returns the kind of the error.
    pub fn kind(&self) -> &ErrorKind {
        &self.0
    }

    /// Returns the kind of the error as a value.
    pub fn into_kind(self) -> ErrorKind {
        *self.0
    }

    /// Returns the problem, if stored data are damaged or missing.
    ///
    /// # Errors
    /// Any other error, unchanged.
    pub fn into_damage(self) -> Result<RecordDamage, Self> {
        let (code, message) = match self.into_kind() {
            ErrorKind::Core(CoreErrorKind::Corrupt(message)) => (CONTRADICTION.to_owned(), message),
            ErrorKind::Core(kind @ CoreErrorKind::BrokenChain { code, .. }) => {
                (code.to_owned(), kind.to_string())
            }
            ErrorKind::Storage(
                StorageError::Corrupt(code, message) | StorageError::TooLarge(code, message),
            ) => (code, message),
            // A record that cannot be written is as good as damaged to those beside it. Where an
            // index or another record names a thread, it should exist.
            ErrorKind::Core(kind @ CoreErrorKind::NewerFormat { .. }) => {
                (NEWER_FORMAT.to_owned(), kind.to_string())
            }
            ErrorKind::Core(kind @ CoreErrorKind::NotFound { .. }) => {
                ("not-found".to_owned(), kind.to_string())
            }
            other => return Err(other.into()),
        };
        Ok(RecordDamage { code, message })
    }

    /// Returns true if [`Error::into_damage`] says what is wrong with stored data.
    pub fn is_damage(&self) -> bool {
        self.clone().into_damage().is_ok()
    }

    /// Returns true if the thread, directive or model does not exist.
    fn is_not_found(&self) -> bool {
        matches!(self.kind(), ErrorKind::Core(CoreErrorKind::NotFound { .. }))
    }

    /// Returns true if the thread has a successor.
    fn is_continued(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::Core(CoreErrorKind::Continued { .. })
        )
    }
}

impl From<ErrorKind> for Error {
    #[cold]
    #[inline(never)]
    fn from(kind: ErrorKind) -> Self {
        Self(Box::new(kind))
    }
}

impl From<CoreError> for Error {
    #[cold]
    #[inline(never)]
    fn from(error: CoreError) -> Self {
        error.into_kind().into()
    }
}

impl From<CoreErrorKind> for Error {
    fn from(kind: CoreErrorKind) -> Self {
        ErrorKind::Core(kind).into()
    }
}

impl From<StorageError> for Error {
    #[cold]
    #[inline(never)]
    fn from(error: StorageError) -> Self {
        ErrorKind::Storage(error).into()
    }
}

impl From<LibraryError> for Error {
    #[cold]
    #[inline(never)]
    fn from(error: LibraryError) -> Self {
        ErrorKind::Library(error).into()
    }
}

/// The service: the host's ports, and small memories of what it need not read or parse again.
#[derive(Debug)]
pub struct ThreadService<P> {
    ports: P,
    pins: RefCell<Vec<(String, Rc<PinnedSettings>)>>,
    places: RefCell<Vec<place::KnownPlace>>,
    remembered: remembered_records::RememberedRecords,
}

impl<P: HostPorts> ThreadService<P> {
    /// Makes a service over a host.
    pub const fn new(ports: P) -> Self {
        Self {
            ports,
            pins: RefCell::new(Vec::new()),
            places: RefCell::new(Vec::new()),
            remembered: remembered_records::RememberedRecords::new(),
        }
    }

    /// Returns the host's ports.
    pub fn ports(&self) -> &P {
        &self.ports
    }

    /// Draws the random part of an id, as lower-case hex.
    ///
    /// # Errors
    /// [`ErrorKind::BadAnswer`] for an answer of another form: ids made of it would not be unique.
    fn draw_random(&self) -> Result<String, Error> {
        let random = self.ports.random(ID_BYTES);
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if random.len() == 2 * ID_BYTES as usize && random.bytes().all(is_hex) {
            return Ok(random);
        }
        let message = format!(
            "random.bytes gave {} bytes of text for {ID_BYTES} bytes in lower-case hex",
            random.len()
        );
        Err(ErrorKind::BadAnswer(message).into())
    }

    fn cached_pin(&self, hash: &str) -> Option<Rc<PinnedSettings>> {
        self.pins
            .borrow()
            .iter()
            .find(|(key, _)| key == hash)
            .map(|(_, pin)| Rc::clone(pin))
    }

    fn cache_pin(&self, hash: &str, pin: PinnedSettings) -> Rc<PinnedSettings> {
        let pin = Rc::new(pin);
        let mut pins = self.pins.borrow_mut();
        if pins.len() >= PINS_MAX {
            pins.remove(0);
        }
        pins.push((hash.to_owned(), Rc::clone(&pin)));
        pin
    }
}
