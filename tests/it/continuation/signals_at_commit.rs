//! Ends of a thread that meet the commit which hands it off: by another process, between the reads
//! of that commit and its writes, or just after it.

use super::fixture::{DrivenChain, library, words};
use crate::runner::fixture::RunnerFixture;
use serde_json::json;
use std::sync::Arc;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_component::service::{Error, ErrorKind};
use threadkeep_core::error::ErrorKind as CoreErrorKind;
use threadkeep_core::runner::Signal;
use threadkeep_core::thread::ThreadStatus;
use threadkeep_tests::interleaved_store::InterleavedStore;

/// A chat whose summary is asked for, and its store.
fn summarizing_chat() -> (DrivenChain, Arc<InterleavedStore>, Arc<MemoryStore>) {
    let memory = Arc::new(MemoryStore::new());
    let between = Arc::new(InterleavedStore::new(Arc::<MemoryStore>::clone(&memory)));
    let store = Arc::<InterleavedStore>::clone(&between);
    let mut chain = DrivenChain::start_over(store, library(json!({})), None, Some("first"));
    for n in 0..9 {
        chain.say(&format!("answer {n} {}", words(90)));
        chain.ask(&format!("question {n}"));
        if chain.is_summarizing() {
            return (chain, between, memory);
        }
    }
    panic!("no hand-off was due: {:?}", chain.request());
}

/// Each end before the commit takes effect in the thread that it was sent to.
#[test]
fn an_end_just_before_the_hand_off_ends_the_thread() {
    for (signal, status) in [
        (Signal::Cancel, ThreadStatus::Cancelled),
        (Signal::Kill, ThreadStatus::Killed),
    ] {
        let (mut chain, between, memory) = summarizing_chat();
        let thread = chain.thread.clone();
        between.before_commit(move || {
            let other = RunnerFixture::over(memory, library(json!({})));
            other.service.signal(&thread, "end", &signal).unwrap();
        });
        let answer = chain.try_say("a summary");
        assert_eq!(answer.is_ok(), status == ThreadStatus::Cancelled);
        let loaded = chain.load(&chain.links[0]);
        assert_eq!(loaded.head.value.status, status);
        assert_eq!(loaded.head.value.phase, None);
        assert_eq!(loaded.thread.value.next, None);
        assert_eq!(loaded.head.value.hold, None);
        chain.world.audit();
    }
}

/// Each end after it is refused with the name of the link that takes it.
#[test]
fn an_end_just_after_the_hand_off_names_the_next_link() {
    for (signal, status) in [
        (Signal::Cancel, ThreadStatus::Cancelled),
        (Signal::Kill, ThreadStatus::Killed),
    ] {
        let (mut chain, _, _) = summarizing_chat();
        chain.say("a summary");
        let old = chain.links[0].clone();
        let refused = chain.world.service.signal(&old, "end", &signal);
        let Err(ErrorKind::Core(CoreErrorKind::Continued { next, .. })) =
            refused.as_ref().map_err(Error::kind)
        else {
            panic!("{refused:?}");
        };
        assert_eq!(*next, chain.thread);
        chain.world.service.signal(next, "end", &signal).unwrap();
        let _ = chain.try_say("the answer");
        assert_eq!(chain.status(), status);
        chain.check();
    }
}
