//! The path of a thread: the ranges of entries that it is read along, in order.

use super::{BasePart, HistoryBase, ThreadRecord};
use crate::error::Error;
use crate::id;

/// Consecutive versions of the own entries of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathRange<'a> {
    /// Id of that thread.
    pub thread: &'a str,
    /// The first version.
    pub from: u64,
    /// The last version.
    pub to: u64,
    /// SHA-256 that the entry of the last version has, where the base of the thread fixes it.
    pub hash: Option<&'a str>,
}

impl PathRange<'_> {
    /// Returns true if the version is in the range.
    pub fn contains(&self, version: u64) -> bool {
        (self.from..=self.to).contains(&version)
    }
}

/// The ranges of a thread's path up to its newest version, each with at least one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryPath<'a> {
    /// The ranges, in the order in which they are read.
    pub ranges: Vec<PathRange<'a>>,
}

impl<'a> HistoryPath<'a> {
    /// Returns the path of a thread whose newest version is `newest`.
    pub fn of(thread: &'a ThreadRecord, newest: u64) -> Self {
        let mut ranges = Vec::new();
        let mut own_from = thread.base_length().saturating_add(1);
        for part in thread.base.iter().flat_map(|base| &base.parts) {
            let own = id::key(&part.thread) == id::key(&thread.id);
            let to = if own { part.to.min(newest) } else { part.to };
            if own {
                own_from = own_from.max(to.saturating_add(1));
            }
            if part.from <= to {
                ranges.push(PathRange {
                    thread: &part.thread,
                    from: part.from,
                    to,
                    hash: (!own).then_some(&part.hash),
                });
            }
        }
        if own_from <= newest {
            ranges.push(PathRange {
                thread: &thread.id,
                from: own_from,
                to: newest,
                hash: None,
            });
        }
        Self { ranges }
    }

    /// Returns the base of a new thread that goes on where the path ends; `None` for a path without
    /// entries. `hash_of` returns the hash of the entry of a version, for the ranges whose last
    /// entry the path does not fix.
    ///
    /// # Errors
    /// `ErrorKind::Corrupt` if a hash that is needed is not known.
    pub fn to_base(
        &self,
        hash_of: &dyn Fn(u64) -> Option<String>,
    ) -> Result<Option<HistoryBase>, Error> {
        let parts = self.ranges.iter().map(|range| {
            let fixed = range.hash.map(str::to_owned);
            let hash = fixed.or_else(|| hash_of(range.to)).ok_or_else(|| {
                let (of, version) = (range.thread, range.to);
                Error::corrupt(format!(
                    "the hash of version {version} of {of} is not known"
                ))
            })?;
            Ok(BasePart {
                thread: range.thread.to_owned(),
                from: range.from,
                to: range.to,
                hash,
            })
        });
        let parts = parts.collect::<Result<_, _>>();
        parts.map(HistoryBase::from_parts)
    }

    /// Returns the range that holds a version; `None` if the path leaves it out.
    pub fn range_of(&self, version: u64) -> Option<PathRange<'a>> {
        let mut ranges = self.ranges.iter();
        ranges.find(|range| range.contains(version)).copied()
    }

    /// Returns what is left to be read of the path after a version of it (0: all), without the
    /// ranges that are read already.
    pub fn after(&self, version: u64) -> Self {
        let mut ranges = self.ranges.clone();
        if let Some(at) = ranges.iter().position(|range| range.contains(version)) {
            ranges.drain(..at);
            ranges[0].from = version.saturating_add(1);
            ranges.retain(|range| range.from <= range.to);
        }
        Self { ranges }
    }

    /// Cuts what comes after a version; all of it if the version lies before.
    pub fn until(mut self, version: u64) -> Self {
        let found = self.ranges.iter().position(|range| range.contains(version));
        self.ranges.truncate(found.map_or(0, |at| at + 1));
        if let Some(last) = self.ranges.last_mut().filter(|last| last.to > version) {
            last.to = version;
            last.hash = None;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::bare_record;
    use super::super::{BasePart, HistoryBase};
    use super::*;

    /// Reads a path to its end, one version at a time, from the version before.
    fn versions(path: &HistoryPath<'_>) -> Vec<u64> {
        let mut read = Vec::new();
        while let Some(next) = path
            .after(read.last().copied().unwrap_or_default())
            .ranges
            .first()
        {
            assert_eq!(path.range_of(next.from).unwrap().thread, next.thread);
            read.push(next.from);
        }
        read
    }

    #[test]
    fn path_reads_parts_then_own_versions() {
        let part = |thread: &str, from, to| BasePart {
            thread: thread.to_owned(),
            from,
            to,
            hash: String::new(),
        };
        for (length, parts, newest, expected) in [
            (0, vec![], 0, vec![]),
            (0, vec![], 2, vec![1, 2]),
            (2, vec![part("a", 1, 2)], 2, vec![1, 2]),
            (2, vec![part("a", 1, 2)], 4, vec![1, 2, 3, 4]),
            (
                7,
                vec![part("a", 2, 3), part("b", 6, 7)],
                9,
                vec![2, 3, 6, 7, 8, 9],
            ),
            (
                7,
                vec![part("Own", 8, 8), part("a", 6, 7)],
                10,
                vec![8, 6, 7, 9, 10],
            ),
            (
                7,
                vec![part("own", 8, 8), part("a", 6, 7)],
                8,
                vec![8, 6, 7],
            ),
            (7, vec![part("own", 8, 8), part("a", 6, 7)], 7, vec![6, 7]),
        ] {
            let mut record = bare_record("own");
            record.base = (length > 0).then_some(HistoryBase { length, parts });
            let path = HistoryPath::of(&record, newest);
            assert_eq!(versions(&path), expected, "{:?}", record.base);
            for (at, version) in expected.iter().enumerate() {
                let cut = versions(&path.clone().until(*version));
                assert_eq!(cut, expected[..=at], "until {version}");
            }
            assert_eq!(path.range_of(length + 100), None);
            assert!(path.clone().until(length + 100).ranges.is_empty());
        }
    }
}
