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
use threadkeep_core::error::Error as CoreError;
use threadkeep_core::settings::PinnedSettings;

/// Most pins that a warm instance keeps. A pin never changes, so a turn need not read and parse it
/// again.
const PINS_MAX: usize = 8;

/// Errors of the exports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// A refusal of the core.
    Core(CoreError),
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
    /// Returns the problem, if stored data are damaged or missing.
    ///
    /// # Errors
    /// Any other error, unchanged.
    pub fn into_damage(self) -> Result<RecordDamage, Self> {
        let (code, message) = match self {
            Self::Core(CoreError::Corrupt(message)) => (CONTRADICTION.to_owned(), message),
            Self::Core(error @ CoreError::BrokenChain { code, .. }) => {
                (code.to_owned(), error.to_string())
            }
            Self::Storage(
                StorageError::Corrupt(code, message) | StorageError::TooLarge(code, message),
            ) => (code, message),
            // A record that cannot be written is as good as damaged to those beside it. Where an
            // index or another record names a thread, it should exist.
            Self::Core(error @ CoreError::NewerFormat { .. }) => {
                (NEWER_FORMAT.to_owned(), error.to_string())
            }
            Self::Core(error @ CoreError::NotFound { .. }) => {
                ("not-found".to_owned(), error.to_string())
            }
            other => return Err(other),
        };
        Ok(RecordDamage { code, message })
    }

    /// Returns true if [`Error::into_damage`] says what is wrong with stored data.
    pub fn is_damage(&self) -> bool {
        self.clone().into_damage().is_ok()
    }
}

impl From<CoreError> for Error {
    fn from(error: CoreError) -> Self {
        Self::Core(error)
    }
}

impl From<StorageError> for Error {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}

impl From<LibraryError> for Error {
    fn from(error: LibraryError) -> Self {
        Self::Library(error)
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
    /// [`Error::BadAnswer`] for an answer of another form: ids made of it would not be unique.
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
        Err(Error::BadAnswer(message))
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
