//! Checks of a forest in which nothing goes on by itself, and the requests that bring all of it to
//! its end.

use super::random_forest::RandomForest;
use serde_json::Value;
use threadkeep_core::history::{Event, ToolResult};
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::plan::{LoadedThread, is_to_be_resumed};
use threadkeep_core::runner::{CapRaise, Signal};
use threadkeep_core::thread::ThreadStatus;

/// Causes of suspension that the driver of a tree repairs by itself, whichever account the thread
/// draws on.
const MENDED: [&str; 3] = ["recovered", "stopped", "store_full"];

/// Returns true if the driver of the child's tree will resume it by itself.
fn is_interrupted(child: &LoadedThread) -> bool {
    let (head, chain) = (&child.head.value, &child.chain.value);
    let code = head.cause.as_ref().map_or("", |cause| &cause.code);
    let used = head.counters;
    let at = |used: u64, cap: Option<u64>| cap.is_some_and(|cap| used >= cap);
    let capped = at(used.run_turns, head.limits.turns)
        || at(used.run_tokens, head.limits.tokens)
        || at(used.run_duration, head.limits.duration);
    let shares = chain.account.parent.is_none() && !chain.above.is_empty();
    let broke = code == "spend_exceeded" && shares;
    head.status == ThreadStatus::Suspended && !capped && (MENDED.contains(&code) || broke)
}

impl RandomForest {
    /// Checks that the answer of a wait contains no interrupted child, unless its time was over or
    /// the end of another child was enough: the parent would end without that child's result.
    pub(super) fn check_wait_answer(&self, parent: &LoadedThread, result: &ToolResult) {
        let told: Value = serde_json::from_str(&result.text).unwrap();
        let entry = self.world.service.entry(parent, result.version);
        let events = entry.unwrap().unwrap().events;
        let Event::ToolUse(call) = &events[result.index as usize] else {
            panic!("a result without its call");
        };
        let asked: Value = serde_json::from_str(&call.arguments).unwrap();
        if told["timed_out"] == true || asked["any"] == true {
            return;
        }
        for child in told["threads"].as_array().unwrap() {
            let child = self.load(child["thread"].as_str().unwrap());
            let (id, head) = (&child.thread.value.id, &child.head.value);
            assert!(!is_interrupted(&child), "{id} answered a wait: {head:#?}");
        }
    }

    /// Checks a wait that is open at rest: no child answers it, and the children that hold it up
    /// cannot be revived.
    fn check_open_wait(&self, loaded: &LoadedThread) {
        for child in self.awaited_children(loaded) {
            let (id, parent) = (&child.thread.value.id, &loaded.thread.value.id);
            let stands = &child.head.value;
            assert!(
                is_interrupted(&child) || is_to_be_resumed(stands),
                "{parent} is not told of {id}: {stands:#?}"
            );
        }
    }

    /// Children that an open wait of a thread is for.
    fn awaited_children(&self, loaded: &LoadedThread) -> Vec<LoadedThread> {
        let wait = loaded.head.value.wait.as_ref();
        let numbers = wait.map_or(&[][..], |wait| &wait.numbers);
        let children = self.children(loaded).into_iter();
        children
            .filter(|child| child.is_tip() && numbers.contains(&child.chain.value.number))
            .collect()
    }

    /// Returns true if a thread waits for a child that is to be resumed and cannot be: it has no
    /// money, say. At rest each driver has tried, so the wait goes on until its time is over.
    fn waits_for_refused_resume(&self, loaded: &LoadedThread) -> bool {
        let awaited = self.awaited_children(loaded);
        loaded.head.value.status == ThreadStatus::Waiting
            && awaited
                .iter()
                .any(|child| is_to_be_resumed(&child.head.value))
    }

    /// Checks everything that must hold once nothing is left to do.
    pub fn check_at_rest(&self) {
        let all = self.load_all();
        for loaded in &all {
            let (id, head) = (&loaded.thread.value.id, &loaded.head.value);
            let moves = matches!(
                head.status,
                ThreadStatus::Created | ThreadStatus::Running | ThreadStatus::Waiting
            );
            assert!(
                !moves || self.waits_for_refused_resume(loaded),
                "{id} stays {}: {head:#?}",
                head.status
            );
            self.check_link(loaded);
            self.check_open_wait(loaded);
            let revived = is_interrupted(loaded)
                && loaded.chain.value.depth > 0
                && head
                    .cause
                    .as_ref()
                    .is_some_and(|cause| MENDED.contains(&&*cause.code));
            assert!(!revived, "{id} is not revived: {head:#?}");
            assert_eq!(
                (head.sweep, head.intent),
                (None, None),
                "{id} is {}",
                head.status
            );
            assert!(
                head.hold.is_none() && head.holds.is_empty(),
                "{id} holds money"
            );
            let drawn = all.iter().any(|other| {
                let chain = &other.chain.value;
                let own = &loaded.thread.value.chain;
                let draws =
                    chain.draws_on(&other.thread.value.chain) == own || chain.above.contains(own);
                other.head.value.status == ThreadStatus::Suspended && draws
            });
            let account = &loaded.chain.value.account;
            let nothing = (account.held, account.reserved, account.users);
            let free = drawn || nothing == (NanoUsd::ZERO, NanoUsd::ZERO, 0);
            assert!(free, "nobody uses the account of {id}: {account:?}");
            if matches!(head.status, ThreadStatus::Cancelled | ThreadStatus::Killed) {
                self.check_ended_children(loaded);
            }
        }
    }

    /// Checks that the children of a link that was cancelled or killed have ended, but for those
    /// that were spawned or resumed later.
    fn check_ended_children(&self, loaded: &LoadedThread) {
        let (id, ended) = (&loaded.thread.value.id, loaded.head.value.status);
        for child in self.children(loaded) {
            let (name, status) = (&child.thread.value.id, child.head.value.status);
            assert!(
                status.is_terminal() || self.may_go_on_below(loaded, &child),
                "{id} is {ended} and its child {name} is {status}"
            );
        }
    }

    /// Checks that a thread which has another after it has ended, and that its chain goes on there.
    fn check_link(&self, loaded: &LoadedThread) {
        let (thread, head) = (&loaded.thread.value, &loaded.head.value);
        assert_eq!(loaded.is_tip(), thread.next.is_none(), "{}", thread.id);
        let continued = head.status == ThreadStatus::Continued;
        assert!(!continued || !loaded.is_tip(), "{} ends nowhere", thread.id);
        assert!(loaded.is_tip() || head.status.is_terminal());
    }

    /// Raises and resumes every suspended thread, as often as it takes.
    pub fn end_all_threads(&mut self) {
        for round in 0..60 {
            self.settle();
            self.check_at_rest();
            let all = self.load_all().into_iter();
            let suspended: Vec<LoadedThread> = all
                .filter(|one| one.head.value.status == ThreadStatus::Suspended)
                .collect();
            let waits = self.load_all().into_iter();
            let waits = waits.filter(|one| one.head.value.status == ThreadStatus::Waiting);
            if waits.count() > 0 {
                self.count("waits for a refused resume");
                self.come_to_a_deadline();
            } else if suspended.is_empty() {
                return;
            }
            for loaded in suspended {
                self.raise_and_start(&loaded, round);
            }
            self.world.audit();
        }
        let left: Vec<_> = self
            .load_all()
            .into_iter()
            .map(|one| one.head.value.cause.clone())
            .collect();
        panic!("something is suspended for ever: {left:#?}");
    }

    fn raise_and_start(&mut self, loaded: &LoadedThread, round: u64) {
        let (id, used) = (&loaded.thread.value.id, loaded.head.value.counters);
        let owner = loaded.chain.value.draws_on(&loaded.thread.value.chain);
        let owner = self.load(owner).chain.value.tip.clone();
        let caps = ThreadCaps {
            turns: Some(used.run_turns + 50),
            tokens: Some(used.run_tokens + 1_000_000),
            spend: Some(NanoUsd::new((round + 1) * 10_000_000_000)),
            duration: Some(u64::from(u32::MAX)),
            ..ThreadCaps::NONE
        };
        let through = true;
        let name = format!("rise/{round}");
        for thread in [&owner, id] {
            let raise = Signal::Raise(CapRaise { caps, through });
            let _ = self.world.service.signal(thread, &name, &raise);
        }
        self.approve_all(id);
        let broke = loaded
            .head
            .value
            .cause
            .as_ref()
            .is_some_and(|cause| cause.reason == "budget");
        // The account of a thread that has ended cannot be raised, and nothing can be left out of a
        // conversation of which the provider counts more than its texts have.
        let left = match loaded.head.value.cause.as_ref().map(|cause| &*cause.code) {
            Some("window_exceeded" | "handoff_impossible") => Some("left without room"),
            _ if broke && owner != *id => {
                let ended = self.load(&owner).head.value.status.is_terminal();
                ended.then_some("left without money")
            }
            _ => None,
        };
        if let Some(left) = left {
            self.count(left);
            let name = format!("end/{round}");
            let cancel = Signal::Cancel;
            self.world.service.signal(id, &name, &cancel).unwrap();
        } else if !self.start(id, None) && !self.start(id, Self::fork_input(loaded)) {
            self.count("start at rest refused");
        }
    }

    /// The input that a fork is resumed with: its version may leave nothing to answer.
    fn fork_input(loaded: &LoadedThread) -> Option<&'static str> {
        let cause = loaded.head.value.cause.as_ref();
        let forked = cause.is_some_and(|cause| cause.code == "forked");
        forked.then_some("go on")
    }
}
