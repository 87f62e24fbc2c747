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

/// A hand-off in an entry that others follow.
const EARLY_HANDOFF: &str = "[{\"type\":\"thread_handoff\",\"new_thread_id\":\"second\"},{";

/// SQL that changes a text in the entries of this reason in the history of `idle`.
fn edit_history_sql(reason: &str, from: &str, to: &str) -> String {
    format!(
        "UPDATE entry SET value = replace(value, '{from}', '{to}') WHERE value LIKE \
         '%\"reason\":\"{reason}\"%' AND id >> 32 = (SELECT id FROM partition WHERE log = \
         'history' AND name = 'idle')"
    )
}

#[test]
fn a_chain_of_two_links_is_walked_to_its_tip() {
    let kept = ClosedStore::with_link();
    assert_eq!(kept.audit_after("").findings, []);
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
        // The history of a link names the one after it.
        ("idle", set_fields_sql("thread", "idle", "'$.next', 'top'")),
        ("done", set_fields_sql("thread", "done", "'$.next', 'top'")),
        (
            "idle",
            edit_history_sql("handoff", "thread_handoff", "thread_lost"),
        ),
        ("idle", edit_history_sql("handoff", "second", "third")),
        (
            "idle",
            edit_history_sql("user-message", "[{", EARLY_HANDOFF),
        ),
    ] {
        let unsaid = mismatch_reason(&kept.audit_after(&broken), Chains, thread);
        assert_eq!(unsaid, None, "{broken}");
    }
    let forgotten = set_fields_sql("head", "second", "'$.carried_spend', 1");
    let unsaid = mismatch_reason(&kept.audit_after(&forgotten), Counters, "idle");
    assert_eq!(unsaid, None, "what the first link has spent");
}
