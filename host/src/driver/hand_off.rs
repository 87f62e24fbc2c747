//! Runs that go on in another thread, for the tree that they belong to.

use super::events::{RunEvent, ThreadCosts};
use crate::tenant::Tenant;
use crate::wit;
use std::sync::Arc;
use threadkeep_storage::locks::SleepingMutex;

/// A run that was in one thread and goes on in another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ThreadHandOff {
    pub from: String,
    pub to: String,
}

/// The runs of a tree that went on in another thread, in order, until the tree takes note. Outside
/// of a tree nobody would, so nothing is kept.
#[derive(Clone, Default)]
pub(super) struct HandOffLog(Option<Arc<SleepingMutex<Vec<ThreadHandOff>>>>);

impl HandOffLog {
    /// The log of a tree.
    pub fn of_tree() -> Self {
        Self(Some(Arc::default()))
    }

    /// Lets the tree of a run know that the run goes on in another thread.
    pub fn record(&self, from: &str, to: &str) {
        if let Some(log) = &self.0 {
            log.lock().push(ThreadHandOff {
                from: from.to_owned(),
                to: to.to_owned(),
            });
        }
    }

    /// Returns what was recorded since the last call.
    pub fn take(&self) -> Vec<ThreadHandOff> {
        let log = self.0.as_ref();
        log.map_or_else(Vec::new, |log| std::mem::take(&mut *log.lock()))
    }
}

/// Makes the event of a run that has left a thread. What it tells beside the ids is only for
/// listeners, and left out where it cannot be read.
pub(super) async fn report_hand_off(tenant: &Tenant, from: String, to: &str) -> RunEvent {
    let left = tenant.get(&from).await.ok();
    let summary_problem = match &left {
        Some(left) => read_summary_problem(tenant, left).await,
        None => None,
    };
    RunEvent::HandedOff {
        costs: left
            .as_ref()
            .map(ThreadCosts::from_thread)
            .unwrap_or_default(),
        summary_problem,
        from,
        to: to.to_owned(),
    }
}

/// Returns the reason why a thread was handed off without the summary that was to be written, as
/// its last entry tells it; `None` where it cannot be read.
async fn read_summary_problem(tenant: &Tenant, thread: &wit::Thread) -> Option<String> {
    let before = thread.version.checked_sub(1)?;
    let last = tenant.events(&thread.id, before, 1, None).await;
    last.ok()?.events.iter().find_map(|event| {
        let body: serde_json::Value = serde_json::from_str(&event.body).ok()?;
        Some(body["summary_problem"].as_str()?.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::{HandOffLog, ThreadHandOff};

    /// Symptom: a driver whose runs belong to no tree kept each hand-off for ever. Cause: only a
    /// tree takes them. Fix: only in a tree are they recorded.
    #[test]
    fn hand_offs_are_kept_for_a_tree_alone() {
        let (plain, tree) = (HandOffLog::default(), HandOffLog::of_tree());
        for log in [&plain, &tree] {
            log.clone().record("old", "new");
        }
        let expected = ThreadHandOff {
            from: "old".to_owned(),
            to: "new".to_owned(),
        };
        assert_eq!(tree.take(), [expected]);
        assert!(tree.take().is_empty() && plain.take().is_empty());
    }
}
