//! Notices of durable changes for an observer of a driver.

use super::Driver;
use crate::wit::runner;

/// Notified of every durable change of a thread, after it; must not block.
pub trait CommitObserver: Send + Sync {
    /// A commit was made.
    fn on_commit(&self, commit: &CommitNotice<'_>);

    /// True if notices are to name the reason of their commit, which the driver then reads from the
    /// history: one more call of the component for each commit.
    fn wants_reasons(&self) -> bool {
        false
    }
}

/// A durable change of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommitNotice<'a> {
    /// The changed thread. A commit that hands a run off to another thread has a notice for each.
    pub thread: &'a str,
    /// The version of the thread after the commit. A commit that adds nothing to the history has
    /// the version of the one before it. `None` where the driver does not know it: after an end
    /// that was passed on from another thread, after a recovery, and for the thread that a run has
    /// left.
    pub version: Option<u64>,
    /// The reason as `types.entry` names it (`user-message`, `assistant-turn`, ...), where
    /// [`CommitObserver::wants_reasons`] asks for it and it could be read.
    pub reason: Option<&'a str>,
    /// The kind of the step that the commit handed out: `call-llm`, `call-tools`, `wait` or
    /// `finished`. `None` where it handed out none.
    pub step: Option<&'a str>,
}

impl<'a> CommitNotice<'a> {
    /// A notice that names the thread alone.
    pub fn new(thread: &'a str) -> Self {
        Self {
            thread,
            version: None,
            reason: None,
            step: None,
        }
    }
}

impl Driver {
    /// Notifies the observer of the commit that handed out a step.
    pub(super) async fn notify_step(&self, step: &runner::Step) {
        let Some(observer) = &self.observer else {
            return;
        };
        let reason = match observer.wants_reasons() {
            true => self.read_reason(&step.thread, step.version).await,
            false => None,
        };
        observer.on_commit(&CommitNotice {
            thread: &step.thread,
            version: Some(step.version),
            reason: reason.as_deref(),
            step: Some(&step.kind),
        });
    }

    /// Notifies the observer of a change that handed out no step.
    pub(super) fn notify_change(&self, thread: &str) {
        if let Some(observer) = &self.observer {
            observer.on_commit(&CommitNotice::new(thread));
        }
    }

    /// The reason of a thread's entry. The notice goes without it if the read fails.
    async fn read_reason(&self, thread: &str, version: u64) -> Option<String> {
        let after = version.checked_sub(1)?;
        let page = self.tenant.entries(thread, after, 1, None);
        let entry = page.await.ok()?.entries.into_iter().next()?;
        (entry.version == version).then_some(entry.reason)
    }
}
