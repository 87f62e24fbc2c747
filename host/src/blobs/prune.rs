//! Removal of blobs that nothing names.
//!
//! A blob is written before the message that names it, so one that nothing names may be in use in a
//! moment: it stays for [`BLOB_GRACE`] after a host has last stored it. A host that stores the same
//! bytes again makes an old blob young ([`super::write_blob`]), which moves its record; the removal
//! replaces the record at the version that was listed. So a blob is never taken from a host that
//! has just been told that it is stored.
//!
//! The record stays, without lines: it guards them, and a record that guards others must never be
//! deleted. The next writer goes on from it as after a crash.

use super::references::list_loose_blobs;
use super::{BLOB, BLOB_GRACE, BlobError, BlobState, UnreferencedBlob, blob_key};
use crate::clock::ClockTime;
use crate::storage::{CommitOp, CommitOutcome, RecordExpectation, RecordKey, StorageBackend};

/// Removes the blobs of a store that nothing names and that no host has stored for [`BLOB_GRACE`],
/// of one chain or of all; with `dry_run` it only names them. One whose record says no time stays.
///
/// # Errors
/// Those of the store, and [`BlobError::Damaged`] if a record or an entry cannot be read that may
/// name blobs. Blobs may have been removed before.
pub fn prune_blobs(
    storage: &dyn StorageBackend,
    chain: Option<&str>,
    now: ClockTime,
    dry_run: bool,
) -> Result<Vec<UnreferencedBlob>, BlobError> {
    let mut pruned = Vec::new();
    for loose in list_loose_blobs(storage)? {
        let is_asked = chain.is_none_or(|chain| loose.blob.chain.eq_ignore_ascii_case(chain));
        let Some(state) = loose.state.filter(|state| is_asked && is_old(state, now)) else {
            continue;
        };
        if dry_run || remove_lines(storage, &loose.blob, (loose.version, state))? {
            pruned.push(loose.blob);
        }
    }
    Ok(pruned)
}

/// Returns true if a host has last stored the blob before the grace time. A time in the future is
/// that of a clock which was put back since.
fn is_old(state: &BlobState, now: ClockTime) -> bool {
    let grace = i64::try_from(BLOB_GRACE.as_secs()).unwrap_or(i64::MAX);
    let stored = state.stored;
    stored.is_some_and(|stored| now.seconds.saturating_sub(stored) > grace)
}

/// Removes the lines of a blob, unless its record has moved since it was listed.
fn remove_lines(
    storage: &dyn StorageBackend,
    blob: &UnreferencedBlob,
    (version, state): (u64, BlobState),
) -> Result<bool, BlobError> {
    let key = blob_key(&blob.chain, &blob.hash);
    let trim = CommitOp::Trim {
        log: BLOB.to_owned(),
        partition: key.clone(),
        below: state.written + 1,
    };
    let emptied = BlobState {
        written: 0,
        ..state
    };
    let put = CommitOp::Put {
        key: RecordKey::new(BLOB, key),
        expect: RecordExpectation::Version(version),
        value: emptied.to_text(),
    };
    // It makes room, which a full store needs most.
    Ok(storage.commit(&[trim, put], true)? == CommitOutcome::Committed)
}
