//! Writing and reading of blobs, and what a store may do to them.

use super::*;
use crate::clock::ClockTime;
use crate::storage::memory::MemoryStore;
use crate::storage::{CommitOp, RecordExpectation, RecordKey, StorageError, StorageQuota};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use stored::{LINE_BYTES, hex_digest};

const CHAIN: &str = "Tour-1";

/// A store with the record of one chain, at version 1.
fn store() -> MemoryStore {
    let store = MemoryStore::new();
    put_record(&store, "chain", "tour-1", "{}");
    store
}

fn put_record(store: &MemoryStore, collection: &str, name: &str, value: &str) {
    let put = CommitOp::Put {
        key: RecordKey::new(collection, name),
        expect: RecordExpectation::Any,
        value: value.to_owned(),
    };
    store.commit(&[put], true).expect("it is put");
}

fn append_line(store: &MemoryStore, log: &str, partition: &str, at: u64, value: &str) {
    let append = CommitOp::Append {
        log: log.to_owned(),
        partition: partition.to_owned(),
        at,
        value: value.to_owned(),
    };
    store.commit(&[append], true).expect("it is appended");
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|n| (n * 7 + n / 251) as u8).collect()
}

fn write(store: &MemoryStore, bytes: &[u8]) -> Result<BlobWrite, BlobError> {
    write_blob(store, (CHAIN, 1), (bytes, "image/png"), at(0))
}

/// A time, by its hours since the blobs here were stored.
fn at(hours: i64) -> ClockTime {
    ClockTime {
        seconds: 1_700_000_000 + hours * 3_600,
        nanos: 0,
    }
}

fn state(store: &MemoryStore, bytes: &[u8]) -> Option<(u64, BlobState)> {
    stored::read_state::<CallError>(store, &blob_key(CHAIN, &hex_digest(bytes)))
        .expect("it can be read")
}

#[test]
fn blobs_of_every_size_are_read_as_they_were_written() {
    let store = store();
    let line = LINE_BYTES;
    for (size, parts, commits) in [
        (1, 1, 1),
        (line - 1, 1, 1),
        (line, 1, 1),
        (line + 1, 2, 1),
        (7 * line, 7, 1),
        (7 * line + 1, 8, 2),
        (BLOB_BYTES_MAX, 54, 8),
    ] {
        let bytes = bytes(size);
        let name = BlobName::of(&bytes, "image/png");
        // The second time nothing is written.
        for _ in 0..2 {
            assert_eq!(
                write(&store, &bytes).unwrap(),
                BlobWrite::Stored(name.clone())
            );
            let (version, state) = state(&store, &bytes).expect("it is there");
            assert_eq!(
                (version, state.parts, state.written),
                (commits, parts, parts)
            );
        }
        assert!(
            read_blob(&store, "TOUR-1", &name.hash).unwrap() == bytes,
            "{size} bytes"
        );
    }
    assert!(matches!(write(&store, &[]), Err(BlobError::Empty)));
    let large = bytes(BLOB_BYTES_MAX + 1);
    assert!(matches!(
        write(&store, &large),
        Err(BlobError::TooLarge { .. })
    ));
    let other = read_blob(&store, "tour-2", &hex_digest(&bytes(1)));
    assert!(matches!(other, Err(BlobError::Missing(_))), "{other:?}");
}

/// A crash, or a store that is full, leaves some lines: the next writer goes on after them.
#[test]
fn a_write_that_was_stopped_is_gone_on_with() {
    let store = store();
    let bytes = bytes(9 * LINE_BYTES);
    let room = StorageQuota {
        limit_bytes: 4 << 20,
        closing_margin_bytes: 0,
    };
    store.set_quota(Some(room));
    match write(&store, &bytes) {
        Err(BlobError::Storage(StorageError::QuotaExceeded { .. })) => {}
        other => panic!("{other:?}"),
    }
    let (_, half) = state(&store, &bytes).expect("seven lines are there");
    assert_eq!((half.written, half.parts), (7, 9));
    match read_blob(&store, CHAIN, &hex_digest(&bytes)) {
        Err(BlobError::Damaged { problem, .. }) => assert_eq!(problem, "it is not wholly written"),
        other => panic!("{other:?}"),
    }
    store.set_quota(None);
    assert!(matches!(
        write(&store, &bytes).unwrap(),
        BlobWrite::Stored(_)
    ));
    assert!(read_blob(&store, CHAIN, &hex_digest(&bytes)).unwrap() == bytes);
}

/// An end or a deletion of a thread replaces the record of its chain.
#[test]
fn a_chain_that_has_moved_gets_no_line() {
    let store = store();
    put_record(&store, "chain", "tour-1", "{}");
    assert_eq!(write(&store, b"x").unwrap(), BlobWrite::ChainMoved);
    assert_eq!(state(&store, b"x"), None);
    let written = write_blob(&store, (CHAIN, 2), (b"x", "text/plain"), at(0)).unwrap();
    assert!(matches!(written, BlobWrite::Stored(_)));
}

#[test]
fn bytes_that_were_edited_are_never_given() {
    let good = bytes(2 * LINE_BYTES);
    let key = blob_key(CHAIN, &hex_digest(&good));
    let line = |bytes: &[u8]| STANDARD.encode(bytes);
    let other = {
        let mut other = good[LINE_BYTES..].to_vec();
        other[5] ^= 1;
        other
    };
    let record = r#"{"size":786432,"media":"image/png","parts":2,"written":2}"#;
    for (record, second, expected) in [
        (record, line(&other), "its bytes are not those of its name"),
        (record, line(&[]), "its bytes are not those of its name"),
        (record, "%".to_owned(), "a line is no Base64"),
        (record, String::new(), "lines of it are missing"),
        ("{}", line(&good[LINE_BYTES..]), "its record cannot be read"),
    ] {
        let store = store();
        put_record(&store, "blob", &key, record);
        append_line(&store, "blob", &key, 1, &line(&good[..LINE_BYTES]));
        if !second.is_empty() || expected != "lines of it are missing" {
            append_line(&store, "blob", &key, 2, &second);
        }
        match read_blob(&store, CHAIN, &hex_digest(&good)) {
            Err(BlobError::Damaged { problem, .. }) => assert_eq!(problem, expected),
            other => panic!("{expected}: {other:?}"),
        }
    }
}

#[test]
fn blobs_that_nothing_names_are_listed() {
    let store = store();
    assert_eq!(list_unreferenced_blobs(&store).unwrap(), []);
    let mut names = Vec::new();
    for text in ["kept", "waits", "loose", "of another chain"] {
        let written = write_blob(&store, (CHAIN, 1), (text.as_bytes(), "text/plain"), at(0));
        let BlobWrite::Stored(name) = written.unwrap() else {
            panic!("{text} is not stored");
        };
        names.push(name);
    }
    put_record(&store, "thread", "tour-1", "{}");
    let event = |name: &BlobName, chain: &str| {
        let mut block = name.blob_block();
        block["chain"] = chain.into();
        json!({"events": [{"type": "tool_result", "blocks": [block]}]}).to_string()
    };
    append_line(&store, "history", "tour-1", 1, &event(&names[0], CHAIN));
    append_line(&store, "history", "tour-1", 2, &event(&names[3], "tour-9"));
    let waits = json!({"role": "user", "content": [names[1].image_block()]}).to_string();
    put_record(&store, "inbox", "tour-1\u{1}0000000000000001", &waits);
    let listed = list_unreferenced_blobs(&store).unwrap();
    let listed: Vec<_> = listed
        .iter()
        .map(|blob| (blob.hash.as_str(), blob.size))
        .collect();
    let mut expected = vec![(names[2].hash.as_str(), 5), (names[3].hash.as_str(), 16)];
    expected.sort_unstable();
    assert_eq!(listed, expected);
}

/// Names of the blobs that a pruning of all chains takes.
fn list_pruned(store: &MemoryStore, hours: i64, dry_run: bool) -> Vec<String> {
    let blobs = prune_blobs(store, None, at(hours), dry_run).expect("the store is sound");
    blobs.into_iter().map(|blob| blob.hash).collect()
}

#[test]
fn prune_takes_a_loose_blob_after_the_grace_time_and_it_can_be_written_again() {
    let store = store();
    let bytes = bytes(2 * LINE_BYTES);
    let hash = hex_digest(&bytes);
    write(&store, &bytes).unwrap();
    let lines = || {
        let log = store.read_log(BLOB, &blob_key(CHAIN, &hash), 1, 9, false);
        log.unwrap().len()
    };
    for hours in [0, 24, -1] {
        assert_eq!(
            list_pruned(&store, hours, false),
            [""; 0],
            "after {hours} hours"
        );
    }
    assert_eq!(list_pruned(&store, 25, true), [hash.as_str()]);
    assert_eq!(lines(), 2, "a rehearsal removes nothing");
    let other = prune_blobs(&store, Some("tour-2"), at(25), false).unwrap();
    assert_eq!(other, [], "it is of another chain");
    assert_eq!(list_pruned(&store, 25, false), [hash.as_str()]);
    assert_eq!(lines(), 0);
    assert_eq!(list_pruned(&store, 25, false), [""; 0]);
    assert_eq!(list_unreferenced_blobs(&store).unwrap(), []);
    assert!(read_blob(&store, CHAIN, &hash).is_err());
    write(&store, &bytes).unwrap();
    assert!(read_blob(&store, CHAIN, &hash).unwrap() == bytes);
}

/// Bytes that are stored again are about to be named: their record gets the time, so no pruning
/// removes them between the answer to the writer and its message.
#[test]
fn blob_that_is_stored_again_is_young_again() {
    let store = store();
    write(&store, b"x").unwrap();
    let again = |hours| write_blob(&store, (CHAIN, 1), (b"x", "image/png"), at(hours)).unwrap();
    again(12);
    assert_eq!(state(&store, b"x").unwrap().0, 1, "it is young enough");
    again(30);
    assert_eq!(state(&store, b"x").unwrap().0, 2);
    assert_eq!(list_pruned(&store, 30, false), [""; 0]);
    // A clock that was put back makes it no older, and no younger.
    again(20);
    assert_eq!(list_pruned(&store, 45, true), [hex_digest(b"x")]);
    // A record without a time is of a host that keeps none.
    let record = r#"{"size":1,"media":"image/png","parts":1,"written":1}"#;
    put_record(&store, "blob", &blob_key(CHAIN, &hex_digest(b"x")), record);
    assert_eq!(list_pruned(&store, 9_000, false), [""; 0]);
}

/// A record that cannot be read may name any blob: nothing is removed.
#[test]
fn records_that_cannot_be_read_keep_every_blob() {
    for (collection, name) in [("inbox", "tour-1\u{1}1"), ("history", "tour-1")] {
        let store = store();
        write(&store, b"x").unwrap();
        put_record(&store, "thread", "tour-1", "{}");
        match collection {
            "history" => append_line(&store, "history", name, 1, "{\"blob\""),
            _ => put_record(&store, collection, name, "{\"blob\""),
        }
        match prune_blobs(&store, None, at(99), false) {
            Err(BlobError::Damaged { name, .. }) => assert!(name.starts_with("tour-1"), "{name}"),
            other => panic!("{other:?}"),
        }
        assert!(read_blob(&store, CHAIN, &hex_digest(b"x")).is_ok());
    }
}
