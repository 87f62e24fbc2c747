//! Measures what one call has used: imports, bytes both ways, time. The host counts by itself,
//! whatever the component says.
//!
//! An answer is counted when the store has given it, so the contract bounds each: a page has 1 MiB
//! of values, a `get` and the records of a conflict 4 MiB. The host holds an embedder's store to
//! that as well.

use crate::limits::{EngineLimits, LimitHit, WALL_TIME_BOUND};
use std::time::{Duration, Instant};

/// Counts one call after another; each store of the component has one.
#[derive(Debug)]
pub struct CallMeter {
    limits: EngineLimits,
    begun: Instant,
    deadline: Instant,
    host_calls: u32,
    host_bytes: usize,
    answer_bytes: usize,
    host_time: Duration,
}

/// Time at which an import call entered the host.
#[must_use]
pub(super) struct EnteredImport(Instant);

impl CallMeter {
    /// A meter on which a call begins now.
    pub fn new(limits: &EngineLimits) -> Self {
        let now = Instant::now();
        Self {
            limits: *limits,
            begun: now,
            // An engine made by the embedder has not had its limits checked.
            deadline: now + limits.wall_time_max.min(WALL_TIME_BOUND),
            host_calls: 0,
            host_bytes: 0,
            answer_bytes: 0,
            host_time: Duration::ZERO,
        }
    }

    /// Begins a call: everything counts from zero. For hosts with their own engine.
    pub fn begin_call(&mut self) {
        *self = Self::new(&self.limits);
    }

    /// Begins a call whose answer is awaited until `deadline`.
    pub(crate) fn begin_call_until(&mut self, deadline: Instant) {
        self.begin_call();
        self.deadline = deadline;
    }

    /// Time that the call has computed: all but the time inside imports.
    pub fn compute_time(&self) -> Duration {
        self.begun.elapsed().saturating_sub(self.host_time)
    }

    /// Time at which the call ends, whatever it does.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Number of imports that the call has called.
    pub fn host_calls(&self) -> u32 {
        self.host_calls
    }

    /// Checks that the call may go on computing.
    ///
    /// # Errors
    /// The limit that the call has reached.
    pub(crate) fn check_time(&self) -> Result<(), LimitHit> {
        if self.compute_time() >= self.limits.compute_time_max {
            return Err(LimitHit("compute_time_max"));
        }
        self.check_deadline()
    }

    fn check_deadline(&self) -> Result<(), LimitHit> {
        match Instant::now() < self.deadline {
            true => Ok(()),
            false => Err(LimitHit("wall_time_max")),
        }
    }

    /// Counts an import call with arguments of `bytes` bytes.
    pub(super) fn enter_import(&mut self, bytes: usize) -> Result<EnteredImport, LimitHit> {
        self.host_calls += 1;
        if self.host_calls > self.limits.host_calls_max {
            return Err(LimitHit("host_calls_max"));
        }
        self.host_bytes = self.host_bytes.saturating_add(bytes);
        if self.host_bytes > self.limits.host_bytes_max {
            return Err(LimitHit("host_bytes_max"));
        }
        Ok(EnteredImport(Instant::now()))
    }

    /// Counts the answer of the import, of `bytes` bytes.
    pub(super) fn leave_import(
        &mut self,
        entered: EnteredImport,
        bytes: usize,
    ) -> Result<(), LimitHit> {
        self.host_time += entered.0.elapsed();
        self.answer_bytes = self.answer_bytes.saturating_add(bytes);
        if self.answer_bytes > self.limits.answer_bytes_max {
            return Err(LimitHit("answer_bytes_max"));
        }
        self.check_deadline()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: a call panicked when it began. Cause: `Instant` cannot represent so distant a time.
    #[test]
    fn unbounded_wall_time_does_not_panic() {
        let limits = EngineLimits {
            wall_time_max: Duration::MAX,
            ..EngineLimits::local()
        };
        assert_eq!(CallMeter::new(&limits).check_time(), Ok(()));
    }
}
