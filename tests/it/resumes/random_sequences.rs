//! Random sequences of runs, ends and resumes in a tree: after each the store is sound, and a
//! conversation only grows.

use super::fixture::{resume, sent_messages};
use crate::children::fixture::ThreadFamily;
use crate::runner::fixture::{calls, says};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use serde_json::json;
use std::collections::BTreeMap;
use threadkeep_core::runner::Signal;
use threadkeep_core::thread::StepKind;

/// Number of sequences.
const CASES: u32 = 24;
/// Most chains of the tree.
const CHAINS_MAX: usize = 6;

/// One request; the number selects the link that it names.
#[derive(Debug, Clone)]
enum ChainRequest {
    Resume(u8, bool),
    Reply(u8),
    Call(u8),
    Spawn(u8),
    /// The thread that spawned the link resumes it.
    Ask(u8),
    Cancel(u8),
    Kill(u8),
    Recover(u8),
    Sweep,
}

fn chain_request() -> impl Strategy<Value = ChainRequest> {
    use ChainRequest::*;
    prop_oneof![
        8 => (any::<u8>(), any::<bool>()).prop_map(|(n, input)| Resume(n, input)),
        6 => any::<u8>().prop_map(Reply),
        3 => any::<u8>().prop_map(Call),
        3 => any::<u8>().prop_map(Spawn),
        3 => any::<u8>().prop_map(Ask),
        2 => any::<u8>().prop_map(Cancel),
        2 => any::<u8>().prop_map(Kill),
        1 => any::<u8>().prop_map(Recover),
        3 => Just(Sweep),
    ]
}

/// A tree and all links of its chains, oldest first.
struct ResumedTree {
    family: ThreadFamily,
    links: Vec<String>,
    /// The messages that the tip of each chain was last seen to send.
    shown: BTreeMap<String, Vec<String>>,
    successors: usize,
    keys: usize,
}

impl ResumedTree {
    fn new() -> Self {
        let family = ThreadFamily::new();
        let links = vec![family.boss.clone()];
        let (shown, successors, keys) = (BTreeMap::new(), 0, 0);
        Self {
            family,
            links,
            shown,
            successors,
            keys,
        }
    }

    fn pick(&self, n: u8) -> String {
        self.links[usize::from(n) % self.links.len()].clone()
    }

    /// The tip of the chain of a link.
    fn tip(&self, n: u8) -> String {
        self.family.load(&self.pick(n)).chain.value.tip.clone()
    }

    fn perform(&mut self, request: &ChainRequest) {
        match *request {
            ChainRequest::Resume(n, input) => {
                let input = input.then_some("go on");
                let link = self.pick(n);
                if let Ok(next) = resume(&mut self.family.world, &link, input)
                    && !self.links.contains(&next)
                {
                    self.links.push(next);
                    self.successors += 1;
                }
            }
            ChainRequest::Reply(n) => self.submit(n, says("done")),
            ChainRequest::Call(n) => self.submit(n, calls(&[("read", "{}")])),
            ChainRequest::Spawn(n) => {
                let arguments = json!({"directive": "boss", "limits": {"spend": "0.001"}});
                self.submit(n, calls(&[("spawn_thread", &arguments.to_string())]));
                let top = self.family.boss.clone();
                let page = self.family.world.service.tree_page(&top, None).unwrap();
                for (branch, _) in page.branches.into_iter().take(CHAINS_MAX) {
                    let id = branch.thread.value.id.clone();
                    if !self.links.contains(&id) {
                        self.links.push(id);
                    }
                }
            }
            ChainRequest::Ask(n) => {
                let loaded = self.family.load(&self.pick(n));
                let Some(parent) = &loaded.chain.value.parent else {
                    return;
                };
                let parent = self.family.load(parent).chain.value.tip.clone();
                let asked = json!({"thread": loaded.thread.value.id, "message": "again"});
                self.submit_to(&parent, calls(&[("resume_thread", &asked.to_string())]));
            }
            ChainRequest::Cancel(n) => self.signal(n, &Signal::Cancel),
            ChainRequest::Kill(n) => self.signal(n, &Signal::Kill),
            ChainRequest::Recover(n) => {
                let holder = self.family.load(&self.tip(n)).head.value.holder.clone();
                let holders: Vec<String> = holder.into_iter().collect();
                let _ = self.family.world.service.recover(&holders, None);
            }
            ChainRequest::Sweep => self.family.sweep(),
        }
    }

    fn signal(&mut self, n: u8, signal: &Signal) {
        self.keys += 1;
        let key = format!("s{}", self.keys);
        let _ = self
            .family
            .world
            .service
            .signal(&self.pick(n), &key, signal);
    }

    fn submit(&mut self, n: u8, outcome: threadkeep_core::runner::StepOutcome) {
        let tip = self.tip(n);
        self.submit_to(&tip, outcome);
    }

    /// Submits an outcome of a model, or of the tools if those are asked; begins the thread first
    /// if it is new.
    fn submit_to(&mut self, tip: &str, outcome: threadkeep_core::runner::StepOutcome) {
        let world = &mut self.family.world;
        if !world.held.contains_key(tip) && resume(world, tip, None).is_err() {
            return;
        }
        let outcome = match world.pending(tip) {
            Some(StepKind::CallLlm) => outcome,
            Some(StepKind::CallTools) => world.outcomes(tip),
            _ => return,
        };
        let _ = world.submit(tip, outcome);
    }

    /// Each chain has one tip, and what it sends begins with what it sent before.
    fn check(&mut self) {
        self.family.world.audit();
        for link in self.links.clone() {
            let loaded = self.family.load(&link);
            if !loaded.is_tip() {
                let next = loaded
                    .thread
                    .value
                    .next
                    .clone()
                    .expect("a link that is no tip");
                let next = self.family.load(&next);
                assert_eq!(next.thread.value.previous.as_deref(), Some(&*link));
                continue;
            }
            let now = sent_messages(&self.family.world, &link);
            let chain = loaded.thread.value.chain.clone();
            let before = self.shown.insert(chain, now.clone()).unwrap_or_default();
            assert_eq!(now[..before.len().min(now.len())], before, "{link}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]

    #[test]
    fn a_tree_stays_sound(requests in prop::collection::vec(chain_request(), 1..60)) {
        let mut tree = ResumedTree::new();
        for request in &requests {
            tree.perform(request);
            tree.check();
        }
    }
}

/// The sequences reach what they are for: many successors, of many statuses.
#[test]
fn sequences_make_successors() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut successors, mut asked) = (0, 0);
    for _ in 0..8 {
        let mut tree = ResumedTree::new();
        for _ in 0..80 {
            let request = chain_request().new_tree(&mut runner).unwrap().current();
            tree.perform(&request);
        }
        tree.check();
        successors += tree.successors;
        let sent = tree.shown.values().flatten();
        let by_parents =
            |text: &&String| text.starts_with(r#"{"role":"user""#) && text.contains("again");
        asked += sent.filter(by_parents).count();
    }
    assert!(successors > 40 && asked > 0, "{successors} {asked}");
}
