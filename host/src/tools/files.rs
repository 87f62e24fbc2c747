//! Read-only tools over a granted directory: `read_file`, `list_files`, `search_files`.
//!
//! A call reads and never writes, so it is idempotent. `.ai` does not exist in the grant, at any
//! level, under any name that leads to it: an agent cannot see the store, its directive or its
//! hooks. A refusal is a result that tells the model what to do instead. File operations run on a
//! few threads of their own ([`FilePool`]) and end soon after their future is dropped.
//!
//! A hard link is the file itself under another name, and nothing tells where the other name is: in
//! `.ai`, or outside the grant. So a file with more than one name is listed but not read. A user
//! who wants it read puts a copy into the grant.
//!
//! So trees made of hard links, such as a package store or a backup by `cp -l`, are listed and not
//! read.

mod arguments;
mod grant;
mod list;
mod pool;
mod read;
mod search;
mod work;

pub use pool::{CALLS_MAX, FilePool};

use super::{ToolEntry, ToolResult, ToolSet, bound_result};
use crate::models::BoxFuture;
use cap_std::fs::Dir;
use grant::GrantedDirectory;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use threadkeep_units::nearest::suggestion;
use tokio::sync::{Semaphore, oneshot};

/// Longest time of a call. The bounds below keep a call within a few seconds on a disk that
/// answers.
pub const CALL_TIME_MAX: Duration = Duration::from_secs(30);

/// Longest text of arguments that is parsed. A pattern and a path have a few hundred bytes.
pub const ARGUMENTS_BYTES_MAX: usize = 64 << 10;

/// Most calls of one grant that have a thread of the pool at the same time. One tenant's slow files
/// leave half of the pool to the others.
pub const GRANT_CALLS_MAX: usize = CALLS_MAX / 2;

/// The three tools over one grant.
#[derive(Debug, Clone)]
pub struct FilesTools {
    grant: Arc<GrantedDirectory>,
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
            grant: Arc::new(GrantedDirectory::new(grant)),
            permits: Arc::new(Semaphore::new(GRANT_CALLS_MAX)),
            pool,
        }
    }
}

/// The content that a call has read.
enum FileAnswer {
    Text(String),
    /// An image, and a line that names it.
    Image(String, Vec<u8>),
}

/// A tool's function, and its description for the catalog.
struct FileTool {
    name: &'static str,
    description: &'static str,
    schema: &'static str,
    run: fn(&GrantedDirectory, &str, &StopFlag) -> Result<FileAnswer, String>,
}

const TOOLS: [FileTool; 3] = [
    FileTool {
        name: "list_files",
        description: "List the files and directories in a directory, with sizes. Paths are \
                      relative to the root of \
                      the granted directory.",
        schema: list::SCHEMA,
        run: |grant, arguments, stop| list::run(grant, arguments, stop).map(FileAnswer::Text),
    },
    FileTool {
        name: "read_file",
        description: "Read a text file, or some of its lines. A result that is cut says with which \
                      offset to go on. Images (png, jpeg, gif, webp) are shown to models that take \
                      them.",
        schema: read::SCHEMA,
        run: read::run,
    },
    FileTool {
        name: "search_files",
        description: "Find lines that contain a text or match a regular expression, in a file or \
                      in all files below \
                      a directory. Answers path:line: text.",
        schema: search::SCHEMA,
        run: |grant, arguments, stop| search::run(grant, arguments, stop).map(FileAnswer::Text),
    },
];

impl ToolSet for FilesTools {
    fn catalog(&self) -> Vec<ToolEntry> {
        let entry = |tool: &FileTool| {
            ToolEntry::new(tool.name, tool.description, tool.schema, CALL_TIME_MAX).idempotent()
        };
        TOOLS.iter().map(entry).collect()
    }

    fn call<'a>(&'a self, name: &'a str, arguments: &'a str) -> BoxFuture<'a, ToolResult> {
        Box::pin(async move {
            let Some(tool) = TOOLS.iter().find(|tool| tool.name == name) else {
                let hint = suggestion(name, TOOLS.iter().map(|tool| tool.name));
                return ToolResult::failure(format!("there is no tool of this name{hint}"));
            };
            let stop = StopFlag::default();
            let _guard = StopOnDrop(stop.clone());
            let (grant, arguments) = (Arc::clone(&self.grant), arguments.to_owned());
            let run = tool.run;
            // The semaphore is never closed. A call keeps its permit until its thread is done, even
            // if the caller has stopped waiting.
            let place = Arc::clone(&self.permits).acquire_owned().await;
            let (sender, answer) = oneshot::channel();
            let work = move || {
                // A call that was abandoned while it waited for a thread is not begun.
                let answer = (!stop.is_set()).then(|| run(&grant, &arguments, &stop));
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

/// A flag that is set when the caller no longer waits for the answer.
#[derive(Debug, Clone, Default)]
struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

struct StopOnDrop(StopFlag);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// Replaces characters of a path that would break a line or a terminal.
fn printable(path: &str) -> String {
    path.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests plant files from outside the library"
)]
mod tests;
