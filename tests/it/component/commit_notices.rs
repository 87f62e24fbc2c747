//! The notices that an observer gets of each commit.

use super::fixture::{CountingTools, message, scripted_driver, tenant};
use std::sync::{Arc, Mutex};
use threadkeep::driver::{CommitNotice, CommitObserver, EventSink, StopReceiver};
use threadkeep::storage::memory::MemoryStore;
use threadkeep_tests::fixture::draft;

const SCRIPT: &str = r#"[{"calls": [{"name": "read", "arguments": {}}]}, {"text": "Done."}]"#;

/// An observer that keeps notices, with reasons or without.
struct NoticeKeeper {
    reasons: bool,
    kept: Mutex<Vec<String>>,
}

impl CommitObserver for NoticeKeeper {
    fn on_commit(&self, commit: &CommitNotice<'_>) {
        let reason = commit.reason.unwrap_or("-");
        let (version, step) = (commit.version.unwrap(), commit.step.unwrap());
        let notice = format!("{} {version} {reason} {step}", commit.thread);
        self.kept.lock().unwrap().push(notice);
    }

    fn wants_reasons(&self) -> bool {
        self.reasons
    }
}

/// Symptom: an observer was told the thread alone, and could not tell a turn from the end of a run.
#[tokio::test]
async fn an_observer_is_told_thread_version_reason_and_step() {
    for reasons in [true, false] {
        let tenant = tenant(Arc::new(MemoryStore::new()));
        let thread = tenant.create(draft(Some("work"))).await.unwrap().id;
        let keeper = Arc::new(NoticeKeeper {
            reasons,
            kept: Mutex::default(),
        });
        let driver = scripted_driver(&tenant, SCRIPT, &Arc::<CountingTools>::default(), "told");
        let driver = driver.with_observer(Arc::<NoticeKeeper>::clone(&keeper));
        let (sink, stop) = (EventSink::none(), StopReceiver::never());
        let ended = driver
            .run(&thread, Some(message("Go.")), &sink, &stop)
            .await;
        assert_eq!(ended.unwrap().status, "completed");
        let expected = [
            (1, "user-message", "call-llm"),
            (2, "assistant-turn", "call-tools"),
            (3, "tool-results", "call-llm"),
            (4, "run-finished", "finished"),
        ];
        let expected = expected.map(|(version, reason, step)| {
            let reason = if reasons { reason } else { "-" };
            format!("{thread} {version} {reason} {step}")
        });
        assert_eq!(*keeper.kept.lock().unwrap(), expected);
    }
}
