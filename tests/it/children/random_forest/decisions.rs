//! Decisions of persons about calls of a random forest.

use super::RandomForest;
use threadkeep_core::plan::LoadedThread;
use threadkeep_core::runner::{CallDecision, Signal};
use threadkeep_core::thread::{DecisionVerdict, ThreadStatus};

impl RandomForest {
    /// Decides about the first call that waits of a thread that has one, if there is one: of one
    /// that runs, where there is such a thread, as that is rare.
    pub(super) fn decide_one(&mut self, t: u8, kind: u8) {
        let all = self.load_all().into_iter();
        let asking: Vec<LoadedThread> = all
            .filter(|one| one.head.value.undecided_calls().next().is_some())
            .collect();
        if asking.is_empty() {
            return;
        }
        let runs = |one: &&LoadedThread| one.head.value.status == ThreadStatus::Running;
        let running: Vec<&LoadedThread> = asking.iter().filter(runs).collect();
        let loaded = match running[..] {
            [] => &asking[usize::from(t) % asking.len()],
            _ => running[usize::from(t) % running.len()],
        };
        let verdict = match kind % 4 {
            0 | 1 => DecisionVerdict::Approve,
            2 => DecisionVerdict::Deny,
            _ => DecisionVerdict::Answer,
        };
        self.decide_first(loaded, verdict);
    }

    /// Decides about all calls that wait of a thread: they are approved.
    pub(in crate::children) fn approve_all(&mut self, thread: &str) {
        loop {
            let loaded = self.load(thread);
            if loaded.head.value.undecided_calls().next().is_none() {
                return;
            }
            self.decide_first(&loaded, DecisionVerdict::Approve);
        }
    }

    fn decide_first(&mut self, loaded: &LoadedThread, verdict: DecisionVerdict) {
        let (id, head) = (&loaded.thread.value.id, &loaded.head.value);
        let version = head.round.as_ref().map_or(0, |round| round.version);
        let Some(index) = head.undecided_calls().next().map(|call| call.index) else {
            return;
        };
        let decision = CallDecision {
            version,
            index,
            verdict,
            text: (verdict != DecisionVerdict::Approve).then(|| "as I say".to_owned()),
        };
        let name = format!("decision/{version}/{index}");
        let signal = Signal::Decision(decision);
        self.world.service.signal(id, &name, &signal).unwrap();
        self.count(verdict.as_str());
        if head.status == ThreadStatus::Running {
            self.count("decided while it runs");
        }
    }
}
