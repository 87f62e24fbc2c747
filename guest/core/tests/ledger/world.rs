//! Trees of chains over a store: requests of drivers and people, decided by core and committed.

use super::bugs::{PlantedBug, plant_bug};
use super::chains::{PIN_TEXT, may_resume, resolved_draft, start_request, thread_draft};
use super::random_request::RandomRequest;
use super::state_requests::add_tool_edits;
use super::store::TestStore;
use std::collections::BTreeMap;
use threadkeep_core::error::Error;
use threadkeep_core::history::Entry;
use threadkeep_core::ledger::{LedgerRefusal, TokenPrices, UnknownBill, Usage};
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::plan::{CommitPlan, DecisionContext, LoadedThread};
use threadkeep_core::runner::{
    self, CapRaise, CommitDecision, DecisionInputs, HolderProof, KeptPartial, LlmCompletion,
    LlmFailure, ReplyBlock, Signal, StartRequest, StepOutcome, StepSubmission, ToolOutcome,
    ToolState,
};
use threadkeep_core::settings::{Model, PinnedContinuation, PinnedSettings, ToolDef};
use threadkeep_core::thread::{self, ChainPlace, StepKind, ThreadStatus};
use threadkeep_core::time::UnixTime;

/// Tokens that the model takes: few, so that some threads are handed off.
const WINDOW: u64 = 2_000;

/// A driver that performs a step, or did.
#[derive(Debug, Clone)]
pub struct TestDriver {
    pub thread: String,
    pub token: u64,
    pub version: u64,
    pub last: Option<StepSubmission>,
}

/// The outcome of a request before it is committed.
pub enum RequestAnswer {
    Made(CommitDecision),
    Refused(Error),
    Denied(LedgerRefusal),
}

#[derive(Clone)]
pub struct TestWorld {
    pub store: TestStore,
    pub outcomes: BTreeMap<&'static str, u64>,
    pub bug: Option<PlantedBug>,
    pub threads: Vec<String>,
    /// Status and pending step of each thread.
    pub thread_states: BTreeMap<String, (ThreadStatus, Option<StepKind>)>,
    pub drivers: BTreeMap<String, TestDriver>,
    pub lost: Vec<TestDriver>,
    pub pin: PinnedSettings,
    now: UnixTime,
    commits: u64,
}

fn pin() -> PinnedSettings {
    let price = NanoUsd::new(1_000_000);
    PinnedSettings {
        format: 1,
        prompt: "p".to_owned(),
        model: Model {
            images: false,
            name: "m".to_owned(),
            provider: "p".to_owned(),
            window: WINDOW,
            output: 400,
            call_millis: None,
            rate: None,
            prices: Some(TokenPrices {
                input: price,
                output: price,
                read: price,
                write: price,
            }),
        },
        tools: vec![tool("read", false), tool("ask", true)],
        limits: ThreadCaps::NONE,
        capabilities: Vec::new(),
        continuation: Some(PinnedContinuation {
            trigger: 900_000,
            ceiling: 16_000,
            wait: 60_000,
            summary: None,
        }),
        approvals: Vec::new(),
    }
}

fn tool(name: &str, consent: bool) -> ToolDef {
    ToolDef {
        name: name.to_owned(),
        description: String::new(),
        schema: "{}".to_owned(),
        idempotent: !consent,
        consent,
        timeout: 1_000,
    }
}

impl TestWorld {
    pub fn new(bug: Option<PlantedBug>) -> Self {
        let mut world = Self {
            store: TestStore::default(),
            outcomes: BTreeMap::new(),
            bug,
            threads: Vec::new(),
            thread_states: BTreeMap::new(),
            drivers: BTreeMap::new(),
            lost: Vec::new(),
            pin: pin(),
            now: UnixTime {
                seconds: 1_800_000_000,
                nanos: 0,
            },
            commits: 0,
        };
        world.create_root(Some(3_000));
        world
    }

    pub fn count(&mut self, what: &'static str) {
        *self.outcomes.entry(what).or_default() += 1;
    }

    /// Performs a request; returns a problem that the books do not show.
    pub fn request(&mut self, request: &RandomRequest) -> Result<(), String> {
        match request {
            RandomRequest::Root(limit) => {
                self.create_root(*limit);
                Ok(())
            }
            RandomRequest::Clock(seconds) => {
                self.now.seconds += i64::from(*seconds) * 60;
                Ok(())
            }
            RandomRequest::Crash(n) => {
                self.crash(*n);
                Ok(())
            }
            RandomRequest::Race(one, other) => self.race(one, other),
            request => match self.decide(request) {
                Some((thread, answer)) => self.settle(request, &thread, answer),
                None => Ok(()),
            },
        }
    }

    /// Decides both requests from the same records. The second is committed too, or decided again.
    fn race(&mut self, one: &RandomRequest, other: &RandomRequest) -> Result<(), String> {
        let (first, second) = (self.decide(one), self.decide(other));
        if let Some((thread, answer)) = first {
            self.settle(one, &thread, answer)?;
        }
        if let Some((thread, answer)) = second {
            self.settle(other, &thread, answer)?;
        }
        Ok(())
    }

    /// Picks one of the threads that fit; any thread if none does.
    pub fn pick(
        &self,
        n: u16,
        fits: impl Fn(&str, ThreadStatus, Option<StepKind>) -> bool,
    ) -> String {
        let fitting: Vec<&String> = self
            .threads
            .iter()
            .filter(|thread| {
                let (status, step) = self.thread_states[*thread];
                fits(thread, status, step)
            })
            .collect();
        match fitting.len() {
            0 => self.threads[usize::from(n) % self.threads.len()].clone(),
            fits => fitting[usize::from(n) % fits].clone(),
        }
    }

    fn pick_any(&self, n: u16) -> String {
        self.pick(n, |_, _, _| true)
    }

    fn pick_driven(&self, n: u16, kind: StepKind) -> String {
        self.pick(n, |thread, _, step| {
            step == Some(kind) && self.drivers.contains_key(thread)
        })
    }

    fn pick_answered(&self, n: u16) -> String {
        self.pick(n, |thread, _, _| {
            let driver = self.drivers.get(thread);
            driver.is_some_and(|driver| driver.last.is_some())
        })
    }

    fn pick_orphan(&self, n: u16) -> String {
        self.pick(n, |thread, status, _| {
            status == ThreadStatus::Running && !self.drivers.contains_key(thread)
        })
    }

    fn driver(&self, thread: &str, kind: StepKind) -> Option<(TestDriver, LoadedThread)> {
        let driver = self.drivers.get(thread)?.clone();
        let loaded = self.store.load(thread);
        let step = loaded.head.value.step.as_ref()?;
        (step.kind == kind && loaded.head.value.token == driver.token).then_some((driver, loaded))
    }

    fn create_root(&mut self, limit: Option<u64>) {
        let limits = ThreadCaps {
            spend: limit.map(NanoUsd::new),
            ..ThreadCaps::NONE
        };
        let name = format!("root-{}", self.threads.len());
        let plan = thread::create(
            &thread_draft(&name, self.threads.len()),
            resolved_draft(limits),
            ChainPlace::Root,
            self.now,
            "000000",
        );
        let plan = plan.expect("a root can be created");
        self.commit(&plan);
        self.thread_states
            .insert(name.clone(), (ThreadStatus::Created, None));
        self.threads.push(name);
    }

    pub fn commit(&mut self, plan: &CommitPlan) -> bool {
        let mut writes = plan.writes.clone();
        if let Some(bug) = self.bug {
            plant_bug(bug, &self.store, plan, &mut writes);
        }
        self.commits += 1;
        self.store.commit(&writes)
    }

    /// Decides about a request; returns `None` if it does not fit the current state.
    pub fn decide(&self, request: &RandomRequest) -> Option<(String, RequestAnswer)> {
        let commit = format!("{:016x}", self.commits);
        let moment = DecisionContext {
            now: self.now,
            commit: &commit,
            ceiling: ThreadCaps::NONE,
            unknown_bill: UnknownBill::Estimate,
            store_full_message: None,
        };
        let (thread, decided) = match request {
            RandomRequest::Spawn(n, named) => {
                let parent = self.pick(*n, |_, status, _| may_spawn(status));
                return self.spawn(&parent, *named, moment);
            }
            RandomRequest::Start(n) => {
                self.start(self.pick(*n, |_, status, _| may_start(status)), moment)
            }
            RandomRequest::Reply(n, read, written, calls) => {
                let outcome = reply(*read, *written, *calls);
                self.submit(*n, StepKind::CallLlm, outcome, moment)?
            }
            RandomRequest::Tools(n, cost, edits) => self.tools(*n, (*cost, *edits), moment)?,
            RandomRequest::Edit(n, kind) => self.edit(*n, *kind, moment),
            RandomRequest::Decide(n, kind) => self.decide_call(*n, *kind, moment)?,
            RandomRequest::Fail(n, sent, used) => {
                let outcome = StepOutcome::Failure(LlmFailure {
                    kind: "transient".to_owned(),
                    sent: *sent || used.is_some(),
                    usage: used.map(|used| usage(used, 0)),
                    ..LlmFailure::default()
                });
                self.submit(*n, StepKind::CallLlm, outcome, moment)?
            }
            RandomRequest::Wait(n) => {
                self.submit(*n, StepKind::Wait, StepOutcome::Waited, moment)?
            }
            RandomRequest::Claim(n) => self.claim(self.pick_orphan(*n), moment)?,
            RandomRequest::Recover(n) => self.recover(self.pick_orphan(*n), moment)?,
            RandomRequest::Late(n, used) => self.submit_late(*n, *used, moment)?,
            RandomRequest::Repeat(n) => {
                self.repeat_submission(self.pick_answered(*n), false, moment)?
            }
            RandomRequest::Differ(n) => {
                self.repeat_submission(self.pick_answered(*n), true, moment)?
            }
            RandomRequest::Raise(n, amount, through) => self.raise(
                self.pick(*n, |_, status, _| status == ThreadStatus::Suspended),
                *amount,
                *through,
                moment,
            ),
            RandomRequest::Fork(n, at) => self.fork(self.pick_any(*n), *at, moment)?,
            RandomRequest::Resume(n) => {
                self.resume(self.pick(*n, |_, status, _| may_resume(status)), moment)
            }
            RandomRequest::Cancel(n) => self.signal(self.pick_any(*n), Signal::Cancel, moment),
            RandomRequest::Kill(n) => self.signal(self.pick_any(*n), Signal::Kill, moment),
            RandomRequest::Root(_)
            | RandomRequest::Clock(_)
            | RandomRequest::Crash(_)
            | RandomRequest::Race(..) => {
                return None;
            }
        };
        let answer = match decided {
            Ok(decision) => RequestAnswer::Made(decision),
            Err(error) => RequestAnswer::Refused(error),
        };
        Some((thread, answer))
    }

    fn start(
        &self,
        thread: String,
        moment: DecisionContext<'_>,
    ) -> (String, Result<CommitDecision, Error>) {
        let loaded = self.store.load(&thread);
        let (pin, fresh) = self.pin_of(&loaded);
        let (name, round) = (format!("h/{}", self.commits), self.round_of(&loaded));
        let decided = self.with_window(&loaded, &|inputs| {
            let request = StartRequest {
                round: round.as_ref(),
                ..start_request(&name, inputs)
            };
            runner::start(&loaded, Some(&pin), fresh.clone(), None, request, moment)
        });
        (thread, decided)
    }

    /// Returns the settings that a run of the thread has, and what is to be pinned if it has none.
    pub fn pin_of(&self, loaded: &LoadedThread) -> (PinnedSettings, Option<(String, String)>) {
        let pin = PinnedSettings {
            limits: loaded.head.value.limits,
            ..self.pin.clone()
        };
        let fresh = loaded.thread.value.pin.is_none();
        (pin, fresh.then(|| (PIN_TEXT.to_owned(), "pin".to_owned())))
    }

    fn submit(
        &self,
        n: u16,
        kind: StepKind,
        outcome: StepOutcome,
        moment: DecisionContext<'_>,
    ) -> Option<(String, Result<CommitDecision, Error>)> {
        let thread = self.pick_driven(n, kind);
        let (driver, loaded) = self.driver(&thread, kind)?;
        let submission = submission(&driver, outcome);
        Some((thread, self.decide_submission(&loaded, submission, moment)))
    }

    fn decide_submission(
        &self,
        loaded: &LoadedThread,
        submission: StepSubmission,
        moment: DecisionContext<'_>,
    ) -> Result<CommitDecision, Error> {
        let entry = |version: u64| {
            let text = self.store.entry_text(&loaded.thread.value, version)?;
            Some(Entry::from_text(text).expect("an entry"))
        };
        let (round, answer) = (self.round_of(loaded), entry(submission.version + 1));
        let (round, answer) = (round.as_ref(), answer.as_ref());
        let tip = (!loaded.is_tip()).then(|| Box::new(self.store.load(&loaded.chain.value.tip)));
        self.with_window(loaded, &|inputs| {
            let submission = StepSubmission {
                inputs: DecisionInputs {
                    tip: tip.clone(),
                    ..inputs
                },
                ..submission.clone()
            };
            runner::submit(loaded, Some(&self.pin), round, answer, submission, moment)
        })
    }

    fn tools(
        &self,
        n: u16,
        (cost, edits): (u64, Option<u8>),
        moment: DecisionContext<'_>,
    ) -> Option<(String, Result<CommitDecision, Error>)> {
        let thread = self.pick_driven(n, StepKind::CallTools);
        let (driver, loaded) = self.driver(&thread, StepKind::CallTools)?;
        let round = loaded.head.value.round.as_ref()?;
        let handed_out = round.calls.iter().filter(|call| !call.was_not_run());
        let outcomes = handed_out.map(|call| ToolOutcome {
            blocks: Vec::new(),
            version: round.version,
            index: call.index,
            state: ToolState::Done,
            failed: false,
            content: "42".to_owned(),
            cost: NanoUsd::new(cost),
            patches: None,
            operations: None,
        });
        let mut outcomes: Vec<ToolOutcome> = outcomes.collect();
        if let Some(kind) = edits {
            add_tool_edits(&mut outcomes, kind);
        }
        let outcome = submission(&driver, StepOutcome::ToolOutcomes(outcomes));
        Some((thread, self.decide_submission(&loaded, outcome, moment)))
    }

    fn claim(
        &self,
        thread: String,
        moment: DecisionContext<'_>,
    ) -> Option<(String, Result<CommitDecision, Error>)> {
        let loaded = self.store.load(&thread);
        // A caller that claims knows that the driver is dead.
        if self.drivers.contains_key(&thread) {
            return None;
        }
        let name = format!("c/{}", self.commits);
        let (partial, round) = (KeptPartial::default(), self.round_of(&loaded));
        let decided = self.with_window(&loaded, &|inputs| {
            let claimer = (name.as_str(), HolderProof::Dead, inputs);
            let pin = Some(&self.pin);
            runner::claim(&loaded, pin, round.as_ref(), &partial, claimer, moment)
        });
        Some((thread, decided))
    }

    fn recover(
        &self,
        thread: String,
        moment: DecisionContext<'_>,
    ) -> Option<(String, Result<CommitDecision, Error>)> {
        let loaded = self.store.load(&thread);
        if loaded.head.value.status != ThreadStatus::Running || self.drivers.contains_key(&thread) {
            return None;
        }
        let (round, partial) = (self.round_of(&loaded), KeptPartial::default());
        let decided = runner::recover(&loaded, round.as_ref(), &partial, Vec::new(), moment);
        Some((thread, decided))
    }

    /// Lets a lost driver come back with the usage that its call really had: every second time one
    /// of a link that was continued, if there is one.
    fn submit_late(
        &self,
        n: u16,
        used: u64,
        moment: DecisionContext<'_>,
    ) -> Option<(String, Result<CommitDecision, Error>)> {
        let charged = |driver: &&TestDriver| {
            let head = self.store.load(&driver.thread).head.value;
            let version = driver.version;
            head.charged
                .iter()
                .any(|charged| charged.version == version)
        };
        let earlier = |driver: &&TestDriver| !self.store.load(&driver.thread).is_tip();
        let of_charged = self.lost.iter().filter(charged);
        let (earlier, others): (Vec<&TestDriver>, Vec<&TestDriver>) = of_charged.partition(earlier);
        let of_charged = match n.is_multiple_of(2) && !earlier.is_empty() {
            true => earlier,
            false => [earlier, others].concat(),
        };
        let at = usize::from(n) % of_charged.len().max(1);
        let driver = (*of_charged.get(at)?).clone();
        let loaded = self.store.load(&driver.thread);
        let submission = submission(&driver, reply(used, 0, 0));
        (loaded.head.value.token > driver.token).then(|| {
            (
                driver.thread,
                self.decide_submission(&loaded, submission, moment),
            )
        })
    }

    /// Repeats the last submission of a driver, unchanged or with other usage.
    fn repeat_submission(
        &self,
        thread: String,
        differs: bool,
        moment: DecisionContext<'_>,
    ) -> Option<(String, Result<CommitDecision, Error>)> {
        let mut last = self.drivers.get(&thread)?.last.clone()?;
        if differs {
            last.outcome = reply(999, 999, 4);
        }
        let loaded = self.store.load(&thread);
        Some((thread, self.decide_submission(&loaded, last, moment)))
    }

    fn raise(
        &self,
        thread: String,
        amount: u64,
        through: bool,
        moment: DecisionContext<'_>,
    ) -> (String, Result<CommitDecision, Error>) {
        let chain = self.store.load(&thread).chain.value;
        let limit = match chain.has_account() {
            true => chain.account.limit,
            // The thread draws on its parent's account, and has only a cap of its own.
            false => Some(NanoUsd::ZERO),
        };
        let more = |limit: NanoUsd| limit.saturating_add(NanoUsd::new(amount));
        let caps = ThreadCaps {
            spend: limit.map(more),
            ..ThreadCaps::NONE
        };
        self.signal(thread, Signal::Raise(CapRaise { caps, through }), moment)
    }

    fn signal(
        &self,
        thread: String,
        signal: Signal,
        moment: DecisionContext<'_>,
    ) -> (String, Result<CommitDecision, Error>) {
        let loaded = self.store.load(&thread);
        let name = format!("s{}", self.commits);
        let round = self.round_of(&loaded);
        let sent = (name.as_str(), signal);
        let decided = runner::signal(&loaded, round.as_ref(), (Vec::new(), None), sent, moment);
        (thread, decided)
    }

    fn crash(&mut self, n: u16) {
        let thread = self.pick(n, |thread, _, step| {
            step.is_some() && self.drivers.contains_key(thread)
        });
        if let Some(driver) = self.drivers.remove(&thread) {
            self.lost.push(driver);
        }
    }
}

/// Says whether the runner of a thread of this status may spawn.
fn may_spawn(status: ThreadStatus) -> bool {
    status.draws_on_account() && status != ThreadStatus::Created
}

/// Says whether a thread of this status may be started.
fn may_start(status: ThreadStatus) -> bool {
    use ThreadStatus::{Created, Idle, Suspended};
    [Created, Idle, Suspended].contains(&status)
}

pub fn submission(driver: &TestDriver, outcome: StepOutcome) -> StepSubmission {
    StepSubmission {
        token: driver.token,
        version: driver.version,
        outcome,
        inputs: DecisionInputs::default(),
    }
}

fn usage(read: u64, written: u64) -> Usage {
    Usage {
        input: read,
        output: written,
        ..Usage::default()
    }
}

/// Returns a reply that makes calls: by `calls` none, or one or two of which some need consent.
pub fn reply(read: u64, written: u64, calls: u8) -> StepOutcome {
    let names: &[&str] = match calls % 8 {
        0..=3 => &[],
        4 => &["read"],
        5 => &["read", "read"],
        6 => &["ask"],
        _ => &["ask", "read"],
    };
    let used = names.iter().map(|name| ReplyBlock::ToolUse {
        id: "x".to_owned(),
        name: (*name).to_owned(),
        arguments: "{}".to_owned(),
        raw: None,
    });
    let mut blocks: Vec<ReplyBlock> = used.collect();
    if blocks.is_empty() {
        let text = "done".to_owned();
        blocks.push(ReplyBlock::Text { text });
    }
    StepOutcome::Completion(LlmCompletion {
        blocks,
        finish: "stop".to_owned(),
        // Some providers report nothing.
        usage: (read % 8 != 7).then(|| usage(read, written)),
        ..LlmCompletion::default()
    })
}
