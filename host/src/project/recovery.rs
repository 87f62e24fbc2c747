//! Recovery of a project: the runs of processes that have died.

use super::OpenProject;
use crate::authority::{self, AuthorityError, HolderState};
use crate::clock::ClockTime;
use crate::error::CallError;
use crate::tenant::RecoveryReport;
use crate::wit;
use threadkeep_units::lease_grace::is_grace_over;

impl OpenProject {
    /// Closes the runs of holders whose process is dead, of holders of unknown state whose lease
    /// expired before the grace, and of this process's lost runs; returns the ids of their threads.
    /// Then the lock files of dead processes are removed, unless a thread with a lease cannot be
    /// read: the lease may be theirs.
    ///
    /// # Errors
    /// If the component or the lock files cannot be read.
    pub async fn recover(&self, also_dead: &[String]) -> Result<Vec<String>, RecoverError> {
        Ok(self.recover_runs(also_dead).await?.closed)
    }

    /// As [`OpenProject::recover`], and also returns the threads with a lease that cannot be read:
    /// their runs stay as they are.
    ///
    /// # Errors
    /// As [`OpenProject::recover`].
    pub async fn recover_runs(&self, also_dead: &[String]) -> Result<RecoveryReport, RecoverError> {
        let mut dead: Vec<String> = also_dead.to_vec();
        // Listed before their leases are examined: a process that dies later keeps its file for the
        // next recovery.
        let left = self
            .threads
            .as_ref()
            .map(authority::dead_processes)
            .transpose()?;
        let mut recovered = RecoveryReport::default();
        let mut cursor = None;
        loop {
            let page = self.tenant.recover(Vec::new(), cursor).await?;
            let now = self.tenant.context().clock.now();
            for lease in &page.held {
                let Some(threads) = &self.threads else { break };
                let gone =
                    is_holder_gone(authority::holder_state(threads, &lease.holder)?, lease, now);
                if gone && !dead.contains(&lease.holder) {
                    dead.push(lease.holder.clone());
                }
            }
            add_unreadable(&mut recovered, page.unreadable);
            cursor = page.cursor;
            if cursor.is_none() {
                break;
            }
        }
        let by_name = self.tenant.recover_all(&dead).await?;
        let lost = self.driver().close_lost_runs().await?;
        for found in [by_name, lost] {
            recovered.closed.extend(found.closed);
            add_unreadable(&mut recovered, found.unreadable);
        }
        let all_read = recovered.unreadable.is_empty();
        if let (Some(threads), Some(left), true) = (&self.threads, left, all_read) {
            authority::remove_lock_files(threads, &left)?;
        }
        Ok(recovered)
    }
}

/// Adds the threads that are not in the list yet.
fn add_unreadable(recovered: &mut RecoveryReport, threads: Vec<wit::Unreadable>) {
    for thread in threads {
        let known = |named: &wit::Unreadable| named.thread == thread.thread;
        if !recovered.unreadable.iter().any(known) {
            recovered.unreadable.push(thread);
        }
    }
}

/// A holder without a lock file (an external loop, or the file was removed) is gone when its lease
/// and the grace have expired.
fn is_holder_gone(life: HolderState, lease: &wit::Lease, now: ClockTime) -> bool {
    match life {
        HolderState::Lives => false,
        HolderState::Dead => true,
        HolderState::Unknown => is_grace_over(now.seconds, lease.expiry.seconds),
    }
}

/// Reason why a recovery stopped. Runs that it had closed stay closed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverError {
    /// The component gave no answer.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A lock file cannot be examined.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: the lease of an external loop in a shell could not be ended after its deadline
    /// without naming its holder.
    #[test]
    fn a_holder_is_gone_after_its_lease_and_grace_unless_a_lock_file_speaks_for_it() {
        for (life, now, gone) in [
            (HolderState::Unknown, 100, false),
            (HolderState::Unknown, 115, false),
            (HolderState::Unknown, 116, true),
            (HolderState::Lives, 10_000, false),
            (HolderState::Dead, 100, true),
        ] {
            let expiry = wit::Instant {
                seconds: 100,
                nanos: 0,
            };
            let lease = wit::Lease {
                thread: "t".to_owned(),
                holder: "native-0/1".to_owned(),
                expiry,
            };
            let now = ClockTime {
                seconds: now,
                nanos: 0,
            };
            assert_eq!(is_holder_gone(life, &lease, now), gone, "{life:?} {now:?}");
        }
    }
}
