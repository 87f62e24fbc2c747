//! The time for which a lease outlasts its deadline. Core sets leases by it, and hosts take over or
//! recover runs by it: with another time of their own, they would close a run that may still go on.

/// Seconds after a step's deadline in which its holder may still submit.
pub const LEASE_GRACE_SECONDS: u64 = 15;

/// Returns true if a holder of which nothing else is known is taken for gone: its lease expired
/// more than the grace ago. Times are in seconds since 1970.
pub fn is_grace_over(now: i64, lease_expiry: i64) -> bool {
    now > lease_expiry.saturating_add_unsigned(LEASE_GRACE_SECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_has_the_whole_grace() {
        for (now, expiry, over) in [
            (100, 100, false),
            (115, 100, false),
            (116, 100, true),
            (0, 100, false),
            (i64::MAX, i64::MAX, false),
            (i64::MAX, 0, true),
        ] {
            assert_eq!(is_grace_over(now, expiry), over, "{now} {expiry}");
        }
    }
}
