//! The audit of waits: a thread must not wait for a child that has stopped, because then its
//! wake-up was lost.

use super::read::{Snapshot, key_of, list, number, text};
use super::{Audit, Invariant, Suspicion, TRIES_MAX, shown};
use crate::storage::{Key, StorageError};
use serde_json::Value;
use std::collections::BTreeSet;

impl Audit<'_> {
    /// Audits the wait of the tip of a chain, if it waits; repeats that while others change it.
    pub(super) fn wait(&mut self, root: &str) -> Result<(), StorageError> {
        match self.compare_wait(root) {
            // A record that cannot be read is reported already.
            Err(StorageError::Corrupt { .. }) => Ok(()),
            done => done,
        }
    }

    fn compare_wait(&mut self, root: &str) -> Result<(), StorageError> {
        for _ in 0..TRIES_MAX {
            let chain = Snapshot::in_parts(self.storage, &[Key::new("chain", root)])?;
            let tip = key_of(&chain.json("chain", root)["tip"]);
            if tip.is_empty() {
                return Ok(());
            }
            let Some(waited) = self.waited(root, &tip)? else {
                return Ok(());
            };
            let heads = waited.iter().map(|child| Key::new("head", child));
            let keys: Vec<Key> = std::iter::once(Key::new("head", &tip))
                .chain(heads)
                .collect();
            let Some(records) = Snapshot::take(self.storage, &keys)? else {
                continue;
            };
            let suspicion = compare(&tip, &waited, &records);
            if suspicion.is_empty() {
                return Ok(());
            }
            if records.stands(self.storage)? && self.waited(root, &tip)? == Some(waited) {
                suspicion.report(&mut self.report);
                return Ok(());
            }
        }
        self.report.unsettled += 1;
        Ok(())
    }

    /// Returns the keys of the tips of the children that a thread waits for; `None` if it does not
    /// wait.
    fn waited(&self, root: &str, tip: &str) -> Result<Option<Vec<String>>, StorageError> {
        let head = Snapshot::in_parts(self.storage, &[Key::new("head", tip)])?.json("head", tip);
        if text(&head["status"]) != "waiting" || head["wait"].is_null() {
            return Ok(None);
        }
        let numbers: BTreeSet<u64> = list(&head["wait"]["numbers"]).iter().map(number).collect();
        let children = self.children(&self.indexed("chain", root)?)?;
        let mut tips = Vec::new();
        for child in children {
            let key = [Key::new("chain", &child)];
            let chain = Snapshot::in_parts(self.storage, &key)?.json("chain", &child);
            if key_of(&chain["parent"]) == root && numbers.contains(&number(&chain["number"])) {
                tips.push(key_of(&chain["tip"]));
            }
        }
        Ok(Some(tips))
    }
}

/// Returns true if a child with this head must already have answered a wait for it. A hand-off
/// continues in the next link, an idle or suspended child with mail or an intent continues or ends
/// by it, and an interrupted one is revived by the driver of its tree. A cap of the policy could
/// forbid that, but the policy is not known here.
fn has_stopped(head: &Value) -> bool {
    let status = text(&head["status"]);
    let ended = ["completed", "error", "cancelled", "killed"].contains(&status);
    let told = head["mail_from"] != head["mail_to"] || !head["intent"].is_null();
    // A suspended thread that is due was raised, or was notified of the end of its child.
    let told = told || status == "suspended" && !head["due"].is_null();
    let code = text(&head["cause"]["code"]);
    // The head does not say whose money is short.
    let interrupted = ["recovered", "stopped", "store_full", "spend_exceeded"].contains(&code);
    ended || ["suspended", "idle"].contains(&status) && !told && !interrupted
}

fn compare(tip: &str, waited: &[String], records: &Snapshot) -> Suspicion {
    let mut suspicion = Suspicion::about(tip);
    let head = records.json("head", tip);
    if text(&head["status"]) != "waiting" {
        return suspicion;
    }
    for child in waited {
        let child_head = records.json("head", child);
        if has_stopped(&child_head) {
            let status = &child_head["status"];
            let expected = format!("to be woken by {}, which is {}", shown(child), text(status));
            suspicion.of(Invariant::Indexes, expected, "it waits for it still");
        }
    }
    let all = list(&head["wait"]["numbers"]).is_empty();
    let late = all && head["due"].as_u64() != Some(0);
    let expected = "a due entry at once: all that it waited for have stopped";
    suspicion.wrong(Invariant::Indexes, late, expected, "a later one");
    suspicion
}
