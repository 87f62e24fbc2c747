//! The audit of a head against its history.

use super::Invariant::{Calls, Counters, Holders, Indexes};
use super::Suspicion;
use super::history::{KINDS, Told};
use super::read::{list, millis, number};
use super::thread::Seen;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn compare(seen: &Seen, told: &Told, suspicion: &mut Suspicion) {
    lease(seen, suspicion);
    due(seen, suspicion);
    open(&seen.head, told, suspicion);
    counters(&seen.head["counters"], told, suspicion);
    ends(seen, told, suspicion);
}

/// Returns true for a status of an ended thread: only corrections of usage can follow.
fn is_end(status: &str) -> bool {
    ["completed", "error", "cancelled", "killed", "continued"].contains(&status)
}

fn lease(seen: &Seen, suspicion: &mut Suspicion) {
    let (head, status) = (&seen.head, seen.status());
    let running = status == "running";
    let held = !head["hold"].is_null() || !list(&head["holds"]).is_empty();
    let known =
        is_end(status) || running || ["created", "waiting", "suspended", "idle"].contains(&status);
    let found = format!("the status {:?}", super::shown(status));
    suspicion.wrong(Holders, !known, "a status", &found);
    for what in ["holder", "expiry", "step"] {
        let has = !head[what].is_null();
        let expected = format!("a {what} while it runs");
        suspicion.wrong(Holders, running && !has, &expected, "none");
        // A waiting thread may keep its step.
        let wrong = has && !running && status != "waiting";
        let expected = format!("no {what} while it is {}", super::shown(status));
        suspicion.wrong(Holders, wrong, &expected, "one");
    }
    let expected = "money held only while it runs";
    let found = format!("a hold while it is {}", super::shown(status));
    suspicion.wrong(Holders, held && !running, expected, &found);
}

fn due(seen: &Seen, suspicion: &mut Suspicion) {
    let (head, status) = (&seen.head, seen.status());
    let due = head["due"].as_u64();
    let needs = ["created", "running", "waiting"].contains(&status);
    let expected = format!("a due entry while it is {}", super::shown(status));
    suspicion.wrong(Indexes, needs && due.is_none(), &expected, "none");
    // The end still has to be propagated to its children, which a driver does when it looks for due
    // entries.
    let sweeps = !head["sweep"].is_null();
    let expected = "a due entry at once: its children must still be told of its end";
    let wrong = sweeps && due != Some(0);
    suspicion.wrong(Indexes, wrong, expected, "none, or a later one");
    let wrong = is_end(status) && due.is_some() && !sweeps;
    suspicion.wrong(Indexes, wrong, "no due entry: it has ended", "one");
    if let (Some(due), "running") = (due, status) {
        // Rounded up to the millisecond.
        let expiry = millis(&head["expiry"]).saturating_add(1_000);
        let expected = format!("a due entry before its lease expires ({expiry} ms)");
        let found = format!("one at {due} ms");
        suspicion.wrong(Indexes, due > expiry, &expected, &found);
    }
    if let (Some(due), "waiting", false) = (due, status, head["wait"].is_null()) {
        let until = millis(&head["wait"]["until"]);
        let expected = format!("a due entry when its wait is over ({until} ms), or before");
        let found = format!("one at {due} ms");
        suspicion.wrong(Indexes, due > until, &expected, &found);
    }
    let (from, to) = (number(&head["mail_from"]), number(&head["mail_to"]));
    let expected = "at most 32 messages that wait";
    let found = format!("those from {from} to {to}");
    let wrong = to < from || to - from > 32;
    suspicion.wrong(Indexes, wrong, expected, &found);
}

/// Compares holds and open calls.
fn open(head: &Value, told: &Told, suspicion: &mut Suspicion) {
    let hold = number(&head["hold"]["amount"]);
    let open = told.open_hold.map_or(0, |(_, amount)| amount);
    suspicion.differ(Holders, "a hold in the head of nano-USD", open, hold);
    let own: BTreeMap<u64, u64> = list(&head["holds"])
        .iter()
        .map(|own| (number(&own["version"]), number(&own["amount"])))
        .collect();
    let expected = format!("the holds {:?} of a loop of its host's own", told.own_holds);
    let found = format!("{own:?} in the head");
    suspicion.wrong(Holders, own != told.own_holds, &expected, &found);
    let round = &head["round"];
    let calls: BTreeSet<(u64, u64)> = list(&round["calls"])
        .iter()
        .map(|call| (number(&round["version"]), number(&call["index"])))
        .collect();
    let expected = format!("the open calls {:?} (version, index)", told.open_calls);
    let found = format!("{calls:?} in the head");
    suspicion.wrong(Calls, calls != told.open_calls, &expected, &found);
}

fn counters(counters: &Value, told: &Told, suspicion: &mut Suspicion) {
    for (what, told) in [
        ("turns", told.turns),
        ("run_turns", told.run_turns),
        ("spend", told.spend),
    ] {
        let name = format!("the counter {what}");
        suspicion.differ(Counters, &name, told, number(&counters[what]));
    }
    for (kind, told) in KINDS.into_iter().zip(told.tokens) {
        let name = format!("the counter of {kind} tokens");
        suspicion.differ(Counters, &name, told, number(&counters["usage"][kind]));
    }
}

fn ends(seen: &Seen, told: &Told, suspicion: &mut Suspicion) {
    if !is_end(seen.status()) {
        return;
    }
    let mail = seen.head["mail_from"] != seen.head["mail_to"];
    let expected = "every message that was acknowledged in the history of a thread that has ended";
    suspicion.wrong(
        super::Invariant::Histories,
        mail,
        expected,
        "some that wait",
    );
    let found = format!("{} without one", told.open_calls.len());
    let wrong = !told.open_calls.is_empty();
    let expected = "a result of every call: it has ended";
    suspicion.wrong(Calls, wrong, expected, &found);
    let outcome = seen.thread["outcome"].as_str().unwrap_or("none");
    let wrong = outcome != seen.status() && seen.status() != "continued";
    let expected = format!("the outcome {} in its record", seen.status());
    let found = super::shown(outcome);
    suspicion.wrong(super::Invariant::Histories, wrong, &expected, &found);
}
