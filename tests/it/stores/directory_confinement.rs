//! Nothing outside the directory is read, written or deleted, whatever is planted in it or takes
//! its place.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use tempfile::TempDir;

use super::{FILE, append, code, commit, files, get, open, put_op, try_open};
use threadkeep::storage::StorageBackend;

const SUFFIXES: [&str; 5] = ["", "-wal", "-shm", "-journal", ".lock"];

/// A store's directory beside a directory with files of others.
struct StoreSurroundings {
    temp: TempDir,
}

impl StoreSurroundings {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        for folder in ["inside", "outside"] {
            std::fs::create_dir(temp.path().join(folder)).unwrap();
        }
        let world = Self { temp };
        std::fs::write(world.outside().join("precious"), "precious").unwrap();
        // A valid store outside, which a host could open, with a log.
        let store = open(&world.outside());
        commit(&store, &[put_op("a", "outside"), append("p", 1, "outside")]);
        std::mem::drop(store);
        world
    }

    fn inside(&self) -> PathBuf {
        self.temp.path().join("inside")
    }

    fn outside(&self) -> PathBuf {
        self.temp.path().join("outside")
    }
}

/// Targets of a planted link.
fn targets(outside: &Path) -> [PathBuf; 4] {
    [
        outside.join("precious"),
        outside.join(FILE),
        outside.join("nothing"),
        // A loop.
        PathBuf::from(FILE),
    ]
}

#[test]
fn a_link_at_any_of_our_names_is_refused() {
    for suffix in SUFFIXES {
        for existing in [false, true] {
            let world = StoreSurroundings::new();
            if existing {
                commit(&open(&world.inside()), &[put_op("a", "inside")]);
            }
            for target in targets(&world.outside()) {
                let at = world.inside().join(format!("{FILE}{suffix}"));
                let moved = at.with_extension("moved");
                let had = std::fs::rename(&at, &moved).is_ok();
                symlink(&target, &at).unwrap();
                let before = files(&world.outside());
                let answer = try_open(&world.inside());
                assert_eq!(
                    code(&answer),
                    "not-a-regular-file",
                    "{suffix} to {target:?}"
                );
                assert!(files(&world.outside()) == before, "{suffix} to {target:?}");
                std::fs::remove_file(&at).unwrap();
                if had {
                    std::fs::rename(&moved, &at).unwrap();
                }
            }
        }
    }
}

/// A link that is planted after the check: `O_NOFOLLOW` and the confined VFS alone stop it.
#[test]
fn a_link_that_is_planted_while_the_store_is_open_leads_nowhere() {
    for suffix in SUFFIXES {
        for target in ["precious", FILE, "nothing"] {
            let world = StoreSurroundings::new();
            let store = open(&world.inside());
            commit(&store, &[put_op("a", "inside")]);
            let at = world.inside().join(format!("{FILE}{suffix}"));
            let _ = std::fs::remove_file(&at);
            symlink(world.outside().join(target), &at).unwrap();
            let before = files(&world.outside());
            // Any answer is fine: scans open a connection of their own.
            let _ = store.scan("head", "", "", 10, false);
            let _ = store.commit(&[put_op("a", "again")], false);
            drop(store);
            let same = files(&world.outside()) == before;
            assert!(same, "{suffix} to {target}: something outside was changed");
        }
    }
}

#[test]
fn a_directory_that_is_swapped_for_another_is_still_the_one_that_was_granted() {
    for linked in [true, false] {
        let world = StoreSurroundings::new();
        let (inside, moved) = (world.inside(), world.temp.path().join("moved"));
        let granted = super::dir(&inside);
        let swap = || {
            std::fs::rename(&inside, &moved).unwrap();
            if linked {
                symlink(world.outside(), &inside).unwrap();
            } else {
                std::fs::create_dir(&inside).unwrap();
                std::fs::copy(world.outside().join(FILE), inside.join(FILE)).unwrap();
            }
        };
        let before = files(&world.outside());
        // Between the grant and the opening.
        swap();
        let store =
            threadkeep::storage::sqlite::SqliteStore::open(&granted, FILE, super::options())
                .unwrap();
        assert_eq!(
            get(&store, "a"),
            Ok(None),
            "the store that took its place was opened"
        );
        commit(&store, &[put_op("a", "moved"), append("p", 1, "moved")]);
        // The swap is repeated while the store is open and busy.
        if linked {
            std::fs::remove_file(&inside).unwrap();
        } else {
            std::fs::remove_dir_all(&inside).unwrap();
        }
        std::fs::rename(&moved, &inside).unwrap();
        swap();
        for at in 2..=400 {
            let value = "v".repeat(20_000);
            commit(&store, &[put_op("a", &value), append("p", at, &value)]);
        }
        assert_eq!(
            store.scan("head", "", "", 10, false).unwrap().items.len(),
            1
        );
        drop(store);
        assert!(
            files(&world.outside()) == before,
            "something outside was changed"
        );
        assert_eq!(
            get(&open(&moved), "a").unwrap().map(|value| value.len()),
            Some(20_000)
        );
    }
}

/// A rollback journal can name a "super-journal" of several databases. SQLite looks for it, and
/// deletes it when it is done, whichever file has a fitting name.
#[test]
fn a_journal_that_names_a_file_outside_deletes_nothing() {
    let world = StoreSurroundings::new();
    let victim = world.outside().join("registry.db-mj1234569AB");
    let database = world.inside().join(FILE);
    let journal = world.inside().join(format!("{FILE}-journal"));
    // SQLite believes it only if it lists our journal.
    std::fs::write(&victim, format!("{}\0", journal.display())).unwrap();
    drop(open(&world.inside()));
    hot_journal(&database, &journal, &victim);
    let before = (files(&world.outside()), std::fs::read(&database).unwrap());
    let answer = try_open(&world.inside());
    assert_ne!(code(&answer), "ok", "the journal was believed");
    drop(answer);
    assert!(
        files(&world.outside()) == before.0,
        "something outside was changed"
    );
    assert!(victim.exists(), "the file outside was deleted");
    assert!(
        std::fs::read(&database).unwrap() == before.1,
        "the file was changed"
    );

    // SQLite alone deletes the file: the journal is valid.
    let plain = Connection::open(&database).unwrap();
    let _ = plain.query_row("SELECT count(*) FROM sqlite_schema", [], |row| {
        row.get::<_, i64>(0)
    });
    drop(plain);
    assert!(!victim.exists(), "this test tests nothing");
}

/// Writes a journal as a crash in the middle of a transaction over two databases leaves it.
fn hot_journal(database: &Path, journal: &Path, victim: &Path) {
    let copy = database.with_extension("copy");
    let mut connection = Connection::open(database).unwrap();
    connection
        .execute_batch(
            "PRAGMA journal_mode = DELETE; PRAGMA cache_size = 1; PRAGMA cache_spill = 1;",
        )
        .unwrap();
    let transaction = connection.transaction().unwrap();
    for at in 0..200 {
        let sql = "INSERT INTO record_head (name, version, value) VALUES (?1, 1, ?2)";
        transaction.execute(sql, (at, "v".repeat(3_000))).unwrap();
    }
    std::fs::copy(journal, &copy).unwrap();
    let spilled = std::fs::read(database).unwrap();
    transaction.rollback().unwrap();
    drop(connection);
    std::fs::write(database, spilled).unwrap();
    let mut bytes = std::fs::read(&copy).unwrap();
    std::fs::remove_file(&copy).unwrap();
    // The trailer: the page of the lock bytes, the name, its length, the sum of its bytes, the
    // magic number.
    let name = victim.to_str().unwrap().as_bytes();
    let sum: u32 = name.iter().map(|byte| u32::from(*byte)).sum();
    bytes.extend(
        0x4000_0000_u32
            .wrapping_div(4096)
            .wrapping_add(1)
            .to_be_bytes(),
    );
    bytes.extend(name);
    bytes.extend((name.len() as u32).to_be_bytes());
    bytes.extend(sum.to_be_bytes());
    bytes.extend([0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7]);
    std::fs::write(journal, bytes).unwrap();
}

#[test]
fn a_second_name_of_a_file_outside_is_refused() {
    for suffix in SUFFIXES {
        let world = StoreSurroundings::new();
        let at = world.inside().join(format!("{FILE}{suffix}"));
        std::fs::hard_link(world.outside().join(FILE), &at).unwrap();
        let before = files(&world.outside());
        assert_eq!(code(&try_open(&world.inside())), "hard-linked", "{suffix}");
        assert!(files(&world.outside()) == before, "{suffix}");
    }
}

/// Symptom: a store's shared memory was deleted while it was open. Cause: SQLite deletes that file
/// by the path of the process's first connection to it. When that connection had closed before
/// another of the same store, the number in `/proc/self/fd/<number>` was another tenant's directory
/// by then. Fix: one directory is held for all connections of one store.
#[test]
fn the_last_to_close_a_store_deletes_nothing_of_another() {
    let temp = tempfile::tempdir().unwrap();
    let first = open(temp.path());
    let second = open(temp.path());
    commit(&first, &[put_op("a", "1")]);
    commit(&second, &[put_op("a", "2")]);
    drop(first);
    // Directories opened now may get the numbers that the first had.
    let others: Vec<_> = (0..8)
        .map(|_| {
            let other = tempfile::tempdir().unwrap();
            let store = open(other.path());
            commit(&store, &[put_op("a", "1")]);
            (other, store)
        })
        .collect();
    drop(second);
    for (other, store) in &others {
        assert!(other.path().join("registry.db-shm").exists());
        commit(store, &[put_op("a", "2")]);
    }
    assert!(!temp.path().join("registry.db-shm").exists());
}
