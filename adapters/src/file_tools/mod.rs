//! Read-only tools over a granted directory: `read_file`, `list_files`, `search_files`.
//!
//! `.ai` does not exist in the grant, at any level, under any name that leads to it: an agent
//! cannot see the store, its directive or its hooks. A refusal is a sentence that tells the model
//! what to do instead. All of it blocks, and stands on [`threadkeep_storage::directory`] alone, so
//! that a host under WASI has the same tools.
//!
//! A hard link is the file itself under another name, and nothing tells where the other name is: in
//! `.ai`, or outside the grant. So a file with more than one name is listed but not read. A user
//! who wants it read puts a copy into the grant. So trees made of hard links, such as a package
//! store or a backup by `cp -l`, are listed and not read.

mod arguments;
mod grant;
mod list;
mod read;
mod search;
mod work;

pub use grant::GrantedFiles;
pub use read::SKIPPED_BYTES_MAX;
pub use search::{SEARCHED_BYTES_MAX, SEARCHED_FILE_BYTES_MAX, SEARCHED_LEVELS_MAX};
pub use work::FOLLOWED_LINKS_MAX;

use crate::ToolEntry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use threadkeep_units::nearest::suggestion;

/// Longest time of a call. The bounds of the tools keep a call within a few seconds on a disk that
/// answers.
pub const CALL_TIME_MAX: Duration = Duration::from_secs(30);

/// Longest text of arguments that is parsed. A pattern and a path have a few hundred bytes.
pub const ARGUMENTS_BYTES_MAX: usize = 64 << 10;

/// Most bytes of one tool result that a model is shown. Larger ones are cut on a character
/// boundary, with a note, and kept whole as a blob.
pub const RESULT_BYTES_MAX: usize = 64 << 10;

/// Bytes of a result that are reserved for notes.
const NOTE_BYTES: usize = 512;

/// Most bytes of content that a tool collects before its notes.
pub const CONTENT_BYTES_MAX: usize = RESULT_BYTES_MAX - NOTE_BYTES;

/// The content that a call has read.
pub enum FileAnswer {
    /// A text.
    Text(String),
    /// An image, and a line that names it.
    Image(String, Vec<u8>),
}

/// A tool's function, and its description for the catalog.
pub struct FileTool {
    /// Its name.
    pub name: &'static str,
    /// A description for the model.
    pub description: &'static str,
    /// JSON Schema of the arguments.
    pub schema: &'static str,
    run: fn(&GrantedFiles, &str, &StopFlag) -> Result<FileAnswer, String>,
}

/// The tools, in the order of the catalog. A call reads and never writes, so it is idempotent.
pub static FILE_TOOLS: [FileTool; 3] = [
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

impl FileTool {
    /// Runs one call; the error is a sentence for the model.
    ///
    /// # Errors
    /// If the arguments are wrong, or what they name may not be read.
    pub fn run(
        &self,
        grant: &GrantedFiles,
        arguments: &str,
        stop: &StopFlag,
    ) -> Result<FileAnswer, String> {
        (self.run)(grant, arguments, stop)
    }
}

/// Returns the tools as a catalog lists them.
pub fn file_tool_entries() -> Vec<ToolEntry> {
    let entry = |tool: &FileTool| {
        ToolEntry::new(tool.name, tool.description, tool.schema, CALL_TIME_MAX).idempotent()
    };
    FILE_TOOLS.iter().map(entry).collect()
}

/// Bounds a result to [`RESULT_BYTES_MAX`], cut between characters, with a note. The file tools
/// stay within the bound themselves; this covers oversights, and tools of other crates.
pub fn bound_result(mut content: String) -> String {
    if content.len() > RESULT_BYTES_MAX {
        content.truncate(content.floor_char_boundary(CONTENT_BYTES_MAX));
        content.push_str("\n[the result was cut here; ask for less]");
    }
    content
}

/// Returns the tool of a name.
///
/// # Errors
/// A sentence for the model, with the nearest name.
pub fn find_file_tool(name: &str) -> Result<&'static FileTool, String> {
    let found = FILE_TOOLS.iter().find(|tool| tool.name == name);
    found.ok_or_else(|| {
        let hint = suggestion(name, FILE_TOOLS.iter().map(|tool| tool.name));
        format!("there is no tool of this name{hint}")
    })
}

/// A flag that is set when the caller no longer waits for the answer.
#[derive(Debug, Clone, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Tells the call to end.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns true once it is set.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Replaces characters of a path that would break a line or a terminal.
fn printable(path: &str) -> String {
    path.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}
