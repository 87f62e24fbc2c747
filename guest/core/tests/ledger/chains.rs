//! Requests that create threads: spawns, forks, resumes; and the live window that a hand-off asks
//! for.

use super::store::TestStore;
use super::world::{RequestAnswer, TestWorld};
use std::rc::Rc;
use threadkeep_core::continuation::{LiveWindow, WindowEntry, WindowNeeds};
use threadkeep_core::error::Error;
use threadkeep_core::history::{Entry, Message, MessageRole};
use threadkeep_core::ledger::ReserveGrant;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::plan::{DecisionContext, LoadedThread, StoredRecord, ThreadChange};
use threadkeep_core::runner::{
    self, CommitDecision, DecisionInputs, ForkPoint, ForkRequest, ResumeRequest, StartRequest,
};
use threadkeep_core::thread::{
    self, ChainPlace, HistoryPath, PathReplay, ResolvedDraft, SpawnParent, ThreadDraft,
    ThreadRecord, ThreadStatus, WindowCount,
};
use threadkeep_core::{id, key};

/// Deepest level of chains below a root, and most children of one chain.
const DEPTH_MAX: u64 = 8;
const WIDTH_MAX: u64 = 16;

/// Text of the stored pin of every thread.
pub const PIN_TEXT: &str = "{}";

impl TestWorld {
    /// Spawns a child; every third is a directive's thread, which ends with its run.
    pub fn spawn(
        &self,
        parent: &str,
        named: Option<(u64, bool)>,
        moment: DecisionContext<'_>,
    ) -> Option<(String, RequestAnswer)> {
        let loaded = self.store.load(parent);
        let (depth, children) = (loaded.chain.value.depth, loaded.chain.value.children);
        let runs = loaded.head.value.status.draws_on_account() && loaded.head.value.run > 0;
        if !runs || depth >= DEPTH_MAX || children >= WIDTH_MAX {
            return None;
        }
        let grant = named.map(|(amount, rest)| match rest {
            true => ReserveGrant::AtMost(NanoUsd::new(amount)),
            false => ReserveGrant::Exactly(NanoUsd::new(amount)),
        });
        let mut change = ThreadChange::new(&loaded, moment);
        let funds = match change.fund_child(grant) {
            Ok(funds) => funds,
            Err(refusal) => return Some((parent.to_owned(), RequestAnswer::Denied(refusal))),
        };
        let number = change.chain_mut().add_child();
        let chain = loaded.thread.value.chain.clone();
        let under = SpawnParent {
            thread: parent,
            chain: &chain,
            number,
            depth: change.chain.depth + 1,
            funds,
        };
        let name = format!("{parent}/c{}", self.threads.len());
        let child = thread::create(
            &thread_draft(&name, self.threads.len()),
            resolved_draft(ThreadCaps::NONE),
            ChainPlace::Child(under),
            moment.now,
            "000000",
        );
        change.add_created(child.ok()?).ok()?;
        let plan = change.into_head_plan().expect("money is consistent");
        Some((name, RequestAnswer::Made(CommitDecision::Commit(plan))))
    }

    /// Forks a thread at a version of its path, sometimes at one that it does not have.
    pub fn fork(
        &self,
        thread: String,
        at: u16,
        moment: DecisionContext<'_>,
    ) -> Option<(String, Result<CommitDecision, Error>)> {
        let original = self.store.load(&thread);
        let newest = original.head.value.version;
        let version = u64::from(at) % (newest + 1) + 1;
        let record = &original.thread.value;
        let path = HistoryPath::of(record, newest).until(version);
        let mut replay = PathReplay::new(WindowCount::default());
        for (of, entry) in self.store.path_entries(&path) {
            let own = id::key(&of.id) == original.key();
            replay.replay(&entry, own);
        }
        let hash_of = |version| self.store.hash_at(&path, version);
        let base = path.to_base(&hash_of).expect("its hashes are known")?;
        let name = format!("fork-{}", moment.commit);
        let request = ForkRequest::parse((&thread, version), &name, None).expect("it is valid");
        let pinned = record.pin.is_some();
        let state = self.state_of_version(&path, version);
        let point = ForkPoint {
            original: &original,
            version,
            base: &base,
            replay: &replay,
            state: &state,
            pin: pinned.then_some((&self.pin, PIN_TEXT)),
        };
        let plan = runner::fork(&request, point, moment, moment.commit);
        Some((thread, plan.map(CommitDecision::Commit)))
    }

    /// Resumes the tip of a chain that has ended; any link but the tip is refused.
    pub fn resume(
        &self,
        thread: String,
        moment: DecisionContext<'_>,
    ) -> (String, Result<CommitDecision, Error>) {
        let loaded = self.store.load(&thread);
        let (record, newest) = (&loaded.thread.value, loaded.head.value.version);
        let path = HistoryPath::of(record, newest);
        let open = path.ranges.iter().filter(|range| range.hash.is_none());
        let hashes = open.filter_map(|range| {
            let hash = self.store.hash_at(&path, range.to)?;
            Some((range.to, hash))
        });
        let name = format!("r/{}", moment.commit);
        let request = ResumeRequest {
            start: start_request(&name, DecisionInputs::default()),
            random: moment.commit,
            hashes: hashes.collect(),
        };
        let (pin, fresh) = self.pin_of(&loaded);
        let decided = runner::resume(&loaded, Some(&pin), fresh, request, moment);
        (thread, decided)
    }

    /// Decides; once more with the live window where the decision asks for it.
    pub fn with_window(
        &self,
        loaded: &LoadedThread,
        decide: &dyn Fn(DecisionInputs) -> Result<CommitDecision, Error>,
    ) -> Result<CommitDecision, Error> {
        match decide(self.inputs_of(loaded))? {
            CommitDecision::NeedsWindow(needs) => decide(DecisionInputs {
                window: Some(self.window(loaded, needs)),
                ..self.inputs_of(loaded)
            }),
            decided => Ok(decided),
        }
    }

    /// Loads the whole live window of a thread.
    fn window(&self, loaded: &LoadedThread, needs: WindowNeeds) -> LiveWindow {
        let path = HistoryPath::of(&loaded.thread.value, loaded.head.value.version);
        let entries = self.store.path_entries(&path).into_iter();
        let mut entries: Vec<WindowEntry> = entries
            .map(|(of, entry)| {
                let text = entry.to_text();
                WindowEntry::of_stored(&of.id, entry, &text)
            })
            .collect();
        let injected = entries.first().is_some_and(WindowEntry::is_injected);
        let context = injected.then(|| entries.remove(0));
        let mut window = LiveWindow::new(needs, context, entries.len() as u64);
        for entry in entries.into_iter().rev() {
            window.push_older(entry);
        }
        window
    }
}

impl TestStore {
    /// The entries of a path, in order, each with the record of its thread.
    fn path_entries(&self, path: &HistoryPath<'_>) -> Vec<(Rc<ThreadRecord>, Entry)> {
        let mut entries = Vec::new();
        for range in &path.ranges {
            let record: Rc<ThreadRecord> = self.get(key::THREAD, &id::key(range.thread)).value;
            let read = (range.from..=range.to).map(|version| {
                let text = self.entry_text(&record, version).expect("it is there");
                (
                    Rc::clone(&record),
                    Entry::from_text(text).expect("an entry"),
                )
            });
            entries.extend(read);
        }
        entries
    }

    /// The hash of the entry of a version on a path.
    fn hash_at(&self, path: &HistoryPath<'_>, version: u64) -> Option<String> {
        let range = path.range_of(version)?;
        let of: StoredRecord<ThreadRecord> = self.get(key::THREAD, &id::key(range.thread));
        self.entry_text(&of.value, version).map(Entry::hash_of)
    }
}

/// A request to begin a run with a message.
pub fn start_request(name: &str, inputs: DecisionInputs) -> StartRequest<'_> {
    StartRequest {
        input: Some(Message::text(MessageRole::User, "go")),
        holder: name,
        key: name,
        about: None,
        inputs,
        round: None,
    }
}

/// A draft of the thread of this number: every third is a directive's.
pub fn thread_draft(id: &str, number: usize) -> ThreadDraft {
    ThreadDraft {
        id: Some(id.to_owned()),
        directive: (number % 3 == 1).then(|| "d".to_owned()),
        ..ThreadDraft::default()
    }
}

pub fn resolved_draft(limits: ThreadCaps) -> ResolvedDraft {
    ResolvedDraft {
        model: "m".to_owned(),
        limits,
        capabilities: Vec::new(),
        inputs: "{}".to_owned(),
        reserve: None,
    }
}

/// Says whether a thread of this status may be resumed in a successor.
pub fn may_resume(status: ThreadStatus) -> bool {
    status.is_terminal() && status != ThreadStatus::Continued
}
