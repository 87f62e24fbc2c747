//! The statuses of a thread that goes on no more.

/// The end statuses, which are outcomes, too. `continued` is that of a link that was handed off.
pub const END_STATUSES: [&str; 5] = ["completed", "error", "cancelled", "killed", "continued"];

/// Returns true for the status of a thread that goes on no more: its successor, if it gets one, is
/// another thread.
pub fn has_ended(status: &str) -> bool {
    END_STATUSES.contains(&status)
}
