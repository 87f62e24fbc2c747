//! The rule about what a raise must name before a thread that a cap has stopped can go on.

use super::{Head, ThreadStatus};

/// Returns the value that the cap must exceed before a suspended thread can go on, in the unit of
/// the cap that the code of its cause names; `None` where no cap has stopped it.
pub fn raise_floor(head: &Head) -> Option<u64> {
    let suspended = head.status == ThreadStatus::Suspended;
    let cause = head.cause.as_ref().filter(|_| suspended)?;
    let value = cause.value?;
    match cause.code.as_str() {
        "turns_exceeded" | "tokens_exceeded" | "spawns_exceeded" | "duration_exceeded" => {
            Some(value)
        }
        // The value is the number of levels that the refused child needs.
        "depth_exceeded" => Some(value.saturating_sub(1)),
        // The value is the price of the next call: with what is spent already it may just reach the
        // cap.
        "spend_exceeded" => {
            let needed = head.spend_under_cap().get().saturating_add(value);
            Some(needed.saturating_sub(1))
        }
        _ => None,
    }
}
