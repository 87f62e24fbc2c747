//! The inbox of a thread: messages that were acknowledged and are not in its history yet.
//!
//! The next commit of the thread takes them all, unless calls are open; the commit that ends it takes them in any case. So
//! a message that was acknowledged is in the history, whatever happens to the thread. What may wait is bounded so that it
//! fits the entry beside the largest reply or round.

use super::{MAIL_BYTES_MAX, MAIL_MAX};
use crate::error::Error;
use crate::history::{Event, Message};
use crate::json;
use crate::plan::{Change, ENTRY_BYTES_MAX, Expect, Write};
use crate::{id, key};

/// A message that waits in the inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// Key of its record.
    pub key: String,
    /// The message.
    pub message: Message,
}

/// What stands in an entry beside its events.
const ENTRY_ROOM_BYTES: usize = 16 << 10;

/// Put a message into the inbox of a thread that somebody holds, or whose calls are open. `change.mail` is what waits.
pub(super) fn mail_write(change: &mut Change<'_>, message: &Message) -> Result<(), Error> {
    let value = json::text(message);
    let bytes = |mail: &Mail| json::text(&mail.message).len();
    let waiting: usize = change.mail.iter().map(bytes).sum();
    if change.head.mail() >= MAIL_MAX || waiting + value.len() > MAIL_BYTES_MAX {
        return Err(Error::Busy {
            thread: change.thread.id.clone(),
            holder: change.head.holder.clone().unwrap_or_default(),
            expiry: change.head.expiry.unwrap_or(change.head.updated),
        });
    }
    let write = inbox_write(&change.thread.chain, change.head.mail_to, value);
    change.extra.push(write);
    change.head.mail_to += 1;
    Ok(())
}

/// The record of a message in the inbox of a chain.
pub(super) fn inbox_write(chain: &str, number: u64, value: String) -> Write {
    Write::Put {
        collection: key::INBOX,
        key: key::join(&[&id::key(chain), &key::number(number)]),
        expect: Expect::Absent,
        value,
    }
}

/// Take the messages out of the inbox: each becomes an event and its record goes, in the same commit.
pub(super) fn take_mail(change: &mut Change<'_>) {
    let root = id::key(&change.thread.chain);
    let bytes = |event: &Event| json::text(event).len();
    let mut used: usize = change.events.iter().map(bytes).sum();
    for mail in std::mem::take(&mut change.mail) {
        let event = Event::Message(mail.message);
        used += bytes(&event);
        let next = key::join(&[&root, &key::number(change.head.mail_from)]);
        if mail.key != next || used > ENTRY_BYTES_MAX - ENTRY_ROOM_BYTES {
            break;
        }
        change.push(event);
        change.head.mail_from += 1;
        change.extra.push(Write::Delete {
            collection: key::INBOX,
            key: mail.key,
        });
    }
}
