//! The budget ledger against known faults of other systems, and against wrong requests. Faults of
//! the original and of its peers have the numbers of the study of each.

mod invalid_requests;
mod loop_family;
mod money_over_time;
mod original_faults;
mod peer_complaints;
mod shared_account;
mod spawned_children;
