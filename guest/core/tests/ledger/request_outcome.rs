//! The outcome of a request: committed or refused, counted, and checked for changes that no commit
//! may make.

use super::random_request::RandomRequest;
use super::world::{RequestAnswer, TestDriver, TestWorld, reply, submission};
use threadkeep_core::error::{Error, ErrorKind};
use threadkeep_core::history::{CostSource, Entry, Event};
use threadkeep_core::ledger::LedgerRefusal;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::plan::{CommitPlan, StoreWrite};
use threadkeep_core::runner::CommitDecision;
use threadkeep_core::state::StateChange;
use threadkeep_core::thread::{DecisionVerdict, ThreadStatus};
use threadkeep_core::{id, key};

impl TestWorld {
    /// Commits a decision, counts its outcome and checks its effects.
    pub fn settle(
        &mut self,
        request: &RandomRequest,
        thread: &str,
        answer: RequestAnswer,
    ) -> Result<(), String> {
        let (plan, late) = match answer {
            RequestAnswer::Made(CommitDecision::Repeat) => {
                self.count("replay");
                return Ok(());
            }
            RequestAnswer::Made(CommitDecision::Commit(plan)) => (plan, false),
            RequestAnswer::Made(CommitDecision::NeedsWindow(_)) => {
                return Err("the whole window was given already".to_owned());
            }
            RequestAnswer::Made(CommitDecision::CommitThenFail(plan, _)) => (plan, true),
            RequestAnswer::Denied(LedgerRefusal::Integrity(problem)) => {
                return Err(problem.to_owned());
            }
            RequestAnswer::Denied(_) => {
                self.count("denied");
                return Ok(());
            }
            RequestAnswer::Refused(error) => return self.count_refusal(request, error),
        };
        let before = self.account_figures(thread);
        if !self.commit(&plan) {
            self.count("conflict");
            return match self.decide(request) {
                Some((thread, answer)) => self.settle(request, &thread, answer),
                None => Ok(()),
            };
        }
        if late {
            self.count("fenced");
        }
        if let RandomRequest::Spawn(_, named) = request {
            self.threads.push(thread.to_owned());
            self.thread_states
                .insert(thread.to_owned(), (ThreadStatus::Created, None));
            self.count(if named.is_some() {
                "reserved"
            } else {
                "shared"
            });
        }
        self.track_driver(request, thread, &plan);
        self.track_links(request, thread, &plan);
        self.check_cap(&plan)?;
        self.check_debts(thread, before, &plan)
    }

    /// Counts what the commit did to chains, and takes over a thread that it created beside the one
    /// that the request names: a fork, or the next link of a chain with its driver.
    fn track_links(&mut self, request: &RandomRequest, thread: &str, plan: &CommitPlan) {
        let made = &plan.thread;
        if made.id == thread || matches!(request, RandomRequest::Spawn(..)) {
            let corrects = entries_of(plan).iter().any(is_correction);
            if corrects && plan.chain.tip != made.id {
                self.count("corrected in an earlier link");
            }
            return;
        }
        self.threads.push(made.id.clone());
        if let RandomRequest::Fork(..) = request {
            self.count("forked");
            if plan.head.state.is_some() {
                self.count("forked with a state");
            }
            return;
        }
        let closed = self.store.load(thread).head.value;
        let handed_off = closed.status == ThreadStatus::Continued;
        self.thread_states
            .insert(thread.to_owned(), (closed.status, None));
        self.drivers.remove(thread);
        let step = plan.head.step.as_ref();
        let driver = TestDriver {
            thread: made.id.clone(),
            token: plan.head.token,
            version: step.map_or(0, |step| step.version),
            last: None,
        };
        self.drivers.insert(made.id.clone(), driver);
        self.count(match handed_off {
            true => "handed off",
            false => "resumed",
        });
    }

    /// Checks that an attempt is within the cap on spend of its chain: caps never start again.
    fn check_cap(&self, plan: &CommitPlan) -> Result<(), String> {
        let admitted = plan
            .entry
            .as_ref()
            .and_then(|entry| entry.admitted.as_ref());
        let (Some(admitted), Some(cap)) = (admitted, plan.head.limits.spend) else {
            return Ok(());
        };
        let mut spent = plan.head.counters.spend.saturating_add(admitted.hold);
        let mut before = plan.thread.previous.clone();
        while let Some(link) = before {
            let loaded = self.store.load(&link);
            spent = spent.saturating_add(loaded.head.value.counters.spend);
            before = loaded.thread.value.previous.clone();
        }
        match spent <= cap {
            true => Ok(()),
            false => Err(format!(
                "the chain of {} comes to {spent:?} with an attempt, and its cap is {cap:?}",
                plan.thread.id
            )),
        }
    }

    fn count_refusal(&mut self, request: &RandomRequest, error: Error) -> Result<(), String> {
        match (request, error.into_kind()) {
            (_, ErrorKind::Corrupt(problem)) => return Err(format!("it stumbled: {problem}")),
            (_, ErrorKind::Fenced { .. }) => self.count("fenced"),
            (_, ErrorKind::Exceeded(_)) => self.count("denied"),
            (RandomRequest::Differ(_), ErrorKind::Conflict { .. }) => self.count("integrity error"),
            (RandomRequest::Edit(..), ErrorKind::Invalid { .. }) => self.count("edits refused"),
            _ => self.count("refused"),
        }
        Ok(())
    }

    /// Counts what an entry says of the state and of calls that need consent.
    fn count_changes(&mut self, entry: &Entry) {
        let change = entry.state.as_ref();
        let has = |found: fn(&StateChange) -> bool| change.is_some_and(found);
        for (what, found) in [
            ("state patched", has(|change| !change.patches.is_empty())),
            (
                "state operated on",
                has(|change| !change.operations.is_empty()),
            ),
            ("state replaced", has(|change| change.replaced)),
            (
                "state written down",
                has(|change| change.snapshot > 0 && !change.replaced),
            ),
        ] {
            if found {
                self.count(what);
            }
        }
        for event in &entry.events {
            match event {
                Event::ToolResult(result) if result.text.contains("[state not changed") => {
                    self.count("edits of a call refused");
                }
                Event::ConsentAsked(_) => self.count("asked by its tool"),
                Event::Decision(decision) => self.count(match decision.decision {
                    DecisionVerdict::Approve => "approved",
                    DecisionVerdict::Deny => "denied by a person",
                    DecisionVerdict::Answer => "answered",
                }),
                _ => {}
            }
        }
    }

    /// Records that the driver has the next step, or that its run is over.
    fn track_driver(&mut self, request: &RandomRequest, thread: &str, plan: &CommitPlan) {
        let head = &plan.head;
        let mine = plan.thread.id == thread;
        let step = head.step.as_ref().map(|step| step.kind);
        self.thread_states
            .insert(plan.thread.id.clone(), (head.status, step));
        let last = match (request, self.drivers.get(thread)) {
            (RandomRequest::Reply(_, read, written, calls), Some(driver)) => {
                Some(submission(driver, reply(*read, *written, *calls)))
            }
            _ => None,
        };
        let driver = TestDriver {
            thread: thread.to_owned(),
            token: head.token,
            version: head.step.as_ref().map_or(0, |step| step.version),
            last,
        };
        match request {
            RandomRequest::Start(_) | RandomRequest::Claim(_) if mine => {
                self.drivers.insert(thread.to_owned(), driver);
            }
            RandomRequest::Reply(..)
            | RandomRequest::Tools(..)
            | RandomRequest::Fail(..)
            | RandomRequest::Wait(_) => {
                self.drivers.insert(thread.to_owned(), driver);
            }
            // The driver does not know yet that its run was killed, and comes back later.
            RandomRequest::Kill(_) => {
                let driver = self.drivers.remove(thread);
                self.lost.extend(driver);
            }
            _ => {}
        }
        for entry in entries_of(plan) {
            self.count_changes(&entry);
            if entry.admitted.is_some() {
                self.count("admitted");
            }
            match entry.settled.as_ref().map(|settled| settled.how) {
                Some(CostSource::Settled) => self.count("settled"),
                Some(CostSource::Released) => self.count("released"),
                Some(CostSource::Estimated) => self.count("estimated"),
                Some(CostSource::Charged) => self.count("charged"),
                None => {}
            }
            let corrected = |event: &&Event| event.kind() == "usage_corrected";
            for _ in entry.events.iter().filter(corrected) {
                self.count("corrected");
            }
        }
        let cause = head.cause.as_ref().filter(|_| plan.entry.is_some());
        match cause.filter(|_| mine).map(|cause| &*cause.reason) {
            Some("budget") => self.count("denied"),
            Some("approval") => self.count("stopped for approval"),
            _ => {}
        }
    }

    /// Returns limit, debt and users of the accounts on a thread's path, from the one in use
    /// upwards.
    fn account_figures(&self, thread: &str) -> Vec<(u64, u64, u32)> {
        if self.store.text(key::THREAD, &id::key(thread)).is_none() {
            return Vec::new();
        }
        let loaded = self.store.load(thread);
        let own = std::iter::once(&loaded.chain);
        let accounts = own.chain(&loaded.above).map(|chain| &chain.value.account);
        accounts
            .map(|account| {
                let limit = account.limit.map_or(u64::MAX, NanoUsd::get);
                (limit, account.deficit().get(), account.users)
            })
            .collect()
    }

    /// Compares limits and debts before and after a commit; returns an error for a change that the
    /// commit may not make.
    fn check_debts(
        &mut self,
        thread: &str,
        before: Vec<(u64, u64, u32)>,
        plan: &CommitPlan,
    ) -> Result<(), String> {
        let after = self.account_figures(thread);
        if before.is_empty() {
            return Ok(());
        }
        let entries = entries_of(plan);
        let raised = |event: &Event| event.kind() == "raised";
        let raised = entries.iter().any(|entry| entry.events.iter().any(raised));
        let spends = entries.iter().any(|entry| {
            let costs = ["tool_result", "consent_asked", "usage_corrected"];
            let spent = |event: &Event| costs.contains(&event.kind());
            entry.settled.is_some() || entry.events.iter().any(spent)
        });
        for ((limit, missing, users), (limit_now, missing_now, users_now)) in
            before.into_iter().zip(after)
        {
            if limit_now > limit && spends && !raised {
                self.count("overrun");
            }
            if missing_now > missing {
                if !spends {
                    return Err(format!("{thread}: a debt without a cost"));
                }
                self.count("debt");
            }
            if users == 0 && users_now > 0 {
                self.count("reopened");
            }
            if users > 0 && users_now == 0 {
                self.count("closed");
            }
        }
        let admitted = entries.iter().any(|entry| entry.admitted.is_some());
        let owed = self.store.load(thread).account().deficit();
        match admitted && owed > NanoUsd::ZERO {
            true => Err(format!("{thread}: admitted on an account in debt")),
            false => Ok(()),
        }
    }
}

/// The entries that a plan appends, of whichever threads.
fn entries_of(plan: &CommitPlan) -> Vec<Entry> {
    let entries = plan.writes.iter().filter_map(|write| match write {
        StoreWrite::Append { log, value, .. } => {
            let history = *log != key::STATE;
            history.then(|| Entry::from_text(value).expect("an entry"))
        }
        StoreWrite::Check { .. }
        | StoreWrite::Put { .. }
        | StoreWrite::Delete { .. }
        | StoreWrite::Trim { .. } => None,
    });
    entries.collect()
}

fn is_correction(entry: &Entry) -> bool {
    let mut events = entry.events.iter();
    events.any(|event| event.kind() == "usage_corrected")
}
