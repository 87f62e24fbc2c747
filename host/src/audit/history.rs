//! The replay of the entries of one history, and the faults of the entries themselves.

use super::blobs::check_named_blobs;
use super::record_reader::{key_of, list, number, sha256_hex, sha256_of_parts, text};
use super::state::StateReplay;
use super::{StoreAudit, StoreInvariant, UnconfirmedFindings};
use crate::storage::StorageError;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The kinds of tokens that are counted.
pub(super) const TOKEN_KINDS: [&str; 5] = ["input", "output", "read", "write", "reasoning"];
/// Entries of one read.
pub(super) const PAGE_ENTRIES: u32 = 100;

/// An attempt that was charged without a reported usage.
struct ChargedAttempt {
    spend: u64,
    /// Tokens that were counted for it, by kind: estimated from its text, or zero.
    usage: [u64; TOKEN_KINDS.len()],
}

/// The state that a history leads to. Entries never change, so each is replayed once, also while
/// the thread continues.
pub(super) struct HistoryReplay {
    pub(super) version: u64,
    /// Version after which the thread's own entries begin, once its record was read. The position
    /// of an entry in the log is its version less this.
    base: Option<u64>,
    /// Calls that the base leaves open, which the first own entries answer; `None` where entries of
    /// the base cannot be read.
    open_in_base: Option<BTreeSet<(u64, u64)>>,
    pub(super) hash: String,
    pub(super) run: u64,
    pub(super) turns: u64,
    pub(super) run_turns: u64,
    pub(super) spend: u64,
    pub(super) tokens: [u64; 5],
    /// Calls without a result, by version and index.
    pub(super) open_calls: BTreeSet<(u64, u64)>,
    /// Decisions about calls, by version and index: `approve`, `deny` or `answer`.
    pub(super) decisions: BTreeMap<(u64, u64), String>,
    /// The hold of the runner's attempt, and those of calls of an external loop, each by the
    /// version that admitted it.
    pub(super) open_hold: Option<(u64, u64)>,
    pub(super) external_holds: BTreeMap<u64, u64>,
    /// Charged attempts that no correction has followed, by the version that admitted them.
    charged: BTreeMap<u64, ChargedAttempt>,
    /// Key of the thread in which it goes on, as the newest entry says that tells one.
    pub(super) continued_to: String,
    /// The state of the thread.
    pub(super) state: StateReplay,
    /// Faults of the entries themselves.
    pub(super) entry_findings: UnconfirmedFindings,
}

impl HistoryReplay {
    pub(super) fn new(thread: &str) -> Self {
        Self {
            version: 0,
            base: None,
            open_in_base: None,
            hash: String::new(),
            run: 0,
            turns: 0,
            run_turns: 0,
            spend: 0,
            tokens: [0; 5],
            open_calls: BTreeSet::new(),
            decisions: BTreeMap::new(),
            open_hold: None,
            external_holds: BTreeMap::new(),
            charged: BTreeMap::new(),
            continued_to: String::new(),
            state: StateReplay::new(),
            entry_findings: UnconfirmedFindings::for_thread(thread),
        }
    }

    /// Begins after the base of the thread with this record, with the hash that binds the history
    /// to its thread and chain and to the parts of the base, and with the calls that the base
    /// leaves open.
    fn begin(&mut self, thread: &Value, open_in_base: Option<BTreeSet<(u64, u64)>>) {
        self.open_in_base = open_in_base;
        let base = number(&thread["base"]["length"]);
        let mut parts = vec!["threadkeep/1", text(&thread["id"]), text(&thread["chain"])];
        let hashes = list(&thread["base"]["parts"]).iter();
        parts.extend(hashes.map(|part| text(&part["hash"])));
        self.hash = sha256_of_parts(&parts);
        self.version = base;
        self.base = Some(base);
    }

    /// Takes over the run of the link before, which `head` belongs to, if that was handed off: its
    /// turns count on. A resumed thread begins another run.
    pub(super) fn carry_run(&mut self, head: &Value) {
        if !self.has_entries() && text(&head["status"]) == "continued" {
            self.run = number(&head["run"]);
            self.run_turns = number(&head["counters"]["run_turns"]);
        }
    }

    /// Returns the version after which the thread's own entries begin.
    pub(super) fn base(&self) -> u64 {
        self.base.unwrap_or_default()
    }

    /// Returns true if an entry was replayed.
    pub(super) fn has_entries(&self) -> bool {
        self.version > self.base()
    }

    /// Replays an entry that stands at `position`.
    fn replay_entry(&mut self, position: u64, stored: &str) {
        let entry: Value = serde_json::from_str(stored).unwrap_or_default();
        let version = self.version + 1;
        let expected = version - self.base();
        if !self.has_entries() {
            self.open_calls
                .extend(self.open_in_base.iter().flatten().copied());
        }
        if position != expected || number(&entry["version"]) != version {
            let found = match entry.is_object() {
                true => format!(
                    "one that says {} at the position {position}",
                    number(&entry["version"])
                ),
                false => format!("no JSON object at the position {position}"),
            };
            self.entry_findings.add(
                StoreInvariant::Histories,
                format!("the entry {version} at the position {expected}"),
                found,
            );
        }
        if text(&entry["previous"]) != self.hash {
            let (expected, found) = match position {
                0 | 1 => (
                    "the first entry to name the hash of its thread, chain and base".to_owned(),
                    "another hash: it was changed, or is the history of another thread",
                ),
                _ => (
                    format!("the entry {version} to name the hash of the one before"),
                    "another hash: it, or the one before, was changed",
                ),
            };
            self.entry_findings
                .add(StoreInvariant::Histories, expected, found);
        }
        self.version = position.saturating_add(self.base());
        self.hash = sha256_hex(stored);
        let run = number(&entry["run"]);
        if run != self.run {
            self.run = run;
            self.run_turns = 0;
        }
        if !self.continued_to.is_empty() && text(&entry["reason"]) != "settled" {
            let expected = format!(
                "only corrections after it was continued in {}",
                self.continued_to
            );
            let found = format!("the entry {version}");
            self.entry_findings
                .add(StoreInvariant::Chains, expected, found);
        }
        let settled = Some(&entry["settled"]).filter(|settled| settled.is_object());
        for settled in settled.into_iter().chain(list(&entry["charged"])) {
            self.apply_settlement(settled);
        }
        for (index, event) in list(&entry["events"]).iter().enumerate() {
            self.apply_event(index as u64, event);
        }
        if entry["admitted"].is_object() {
            self.apply_admission(&entry["admitted"]);
        }
        let ended = &entry["ended"];
        if ended.is_object() {
            let what = format!("turns of the run that the entry {version} ends");
            let (told, said) = (self.run_turns, number(&ended["turns"]));
            self.entry_findings
                .expect_equal(StoreInvariant::Counters, &what, told, said);
        }
    }

    fn apply_admission(&mut self, admitted: &Value) {
        let (version, hold) = (self.version, number(&admitted["hold"]));
        if !admitted["key"].is_null() {
            self.external_holds.insert(version, hold);
            return;
        }
        if !self.open_calls.is_empty() {
            let expected =
                format!("results of all calls before the version {version} asks a model");
            let found = format!("{} without one", self.open_calls.len());
            self.entry_findings
                .add(StoreInvariant::Calls, expected, found);
        }
        if let Some((open, _)) = self.open_hold.replace((version, hold)) {
            let expected = format!("the attempt {open} to be settled before another is admitted");
            let found = format!("the version {version} admits one beside it");
            self.entry_findings
                .add(StoreInvariant::Holders, expected, found);
        }
    }

    fn apply_settlement(&mut self, settled: &Value) {
        let (of, hold) = (number(&settled["version"]), number(&settled["hold"]));
        let (spend, how) = (number(&settled["spend"]), text(&settled["how"]));
        let open = match self.external_holds.remove(&of) {
            Some(hold) => Some((of, hold)),
            None => self.open_hold.take(),
        };
        if open != Some((of, hold)) {
            let expected = match open {
                Some((of, hold)) => format!("the attempt {of} with a hold of {hold} nano-USD"),
                None => "no attempt".to_owned(),
            };
            let found = format!(
                "the version {} settles the attempt {of} with a hold of {hold} nano-USD",
                self.version
            );
            self.entry_findings
                .add(StoreInvariant::Ledger, expected, found);
        }
        let right = match how {
            "charged" | "estimated" => spend <= hold,
            "released" => spend == 0,
            _ => true,
        };
        if !right {
            let expected = format!("the attempt {of} {how} by the rule");
            let found = format!("a hold of {hold} and a spend of {spend} nano-USD");
            self.entry_findings
                .add(StoreInvariant::Ledger, expected, found);
        }
        if matches!(how, "charged" | "estimated") {
            let usage = TOKEN_KINDS.map(|kind| number(&settled["usage"][kind]));
            self.charged.insert(of, ChargedAttempt { spend, usage });
        }
        self.spend = self.spend.saturating_add(spend);
        self.add_usage(&settled["usage"]);
    }

    fn add_usage(&mut self, usage: &Value) {
        for (sum, kind) in self.tokens.iter_mut().zip(TOKEN_KINDS) {
            *sum = sum.saturating_add(number(&usage[kind]));
        }
    }

    fn apply_event(&mut self, index: u64, event: &Value) {
        let version = self.version;
        match text(&event["type"]) {
            "tool_use" => {
                if let Some((other, _)) = self.open_calls.iter().find(|call| call.0 != version) {
                    let expected = format!("results of the calls of the version {other}");
                    let found = format!("more calls in the version {version}");
                    self.entry_findings
                        .add(StoreInvariant::Calls, expected, found);
                }
                self.open_calls.insert((version, index));
            }
            "message" | "context_injected"
                if text(&event["role"]) == "user" && !self.open_calls.is_empty() =>
            {
                let expected = "no message between calls and their results";
                let found = format!("a user's in the version {version}");
                self.entry_findings
                    .add(StoreInvariant::Calls, expected, found);
            }
            "tool_result" => {
                let call = (number(&event["version"]), number(&event["index"]));
                let unread = self.open_in_base.is_none() && call.0 <= self.base();
                if !self.open_calls.remove(&call) && !unread {
                    let (of, at) = call;
                    let expected = format!("one result of the call {at} of the version {of}");
                    let found = format!("a second one in the version {version}, or no such call");
                    self.entry_findings
                        .add(StoreInvariant::Calls, expected, found);
                }
                self.spend = self.spend.saturating_add(number(&event["cost"]));
            }
            "consent_asked" => {
                self.spend = self.spend.saturating_add(number(&event["cost"]));
            }
            "decision" => self.apply_decision(event),
            // The summary of a thread that is handed off is no turn.
            "result" if event["summary"] == true => {}
            "result" => {
                self.turns += 1;
                self.run_turns += 1;
            }
            "usage_corrected" => self.apply_correction(event),
            "thread_handoff" | "thread_resumed" => {
                self.continued_to = key_of(&event["new_thread_id"]);
            }
            _ => {}
        }
    }

    /// A decision is about an open call, and each call has one.
    fn apply_decision(&mut self, event: &Value) {
        let call = (number(&event["version"]), number(&event["index"]));
        let decision = text(&event["decision"]).to_owned();
        let second = self.decisions.insert(call, decision).is_some();
        if second || !self.open_calls.contains(&call) {
            let (of, at) = call;
            let expected = format!("one decision about the call {at} of the version {of}");
            let found = format!(
                "in the version {} a second one, or the call is not open",
                self.version
            );
            self.entry_findings
                .add(StoreInvariant::Calls, expected, found);
        }
    }

    fn apply_correction(&mut self, event: &Value) {
        let (of, charged) = (number(&event["version"]), number(&event["charged"]));
        let attempt = self.charged.remove(&of);
        let was = attempt.as_ref().map(|attempt| attempt.spend);
        let estimated = attempt.map_or([0; TOKEN_KINDS.len()], |attempt| attempt.usage);
        // A correction that reports only money keeps the estimated tokens.
        if TOKEN_KINDS
            .iter()
            .any(|kind| number(&event["usage"][kind]) > 0)
        {
            for (sum, estimated) in self.tokens.iter_mut().zip(estimated) {
                *sum = sum.saturating_sub(estimated);
            }
        }
        if was != Some(charged) {
            let expected = match was {
                Some(was) => {
                    format!("a correction of the {was} nano-USD that the attempt {of} was charged")
                }
                None => format!(
                    "no correction of the attempt {of}: it is not charged, or was corrected"
                ),
            };
            let found = format!("one of {charged} nano-USD in the version {}", self.version);
            self.entry_findings
                .add(StoreInvariant::Ledger, expected, found);
        }
        let without = self.spend.saturating_sub(charged);
        self.spend = without.saturating_add(number(&event["spend"]));
        self.add_usage(&event["usage"]);
    }
}

impl StoreAudit<'_> {
    /// Begins a replay after the base of the thread with this record. A base never changes, so only
    /// the first call counts.
    pub(super) fn begin_replay(
        &self,
        thread: &Value,
        told: &mut HistoryReplay,
    ) -> Result<(), StorageError> {
        if told.base.is_none() {
            told.begin(thread, self.calls_open_in_base(thread)?);
        }
        Ok(())
    }

    /// Replays a history up to and including a version, or to its end if that comes first.
    pub(super) fn replay_history(
        &mut self,
        key: &str,
        told: &mut HistoryReplay,
        version: u64,
    ) -> Result<(), StorageError> {
        let last = version.saturating_sub(told.base());
        while told.version < version {
            let from = told.version - told.base() + 1;
            let limit = u64::from(PAGE_ENTRIES).min(version - told.version) as u32;
            let lines = self.storage.read_log("history", key, from, limit, false)?;
            if lines.is_empty() {
                return Ok(());
            }
            for line in lines {
                if line.position > last {
                    return Ok(());
                }
                self.report.entries += 1;
                told.replay_entry(line.position, &line.value);
                let (state, findings) = (&mut told.state, &mut told.entry_findings);
                state.replay_entry(self.storage, key, &line.value, findings)?;
                let entry = (told.version, line.value.as_str());
                check_named_blobs(self.storage, entry, &mut told.entry_findings)?;
            }
        }
        Ok(())
    }
}
