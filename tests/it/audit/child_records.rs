//! Audit of children: their numbers, the parents that wait for them, and intents that a
//! parent still has to pass on to them.

use super::fixture::ClosedStore;
use super::planted_violations::{check_violations, insert_sql, mismatch_reason, set_fields_sql};
use threadkeep::audit::StoreInvariant::{Chains, Indexes};

/// Children's fields that older records do not have.
#[test]
fn wrong_child_numbers_and_depths_are_reported() {
    let all = |rich: u64, closed: u64, depth: u64| {
        let numbers = [
            ("rich", rich, depth),
            ("closed", closed, 1),
            ("plain", 3, 1),
        ];
        let numbers = numbers.map(|(child, n, depth)| {
            set_fields_sql(
                "chain",
                child,
                &format!("'$.number', {n}, '$.depth', {depth}"),
            )
        });
        let below = ["rich/poor", "rich/rich"].map(|child| {
            let n = 1 + u64::from(child == "rich/rich");
            set_fields_sql(
                "chain",
                child,
                &format!("'$.number', {n}, '$.depth', {}", depth + 1),
            )
        });
        [numbers.join(";"), below.join(";")].join(";")
    };
    assert_eq!(ClosedStore::new().audit_after(&all(1, 2, 1)).findings, []);
    let cases = [
        (Chains, "top", all(2, 2, 1)),
        (Chains, "top", all(0, 2, 1)),
        (Chains, "top", all(4, 2, 1)),
        (Chains, "top", all(1, 2, 2)),
        (
            Chains,
            "idle",
            set_fields_sql("chain", "idle", "'$.number', 1"),
        ),
    ];
    check_violations(&cases);
}

/// A wait for children has a deadline, and a driver must look at it then at the latest.
#[test]
fn wait_is_due_at_its_deadline_or_last_stop() {
    let waits = |due: u64| {
        let status = "UPDATE record_index SET name = replace(name, 'running', 'waiting') \
                      WHERE name LIKE 'status%' AND name LIKE '%' || char(1) || 'open'";
        let moved = format!(
            "UPDATE record_due SET name = '{due:016x}' || char(1) || 'open' WHERE name LIKE \
             '%' || char(1) || 'open'"
        );
        let head = format!(
            "'$.status', 'waiting', '$.holder', NULL, '$.expiry', NULL, '$.step', NULL, \
             '$.due', {due}, '$.wait', \
             json('{{\"numbers\":[1],\"until\":{{\"seconds\":1800000600,\"nanos\":0}}}}')"
        );
        [
            status.to_owned(),
            moved,
            set_fields_sql("head", "open", &head),
        ]
        .join(";")
    };
    let kept = ClosedStore::new();
    assert_eq!(kept.audit_after(&waits(1_800_000_600_000)).findings, []);
    let late = kept.audit_after(&waits(1_800_000_600_001));
    assert_eq!(mismatch_reason(&late, Indexes, "open"), None);
    // A child stops, and its waiting parent is not told.
    let waits_for_plain = [
        waits(1_800_000_000_000),
        set_fields_sql("chain", "plain", "'$.number', 1, '$.parent', 'open'"),
        set_fields_sql("thread", "plain", "'$.parent', 'open'"),
        "UPDATE record_index SET name = replace(name, 'parent' || char(1) || 'top', 'parent' \
         || char(1) || 'open') WHERE name LIKE 'parent%plain'"
            .to_owned(),
    ];
    let lost = kept.audit_after(&waits_for_plain.join(";"));
    assert_eq!(mismatch_reason(&lost, Indexes, "open"), None);
    let none = set_fields_sql("head", "open", "'$.wait.numbers', json('[]')");
    let late = kept.audit_after(&[waits(1_800_000_000_000), none.clone()].join(";"));
    assert_eq!(mismatch_reason(&late, Indexes, "open"), None);
    assert_eq!(kept.audit_after(&[waits(0), none].join(";")).findings, []);
    let never = [
        waits(0),
        "DELETE FROM record_due WHERE name LIKE '%' || char(1) || 'open'".to_owned(),
        set_fields_sql("head", "open", "'$.due', NULL"),
    ];
    let never = kept.audit_after(&never.join(";"));
    assert_eq!(mismatch_reason(&never, Indexes, "open"), None);
}

/// A thread that ended with an intent not yet passed on to its children is due, though it has
/// ended.
#[test]
fn unpropagated_end_is_due() {
    let sweeps = [
        insert_sql(
            "due",
            "'0000000000000000' || char(1) || 'late'",
            "'{\"root\":\"late\"}'",
        ),
        set_fields_sql(
            "head",
            "late",
            "'$.due', 0, '$.sweep', json('{\"kind\":\"kill\"}')",
        ),
    ];
    let kept = ClosedStore::new();
    assert_eq!(kept.audit_after(&sweeps.join(";")).findings, []);
    let alone = set_fields_sql("head", "late", "'$.sweep', 'kill'");
    assert_eq!(
        mismatch_reason(&kept.audit_after(&alone), Indexes, "late"),
        None
    );
}

/// Symptom: every child that was short of money passed as one that answers no wait. Fix: the
/// rule of the core, stated anew: it does so where it draws on its parent's account and has
/// not reached a cap of its own.
#[test]
fn a_wait_is_answered_by_a_child_that_nobody_revives() {
    let waiting = "UPDATE record_index SET name = replace(name, 'running', 'waiting') \
                   WHERE name LIKE 'status%' AND name LIKE '%' || char(1) || 'open'";
    let wait = "'$.status', 'waiting', '$.holder', NULL, '$.expiry', NULL, '$.step', NULL, \
                '$.wait', json('{\"numbers\":[1],\
                \"until\":{\"seconds\":1800000600,\"nanos\":0}}')";
    let parent = "UPDATE record_index \
                  SET name = replace(name, 'parent' || char(1) || 'top', \
                  'parent' || char(1) || 'open') WHERE name LIKE 'parent%plain'";
    let waits = |head: &str, chain: &str| {
        let suspended =
            format!("'$.status', 'suspended', '$.mail_from', 0, '$.mail_to', 0, {head}");
        let child = format!("'$.number', 1, '$.parent', 'open'{chain}");
        [
            waiting.to_owned(),
            set_fields_sql("head", "open", wait),
            set_fields_sql("chain", "plain", &child),
            set_fields_sql("thread", "plain", "'$.parent', 'open'"),
            parent.to_owned(),
            set_fields_sql("head", "plain", &suspended),
        ]
        .join(";")
    };
    let cause = |code: &str| format!("'$.cause', json('{{\"code\":\"{code}\",\"value\":10}}')");
    let short = cause("spend_exceeded");
    let own_cap = format!("{short}, '$.limits.spend', json_extract(value, '$.counters.spend') + 9");
    let more = format!("{short}, '$.limits.spend', json_extract(value, '$.counters.spend') + 10");
    let own_account = ", '$.account.parent', 'open'";
    let recovered = cause("recovered");
    let capped = format!("{recovered}, '$.limits.turns', 0");
    let kept = ClosedStore::new();
    for (head, chain, answers) in [
        (&short, "", false),
        (&more, "", false),
        (&own_cap, "", true),
        (&short, own_account, true),
        (&recovered, "", false),
        (&capped, "", true),
        (&cause("turns_exceeded"), "", true),
        (&cause("money_held"), "", true),
    ] {
        let report = kept.audit_after(&waits(head, chain));
        let mut found = report.findings.iter();
        let woken = found.any(|one| one.expected.starts_with("to be woken by plain"));
        assert_eq!(woken, answers, "{head} {chain}: {report:#?}");
    }
}
