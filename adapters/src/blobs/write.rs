//! Writing of blobs, in as many commits as their lines need.
//!
//! Each commit replaces the record of the blob at the version that was read, so two writers of the
//! same blob never add the same line twice, and one goes on where the other was stopped. It also
//! checks that the record of the chain has not moved since the caller looked at the thread: what
//! ends or deletes a thread moves it.
//!
//! A blob that is there already is stored again in name only: its record gets the time, unless the
//! one that it has is young, so that a pruning leaves it to its message.

use super::{
    BLOB, BLOB_BYTES_MAX, BLOB_GRACE, BlobError, BlobName, BlobState, LINE_BYTES, blob_key,
    line_count, read_state,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::error::Error;
use threadkeep_storage::{
    CommitOp, CommitOutcome, RecordExpectation, RecordKey, StorageBackend, StorageError,
};

/// Lines in one commit: seven of half a MiB, and the record, are under the 4 MiB of a commit.
const LINES_PER_COMMIT: usize = 7;
/// Most commits that another writer of the same blob may come before.
const RACES_MAX: u32 = 64;

/// The outcome of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlobWrite {
    /// The blob is stored, now or since earlier.
    Stored(BlobName),
    /// The record of the chain has moved: the caller looks at the thread again.
    ChainMoved,
}

/// Returns the version of the record of a chain; `None` if there is none.
///
/// # Errors
/// Those of the store.
pub fn chain_version(
    storage: &dyn StorageBackend,
    chain: &str,
) -> Result<Option<u64>, StorageError> {
    let found = storage.get(&[chain_record(chain)])?;
    Ok(found.first().map(|record| record.version))
}

fn chain_record(chain: &str) -> RecordKey {
    RecordKey::new("chain", chain.to_lowercase())
}

/// Writes a blob under a chain whose record has the version `chain_version`. One that is there is
/// not written again, one that is not whole is gone on with. `now` is the time of the host, in
/// seconds since 1970.
///
/// # Errors
/// [`BlobError::Empty`], [`BlobError::TooLarge`], [`BlobError::Damaged`] if something else is
/// stored under its name, and those of the store, such as a quota that is reached.
pub fn write_blob<C: Error + 'static>(
    storage: &dyn StorageBackend,
    (chain, chain_version): (&str, u64),
    (bytes, media): (&[u8], &str),
    now: i64,
) -> Result<BlobWrite, BlobError<C>> {
    match bytes.len() {
        0 => return Err(BlobError::Empty),
        1..=BLOB_BYTES_MAX => {}
        _ => {
            let bytes = bytes.len() as u64;
            return Err(BlobError::TooLarge { bytes });
        }
    }
    let name = BlobName::of(bytes, media);
    let key = blob_key(chain, &name.hash);
    for _ in 0..RACES_MAX {
        let found = read_state(storage, &key)?;
        let (expect, before) = match found {
            None => (RecordExpectation::Absent, new_state(&name)),
            Some((_, state))
                if state.size != name.size || state.parts != new_state(&name).parts =>
            {
                return Err(BlobError::from_damage(&key, "its record says another size"));
            }
            Some((_, state)) if state.is_whole() && is_young(&state, now) => {
                return Ok(BlobWrite::Stored(name));
            }
            Some((version, state)) => (RecordExpectation::Version(version), state),
        };
        let check = CommitOp::Check {
            key: chain_record(chain),
            expect: RecordExpectation::Version(chain_version),
        };
        let (ops, after) = next_lines(&key, (expect, before), bytes, now);
        let committed = match storage.commit(&[vec![check], ops].concat(), false) {
            // The record tells if it was written.
            Err(StorageError::OutcomeUnknown { .. }) => continue,
            committed => committed?,
        };
        match committed {
            CommitOutcome::Committed if after.is_whole() => return Ok(BlobWrite::Stored(name)),
            CommitOutcome::Committed => {}
            CommitOutcome::Conflict
                if self::chain_version(storage, chain)? != Some(chain_version) =>
            {
                return Ok(BlobWrite::ChainMoved);
            }
            // Another writer of the same blob was first: this one goes on after it.
            CommitOutcome::Conflict => {}
        }
    }
    Err(BlobError::Contention)
}

fn new_state(name: &BlobName) -> BlobState {
    BlobState {
        size: name.size,
        media: name.media.clone(),
        parts: line_count(usize::try_from(name.size).unwrap_or(usize::MAX)),
        written: 0,
        stored: None,
    }
}

/// Returns true if a pruning leaves the blob for long enough: half of the time that it leaves one.
/// A time in the future is that of a clock which was put back, and of no use.
fn is_young(state: &BlobState, now: i64) -> bool {
    let most = i64::try_from(BLOB_GRACE.as_secs() / 2).unwrap_or(i64::MAX);
    let stored = state.stored;
    stored.is_some_and(|stored| (0..=most).contains(&now.saturating_sub(stored)))
}

/// Returns the operations that add the next lines, and the record after them.
fn next_lines(
    key: &str,
    (expect, before): (RecordExpectation, BlobState),
    bytes: &[u8],
    now: i64,
) -> (Vec<CommitOp>, BlobState) {
    let skipped = usize::try_from(before.written).unwrap_or(usize::MAX);
    let lines = bytes.chunks(LINE_BYTES).enumerate();
    let lines = lines.skip(skipped).take(LINES_PER_COMMIT);
    let appends = lines.map(|(number, line)| CommitOp::Append {
        log: BLOB.to_owned(),
        partition: key.to_owned(),
        at: number as u64 + 1,
        value: STANDARD.encode(line),
    });
    let mut ops: Vec<CommitOp> = appends.collect();
    let after = BlobState {
        written: before.written + ops.len() as u64,
        stored: Some(now),
        ..before
    };
    ops.push(CommitOp::Put {
        key: RecordKey::new(BLOB, key),
        expect,
        value: after.to_text(),
    });
    (ops, after)
}
