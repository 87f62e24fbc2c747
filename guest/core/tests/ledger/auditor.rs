//! Independent books of histories, heads and chain records, read as plain JSON. The auditor shares
//! no code with the ledger, and on each audit looks again at all that was written since the last
//! one.

use super::states::StateBook;
use super::store::TestStore;
use serde_json::Value;
use std::collections::BTreeMap;

/// The money in a history.
#[derive(Debug, Clone, Default)]
struct HistoryBook {
    entries: usize,
    spent: u64,
    /// Version and amount of the hold of the attempt that is under way.
    open: Option<(u64, u64)>,
    /// Charged attempts by the version that admitted them.
    charged: BTreeMap<u64, u64>,
}

/// The expected sums of an account.
#[derive(Debug, Default)]
struct AccountSums {
    held: u64,
    spent: u64,
    reserved: u64,
    users: u64,
}

#[derive(Debug, Clone, Default)]
pub struct LedgerAuditor {
    seen: usize,
    threads: BTreeMap<String, Value>,
    heads: BTreeMap<String, Value>,
    chains: BTreeMap<String, Value>,
    books: BTreeMap<String, HistoryBook>,
    states: BTreeMap<String, StateBook>,
    problems: Vec<String>,
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl LedgerAuditor {
    /// Audits the records written since the last audit; returns the first problem.
    pub fn audit(&mut self, store: &TestStore) -> Result<(), String> {
        for (collection, name) in &store.written[self.seen..] {
            let Some(record) = store.text(collection, name) else {
                continue;
            };
            let kept = match collection.as_str() {
                "thread" => &mut self.threads,
                "head" => &mut self.heads,
                "chain" => &mut self.chains,
                _ => continue,
            };
            let record = serde_json::from_str(record).expect("a record is JSON");
            kept.insert(name.clone(), record);
        }
        for (thread, lines) in &store.histories {
            let from = self.books.get(thread).map_or(0, |book| book.entries);
            for line in &lines[from..] {
                let entry = serde_json::from_str(line).expect("an entry is JSON");
                self.audit_entry(thread, &entry);
                let book = self.states.entry(thread.clone()).or_default();
                self.problems
                    .extend(book.replay(store, thread, &entry).err());
            }
        }
        self.audit_states(store);
        self.seen = store.written.len();
        self.audit_accounts();
        match self.problems.first() {
            Some(problem) => Err(problem.clone()),
            None => Ok(()),
        }
    }

    /// Compares the states of the heads that were written since the last audit with the books.
    fn audit_states(&mut self, store: &TestStore) {
        for (collection, key) in &store.written[self.seen..] {
            if collection != "head" {
                continue;
            }
            let book = self.states.entry(key.clone()).or_default();
            let record = store.text("state", key).unwrap_or("null");
            let record = serde_json::from_str(record).expect("a record is JSON");
            let found = book.compare(key, &record, &self.heads[key]);
            self.problems.extend(found.err());
        }
    }

    fn audit_entry(&mut self, thread: &str, entry: &Value) {
        let book = self.books.entry(thread.to_owned()).or_default();
        let version = number(&entry["version"]);
        book.entries += 1;
        let settled = &entry["settled"];
        if settled.is_object() {
            let (of, hold, spend) = (
                number(&settled["version"]),
                number(&settled["hold"]),
                number(&settled["spend"]),
            );
            if book.open.take() != Some((of, hold)) {
                let problem = format!("{thread} {version}: settles what is not under way");
                self.problems.push(problem);
            }
            match text(&settled["how"]) {
                "charged" | "estimated" => {
                    book.charged.insert(of, spend);
                    if spend > hold {
                        let problem = format!("{thread} {version}: charges another amount");
                        self.problems.push(problem);
                    }
                }
                "released" if spend != 0 => {
                    let problem = format!("{thread} {version}: a release costs something");
                    self.problems.push(problem);
                }
                _ => {}
            }
            book.spent += spend;
        }
        for event in entry["events"].as_array().into_iter().flatten() {
            match text(&event["type"]) {
                "tool_result" | "consent_asked" => book.spent += number(&event["cost"]),
                "usage_corrected" => {
                    let of = number(&event["version"]);
                    let charged = number(&event["charged"]);
                    if book.charged.remove(&of) != Some(charged) {
                        let problem = format!("{thread} {version}: corrects what was not charged");
                        self.problems.push(problem);
                    }
                    book.spent = book.spent + number(&event["spend"]) - charged;
                }
                _ => {}
            }
        }
        let admitted = &entry["admitted"];
        if admitted.is_object() {
            if book.open.is_some() {
                let problem = format!("{thread} {version}: admits beside another attempt");
                self.problems.push(problem);
            }
            book.open = Some((version, number(&admitted["hold"])));
        }
    }

    /// Returns the key of the chain whose account a chain draws on.
    fn account_key(&self, key: &str) -> String {
        let chain = &self.chains[key];
        let above = chain["above"].as_array().and_then(|above| above.first());
        match above {
            Some(above) if chain["account"]["parent"].is_null() => text(above).to_lowercase(),
            _ => key.to_owned(),
        }
    }

    /// Checks that the tip of each chain carries what the other links have spent, and no other link
    /// anything.
    fn audit_carried_spend(
        &self,
        spent_by_chain: &BTreeMap<String, u64>,
        problems: &mut Vec<String>,
    ) {
        for (key, thread) in &self.threads {
            let (chain, head) = (text(&thread["chain"]).to_lowercase(), &self.heads[key]);
            let tip = text(&self.chains[&chain]["tip"]).to_lowercase() == *key;
            let should = match tip {
                true => spent_by_chain[&chain] - number(&head["counters"]["spend"]),
                false => 0,
            };
            let carried = number(&head["carried_spend"]);
            if carried != should {
                problems.push(format!("{key} carries {carried}, not {should}"));
            }
        }
    }

    fn audit_accounts(&mut self) {
        let mut sums: BTreeMap<String, AccountSums> = BTreeMap::new();
        let mut problems = Vec::new();
        for chain in self.chains.values() {
            let account = &chain["account"];
            let above = text(&account["parent"]).to_lowercase();
            if !above.is_empty() {
                let sum = sums.entry(above).or_default();
                sum.spent += number(&account["reported"]);
                if number(&account["users"]) > 0 {
                    sum.users += 1;
                    // One that has reported more than its limit is a finding of its own bounds.
                    let (limit, reported) = (&account["limit"], &account["reported"]);
                    sum.reserved += number(limit).saturating_sub(number(reported));
                }
            }
        }
        let mut spent_by_chain: BTreeMap<String, u64> = BTreeMap::new();
        for (key, thread) in &self.threads {
            let (chain, head) = (text(&thread["chain"]).to_lowercase(), &self.heads[key]);
            let (spent, open) = match self.books.get(key) {
                Some(book) => (book.spent, book.open.map_or(0, |(_, hold)| hold)),
                None => (0, 0),
            };
            let held = number(&head["hold"]["amount"]);
            let draws = ["created", "running", "waiting", "suspended"];
            let sum = sums.entry(self.account_key(&chain)).or_default();
            sum.users += u64::from(draws.contains(&text(&head["status"])));
            sum.held += held;
            sum.spent += spent;
            *spent_by_chain.entry(chain).or_default() += spent;
            if held != open {
                problems.push(format!("{key}: the head holds what its history does not"));
            }
            if number(&head["counters"]["spend"]) != spent {
                problems.push(format!("{key}: the counter of spend is wrong"));
            }
        }
        self.audit_carried_spend(&spent_by_chain, &mut problems);
        for (key, should) in &sums {
            let account = &self.chains[key]["account"];
            for (what, should) in [
                ("held", should.held),
                ("spent", should.spent),
                ("reserved", should.reserved),
                ("users", should.users),
            ] {
                let is = number(&account[what]);
                if is != should {
                    problems.push(format!("account {key}: {what} is {is}, not {should}"));
                }
            }
            check_account_bounds(key, account, &mut problems);
        }
        self.problems.append(&mut problems);
    }
}

/// Checks the invariants of one account by itself. The amount that a root has taken beyond its
/// limit is its debt. That only a cost makes a debt, and that an account in debt admits nothing, is
/// checked where it would happen.
fn check_account_bounds(key: &str, account: &Value, problems: &mut Vec<String>) {
    let taken = number(&account["spent"]) + number(&account["held"]) + number(&account["reserved"]);
    let child = !account["parent"].is_null();
    let over = !account["limit"].is_null() && taken > number(&account["limit"]);
    let closed = number(&account["users"]) == 0;
    for (what, wrong) in [
        ("has taken more than its limit", over && child),
        (
            "is of a child and has no limit",
            child && account["limit"].is_null(),
        ),
        (
            "is closed and has not reported",
            closed && child && account["reported"] != account["spent"],
        ),
        (
            "is closed and has set money aside",
            closed && number(&account["held"]) + number(&account["reserved"]) > 0,
        ),
        (
            "is of a root and has reported",
            !child && number(&account["reported"]) > 0,
        ),
    ] {
        if wrong {
            problems.push(format!("account {key} {what}"));
        }
    }
}
