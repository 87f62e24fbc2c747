//! The queue of calls that wait for a thread of the pool.
//!
//! Lanes with a startable call are served round-robin. They belong to one of two classes: a lane
//! with a call that lowered its priority or was stopped moves to the low class for a while, whose
//! threads have the lowest priority.

use crate::limits::EngineLimits;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time that a lane stays in the low class: a continuing attack is kept out of the others' way, a
/// single mistake is soon forgotten.
const LOW_FOR: Duration = Duration::from_secs(1);

/// Identifies the tenant of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TenantLane(u64);

/// The work of a thread for one call.
pub(super) type CallClosure = Box<dyn FnOnce() + Send>;

/// Answers a caller whose time has passed, unless it was answered before.
pub(super) trait CallTicket: Send + Sync {
    fn expire(&self);
}

/// A call from asking to answering.
pub(super) struct QueuedCall {
    pub(super) lane: TenantLane,
    pub(super) deadline: Instant,
    pub(super) ticket: Arc<dyn CallTicket>,
}

/// The class of threads that serves a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PriorityClass {
    Normal,
    Low,
}

#[derive(Default)]
pub(super) struct LaneCalls {
    /// By number of the call, so oldest first.
    pub(super) waiting: BTreeMap<u64, CallClosure>,
    pub(super) running: usize,
    /// True if the lane is in the round of its class.
    in_round: bool,
}

/// The lanes and threads of one class.
#[derive(Default)]
pub(super) struct ClassQueue {
    /// Lanes with a startable call, in round-robin order.
    round: VecDeque<TenantLane>,
    /// Calls that wait only for a thread.
    pub(super) startable: usize,
    pub(super) threads: usize,
    pub(super) idle: usize,
}

#[derive(Default)]
pub(super) struct CallQueue {
    numbers: u64,
    running_max: usize,
    /// Lanes with a waiting or running call.
    pub(super) lanes: HashMap<TenantLane, LaneCalls>,
    /// Lanes in the low class, and until when.
    low_until: HashMap<TenantLane, Instant>,
    pub(super) normal: ClassQueue,
    pub(super) low: ClassQueue,
    /// By number: all calls have the same time, so the first is the first to expire.
    pub(super) calls: BTreeMap<u64, QueuedCall>,
    pub(super) closed: bool,
}

/// A call that a thread starts next.
pub(super) struct StartedCall {
    pub(super) number: u64,
    pub(super) lane: TenantLane,
    pub(super) work: CallClosure,
}

impl ClassQueue {
    /// True if more calls wait for a thread than threads wait for a call.
    pub(super) fn lacks_threads(&self) -> bool {
        self.startable > self.idle
    }
}

impl LaneCalls {
    fn startable(&self, running_max: usize) -> usize {
        let room = running_max.saturating_sub(self.running);
        self.waiting.len().min(room)
    }
}

impl CallQueue {
    pub(super) fn new(limits: &EngineLimits) -> Self {
        Self {
            running_max: limits.calls_running_max,
            ..Self::default()
        }
    }

    /// A new lane.
    pub(super) fn add_lane(&mut self) -> TenantLane {
        TenantLane(self.next_number())
    }

    fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn class_of(&self, lane: TenantLane) -> PriorityClass {
        match self.low_until.contains_key(&lane) {
            true => PriorityClass::Low,
            false => PriorityClass::Normal,
        }
    }

    pub(super) fn class_queue(&mut self, side: PriorityClass) -> &mut ClassQueue {
        match side {
            PriorityClass::Normal => &mut self.normal,
            PriorityClass::Low => &mut self.low,
        }
    }

    /// Threads of both classes.
    pub(super) fn thread_count(&self) -> usize {
        self.normal.threads + self.low.threads
    }

    /// Queues a call and returns its number, or its work if `queued_max` calls wait already.
    pub(super) fn push_call(
        &mut self,
        call: QueuedCall,
        work: CallClosure,
        queued_max: usize,
    ) -> Result<u64, CallClosure> {
        let (lane, number) = (call.lane, self.next_number());
        let most = self.running_max.saturating_add(queued_max);
        let refused = self.update_lane(lane, |state| {
            if state.waiting.len() + state.running >= most {
                return Some(work);
            }
            state.waiting.insert(number, work);
            None
        });
        match refused {
            Some(work) => Err(work),
            None => {
                self.calls.insert(number, call);
                Ok(number)
            }
        }
    }

    /// Changes a lane, and updates the counts and the round of its class.
    pub(super) fn update_lane<T>(
        &mut self,
        lane: TenantLane,
        f: impl FnOnce(&mut LaneCalls) -> T,
    ) -> T {
        let (running_max, side) = (self.running_max, self.class_of(lane));
        let state = self.lanes.entry(lane).or_default();
        let before = state.startable(running_max);
        let result = f(state);
        let now = state.startable(running_max);
        let newly = now > 0 && !state.in_round;
        state.in_round |= newly;
        let over = state.waiting.is_empty() && state.running == 0 && !state.in_round;
        let half = self.class_queue(side);
        half.startable = half.startable + now - before;
        if newly {
            half.round.push_back(lane);
        }
        if over {
            self.lanes.remove(&lane);
        }
        result
    }

    /// Removes a call, and its work if it still waits.
    pub(super) fn remove_call(&mut self, number: u64) -> Option<(QueuedCall, Option<CallClosure>)> {
        let call = self.calls.remove(&number)?;
        let work = self.update_lane(call.lane, |state| state.waiting.remove(&number));
        Some((call, work))
    }

    /// The next call of a class, round-robin.
    pub(super) fn take_next(&mut self, side: PriorityClass) -> Option<StartedCall> {
        let running_max = self.running_max;
        while let Some(lane) = self.class_queue(side).round.pop_front() {
            let taken = self.update_lane(lane, |state| {
                state.in_round = false;
                if state.running >= running_max {
                    return None;
                }
                let taken = state.waiting.pop_first();
                state.running += usize::from(taken.is_some());
                taken
            });
            if let Some((number, work)) = taken {
                return Some(StartedCall { number, lane, work });
            }
        }
        None
    }

    /// Counts a call on a lent thread as running, if it overtakes nothing that waits; true if it
    /// may begin.
    pub(super) fn begin_lent_call(&mut self, lane: TenantLane) -> bool {
        let is_normal = self.class_of(lane) == PriorityClass::Normal;
        if self.closed || !is_normal || self.normal.startable > 0 {
            return false;
        }
        let running_max = self.running_max;
        self.update_lane(lane, |state| {
            let begins = state.waiting.is_empty() && state.running < running_max;
            state.running += usize::from(begins);
            begins
        })
    }

    /// Moves a lane to the low class, because one of its calls lowered its priority or was stopped.
    pub(super) fn lower_lane(&mut self, lane: TenantLane, now: Instant) {
        if self.class_of(lane) == PriorityClass::Normal {
            self.move_lane(lane, PriorityClass::Normal, PriorityClass::Low);
        }
        self.low_until.insert(lane, now + LOW_FOR);
    }

    /// Moves the lanes whose time in the low class is over back to the normal class.
    pub(super) fn raise_expired_lanes(&mut self, now: Instant) {
        let over: Vec<TenantLane> = self
            .low_until
            .iter()
            .filter(|(_, until)| **until <= now)
            .map(|(lane, _)| *lane)
            .collect();
        for lane in over {
            self.move_lane(lane, PriorityClass::Low, PriorityClass::Normal);
            self.low_until.remove(&lane);
        }
    }

    fn move_lane(&mut self, lane: TenantLane, from: PriorityClass, to: PriorityClass) {
        let Some(state) = self.lanes.get(&lane) else {
            return;
        };
        let (startable, listed) = (state.startable(self.running_max), state.in_round);
        let half = self.class_queue(from);
        half.startable -= startable;
        half.round.retain(|other| *other != lane);
        let half = self.class_queue(to);
        half.startable += startable;
        if listed {
            half.round.push_back(lane);
        }
    }
}
