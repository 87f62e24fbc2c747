//! The same random operations on both stores give the same answers, also after the files are opened
//! again, by two openings in turn.

use super::random_numbers::RandomNumbers;
use threadkeep_storage::directory::PreopenedDirectory;
use threadkeep_storage::files::{FilesOptions, FilesStore, SegmentLayout};
use threadkeep_storage::memory::MemoryStore;
use threadkeep_storage::{CommitOp, RecordExpectation, RecordKey, StorageBackend, StorageQuota};

const LAYOUT: SegmentLayout = SegmentLayout {
    commits: 5,
    bytes: 4_000,
    snapshot_bytes: 2_000,
};

fn draw_key(random: &mut RandomNumbers) -> RecordKey {
    let collection = ["head", "index"][random.below(2) as usize];
    RecordKey::new(
        collection,
        format!("key {}\n{}", random.below(6), random.below(2)),
    )
}

fn draw_value(random: &mut RandomNumbers) -> String {
    "é\n \"x\" ".repeat(random.below(20) as usize)
}

fn draw_ops(random: &mut RandomNumbers) -> Vec<CommitOp> {
    let expect = |random: &mut RandomNumbers| match random.below(4) {
        0 => RecordExpectation::Absent,
        1 => RecordExpectation::Version(1 + random.below(4)),
        _ => RecordExpectation::Any,
    };
    let count = 1 + random.below(4);
    (0..count)
        .map(|_| {
            let partition = format!("thread {}", random.below(2));
            match random.below(10) {
                0 => CommitOp::Check {
                    key: draw_key(random),
                    expect: RecordExpectation::Version(1 + random.below(3)),
                },
                1..=3 => CommitOp::Put {
                    key: draw_key(random),
                    expect: expect(random),
                    value: draw_value(random),
                },
                4 => CommitOp::Delete {
                    key: draw_key(random),
                },
                5..=8 => CommitOp::Append {
                    log: "history".to_owned(),
                    partition,
                    at: 1 + random.below(12),
                    value: draw_value(random),
                },
                _ => CommitOp::Trim {
                    log: "history".to_owned(),
                    partition,
                    below: random.below(10),
                },
            }
        })
        .collect()
}

/// Makes appends that fit more often than by chance.
fn fit_positions(store: &MemoryStore, ops: &mut [CommitOp], random: &mut RandomNumbers) {
    for op in ops {
        if let CommitOp::Append {
            log, partition, at, ..
        } = op
            && !random.once_in(8)
        {
            let newest = store.read_log(log, partition, 0, 1, true).unwrap();
            *at = newest.first().map_or(1, |entry| entry.position + 1);
        }
    }
}

fn compare_reads(memory: &MemoryStore, files: &FilesStore, random: &mut RandomNumbers) {
    let keys: Vec<_> = (0..4).map(|_| draw_key(random)).collect();
    assert_eq!(memory.get(&keys), files.get(&keys));
    let (limit, reverse) = (1 + random.below(6) as u32, random.once_in(2));
    for collection in ["head", "index", "none"] {
        let read = |store: &dyn StorageBackend| store.scan(collection, "key 1", "", limit, reverse);
        assert_eq!(read(memory), read(files));
    }
    let start = random.below(14);
    for partition in ["thread 0", "thread 1", "thread 2"] {
        let read = |store: &dyn StorageBackend| {
            store.read_log("history", partition, start, limit, reverse)
        };
        assert_eq!(read(memory), read(files), "from {start}, at most {limit}");
    }
}

#[test]
fn files_and_memory_give_the_same_answers() {
    for seed in 0..12 {
        let mut random = RandomNumbers::new(seed);
        let place = tempfile::tempdir().unwrap();
        let quota = StorageQuota {
            limit_bytes: 6_000,
            closing_margin_bytes: 500,
        };
        let quota = random.once_in(2).then_some(quota);
        let open = |name: u64| {
            let options = FilesOptions {
                writer: format!("w{name}"),
                durable: false,
                quota,
            };
            let directory = Box::new(PreopenedDirectory::new(place.path()));
            FilesStore::open_with_layout(directory, options, LAYOUT, None).unwrap()
        };
        let memory = MemoryStore::new();
        memory.set_quota(quota);
        let mut openings = [open(0), open(1)];
        for n in 0..300 {
            let mut ops = draw_ops(&mut random);
            fit_positions(&memory, &mut ops, &mut random);
            let closing = random.once_in(5);
            let files = &openings[random.below(2) as usize];
            assert_eq!(
                memory.commit(&ops, closing),
                files.commit(&ops, closing),
                "seed {seed}, commit {n}: {ops:?}"
            );
            compare_reads(&memory, &openings[random.below(2) as usize], &mut random);
            if random.once_in(20) {
                openings[random.below(2) as usize] = open(2 + n);
            }
        }
        let usage = openings[0].usage();
        assert!(usage.segments > 3, "seed {seed}: {usage:?}");
        assert_eq!(openings[0].packing_failure(), None);
    }
}
