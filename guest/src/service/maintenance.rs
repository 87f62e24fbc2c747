//! Recovery of runs whose holder died, and counts.

use super::registry::PAGE_THREADS_MAX;
use super::runner::is_dead;
use super::store::{DecisionOutcome, check_cursor};
use super::{Error, ThreadService};
use crate::ports::{HostPorts, RecordDamage};
use threadkeep_core::error::Error as CoreError;
use threadkeep_core::plan::LoadedThread;
use threadkeep_core::runner::{self, CommitDecision};
use threadkeep_core::thread::ThreadStatus;
use threadkeep_core::{id, key};

/// Most holders named as dead in one call.
pub const DEAD_MAX: usize = 1_000;

/// The result of one call of `recover`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecoveryPage {
    /// Ids of threads whose run the call closed.
    pub closed: Vec<String>,
    /// Threads whose holder was not named as dead.
    pub held: Vec<LoadedThread>,
    /// Threads whose records cannot be read: key and problem.
    pub unreadable: Vec<(String, RecordDamage)>,
    /// Start of the next page.
    pub cursor: Option<String>,
}

/// Numbers of threads, by status.
type StatusCounts = Vec<(String, u64)>;

impl<P: HostPorts> ThreadService<P> {
    /// Closes the runs of dead holders, a page of held threads at a time.
    pub fn recover(&self, dead: &[String], cursor: Option<String>) -> Result<RecoveryPage, Error> {
        if dead.len() > DEAD_MAX {
            return Err(CoreError::invalid(
                "dead",
                "",
                format!("names more than {DEAD_MAX} holders"),
            )
            .into());
        }
        let (start, end) = key::prefix_range(&["status", ThreadStatus::Running.as_str()]);
        check_cursor(cursor.as_deref(), &start, &end)?;
        let start = cursor.unwrap_or(start);
        let page = self.scan_names(key::INDEX, (&start, &end), PAGE_THREADS_MAX, false)?;
        let many = self.load_many(&page.keys())?;
        let mut recovery = RecoveryPage {
            unreadable: [many.unreadable, page.damaged].concat(),
            cursor: page.cursor,
            ..RecoveryPage::default()
        };
        for loaded in many.threads {
            if loaded.head.value.status != ThreadStatus::Running {
                continue;
            }
            if !is_dead(dead, &loaded) {
                recovery.held.push(loaded);
                continue;
            }
            match self.close_run(dead, &loaded) {
                Ok(true) => recovery.closed.push(loaded.thread.value.id.clone()),
                Ok(false) => {}
                Err(error) => {
                    let why = error.into_damage()?;
                    recovery.unreadable.push((loaded.key(), why));
                }
            }
        }
        Ok(recovery)
    }

    /// Closes a run; returns false if another call has closed it in the meantime.
    pub(super) fn close_run(&self, dead: &[String], loaded: &LoadedThread) -> Result<bool, Error> {
        let done = self.decide(&loaded.thread.value.id, &|loaded, moment| {
            if loaded.head.value.status != ThreadStatus::Running || !is_dead(dead, loaded) {
                return Ok(CommitDecision::Repeat);
            }
            let round = self.round(loaded)?;
            // The operator's caps, too, decide if the parent keeps waiting for the thread.
            let moment = self.with_operator_caps(moment)?;
            Ok(runner::recover(
                loaded,
                round.as_deref(),
                &self.partial(loaded)?,
                self.mail(loaded)?,
                moment,
            )?)
        })?;
        Ok(matches!(done, DecisionOutcome::Committed(_)))
    }

    /// Counts threads by status, a page of all threads at a time.
    pub fn stats(&self, cursor: Option<String>) -> Result<(StatusCounts, Option<String>), Error> {
        let (start, end) = key::prefix_range(&["status"]);
        check_cursor(cursor.as_deref(), &start, &end)?;
        let start = cursor.unwrap_or(start);
        let page = self.scan_names(key::INDEX, (&start, &end), 500, false)?;
        let mut counts = StatusCounts::new();
        for name in &page.names {
            let Some(status) = name.split('\u{1}').nth(1).map(id::printable_id) else {
                continue;
            };
            // The names are in the order of their statuses.
            match counts.last_mut() {
                Some((last, threads)) if *last == status => *threads += 1,
                _ => counts.push((status, 1)),
            }
        }
        Ok((counts, page.cursor))
    }
}
