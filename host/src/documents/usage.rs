//! The usage log, `.ai/threads/usage.jsonl`: the usage of each model reply, one JSON object a line,
//! for tools that add up.
//!
//! A line is made from the entry that holds the reply, once it is durable, off the run's path. So a
//! reply has one line however often its commit was requested, and a line that cannot be written
//! changes no run. A reply whose usage was never reported (a broken stream, a charged call) has no
//! line. The ledger is the truth: a line is lost if the process dies between the commit and the
//! line, or if more replies wait than the queue takes.
//!
//! How a line is written: [`crate::thread_files::append_usage_line`].

use super::run_blocking;
use crate::authority::AuthorityError;
use crate::driver::{AfterRun, DurableReply, EndedRun};
use crate::models::BoxFuture;
use crate::tenant::Tenant;
use crate::thread_files::{
    self, LoggedReply, ReplyEvent, ThreadFileError, USAGE_FILE, append_usage_line,
    usage_file_bytes, usage_lines,
};
use cap_std::fs::Dir;
use std::error::Error;
use std::sync::Arc;
use threadkeep_storage::directory::GrantedDirectory;

/// Writes the usage of replies to the log. [`crate::project::OpenProject`] registers it with its
/// drivers as work after replies.
pub struct UsageLog {
    tenant: Tenant,
    threads: Arc<GrantedDirectory>,
}

impl UsageLog {
    /// Makes a log in `threads`, a directory `.ai/threads`.
    pub fn new(tenant: Tenant, threads: Dir) -> Self {
        let threads = Arc::new(GrantedDirectory::new(threads));
        Self { tenant, threads }
    }

    async fn log_reply(&self, replied: &DurableReply) -> Result<(), Box<dyn Error + Send + Sync>> {
        let before = replied.version.saturating_sub(1);
        let page = self.tenant.events(&replied.thread, before, 1, None);
        let page = page.await?;
        let events = page.events.into_iter().map(|event| ReplyEvent {
            version: event.version,
            kind: event.kind,
            time: (event.time.seconds, event.time.nanos),
            body: event.body,
        });
        let reply = LoggedReply {
            thread: &replied.thread,
            agent: replied.agent.as_deref(),
            version: replied.version,
        };
        for line in usage_lines(reply, &events.collect::<Vec<_>>())? {
            let threads = Arc::clone(&self.threads);
            run_blocking(move || Ok(append_usage_line(&*threads, &line)?)).await?;
        }
        Ok(())
    }
}

impl AfterRun for UsageLog {
    fn name(&self) -> &str {
        USAGE_FILE
    }

    fn after_run<'a>(
        &'a self,
        _: &'a EndedRun,
    ) -> BoxFuture<'a, Result<(), Box<dyn Error + Send + Sync>>> {
        Box::pin(async { Ok(()) })
    }

    fn wants_replies(&self) -> bool {
        true
    }

    fn after_reply<'a>(
        &'a self,
        replied: &'a DurableReply,
    ) -> BoxFuture<'a, Result<(), Box<dyn Error + Send + Sync>>> {
        Box::pin(self.log_reply(replied))
    }
}

/// Returns the size of the log in bytes; `None` if it does not exist.
///
/// # Errors
/// If its place is taken by a link, a directory, a pipe, or a file with a second name. No line is
/// written then.
pub fn usage_log_bytes(threads: &Dir) -> Result<Option<u64>, AuthorityError> {
    usage_file_bytes(&grant_again(threads)?)
}

/// Reads the file of cached sums, `.ai/threads/usage-cache.jsonl`; `None` if there is none.
///
/// # Errors
/// As [`thread_files::read_usage_cache`].
pub fn read_usage_cache(threads: &Dir) -> Result<Option<Vec<u8>>, ThreadFileError> {
    thread_files::read_usage_cache(&grant_again(threads)?)
}

/// Replaces the file of cached sums.
///
/// # Errors
/// As [`thread_files::write_usage_cache`].
pub fn write_usage_cache(threads: &Dir, content: &[u8]) -> Result<(), ThreadFileError> {
    thread_files::write_usage_cache(&grant_again(threads)?, content)
}

fn grant_again(threads: &Dir) -> Result<GrantedDirectory, AuthorityError> {
    let threads = threads.try_clone();
    let threads = threads.map_err(|error| AuthorityError::from_io(USAGE_FILE, error))?;
    Ok(GrantedDirectory::new(threads))
}
