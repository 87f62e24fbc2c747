//! The hash that a history begins with. It binds the history to its thread and chain, so that a
//! history that is moved to another thread does not fit there.

use crate::hash::sha256;

/// Name of the rule; another rule would have another.
const RULE: &str = "threadkeep/1";

/// Computes the hash that stands in a new head, and as `previous` in the first entry: SHA-256 over
/// the rule, the id of the thread and the id of its chain.
pub fn genesis_hash(thread: &str, chain: &str) -> String {
    sha256(&[RULE, thread, chain])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_and_chain_has_its_own() {
        let genesis = genesis_hash("a", "b");
        for (thread, chain) in [("b", "a"), ("a", "a"), ("ab", ""), ("A", "b")] {
            assert_ne!(genesis_hash(thread, chain), genesis, "{thread} {chain}");
        }
        // Pinned: the histories of stores begin with it.
        assert_eq!(
            genesis,
            "205fb25af6d4d47134e3adc8a47c4456bbbf35627832fb77dca9e09006ac5c3f"
        );
    }
}
