//! Forks, resumes and hand-offs of a random forest.

use super::RandomForest;
use crate::runner::fixture::{reply, user};
use serde_json::json;
use threadkeep_component::service::runner::StepHandle;
use threadkeep_core::ledger::Usage;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::plan::LoadedThread;
use threadkeep_core::runner::{ReplyBlock, StepOutcome};
use threadkeep_core::thread::{StepKind, ThreadStatus};
use threadkeep_tests::fixture::MapLibrary;

/// Tokens that the model of these threads takes.
const WINDOW: u64 = 20_000;

/// The small library, with a model of a small window that is cheap where it has read the tokens
/// before: a full window does not cost a tree all that it has.
pub(super) fn library() -> MapLibrary {
    let model = json!({
        "name": "default", "provider": "p", "window": WINDOW, "output": 400,
        "prices": {"input": "1", "output": "2", "read": "0.01"},
    });
    MapLibrary::small().with("model", "default", &model.to_string())
}

/// Returns a reply that says a text and calls a tool.
fn calls_after(text: &str, usage: Usage) -> StepOutcome {
    let text = text.to_owned();
    let call = ReplyBlock::ToolUse {
        id: "x".to_owned(),
        name: "read".to_owned(),
        arguments: "{}".to_owned(),
        raw: None,
    };
    reply(vec![ReplyBlock::Text { text }, call], Some(usage))
}

fn has_been_ended(loaded: &LoadedThread) -> bool {
    let status = loaded.head.value.status;
    matches!(status, ThreadStatus::Cancelled | ThreadStatus::Killed)
}

impl RandomForest {
    /// Resumes a thread, named by any link of its chain, as a person or a driver does; returns true
    /// if a run has begun.
    pub(super) fn resume(&mut self, thread: &str, input: Option<&str>) -> bool {
        let tip = self.load(&self.load(thread).chain.value.tip);
        let ended = tip.head.value.status.is_terminal();
        let holder = format!("r/{}", self.world.counts.values().sum::<u64>());
        let message = input.map(user);
        let service = &self.world.service;
        let begun = service.resume(thread, message.as_deref(), &holder, &holder, None);
        let what = match ended {
            true => "resume in a successor",
            false => "resume",
        };
        self.count_outcome(what, begun.is_ok());
        let Ok(begun) = begun else {
            return false;
        };
        match ended {
            true => self.check_successor(&tip, &begun),
            false => self.check_hand_off(&tip.thread.value.id, &begun),
        }
        let id = begun.loaded.thread.value.id.clone();
        self.world.hold(&id, Ok(begun)).is_ok()
    }

    /// Checks the successor of a thread that had ended, and notes which children that had.
    fn check_successor(&mut self, tip: &LoadedThread, begun: &StepHandle) {
        let (id, made) = (&tip.thread.value.id, &begun.loaded.thread.value);
        let closed = self.load(id);
        let of = |loaded: &LoadedThread| {
            let thread = loaded.thread.value.clone();
            (
                loaded.head.value.status,
                thread.outcome,
                thread.result.clone(),
            )
        };
        assert_eq!(of(&closed), of(tip), "a resume changed how {id} ended");
        assert_eq!(closed.thread.value.next.as_ref(), Some(&made.id));
        assert_eq!(made.previous.as_ref(), Some(id));
        let last = tip.chain.value.last_child_number();
        self.last_children.insert(id.clone(), last);
        let parent = &tip.chain.value.parent;
        let above = self.load_all().into_iter();
        let above = above.filter(|one| Some(&one.thread.value.chain) == parent.as_ref());
        for link in above.filter(has_been_ended) {
            let resumed = (tip.thread.value.chain.clone(), link.thread.value.id.clone());
            self.resumed_below.insert(resumed);
        }
    }

    /// Checks that a step of another thread is of the link to which the run was handed off.
    pub(super) fn check_hand_off(&mut self, thread: &str, handed: &StepHandle) {
        let next = &handed.loaded.thread.value;
        if next.id == thread {
            return;
        }
        let old = self.load(thread);
        assert_eq!(old.head.value.status, ThreadStatus::Continued, "{thread}");
        assert_eq!(old.thread.value.next.as_ref(), Some(&next.id));
        assert_eq!(next.previous.as_deref(), Some(thread));
        assert_eq!(next.chain, old.thread.value.chain);
        self.world.note_thread(&next.id);
        self.count("handed off");
    }

    /// Forks a thread at a version of its path, sometimes at one that it does not have.
    pub(super) fn fork(&mut self, t: u8, v: u8) {
        let thread = self.pick_thread(t);
        let before = self.load(&thread);
        let version = u64::from(v) % (before.head.value.version + 2);
        let change = v
            .is_multiple_of(3)
            .then_some(r#"{"limits":{"spend":"0.05"}}"#);
        let key = format!("fork/{}", self.world.counts.values().sum::<u64>());
        let service = &self.world.service;
        let made = service.fork(&thread, version, &key, change);
        if let Ok(made) = &made {
            let again = service.fork(&thread, version, &key, change).unwrap();
            assert_eq!(again.thread.value.id, made.thread.value.id);
        }
        self.count_outcome("fork", made.is_ok());
        let Ok(made) = made else {
            return;
        };
        let after = self.load(&thread);
        assert_eq!(after.thread.value, before.thread.value);
        assert_eq!(after.head.value, before.head.value);
        let (chain, of) = (&made.chain.value, &before.chain.value);
        assert_eq!(after.chain.value.account, of.account, "a fork has its own");
        assert_eq!(after.chain.value.forks, of.forks + 1);
        assert_eq!((chain.depth, &chain.parent), (0, &None));
        let account = &chain.account;
        let used = (account.spent, account.held, account.reserved);
        assert_eq!(used, (NanoUsd::ZERO, NanoUsd::ZERO, NanoUsd::ZERO));
        let id = made.thread.value.id.clone();
        self.world.note_thread(&id);
        self.tops.push(id);
    }

    /// Has a thread say a long text and then a short one, after which the provider reports that the
    /// window is nearly full: the attempt after the tool call is one of a summary, or of the next
    /// link. Sometimes that call is left for another request.
    pub(super) fn fill_window(&mut self, t: u8) {
        let Some(thread) = self.pick_asked(t) else {
            return;
        };
        let long = "abc ".repeat(8_000);
        let said = Usage {
            input: 100,
            output: 400,
            ..Usage::default()
        };
        let full = Usage {
            read: WINDOW - 1_500,
            ..said
        };
        for (text, usage) in [(&*long, said), ("so far", full)] {
            if self.pending_call(&thread) != Some(StepKind::CallLlm)
                || self.world.held[&thread].handed.summary.is_some()
            {
                return;
            }
            self.submit(&thread, calls_after(text, usage), "full");
            let performs = usage == said || !t.is_multiple_of(4);
            if performs && self.pending_call(&thread) == Some(StepKind::CallTools) {
                let outcome = self.world.outcomes_with_state(&thread);
                self.submit(&thread, outcome, "tools");
            }
        }
    }

    /// Selects a thread whose model is asked for its next turn, if there is one.
    fn pick_asked(&self, n: u8) -> Option<String> {
        let asked = self.world.held.iter().filter(|(thread, held)| {
            let is_turn = held.handed.summary.is_none();
            is_turn && self.pending_call(thread) == Some(StepKind::CallLlm)
        });
        let asked: Vec<&String> = asked.map(|(thread, _)| thread).collect();
        (!asked.is_empty()).then(|| asked[usize::from(n) % asked.len()].clone())
    }

    /// The kind of the pending step of a thread that is still its driver's.
    fn pending_call(&self, thread: &str) -> Option<StepKind> {
        let held = self.world.held.contains_key(thread) && self.is_holder(thread);
        held.then(|| self.world.pending(thread)).flatten()
    }

    /// Returns true if a child may go on although a link above it was cancelled or killed: it was
    /// spawned by a later link, or was resumed after that.
    pub(in crate::children) fn may_go_on_below(
        &self,
        link: &LoadedThread,
        child: &LoadedThread,
    ) -> bool {
        let id = &link.thread.value.id;
        let chain = child.thread.value.chain.clone();
        let last = self.last_children.get(id);
        let later = last.is_some_and(|last| child.chain.value.number > *last);
        later || self.resumed_below.contains(&(chain, id.clone()))
    }
}
