//! Checks of the pointers of a chain: each link names the one before it and the one after it, and
//! the record of the chain names the last. Nothing is resolved by the pointers; where they
//! disagree, the store was changed by hand.

use super::{ChainRecord, Head, ThreadRecord, ThreadStatus};
use crate::id;

/// Returns what the records of one link contradict each other in, if they do: a sentence that goes
/// on after the id of the link. All three are of one snapshot.
pub fn find_link_problem(
    thread: &ThreadRecord,
    head: &Head,
    chain: &ChainRecord,
) -> Option<String> {
    let is_tip = id::key(&chain.tip) == id::key(&thread.id);
    let is_first = id::key(&thread.chain) == id::key(&thread.id);
    let tip = id::printable_id(&chain.tip);
    match (&thread.next, &thread.previous) {
        (_, Some(before)) if is_first => {
            let before = id::printable_id(before);
            Some(format!("is the first link, and names {before} before it"))
        }
        (_, None) if !is_first => Some("is not the first link, and names none before it".into()),
        (None, _) if head.status == ThreadStatus::Continued => {
            Some("was continued, and names no link after it".into())
        }
        (None, _) if !is_tip => Some(format!(
            "names no link after it, and the tip of its chain is {tip}"
        )),
        (Some(next), _) if is_tip => {
            let next = id::printable_id(next);
            Some(format!(
                "is the tip of its chain, and names {next} after it"
            ))
        }
        (Some(next), _) if !head.status.is_terminal() => {
            let (status, next) = (head.status, id::printable_id(next));
            Some(format!("is {status}, and names {next} after it"))
        }
        _ => None,
    }
}

/// Returns what two links that follow one another contradict each other in, if they do: a sentence
/// that goes on after the id of the second.
pub fn find_step_problem(before: &ThreadRecord, next: &ThreadRecord) -> Option<String> {
    let first = id::printable_id(&before.id);
    if id::key(&next.chain) != id::key(&before.chain) {
        let of = id::printable_id(&next.chain);
        return Some(format!("follows {first}, and is of the chain of {of}"));
    }
    let named = next.previous.as_deref();
    if named.map(id::key) != Some(id::key(&before.id)) {
        let named = named.map_or_else(|| "none".to_owned(), id::printable_id);
        return Some(format!("follows {first}, and names {named} before it"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::bare_record;
    use super::*;

    fn link(id: &str, previous: Option<&str>, next: Option<&str>) -> ThreadRecord {
        ThreadRecord {
            chain: "a".to_owned(),
            previous: previous.map(str::to_owned),
            next: next.map(str::to_owned),
            ..bare_record(id)
        }
    }

    #[test]
    fn two_links_name_one_another() {
        let other = ThreadRecord {
            chain: "c".to_owned(),
            ..link("b", Some("a"), None)
        };
        for (next, expected) in [
            (link("b", Some("A"), None), None),
            (
                link("b", Some("c"), None),
                Some("follows a, and names c before it"),
            ),
            (
                link("b", None, None),
                Some("follows a, and names none before it"),
            ),
            (other, Some("follows a, and is of the chain of c")),
        ] {
            let found = find_step_problem(&link("a", None, Some("b")), &next);
            assert_eq!(found.as_deref(), expected, "{next:?}");
        }
    }
}
