//! Late bills of attempts in earlier links: what the tip of the chain carries follows them.

use super::fixture::{DrivenChain, library_without_summary};
use crate::runner::fixture::{RunnerFixture, raise, reply, says, usage, user};
use std::rc::Rc;
use std::sync::Arc;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_component::service::{Error, ErrorKind};
use threadkeep_core::error::ErrorKind as CoreErrorKind;
use threadkeep_core::ledger::Usage;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::runner::{CallBill, HolderProof, StepSubmission};
use threadkeep_core::thread::{Head, ThreadStatus};
use threadkeep_tests::auditor::audit;
use threadkeep_tests::faulty::{DeathPoint, FaultyStore};

/// A chain whose first link lost the driver of its first attempt, and that driver's submission.
struct LateChain {
    chain: DrivenChain,
    first: String,
    late: StepSubmission,
}

impl LateChain {
    /// Loses the first attempt, which is charged by its time, and goes on under another holder.
    fn start_over(memory: &Arc<MemoryStore>, really: Option<Usage>) -> Self {
        let store = Arc::<MemoryStore>::clone(memory);
        let library = library_without_summary();
        let mut chain = DrivenChain::start_over(store, library, Some("work"), None);
        let first = chain.thread.clone();
        let late = chain.submission(reply(Vec::new(), really));
        chain.world.advance(60_000);
        let service = &chain.world.service;
        let claimed = service.claim(&first, "second/1", HolderProof::Dead);
        chain.take_step(claimed.unwrap());
        Self { chain, first, late }
    }

    fn start(really: Option<Usage>) -> Self {
        Self::start_over(&Arc::new(MemoryStore::new()), really)
    }

    /// Goes on until the chain has so many links.
    fn hand_off_to(mut self, links: usize) -> Self {
        while self.chain.links.len() < links {
            self.chain.call_tool(110);
        }
        self
    }

    /// Ends the tip, and resumes the chain in a new link.
    fn resume(mut self) -> Self {
        self.chain.say("done");
        assert_eq!(self.chain.status(), ThreadStatus::Completed);
        let n = self.chain.links.len();
        let holder = format!("r/{n}");
        let message = user("go on");
        let (service, tip) = (&self.chain.world.service, &self.chain.thread);
        let begun = service.resume(tip, Some(&message), &holder, &holder, None);
        self.chain.take_step(begun.unwrap());
        assert_eq!(self.chain.links.len(), n + 1);
        self
    }

    fn head(&self, thread: &str) -> Rc<Head> {
        self.chain.load(thread).head.value
    }

    fn tip(&self) -> Rc<Head> {
        self.head(&self.chain.thread)
    }

    fn submit_late(&self) {
        let version = self.late.version;
        let service = &self.chain.world.service;
        let done = service.submit(&self.first, &self.late, version);
        assert!(
            matches!(
                done.as_ref().map_err(Error::kind),
                Err(ErrorKind::Core(CoreErrorKind::Fenced { .. }))
            ),
            "{done:?}"
        );
    }

    /// Reports the usage late, twice; checks that every later link agrees, and returns by how much
    /// more the attempt has cost, and used in tokens of the tip's run.
    #[track_caller]
    fn check_late_report(&self) -> (i128, i128) {
        let (link, tip) = (self.head(&self.first), self.tip());
        self.submit_late();
        self.chain.world.audit();
        self.submit_late();
        self.chain.world.audit();
        let (link_now, tip_now) = (self.head(&self.first), self.tip());
        let more = difference(link.counters.spend, link_now.counters.spend);
        let carried = |head: &Head| head.carried_spend.expect("a tip of several links");
        assert_eq!(difference(carried(&tip), carried(&tip_now)), more);
        for earlier in &self.chain.links[..self.chain.links.len() - 1] {
            assert_eq!(self.head(earlier).carried_spend, None, "{earlier}");
        }
        let links = self.chain.links.iter().map(|link| self.head(link));
        let all = links
            .map(|head| head.counters.spend)
            .fold(NanoUsd::ZERO, NanoUsd::saturating_add);
        assert_eq!(tip_now.spend_under_cap(), all);
        let account = self.chain.load(&self.first).chain.value.account.clone();
        assert_eq!(account.spent, all);
        let tokens = |head: &Head| i128::from(head.counters.run_tokens);
        (more, tokens(&tip_now) - tokens(&tip))
    }
}

fn difference(before: NanoUsd, after: NanoUsd) -> i128 {
    i128::from(after.get()) - i128::from(before.get())
}

/// Symptom: after a late bill of an earlier link, the cap of the chain was passed, or reached
/// early, by the difference. Cause: what a link carries was written when it began and never again.
/// Fix: the tip alone carries, and a correction of an earlier link changes it in the same commit.
/// Kind: every number that a link takes over from one before it and that a late bill changes: the
/// spend of the chain, and the tokens of a run that goes on.
#[test]
fn a_late_bill_after_a_hand_off_is_carried_by_the_tip() {
    for links in [2, 3] {
        for really in [usage(1, 1), usage(400, 100)] {
            let late = LateChain::start(really).hand_off_to(links);
            let (more, tokens) = late.check_late_report();
            assert_eq!(more > 0, really == usage(400, 100), "{more}");
            // The model costs 1,000 nano-USD a token, and the run goes on in the tip.
            assert_eq!(tokens * 1_000, more);
        }
    }
}

/// A run that a resume began does not count the tokens of the run before.
#[test]
fn a_late_bill_after_a_resume_is_carried_by_the_tip() {
    for really in [usage(1, 1), usage(400, 100)] {
        let late = LateChain::start(really).resume();
        let (more, tokens) = late.check_late_report();
        assert!(more != 0);
        assert_eq!(tokens, 0);
        let late = LateChain::start(really).hand_off_to(2).resume().resume();
        let (more, tokens) = late.check_late_report();
        assert!(more != 0);
        assert_eq!(tokens, 0);
    }
}

/// A person's settlement of the charge does the same as the driver's report.
#[test]
fn a_charge_that_is_settled_by_amount_is_carried_by_the_tip() {
    let late = LateChain::start(usage(1, 1)).hand_off_to(3);
    let (link, tip) = (late.head(&late.first), late.tip());
    let bill = CallBill::Amount(NanoUsd::new(77));
    let service = &late.chain.world.service;
    service
        .settle(&late.first, late.late.version, bill)
        .unwrap();
    late.chain.world.audit();
    let (link_now, tip_now) = (late.head(&late.first), late.tip());
    let more = difference(link.counters.spend, link_now.counters.spend);
    assert!(more < 0, "{more}");
    let carried = difference(tip.spend_under_cap(), tip_now.spend_under_cap());
    assert_eq!(carried, more);
    assert_eq!(
        tip_now.counters.run_tokens, tip.counters.run_tokens,
        "an amount says nothing of tokens"
    );
}

/// A chain of three links and a resumed one, with this cap on spend, and with the late report of
/// the first attempt or without it.
fn resume_under_cap(really: Option<Usage>, cap: Option<NanoUsd>, reports: bool) -> LateChain {
    let late = LateChain::start(really).hand_off_to(3);
    let caps = ThreadCaps {
        spend: cap,
        ..ThreadCaps::NONE
    };
    let (service, thread) = (&late.chain.world.service, &late.chain.thread);
    service.signal(thread, "cap", &raise(caps)).unwrap();
    if reports {
        late.submit_late();
    }
    let late = late.resume();
    late.chain.world.audit();
    late
}

/// The next attempt of the chain is admitted or refused by what the late bill leaves of its cap.
#[test]
fn the_cap_of_the_chain_counts_the_late_bill() {
    let control = resume_under_cap(usage(1, 1), None, false).tip();
    let hold = control.hold.expect("an attempt is under way").amount;
    let enough = control.spend_under_cap().saturating_add(hold);
    let short = enough.saturating_sub(NanoUsd::new(1));
    for (really, cap, reports, status) in [
        (usage(1, 1), enough, false, ThreadStatus::Running),
        (usage(1, 1), short, false, ThreadStatus::Suspended),
        (usage(1, 1), short, true, ThreadStatus::Running),
        (usage(400, 100), enough, true, ThreadStatus::Suspended),
    ] {
        let late = resume_under_cap(really, Some(cap), reports);
        assert_eq!(late.chain.status(), status, "{really:?} {cap:?} {reports}");
    }
}

/// A store that dies, or whose answer is lost, at the commit of the correction leaves all of it or
/// nothing; the report, repeated, makes it whole.
#[test]
fn death_at_the_commit_of_a_late_bill_leaves_both_links_or_neither() {
    for death in [
        DeathPoint::Before(1),
        DeathPoint::After(1),
        DeathPoint::Unknown(1),
        DeathPoint::UnknownLost(1),
    ] {
        for resumed in [false, true] {
            let memory = Arc::new(MemoryStore::new());
            let late = LateChain::start_over(&memory, usage(400, 100)).hand_off_to(3);
            let late = if resumed { late.resume() } else { late };
            let before = late.tip().spend_under_cap();
            let inner = Arc::<MemoryStore>::clone(&memory);
            let faulty = Arc::new(FaultyStore::new(inner, death));
            let dying = RunnerFixture::over(faulty, library_without_summary());
            let done = dying
                .service
                .submit(&late.first, &late.late, late.late.version);
            assert!(done.is_err(), "{death:?}");
            let findings = audit(&*memory);
            assert!(findings.is_empty(), "{death:?}: {findings:#?}");
            let between = late.tip().spend_under_cap();
            assert_eq!(
                between == before,
                death == DeathPoint::Before(1),
                "{death:?}"
            );
            late.submit_late();
            late.chain.world.audit();
            assert!(late.tip().spend_under_cap() > before, "{death:?}");
        }
    }
}

/// The holder of the tip goes on with its step: the correction between is no entry of the tip.
#[test]
fn the_step_of_the_tip_stays_valid() {
    let mut late = LateChain::start(usage(400, 100)).hand_off_to(2);
    let version = late.tip().version;
    late.submit_late();
    assert_eq!(late.tip().version, version);
    late.chain.submit(says("done"));
    assert_eq!(late.chain.status(), ThreadStatus::Completed);
    late.chain.check();
}
