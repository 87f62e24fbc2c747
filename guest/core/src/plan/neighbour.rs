//! Threads beside the one that a change is of: the parent, which may wait for it, and descendants that it tells something.
//!
//! Of each the head alone is changed, in the same commit. What a descendant is told takes effect in a commit of its own.

use super::{Change, Stored, due, due_key, put};
use crate::limits::Limits;
use crate::plan::Write;
use crate::runner::cap_reached;
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

    /// The head of a neighbour as this change leaves it, if it changes it.
    pub fn changed_head(&self, id: &str) -> Option<&Head> {
        let mut touched = self.beside.iter();
        let found = touched.find(|touched| touched.before.id == id)?;
        Some(&found.head)
    }

    /// A child that stops wakes a parent that waits for it. The head of one that runs is replaced as well: a wait that is
    /// decided at this moment was decided without this end, and conflicts.
    pub(super) fn wake_parent(&mut self) {
        let Some(parent) = &self.loaded.parent else {
            return;
        };
        let (before, ceiling) = (&self.loaded.head.value, self.ceiling());
        let known = before.status == self.head.status && has_stopped(before, ceiling);
        if known || !has_stopped(&self.head, ceiling) {
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

/// Does a child with this head answer a wait for it? One that will go on, or end, by what it was
/// told has not stopped: a message that no cap forbids it to read, a cancel that has not taken
/// effect yet.
pub fn has_stopped(head: &Head, ceiling: Limits) -> bool {
    match head.status {
        Status::Created | Status::Running | Status::Waiting => false,
        // A hand-off goes on in the next link.
        Status::Continued => false,
        // A message begins a new run, whose counters begin anew.
        Status::Idle => head.intent.is_none() && head.mail() == 0,
        Status::Suspended => {
            head.intent.is_none() && (head.mail() == 0 || cap_reached(head, ceiling).is_some())
        }
        Status::Completed | Status::Error | Status::Cancelled | Status::Killed => true,
    }
}
