//! Copies of `state.json` in `checkpoints.d`: their names, and which of them are kept.
//!
//! A copy is `<version>.json`, or `<version>.patch-<base>.json` for a merge patch against the full
//! copy of the version `base`; `.gz` follows where it is compressed. Versions order the copies, not
//! clocks; a clock decides about age alone, and a file from the future counts as new.

use super::checkpoint_settings::CheckpointSettings;
use std::time::{Duration, SystemTime};

/// Directory of the copies, in that of the thread.
pub const COPIES_DIR: &str = "checkpoints.d";

/// Copies after a full one that are merge patches against it: every tenth is full.
const PATCHES_MAX: usize = 9;

/// A copy, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyName {
    /// Version of the checkpoint.
    pub version: u64,
    /// Version of the full copy that it is a patch against, if it is one.
    pub base: Option<u64>,
    /// True if it is compressed.
    pub compressed: bool,
}

impl CopyName {
    /// Reads the name of a file; `None` if it is not that of a copy.
    pub fn parse(name: &str) -> Option<Self> {
        let (rest, compressed) = match name.strip_suffix(".gz") {
            Some(rest) => (rest, true),
            None => (name, false),
        };
        let rest = rest.strip_suffix(".json")?;
        let (version, base) = match rest.split_once(".patch-") {
            Some((version, base)) => (version, Some(base)),
            None => (rest, None),
        };
        let number = |text: &str| {
            let number: u64 = text.parse().ok()?;
            // No second name of the same version.
            (number.to_string() == text).then_some(number)
        };
        Some(Self {
            version: number(version)?,
            base: match base {
                Some(base) => Some(number(base)?),
                None => None,
            },
            compressed,
        })
    }

    /// Returns the name of the file.
    pub fn file_name(self) -> String {
        let base = self.base.map(|base| format!(".patch-{base}"));
        let end = if self.compressed { ".gz" } else { "" };
        format!("{}{}.json{end}", self.version, base.unwrap_or_default())
    }
}

/// A copy that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointCopy {
    /// Its name.
    pub name: CopyName,
    /// Time of its last change.
    pub modified: SystemTime,
}

/// Returns the full copy that the next copy, of `version`, is made a patch against; `None` if it is
/// to be full itself.
pub fn choose_base(copies: &[CheckpointCopy], version: u64) -> Option<CopyName> {
    let older = || {
        copies
            .iter()
            .map(|copy| copy.name)
            .filter(|name| name.version < version)
    };
    let full = older().filter(|name| name.base.is_none());
    let base = full.max_by_key(|name| name.version)?;
    let patches = older().filter(|name| name.base == Some(base.version));
    (patches.count() < PATCHES_MAX).then_some(base)
}

/// Reason why a file is to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalReason {
    /// There are more copies than `max_checkpoints`.
    TooMany,
    /// It is older than `delete_older_than_days`, and not one of the newest.
    TooOld,
    /// A save that was interrupted left it behind.
    LeftBehind,
    /// The thread has ended, and its checkpoints are not to be kept.
    Ended,
}

impl RemovalReason {
    /// Returns a word for programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TooMany => "too-many",
            Self::TooOld => "too-old",
            Self::LeftBehind => "left-behind",
            Self::Ended => "ended",
        }
    }
}

/// Selects the copies that are not kept, newest first. A full copy that a kept patch rests on is
/// kept with it.
pub fn select_removals(
    copies: &[CheckpointCopy],
    settings: &CheckpointSettings,
    now: SystemTime,
) -> Vec<(CopyName, RemovalReason)> {
    let mut copies = copies.to_vec();
    copies.sort_by_key(|copy| std::cmp::Reverse(copy.name.version));
    let reason = |(place, copy): (usize, &CheckpointCopy)| {
        if place >= settings.copies_max {
            return Some(RemovalReason::TooMany);
        }
        let cleanup = settings.cleanup?;
        let age = now.duration_since(copy.modified).unwrap_or(Duration::ZERO);
        (place >= cleanup.newest && age > cleanup.age_max).then_some(RemovalReason::TooOld)
    };
    let reasons: Vec<Option<RemovalReason>> = copies.iter().enumerate().map(reason).collect();
    let kept = copies.iter().zip(&reasons);
    let kept = kept.filter(|(_, reason)| reason.is_none());
    let bases: Vec<u64> = kept.filter_map(|(copy, _)| copy.name.base).collect();
    let removed = copies.iter().zip(&reasons).filter_map(|(copy, reason)| {
        let is_base = copy.name.base.is_none() && bases.contains(&copy.name.version);
        let reason = reason.filter(|_| !is_base)?;
        Some((copy.name, reason))
    });
    removed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread_files::AgeCleanup;

    const DAY: Duration = Duration::from_secs(86_400);

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + 20_000 * DAY
    }

    fn copy(version: u64, base: Option<u64>, days: u32) -> CheckpointCopy {
        CheckpointCopy {
            name: CopyName {
                version,
                base,
                compressed: false,
            },
            modified: now() - days * DAY - Duration::from_secs(1),
        }
    }

    fn settings(copies_max: usize, cleanup: Option<(usize, u32)>) -> CheckpointSettings {
        CheckpointSettings {
            copies_max,
            cleanup: cleanup.map(|(newest, days)| AgeCleanup {
                newest,
                age_max: days * DAY,
            }),
            ..CheckpointSettings::parse(None).unwrap()
        }
    }

    fn list_removed(
        copies: &[CheckpointCopy],
        settings: &CheckpointSettings,
    ) -> Vec<(u64, &'static str)> {
        let removed = select_removals(copies, settings, now());
        let removed = removed.into_iter();
        removed
            .map(|(name, reason)| (name.version, reason.as_str()))
            .collect()
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in [
            "0.json",
            "12.json.gz",
            "12.patch-3.json",
            "12.patch-3.json.gz",
        ] {
            assert_eq!(CopyName::parse(name).unwrap().file_name(), name);
        }
        for name in [
            "",
            "a.json",
            "012.json",
            "12",
            "12.txt",
            "12.json.new",
            "-1.json",
            "12.patch-.json",
            "12.patch-03.json",
            "+12.json",
            "12.json.gz.gz",
            "12.gz",
        ] {
            assert_eq!(CopyName::parse(name), None, "{name}");
        }
    }

    #[test]
    fn newest_are_kept_then_the_young_and_never_too_many() {
        let copies: Vec<_> = (1..=6).map(|n| copy(n, None, 20 - n as u32)).collect();
        let none: [(u64, &str); 0] = [];
        for (settings, expected) in [
            (
                settings(10, Some((3, 7))),
                &[(3, "too-old"), (2, "too-old"), (1, "too-old")][..],
            ),
            (
                settings(10, Some((0, 16))),
                &[
                    (4, "too-old"),
                    (3, "too-old"),
                    (2, "too-old"),
                    (1, "too-old"),
                ],
            ),
            (settings(10, None), &none),
            (settings(4, None), &[(2, "too-many"), (1, "too-many")]),
            (
                settings(5, Some((4, 7))),
                &[(2, "too-old"), (1, "too-many")],
            ),
        ] {
            assert_eq!(list_removed(&copies, &settings), expected);
        }
        assert_eq!(list_removed(&[], &settings(1, None)), none);
    }

    /// A clock that was put back makes files of the future, which are no older for it.
    #[test]
    fn files_of_the_future_count_as_new() {
        let mut copies = [copy(1, None, 0), copy(2, None, 0)];
        copies[0].modified = now() + DAY;
        assert!(
            list_removed(&copies, &settings(10, Some((0, 0))))
                .iter()
                .all(|(version, _)| *version == 2)
        );
    }

    #[test]
    fn full_copy_stays_while_a_kept_patch_rests_on_it() {
        let copies = [copy(1, None, 0), copy(2, Some(1), 0), copy(3, Some(1), 0)];
        let too_many = "too-many";
        assert_eq!(list_removed(&copies, &settings(1, None)), [(2, too_many)]);
        let copies = [&copies[..], &[copy(4, None, 0)]].concat();
        assert_eq!(
            list_removed(&copies, &settings(1, None)),
            [(3, too_many), (2, too_many), (1, too_many)]
        );
    }

    #[test]
    fn every_tenth_copy_is_full() {
        let mut copies = Vec::new();
        for version in 1..=25_u64 {
            let base = choose_base(&copies, version).map(|base| base.version);
            let expected = match version {
                1 | 11 | 21 => None,
                version => Some((version - 1) / 10 * 10 + 1),
            };
            assert_eq!(base, expected, "{version}");
            copies.push(copy(version, base, 0));
        }
    }
}
