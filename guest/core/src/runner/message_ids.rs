//! Ids that callers give their messages: a chain remembers them for ever, as it does the names of
//! signals. A message that was taken already is skipped; another one of the same id is refused.

use crate::error::Error;
use crate::hash::{sha256, sha256_text};
use crate::history::Message;
use crate::json;
use crate::plan::{StoreWrite, ThreadChange, WriteCondition};
use crate::{id, key};

/// A message of this id that was taken, by the digest of its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownMessage {
    /// The id that its caller gave it.
    pub id: String,
    /// [`message_digest`] of it.
    pub digest: String,
}

/// Returns the key of the record in the collection `seen` by which a chain remembers a message. No
/// name of a signal or request has a control character, so none is the same.
pub fn message_key(chain: &str, message: &str) -> String {
    key::join(&[&id::key(chain), "\0message", &sha256_text(message)])
}

/// Returns the digest of a message's role and content.
pub fn message_digest(message: &Message) -> String {
    sha256(&["message", &json::to_text(message)])
}

/// Tells whether a message was taken before, by the messages that are known.
///
/// # Errors
/// `ErrorKind::Invalid` at `place` if another message of its id was taken.
pub fn is_known_message(
    place: &str,
    message: &Message,
    known: &[KnownMessage],
) -> Result<bool, Error> {
    let Some(id) = &message.id else {
        return Ok(false);
    };
    match known.iter().find(|known| known.id == *id) {
        None => Ok(false),
        Some(known) if known.digest == message_digest(message) => Ok(true),
        Some(_) => {
            let problem = "is the id of another message, which its chain has taken already";
            Err(Error::invalid(format!("{place}.id"), id, problem))
        }
    }
}

/// Remembers the id of a message that a change takes, if it has one.
pub(super) fn remember_message(change: &mut ThreadChange<'_>, message: &Message) {
    let Some(id) = &message.id else {
        return;
    };
    change.extra.push(StoreWrite::Put {
        collection: key::SEEN,
        key: message_key(&change.thread.chain, id),
        expect: WriteCondition::Absent,
        value: message_digest(message),
    });
}
