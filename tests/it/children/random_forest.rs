//! A forest of threads under random requests: the effect of each request, and how the threads that
//! are left are brought to their ends.

mod continuations;
mod decisions;
mod due_threads;
mod state_changes;

use super::random_requests::{DEPTH, RandomCall, TreeRequest, WIDTH, caps, spawn};
use crate::runner::fixture::{RunnerFixture, calls, fails, raise, reply, says, usage, user};
use continuations::library;
use serde_json::json;
use state_changes::ForestBlobs;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_component::ports::HostPorts;
use threadkeep_core::history::{Event, parse_user};
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::plan::LoadedThread;
use threadkeep_core::runner::{
    CapRaise, DecisionInputs, HolderProof, LlmFailure, ReplyBlock, Signal, StepOutcome,
    StepSubmission,
};
use threadkeep_core::thread::{CreatorOverrides, StepKind, ThreadDraft, ThreadStatus};

/// Trees, the drivers of their threads, and the drivers that were fenced.
pub struct RandomForest {
    pub world: RunnerFixture,
    tops: Vec<String>,
    /// Results of drivers that have lost their thread to another.
    fenced: Vec<(String, StepSubmission)>,
    /// Cursor at which a thread's sweep goes on.
    pages: BTreeMap<String, String>,
    /// Most runs under way at once, as an operator's policy bounds them.
    runs_max: usize,
    /// Number of the last child of each link that has ended and was resumed.
    last_children: BTreeMap<String, u64>,
    /// Chains that were resumed, each with a link above it that was cancelled or killed before.
    resumed_below: BTreeSet<(String, String)>,
    blobs: ForestBlobs,
}

impl RandomForest {
    /// Builds a boss with 0.5 USD and a chat, both of which may spawn.
    pub fn new() -> Self {
        let mut world = RunnerFixture::over(Arc::new(MemoryStore::new()), library());
        let boss = world.create(Some("boss"));
        let overrides = CreatorOverrides {
            capabilities: vec!["execute.tool.*".to_owned()],
            ..CreatorOverrides::default()
        };
        let chat = ThreadDraft {
            overrides,
            ..ThreadDraft::default()
        };
        let chat = world.service.create(&chat).unwrap().thread.value.id.clone();
        world.threads.push(chat.clone());
        world.start(&boss, None).unwrap();
        let more = raise(ThreadCaps {
            spend: Some(NanoUsd::new(500_000_000)),
            ..ThreadCaps::NONE
        });
        world.service.signal(&boss, "more", &more).unwrap();
        world.start(&chat, Some("have it done")).unwrap();
        let tops = vec![boss, chat];
        Self {
            world,
            tops,
            fenced: Vec::new(),
            pages: BTreeMap::new(),
            runs_max: usize::MAX,
            last_children: BTreeMap::new(),
            resumed_below: BTreeSet::new(),
            blobs: ForestBlobs::default(),
        }
    }

    pub fn load(&self, thread: &str) -> LoadedThread {
        self.world.service.load(thread).unwrap()
    }

    pub fn load_all(&self) -> Vec<LoadedThread> {
        let threads = self.world.threads.iter();
        threads.map(|thread| self.load(thread)).collect()
    }

    /// Selects a thread; three times of four one that has not ended, if there is one.
    fn pick_thread(&self, n: u8) -> String {
        let threads = &self.world.threads;
        let live: Vec<&String> = threads
            .iter()
            .filter(|thread| !self.load(thread).head.value.status.is_terminal())
            .collect();
        let n = usize::from(n);
        match n % 4 > 0 && !live.is_empty() {
            true => live[n / 4 % live.len()].clone(),
            false => threads[n / 4 % threads.len()].clone(),
        }
    }

    /// Selects a thread whose driver has a pending step, if there is one.
    fn pick_busy(&self, n: u8) -> Option<String> {
        let busy: Vec<&String> = self
            .world
            .held
            .keys()
            .filter(|thread| self.is_holder(thread))
            .collect();
        let n = usize::from(n);
        (!busy.is_empty()).then(|| busy[n % busy.len()].clone())
    }

    /// Returns true if the supposed driver of the thread still holds it.
    fn is_holder(&self, thread: &str) -> bool {
        let held = &self.world.held[thread];
        let head = self.load(thread).head.value;
        head.token == held.token && head.status == ThreadStatus::Running
    }

    pub(super) fn count(&mut self, what: &str) {
        self.world.count(what);
    }

    fn count_outcome(&mut self, what: &str, done: bool) {
        self.count(&format!("{what}{}", if done { "" } else { " refused" }));
    }

    pub fn perform(&mut self, request: TreeRequest) {
        match request {
            TreeRequest::Start(t, input) => {
                let thread = self.pick_thread(t);
                let done = self.start(&thread, input.then_some("go on"));
                self.count_outcome("start", done);
            }
            TreeRequest::Reply(t, wanted) => {
                if let Some(thread) = self.pick_busy(t) {
                    self.answer(&thread, t, &wanted);
                }
            }
            TreeRequest::Fail(t, kind, sent) => self.fail(t, kind, sent),
            TreeRequest::Stop(t) => {
                if let Some(thread) = self.pick_busy(t) {
                    let outcome = StepOutcome::Stopped(fails("cancelled", true));
                    self.submit(&thread, outcome, "stop");
                }
            }
            TreeRequest::Claim(t, proof) => {
                let thread = self.pick_thread(t);
                self.claim(&thread, proof);
            }
            TreeRequest::Recover(t) => self.recover(t),
            TreeRequest::Late(t) => self.submit_late(t),
            TreeRequest::Signal(t, name, kind) => self.signal(t, name, kind),
            TreeRequest::Sweep(t, page) => self.sweep_page(t, page),
            TreeRequest::Due(n) => self.one_due(n),
            TreeRequest::Advance(millis) => self.world.advance(u64::from(millis)),
            TreeRequest::Deadline => self.come_to_a_deadline(),
            TreeRequest::Costly(t, n) => self.submit_costly_call(t, n),
            TreeRequest::Runs(n) if n % 8 < 4 => self.runs_max = 1 + usize::from(n % 4),
            TreeRequest::Runs(_) => self.runs_max = usize::MAX,
            TreeRequest::Resume(t, input) => {
                let thread = self.pick_thread(t);
                self.resume(&thread, input.then_some("go on"));
            }
            TreeRequest::Fork(t, v) => self.fork(t, v),
            TreeRequest::Full(t) => self.fill_window(t),
            TreeRequest::Decide(t, kind) => self.decide_one(t, kind),
            TreeRequest::Edit(t, kind) => self.change_state(t, kind),
            TreeRequest::StepBack(seconds) => {
                use threadkeep::clock::{ClockTime, HostClock};
                let seconds = self.world.clock.now().seconds - i64::from(seconds);
                self.world.clock.set(ClockTime { seconds, nanos: 0 });
            }
        }
    }

    /// Moves the clock to the end of the first wait that is not over.
    pub(super) fn come_to_a_deadline(&mut self) {
        let now = self.world.service.ports().now();
        let waits = self.load_all().into_iter();
        let waits = waits.filter(|one| one.head.value.status == ThreadStatus::Waiting);
        let ends = waits.filter_map(|one| one.head.value.wait.clone().map(|wait| wait.until));
        if let Some(next) = ends.filter(|until| *until > now).min() {
            self.world.advance(next.millis_since(now));
        }
    }

    /// Submits a tool call that costs up to a fourth of a tree's largest initial account.
    fn submit_costly_call(&mut self, t: u8, n: u8) {
        let Some(thread) = self.pick_busy(t) else {
            return;
        };
        if self.world.pending(&thread) != Some(StepKind::CallLlm) {
            return;
        }
        let block = ReplyBlock::ToolUse {
            id: "x".to_owned(),
            name: "read".to_owned(),
            arguments: "{}".to_owned(),
            raw: None,
        };
        let outcome = reply(vec![block], usage(u64::from(n) * 500, 5));
        self.submit(&thread, outcome, "costly");
    }

    /// Returns true if there is room for one more run.
    fn has_room(&self) -> bool {
        let held = self.world.held.keys();
        held.filter(|thread| self.is_holder(thread)).count() < self.runs_max
    }

    pub(super) fn start(&mut self, thread: &str, input: Option<&str>) -> bool {
        let begun = self.world.start(thread, input);
        if let Ok(handed) = &begun {
            self.check_hand_off(thread, handed);
        }
        begun.is_ok()
    }

    /// Submits an outcome and counts the call results in the entries that it makes.
    fn submit(&mut self, thread: &str, outcome: StepOutcome, what: &str) {
        let before = self.load(thread);
        if self.world.held[thread].handed.summary.is_some() {
            self.count("summary");
        }
        let done = self.world.submit(thread, outcome);
        self.count_outcome(what, done.is_ok());
        let mut after = self.load(thread);
        self.count_results(&after, before.head.value.version);
        if let Ok(handed) = &done {
            self.check_hand_off(thread, handed);
            after = self.load(&handed.loaded.thread.value.id);
        }
        let head = &after.head.value;
        if let (ThreadStatus::Suspended, Some(cause)) = (head.status, &head.cause) {
            self.count(&format!("suspended {}", cause.code));
        }
        if head.status == ThreadStatus::Waiting {
            self.count("waits");
        }
        let under = self.children(&after);
        if head.status.is_terminal()
            && under
                .iter()
                .any(|child| !child.head.value.status.is_terminal())
        {
            self.count(&format!("{} before its children", head.status));
        }
        self.find_children(&after);
    }

    /// Counts the call results in the entries after a version, and what these say of the state.
    fn count_results(&mut self, loaded: &LoadedThread, after: u64) {
        let mut events = Vec::new();
        for version in after + 1..=loaded.head.value.version {
            let entry = self.world.service.entry(loaded, version);
            let entry = entry.unwrap().unwrap();
            self.note_state(loaded, &entry);
            events.extend(entry.events);
        }
        for event in events {
            let Event::ToolResult(result) = event else {
                continue;
            };
            let how = match (result.failed, result.name.as_str()) {
                (true, _) => " refused",
                (false, "wait_threads") if result.text.contains(r#""timed_out":true"#) => " late",
                (false, "spawn_thread") if result.text.contains("reserved_usd") => " with money",
                (false, _) => "",
            };
            if result.name == "wait_threads" && !result.failed {
                self.check_wait_answer(loaded, &result);
            }
            self.count(&format!("{}{how}", result.name));
        }
    }

    /// Direct children of a thread.
    pub(super) fn children(&self, parent: &LoadedThread) -> Vec<LoadedThread> {
        let chain = &parent.thread.value.chain;
        let all = self.load_all().into_iter();
        all.filter(|loaded| loaded.chain.value.parent.as_ref() == Some(chain))
            .collect()
    }

    fn find_children(&mut self, parent: &LoadedThread) {
        let id = &parent.thread.value.id;
        let page = self.world.service.tree_page(id, None).unwrap();
        for (branch, _) in page.branches {
            self.world.note_thread(&branch.thread.value.id);
        }
    }

    fn answer(&mut self, thread: &str, n: u8, wanted: &[RandomCall]) {
        match self.world.pending(thread) {
            Some(StepKind::CallLlm) => {
                let outcome = self.reply(thread, n, wanted);
                self.submit(thread, outcome, "reply");
            }
            Some(StepKind::CallTools) => {
                let outcome = self.tool_outcomes(thread, n);
                self.submit(thread, outcome, "tools");
            }
            Some(StepKind::Wait) => self.submit(thread, StepOutcome::Waited, "waited"),
            Some(StepKind::ExternalLoop) | None => {}
        }
    }

    fn reply(&self, thread: &str, n: u8, wanted: &[RandomCall]) -> StepOutcome {
        let loaded = self.load(thread);
        let (mut names, mut children) = (Vec::new(), loaded.chain.value.children);
        for call in wanted {
            if let RandomCall::Spawn(..) = call {
                // A larger tree tests nothing that one of this size does not.
                if children >= WIDTH || loaded.chain.value.depth >= DEPTH {
                    continue;
                }
                children += 1;
            }
            names.extend(self.render_call(&loaded, call));
            if let (RandomCall::Ask(_), Some((_, text))) = (call, names.last()) {
                // The wait names the child that the message went to.
                let asked: serde_json::Value = serde_json::from_str(text).unwrap();
                let wait = json!({"threads": [asked["thread"]]});
                names.push(("wait_threads", wait.to_string()));
            }
        }
        if names.is_empty() {
            return match n % 8 {
                0 => reply(
                    vec![ReplyBlock::Text {
                        text: "free".to_owned(),
                    }],
                    None,
                ),
                1 => reply(
                    vec![ReplyBlock::Text {
                        text: "dear".to_owned(),
                    }],
                    usage(9_000, 9_000),
                ),
                _ => says("done"),
            };
        }
        let texts: Vec<(&str, &str)> = names
            .iter()
            .map(|(name, text)| (*name, text.as_str()))
            .collect();
        calls(&texts)
    }

    /// Returns a call with its arguments, if there is a thread that it can name.
    fn render_call(
        &self,
        loaded: &LoadedThread,
        call: &RandomCall,
    ) -> Option<(&'static str, String)> {
        let own: Vec<String> = self
            .children(loaded)
            .into_iter()
            .map(|child| child.thread.value.id.clone())
            .collect();
        let names = match call {
            RandomCall::Send(n)
            | RandomCall::Ask(n)
            | RandomCall::Stop(n, _)
            | RandomCall::Resume(n)
            | RandomCall::Look(n) => Some(*n),
            _ => None,
        };
        // Sometimes names a thread that may be out of its reach.
        if own.is_empty() && names.is_some_and(|n| !n.is_multiple_of(8)) {
            return None;
        }
        let one = |n: u8| match n.is_multiple_of(8) {
            true => self.pick_thread(n / 8),
            false => own[usize::from(n) % own.len()].clone(),
        };
        let (name, arguments) = match call {
            RandomCall::Spawn(directive, limits) => ("spawn_thread", spawn(*directive, *limits)),
            RandomCall::Wait(which, time) => {
                let mut wait = json!({"any": which.is_multiple_of(3)});
                if which % 4 > 1 && !own.is_empty() {
                    wait["threads"] = json!(own);
                }
                if time.is_multiple_of(2) {
                    wait["timeout"] = json!(u64::from(*time) * 2);
                }
                ("wait_threads", wait)
            }
            RandomCall::Send(n) | RandomCall::Ask(n) => (
                "send_message",
                json!({"thread": one(*n), "message": "look again"}),
            ),
            RandomCall::Stop(n, false) => ("cancel_thread", json!({"thread": one(*n)})),
            RandomCall::Stop(n, true) => ("kill_thread", json!({"thread": one(*n)})),
            RandomCall::Resume(n) => (
                "resume_thread",
                json!({"thread": one(*n), "message": "do it again"}),
            ),
            RandomCall::Look(n) => match n % 4 {
                0 => ("list_threads", json!({})),
                1 => ("aggregate_results", json!({})),
                2 => ("read_transcript", json!({"thread": one(*n)})),
                _ => ("thread_status", json!({"thread": one(*n)})),
            },
            RandomCall::Read => ("read", json!({})),
            RandomCall::Write => ("write", json!({})),
            RandomCall::Consent => ("ask", json!({})),
            RandomCall::Wrong => ("spwan", json!({})),
        };
        Some((name, arguments.to_string()))
    }

    fn fail(&mut self, t: u8, kind: u8, sent: bool) {
        const KINDS: [&str; 4] = ["transient", "rate-limited", "permanent", "quota"];
        let Some(thread) = self.pick_busy(t) else {
            return;
        };
        if self.world.pending(&thread) != Some(StepKind::CallLlm) {
            return;
        }
        let failure = LlmFailure {
            usage: kind.is_multiple_of(4).then(|| usage(50, 5)).flatten(),
            partial: if kind.is_multiple_of(3) { "half a" } else { "" }.to_owned(),
            ..fails(KINDS[usize::from(kind) % KINDS.len()], sent)
        };
        self.submit(&thread, StepOutcome::Failure(failure), "fail");
    }

    /// The submission that the thread's driver would still make after losing the thread.
    fn last_submission(&self, thread: &str) -> Option<(String, StepSubmission)> {
        let held = self.world.held.get(thread)?;
        let pending = held.handed.step.kind == Some(StepKind::CallLlm);
        pending.then(|| {
            let submission = StepSubmission {
                token: held.token,
                version: held.handed.step.version,
                outcome: says("late"),
                inputs: DecisionInputs::default(),
            };
            (thread.to_owned(), submission)
        })
    }

    fn claim(&mut self, thread: &str, proof: u8) -> bool {
        let loaded = self.load(thread);
        let head = &loaded.head.value;
        let step = head.step.as_ref().map_or(0, |step| step.version);
        let partial = self.world.service.partial(&loaded).unwrap().version;
        let proof = match proof % 4 {
            0 => HolderProof::Dead,
            1 => HolderProof::None,
            2 => HolderProof::Watched { step, partial },
            _ => HolderProof::Watched {
                step: step + 1,
                partial,
            },
        };
        let waiting = head.status == ThreadStatus::Waiting;
        let word = self.last_submission(thread);
        let holder = format!("claimer/{}", self.world.counts.values().sum::<u64>());
        let claimed = self.world.service.claim(thread, &holder, proof);
        let done = claimed.is_ok();
        if let Ok(handed) = &claimed {
            self.check_hand_off(thread, handed);
        }
        // A claim that finds nothing to do yet leaves no holder.
        if let Ok(handed) = &claimed
            && handed.step.kind.is_some()
        {
            self.fenced.extend(word.filter(|_| !waiting));
            let _ = self.world.hold(thread, claimed);
        }
        let after = self.load(thread);
        if waiting {
            self.count_results(&after, loaded.head.value.version);
        }
        let head = &after.head.value;
        if let (true, ThreadStatus::Suspended, Some(cause)) = (waiting, head.status, &head.cause) {
            self.count(&format!("suspended by its child {}", cause.code));
        }
        self.count_outcome(if waiting { "wake" } else { "claim" }, done);
        done && after.head.value != loaded.head.value
    }

    fn recover(&mut self, t: u8) {
        let held: Vec<String> = match t % 4 {
            0 => self.world.held.keys().cloned().collect(),
            _ => self.pick_busy(t).into_iter().collect(),
        };
        let words: Vec<_> = held
            .iter()
            .filter_map(|thread| self.last_submission(thread))
            .collect();
        let heads = held
            .iter()
            .map(|thread| self.load(thread).head.value.holder.clone());
        let dead: Vec<String> = heads.flatten().collect();
        for closed in self.world.service.recover(&dead, None).unwrap().closed {
            self.count("recover");
            let cause = self.load(&closed).head.value.cause.clone();
            self.count(&format!(
                "suspended {}",
                cause.map_or(String::new(), |cause| cause.code)
            ));
            self.fenced.extend(
                words
                    .iter()
                    .filter(|(thread, _)| *thread == closed)
                    .cloned(),
            );
        }
    }

    fn submit_late(&mut self, t: u8) {
        if self.fenced.is_empty() {
            return;
        }
        let at = usize::from(t) % self.fenced.len();
        let (thread, submission) = self.fenced[at].clone();
        let before = self.load(&thread).head.value;
        let said = self
            .world
            .service
            .submit(&thread, &submission, submission.version);
        assert!(said.is_err(), "a fenced driver wrote");
        let told = self.load(&thread).head.value != before;
        self.count(if told {
            "late truth"
        } else {
            "late truth known"
        });
    }

    fn signal(&mut self, t: u8, name: u8, kind: u8) {
        let thread = self.pick_thread(t);
        let (what, signal) = match kind % 16 {
            0..=5 => (
                "message",
                Signal::Message(parse_user(&user("by the way")).unwrap()),
            ),
            6..=9 => ("raise", raise(caps(u64::from(kind)))),
            10..=12 => {
                let (caps, through) = (caps(u64::from(kind) << 4), true);
                ("raise through", Signal::Raise(CapRaise { caps, through }))
            }
            13 | 14 => ("cancel", Signal::Cancel),
            _ => ("kill", Signal::Kill),
        };
        let name = format!("{what}/{}", name % 8);
        let done = self.world.service.signal(&thread, &name, &signal).is_ok();
        self.count_outcome(what, done);
    }

    /// Sweeps one page: from the beginning, or where the last one stopped.
    fn sweep_page(&mut self, t: u8, page: u8) {
        let all = self.load_all();
        let sweeping: Vec<&LoadedThread> = all
            .iter()
            .filter(|one| one.head.value.sweep.is_some())
            .collect();
        if sweeping.is_empty() {
            return;
        }
        let thread = sweeping[usize::from(t) % sweeping.len()]
            .thread
            .value
            .id
            .clone();
        let cursor = self
            .pages
            .remove(&thread)
            .filter(|_| !page.is_multiple_of(3));
        if let Some(next) = self
            .world
            .service
            .sweep_page(&thread, cursor)
            .unwrap()
            .cursor
        {
            self.pages.insert(thread, next);
        }
        self.count("sweep");
    }
}
