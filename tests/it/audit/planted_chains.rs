//! Violations of chains: tips, links and parents that contradict each other.

use super::fixture::ClosedStore;
use super::planted_violations::{check_violations, delete_sql, mismatch_reason, set_fields_sql};
use threadkeep::audit::StoreInvariant::{Chains, Counters};

/// Broken links: the thread that is named, and the fields of a record that are set.
const BROKEN_LINKS: [(&str, &str, &str, &str); 13] = [
    ("done", "chain", "done", "'$.tip', 'idle'"),
    ("done", "thread", "done", "'$.next', 'Done'"),
    ("done", "thread", "done", "'$.next', 'idle'"),
    ("done", "thread", "done", "'$.next', 'nobody'"),
    ("done", "thread", "done", "'$.previous', 'idle'"),
    ("done", "chain", "done", "'$.parent', 'idle'"),
    ("done", "chain", "done", "'$.parent', 'Done'"),
    ("rich", "chain", "rich", "'$.parent', 'idle'"),
    ("rich", "chain", "rich", "'$.parent', NULL"),
    ("plain", "chain", "plain", "'$.above', json('[\"idle\"]')"),
    (
        "rich/rich",
        "chain",
        "rich/rich",
        "'$.above', json('[\"top\",\"rich\"]')",
    ),
    ("rich", "chain", "rich", "'$.account.parent', 'idle'"),
    ("idle", "thread", "idle", "'$.chain', 'done'"),
];

#[test]
fn broken_and_circular_chains_are_reported() {
    let set = |(thread, collection, name, fields)| {
        (Chains, thread, set_fields_sql(collection, name, fields))
    };
    let mut cases: Vec<_> = BROKEN_LINKS.into_iter().map(set).collect();
    cases.push((Chains, "done", delete_sql("chain", "name = 'done'")));
    let circle = [
        set_fields_sql("thread", "rich", "'$.parent', 'rich/poor'"),
        set_fields_sql("chain", "rich", "'$.parent', 'rich/poor'"),
    ];
    cases.push((Chains, "rich/poor", circle.join(";")));
    check_violations(&cases);
}

/// SQL that links two threads of a chain as a hand-off will write them.
fn link_chain_sql() -> String {
    let moved = "UPDATE record_index SET name = 'chain' || char(1) || 'idle' || substr(name, \
                 13) WHERE name LIKE 'chain' || char(1) || 'second%'";
    [
        set_fields_sql("thread", "idle", "'$.next', 'second'"),
        set_fields_sql("chain", "idle", "'$.tip', 'second'"),
        "INSERT INTO record_thread (name, version, value) SELECT 'second', 1, \
         json_set(value, '$.id', 'second', '$.previous', 'idle', '$.next', NULL) FROM \
         record_thread WHERE name = 'idle'"
            .to_owned(),
        format!(
            "INSERT INTO record_head (name, version, value) SELECT 'second', 1, json_set(value, \
             '$.version', 0, '$.hash', '{}', '$.counters', json_object('run_turns', \
             json_extract(value, '$.counters.run_turns')), '$.carried_spend', \
             json_extract(value, '$.counters.spend')) FROM record_head WHERE name = 'idle'",
            threadkeep_core::thread::genesis_hash("second", "idle", None)
        ),
        "INSERT INTO record_index (name, version, value) SELECT replace(name, char(1) || \
         'idle', char(1) || 'second'), 1, value FROM record_index WHERE name LIKE '%' || \
         char(1) || 'idle'"
            .to_owned(),
        moved.to_owned(),
        set_fields_sql("head", "idle", "'$.status', 'continued'"),
        set_fields_sql("thread", "idle", "'$.outcome', 'continued'"),
        "UPDATE record_index SET name = replace(name, 'status' || char(1) || 'idle', \
         'status' || char(1) || 'continued') WHERE name LIKE 'status%' AND name LIKE '%' || \
         char(1) || 'idle'"
            .to_owned(),
        "UPDATE record_index SET name = replace(name, 'status' || char(1) || 'second', \
         'status' || char(1) || 'idle') WHERE name LIKE 'status%second'"
            .to_owned(),
    ]
    .join(";")
}

#[test]
fn a_chain_of_two_links_is_walked_to_its_tip() {
    let kept = ClosedStore::new();
    assert_eq!(kept.audit_after(&link_chain_sql()).findings, []);
    for (thread, broken) in [
        (
            "idle",
            set_fields_sql("thread", "second", "'$.previous', NULL"),
        ),
        (
            "idle",
            set_fields_sql("thread", "second", "'$.next', 'idle'"),
        ),
        (
            "idle",
            set_fields_sql("thread", "second", "'$.next', 'second'"),
        ),
        ("idle", set_fields_sql("thread", "idle", "'$.next', NULL")),
        ("idle", set_fields_sql("chain", "idle", "'$.tip', 'idle'")),
    ] {
        let sql = format!("{}; {broken}", link_chain_sql());
        let unsaid = mismatch_reason(&kept.audit_after(&sql), Chains, thread);
        assert_eq!(unsaid, None, "{broken}");
    }
    let forgotten = set_fields_sql("head", "second", "'$.carried_spend', 1");
    let sql = format!("{}; {forgotten}", link_chain_sql());
    let unsaid = mismatch_reason(&kept.audit_after(&sql), Counters, "idle");
    assert_eq!(unsaid, None, "what the first link has spent");
}
