//! Violations of indexes: entries that are missing, wrong, or of no thread.

use super::planted_violations::{check_violations, delete_sql, insert_sql, set_fields_sql};
use crate::children::fixture::ThreadFamily;
use threadkeep::audit::StoreInvariant::{Chains, Histories, Indexes};
use threadkeep::audit::audit;
use threadkeep::storage::{CommitOp, RecordExpectation, RecordKey};

#[test]
fn missing_and_orphaned_entries_are_reported() {
    let mut cases = Vec::new();
    for name in ["recency", "status", "chain", "directive", "agent", "task"] {
        let condition = format!("name LIKE '{name}%' AND name LIKE '%done'");
        cases.push((Indexes, "done", delete_sql("index", &condition)));
        let moved = format!(
            "UPDATE record_index SET name = replace(name, char(1) || '0', char(1) || '1') \
             WHERE {condition}"
        );
        cases.push((Indexes, "done", moved));
    }
    let entry = |parts: &str| insert_sql("index", &parts.replace(',', " || char(1) || "), "''");
    cases.extend([
        (
            Indexes,
            "rich",
            delete_sql(
                "index",
                "name LIKE 'parent%' AND name LIKE '%' || char(1) || 'rich'",
            ),
        ),
        (
            Indexes,
            "done",
            entry("'status','idle','0000000000000001','done'"),
        ),
        (
            Indexes,
            "nobody",
            entry("'status','idle','0000000000000001','nobody'"),
        ),
        (
            Indexes,
            "done",
            entry("'colour','blue','0000000000000001','done'"),
        ),
        (Indexes, "nonsense", entry("'nonsense'")),
    ]);
    check_violations(&cases);
}

/// The index of children by number is compared with the chains, both ways.
#[test]
fn missing_and_orphaned_entries_of_children_are_reported() {
    let entry = |parts: &str| insert_sql("index", &parts.replace(',', " || char(1) || "), "''");
    let of = |child: &str| format!("name LIKE 'child%' AND name LIKE '%' || char(1) || '{child}'");
    let check_chain = |thread, sql| (Chains, thread, sql);
    check_violations(&[
        (Indexes, "top", delete_sql("index", &of("rich"))),
        (Indexes, "rich", delete_sql("index", &of("rich/poor"))),
        (
            Indexes,
            "rich",
            entry("'child','top','0000000000000009','rich'"),
        ),
        (
            Indexes,
            "rich",
            entry("'child','idle','0000000000000001','rich'"),
        ),
        (
            Indexes,
            "done",
            entry("'child','top','0000000000000001','done'"),
        ),
        (
            Indexes,
            "nobody",
            entry("'child','top','0000000000000001','nobody'"),
        ),
        check_chain("top", set_fields_sql("chain", "top", "'$.spawned', 2")),
    ]);
}

/// The same for interrupted threads, which have an entry under the root of their tree.
#[test]
fn missing_and_orphaned_entries_of_interrupted_threads_are_reported() {
    let mut family = ThreadFamily::new();
    family.world.count("child");
    let child = family.spawn_running("work");
    let holder = family.load(&child).head.value.holder.clone().unwrap();
    family.world.service.recover(&[holder], None).unwrap();
    family.world.audit();
    let store = &*family.world.store;
    let interrupted = |name: &&RecordKey| name.name.starts_with("interrupted");
    let page = store.scan("index", "", "", 500, false).unwrap();
    let names: Vec<RecordKey> = page.items.into_iter().map(|item| item.key).collect();
    let name = names
        .iter()
        .find(interrupted)
        .expect("it has an entry")
        .clone();
    assert_eq!(names.iter().filter(interrupted).count(), 1);
    let put = |key: RecordKey| CommitOp::Put {
        key,
        expect: RecordExpectation::Any,
        value: String::new(),
    };
    let delete = |key: RecordKey| CommitOp::Delete { key };
    let of_boss = RecordKey::new("index", name.name.replace(&child, &family.boss));
    let other_tree = RecordKey::new("index", name.name.replacen(&family.boss, "other", 1));
    for (plant, mend) in [
        (delete(name.clone()), put(name.clone())),
        (put(of_boss.clone()), delete(of_boss)),
        (put(other_tree.clone()), delete(other_tree)),
    ] {
        store.commit(&[plant], false).unwrap();
        let findings = audit(store).unwrap().findings;
        assert!(
            findings.iter().any(|found| found.invariant == Indexes),
            "{findings:?}"
        );
        store.commit(&[mend], false).unwrap();
        family.world.audit();
    }
}

#[test]
fn missing_and_wrong_due_entries_are_reported() {
    let due_now = insert_sql(
        "due",
        "'0000000000000000' || char(1) || 'done'",
        "'{\"root\":\"done\"}'",
    );
    let cases = [
        (Indexes, "fresh", delete_sql("due", "name LIKE '%fresh'")),
        (
            Indexes,
            "fresh",
            [
                delete_sql("due", "name LIKE '%fresh'"),
                set_fields_sql("head", "fresh", "'$.due', NULL"),
            ]
            .join(";"),
        ),
        (
            Indexes,
            "asking",
            "UPDATE record_due SET name = 'f' || substr(name, 2) WHERE name LIKE '%asking'"
                .to_owned(),
        ),
        (
            Indexes,
            "asking",
            [
                "UPDATE record_due SET name = '0000ffffffffffff' || char(1) || 'asking' \
                 WHERE name LIKE '%asking'"
                    .to_owned(),
                set_fields_sql("head", "asking", "'$.due', 281474976710655"),
            ]
            .join(";"),
        ),
        (
            Indexes,
            "asking",
            "UPDATE record_due SET value = '{\"root\":\"idle\"}' WHERE name LIKE '%asking'"
                .to_owned(),
        ),
        (
            Indexes,
            "rich/rich",
            "UPDATE record_due SET value = '{\"tree\":\"rich\"}' WHERE name LIKE '%rich/rich'"
                .to_owned(),
        ),
        (Indexes, "done", due_now.clone()),
        (
            Indexes,
            "done",
            [due_now, set_fields_sql("head", "done", "'$.due', 0")].join(";"),
        ),
    ];
    check_violations(&cases);
}

#[test]
fn lost_and_orphaned_messages_partials_and_pins_are_reported() {
    let cases = [
        (Indexes, "open", delete_sql("inbox", "name LIKE 'open%'")),
        (
            Indexes,
            "open",
            set_fields_sql("head", "open", "'$.mail_to', 99"),
        ),
        (
            Indexes,
            "open",
            insert_sql("inbox", "'open' || char(1) || '00000000000000ff'", "'{}'"),
        ),
        (
            Indexes,
            "nobody",
            insert_sql("inbox", "'nobody' || char(1) || '0000000000000000'", "'{}'"),
        ),
        (Indexes, "done", insert_sql("partial", "'done'", "'{}'")),
        (
            Indexes,
            "nobody",
            insert_sql("seen", "'nobody' || char(1) || 'x'", "'x'"),
        ),
        (
            Histories,
            "nobody",
            insert_sql("pin", "'nobody' || char(1) || 'x'", "'x'"),
        ),
    ];
    check_violations(&cases);
}
