//! An independent auditor: recomputes the invariants of a store from its records and histories, as plain JSON. It shares
//! no code with the core that wrote them, but for the digest.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use threadkeep::storage::{Item, Storage};

/// The kinds of tokens that are counted.
const KINDS: [&str; 5] = ["input", "output", "read", "write", "reasoning"];

/// Everything that is wrong with a store, as sentences; empty if nothing is.
pub fn audit(store: &dyn Storage) -> Vec<String> {
    let mut audit = Audit {
        store,
        findings: Vec::new(),
        indexes: BTreeSet::new(),
        due: BTreeSet::new(),
        inbox: BTreeSet::new(),
        chains: all(store, "chain")
            .into_iter()
            .map(|item| (item.key.name, json(&item.value)))
            .collect(),
        accounts: BTreeMap::new(),
    };
    for thread in all(store, "thread") {
        audit.thread(&thread);
    }
    audit.chains();
    audit.keys("index", &audit.indexes.clone());
    audit.keys("due", &audit.due.clone());
    audit.keys("inbox", &audit.inbox.clone());
    audit.findings
}

struct Audit<'a> {
    store: &'a dyn Storage,
    findings: Vec<String>,
    indexes: BTreeSet<String>,
    due: BTreeSet<String>,
    inbox: BTreeSet<String>,
    chains: BTreeMap<String, Value>,
    /// What each account should say, by the key of its chain.
    accounts: BTreeMap<String, Account>,
}

/// What an account should say.
#[derive(Default)]
struct Account {
    held: u64,
    spent: u64,
    reserved: u64,
    users: u64,
}

/// What the entries of one history say.
#[derive(Default)]
struct Told {
    version: u64,
    hash: String,
    turns: u64,
    spend: u64,
    tokens: [u64; 5],
    open_calls: BTreeSet<(u64, u64)>,
    /// The attempt of the runner that is under way, and calls of a host's own loop, by the versions that admitted them.
    open_hold: Option<(u64, u64)>,
    own_holds: BTreeMap<u64, u64>,
    /// Attempts that were charged in full, and not corrected since.
    charged: BTreeMap<u64, u64>,
}

impl Audit<'_> {
    fn find(&mut self, place: &str, what: &str) {
        self.findings.push(format!("{place}: {what}"));
    }

    fn thread(&mut self, item: &Item) {
        let key = item.key.name.clone();
        let record = json(&item.value);
        let Some(head) = one(self.store, "head", &key) else {
            return self.find(&key, "has no head");
        };
        let told = self.history(&key);
        self.head(&key, &head, &told);
        let root = text(&record["chain"]).to_lowercase();
        let drawn = self.drawn_on(&root);
        let account = self.accounts.entry(drawn).or_default();
        account.held += number(&head["hold"]["amount"]) + told.own_holds.values().sum::<u64>();
        account.spent += told.spend;
        if key == tip(&self.chains, &root) {
            let draws = ["created", "running", "waiting", "suspended"];
            account.users += u64::from(draws.contains(&text(&head["status"]).as_str()));
        }
        let mail = number(&head["mail_from"])..number(&head["mail_to"]);
        self.inbox
            .extend(mail.map(|n| format!("{root}\u{1}{n:016x}")));
        let (moved, made) = (number(&head["recency"]), millis(&record["created"]));
        for (name, value, at) in [
            ("status", text(&head["status"]), moved),
            ("chain", root, made),
            ("directive", text(&record["directive"]), made),
            ("agent", text(&record["agent"]), made),
            ("task", text(&record["task"]), made),
            ("parent", text(&record["parent"]).to_lowercase(), made),
        ] {
            if !value.is_empty() {
                self.indexes
                    .insert(format!("{name}\u{1}{value}\u{1}{at:016x}\u{1}{key}"));
            }
        }
        self.indexes
            .insert(format!("recency\u{1}\u{1}{moved:016x}\u{1}{key}"));
        if !head["due"].is_null() {
            self.due
                .insert(format!("{:016x}\u{1}{key}", number(&head["due"])));
        }
    }

    fn head(&mut self, key: &str, head: &Value, told: &Told) {
        let status = text(&head["status"]);
        let running = status == "running";
        let ended = ["completed", "cancelled", "killed", "error"].contains(&status.as_str());
        let counters = &head["counters"];
        let tokens = KINDS.map(|kind| number(&counters["usage"][kind]));
        for (what, wrong) in [
            (
                "version is not the history's",
                number(&head["version"]) != told.version,
            ),
            (
                "hash is not the newest entry's",
                text(&head["hash"]) != told.hash,
            ),
            (
                "running without a holder",
                running && head["holder"].is_null(),
            ),
            ("running without a step", running && head["step"].is_null()),
            (
                "held though not running",
                !running && !head["holder"].is_null(),
            ),
            (
                "a step though not running",
                !running && !head["step"].is_null(),
            ),
            (
                "a hold though not running",
                !running && !head["hold"].is_null(),
            ),
            (
                "running without a due entry",
                running && head["due"].is_null(),
            ),
            (
                "created without a due entry",
                status == "created" && head["due"].is_null(),
            ),
            ("ended with a due entry", ended && !head["due"].is_null()),
            (
                "ended with mail that is in no history",
                ended && head["mail_from"] != head["mail_to"],
            ),
            (
                "ended with open calls",
                ended && !told.open_calls.is_empty(),
            ),
            ("turns differ", number(&counters["turns"]) != told.turns),
            ("spend differs", number(&counters["spend"]) != told.spend),
            ("tokens differ", tokens != told.tokens),
        ] {
            if wrong {
                self.find(key, what);
            }
        }
        self.open(key, head, told);
    }

    /// What the head says is open: the hold, the calls, the lease.
    fn open(&mut self, key: &str, head: &Value, told: &Told) {
        let open = told.open_hold.map_or(0, |(_, amount)| amount);
        if number(&head["hold"]["amount"]) != open {
            self.find(
                key,
                "the hold of the head is not the one that the history left open",
            );
        }
        let held = head["holds"].as_array().into_iter().flatten();
        let held: BTreeMap<u64, u64> = held
            .map(|own| (number(&own["version"]), number(&own["amount"])))
            .collect();
        if held != told.own_holds {
            self.find(key, "the host's own holds are not those of the history");
        }
        let round: BTreeSet<(u64, u64)> = head["round"]["calls"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|call| (number(&head["round"]["version"]), number(&call["index"])))
            .collect();
        if round != told.open_calls {
            self.find(
                key,
                "the round of the head is not what the history left open",
            );
        }
        if text(&head["status"]) == "running" && !head["due"].is_null() {
            let expiry = number(&head["expiry"]["seconds"]) * 1000 + 1000;
            if number(&head["due"]) > expiry {
                self.find(key, "is due later than its lease expires");
            }
        }
    }

    fn history(&mut self, key: &str) -> Told {
        let mut told = Told::default();
        loop {
            let lines = self
                .store
                .read_log("history", key, told.version + 1, 100, false)
                .expect("the store answers");
            if lines.is_empty() {
                return told;
            }
            for line in lines {
                let entry = json(&line.value);
                let version = number(&entry["version"]);
                if version != told.version + 1 || version != line.position {
                    self.find(key, &format!("a gap before version {version}"));
                }
                if text(&entry["previous"]) != told.hash {
                    self.find(
                        key,
                        &format!("version {version} does not chain to the one before"),
                    );
                }
                told.version = version;
                told.hash = threadkeep_core::hash::sha256_text(&line.value);
                self.entry(key, &entry, &mut told);
            }
        }
    }

    fn entry(&mut self, key: &str, entry: &Value, told: &mut Told) {
        let version = told.version;
        let settled = Some(&entry["settled"]).filter(|settled| settled.is_object());
        let charged = entry["charged"].as_array().into_iter().flatten();
        for settled in settled.into_iter().chain(charged) {
            self.settled(key, settled, told);
        }
        for (index, event) in entry["events"].as_array().into_iter().flatten().enumerate() {
            self.event(key, version, index as u64, event, told);
        }
        if entry["admitted"].is_object() {
            let admitted = &entry["admitted"];
            if !told.open_calls.is_empty() && admitted["key"].is_null() {
                self.find(
                    key,
                    &format!("version {version} admits a call while tool calls are open"),
                );
            }
            if !admitted["key"].is_null() {
                told.own_holds.insert(version, number(&admitted["hold"]));
                return;
            }
            if told.open_hold.is_some() {
                self.find(key, &format!("version {version} admits a second attempt"));
            }
            told.open_hold = Some((version, number(&admitted["hold"])));
        }
    }

    fn settled(&mut self, key: &str, settled: &Value, told: &mut Told) {
        let (of, hold) = (number(&settled["version"]), number(&settled["hold"]));
        let open = match told.own_holds.remove(&of) {
            Some(hold) => Some((of, hold)),
            None => told.open_hold.take(),
        };
        if open != Some((of, hold)) {
            let version = told.version;
            self.find(key, &format!("version {version} settles what was not open"));
        }
        told.spend += number(&settled["spend"]);
        if text(&settled["how"]) == "charged" {
            told.charged.insert(of, number(&settled["spend"]));
        }
        for (sum, kind) in told.tokens.iter_mut().zip(KINDS) {
            *sum += number(&settled["usage"][kind]);
        }
    }

    fn event(&mut self, key: &str, version: u64, index: u64, event: &Value, told: &mut Told) {
        match text(&event["type"]).as_str() {
            "tool_use" => {
                if told.open_calls.iter().any(|(other, _)| *other != version) {
                    self.find(
                        key,
                        &format!("version {version} calls before earlier calls have results"),
                    );
                }
                told.open_calls.insert((version, index));
            }
            "message" if text(&event["role"]) == "user" && !told.open_calls.is_empty() => {
                self.find(
                    key,
                    &format!("version {version}: a user speaks between calls and their results"),
                );
            }
            "tool_result" => {
                let call = (number(&event["version"]), number(&event["index"]));
                if !told.open_calls.remove(&call) {
                    self.find(
                        key,
                        &format!(
                            "version {version}: {call:?} has a second result, or was never called"
                        ),
                    );
                }
                told.spend += number(&event["cost"]);
            }
            "result" => {
                told.turns += 1;
            }
            "usage_corrected" => {
                let charged = number(&event["charged"]);
                if told.charged.remove(&number(&event["version"])) != Some(charged) {
                    self.find(
                        key,
                        &format!("version {version} corrects what was not charged"),
                    );
                }
                told.spend = told.spend + number(&event["spend"]) - charged;
                for (sum, kind) in told.tokens.iter_mut().zip(KINDS) {
                    *sum += number(&event["usage"][kind]);
                }
            }
            _ => {}
        }
    }

    /// Key of the chain whose account a chain draws on.
    fn drawn_on(&self, key: &str) -> String {
        let chain = self.chains.get(key).unwrap_or(&Value::Null);
        match chain["above"].get(0) {
            Some(above) if chain["account"]["parent"].is_null() => text(above).to_lowercase(),
            _ => key.to_owned(),
        }
    }

    fn chains(&mut self) {
        let chains = self.chains.clone();
        for chain in chains.values() {
            let account = &chain["account"];
            if !account["parent"].is_null() {
                let above = text(&account["parent"]).to_lowercase();
                let above = self.accounts.entry(above).or_default();
                above.spent += number(&account["reported"]);
                if number(&account["users"]) > 0 {
                    above.users += 1;
                    above.reserved += number(&account["limit"]) - number(&account["reported"]);
                }
            }
        }
        for (key, should) in std::mem::take(&mut self.accounts) {
            let account = &chains[&key]["account"];
            for (what, should) in [
                ("held", should.held),
                ("spent", should.spent),
                ("reserved", should.reserved),
                ("users", should.users),
            ] {
                let is = number(&account[what]);
                if is != should {
                    self.find(&key, &format!("its account says {what} {is}, not {should}"));
                }
            }
            let taken = ["spent", "held", "reserved"].map(|what| number(&account[what]));
            let (child, limit) = (!account["parent"].is_null(), &account["limit"]);
            if child && (limit.is_null() || taken.iter().sum::<u64>() > number(limit)) {
                self.find(&key, "its account has taken more than its limit");
            }
            let closed = number(&account["users"]) == 0;
            if child && closed && account["reported"] != account["spent"] {
                self.find(&key, "its account is closed and has not reported");
            }
        }
    }

    fn keys(&mut self, collection: &str, expected: &BTreeSet<String>) {
        let found: BTreeSet<String> = all(self.store, collection)
            .into_iter()
            .map(|item| item.key.name)
            .collect();
        for key in expected.difference(&found) {
            self.find(collection, &format!("{key:?} is missing"));
        }
        for key in found.difference(expected) {
            self.find(collection, &format!("{key:?} belongs to nothing"));
        }
    }
}

fn all(store: &dyn Storage, collection: &str) -> Vec<Item> {
    let (mut items, mut start) = (Vec::new(), String::new());
    loop {
        let page = store
            .scan(collection, &start, "", 500, false)
            .expect("the store answers");
        items.extend(page.items);
        match page.cursor {
            Some(cursor) => start = cursor,
            None => return items,
        }
    }
}

fn one(store: &dyn Storage, collection: &str, key: &str) -> Option<Value> {
    let keys = [threadkeep::storage::Key::new(collection, key)];
    let items = store.get(&keys).expect("the store answers");
    items.first().map(|item| json(&item.value))
}

/// Key of the last link of a chain.
fn tip(chains: &BTreeMap<String, Value>, root: &str) -> String {
    chains
        .get(root)
        .map_or(String::new(), |chain| text(&chain["tip"]).to_lowercase())
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("a record is JSON")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn millis(time: &Value) -> u64 {
    number(&time["seconds"]) * 1_000 + number(&time["nanos"]) / 1_000_000
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}
