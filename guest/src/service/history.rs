//! Histories as they are stored, in pages.

use super::{Error, Service};
use crate::ports::Ports;
use threadkeep_core::error::Error as CoreError;
use threadkeep_core::history::Entry;
use threadkeep_core::plan::Loaded;

/// Most entries of one page.
pub const PAGE_ENTRIES_MAX: u32 = 500;

/// An entry with its stored text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The entry.
    pub entry: Entry,
    /// As it is stored.
    pub text: String,
}

/// A page of entries: those after a version, and where to go on.
pub type Page = (Loaded, Vec<Line>, Option<u64>);

impl<P: Ports> Service<P> {
    /// Entries after `after`, up to `until` (the newest if it is `None`). The head is read first, so several calls
    /// agree about what is below its version.
    pub fn entries(
        &self,
        thread: &str,
        after: u64,
        until: Option<u64>,
        limit: u32,
    ) -> Result<Page, Error> {
        if limit == 0 || limit > PAGE_ENTRIES_MAX {
            return Err(CoreError::invalid("limit", &limit.to_string(), "must be 1 to 500").into());
        }
        let loaded = self.load(thread)?;
        let newest = loaded.head.value.version;
        let until = until.unwrap_or(newest);
        for (field, version) in [("after", after), ("version", until)] {
            if version > newest {
                let problem = format!("is not reached: the newest version is {newest}");
                return Err(CoreError::invalid(field, &version.to_string(), problem).into());
            }
        }
        let wanted = u32::try_from(until.saturating_sub(after))
            .unwrap_or(u32::MAX)
            .min(limit);
        if wanted == 0 {
            return Ok((loaded, Vec::new(), None));
        }
        let texts = self
            .ports
            .read_history(&loaded.key(), after + 1, wanted, false)?;
        let mut lines = Vec::with_capacity(texts.len());
        for (expected, (position, text)) in (after + 1..).zip(texts) {
            if position != expected {
                return Err(gap(&loaded, expected));
            }
            lines.push(Line {
                entry: Entry::from_text(&text)?,
                text,
            });
        }
        let last = after + lines.len() as u64;
        if lines.is_empty() {
            return Err(gap(&loaded, after + 1));
        }
        Ok((loaded, lines, (last < until).then_some(last)))
    }
}

fn gap(loaded: &Loaded, version: u64) -> Error {
    CoreError::Corrupt(format!(
        "version {version} of {} is missing",
        loaded.thread.value.id
    ))
    .into()
}
