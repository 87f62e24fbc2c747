//! The inbox of a thread: messages that were acknowledged and are not in its history yet.
//!
//! The next commit of the thread takes them all, unless calls are open; the commit that ends the
//! thread takes them in any case. So a message that was acknowledged is in the history, whatever
//! happens to the thread. The bytes that may wait are bounded, so that they fit the entry beside
//! the largest reply or round.

use crate::error::Error;
use crate::history::{Event, Message, MessageRole, ProviderRole, provider_role};
use crate::json;
use crate::plan::{ENTRY_BYTES_MAX, StoreWrite, ThreadChange, WriteCondition};
use crate::thread::{InboxMessage, MAIL_BYTES_MAX, MAIL_MAX, StatusCause};
use crate::{id, key};

/// Text in the history in place of a message whose record is gone. The model reads it, too.
const LOST_MESSAGE: &str = "(A message that was sent to this thread is lost: its record in the \
     store is missing or cannot be read. Nobody knows what it said.)";

/// Bytes kept free in an entry beside its events.
const ENTRY_ROOM_BYTES: usize = 16 << 10;

/// Puts a message into the inbox of a thread that is held, or whose calls are open. `change.mail`
/// is the mail that waits.
pub(super) fn push_inbox_message(
    change: &mut ThreadChange<'_>,
    message: &Message,
) -> Result<(), Error> {
    let value = json::to_text(message);
    let waiting: usize = change.mail.iter().map(InboxMessage::json_bytes).sum();
    if change.head.mail_count() >= MAIL_MAX || waiting + value.len() > MAIL_BYTES_MAX {
        return Err(Error::exceeded_by(inbox_full_cause(
            &change.thread.id,
            waiting + value.len(),
        )));
    }
    let write = inbox_write(&change.thread.chain, change.head.mail_to, value);
    change.extra.push(write);
    change.head.mail_to += 1;
    Ok(())
}

/// Returns the cause for refusing a message with which so many bytes would wait.
fn inbox_full_cause(thread: &str, bytes: usize) -> StatusCause {
    let message = format!(
        "the inbox of {thread} has no room: {MAIL_MAX} messages or {MAIL_BYTES_MAX} bytes may wait \
         until it takes its mail"
    );
    let (bytes, most) = (bytes as u64, MAIL_BYTES_MAX as u64);
    StatusCause::with_bound("limit", "inbox_full", message, bytes, most)
}

/// Returns the write of a message into the inbox of a chain.
pub(super) fn inbox_write(chain: &str, number: u64, value: String) -> StoreWrite {
    StoreWrite::Put {
        collection: key::INBOX,
        key: key::join(&[&id::key(chain), &key::encode_number(number)]),
        expect: WriteCondition::Absent,
        value,
    }
}

/// Takes the messages out of the inbox: each becomes an event and its record goes, in the same
/// commit. Returns the number of readable messages. A lost message becomes an event that says so,
/// which by itself is no reason to ask a model: see [`lost_mail_cause`].
pub(super) fn take_mail(change: &mut ThreadChange<'_>) -> usize {
    let mut taken = 0;
    let root = id::key(&change.thread.chain);
    let bytes = |event: &Event| json::to_text(event).len();
    let mut used: usize = change.events.iter().map(bytes).sum();
    for mail in std::mem::take(&mut change.mail) {
        let lost = mail.message.is_none();
        let notice = || Message::text(MessageRole::User, LOST_MESSAGE);
        let event = Event::Message(mail.message.unwrap_or_else(notice));
        used += bytes(&event);
        let next = key::join(&[&root, &key::encode_number(change.head.mail_from)]);
        if mail.key != next || used > ENTRY_BYTES_MAX - ENTRY_ROOM_BYTES {
            break;
        }
        let index = change.push_event(event);
        match lost {
            true => change.lost_mail.push(index),
            false => taken += 1,
        }
        change.head.mail_from += 1;
        change.extra.push(StoreWrite::Delete {
            collection: key::INBOX,
            key: mail.key,
        });
    }
    taken
}

/// Returns the cause for not asking a model: everything to answer since its last message are
/// messages that are lost.
pub(super) fn lost_mail_cause(change: &ThreadChange<'_>) -> Option<StatusCause> {
    if change.lost_mail.is_empty() {
        return None;
    }
    let mut asked = change.loaded_thread().head.value.asked;
    for (index, event) in (0..).zip(&change.events) {
        match provider_role(event) {
            Some(_) if change.lost_mail.contains(&index) => {}
            Some(ProviderRole::Assistant) => asked = false,
            Some(ProviderRole::User | ProviderRole::Tool) => asked = true,
            None => {}
        }
    }
    let message = "a message that was sent to it is lost, because its record in the store \
                   is missing or cannot be read: send it again, or resume to go on without it";
    (!asked).then(|| StatusCause::new("error", "message_lost", message))
}
