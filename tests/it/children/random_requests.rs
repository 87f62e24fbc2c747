//! Random requests against trees of threads, and random replies of their models.

use proptest::prelude::*;
use serde_json::{Value, json};
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::money::NanoUsd;

/// Bounds of a tree: levels below a top, and children of one thread.
pub const DEPTH: u64 = 5;
pub const WIDTH: u64 = 6;

/// One call of a reply; the numbers select the threads that it names.
#[derive(Debug, Clone)]
pub enum RandomCall {
    Spawn(u8, u8),
    Wait(u8, u8),
    Send(u8),
    /// A message to a child, and a wait for it in the same reply.
    Ask(u8),
    Stop(u8, bool),
    /// Has a child that has ended go on.
    Resume(u8),
    Look(u8),
    Read,
    Write,
    /// A call that needs a person's consent.
    Consent,
    Wrong,
}

/// One request; the first number selects the thread.
#[derive(Debug, Clone)]
pub enum TreeRequest {
    Start(u8, bool),
    Reply(u8, Vec<RandomCall>),
    Fail(u8, u8, bool),
    Stop(u8),
    Claim(u8, u8),
    Recover(u8),
    Late(u8),
    Signal(u8, u8, u8),
    Sweep(u8, u8),
    Due(u8),
    Advance(u32),
    /// Moves the clock to the end of the next wait.
    Deadline,
    StepBack(u16),
    /// The provider reports many tokens, so the money of a tree runs out.
    Costly(u8, u8),
    /// Sets how many runs have room at once.
    Runs(u8),
    /// Goes on with a thread, in a successor if it has ended.
    Resume(u8, bool),
    /// Begins a thread as another was at a version.
    Fork(u8, u8),
    /// The provider reports that the window is nearly full.
    Full(u8),
    /// A person decides about a call.
    Decide(u8, u8),
    /// A caller changes the state of a thread.
    Edit(u8, u8),
}

fn call() -> impl Strategy<Value = RandomCall> {
    use RandomCall::*;
    prop_oneof![
        10 => (any::<u8>(), any::<u8>()).prop_map(|(d, l)| Spawn(d, l)),
        6 => (any::<u8>(), any::<u8>()).prop_map(|(w, t)| Wait(w, t)),
        3 => any::<u8>().prop_map(Send),
        3 => any::<u8>().prop_map(Ask),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(t, n)| Stop(t, n)),
        3 => any::<u8>().prop_map(Resume),
        2 => any::<u8>().prop_map(Look),
        2 => Just(Read),
        1 => Just(Write),
        2 => Just(Consent),
        1 => Just(Wrong),
    ]
}

pub fn request() -> impl Strategy<Value = TreeRequest> {
    use TreeRequest::*;
    let some = prop::collection::vec(call(), 0..5);
    prop_oneof![
        2 => (any::<u8>(), any::<bool>()).prop_map(|(t, i)| Start(t, i)),
        30 => (any::<u8>(), some).prop_map(|(t, c)| Reply(t, c)),
        3 => (any::<u8>(), any::<u8>(), any::<bool>()).prop_map(|(t, k, s)| Fail(t, k, s)),
        2 => any::<u8>().prop_map(Stop),
        3 => (any::<u8>(), any::<u8>()).prop_map(|(t, p)| Claim(t, p)),
        2 => any::<u8>().prop_map(Recover),
        1 => any::<u8>().prop_map(Late),
        4 => (any::<u8>(), any::<u8>(), any::<u8>()).prop_map(|(t, n, k)| Signal(t, n, k)),
        3 => (any::<u8>(), any::<u8>()).prop_map(|(t, p)| Sweep(t, p)),
        30 => any::<u8>().prop_map(Due),
        2 => any::<u32>().prop_map(|n| Advance(n % 900_000)),
        2 => Just(Deadline),
        1 => any::<u16>().prop_map(StepBack),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(t, n)| Costly(t, n)),
        1 => any::<u8>().prop_map(Runs),
        3 => (any::<u8>(), any::<bool>()).prop_map(|(t, i)| Resume(t, i)),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(t, v)| Fork(t, v)),
        6 => any::<u8>().prop_map(Full),
        4 => (any::<u8>(), any::<u8>()).prop_map(|(t, k)| Decide(t, k)),
        4 => (any::<u8>(), any::<u8>()).prop_map(|(t, k)| Edit(t, k)),
    ]
}

/// Arguments of a spawn.
pub fn spawn(directive: u8, limits: u8) -> Value {
    let directive = ["boss", "boss", "work", "poor"][usize::from(directive) % 4];
    let mut spawn = json!({"directive": directive});
    spawn["limits"] = match limits % 16 {
        0..=2 => json!({"spend": "0.02"}),
        6 => json!({"spend": "0.0005"}),
        7 => json!({"spend": "0"}),
        8 => json!({"spend": "5"}),
        9 => json!({"spawns": 1, "spend": "0.02"}),
        10 => json!({"depth": 1}),
        11 => json!({"turns": 2}),
        12 => json!({"spend": "0.05"}),
        _ => json!({}),
    };
    spawn["clamp"] = json!(matches!(limits % 16, 8 | 12) && limits > 100);
    spawn
}

/// Caps that a raise asks for.
pub fn caps(n: u64) -> ThreadCaps {
    ThreadCaps {
        turns: Some(n + 1),
        spend: Some(NanoUsd::new(n << 20)),
        spawns: Some(n),
        depth: Some(n % 8),
        ..ThreadCaps::NONE
    }
}
