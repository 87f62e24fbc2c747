//! The quota of a tenant's store, and how its bytes are counted.
//!
//! Every backend counts the same bytes, so that the same history reaches the quota at the same
//! commit everywhere: the texts that the guest wrote, plus a flat amount for each thing, so that a
//! million empty records are not free. The quota measures contents, not a file: pages, indexes and
//! the write-ahead log come on top, and the file does not shrink when records are deleted.

use super::StorageError;

/// Bytes counted for each record beside its name and value: about what a row, its key and its index
/// entry take.
pub const RECORD_BYTES_OVERHEAD: u64 = 64;
/// Bytes counted for each log entry beside its value.
pub const ENTRY_BYTES_OVERHEAD: u64 = 16;
/// Bytes counted for each non-empty log beside its name.
pub const PARTITION_BYTES_OVERHEAD: u64 = 64;

/// A bound on the contents of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageQuota {
    /// Bytes that any commit may fill.
    pub limit_bytes: u64,
    /// Bytes above the limit that only closing commits may fill, so that a full store can still
    /// record the truth.
    pub closing_margin_bytes: u64,
}

impl StorageQuota {
    /// The limit of the preset `strict` where the policy sets none: about a million events.
    pub const STRICT_LIMIT_BYTES: u64 = 1 << 30;

    /// A closing commit settles, ends or cancels; 16 MiB hold thousands of them.
    pub const CLOSING_MARGIN_BYTES: u64 = 16 << 20;

    /// Returns the bytes in use after a commit that changes them by `growth`, or the refusal. A
    /// commit that does not grow the store is always admitted, however full it is.
    pub fn admit(self, used: u64, growth: i64, closing: bool) -> Result<u64, StorageError> {
        let after = used.saturating_add_signed(growth);
        let margin = if closing {
            self.closing_margin_bytes
        } else {
            0
        };
        let limit = self.limit_bytes.saturating_add(margin);
        if growth > 0 && after > limit {
            return Err(StorageError::QuotaExceeded { limit, used });
        }
        Ok(after)
    }
}

/// The bytes that a record counts for.
pub fn record_bytes(name_bytes: usize, value_bytes: usize) -> i64 {
    to_signed(name_bytes as u64 + value_bytes as u64 + RECORD_BYTES_OVERHEAD)
}

/// The bytes that a log entry counts for.
pub fn entry_bytes(value_bytes: usize) -> i64 {
    to_signed(value_bytes as u64 + ENTRY_BYTES_OVERHEAD)
}

/// The bytes that a non-empty log counts for.
pub fn partition_bytes(name_bytes: usize) -> i64 {
    to_signed(name_bytes as u64 + PARTITION_BYTES_OVERHEAD)
}

/// Sizes in memory are below 2^63.
fn to_signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admits_up_to_the_limit_and_a_closing_commit_up_to_the_margin() {
        let quota = StorageQuota {
            limit_bytes: 100,
            closing_margin_bytes: 10,
        };
        let refused = |limit, used| Err(StorageError::QuotaExceeded { limit, used });
        let cases = [
            ("fills it", 90, 10, false, Ok(100)),
            ("one over", 90, 11, false, refused(100, 90)),
            ("closing fills the margin", 100, 10, true, Ok(110)),
            (
                "closing one over the margin",
                100,
                11,
                true,
                refused(110, 100),
            ),
            (
                "the margin is not for others",
                100,
                1,
                false,
                refused(100, 100),
            ),
            ("over already, growing", 200, 1, true, refused(110, 200)),
            ("over already, the same", 200, 0, false, Ok(200)),
            ("over already, shrinking", 200, -50, false, Ok(150)),
            ("never below nothing", 10, -50, false, Ok(0)),
        ];
        for (name, used, growth, closing, expected) in cases {
            assert_eq!(quota.admit(used, growth, closing), expected, "{name}");
        }
    }
}
