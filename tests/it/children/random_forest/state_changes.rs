//! Changes of the state of a random forest, by callers and by tools, and the blobs of its tools.

use super::RandomForest;
use crate::states::{change, operation, patch, set};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use threadkeep::blobs::{BlobName, BlobWrite, list_unreferenced_blobs, write_blob};
use threadkeep::clock::HostClock;
use threadkeep::storage::RecordKey;
use threadkeep::tools::RESULT_BYTES_MAX;
use threadkeep_component::service::history::ChangeTexts;
use threadkeep_core::history::{BlobKind, Entry, StoredBlob};
use threadkeep_core::plan::LoadedThread;
use threadkeep_core::runner::{StepOutcome, ToolOutcome};

/// A blob: the key of its chain, and its hash.
type BlobKey = (String, String);

/// Blobs of a forest: those that were written, and those that a history names.
#[derive(Default)]
pub(super) struct ForestBlobs {
    written: BTreeSet<BlobKey>,
    named: BTreeSet<BlobKey>,
}

impl RandomForest {
    /// Has a caller change the state of a thread, which nobody drives where there is one.
    pub(super) fn change_state(&mut self, t: u8, kind: u8) {
        let free = self.world.threads.iter();
        let free = free.filter(|thread| {
            let status = self.load(thread).head.value.status;
            !status.is_terminal() && !self.world.held.contains_key(*thread)
        });
        let free: Vec<&String> = free.collect();
        let thread = match (free.len(), t % 8) {
            (0, _) | (_, 0) => self.pick_thread(t / 8),
            (n, _) => free[usize::from(t) % n].clone(),
        };
        let n = json!(kind / 8);
        let (what, change) = match kind % 8 {
            0 | 1 => {
                let patches = [set("thread", "caller", n.clone()), set("run", "r", n)];
                ("edit patch", change(&patches, &[]))
            }
            2 | 3 => {
                let add = operation("thread", "add", "/sum", n.clone());
                let element = operation("thread", "set-add", "/set", n);
                ("edit operation", change(&[], &[add, element]))
            }
            4 | 5 => {
                let snapshot = Some(json!({"thread": {"sum": n}}).to_string());
                let all = ChangeTexts {
                    snapshot,
                    ..change(&[], &[operation("run", "max", "/most", json!(kind))])
                };
                ("edit snapshot", all)
            }
            6 => {
                let large = set("thread", "large", json!("x".repeat(20_000)));
                ("edit large", change(&[large], &[]))
            }
            _ => {
                let wrong = json!([{"op": "remove", "path": "/nothing"}]);
                ("edit wrong", change(&[patch("thread", wrong)], &[]))
            }
        };
        let before = self.load(&thread).head.value;
        let service = &self.world.service;
        let done = service.append_change(&thread, None, None, &change).is_ok();
        assert!(!done || what != "edit wrong", "it does not apply");
        if !done {
            assert_eq!(self.load(&thread).head.value, before, "it was refused");
        }
        self.count_outcome(what, done);
    }

    /// Outcomes of the pending calls with changes of the state: some that cross, some that do not
    /// apply, and some with a blob.
    pub(super) fn tool_outcomes(&mut self, thread: &str, n: u8) -> StepOutcome {
        let StepOutcome::ToolOutcomes(mut outcomes) = self.world.outcomes_with_state(thread) else {
            panic!("{thread} has no calls");
        };
        match n % 12 {
            // Where the round has one call, none crosses it.
            0..=3 => outcomes
                .iter_mut()
                .for_each(|outcome| add_patch(outcome, &set("thread", "shared", json!(n)))),
            4 | 5 => {
                let wrong = json!([{"op": "remove", "path": "/nothing"}]);
                add_patch(&mut outcomes[0], &patch("thread", wrong));
            }
            6 | 7 => self.add_blob(thread, &mut outcomes[0], n),
            // The blob is stored, and its host dies before it submits: another call of the tool
            // returns less.
            8 => self.add_blob(thread, &mut outcomes[0].clone(), n),
            _ => {}
        }
        StepOutcome::ToolOutcomes(outcomes)
    }

    /// Stores what does not fit a result, as the host does before it submits; the result shows its
    /// beginning.
    fn add_blob(&mut self, thread: &str, outcome: &mut ToolOutcome, n: u8) {
        let digit = char::from(b'a' + n % 5);
        let whole = digit.to_string().repeat(RESULT_BYTES_MAX + 1);
        let chain = self.load(thread).thread.value.chain.clone();
        let record = RecordKey::new("chain", chain.to_lowercase());
        let store = &*self.world.store;
        let version = store.get(&[record]).unwrap()[0].version;
        let bytes = (whole.as_bytes(), "text/plain");
        let now = self.world.clock.now();
        let written = write_blob(store, (&chain, version), bytes, now).unwrap();
        let BlobWrite::Stored(BlobName { hash, media, size }) = written else {
            panic!("nobody else writes");
        };
        // All that is shown fills a window: most results show less.
        let shown = match n.is_multiple_of(4) {
            true => RESULT_BYTES_MAX,
            false => 100,
        };
        outcome.content = whole[..shown].to_owned();
        let key = (chain.to_lowercase(), hash.clone());
        self.blobs.written.insert(key);
        self.count("blob");
        outcome.blocks.push(StoredBlob {
            kind: BlobKind::Blob,
            hash,
            chain: None,
            media,
            size,
        });
    }

    /// Counts what the new entries of a thread say of its state, and notes the blobs they name.
    pub(super) fn note_state(&mut self, loaded: &LoadedThread, entry: &Entry) {
        let entry: Value = serde_json::from_str(&entry.to_text()).unwrap();
        let state = &entry["state"];
        for (what, found) in [
            ("state changed", state.is_object()),
            ("state written down", state["snapshot"].is_u64()),
        ] {
            if found {
                self.count(what);
            }
        }
        let results = entry["events"].as_array().unwrap().iter();
        for result in results.filter(|event| event["type"] == "tool_result") {
            let text = result["text"].as_str().unwrap_or_default();
            for (what, words) in [
                ("crossing calls", "both change"),
                ("edits of a call that do not apply", "patches[2]"),
            ] {
                if text.contains(words) {
                    self.count(what);
                }
            }
            for block in result["blocks"].as_array().into_iter().flatten() {
                let chain = block["chain"].as_str().unwrap().to_lowercase();
                assert_eq!(chain, loaded.thread.value.chain.to_lowercase());
                let hash = block["blob"].as_str().unwrap().to_owned();
                self.blobs.named.insert((chain, hash));
                self.count("blob named");
            }
        }
    }

    /// Checks that the blobs without a reference are those whose results were never recorded.
    pub(in crate::children) fn check_blobs(&mut self) {
        let left = list_unreferenced_blobs(&*self.world.store).unwrap();
        let left = left.into_iter().map(|blob| (blob.chain, blob.hash));
        let left: BTreeSet<BlobKey> = left.collect();
        let expected = self.blobs.written.difference(&self.blobs.named);
        let expected: BTreeSet<BlobKey> = expected.cloned().collect();
        assert_eq!(left, expected);
        for _ in &expected {
            self.count("blob without a reference");
        }
    }
}

fn add_patch(outcome: &mut ToolOutcome, added: &Value) {
    let patches = outcome.patches.as_deref().unwrap_or("[]");
    let mut patches: Vec<Value> = serde_json::from_str(patches).unwrap();
    patches.push(added.clone());
    outcome.patches = Some(Value::from(patches).to_string());
}
