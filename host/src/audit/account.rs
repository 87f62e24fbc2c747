//! The audit of one account: its sums, beside the threads and accounts that draw on it.
//!
//! The sums are made from the counters of heads, which [`super::head`] compares with the histories.
//! So an account needs no second reading of histories; where a counter is wrong, the sum takes the
//! spend of the history.

use super::StoreInvariant::Ledger;
use super::record_reader::{RecordSnapshot, key_of, list, number, text};
use super::{StoreAudit, TRIES_MAX, UnconfirmedFindings};
use crate::storage::{RecordKey, StorageError};
use serde_json::Value;
use std::collections::BTreeSet;

/// The chains and accounts that draw on an account. Members are fixed when a chain is created and
/// never leave; only new ones are added.
#[derive(Debug, Default, PartialEq, Eq)]
struct AccountMembers {
    /// Chains, each with its links.
    chains: Vec<(String, Vec<String>)>,
    /// Chains below that have an account of their own, which is funded from this one.
    accounts: Vec<String>,
}

impl AccountMembers {
    fn record_keys(&self) -> Vec<RecordKey> {
        let accounts = self
            .accounts
            .iter()
            .map(|root| RecordKey::new("chain", root));
        let chains = self.chains.iter();
        let chains = chains.flat_map(|(root, links)| {
            let heads = links.iter().map(|link| RecordKey::new("head", link));
            std::iter::once(RecordKey::new("chain", root)).chain(heads)
        });
        chains.chain(accounts).collect()
    }
}

/// The sums that an account should have.
#[derive(Default)]
struct AccountSums {
    held: u64,
    spent: u64,
    reserved: u64,
    users: u64,
}

impl StoreAudit<'_> {
    /// Audits the account of a chain, if it has one of its own; repeats that while others change
    /// it.
    pub(super) fn audit_account(&mut self, root: &str) -> Result<(), StorageError> {
        match self.compare_account(root) {
            // A record that cannot be read is reported already, and without it there is no sum.
            Err(StorageError::Corrupt { .. }) => Ok(()),
            done => done,
        }
    }

    fn compare_account(&mut self, root: &str) -> Result<(), StorageError> {
        let chain = RecordSnapshot::read_in_parts(self.storage, &[RecordKey::new("chain", root)])?;
        if !has_account(&chain.json("chain", root)) {
            return Ok(());
        }
        for _ in 0..TRIES_MAX {
            let drawing = self.find_members(root)?;
            let Some(records) =
                RecordSnapshot::read_at_one_moment(self.storage, &drawing.record_keys())?
            else {
                continue;
            };
            let account = records.json("chain", root)["account"].clone();
            let Some(sums) = self.recompute_sums(&drawing, &records) else {
                return Ok(());
            };
            let suspicion = compare_sums(root, &account, &sums);
            if suspicion.is_empty() {
                return Ok(());
            }
            if records.is_unchanged(self.storage)? && self.find_members(root)? == drawing {
                suspicion.report_to(&mut self.report);
                return Ok(());
            }
        }
        self.report.unsettled += 1;
        Ok(())
    }

    /// Returns the members of the account of a chain: the chain itself, and the chains below it
    /// that have no account of their own.
    fn find_members(&self, root: &str) -> Result<AccountMembers, StorageError> {
        let mut drawing = AccountMembers::default();
        let mut known = BTreeSet::from([root.to_owned()]);
        let mut open = vec![root.to_owned()];
        while let Some(chain) = open.pop() {
            let links = self.find_indexed("chain", &chain)?;
            for link in &links {
                for child in self.find_indexed("parent", link)? {
                    if !known.insert(child.clone()) {
                        continue;
                    }
                    // A thread that is not the first link of its chain has no chain record.
                    let key = [RecordKey::new("chain", &child)];
                    let record =
                        RecordSnapshot::read_in_parts(self.storage, &key)?.json("chain", &child);
                    if !record.is_object() {
                        continue;
                    }
                    let draws_on = list(&record["above"]).first().map_or(String::new(), key_of);
                    match (has_account(&record), draws_on == root) {
                        (true, true) => drawing.accounts.push(child),
                        (false, true) => open.push(child),
                        (_, false) => {}
                    }
                }
            }
            drawing.chains.push((chain, links));
        }
        Ok(drawing)
    }

    /// Recomputes the sums. `None` if a record cannot be read, which is reported already.
    fn recompute_sums(
        &self,
        drawing: &AccountMembers,
        records: &RecordSnapshot,
    ) -> Option<AccountSums> {
        let mut sums = AccountSums::default();
        for (root, links) in &drawing.chains {
            let tip = key_of(&records.json("chain", root)["tip"]);
            for link in links {
                let head = records.json("head", link);
                if !head.is_object() {
                    return None;
                }
                let own = list(&head["holds"])
                    .iter()
                    .map(|own| number(&own["amount"]));
                let held = own.fold(number(&head["hold"]["amount"]), u64::saturating_add);
                sums.held = sums.held.saturating_add(held);
                let counted = number(&head["counters"]["spend"]);
                let spent = self.spent.get(link).copied().unwrap_or(counted);
                sums.spent = sums.spent.saturating_add(spent);
                sums.users += u64::from(*link == tip && reserves_money(text(&head["status"])));
            }
        }
        for root in &drawing.accounts {
            let account = &records.json("chain", root)["account"];
            if !account.is_object() {
                return None;
            }
            let reported = number(&account["reported"]);
            sums.spent = sums.spent.saturating_add(reported);
            if number(&account["users"]) > 0 {
                sums.users += 1;
                let claim = number(&account["limit"]).saturating_sub(reported);
                sums.reserved = sums.reserved.saturating_add(claim);
            }
        }
        Some(sums)
    }
}

/// Returns true if a chain has an account of its own. Otherwise it draws on the nearest account
/// above.
fn has_account(chain: &Value) -> bool {
    list(&chain["above"]).is_empty() || !chain["account"]["parent"].is_null()
}

/// Returns true if a thread of this status reserves money. An idle or ended thread reserves none.
fn reserves_money(status: &str) -> bool {
    ["created", "running", "waiting", "suspended"].contains(&status)
}

fn compare_sums(root: &str, account: &Value, sums: &AccountSums) -> UnconfirmedFindings {
    let mut suspicion = UnconfirmedFindings::for_thread(root);
    if !account.is_object() {
        let expected = "an account in the record of the chain";
        suspicion.add(super::StoreInvariant::Histories, expected, "none");
        return suspicion;
    }
    for (what, expected) in [
        ("held", sums.held),
        ("spent", sums.spent),
        ("reserved", sums.reserved),
        ("users", sums.users),
    ] {
        suspicion.expect_equal(Ledger, what, expected, number(&account[what]));
    }
    check_bounds(account, &mut suspicion);
    suspicion
}

/// Checks the rules that hold for a single account. A root account may exceed its limit: the excess
/// is its debt.
fn check_bounds(account: &Value, suspicion: &mut UnconfirmedFindings) {
    let of = |what: &str| number(&account[what]);
    let taken = [of("spent"), of("held"), of("reserved")];
    let taken = taken.into_iter().fold(0, u64::saturating_add);
    let (child, closed) = (!account["parent"].is_null(), of("users") == 0);
    let limit = account["limit"].as_u64();
    if child && limit.is_none_or(|limit| taken > limit) {
        let expected = match limit {
            Some(limit) => format!("at most its limit of {limit} spent, held and reserved"),
            None => "a limit: it is of a child".to_owned(),
        };
        suspicion.add(Ledger, expected, format!("{taken}"));
    }
    if child && closed {
        suspicion.expect_equal(Ledger, "closed, reported", of("spent"), of("reported"));
    }
    if closed {
        let aside = of("held").saturating_add(of("reserved"));
        suspicion.expect_equal(Ledger, "closed, held and reserved", 0, aside);
    }
    if !child {
        suspicion.expect_equal(Ledger, "of a root, reported", 0, of("reported"));
    }
}
