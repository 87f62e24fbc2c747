//! Threads related to the one that a change is of: its parent, which may wait for it, and
//! descendants that receive a message or an end from it.
//!
//! Only the head of each is changed, in the same commit. An end takes effect on a descendant in a
//! commit of its own.

use super::other_threads::is_to_be_resumed;
use super::writes::{StoreWrite, push_replacement};
use super::{LoadedThread, ParentHead, StoredRecord, ThreadChange};
use crate::limits::ThreadCaps;
use crate::money::NanoUsd;
use crate::thread::{FORMAT, Head, StatusCause, ThreadStatus, find_reached_cap};
use crate::{id, json, key};

/// Another thread, as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelatedThread {
    /// Its id.
    pub id: String,
    /// Id of its chain.
    pub chain: String,
    /// Its head.
    pub head: StoredRecord<Head>,
}

impl ParentHead {
    /// Returns the thread with its head; `None` if that cannot be read, or was written by a newer
    /// program: then it is not changed, and a wait of the thread ends by time.
    fn read(&self) -> Option<RelatedThread> {
        let head: Head = json::read(&self.text).ok()?;
        (head.format <= FORMAT).then(|| RelatedThread {
            id: self.id.clone(),
            chain: self.chain.clone(),
            head: StoredRecord::new(self.version, head),
        })
    }
}

/// The changed head of another thread.
#[derive(Debug)]
pub(super) struct ChangedHead {
    before: RelatedThread,
    head: Head,
}

impl ThreadChange<'_> {
    /// Returns the head of another thread, to be changed with this commit.
    pub fn related_head_mut(&mut self, related: &RelatedThread) -> &mut Head {
        let known = self
            .related_heads
            .iter()
            .position(|touched| touched.before.id == related.id);
        let place = known.unwrap_or_else(|| {
            self.related_heads.push(ChangedHead {
                before: related.clone(),
                head: Head::clone(&related.head.value),
            });
            self.related_heads.len() - 1
        });
        &mut self.related_heads[place].head
    }

    /// Returns the head of a related thread as this change leaves it, if it changes it.
    pub fn changed_head(&self, id: &str) -> Option<&Head> {
        let mut touched = self.related_heads.iter();
        let found = touched.find(|touched| touched.before.id == id)?;
        Some(&found.head)
    }

    /// Makes a parent due that waits for this thread, if this thread has stopped. The head of a
    /// running parent is replaced as well: if it decides a wait at this moment, that decision was
    /// made without this end, and its commit conflicts.
    ///
    /// A parent reads its own head before those of its children, so an end is seen or conflicts. It
    /// is due when the last child goes, or the first where one is enough.
    pub(super) fn wake_parent(&mut self) {
        let Some(parent) = &self.loaded.parent else {
            return;
        };
        // A thread that goes on in another one has not stopped.
        if self.thread.next != self.loaded.thread.value.next {
            return;
        }
        let (before, ceiling) = (&self.loaded.head.value, self.ceiling());
        let shares = !self.chain.has_account();
        let now = wait_standing(&self.head, shares, ceiling);
        let known =
            before.status == self.head.status && wait_standing(before, shares, ceiling) == now;
        if known || now == WaitStanding::GoesOn {
            return;
        }
        let no_money = now == WaitStanding::Interrupted && is_short_of_money(&self.head);
        let number = self.chain.number;
        let Some(parent) = parent.read() else {
            return;
        };
        let head = match parent.head.value.status {
            ThreadStatus::Running | ThreadStatus::Waiting => self.related_head_mut(&parent),
            // A suspended parent may be about to resume its wait: its decision must conflict like
            // that of a running one.
            ThreadStatus::Suspended if has_open_wait(&parent.head.value) => {
                self.related_head_mut(&parent)
            }
            _ => return,
        };
        let waits = head.status == ThreadStatus::Waiting;
        let Some(wait) = &mut head.wait else {
            return;
        };
        let before = wait.numbers.len();
        // An interrupted child, which its driver revives, answers no wait. But where it needs
        // money, no child may be left that goes on: then the check of the wait suspends the parent
        // as well.
        let looks = match now == WaitStanding::Interrupted {
            true => no_money && waits && wait.numbers.contains(&number),
            false => {
                wait.numbers.retain(|waited| *waited != number);
                let fewer = wait.numbers.len() < before;
                fewer && (wait.any || wait.numbers.is_empty() || waits && wait.short)
            }
        };
        wait.short |= looks && no_money;
        // The child had no driver for a while: once it is revived, the wait has its time again.
        wait.renewed |= now == WaitStanding::Interrupted;
        if looks {
            head.due = Some(0);
        }
    }

    pub(super) fn write_related_heads(&mut self, writes: &mut Vec<StoreWrite>) {
        for ChangedHead { before, mut head } in std::mem::take(&mut self.related_heads) {
            let key = id::key(&before.id);
            let was = before.head.value.due;
            if head.sweep.is_some() {
                head.due = Some(0);
            }
            // Every related thread is of the same tree.
            self.replace_due_entry(writes, &key, was, head.due);
            head.updated = self.moment.now;
            push_replacement(writes, key::HEAD, &key, before.head.version, &head);
        }
    }
}

fn has_open_wait(head: &Head) -> bool {
    let open = head.round.as_ref();
    open.is_some_and(|round| round.calls.iter().any(|call| call.waits))
}

/// State of a child towards a wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitStanding {
    /// It goes on, or ends, by itself.
    GoesOn,
    /// It was interrupted, and the driver of its tree revives it: see [`is_to_be_revived`].
    Interrupted,
    /// It has ended, is idle, or needs a person: this answers the wait.
    Answers,
}

/// Returns the state of a child with this head towards a wait for it. `shares` is true if the child
/// draws on the account that its parent draws on.
///
/// This is the one rule about which suspensions answer a wait. A cap of the child's own, an error
/// and an approval do. Interruptions that the driver of the tree mends by itself do not: a holder
/// that died, a driver that was stopped in order, a store that was full, and no money on the
/// account that both draw on. Nor has a child stopped that goes on, or ends, because of something
/// it received: a message that no cap forbids it to read, or a cancel that has not taken effect
/// yet.
pub fn wait_standing(head: &Head, shares: bool, ceiling: ThreadCaps) -> WaitStanding {
    match head.status {
        // A hand-off goes on in the next link.
        ThreadStatus::Created
        | ThreadStatus::Running
        | ThreadStatus::Waiting
        | ThreadStatus::Continued => WaitStanding::GoesOn,
        // A message begins a new run, whose counters begin anew.
        ThreadStatus::Idle => match head.intent.is_none() && head.mail_count() == 0 {
            true => WaitStanding::Answers,
            false => WaitStanding::GoesOn,
        },
        ThreadStatus::Suspended => {
            let capped = find_reached_cap(head, ceiling).is_some();
            // A message, a raise or the end of a child made it due. A thread that waits for
            // interrupted children is not due, and takes no mail before them.
            let goes_on = head.due.is_some() && !capped;
            if head.intent.is_some() || goes_on {
                WaitStanding::GoesOn
            } else if !capped && is_interrupted(head, shares, ceiling) {
                WaitStanding::Interrupted
            } else {
                WaitStanding::Answers
            }
        }
        // A driver is about to resume it.
        _ if is_to_be_resumed(head) => WaitStanding::GoesOn,
        ThreadStatus::Completed
        | ThreadStatus::Error
        | ThreadStatus::Cancelled
        | ThreadStatus::Killed => WaitStanding::Answers,
    }
}

/// Returns true if the driver of the tree mends the cause of the suspension by itself.
fn is_interrupted(head: &Head, shares: bool, ceiling: ThreadCaps) -> bool {
    has_passing_cause(head, shares) && !(is_short_of_money(head) && is_at_spend_cap(head, ceiling))
}

/// Returns true if the thread is suspended for a cause that passes without a person, whatever its
/// caps are.
pub(super) fn has_passing_cause(head: &Head, shares: bool) -> bool {
    let passing = |cause: &StatusCause| match &*cause.code {
        "recovered" | "stopped" | "store_full" => true,
        "spend_exceeded" => shares,
        _ => false,
    };
    head.status == ThreadStatus::Suspended && head.cause.as_ref().is_some_and(passing)
}

fn is_short_of_money(head: &Head) -> bool {
    let cause = head.cause.as_ref();
    head.status == ThreadStatus::Suspended
        && cause.is_some_and(|cause| cause.code == "spend_exceeded")
}

/// Returns true if the thread's own cap on spend, or the operator's, leaves less than it needs.
fn is_at_spend_cap(head: &Head, ceiling: ThreadCaps) -> bool {
    let cap = head.limits.lowered_to(ceiling).spend;
    cap.is_some_and(|cap| {
        cap.saturating_sub(head.spend_under_cap()) < needed_amount(head.cause.as_ref())
    })
}

/// Returns the cost of the next call of a thread that stopped for want of money.
fn needed_amount(cause: Option<&StatusCause>) -> NanoUsd {
    NanoUsd::new(cause.and_then(|cause| cause.value).unwrap_or_default())
}

/// Returns true if the driver of a tree is to start a child again: it was interrupted and can go on
/// now. A child that had no money needs that there is enough by now.
pub fn is_to_be_revived(loaded: &LoadedThread, ceiling: ThreadCaps) -> bool {
    let (head, account) = (&loaded.head.value, loaded.account());
    let shares = !loaded.chain.value.has_account();
    if head.status != ThreadStatus::Suspended
        || wait_standing(head, shares, ceiling) != WaitStanding::Interrupted
        || account.frozen
        || loaded.has_lost_account()
        || loaded.check_formats().is_err()
    {
        return false;
    }
    let need = needed_amount(head.cause.as_ref());
    let pays = account.deficit() == NanoUsd::ZERO && account.room(ceiling.spend) >= need;
    pays || !is_short_of_money(head)
}
