//! Calls a minute: a token bucket that fills by the host's clock.

use crate::clock::ClockTime;
use std::time::Duration;

/// Longest time that a call waits for its slot, and never more than half of the time that it has,
/// so that there is some left for the call itself: a step has an hour for a model and two minutes
/// for a tool, unless their entries say less. A call that would wait longer is refused with the
/// time after which it may be tried again.
pub const SLOT_WAIT_MAX: Duration = Duration::from_secs(60);

/// One call in the units of the bucket, which gains `per_minute` of them each nanosecond.
const CALL: i128 = 60_000_000_000;

/// A token bucket: `per_minute` calls at once, and then one for each share of the minute.
#[derive(Debug)]
pub(super) struct RateBucket {
    per_minute: u64,
    /// Below zero: the calls that waiting callers have reserved in advance.
    level: i128,
    last: ClockTime,
}

impl RateBucket {
    /// A full bucket.
    pub(super) fn new(per_minute: u64, now: ClockTime) -> Self {
        Self {
            per_minute,
            level: full_level(per_minute),
            last: now,
        }
    }

    /// Reserves a slot and returns the wait until it. A slot that would come later than `longest`
    /// is not reserved; the error is the time after which to ask again, or `None` if no call ever
    /// passes.
    pub(super) fn reserve_slot(
        &mut self,
        now: ClockTime,
        longest: Duration,
    ) -> Result<Duration, Option<Duration>> {
        // A clock that stepped back adds nothing, and time continues from the new reading.
        let passed = i128::try_from(now.saturating_duration_since(self.last).as_nanos())
            .unwrap_or(i128::MAX);
        self.last = now;
        let rate = i128::from(self.per_minute);
        let gained = passed.saturating_mul(rate);
        self.level = self
            .level
            .saturating_add(gained)
            .min(full_level(self.per_minute));
        let after = self.level - CALL;
        if after >= 0 {
            self.level = after;
            return Ok(Duration::ZERO);
        }
        if rate == 0 {
            return Err(None);
        }
        let nanos = (-after + rate - 1) / rate;
        let wait = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        if wait > longest {
            return Err(Some(wait.saturating_sub(longest)));
        }
        self.level = after;
        Ok(wait)
    }

    /// Gives back a slot that was reserved in advance and is no longer wanted.
    pub(super) fn return_slot(&mut self) {
        self.level = (self.level + CALL).min(full_level(self.per_minute));
    }
}

fn full_level(per_minute: u64) -> i128 {
    i128::from(per_minute) * CALL
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time_at(seconds: i64) -> ClockTime {
        ClockTime { seconds, nanos: 0 }
    }

    #[test]
    fn burst_then_one_call_per_share_of_the_minute() {
        let seconds = |n| Ok(Duration::from_secs(n));
        let mut bucket = RateBucket::new(3, time_at(0));
        let taken: Vec<_> = (0..7)
            .map(|_| bucket.reserve_slot(time_at(0), SLOT_WAIT_MAX))
            .collect();
        let refused = Err(Some(Duration::from_secs(20)));
        assert_eq!(
            taken,
            [
                seconds(0),
                seconds(0),
                seconds(0),
                seconds(20),
                seconds(40),
                seconds(60),
                refused
            ]
        );
        assert_eq!(
            bucket.reserve_slot(time_at(20), SLOT_WAIT_MAX),
            seconds(60),
            "the one that was told to come again"
        );
        assert_eq!(
            bucket.reserve_slot(time_at(1_000), SLOT_WAIT_MAX),
            seconds(0)
        );
        let at_once = (0..9)
            .filter(|_| bucket.reserve_slot(time_at(1_000), SLOT_WAIT_MAX) == seconds(0))
            .count();
        assert_eq!(at_once, 2, "never more than a minute's worth");
    }

    #[test]
    fn returned_slot_is_reserved_next() {
        let mut bucket = RateBucket::new(1, time_at(0));
        bucket.return_slot();
        assert_eq!(
            bucket.reserve_slot(time_at(0), SLOT_WAIT_MAX),
            Ok(Duration::ZERO),
            "one at most"
        );
        let short = Duration::from_secs(5);
        assert_eq!(
            bucket.reserve_slot(time_at(0), short),
            Err(Some(Duration::from_secs(55)))
        );
        assert_eq!(
            bucket.reserve_slot(time_at(0), SLOT_WAIT_MAX),
            Ok(SLOT_WAIT_MAX)
        );
        assert_eq!(
            bucket.reserve_slot(time_at(1), SLOT_WAIT_MAX),
            Err(Some(Duration::from_secs(59)))
        );
        bucket.return_slot();
        assert_eq!(
            bucket.reserve_slot(time_at(1), SLOT_WAIT_MAX),
            Ok(Duration::from_secs(59))
        );
    }

    #[test]
    fn a_clock_that_steps_back_gives_nothing() {
        let mut bucket = RateBucket::new(1, time_at(1_000));
        assert_eq!(
            bucket.reserve_slot(time_at(1_000), SLOT_WAIT_MAX),
            Ok(Duration::ZERO)
        );
        assert_eq!(
            bucket.reserve_slot(time_at(0), SLOT_WAIT_MAX),
            Ok(Duration::from_secs(60))
        );
        assert_eq!(
            bucket.reserve_slot(time_at(59), SLOT_WAIT_MAX),
            Err(Some(Duration::from_secs(1)))
        );
        assert_eq!(
            bucket.reserve_slot(time_at(60), SLOT_WAIT_MAX),
            Ok(Duration::from_secs(60))
        );
    }

    #[test]
    fn zero_lets_nothing_pass_and_the_largest_number_does_not_overflow() {
        assert_eq!(
            RateBucket::new(0, time_at(0)).reserve_slot(time_at(i64::MAX), SLOT_WAIT_MAX),
            Err(None)
        );
        let mut bucket = RateBucket::new(u64::MAX, time_at(i64::MIN));
        assert_eq!(
            bucket.reserve_slot(time_at(i64::MAX), SLOT_WAIT_MAX),
            Ok(Duration::ZERO)
        );
    }
}
