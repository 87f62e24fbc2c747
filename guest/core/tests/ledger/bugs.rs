//! Planted bugs: each changes the records of a commit as the ledger would if it had the bug.

use super::store::TestStore;
use serde_json::{Value, json};
use threadkeep_core::history::CostSource;
use threadkeep_core::plan::{CommitPlan, StoreWrite};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedBug {
    /// The report of a child replaces the amount that its parent had spent (L2).
    ReportReplaces,
    /// A child's money is reserved twice: by its spawner and by itself (L3).
    ReservedTwice,
    /// A new root drops the reserves of live children of an ended parent (L6).
    RootSweeps,
    /// The report of a child is dropped if its parent has ended (L8).
    LateReportDropped,
    /// A reserve counts as negative, and gives its parent more room (L11).
    NegativeReserve,
    /// A reserve is checked against one account and taken from another (L12).
    WrongParent,
    /// A release gives nothing back.
    NoRelease,
    /// A settlement is charged twice.
    DoubleSettle,
    /// A parent closes while children draw on it.
    ClosesEarly,
    /// The amount reported before an account was opened again is reported once more.
    ReportsTwice,
    /// The next link of a chain begins as if nothing had been spent before it.
    CapStartsAgain,
    /// A late bill of an earlier link is not carried by the tip.
    LateBillNotCarried,
    /// The record of a state stays as it was when a change is recorded.
    StateRecordStays,
    /// The record of a state keeps the scopes of calls that have their results.
    CallScopesStay,
}

pub const BUGS: [PlantedBug; 14] = [
    PlantedBug::ReportReplaces,
    PlantedBug::ReservedTwice,
    PlantedBug::RootSweeps,
    PlantedBug::LateReportDropped,
    PlantedBug::NegativeReserve,
    PlantedBug::WrongParent,
    PlantedBug::NoRelease,
    PlantedBug::DoubleSettle,
    PlantedBug::ClosesEarly,
    PlantedBug::ReportsTwice,
    PlantedBug::CapStartsAgain,
    PlantedBug::LateBillNotCarried,
    PlantedBug::StateRecordStays,
    PlantedBug::CallScopesStay,
];

/// A chain record that a commit writes.
struct ChainWrite {
    /// Index of the write in the batch.
    at: usize,
    key: String,
    before: Option<Value>,
    now: Value,
}

impl ChainWrite {
    fn value_before(&self, field: &str) -> u64 {
        let before = self.before.as_ref();
        before.map_or(0, |before| number(&before["account"][field]))
    }

    fn value_now(&self, field: &str) -> u64 {
        number(&self.now["account"][field])
    }

    fn set(&mut self, field: &str, value: u64) {
        self.now["account"][field] = json!(value);
    }

    fn parent(&self) -> String {
        let parent = self.now["account"]["parent"].as_str();
        parent.unwrap_or_default().to_lowercase()
    }

    /// Returns true if the last user of the account has left in this commit.
    fn closes(&self) -> bool {
        self.value_before("users") > 0 && self.value_now("users") == 0
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// Changes the writes of a commit as the bug would.
pub fn plant_bug(
    bug: PlantedBug,
    store: &TestStore,
    plan: &CommitPlan,
    writes: &mut Vec<StoreWrite>,
) {
    let mut chains = chain_writes(store, writes);
    match bug {
        PlantedBug::ReportReplaces => change_at_close(&mut chains, |child, parent, _| {
            parent.set("spent", child.value_now("spent"));
        }),
        PlantedBug::LateReportDropped => change_at_close(&mut chains, |_, parent, ended| {
            if ended {
                parent.set("spent", parent.value_before("spent"));
            }
        }),
        PlantedBug::ReportsTwice => change_at_close(&mut chains, |child, parent, _| {
            parent.set(
                "spent",
                parent.value_now("spent") + child.value_before("reported"),
            );
        }),
        PlantedBug::ReservedTwice => change_at_spawn(&mut chains, |child, parent| {
            parent.set(
                "reserved",
                parent.value_now("reserved") + child.value_now("limit"),
            );
        }),
        PlantedBug::NegativeReserve => change_at_spawn(&mut chains, |child, parent| {
            let less = parent
                .value_before("reserved")
                .saturating_sub(child.value_now("limit"));
            parent.set("reserved", less);
        }),
        PlantedBug::WrongParent => wrong_parent(store, &mut chains, writes),
        PlantedBug::RootSweeps => sweep(store, plan, writes),
        PlantedBug::NoRelease | PlantedBug::DoubleSettle => settle(bug, plan, &mut chains),
        PlantedBug::ClosesEarly => close_early(plan, &mut chains),
        PlantedBug::CapStartsAgain => carry_nothing(writes),
        PlantedBug::LateBillNotCarried => leave_tip(plan, writes),
        PlantedBug::StateRecordStays => writes.retain(|write| !is_state_record(write)),
        PlantedBug::CallScopesStay => keep_call_scopes(writes),
    }
    for chain in chains {
        if let StoreWrite::Put { value, .. } = &mut writes[chain.at] {
            *value = chain.now.to_string();
        }
    }
}

fn chain_writes(store: &TestStore, writes: &[StoreWrite]) -> Vec<ChainWrite> {
    let mut chains = Vec::new();
    for (at, write) in writes.iter().enumerate() {
        if let StoreWrite::Put {
            collection: "chain",
            key,
            value,
            ..
        } = write
        {
            let parse = |text: &str| serde_json::from_str(text).expect("a record is JSON");
            chains.push(ChainWrite {
                at,
                key: key.clone(),
                before: store.text("chain", key).map(parse),
                now: parse(value),
            });
        }
    }
    chains
}

/// Calls `change` for each account that closes, with the account, the one above it, and true if the
/// chain of the one above has ended.
fn change_at_close(chains: &mut [ChainWrite], change: impl Fn(&ChainWrite, &mut ChainWrite, bool)) {
    for at in 0..chains.len() {
        let parent = chains[at].parent();
        let Some(above) = chains.iter().position(|chain| chain.key == parent) else {
            continue;
        };
        if chains[at].closes() {
            // The chain of an account has ended if the account is frozen, or closes in the same
            // commit.
            let ended = chains[above].closes() || chains[above].now["account"]["frozen"] == true;
            let mut changed = ChainWrite {
                at: chains[above].at,
                key: parent,
                before: chains[above].before.clone(),
                now: chains[above].now.clone(),
            };
            change(&chains[at], &mut changed, ended);
            chains[above] = changed;
        }
    }
}

/// Calls `change` for an account that is created under another.
fn change_at_spawn(chains: &mut [ChainWrite], change: impl Fn(&ChainWrite, &mut ChainWrite)) {
    let Some(child) = chains.iter().position(|chain| chain.before.is_none()) else {
        return;
    };
    let parent = chains[child].parent();
    let Some(above) = chains.iter().position(|chain| chain.key == parent) else {
        return;
    };
    let mut changed = ChainWrite {
        at: chains[above].at,
        key: parent,
        before: chains[above].before.clone(),
        now: chains[above].now.clone(),
    };
    change(&chains[child], &mut changed);
    chains[above] = changed;
}

/// Moves the reserve of a spawn to the root's account.
fn wrong_parent(store: &TestStore, chains: &mut [ChainWrite], writes: &mut Vec<StoreWrite>) {
    let Some(child) = chains.iter().find(|chain| chain.before.is_none()) else {
        return;
    };
    let root = child.now["above"].as_array().and_then(|above| above.last());
    let root = root.and_then(Value::as_str).unwrap_or_default();
    let (root, amount) = (root.to_lowercase(), child.value_now("limit"));
    // Directly under the root, the root is the right parent.
    if !child.parent().is_empty() && child.parent() != root {
        change_at_spawn(chains, |_, parent| {
            parent.set("reserved", parent.value_before("reserved"))
        });
        add_reserved(store, writes, &root, amount);
    }
}

fn add_reserved(store: &TestStore, writes: &mut Vec<StoreWrite>, key: &str, amount: u64) {
    let text = store.text("chain", key).expect("a root");
    let mut record: Value = serde_json::from_str(text).expect("a record is JSON");
    let reserved = number(&record["account"]["reserved"]) + amount;
    record["account"]["reserved"] = json!(reserved);
    push_chain_record(writes, key, &record);
}

fn push_chain_record(writes: &mut Vec<StoreWrite>, key: &str, record: &Value) {
    writes.push(StoreWrite::Put {
        collection: "chain",
        key: key.to_owned(),
        expect: threadkeep_core::plan::WriteCondition::Any,
        value: record.to_string(),
    });
}

/// Drops the reserves of ended chains when a new root is created.
fn sweep(store: &TestStore, plan: &CommitPlan, writes: &mut Vec<StoreWrite>) {
    if plan.thread.parent.is_some() || plan.head.version > 0 || plan.thread.pin.is_some() {
        return;
    }
    for ((collection, key), (_, text)) in &store.records {
        let ended = store
            .text("thread", key)
            .is_some_and(|thread| !thread.contains("\"outcome\":null"));
        let mut record: Value = match collection.as_str() {
            "chain" if ended => serde_json::from_str(text).expect("a record is JSON"),
            _ => continue,
        };
        if number(&record["account"]["reserved"]) > 0 {
            record["account"]["reserved"] = json!(0);
            push_chain_record(writes, key, &record);
        }
    }
}

fn settle(bug: PlantedBug, plan: &CommitPlan, chains: &mut [ChainWrite]) {
    let settled = plan.entry.as_ref().and_then(|entry| entry.settled.as_ref());
    let Some(settled) = settled else { return };
    let own = plan.chain.draws_on(&plan.thread.chain).to_lowercase();
    let Some(chain) = chains.iter_mut().find(|chain| chain.key == own) else {
        return;
    };
    match (bug, settled.how) {
        (PlantedBug::NoRelease, CostSource::Released) => {
            chain.set("held", chain.value_now("held") + settled.hold.get());
        }
        (PlantedBug::DoubleSettle, CostSource::Settled) => {
            chain.set("spent", chain.value_now("spent") + settled.spend.get());
        }
        _ => {}
    }
}

/// Closes the account of a chain that ends, even if others still draw on it.
fn close_early(plan: &CommitPlan, chains: &mut [ChainWrite]) {
    let own = plan.thread.chain.to_lowercase();
    if let (true, Some(chain)) = (
        plan.head.status.is_terminal(),
        chains.iter_mut().find(|chain| chain.key == own),
    ) {
        chain.set("users", 0);
        chain.set("reserved", 0);
        chain.set("reported", chain.value_now("spent"));
    }
}

/// Removes what the heads of a commit carry.
fn carry_nothing(writes: &mut [StoreWrite]) {
    for write in writes {
        if let StoreWrite::Put {
            collection: "head",
            value,
            ..
        } = write
        {
            let mut head: Value = serde_json::from_str(value).expect("a record is JSON");
            head.as_object_mut()
                .expect("a record is an object")
                .remove("carried_spend");
            *value = head.to_string();
        }
    }
}

/// Drops the write of the tip's head from a commit about an earlier link.
fn leave_tip(plan: &CommitPlan, writes: &mut Vec<StoreWrite>) {
    let tip = plan.chain.tip.to_lowercase();
    if plan.thread.id.to_lowercase() != tip {
        writes.retain(|write| match write {
            StoreWrite::Put {
                collection, key, ..
            } => *collection != "head" || *key != tip,
            StoreWrite::Check { .. }
            | StoreWrite::Delete { .. }
            | StoreWrite::Append { .. }
            | StoreWrite::Trim { .. } => true,
        });
    }
}

fn is_state_record(write: &StoreWrite) -> bool {
    matches!(
        write,
        StoreWrite::Put {
            collection: "state",
            ..
        }
    )
}

/// Adds the scope of a call to the records of states.
fn keep_call_scopes(writes: &mut [StoreWrite]) {
    for write in writes {
        if let StoreWrite::Put {
            collection: "state",
            value,
            ..
        } = write
        {
            let mut record: Value = serde_json::from_str(value).expect("a record is JSON");
            record["document"]["tool_call"]["call_1_0"] = json!({"own": 1});
            *value = record.to_string();
        }
    }
}
