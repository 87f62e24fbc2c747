//! The hash that a history begins with. It binds the history to its thread and chain, and to the
//! entries that it rests on, so that a history that is moved to another thread, or put on another
//! base, does not fit there.

use super::{Head, HistoryBase, ThreadRecord};
use crate::error::Error;
use crate::hash::sha256;
use crate::history::Entry;

/// Name of the rule; another rule would have another.
const RULE: &str = "threadkeep/1";

/// Computes the hash that stands in a new head, and as `previous` in the first entry: SHA-256 over
/// the rule, the id of the thread, the id of its chain and the hashes of the parts of its base.
pub fn genesis_hash(thread: &str, chain: &str, base: Option<&HistoryBase>) -> String {
    let mut parts = vec![RULE, thread, chain];
    parts.extend(
        base.iter()
            .flat_map(|base| &base.parts)
            .map(|part| &*part.hash),
    );
    sha256(&parts)
}

/// Checks that a thread's own entries are its own: the first begins with the hash of the thread and
/// chain, and the newest has the hash in the head. Between them each entry names the one before it,
/// which the audit reads.
///
/// # Errors
/// `ErrorKind::Corrupt` if they are those of another thread, or were edited.
pub fn check_own_history(
    thread: &ThreadRecord,
    head: &Head,
    first: &Entry,
    newest: &str,
) -> Result<(), Error> {
    let genesis = genesis_hash(&thread.id, &thread.chain, thread.base.as_ref());
    // Histories of the first builds begin with nothing.
    let begins_here = first.previous.is_empty() || first.previous == genesis;
    let ends_here = Entry::hash_of(newest) == head.hash;
    let problem = match (begins_here, ends_here) {
        (true, true) => return Ok(()),
        (false, _) => "is that of another thread",
        (true, false) => "does not end with the entry that its head names",
    };
    let id = &thread.id;
    let message = format!("the history of {id} {problem}: nothing was changed or sent");
    Err(Error::corrupt(message))
}

#[cfg(test)]
mod tests {
    use super::super::BasePart;
    use super::*;

    #[test]
    fn every_thread_chain_and_base_has_its_own() {
        let genesis = genesis_hash("a", "b", None);
        for (thread, chain) in [("b", "a"), ("a", "a"), ("ab", ""), ("A", "b")] {
            assert_ne!(
                genesis_hash(thread, chain, None),
                genesis,
                "{thread} {chain}"
            );
        }
        // Pinned: the histories of stores begin with it.
        assert_eq!(
            genesis,
            "205fb25af6d4d47134e3adc8a47c4456bbbf35627832fb77dca9e09006ac5c3f"
        );
        let on = |hashes: &[&str]| {
            let part = |hash: &&str| BasePart {
                thread: "c".to_owned(),
                from: 1,
                to: 7,
                hash: (*hash).to_owned(),
            };
            let base = HistoryBase {
                length: 7,
                parts: hashes.iter().map(part).collect(),
            };
            genesis_hash("a", "b", Some(&base))
        };
        let all = [on(&[]), on(&["c"]), on(&["d"]), on(&["c", "d"])];
        assert_eq!(all[0], genesis, "a thread without a base has no part");
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one), "{at}");
        }
    }
}
