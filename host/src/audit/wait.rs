//! The audit of waits: a thread must not wait for a child that has stopped, because then its
//! wake-up was lost.

use super::record_reader::{RecordSnapshot, key_of, list, number, text};
use super::{StoreAudit, StoreInvariant, TRIES_MAX, UnconfirmedFindings, printable_text};
use crate::storage::{RecordKey, StorageError};
use serde_json::Value;
use std::collections::BTreeSet;

impl StoreAudit<'_> {
    /// Audits the wait of the tip of a chain, if it waits; repeats that while others change it.
    pub(super) fn audit_wait(&mut self, root: &str) -> Result<(), StorageError> {
        match self.compare_wait(root) {
            // A record that cannot be read is reported already.
            Err(StorageError::Corrupt { .. }) => Ok(()),
            done => done,
        }
    }

    fn compare_wait(&mut self, root: &str) -> Result<(), StorageError> {
        for _ in 0..TRIES_MAX {
            let chain =
                RecordSnapshot::read_in_parts(self.storage, &[RecordKey::new("chain", root)])?;
            let tip = key_of(&chain.json("chain", root)["tip"]);
            if tip.is_empty() {
                return Ok(());
            }
            let Some(waited) = self.awaited_children(root, &tip)? else {
                return Ok(());
            };
            let heads = waited
                .iter()
                .map(|child| RecordKey::new("head", &child.tip));
            let keys: Vec<RecordKey> = std::iter::once(RecordKey::new("head", &tip))
                .chain(heads)
                .collect();
            let Some(records) = RecordSnapshot::read_at_one_moment(self.storage, &keys)? else {
                continue;
            };
            let suspicion = check_wait(&tip, &waited, &records);
            if suspicion.is_empty() {
                return Ok(());
            }
            if records.is_unchanged(self.storage)?
                && self.awaited_children(root, &tip)? == Some(waited)
            {
                suspicion.report_to(&mut self.report);
                return Ok(());
            }
        }
        self.report.unsettled += 1;
        Ok(())
    }

    /// The children that a thread waits for; `None` if it does not wait.
    fn awaited_children(
        &self,
        root: &str,
        tip: &str,
    ) -> Result<Option<Vec<WaitedChild>>, StorageError> {
        let head = RecordSnapshot::read_in_parts(self.storage, &[RecordKey::new("head", tip)])?
            .json("head", tip);
        if text(&head["status"]) != "waiting" || head["wait"].is_null() {
            return Ok(None);
        }
        let numbers: BTreeSet<u64> = list(&head["wait"]["numbers"]).iter().map(number).collect();
        let children = self.find_children(&self.find_indexed("chain", root)?)?;
        let mut waited = Vec::new();
        for child in children {
            let key = [RecordKey::new("chain", &child)];
            let chain = RecordSnapshot::read_in_parts(self.storage, &key)?.json("chain", &child);
            if key_of(&chain["parent"]) == root && numbers.contains(&number(&chain["number"])) {
                waited.push(WaitedChild {
                    tip: key_of(&chain["tip"]),
                    shares: !list(&chain["above"]).is_empty()
                        && chain["account"]["parent"].is_null(),
                });
            }
        }
        Ok(Some(waited))
    }
}

/// A child that is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct WaitedChild {
    /// Key of the tip of its chain.
    tip: String,
    /// It draws on the account that its parent draws on.
    shares: bool,
}

/// Returns true if a child with this head must have answered a wait for it. The operator's caps are
/// not known here, so the answer holds for any. This is the rule of the core (`wait_standing` in
/// `plan/related_thread.rs`), stated anew: a hand-off goes on in the next link, a child at rest
/// that was told something goes on or ends by it, and one that was interrupted is revived by the
/// driver of its tree.
fn has_stopped(head: &Value, shares: bool) -> bool {
    let told_to_end = !head["intent"].is_null();
    match text(&head["status"]) {
        // One that was sent a message to go on with is about to be resumed.
        "completed" | "error" | "cancelled" | "killed" => {
            head["due"].is_null() || head["mail_from"] == head["mail_to"]
        }
        "idle" => !told_to_end && head["mail_from"] == head["mail_to"],
        "suspended" if told_to_end => false,
        // A suspended one that is due was raised, or told of a message or of the end of its child.
        "suspended" => is_capped(head) || head["due"].is_null() && !is_interrupted(head, shares),
        _ => false,
    }
}

/// Returns true if the run has reached one of the thread's own caps.
fn is_capped(head: &Value) -> bool {
    let (limits, used) = (&head["limits"], &head["counters"]);
    [
        ("turns", "run_turns"),
        ("tokens", "run_tokens"),
        ("duration", "run_duration"),
    ]
    .iter()
    .any(|(cap, counter)| {
        let cap = limits[cap].as_u64();
        cap.is_some_and(|cap| number(&used[counter]) >= cap)
    })
}

/// Returns true if a thread belongs into the index of interrupted threads: it lies below another,
/// and is suspended for a cause that passes without a person.
pub(super) fn is_indexed_interruption(head: &Value, chain: &Value) -> bool {
    let shares = chain["account"]["parent"].is_null() && !list(&chain["above"]).is_empty();
    let passes = match text(&head["cause"]["code"]) {
        "recovered" | "stopped" | "store_full" => true,
        code => code == "spend_exceeded" && shares,
    };
    passes && text(&head["status"]) == "suspended" && !chain["parent"].is_null()
}

/// Returns true if the driver of the tree mends the cause of a suspension by itself.
fn is_interrupted(head: &Value, shares: bool) -> bool {
    let cause = &head["cause"];
    match text(&cause["code"]) {
        "recovered" | "stopped" | "store_full" => true,
        "spend_exceeded" => {
            let spent = number(&head["counters"]["spend"]);
            let spent = spent.saturating_add(number(&head["carried_spend"]));
            let left = head["limits"]["spend"].as_u64();
            let left = left.map(|cap| cap.saturating_sub(spent));
            shares && left.is_none_or(|left| left >= number(&cause["value"]))
        }
        _ => false,
    }
}

fn check_wait(tip: &str, waited: &[WaitedChild], records: &RecordSnapshot) -> UnconfirmedFindings {
    let mut suspicion = UnconfirmedFindings::for_thread(tip);
    let head = records.json("head", tip);
    if text(&head["status"]) != "waiting" {
        return suspicion;
    }
    for child in waited {
        let child_head = records.json("head", &child.tip);
        if has_stopped(&child_head, child.shares) {
            let (status, child) = (text(&child_head["status"]), printable_text(&child.tip));
            let expected = format!("to be woken by {child}, which is {status}");
            suspicion.add(StoreInvariant::Indexes, expected, "it waits for it still");
        }
    }
    let all = list(&head["wait"]["numbers"]).is_empty();
    let late = all && head["due"].as_u64() != Some(0);
    let expected = "a due entry at once: all that it waited for have stopped";
    suspicion.add_if(StoreInvariant::Indexes, late, expected, "a later one");
    suspicion
}
