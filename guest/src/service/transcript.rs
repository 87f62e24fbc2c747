//! Documents and messages made from histories, in pages.

use super::history::{PAGE_ENTRIES_MAX, check_on_path, thread_path};
use super::{Error, ThreadService};
use crate::ports::HostPorts;
use threadkeep_core::error::Error as CoreError;
use threadkeep_core::history::{Entry, provider_messages};
use threadkeep_core::plan::LoadedThread;
use threadkeep_core::time::UnixTime;
use threadkeep_core::transcript;

/// Most bytes of one page of messages or of one piece of a document.
pub(super) const PAGE_BYTES_MAX: usize = 4 << 20;

/// A piece of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentPiece {
    /// Its text.
    pub text: String,
    /// The version that the document now reaches.
    pub version: u64,
    /// Start of the next piece.
    pub cursor: Option<String>,
}

impl<P: HostPorts> ThreadService<P> {
    /// Reads messages of the entries after `after` up to `until` (`None`: the newest).
    pub fn messages(
        &self,
        thread: &str,
        after: u64,
        until: Option<u64>,
    ) -> Result<(Vec<String>, Option<u64>), Error> {
        let (_, lines, mut cursor) = self.entries(thread, after, until, PAGE_ENTRIES_MAX)?;
        let (mut texts, mut bytes) = (Vec::new(), 0);
        let mut read = None;
        for line in &lines {
            let own = provider_messages(&line.entry);
            bytes += own.iter().map(String::len).sum::<usize>();
            if bytes > PAGE_BYTES_MAX && !texts.is_empty() {
                cursor = read;
                break;
            }
            texts.extend(own);
            read = Some(line.entry.version);
        }
        Ok((texts, cursor))
    }

    /// Renders a document as it was at a version (`None`: the newest), or a piece of one. What the
    /// registry knows (`thread`) can only be had as it is now.
    pub fn render(
        &self,
        thread: &str,
        what: &str,
        at: Option<u64>,
        after: u64,
        cursor: Option<String>,
    ) -> Result<DocumentPiece, Error> {
        if what == "checkpoint" {
            return self.render_checkpoint(thread, at, cursor.as_deref());
        }
        let after = self.page_start(thread, after, cursor)?;
        match what {
            "markdown" => {
                let render =
                    |entry: &Entry, opening: &str| Ok(transcript::markdown(entry, opening));
                self.render_piece(thread, at, after, &render)
            }
            "jsonl" => {
                let render = |entry: &Entry, _: &str| transcript::jsonl(entry);
                self.render_piece(thread, at, after, &render)
            }
            "manifest" | "thread" => {
                let loaded = self.load(thread)?;
                let at = at.unwrap_or(loaded.head.value.version);
                self.render_records(loaded, what, at)
            }
            other => {
                let names = ["markdown", "jsonl", "manifest", "thread", "checkpoint"];
                Err(CoreError::invalid_name("what", other, "is not a document", &names).into())
            }
        }
    }

    /// Renders a document of one piece that is made from the records of a thread. At an earlier
    /// version it leaves out what the head alone knows.
    fn render_records(
        &self,
        mut loaded: LoadedThread,
        what: &str,
        at: u64,
    ) -> Result<DocumentPiece, Error> {
        let newest = loaded.head.value.version;
        if at != newest {
            if what == "thread" {
                let problem = format!("is not the newest version, {newest}, of what is registered");
                return Err(CoreError::invalid("at", &at.to_string(), problem).into());
            }
            let updated = self.time_at(&loaded, at)?;
            let head = loaded.head.value_mut();
            (head.version, head.updated, head.session) = (at, updated, None);
        }
        let text = match what {
            "manifest" => transcript::manifest(&loaded)?,
            _ => transcript::thread_json(&loaded)?,
        };
        Ok(DocumentPiece {
            text,
            version: at,
            cursor: None,
        })
    }

    /// Returns the time of the entry of a version on a thread's path; at version 0, that of its
    /// creation.
    pub(super) fn time_at(&self, loaded: &LoadedThread, at: u64) -> Result<UnixTime, Error> {
        let path = thread_path(loaded);
        check_on_path(loaded, &path, "at", at)?;
        let mut time = loaded.thread.value.created;
        if let Some(range) = path.range_of(at) {
            let texts = self.range_entries(loaded, range, at, 1, false)?;
            for (_, text) in texts {
                time = Entry::from_text(&text)?.time;
            }
        }
        Ok(time)
    }

    fn render_piece(
        &self,
        thread: &str,
        at: Option<u64>,
        after: u64,
        render: &dyn Fn(&Entry, &str) -> Result<String, CoreError>,
    ) -> Result<DocumentPiece, Error> {
        let (loaded, lines, mut cursor) =
            self.entries_up_to(thread, after, ("at", at), PAGE_ENTRIES_MAX)?;
        let (mut text, mut version) = (String::new(), after.min(loaded.head.value.version));
        // Only the path begins with it, not a further piece.
        let mut opening = match after {
            0 => transcript::markdown_opening(&loaded.thread.value),
            _ => String::new(),
        };
        for line in &lines {
            let own = render(&line.entry, &std::mem::take(&mut opening))?;
            if text.len() + own.len() > PAGE_BYTES_MAX && !text.is_empty() {
                cursor = Some(version);
                break;
            }
            text.push_str(&own);
            version = line.entry.version;
        }
        Ok(DocumentPiece {
            text,
            version,
            cursor: cursor.map(|after| after.to_string()),
        })
    }
}
