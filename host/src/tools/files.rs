//! Read-only tools over a granted directory: `read_file`, `list_files`, `search_files`.
//!
//! What they read and answer is [`crate::file_tools`]. Here file operations run on a few threads of
//! their own ([`FilePool`]) and end soon after their future is dropped.

mod pool;

pub use crate::file_tools::{ARGUMENTS_BYTES_MAX, CALL_TIME_MAX};
pub use pool::{CALLS_MAX, FilePool};

use super::{ToolEntry, ToolResult, ToolSet, bound_result};
use crate::file_tools::{FileAnswer, GrantedFiles, StopFlag, file_tool_entries, find_file_tool};
use crate::models::BoxFuture;
use cap_std::fs::Dir;
use std::fmt;
use std::sync::Arc;
use threadkeep_storage::directory::GrantedDirectory;
use tokio::sync::{Semaphore, oneshot};

/// Most calls of one grant that have a thread of the pool at the same time. One tenant's slow files
/// leave half of the pool to the others.
pub const GRANT_CALLS_MAX: usize = CALLS_MAX / 2;

/// The three tools over one grant.
#[derive(Clone)]
pub struct FilesTools {
    grant: Arc<GrantedFiles>,
    permits: Arc<Semaphore>,
    pool: FilePool,
}

impl FilesTools {
    /// Makes tools that read below `grant` and nothing else, with a pool of their own.
    pub fn new(grant: Dir) -> Self {
        Self::with_pool(grant, FilePool::new())
    }

    /// Makes tools that share a pool with others.
    pub fn with_pool(grant: Dir, pool: FilePool) -> Self {
        Self {
            grant: Arc::new(GrantedFiles::new(Box::new(GrantedDirectory::new(grant)))),
            permits: Arc::new(Semaphore::new(GRANT_CALLS_MAX)),
            pool,
        }
    }
}

impl fmt::Debug for FilesTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilesTools")
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

impl ToolSet for FilesTools {
    fn catalog(&self) -> Vec<ToolEntry> {
        file_tool_entries()
    }

    fn call<'a>(&'a self, name: &'a str, arguments: &'a str) -> BoxFuture<'a, ToolResult> {
        Box::pin(async move {
            let tool = match find_file_tool(name) {
                Ok(tool) => tool,
                Err(problem) => return ToolResult::failure(problem),
            };
            let stop = StopFlag::default();
            let _guard = StopOnDrop(stop.clone());
            let (grant, arguments) = (Arc::clone(&self.grant), arguments.to_owned());
            // The semaphore is never closed. A call keeps its permit until its thread is done, even
            // if the caller has stopped waiting.
            let place = Arc::clone(&self.permits).acquire_owned().await;
            let (sender, answer) = oneshot::channel();
            let work = move || {
                // A call that was abandoned while it waited for a thread is not begun.
                let answer = (!stop.is_set()).then(|| tool.run(&grant, &arguments, &stop));
                drop((grant, place));
                if let Some(answer) = answer {
                    let _ = sender.send(answer);
                }
            };
            if let Err(error) = self.pool.submit(Box::new(work)) {
                let problem = format!("{name}: no thread can be started ({error}); try again");
                return ToolResult::failure(problem);
            }
            match answer.await {
                Ok(Ok(FileAnswer::Text(content))) => ToolResult::ok(bound_result(content)),
                Ok(Ok(FileAnswer::Image(line, bytes))) => ToolResult::ok(line).with_image(bytes),
                Ok(Err(problem)) => ToolResult::failure(bound_result(format!("{name}: {problem}"))),
                Err(_) => ToolResult::failure(format!("{name}: the call was stopped; try again")),
            }
        })
    }
}

struct StopOnDrop(StopFlag);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests plant files from outside the library"
)]
mod tests;
