//! A message that waits in the inbox of a thread, and the bounds of an inbox.

use crate::history::Message;
use crate::json;

/// Most messages that wait in a thread's inbox.
pub const MAIL_MAX: u64 = 32;
/// Most bytes of the inbox, as JSON text: the largest message fits, and beside the largest reply or
/// round all messages fit one entry, so that the end of a thread can take what waits.
pub const MAIL_BYTES_MAX: usize = 400 << 10;

/// A message that waits in the inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxMessage {
    /// Key of its record.
    pub key: String,
    /// The message; `None` if its record is missing or cannot be read.
    pub message: Option<Message>,
}

impl InboxMessage {
    /// Bytes of the message as JSON text.
    pub fn json_bytes(&self) -> usize {
        self.message
            .as_ref()
            .map_or(0, |message| json::to_text(message).len())
    }
}
