//! A store whose file is removed or replaced while it is open: no commit is acknowledged that a
//! later reader will not find.

use super::{FILE, append, code, commit, get, open, put_op, try_open};
use std::path::Path;
use std::time::Duration;
use threadkeep::storage::StorageBackend;

type ReplacementFault = fn(&Path);

const FAULTS: [(&str, ReplacementFault); 7] = [
    ("the file is deleted", |path| {
        std::fs::remove_file(path.join(FILE)).unwrap()
    }),
    ("the log is deleted", |path| {
        std::fs::remove_file(path.join("registry.db-wal")).unwrap()
    }),
    ("the shared memory is deleted", |path| {
        std::fs::remove_file(path.join("registry.db-shm")).unwrap()
    }),
    ("the file is renamed", |path| {
        std::fs::rename(path.join(FILE), path.join("old.db")).unwrap()
    }),
    ("a copy takes its place", |path| {
        std::fs::copy(path.join(FILE), path.join("copy")).unwrap();
        std::fs::rename(path.join("copy"), path.join(FILE)).unwrap();
    }),
    ("an empty file takes its place", |path| {
        std::fs::write(path.join("copy"), "").unwrap();
        std::fs::rename(path.join("copy"), path.join(FILE)).unwrap();
    }),
    ("a copy of the log takes its place", |path| {
        std::fs::copy(path.join("registry.db-wal"), path.join("copy")).unwrap();
        std::fs::rename(path.join("copy"), path.join("registry.db-wal")).unwrap();
    }),
];

#[test]
fn every_call_says_that_the_file_is_not_the_one_that_was_opened() {
    // Once the directory has not changed for a second, its time alone is looked at.
    for pause in [Duration::ZERO, Duration::from_millis(1_100)] {
        strike_stores(pause);
    }
}

/// Opens a store for each fault, waits, and strikes.
fn strike_stores(pause: Duration) {
    let stores = FAULTS.map(|(fault, strike)| {
        let (temp, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (store, neighbour) = (open(temp.path()), open(other.path()));
        commit(&store, &[put_op("a", "1"), append("p", 1, "1")]);
        (fault, strike, (temp, other), (store, neighbour))
    });
    std::thread::sleep(pause);
    for (fault, strike, (temp, _other), (store, neighbour)) in stores {
        assert_eq!(get(&store, "a"), Ok(Some("1".to_owned())));
        strike(temp.path());
        // Twice: the state stays.
        for _ in 0..2 {
            assert_eq!(code(&get(&store, "a")), "replaced", "{fault}");
            assert_eq!(
                code(&store.scan("head", "", "", 1, false)),
                "replaced",
                "{fault}"
            );
            assert_eq!(
                code(&store.read_log("history", "p", 0, 1, false)),
                "replaced",
                "{fault}"
            );
            let refused = store.commit(&[put_op("a", "2")], false);
            assert_eq!(code(&refused), "replaced", "{fault}");
            assert!(refused.unwrap_err().to_string().contains(FILE));
        }
        commit(&neighbour, &[put_op("a", "on")]);
    }
}

/// Earlier commits are not lost with the name.
#[test]
fn a_file_that_is_put_back_is_the_store_again() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    commit(&store, &[put_op("a", "1")]);
    let (at, away) = (temp.path().join(FILE), temp.path().join("away"));
    std::fs::rename(&at, &away).unwrap();
    assert_eq!(code(&store.commit(&[put_op("a", "2")], false)), "replaced");
    std::fs::rename(&away, &at).unwrap();
    assert_eq!(get(&store, "a"), Ok(Some("1".to_owned())));
    commit(&store, &[put_op("a", "2")]);
    drop(store);
    assert_eq!(get(&open(temp.path()), "a"), Ok(Some("2".to_owned())));
}

/// The file is removed while commits run on many threads: each acknowledged commit is in it, under
/// its other name.
#[test]
fn no_commit_is_acknowledged_into_a_file_that_is_gone() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    commit(&store, &[put_op("a", "1")]);
    let acknowledged = std::thread::scope(|scope| {
        let writer = |name: &'static str| {
            let store = &store;
            move || {
                let mut acknowledged = 0;
                for at in 1.. {
                    match code(&store.commit(&[append(name, at, "x")], false)) {
                        "ok" => acknowledged = at,
                        "replaced" | "outcome-unknown" => break,
                        other => panic!("{other}"),
                    }
                }
                (name, acknowledged)
            }
        };
        let threads: Vec<_> = ["a", "b", "c"].map(|name| scope.spawn(writer(name))).into();
        // Each thread has begun, however busy the machine is.
        for name in ["a", "b", "c"] {
            while store
                .read_log("history", name, 0, 20, false)
                .is_ok_and(|lines| lines.len() < 20)
            {}
        }
        for suffix in ["", "-wal", "-shm"] {
            let name = format!("{FILE}{suffix}");
            std::fs::rename(
                temp.path().join(&name),
                temp.path().join(format!("moved.db{suffix}")),
            )
            .unwrap();
        }
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect::<Vec<_>>()
    });
    drop(store);
    let moved = rusqlite::Connection::open(temp.path().join("moved.db")).unwrap();
    for (name, acknowledged) in acknowledged {
        let sql = "SELECT count(*) FROM entry JOIN partition ON entry.id >> 32 = partition.id \
                   WHERE name = ?1";
        let count: u64 = moved
            .query_row(sql, [name], |row| row.get::<_, i64>(0))
            .unwrap() as u64;
        assert!(count >= acknowledged, "{name}: {count} of {acknowledged}");
        assert!(acknowledged >= 1);
    }
}

#[test]
fn a_log_without_its_file_is_not_thrown_away() {
    for empty in [true, false] {
        let temp = tempfile::tempdir().unwrap();
        let store = open(temp.path());
        commit(&store, &[put_op("a", "1")]);
        // The state after a crash: with a log that has not been moved.
        let crashed = tempfile::tempdir().unwrap();
        std::fs::copy(
            temp.path().join("registry.db-wal"),
            crashed.path().join("registry.db-wal"),
        )
        .unwrap();
        if empty {
            std::fs::write(crashed.path().join(FILE), "").unwrap();
        }
        let before = super::files(crashed.path());
        assert_eq!(code(&try_open(crashed.path())), "corrupt");
        assert!(
            super::files(crashed.path()) == before,
            "the log was changed"
        );
    }
}
