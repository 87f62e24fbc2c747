//! Calls whose store goes away behind their first commit: each may be repeated as it was, finds
//! that commit and does nothing twice.

use super::fixture::{RunnerFixture, calls};
use std::collections::BTreeSet;
use std::sync::Arc;
use threadkeep::storage::StorageBackend;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_component::ports::StorageError;
use threadkeep_component::service::runner::StepHandle;
use threadkeep_component::service::{Error, ErrorKind, ThreadService};
use threadkeep_core::runner::{DecisionInputs, HolderProof, Signal, StepOutcome, StepSubmission};
use threadkeep_core::thread::ThreadDraft;
use threadkeep_tests::faulty::{DeathPoint, FaultyStore};
use threadkeep_tests::fixture::MapLibrary;
use threadkeep_tests::native::NativePorts;

const TOP: &str = "boss-1-abcdef";

/// A caller that repeats a call unchanged where the store was away.
struct RepeatingCaller {
    world: RunnerFixture,
    store: Arc<FaultyStore>,
    /// The calls that had made a commit when they failed.
    late: BTreeSet<&'static str>,
}

impl RepeatingCaller {
    fn new(death: DeathPoint) -> Self {
        let store = Arc::new(FaultyStore::new(Arc::new(MemoryStore::new()), death));
        let shared: Arc<dyn StorageBackend> = Arc::<FaultyStore>::clone(&store);
        Self {
            world: RunnerFixture::over(shared, MapLibrary::small()),
            store,
            late: BTreeSet::new(),
        }
    }

    fn call<T: std::fmt::Debug>(
        &mut self,
        name: &'static str,
        call: &dyn Fn(&ThreadService<NativePorts>) -> Result<T, Error>,
    ) -> T {
        let before = self.store.commits();
        match call(&self.world.service).map_err(Error::into_kind) {
            Err(ErrorKind::Storage(StorageError::Unavailable(..))) => {
                if self.store.commits() > before {
                    self.late.insert(name);
                }
                call(&self.world.service).expect(name)
            }
            done => done.expect(name),
        }
    }

    fn start(&mut self, thread: &str, holder: &str) -> StepHandle {
        self.call("start", &|service| {
            service.start(thread, None, holder, holder, None)
        })
    }

    fn submit(&mut self, handed: &StepHandle, outcome: &StepOutcome) -> StepHandle {
        let submission = StepSubmission {
            token: handed.loaded.head.value.token,
            version: handed.step.version,
            outcome: outcome.clone(),
            inputs: DecisionInputs::default(),
        };
        let thread = &handed.loaded.thread.value.id;
        self.call("submit", &|service| service.submit(thread, &submission, 0))
    }

    /// Returns the threads that are due below the top, over all pages.
    fn due_children(&mut self) -> Vec<String> {
        let (mut children, mut cursor) = (Vec::new(), None);
        loop {
            let page = self.call("ready", &|service| {
                service.ready(9, cursor.clone(), Some(TOP))
            });
            let due = page.threads.into_iter();
            children.extend(due.map(|due| due.loaded.thread.value.id.clone()));
            cursor = page.cursor;
            if cursor.is_none() {
                return children;
            }
        }
    }

    /// Performs the life of a tree: a boss whose two children lose their holders and are ended with
    /// it. Returns how all of it stands in the end.
    fn perform_tree(&mut self) -> Vec<String> {
        let draft = ThreadDraft {
            id: Some(TOP.to_owned()),
            directive: Some("boss".to_owned()),
            key: Some("top".to_owned()),
            ..ThreadDraft::default()
        };
        self.call("create", &|service| service.create(&draft));
        let first = self.start(TOP, "h/1");
        let spawn = ("spawn_thread", r#"{"directive":"work"}"#);
        self.submit(&first, &calls(&[spawn, spawn, ("read", "{}")]));
        let children = self.due_children();
        for (child, holder) in children.iter().zip(["h/2", "h/3"]) {
            self.start(child, holder);
        }
        let claim = HolderProof::Dead;
        let claimed = self.call("claim", &|service| service.claim(TOP, "h/4", claim));
        self.world.held.clear();
        self.world.hold(TOP, Ok(claimed.clone())).unwrap();
        let outcomes = self.world.outcomes(TOP);
        self.submit(&claimed, &outcomes);
        let dead = ["h/2".to_owned(), "h/3".to_owned()];
        self.call("recover", &|service| service.recover(&dead, None));
        self.call("signal", &|service| service.signal(TOP, "k", &Signal::Kill));
        for thread in [TOP, &children[0], &children[1]] {
            self.call("sweep", &|service| service.sweep_page(thread, None));
        }
        let threads = [TOP, &children[0], &children[1]];
        let stands = threads.map(|thread| {
            let loaded = self.call("load", &|service| service.load(thread));
            let head = &loaded.head.value;
            format!("{} at {} in run {}", head.status, head.version, head.run)
        });
        stands.to_vec()
    }
}

#[test]
fn calls_are_repeated_after_the_store_went_away_behind_a_commit() {
    let mut undisturbed = RepeatingCaller::new(DeathPoint::Away(u64::MAX));
    let expected = undisturbed.perform_tree();
    let commits = undisturbed.store.commits();
    assert!(
        expected.iter().all(|stands| stands.starts_with("killed")),
        "{expected:?}"
    );
    let mut late = BTreeSet::new();
    for commit in 1..=commits {
        let mut caller = RepeatingCaller::new(DeathPoint::Away(commit));
        assert_eq!(caller.perform_tree(), expected, "away after {commit}");
        assert_eq!(caller.store.commits(), commits, "away after {commit}");
        caller.world.audit();
        late.extend(caller.late);
    }
    // Of each that reads or writes behind its first commit, there was such a moment.
    assert_eq!(
        late.into_iter().collect::<Vec<_>>(),
        ["claim", "recover", "submit", "sweep"]
    );
}

/// The first step of a later run carries what was said before, which is read behind the commit.
#[test]
fn a_start_is_repeated_after_the_store_went_away_behind_its_commit() {
    let mut worlds = [DeathPoint::Away(4), DeathPoint::Away(u64::MAX)].map(RepeatingCaller::new);
    let stands = worlds.each_mut().map(|caller| {
        let draft = ThreadDraft {
            id: Some(TOP.to_owned()),
            key: Some("top".to_owned()),
            ..ThreadDraft::default()
        };
        caller.call("create", &|service| service.create(&draft));
        let said = super::fixture::user("go on");
        let start = |service: &ThreadService<NativePorts>, holder: &str| {
            service.start(TOP, Some(&said), holder, holder, None)
        };
        let first = caller.call("start", &|service| start(service, "h/1"));
        caller.submit(&first, &super::fixture::says("done"));
        let again = caller.call("start", &|service| start(service, "h/2"));
        caller.world.audit();
        (again.step.version, again.messages, caller.store.commits())
    });
    assert_eq!(stands[0], stands[1]);
    assert_eq!(Vec::from_iter(&worlds[0].late), [&"start"]);
}
