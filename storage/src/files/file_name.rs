//! The names of the files of a store. Numbers have twelve digits, so that names sort as numbers do.

/// The name of a file of a store, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StoreFileName {
    /// `<number>.commit`: one commit.
    Commit(u64),
    /// `<first>-<last>.segment`: the commits of a range, packed.
    Segment(u64, u64),
    /// `<number>.snapshot`: records and places of entries as they are after a commit.
    Snapshot(u64),
    /// `<number>-<writer>.new`: a file that is not published yet; its number is that of the commit
    /// that it was to be, or that a packed file ends with.
    Temporary(u64),
}

/// Digits of a number.
const DIGITS: usize = 12;

impl StoreFileName {
    /// Reads a name; `None` for one that this store has not given.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (stem, kind) = name.split_once('.')?;
        match kind {
            "commit" => parse_number(stem).map(Self::Commit),
            "snapshot" => parse_number(stem).map(Self::Snapshot),
            "segment" => {
                let (first, last) = stem.split_once('-')?;
                Some(Self::Segment(parse_number(first)?, parse_number(last)?))
            }
            "new" => parse_number(stem.split_once('-')?.0).map(Self::Temporary),
            _ => None,
        }
    }
}

/// The name of the file of a commit.
pub(super) fn commit_name(number: u64) -> String {
    format!("{number:012}.commit")
}

/// The name of the file of a segment.
pub(super) fn segment_name((first, last): (u64, u64)) -> String {
    format!("{first:012}-{last:012}.segment")
}

/// The name of the file of a snapshot.
pub(super) fn snapshot_name(number: u64) -> String {
    format!("{number:012}.snapshot")
}

/// The name of a file that is not published yet. `writer` has letters, digits and `-` alone.
pub(super) fn temporary_name(number: u64, writer: &str) -> String {
    format!("{number:012}-{writer}.new")
}

fn parse_number(text: &str) -> Option<u64> {
    let digits = text.len() >= DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_given() {
        let names = [
            (commit_name(7), StoreFileName::Commit(7)),
            (segment_name((1, 256)), StoreFileName::Segment(1, 256)),
            (snapshot_name(512), StoreFileName::Snapshot(512)),
            (temporary_name(9, "a1-2"), StoreFileName::Temporary(9)),
        ];
        for (name, read) in names {
            assert_eq!(StoreFileName::parse(&name), Some(read), "{name}");
        }
        for name in [
            "",
            "7.commit",
            "x.commit",
            "000000000007",
            "000000000007.commit.new",
        ] {
            assert_eq!(StoreFileName::parse(name), None, "{name}");
        }
        assert!(commit_name(9) < commit_name(10));
    }
}
