//! The audit of forks: what a fork names, and what its chain counts.

use super::record_reader::{RecordSnapshot, list, number};
use super::thread::ThreadRecords;
use super::{StoreInvariant, UnconfirmedFindings};

/// Checks that the place which a fork names is the end of what it rests on.
pub(super) fn check_origin(seen: &ThreadRecords, suspicion: &mut UnconfirmedFindings) {
    let origin = &seen.thread["fork"];
    if origin.is_null() {
        return;
    }
    let parts = list(&seen.thread["base"]["parts"]);
    let end = parts.last().map_or(0, |part| number(&part["to"]));
    let what = "version that was forked";
    suspicion.expect_equal(
        StoreInvariant::Chains,
        what,
        end,
        number(&origin["version"]),
    );
    let root = !seen.thread["previous"].is_null() || !seen.thread["parent"].is_null();
    let expected = "a fork that is the first thread of a root chain";
    suspicion.add_if(StoreInvariant::Chains, root, expected, "another place");
}

/// Checks that a chain counts the forks that the index names.
pub(super) fn check_fork_count(
    root: &str,
    forks: &[String],
    records: &RecordSnapshot,
    suspicion: &mut UnconfirmedFindings,
) {
    let counted = number(&records.json("chain", root)["forks"]);
    suspicion.expect_equal(StoreInvariant::Chains, "forks", forks.len() as u64, counted);
}
