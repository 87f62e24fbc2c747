//! Unreadable neighbours: a child, parent, account or inbox whose record is missing or damaged
//! stops no other thread, and is named. Each kind of damage is made in a SQLite file.

use super::fixture::ThreadFamily;
use crate::audit::fixture::open;
use crate::runner::fixture::{calls, says};
use rusqlite::Connection;
use serde_json::{Value, json};
use threadkeep_component::ports::RecordDamage;
use threadkeep_core::runner::{Signal, StepOutcome};
use threadkeep_core::thread::StepKind;

/// SQL that damages the row of a record, with its table, and its name as `?1`.
const DAMAGES: [&str; 4] = [
    "DELETE FROM record_{} WHERE name = ?1",
    "UPDATE record_{} SET value = '{\"id\": 7' WHERE name = ?1",
    "UPDATE record_{} SET value = x'01' WHERE name = ?1",
    "UPDATE record_{} SET value = printf('%.*c', 5000000, 'x') WHERE name = ?1",
];

/// SQL that makes a row one of a newer program: it is read and not written, and no driver of this
/// version goes on with its thread.
const NEWER: &str =
    "UPDATE record_{} SET value = replace(value, '\"format\":1', '\"format\":2') WHERE name = ?1";

/// Collections of a thread's records that another thread may read.
const COLLECTIONS: [&str; 3] = ["thread", "head", "chain"];

/// A family in a file that a second connection can damage.
///
/// The connection is closed before the store: SQLite shares the memory of a log within a process,
/// and the last connection to close deletes it by the name that the first one gave it. That name is
/// below the store's directory handle, whose number another store may have by then.
struct DamagedFamily {
    shell: Connection,
    family: ThreadFamily,
    _temp: tempfile::TempDir,
}

impl DamagedFamily {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let family = ThreadFamily::over(open(temp.path()));
        let shell = Connection::open(temp.path().join("registry.db")).unwrap();
        Self {
            shell,
            family,
            _temp: temp,
        }
    }

    fn damage(&self, how: &str, collection: &str, name: &str) {
        let sql = how.replace("{}", collection);
        let changed = self.shell.execute(&sql, [name]).unwrap();
        assert_eq!(changed, 1, "{sql} {name}");
    }

    /// Returns the row of a record, to be put back.
    fn row(&self, collection: &str, name: &str) -> (i64, String) {
        let sql = format!("SELECT version, value FROM record_{collection} WHERE name = ?1");
        self.shell
            .query_row(&sql, [name], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap()
    }

    fn put_back(&self, collection: &str, name: &str, (version, value): &(i64, String)) {
        let table = format!("record_{collection}");
        self.shell
            .execute(&format!("DELETE FROM {table} WHERE name = ?1"), [name])
            .unwrap();
        let insert = format!("INSERT INTO {table} (name, version, value) VALUES (?1, ?2, ?3)");
        self.shell
            .execute(&insert, rusqlite::params![name, version, value])
            .unwrap();
    }

    fn signal(&self, thread: &str, name: &str, signal: Signal) {
        self.family
            .world
            .service
            .signal(thread, name, &signal)
            .unwrap_or_else(|error| panic!("{name} of {thread}: {error:?}"));
    }

    /// Sweeps a thread to the end; returns the threads that could not be told.
    fn sweep(&self, thread: &str) -> Vec<String> {
        let (mut cursor, mut named) = (None, Vec::new());
        loop {
            let page = self
                .family
                .world
                .service
                .sweep_page(thread, cursor)
                .unwrap();
            named.extend(page.unreadable.into_iter().map(|(name, _)| name));
            cursor = page.cursor;
            if cursor.is_none() {
                return named;
            }
        }
    }
}

/// Runs `check` with each damage of each record.
fn for_each_damage(check: impl Fn(&str, &str)) {
    for how in DAMAGES {
        for collection in COLLECTIONS {
            println!("{how} {collection}");
            check(how, collection);
        }
    }
}

/// Runs `check` with each damage of each record, and with each record of a newer format.
fn for_each_damage_or_newer(check: impl Fn(&str, &str)) {
    for_each_damage(&check);
    for collection in COLLECTIONS {
        check(NEWER, collection);
    }
}

/// Symptom: one unreadable child failed every claim of the parent that waited for it, also after
/// the time of the wait. Cause: the wait wanted the records of all. Fix: such a child is part of
/// the answer. A child of a newer format is one, too: the top waited for it in silence.
#[test]
fn a_wait_for_a_child_that_cannot_be_read_comes_to_its_end() {
    for_each_damage_or_newer(|how, collection| {
        let mut planted = DamagedFamily::new();
        let boss = planted.family.boss.clone();
        let (bad, good) = (
            planted.family.spawn_running("work"),
            planted.family.spawn_running("work"),
        );
        planted
            .family
            .reply(&boss, &[("wait_threads", json!({"timeout": 60}))]);
        assert_eq!(planted.family.status(&boss), "waiting");
        planted.damage(how, collection, &bad);
        let family = &mut planted.family;
        family.world.submit(&good, says("done")).unwrap();
        family.world.advance(60_001);
        assert!(family.due().iter().any(|due| due.0 == boss), "its time");
        family.claim(&boss).unwrap();
        let got = family.results(&boss);
        let told: Value = serde_json::from_str(&got[0].2).unwrap();
        let threads = told["threads"].as_array().unwrap();
        let of = |id: &str| {
            threads
                .iter()
                .find(|thread| thread["thread"] == *id)
                .unwrap()
        };
        assert_eq!(of(&bad)["status"], "unreadable");
        assert_eq!(of(&good)["status"], "completed");
    });
}

/// Symptom: where an account far above was lost, the nearest one kept the hold of a thread that had
/// ended, and lacked its spend. Cause: one lost account stopped the update of all above the thread.
/// Fix: those below the lost one are updated. (Below one of a newer format nothing is written: see
/// `runner::newer_formats`.)
#[test]
fn account_below_a_lost_one_is_updated() {
    for_each_damage(|how, collection| {
        if collection != "chain" {
            return;
        }
        let mut planted = DamagedFamily::new();
        let boss = planted.family.boss.clone();
        let asked = json!({"directive": "boss", "limits": {"spend": "0.05"}});
        let middle = planted.family.spawn(asked);
        planted.family.world.start(&middle, None).unwrap();
        let leaf = planted
            .family
            .spawn_under(&middle, json!({"directive": "work"}));
        planted.family.world.start(&leaf, None).unwrap();
        let held = |planted: &DamagedFamily| planted.family.account(&middle).2;
        let before = held(&planted);
        planted.damage(how, collection, &boss);
        planted.signal(&leaf, "k", Signal::Kill);
        let (after, spent) = (held(&planted), planted.family.account(&middle).1);
        assert!(after < before && spent > 0, "{before} {after} {spent}");
    });
}

/// An agent's calls about an unreadable child, and about all its children, are answered.
#[test]
fn calls_about_an_unreadable_child_get_a_result() {
    for_each_damage(|how, collection| {
        let mut planted = DamagedFamily::new();
        let boss = planted.family.boss.clone();
        let bad = planted.family.spawn_running("work");
        planted.damage(how, collection, &bad);
        let texts = [
            ("thread_status", json!({"thread": bad})),
            ("send_message", json!({"thread": bad, "message": "hi"})),
            ("kill_thread", json!({"thread": bad})),
            ("read_transcript", json!({"thread": bad})),
            ("aggregate_results", json!({})),
            ("aggregate_results", json!({"threads": [bad]})),
            ("list_threads", json!({})),
            ("wait_threads", json!({})),
        ]
        .map(|(name, arguments)| (name, arguments.to_string()));
        let texts: Vec<(&str, &str)> = texts.iter().map(|(n, a)| (*n, a.as_str())).collect();
        planted.family.world.submit(&boss, calls(&texts)).unwrap();
        let got = planted.family.results(&boss);
        assert_eq!(got.len(), texts.len(), "{got:#?}");
        assert!(got[..4].iter().all(|got| got.1), "they failed: {got:#?}");
        for (name, failed, text) in &got[4..] {
            assert!(!failed && text.contains(&bad), "{name}: {text}");
            let unreadable = name == "list_threads" || text.contains("unreadable");
            assert!(unreadable, "{name}: {text}");
        }
        assert_eq!(planted.family.status(&boss), "running");
    });
}

/// Symptom: an unreadable child stopped a sweep, or was left out of it silently. Fix: the others
/// are told, the child is named, and the sweep is kept until the child can be told.
#[test]
fn a_kill_and_a_cancel_pass_a_child_that_cannot_be_read() {
    for_each_damage(|how, collection| {
        for (signal, ended) in [(Signal::Kill, "killed"), (Signal::Cancel, "cancelled")] {
            let mut planted = DamagedFamily::new();
            let boss = planted.family.boss.clone();
            let bad = planted.family.spawn(json!({"directive": "work"}));
            let good = planted.family.spawn(json!({"directive": "work"}));
            planted.family.reply(&boss, &[("wait_threads", json!({}))]);
            let row = planted.row(collection, &bad);
            planted.damage(how, collection, &bad);
            planted.signal(&boss, "end", signal);
            assert_eq!(planted.family.status(&boss), ended);
            for _ in 0..2 {
                assert_eq!(planted.sweep(&boss), [&*bad], "it is named each time");
                assert_eq!(planted.family.status(&good), ended);
                assert_eq!(planted.family.due(), [(boss.clone(), true)], "it is kept");
            }
            planted.put_back(collection, &bad, &row);
            assert!(planted.sweep(&boss).is_empty());
            assert_eq!(planted.family.status(&bad), ended);
            assert!(planted.family.due().is_empty());
            planted.family.world.audit();
        }
    });
}

/// Lists, trees and recoveries name an unreadable child and go on with the others.
#[test]
fn lists_trees_and_recoveries_name_a_child_that_cannot_be_read() {
    for_each_damage(|how, collection| {
        let mut planted = DamagedFamily::new();
        let boss = planted.family.boss.clone();
        let (bad, good) = (
            planted.family.spawn_running("work"),
            planted.family.spawn_running("work"),
        );
        planted.damage(how, collection, &bad);
        let service = &planted.family.world.service;
        let names = |unreadable: Vec<(String, RecordDamage)>| -> Vec<String> {
            unreadable.into_iter().map(|(name, _)| name).collect()
        };
        let (many, _) = service.list(None, 100, None).unwrap();
        assert_eq!(
            (many.threads.len(), names(many.unreadable)),
            (2, vec![bad.clone()])
        );
        let page = service.tree_page(&boss, None).unwrap();
        assert_eq!(
            (page.branches.len(), names(page.unreadable)),
            (2, vec![bad.clone()])
        );
        let held = service.recover(&[], None).unwrap().held;
        let dead: Vec<String> = held
            .into_iter()
            .filter_map(|loaded| loaded.head.value.holder.clone())
            .collect();
        let recovery = service.recover(&dead, None).unwrap();
        assert_eq!(recovery.closed.len(), 2, "the boss and the good one");
        assert_eq!(names(recovery.unreadable), [&*bad]);
        assert_eq!(planted.family.status(&good), "suspended");
    });
}

/// Symptom: a child could not be killed, recovered or finished once its parent's record was bad.
/// Cause: it was loaded with its parent's head and accounts. Fix: it is loaded with those that can
/// be read.
#[test]
fn a_parent_that_cannot_be_read_stops_no_child() {
    for_each_damage(|how, collection| {
        let mut planted = DamagedFamily::new();
        let boss = planted.family.boss.clone();
        let names = ["done", "killed", "cancelled", "recovered", "rich"];
        let mut children = Vec::new();
        for name in names {
            let limits = match name {
                "rich" => json!({"spend": "0.02"}),
                _ => json!({}),
            };
            let spawn = json!({"directive": "work", "limits": limits});
            let child = planted.family.spawn(spawn);
            // The child gets a holder of its own.
            planted.family.world.count(name);
            planted.family.world.start(&child, None).unwrap();
            children.push(child);
        }
        let created = planted.family.spawn(json!({"directive": "work"}));
        planted.damage(how, collection, &boss);
        let [done, killed, cancelled, recovered, rich] = children.try_into().unwrap();
        planted.family.world.submit(&done, says("done")).unwrap();
        planted.signal(&killed, "k", Signal::Kill);
        planted.signal(&cancelled, "c", Signal::Cancel);
        let world = &mut planted.family.world;
        world.submit(&cancelled, says("done")).unwrap();
        let holder = world
            .service
            .load(&recovered)
            .unwrap()
            .head
            .value
            .holder
            .clone();
        let recovery = world.service.recover(&[holder.unwrap()], None).unwrap();
        assert_eq!(recovery.closed, [&*recovered]);
        world.submit(&rich, says("done")).unwrap();
        let status = |thread: &str| planted.family.status(thread);
        assert_eq!(status(&done), "completed");
        assert_eq!(status(&killed), "killed");
        assert_eq!(status(&cancelled), "cancelled");
        assert_eq!(status(&recovered), "suspended");
        assert_eq!(status(&rich), "completed");
        let spent = planted.family.load(&done).head.value.counters.spend.get();
        assert!(spent > 0, "what it cost stands in its history");
        // Without its account no further attempt is admitted.
        let started = planted.family.world.start(&created, None);
        let money = collection == "chain";
        assert_eq!(started.unwrap().step.kind.is_none(), money);
        planted.signal(&created, "k", Signal::Kill);
    });
}

/// Runs `check` with each of [`DAMAGES`] of a message's record.
fn for_each_message_damage(check: impl Fn(&mut DamagedFamily, &dyn Fn(&DamagedFamily, &str))) {
    for how in DAMAGES {
        println!("{how}");
        let damage = |planted: &DamagedFamily, thread: &str| {
            let name = format!("{thread}\u{1}{:016x}", 0);
            planted.damage(how, "inbox", &name);
        };
        check(&mut DamagedFamily::new(), &damage);
    }
}

/// Symptom: a message that the head counts and whose record was gone made a run ask its model once
/// more, with nothing to answer, and pay for it. Fix: the run stops and says so. A person who
/// resumes it wants it to go on, and the model reads that a message is lost.
#[test]
fn a_message_that_is_lost_admits_no_call() {
    for_each_message_damage(|planted, damage| {
        let boss = planted.family.boss.clone();
        let child = planted.family.spawn_running("work");
        let send = json!({"thread": child, "message": "look again"});
        planted.family.reply(&boss, &[("send_message", send)]);
        damage(planted, &child);
        let world = &mut planted.family.world;
        let handed = world.submit(&child, says("done")).unwrap();
        assert_eq!(handed.step.kind, None, "no call");
        let head = world.service.load(&child).unwrap().head.value;
        let code = head.cause.as_ref().map(|cause| cause.code.as_str());
        assert_eq!(
            (head.status.as_str(), code),
            ("suspended", Some("message_lost"))
        );
        assert_eq!((head.hold, head.mail_count(), head.due), (None, 0, None));
        world.audit();
        let handed = world.start(&child, None).unwrap();
        assert_eq!(handed.step.kind, Some(StepKind::CallLlm));
        let said = handed.messages.concat();
        assert!(said.contains("is lost"), "{said}");
        world.submit(&child, says("done")).unwrap();
        assert_eq!(world.status(&child), "completed");
        world.audit();
    });
}

/// A thread with other input goes on, and its model reads that a message is lost; a thread that is
/// being ended ends.
#[test]
fn a_message_that_is_lost_stops_no_run_and_no_end() {
    for_each_message_damage(|planted, damage| {
        let boss = planted.family.boss.clone();
        let spawn = json!({"directive": "work"});
        let (asks, killed) = (
            planted.family.spawn_running("work"),
            planted.family.spawn_running("work"),
        );
        // The thread gets a holder of its own.
        planted.family.world.count("recovered");
        let (fresh, recovered) = (
            planted.family.spawn(spawn),
            planted.family.spawn_running("work"),
        );
        let all = [&asks, &killed, &fresh, &recovered];
        let sends = all.map(|child| ("send_message", json!({"thread": child, "message": "x"})));
        planted.family.reply(&boss, &sends);
        for child in all {
            damage(planted, child);
        }
        planted.signal(&killed, "k", Signal::Kill);
        assert_eq!(planted.family.status(&killed), "killed");
        let world = &mut planted.family.world;
        world.submit(&asks, calls(&[("read", "{}")])).unwrap();
        let outcomes: StepOutcome = world.outcomes(&asks);
        let handed = world.submit(&asks, outcomes).unwrap();
        assert_eq!(handed.step.kind, Some(StepKind::CallLlm));
        assert!(handed.messages.concat().contains("is lost"));
        world.count("fresh");
        let handed = world.start(&fresh, None).unwrap();
        assert_eq!(handed.step.kind, Some(StepKind::CallLlm), "its directive");
        let holder = world
            .service
            .load(&recovered)
            .unwrap()
            .head
            .value
            .holder
            .clone();
        let closed = world
            .service
            .recover(&[holder.unwrap()], None)
            .unwrap()
            .closed;
        assert_eq!(closed, [&*recovered]);
        let handed = world.start(&recovered, None).unwrap();
        assert_eq!(handed.step.kind, Some(StepKind::CallLlm), "its first words");
        world.audit();
    });
}

/// A boss with this many children whose heads are gone, and a child of its own below each.
fn family_of_lost(children: usize) -> (DamagedFamily, Vec<String>) {
    let planted = DamagedFamily::new();
    let (world, boss) = (&planted.family.world, &planted.family.boss);
    let mut below = Vec::new();
    for n in 0..children {
        let child = world.spawn(boss, &format!("lost-{n}"), None);
        below.push(world.spawn(&child, &format!("below-{n}"), None));
        planted.damage(DAMAGES[0], "head", &child);
    }
    planted.signal(boss, "end", Signal::Kill);
    (planted, below)
}

/// Symptom: the children of the 11th lost child of a thread were never told of an end, however
/// often the sweep was repeated. Cause: each index of a lost chain counted as a page, empty ones
/// too, and a repeated sweep spent its pages on those that were told before. Fix: only a page that
/// tells somebody counts, and what a call did not come to is named. Kind: all that lies below lost
/// threads.
#[test]
fn a_sweep_reaches_the_children_of_many_lost_threads() {
    for children in [12, 45] {
        let (planted, below) = family_of_lost(children);
        let boss = planted.family.boss.clone();
        let mut sweeps = 0;
        loop {
            let page = planted
                .family
                .world
                .service
                .sweep_page(&boss, None)
                .unwrap();
            let unreached = |why: &RecordDamage| why.message.contains("sweep again");
            let named = page.unreadable.iter().filter(|(_, why)| unreached(why));
            let named: Vec<&str> = named.map(|(name, _)| name.as_str()).collect();
            for (n, id) in below.iter().enumerate() {
                let told = planted.family.status(id) == "killed";
                assert!(
                    told || named.contains(&&*format!("lost-{n}")),
                    "{n}: {named:?}"
                );
            }
            sweeps += 1;
            if named.is_empty() {
                assert_eq!(page.unreadable.len(), children);
                break;
            }
        }
        assert_eq!(sweeps, children.div_ceil(20));
    }
}
