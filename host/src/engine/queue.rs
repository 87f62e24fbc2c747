//! The queue of calls that wait for a thread of the pool.
//!
//! Lanes with a startable call are served round-robin. They belong to one of two classes: a lane
//! with a call that lowered its priority or was stopped moves to the low class for a while, whose
//! threads have the lowest priority.

use crate::limits::Limits;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time that a lane stays in the low class: a continuing attack is kept out of the others' way, a
/// single mistake is soon forgotten.
const LOW_FOR: Duration = Duration::from_secs(1);

/// Identifies the tenant of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Lane(u64);

/// The work of a thread for one call.
pub(super) type Work = Box<dyn FnOnce() + Send>;

/// Answers a caller whose time has passed, unless it was answered before.
pub(super) trait Ticket: Send + Sync {
    fn expire(&self);
}

/// A call from asking to answering.
pub(super) struct Call {
    pub(super) lane: Lane,
    pub(super) deadline: Instant,
    pub(super) ticket: Arc<dyn Ticket>,
}

/// The class of threads that serves a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Normal,
    Low,
}

#[derive(Default)]
pub(super) struct LaneState {
    /// By number of the call, so oldest first.
    pub(super) waiting: BTreeMap<u64, Work>,
    pub(super) running: usize,
    /// True if the lane is in the round of its class.
    listed: bool,
}

/// The lanes and threads of one class.
#[derive(Default)]
pub(super) struct Half {
    /// Lanes with a startable call, in round-robin order.
    turns: VecDeque<Lane>,
    /// Calls that wait only for a thread.
    pub(super) startable: usize,
    pub(super) threads: usize,
    pub(super) idle: usize,
}

#[derive(Default)]
pub(super) struct Queue {
    numbers: u64,
    running_max: usize,
    /// Lanes with a waiting or running call.
    pub(super) lanes: HashMap<Lane, LaneState>,
    /// Lanes in the low class, and until when.
    low_until: HashMap<Lane, Instant>,
    pub(super) normal: Half,
    pub(super) low: Half,
    /// By number: all calls have the same time, so the first is the first to expire.
    pub(super) calls: BTreeMap<u64, Call>,
    pub(super) closed: bool,
}

/// A call that a thread starts next.
pub(super) struct Started {
    pub(super) number: u64,
    pub(super) lane: Lane,
    pub(super) work: Work,
}

impl Half {
    /// True if more calls wait for a thread than threads wait for a call.
    pub(super) fn lacks_threads(&self) -> bool {
        self.startable > self.idle
    }
}

impl LaneState {
    fn startable(&self, running_max: usize) -> usize {
        let room = running_max.saturating_sub(self.running);
        self.waiting.len().min(room)
    }
}

impl Queue {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            running_max: limits.calls_running_max,
            ..Self::default()
        }
    }

    /// A new lane.
    pub(super) fn lane(&mut self) -> Lane {
        Lane(self.number())
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn side(&self, lane: Lane) -> Side {
        match self.low_until.contains_key(&lane) {
            true => Side::Low,
            false => Side::Normal,
        }
    }

    pub(super) fn half(&mut self, side: Side) -> &mut Half {
        match side {
            Side::Normal => &mut self.normal,
            Side::Low => &mut self.low,
        }
    }

    /// Threads of both classes.
    pub(super) fn threads(&self) -> usize {
        self.normal.threads + self.low.threads
    }

    /// Queues a call and returns its number, or its work if `queued_max` calls wait already.
    pub(super) fn push(&mut self, call: Call, work: Work, queued_max: usize) -> Result<u64, Work> {
        let (lane, number) = (call.lane, self.number());
        let most = self.running_max.saturating_add(queued_max);
        let refused = self.change(lane, |state| {
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
    pub(super) fn change<T>(&mut self, lane: Lane, f: impl FnOnce(&mut LaneState) -> T) -> T {
        let (running_max, side) = (self.running_max, self.side(lane));
        let state = self.lanes.entry(lane).or_default();
        let before = state.startable(running_max);
        let result = f(state);
        let now = state.startable(running_max);
        let newly = now > 0 && !state.listed;
        state.listed |= newly;
        let over = state.waiting.is_empty() && state.running == 0 && !state.listed;
        let half = self.half(side);
        half.startable = half.startable + now - before;
        if newly {
            half.turns.push_back(lane);
        }
        if over {
            self.lanes.remove(&lane);
        }
        result
    }

    /// Removes a call, and its work if it still waits.
    pub(super) fn withdraw(&mut self, number: u64) -> Option<(Call, Option<Work>)> {
        let call = self.calls.remove(&number)?;
        let work = self.change(call.lane, |state| state.waiting.remove(&number));
        Some((call, work))
    }

    /// The next call of a class, round-robin.
    pub(super) fn take(&mut self, side: Side) -> Option<Started> {
        let running_max = self.running_max;
        while let Some(lane) = self.half(side).turns.pop_front() {
            let taken = self.change(lane, |state| {
                state.listed = false;
                if state.running >= running_max {
                    return None;
                }
                let taken = state.waiting.pop_first();
                state.running += usize::from(taken.is_some());
                taken
            });
            if let Some((number, work)) = taken {
                return Some(Started { number, lane, work });
            }
        }
        None
    }

    /// Moves a lane to the low class, because one of its calls lowered its priority or was stopped.
    pub(super) fn lower(&mut self, lane: Lane, now: Instant) {
        if self.side(lane) == Side::Normal {
            self.swap(lane, Side::Normal, Side::Low);
        }
        self.low_until.insert(lane, now + LOW_FOR);
    }

    /// Returns the lanes whose time in the low class is over.
    pub(super) fn raise(&mut self, now: Instant) {
        let over: Vec<Lane> = self
            .low_until
            .iter()
            .filter(|(_, until)| **until <= now)
            .map(|(lane, _)| *lane)
            .collect();
        for lane in over {
            self.swap(lane, Side::Low, Side::Normal);
            self.low_until.remove(&lane);
        }
    }

    fn swap(&mut self, lane: Lane, from: Side, to: Side) {
        let Some(state) = self.lanes.get(&lane) else {
            return;
        };
        let (startable, listed) = (state.startable(self.running_max), state.listed);
        let half = self.half(from);
        half.startable -= startable;
        half.turns.retain(|other| *other != lane);
        let half = self.half(to);
        half.startable += startable;
        if listed {
            half.turns.push_back(lane);
        }
    }
}
