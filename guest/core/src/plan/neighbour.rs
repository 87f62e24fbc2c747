//! Threads beside the one that a change is of: the parent, which may wait for it, and descendants that it tells something.
//!
//! Of each the head alone is changed, in the same commit. What a descendant is told takes effect in a commit of its own.

use super::{Change, Stored, due, due_key, put};
use crate::plan::Write;
use crate::thread::{Head, Status};
use crate::{id, key};

/// Another thread, as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// Its id.
    pub id: String,
    /// Id of its chain.
    pub chain: String,
    /// Its head.
    pub head: Stored<Head>,
}

/// The head of another thread, changed.
#[derive(Debug)]
pub(super) struct Touched {
    before: Neighbour,
    head: Head,
}

impl Change<'_> {
    /// The head of another thread, to be changed with this commit.
    pub fn beside(&mut self, neighbour: &Neighbour) -> &mut Head {
        let known = self
            .beside
            .iter()
            .position(|touched| touched.before.id == neighbour.id);
        let place = known.unwrap_or_else(|| {
            self.beside.push(Touched {
                before: neighbour.clone(),
                head: neighbour.head.value.clone(),
            });
            self.beside.len() - 1
        });
        &mut self.beside[place].head
    }

    /// A child that stops wakes a parent that waits for it. The head of one that runs is replaced as well: a wait that is
    /// decided at this moment was decided without this end, and conflicts.
    pub(super) fn wake_parent(&mut self) {
        let status = self.head.status;
        let Some(parent) = &self.loaded.parent else {
            return;
        };
        if status == self.loaded.head.value.status || !stops(status) {
            return;
        }
        let number = self.chain.number;
        let head = match parent.head.value.status {
            Status::Running | Status::Waiting => self.beside(&parent.clone()),
            // It may be about to go on with a wait, which is decided as that of one that runs.
            Status::Suspended if waits(&parent.head.value) => self.beside(&parent.clone()),
            _ => return,
        };
        if let Some(wait) = &mut head.wait {
            let before = wait.numbers.len();
            wait.numbers.retain(|waited| *waited != number);
            let fewer = wait.numbers.len() < before;
            if fewer && (wait.any || wait.numbers.is_empty()) {
                head.due = Some(0);
            }
        }
    }

    pub(super) fn write_beside(&mut self, writes: &mut Vec<Write>) {
        for Touched { before, mut head } in std::mem::take(&mut self.beside) {
            let key = id::key(&before.id);
            let was = before.head.value.due;
            if head.sweep.is_some() {
                head.due = Some(0);
            }
            if head.due != was {
                writes.extend(was.map(|time| Write::Delete {
                    collection: key::DUE,
                    key: due_key(time, &key),
                }));
                writes.extend(head.due.map(|time| due(time, &key, &before.chain)));
            }
            head.updated = self.moment.now;
            put(writes, key::HEAD, &key, before.head.version, &head);
        }
    }
}

fn waits(head: &Head) -> bool {
    let open = head.round.as_ref();
    open.is_some_and(|round| round.calls.iter().any(|call| call.waits))
}

/// Does a child that stands so answer a wait for it?
pub fn stops(status: Status) -> bool {
    match status {
        Status::Created | Status::Running | Status::Waiting => false,
        // A hand-off goes on in the next link.
        Status::Continued => false,
        Status::Suspended
        | Status::Idle
        | Status::Completed
        | Status::Error
        | Status::Cancelled
        | Status::Killed => true,
    }
}
