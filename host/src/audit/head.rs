//! The audit of a head against its history.

use super::StoreInvariant::{Calls, Counters, Holders, Indexes};
use super::UnconfirmedFindings;
use super::history::{HistoryReplay, TOKEN_KINDS};
use super::record_reader::{list, millis, number, text};
use super::thread::ThreadRecords;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn compare_head(
    seen: &ThreadRecords,
    told: &HistoryReplay,
    suspicion: &mut UnconfirmedFindings,
) {
    check_lease(seen, suspicion);
    check_due(seen, suspicion);
    check_open_work(&seen.head, told, suspicion);
    check_counters(&seen.head["counters"], told, suspicion);
    check_end(seen, told, suspicion);
}

/// Returns true for a status of an ended thread: only corrections of usage can follow.
fn is_ended(status: &str) -> bool {
    ["completed", "error", "cancelled", "killed", "continued"].contains(&status)
}

fn check_lease(seen: &ThreadRecords, suspicion: &mut UnconfirmedFindings) {
    let (head, status) = (&seen.head, seen.status());
    let running = status == "running";
    let held = !head["hold"].is_null() || !list(&head["holds"]).is_empty();
    let known = is_ended(status)
        || running
        || ["created", "waiting", "suspended", "idle"].contains(&status);
    let found = format!("the status {:?}", super::printable_text(status));
    suspicion.add_if(Holders, !known, "a status", &found);
    for what in ["holder", "expiry", "step"] {
        let has = !head[what].is_null();
        let expected = format!("a {what} while it runs");
        suspicion.add_if(Holders, running && !has, &expected, "none");
        // A waiting thread may keep its step.
        let wrong = has && !running && status != "waiting";
        let expected = format!("no {what} while it is {}", super::printable_text(status));
        suspicion.add_if(Holders, wrong, &expected, "one");
    }
    let expected = "money held only while it runs";
    let found = format!("a hold while it is {}", super::printable_text(status));
    suspicion.add_if(Holders, held && !running, expected, &found);
}

fn check_due(seen: &ThreadRecords, suspicion: &mut UnconfirmedFindings) {
    let (head, status) = (&seen.head, seen.status());
    let due = head["due"].as_u64();
    // One whose history is not whole cannot be started.
    let starts = head["incomplete"] != true;
    let needs = status == "created" && starts || ["running", "waiting"].contains(&status);
    let expected = format!("a due entry while it is {}", super::printable_text(status));
    suspicion.add_if(Indexes, needs && due.is_none(), &expected, "none");
    // The end still has to be propagated to its children, which a driver does when it looks for due
    // entries.
    let sweeps = !head["sweep"].is_null();
    let expected = "a due entry at once: its children must still be told of its end";
    let wrong = sweeps && due != Some(0);
    suspicion.add_if(Indexes, wrong, expected, "none, or a later one");
    // One that was sent a message to go on with is due until a driver resumes it.
    let resumes = status != "continued" && head["mail_from"] != head["mail_to"];
    let wrong = is_ended(status) && due.is_some() && !sweeps && !resumes;
    suspicion.add_if(Indexes, wrong, "no due entry: it has ended", "one");
    if let (Some(due), "running") = (due, status) {
        // Rounded up to the millisecond.
        let expiry = millis(&head["expiry"]).saturating_add(1_000);
        let expected = format!("a due entry before its lease expires ({expiry} ms)");
        let found = format!("one at {due} ms");
        suspicion.add_if(Indexes, due > expiry, &expected, &found);
    }
    if let (Some(due), "waiting", false) = (due, status, head["wait"].is_null()) {
        let until = millis(&head["wait"]["until"]);
        let expected = format!("a due entry when its wait is over ({until} ms), or before");
        let found = format!("one at {due} ms");
        suspicion.add_if(Indexes, due > until, &expected, &found);
    }
    let (from, to) = (number(&head["mail_from"]), number(&head["mail_to"]));
    let expected = "at most 32 messages that wait";
    let found = format!("those from {from} to {to}");
    let wrong = to < from || to - from > 32;
    suspicion.add_if(Indexes, wrong, expected, &found);
}

/// Compares holds and open calls.
fn check_open_work(head: &Value, told: &HistoryReplay, suspicion: &mut UnconfirmedFindings) {
    let hold = number(&head["hold"]["amount"]);
    let open = told.open_hold.map_or(0, |(_, amount)| amount);
    suspicion.expect_equal(Holders, "a hold in the head of nano-USD", open, hold);
    let own: BTreeMap<u64, u64> = list(&head["holds"])
        .iter()
        .map(|own| (number(&own["version"]), number(&own["amount"])))
        .collect();
    let expected = format!(
        "the holds {:?} of a loop of its host's own",
        told.external_holds
    );
    let found = format!("{own:?} in the head");
    suspicion.add_if(Holders, own != told.external_holds, &expected, &found);
    let round = &head["round"];
    let calls: BTreeSet<(u64, u64)> = list(&round["calls"])
        .iter()
        .map(|call| (number(&round["version"]), number(&call["index"])))
        .collect();
    let expected = format!("the open calls {:?} (version, index)", told.open_calls);
    let found = format!("{calls:?} in the head");
    suspicion.add_if(Calls, calls != told.open_calls, &expected, &found);
    check_consent(round, told, suspicion);
}

/// Compares the consent that the head says was given with the decisions of the history.
fn check_consent(round: &Value, told: &HistoryReplay, suspicion: &mut UnconfirmedFindings) {
    let version = number(&round["version"]);
    for call in list(&round["calls"]) {
        let place = (version, number(&call["index"]));
        let decided = told.decisions.get(&place).map(String::as_str);
        // A decision that waits for the commit of a driver is in no entry yet.
        let wrong = match text(&call["consent"]) {
            "given" => decided != Some("approve"),
            "asked" | "denied" | "answered" => decided.is_some(),
            "approved" => decided.is_some_and(|decided| decided != "approve"),
            _ => decided.is_some(),
        };
        let expected = format!("the consent of the call {place:?} as it was decided: {decided:?}");
        let found = format!("{} in the head", call["consent"]);
        suspicion.add_if(Calls, wrong, &expected, &found);
    }
}

fn check_counters(counters: &Value, told: &HistoryReplay, suspicion: &mut UnconfirmedFindings) {
    for (what, told) in [
        ("turns", told.turns),
        ("run_turns", told.run_turns),
        ("spend", told.spend),
    ] {
        let name = format!("the counter {what}");
        suspicion.expect_equal(Counters, &name, told, number(&counters[what]));
    }
    for (kind, told) in TOKEN_KINDS.into_iter().zip(told.tokens) {
        let name = format!("the counter of {kind} tokens");
        suspicion.expect_equal(Counters, &name, told, number(&counters["usage"][kind]));
    }
}

fn check_end(seen: &ThreadRecords, told: &HistoryReplay, suspicion: &mut UnconfirmedFindings) {
    if !is_ended(seen.status()) {
        return;
    }
    // One with which it is to be resumed waits for the driver that does so.
    let resumes = seen.status() != "continued" && seen.head["due"].as_u64() == Some(0);
    let mail = seen.head["mail_from"] != seen.head["mail_to"] && !resumes;
    let expected = "every message that was acknowledged in the history of a thread that has ended";
    suspicion.add_if(
        super::StoreInvariant::Histories,
        mail,
        expected,
        "some that wait",
    );
    let found = format!("{} without one", told.open_calls.len());
    let wrong = !told.open_calls.is_empty();
    let expected = "a result of every call: it has ended";
    suspicion.add_if(Calls, wrong, expected, &found);
    let outcome = seen.thread["outcome"].as_str().unwrap_or("none");
    let wrong = outcome != seen.status() && seen.status() != "continued";
    let expected = format!("the outcome {} in its record", seen.status());
    let found = super::printable_text(outcome);
    suspicion.add_if(super::StoreInvariant::Histories, wrong, &expected, &found);
}
