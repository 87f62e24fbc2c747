//! Conversions between WIT and core for the interface `ledger`.

use super::{cursor, exported, other_kind_error, types, usage_in};
use crate::service::Error;
use crate::service::ledger::{HoldAdmission, UnresolvedEstimate};
use threadkeep_core::history::UnknownCharges;
use threadkeep_core::ledger::Account;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::plan::LoadedThread;
use threadkeep_core::runner::CallBill;

/// Returns the account that a thread draws on.
pub fn account(loaded: &LoadedThread) -> types::Account {
    let chain = loaded.chain.value.draws_on(&loaded.thread.value.chain);
    account_to_wit(chain, loaded.account())
}

#[inline(never)]
fn account_to_wit(chain: &str, account: &Account) -> types::Account {
    types::Account {
        chain: chain.to_owned(),
        parent: account.parent.clone(),
        limit: account.limit.map(NanoUsd::get),
        spent: account.spent.get(),
        held: account.held.get(),
        reserved: account.reserved.get(),
        reported: account.reported.get(),
        users: account.users,
        frozen: account.frozen,
    }
}

pub fn branches(branches: &[(LoadedThread, u32)]) -> Vec<exported::ledger::Branch> {
    let branch = |(loaded, depth): &(LoadedThread, u32)| {
        let chain = &loaded.chain.value;
        let own = chain.has_account();
        exported::ledger::Branch {
            thread: loaded.thread.value.id.clone(),
            depth: *depth,
            status: loaded.head.value.status.to_string(),
            spend: loaded.head.value.spend_under_cap().get(),
            account: own.then(|| account_to_wit(&loaded.thread.value.chain, &chain.account)),
        }
    };
    branches.iter().map(branch).collect()
}

pub fn estimate(estimate: exported::ledger::Estimate) -> Result<UnresolvedEstimate, Error> {
    Ok(match estimate {
        exported::ledger::Estimate::Tokens(call) => {
            UnresolvedEstimate::Tokens(call.model, call.input, call.output)
        }
        exported::ledger::Estimate::Amount(amount) => {
            UnresolvedEstimate::Amount(NanoUsd::new(amount))
        }
        exported::ledger::Estimate::Other(text) => {
            return Err(other_kind_error("estimate", &text));
        }
    })
}

/// Returns the answer to a call that was held by an estimate of tokens, or as an amount.
pub fn admission(admission: HoldAdmission, is_amount: bool) -> exported::ledger::Admission {
    exported::ledger::Admission {
        version: admission.version,
        amount: admission.amount,
        output: (!is_amount).then_some(admission.output),
    }
}

pub fn charges((charges, next): (UnknownCharges, Option<u64>)) -> exported::ledger::ChargePage {
    let UnknownCharges { calls, spend, most } = charges;
    exported::ledger::ChargePage {
        calls,
        spend: spend.get(),
        most: most.get(),
        cursor: cursor(next),
    }
}

pub fn bill(bill: exported::ledger::Bill) -> Result<CallBill, Error> {
    Ok(match bill {
        exported::ledger::Bill::Usage(usage) => CallBill::Usage(usage_in(usage)),
        exported::ledger::Bill::Amount(amount) => CallBill::Amount(NanoUsd::new(amount)),
        exported::ledger::Bill::Other(text) => return Err(other_kind_error("bill", &text)),
    })
}
