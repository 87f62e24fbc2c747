//! The path of a thread: which versions it has, in which order, and whose entries they are.

/// A piece of another thread that a thread begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPart {
    /// The thread that has the entries.
    pub thread: String,
    /// Version of the first.
    pub first: u64,
    /// Version of the last.
    pub last: u64,
}

/// Consecutive versions of one thread.
#[derive(Debug, Clone, PartialEq, Eq)]
struct VersionRange {
    thread: String,
    first: u64,
    last: u64,
}

/// The versions that a thread is read along, up to its newest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadPath {
    ranges: Vec<VersionRange>,
}

/// The last versions of a path, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastVersions {
    /// The version before them, after which they are read; 0 if there is none.
    pub after: u64,
    /// Their number.
    pub count: usize,
}

impl ThreadPath {
    /// Returns the path of a thread of this id and newest version. What it begins with, if it is a
    /// fork or continues another, ends at the version `base_length` and has these parts.
    pub fn new(
        (id, version): (&str, u64),
        base_length: u64,
        parts: impl IntoIterator<Item = PathPart>,
    ) -> Self {
        let mut ranges = Vec::new();
        let mut own = base_length + 1;
        for part in parts {
            let is_own = part.thread.eq_ignore_ascii_case(id);
            let last = if is_own {
                part.last.min(version)
            } else {
                part.last
            };
            if is_own {
                own = own.max(last + 1);
            }
            ranges.push(VersionRange {
                thread: part.thread,
                first: part.first,
                last,
            });
        }
        ranges.push(VersionRange {
            thread: id.to_owned(),
            first: own,
            last: version,
        });
        ranges.retain(|range| range.first <= range.last);
        Self { ranges }
    }

    /// Returns the last versions up to `until`, at most `count`; `None` if that version is not on
    /// the path.
    pub fn last_versions(&self, until: u64, count: u64) -> Option<LastVersions> {
        let holds = |range: &VersionRange| (range.first..=range.last).contains(&until);
        let end = self.ranges.iter().position(holds)?;
        let (mut left, mut last) = (count, until);
        for range in self.ranges[..=end].iter().rev() {
            let here = last - range.first + 1;
            if here > left {
                let after = last - left;
                return Some(LastVersions {
                    after,
                    count: count as usize,
                });
            }
            left -= here;
            let before = self.ranges.iter().position(|other| other == range)?;
            match before.checked_sub(1).and_then(|at| self.ranges.get(at)) {
                Some(before) => last = before.last,
                None => break,
            }
            if left == 0 {
                return Some(LastVersions {
                    after: last,
                    count: count as usize,
                });
            }
        }
        let count = (count - left) as usize;
        Some(LastVersions { after: 0, count })
    }

    /// Returns the version before a version on the path; 0 for the first, and for one that is not
    /// on the path.
    pub fn version_before(&self, version: u64) -> u64 {
        let mut before = 0;
        for range in &self.ranges {
            if (range.first..=range.last).contains(&version) {
                return match version == range.first {
                    true => before,
                    false => version - 1,
                };
            }
            before = range.last;
        }
        0
    }

    /// Returns the thread whose entry a version is.
    pub fn owner_of(&self, version: u64) -> &str {
        let holds = |range: &&VersionRange| (range.first..=range.last).contains(&version);
        let range = self.ranges.iter().find(holds);
        range.map_or("", |range| &range.thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(ranges: &[(&str, u64, u64)]) -> ThreadPath {
        let range = |(thread, first, last): &(&str, u64, u64)| VersionRange {
            thread: (*thread).to_owned(),
            first: *first,
            last: *last,
        };
        ThreadPath {
            ranges: ranges.iter().map(range).collect(),
        }
    }

    #[test]
    fn the_last_versions_are_counted_along_the_path() {
        let linked = [("b", 8, 8), ("a", 5, 7), ("b", 9, 11)];
        for (ranges, until, count, expected) in [
            (&[("a", 1, 5)][..], 5, 2, Some((3, 2))),
            (&[("a", 1, 5)], 5, 5, Some((0, 5))),
            (&[("a", 1, 5)], 3, 9, Some((0, 3))),
            (&[("a", 1, 5)], 6, 1, None),
            (&[("a", 1, 5)], 0, 1, None),
            (&linked, 11, 3, Some((7, 3))),
            (&linked, 11, 4, Some((6, 4))),
            (&linked, 9, 4, Some((8, 4))),
            (&linked, 6, 9, Some((0, 3))),
            (&linked, 8, 1, Some((0, 1))),
            (&linked, 4, 1, None),
        ] {
            let found = path(ranges).last_versions(until, count);
            let found = found.map(|last| (last.after, last.count));
            assert_eq!(found, expected, "{ranges:?} {until} {count}");
        }
        let before = |version| path(&linked).version_before(version);
        assert_eq!([8, 5, 6, 9, 10, 4].map(before), [0, 8, 5, 7, 9, 0]);
        assert_eq!(path(&linked).owner_of(6), "a");
        assert_eq!(path(&linked).owner_of(8), "b");
    }
}
