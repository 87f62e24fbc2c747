//! Checks of the records of a thread, so that nothing that computes with them overflows and a
//! commit names each of them once. No program of ours writes others.

use super::{ChainRecord, Head, ThreadRecord};
use crate::id;
use crate::ordered_names::OrderedNames;

/// Largest version, token, count or number in a record: one can be added, and two have a sum.
const NUMBER_MAX: u64 = i64::MAX as u64;

/// Returns what contradicts itself in the records of a thread, if anything does: a sentence that
/// goes on after the id of the thread.
pub fn find_contradiction(
    thread: &ThreadRecord,
    head: &Head,
    chain: &ChainRecord,
) -> Option<String> {
    if let Some((name, number)) = find_large_number(thread, head, chain) {
        return Some(format!("has a {name} of {number}, which no program writes"));
    }
    let (version, length) = (head.version, thread.base_length());
    if version < length {
        return Some(format!(
            "has a base that reaches to {length}, and its head is at {version}"
        ));
    }
    let root = id::key(&thread.chain);
    let above = OrderedNames::new(chain.above.iter().map(|chain| id::key(chain)).collect());
    let parent = chain.parent.as_deref().map(id::key);
    let twice = above.as_slice().len() < chain.above.len();
    if parent.as_ref() == Some(&root) || above.contains(&root) || twice {
        return Some("is of a chain that is above itself".to_owned());
    }
    None
}

/// Returns the first number that is too large, and its name.
fn find_large_number(
    thread: &ThreadRecord,
    head: &Head,
    chain: &ChainRecord,
) -> Option<(&'static str, u64)> {
    let step = head.step.as_ref().map_or(0, |step| step.version);
    let counters = &head.counters;
    let numbers = [
        ("base", thread.base_length()),
        ("version", head.version),
        ("token", head.token),
        ("run", head.run),
        ("step", step),
        ("number of messages", head.mail_from.max(head.mail_to)),
        ("number of turns", counters.turns.max(counters.run_turns)),
        ("number of tokens", counters.run_tokens),
        ("duration", counters.duration.max(counters.run_duration)),
        ("number of spawns", counters.spawns.max(chain.children)),
        ("last child", chain.spawned.unwrap_or(0)),
        ("last child to be ended", head.sweep_to.unwrap_or(0)),
        ("place among its siblings", chain.number),
        ("depth", chain.depth),
    ];
    numbers.into_iter().find(|(_, number)| *number > NUMBER_MAX)
}
