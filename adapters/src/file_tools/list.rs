//! `list_files`: the entries of a directory, by name.

use super::arguments::ToolArguments;
use super::grant::{GrantedFiles, LinkRule, OpenedPath, SeenEntry, SeenKind};
use super::work::CallWork;
use super::{CONTENT_BYTES_MAX, StopFlag};
use threadkeep_storage::directory::DirectoryTree;

pub(super) const SCHEMA: &str = concat!(
    r#"{"type":"object","properties":{"path":{"type":"string","#,
    r#""description":"The directory, relative to the root; the root itself if left out."},"#,
    r#""depth":{"type":"integer","minimum":1,"maximum":8,"#,
    r#""description":"How many levels to show; 1 if left out."}},"additionalProperties":false}"#
);

/// Most levels of one listing.
const DEPTH_MAX: u64 = 8;

/// Most lines of one listing: as many as a model can use.
const SHOWN_MAX: usize = 1_000;

pub(super) fn run(
    grant: &GrantedFiles,
    arguments: &str,
    stop: &StopFlag,
) -> Result<String, String> {
    let arguments = ToolArguments::parse(arguments, &["path", "depth"])?;
    let path = arguments.text("path")?.unwrap_or_default();
    let depth = arguments.number("depth", 1..=DEPTH_MAX, 1)?;
    let (place, resolved) = grant.open_path(path)?;
    let OpenedPath::Directory(dir) = place else {
        return Err(format!(
            "\"{path}\" is a file; read_file shows what is in it"
        ));
    };
    let mut listing = FileListing {
        grant,
        work: CallWork::new(stop, grant.looked_max),
        text: String::new(),
        shown: 0,
        cut: false,
        incomplete: false,
    };
    listing.add_directory(&*dir, &resolved, depth)?;
    Ok(listing.finish())
}

struct FileListing<'a> {
    grant: &'a GrantedFiles,
    work: CallWork<'a>,
    text: String,
    shown: usize,
    cut: bool,
    incomplete: bool,
}

impl FileListing<'_> {
    /// Lists a directory. Recurses at most [`DEPTH_MAX`] times.
    fn add_directory(
        &mut self,
        dir: &dyn DirectoryTree,
        path: &str,
        depth: u64,
    ) -> Result<(), String> {
        let found = self
            .grant
            .list_entries(dir, path, LinkRule::Follow, &mut self.work)?;
        self.incomplete |= found.incomplete;
        for entry in found.entries {
            if self.cut || self.work.is_stopped() {
                return Ok(());
            }
            let whole = if path.is_empty() {
                entry.name.clone()
            } else {
                format!("{path}/{}", entry.name)
            };
            self.add_line(&whole, &entry);
            if entry.kind == SeenKind::Directory && depth > 1 {
                // A directory that may not be read is listed without its content.
                let inside = self
                    .grant
                    .child_dir(dir, &entry.name)
                    .and_then(|child| self.add_directory(&*child, &whole, depth - 1));
                self.incomplete |= inside.is_err();
            }
        }
        Ok(())
    }

    fn add_line(&mut self, path: &str, entry: &SeenEntry) {
        let path = super::printable(path);
        let line = match entry.kind {
            SeenKind::Directory => format!("{path}/\n"),
            SeenKind::File { bytes } => format!("{path} ({bytes} bytes)\n"),
            SeenKind::Link => format!("{path} (link)\n"),
            SeenKind::HardLink => format!("{path} (hard link, not to be read)\n"),
            SeenKind::Special => format!("{path} (not a regular file)\n"),
        };
        if self.shown == SHOWN_MAX || self.text.len() + line.len() > CONTENT_BYTES_MAX {
            self.cut = true;
            return;
        }
        self.shown += 1;
        self.text.push_str(&line);
    }

    fn finish(mut self) -> String {
        let incomplete = self.incomplete || self.work.is_spent();
        if self.text.is_empty() && !incomplete {
            self.text.push_str("[the directory is empty]");
        }
        if self.cut {
            self.text.push_str(&format!(
                "[only the first {} are shown; list a directory further down]",
                self.shown
            ));
        }
        if incomplete {
            self.text.push_str("[some entries cannot be shown]");
        }
        self.text
    }
}
