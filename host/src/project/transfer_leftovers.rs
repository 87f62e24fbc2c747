//! Leftovers of copies of a store in `.ai/threads`: parts of one that was interrupted, which
//! nothing uses, and the stores that were replaced.

use super::store_choice::StoreChoice;
use super::transfer::{COPY_DIRECTORY, REPLACED_DIRECTORY, file_names};
use super::{ProjectError, ProjectStore};
use crate::authority::{self, HolderState, child_dir};
use cap_std::fs::Dir;

/// Most entries that are counted in one directory: more than a store has files.
const ENTRIES_MAX: usize = 100_000;
/// Levels of directories below a place that are counted: a number, a store, its files.
const LEVELS_MAX: usize = 3;

/// Leftovers of copies of a store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TransferLeftovers {
    /// The nonce of the process that copies the store now: what is there is its own.
    pub copier: Option<String>,
    /// Parts of a copy that did not get its name.
    pub unfinished: Option<LeftoverStore>,
    /// A store that does not count, beside the one that does.
    pub uncounted: Option<(ProjectStore, LeftoverStore)>,
    /// The store that counts, if the file `current-store` is there and names it.
    pub choice: Option<ProjectStore>,
    /// The stores that were replaced.
    pub replaced: Vec<LeftoverStore>,
}

/// A store, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftoverStore {
    /// Its place, below `.ai/threads`.
    pub place: String,
    /// Bytes of its files.
    pub bytes: u64,
}

impl TransferLeftovers {
    /// Looks through `.ai/threads`; changes nothing.
    ///
    /// # Errors
    /// If the file `current-store` or the lock of its process cannot be read.
    pub fn find(threads: &Dir) -> Result<Self, ProjectError> {
        let choice = StoreChoice::read(threads)?;
        let mut copier = None;
        if let Some(choice) = &choice
            && authority::holder_state(threads, &choice.copier)? == HolderState::Lives
        {
            copier = Some(choice.copier.clone());
        }
        let current = choice.as_ref().map(|choice| choice.current);
        let other = current.map(ProjectStore::other);
        let is_there = |store: &ProjectStore| threads.symlink_metadata(store.place()).is_ok();
        let uncounted = other.filter(is_there).map(|store| {
            let names = file_names(store);
            let bytes = names.map(|name| count_bytes(threads, &name, LEVELS_MAX));
            let bytes = bytes.sum();
            let place = store.place().to_owned();
            (store, LeftoverStore { place, bytes })
        });
        Ok(Self {
            copier,
            unfinished: leftover_at(threads, COPY_DIRECTORY),
            // A project with the other store alone has moved to it by another hand.
            uncounted: uncounted.filter(|_| current.is_some_and(|current| is_there(&current))),
            choice: current,
            replaced: list_replaced(threads),
        })
    }

    /// True if a copy was interrupted.
    pub fn is_interrupted(&self) -> bool {
        let something =
            self.choice.is_some() || self.unfinished.is_some() || self.uncounted.is_some();
        something && self.copier.is_none()
    }

    /// Says what an interrupted copy has left, how large it is and what to do; `None` if none was
    /// interrupted.
    pub fn describe_interrupted(&self) -> Option<(String, String)> {
        if !self.is_interrupted() {
            return None;
        }
        let LeftoverStore { place, bytes } = match (&self.unfinished, &self.uncounted) {
            (Some(unfinished), _) => unfinished,
            (None, Some((_, uncounted))) => uncounted,
            (None, None) => {
                let what = "a `threadkeep copy` was interrupted: .ai/threads/current-store is left";
                let mend = self.describe_removal();
                return Some((what.to_owned(), format!("nothing is lost: {mend}")));
            }
        };
        let what = format!(
            "a `threadkeep copy` was interrupted: .ai/threads/{place} with {bytes} bytes is not in \
             use"
        );
        let mend = match &self.uncounted {
            Some((store, uncounted)) => format!(
                "`threadkeep copy --to {}` begins it anew and puts .ai/threads/{} away; if you \
                 want no copy, {}",
                store.word(),
                uncounted.place,
                self.describe_removal()
            ),
            None => format!(
                "`threadkeep copy` begins it anew; if you want none, {}",
                self.describe_removal()
            ),
        };
        Some((what, mend))
    }

    /// Says by what the leftovers are removed.
    fn describe_removal(&self) -> String {
        match self.choice {
            Some(current) => format!("`threadkeep copy --to {}` removes it", current.word()),
            None => "`threadkeep copy` to the store that you have removes it".to_owned(),
        }
    }
}

fn leftover_at(threads: &Dir, place: &str) -> Option<LeftoverStore> {
    threads.symlink_metadata(place).ok()?;
    let bytes = count_bytes(threads, place, LEVELS_MAX);
    let place = place.to_owned();
    Some(LeftoverStore { place, bytes })
}

fn list_replaced(threads: &Dir) -> Vec<LeftoverStore> {
    let Ok(kept) = child_dir(threads, REPLACED_DIRECTORY) else {
        return Vec::new();
    };
    let entries = kept.entries().into_iter().flatten().take(ENTRIES_MAX);
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut found: Vec<LeftoverStore> = names
        .map(|name| LeftoverStore {
            bytes: count_bytes(&kept, &name, LEVELS_MAX),
            place: format!("{REPLACED_DIRECTORY}/{name}"),
        })
        .collect();
    found.sort_by(|one, other| one.place.cmp(&other.place));
    found
}

/// The bytes of a file, or of the files in a directory. What cannot be read, and what is a link,
/// counts nothing.
fn count_bytes(dir: &Dir, name: &str, levels: usize) -> u64 {
    let Ok(seen) = dir.symlink_metadata(name) else {
        return 0;
    };
    if seen.is_file() {
        return seen.len();
    }
    let Some((below, inner)) = levels.checked_sub(1).zip(child_dir(dir, name).ok()) else {
        return 0;
    };
    let entries = inner.entries().into_iter().flatten().take(ENTRIES_MAX);
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let bytes = names.map(|name| count_bytes(&inner, &name, below));
    bytes.sum()
}
