//! Who waits for a thread of the pool, and whose turn it is.
//!
//! Lanes that have a call and may run one take turns. They stand on one of two sides: a lane one of whose calls stepped
//! back or was stopped goes to the low side for a while, whose threads have the lowest priority.

use crate::limits::Limits;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a lane stays on the low side: an attack that goes on is taken out of the others' way, a single mistake is
/// soon forgotten.
const LOW_FOR: Duration = Duration::from_secs(1);

/// Whose call it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Lane(u64);

/// What a thread is to do.
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

/// Which threads serve a lane.
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
    /// It stands in the turns of its side.
    listed: bool,
}

/// The lanes and threads of one side.
#[derive(Default)]
pub(super) struct Half {
    /// Lanes that have a call and may run one, in turn.
    turns: VecDeque<Lane>,
    /// Calls that wait for nothing but a thread.
    pub(super) startable: usize,
    pub(super) threads: usize,
    pub(super) idle: usize,
}

#[derive(Default)]
pub(super) struct Queue {
    numbers: u64,
    running_max: usize,
    /// Lanes with a call that waits or runs.
    pub(super) lanes: HashMap<Lane, LaneState>,
    /// Lanes on the low side, and until when.
    low_until: HashMap<Lane, Instant>,
    pub(super) normal: Half,
    pub(super) low: Half,
    /// By number: all have the same time, so the first is the first whose time passes.
    pub(super) calls: BTreeMap<u64, Call>,
    pub(super) closed: bool,
}

/// A call whose turn has come.
pub(super) struct Started {
    pub(super) number: u64,
    pub(super) lane: Lane,
    pub(super) work: Work,
}

impl Half {
    /// More calls wait for a thread than threads wait for a call.
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

    /// Threads of both sides.
    pub(super) fn threads(&self) -> usize {
        self.normal.threads + self.low.threads
    }

    /// Queues a call and gives its number, or gives its work back if `queued_max` wait already.
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

    /// Change a lane, and keep true what is said of it elsewhere.
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

    /// Forgets a call, and its work if that waits still.
    pub(super) fn withdraw(&mut self, number: u64) -> Option<(Call, Option<Work>)> {
        let call = self.calls.remove(&number)?;
        let work = self.change(call.lane, |state| state.waiting.remove(&number));
        Some((call, work))
    }

    /// The next call of a side in turn.
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

    /// A call of this lane stepped back or was stopped.
    pub(super) fn lower(&mut self, lane: Lane, now: Instant) {
        if self.side(lane) == Side::Normal {
            self.swap(lane, Side::Normal, Side::Low);
        }
        self.low_until.insert(lane, now + LOW_FOR);
    }

    /// Brings back the lanes whose time on the low side is over.
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
