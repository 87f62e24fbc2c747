//! Random requests of external loops, for the property test of the runner.

use super::fixture::{RunnerFixture, usage};
use proptest::prelude::*;
use serde_json::{Value, json};
use threadkeep::clock::HostClock;
use threadkeep_component::service::history::ChangeTexts;
use threadkeep_component::service::ledger::UnresolvedEstimate;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::runner::CallBill;
use threadkeep_core::time::UnixTime;

/// One request of an external loop.
#[derive(Debug, Clone)]
pub enum LoopRequest {
    /// Holder (one of two), seconds.
    Open(bool, u8),
    /// With the token or without, up to four events, and whether the request is repeated.
    Append(bool, Vec<u8>, bool),
    /// Outcome.
    Close(u8),
    /// Name (one of a few), amount, and whether the request is repeated.
    Hold(u8, u16, bool),
    /// One of the calls held so far, and its bill: tokens, an amount or nothing.
    Settle(u8, u8),
}

pub fn request() -> impl Strategy<Value = LoopRequest> {
    use LoopRequest::*;
    prop_oneof![
        2 => (any::<bool>(), 1..=60_u8).prop_map(|(h, s)| Open(h, s)),
        5 => (any::<bool>(), prop::collection::vec(any::<u8>(), 0..4), any::<bool>())
            .prop_map(|(held, kinds, again)| Append(held, kinds, again)),
        1 => any::<u8>().prop_map(Close),
    ]
}

/// Requests to the ledger: the service has it, the contract not yet.
pub fn money_request() -> impl Strategy<Value = LoopRequest> {
    use LoopRequest::*;
    prop_oneof![
        3 => (any::<u8>(), any::<u16>(), any::<bool>()).prop_map(|(k, n, again)| Hold(k, n, again)),
        3 => (any::<u8>(), any::<u8>()).prop_map(|(n, kind)| Settle(n, kind)),
    ]
}

pub fn perform(world: &mut RunnerFixture, thread: &str, request: LoopRequest) {
    match request {
        LoopRequest::Open(first, seconds) => open(world, thread, first, seconds),
        LoopRequest::Append(held, kinds, again) => append(world, thread, held, &kinds, again),
        LoopRequest::Close(kind) => close(world, thread, kind),
        LoopRequest::Hold(name, amount, again) => hold(world, thread, name, amount, again),
        LoopRequest::Settle(n, kind) => settle(world, thread, n, kind),
    }
}

fn deadline(world: &RunnerFixture, seconds: u8) -> UnixTime {
    let now = world.clock.now();
    let now = UnixTime {
        seconds: now.seconds,
        nanos: now.nanos,
    };
    now.plus_millis(u64::from(seconds) * 1_000)
}

fn open(world: &mut RunnerFixture, thread: &str, first: bool, seconds: u8) {
    let deadline = deadline(world, seconds);
    // A holder names one lease alone.
    let holder = format!("{thread}/{}", u8::from(first));
    match world.service.open(thread, &holder, deadline) {
        Ok(opened) => {
            let again = world.service.open(thread, &holder, deadline).unwrap();
            assert_eq!(
                again.head.value, opened.head.value,
                "a repeated open did something"
            );
            world.own.insert(thread.to_owned(), opened.head.value.token);
            world.count("open");
        }
        Err(_) => world.count("open refused"),
    }
}

/// Events by number; results name a call that is open now.
fn events(world: &RunnerFixture, thread: &str, kinds: &[u8]) -> Vec<String> {
    let head = world.service.load(thread).unwrap().head.value;
    let mut open: Vec<Value> =
        head.round
            .iter()
            .flat_map(|round| {
                let id = |call: &threadkeep_core::thread::RoundCall| {
                    format!("call_{}_{}", round.version, call.index)
                };
                round.calls.iter().map(
                    move |call| json!({"type": "tool_result", "id": id(call), "text": "by hand"}),
                )
            })
            .collect();
    let event = |kind: u8| match kind % 8 {
        0 | 1 => json!({"type": "message", "role": "user", "content": "by hand"}),
        2 => json!({"type": "message", "role": "assistant", "content": "I see"}),
        3 => json!({"type": "tool_use", "name": "read", "arguments": "{}", "id": kind.to_string()}),
        4 => json!({"type": "tool_result", "id": (kind - 1).to_string(), "text": "of this append"}),
        5 => json!({"type": "partial", "text": "half a"}),
        _ => open
            .pop()
            .unwrap_or(json!({"type": "assistant_text", "text": "hm"})),
    };
    kinds
        .iter()
        .copied()
        .map(event)
        .map(|event| event.to_string())
        .collect()
}

fn append(world: &mut RunnerFixture, thread: &str, held: bool, kinds: &[u8], again: bool) {
    let token = held.then(|| world.own.get(thread).copied().unwrap_or_default());
    let texts = events(world, thread, kinds);
    let before = world.service.load(thread).unwrap();
    let expected = before.head.value.version;
    // By a token or a request an append is known to be a repetition.
    let change = ChangeTexts {
        events: texts,
        request: token.is_none().then(|| format!("append {expected}")),
        ..ChangeTexts::default()
    };
    let service = &world.service;
    let written = service.append_change(thread, token, Some(expected), &change);
    let after = world.service.load(thread).unwrap();
    let Ok(written) = written else {
        assert_eq!(after, before, "a refused append wrote");
        return world.count("append refused");
    };
    world.count("append");
    if again && written.version > expected {
        let repeated = world
            .service
            .append_change(thread, token, Some(expected), &change)
            .unwrap();
        assert_eq!(repeated, written);
        assert_eq!(
            world.service.load(thread).unwrap(),
            after,
            "a repeated append wrote"
        );
        world.count("append repeated");
    }
}

fn close(world: &mut RunnerFixture, thread: &str, kind: u8) {
    let token = world.own.get(thread).copied().unwrap_or_default();
    let (outcome, result) = match kind % 8 {
        0 => ("completed", Some("1")),
        1 => ("error", Some(r#"{"code": "c", "message": "m"}"#)),
        _ => ("idle", None),
    };
    let closed = world
        .service
        .close(thread, token, outcome, result.map(str::to_owned));
    world.count(if closed.is_ok() {
        "close"
    } else {
        "close refused"
    });
}

fn hold(world: &mut RunnerFixture, thread: &str, name: u8, amount: u16, again: bool) {
    let token = world.own.get(thread).copied().unwrap_or_default();
    let (name, until) = (format!("call-{}", name % 16), deadline(world, 30));
    let asked = match amount % 2 {
        0 => UnresolvedEstimate::Amount(NanoUsd::new(u64::from(amount) << 8)),
        _ => UnresolvedEstimate::Tokens("default".to_owned(), u64::from(amount) % 400, 400),
    };
    let before = world.service.load(thread).unwrap();
    let held = world.service.hold(thread, token, &name, &asked, until);
    let after = world.service.load(thread).unwrap();
    let Ok(held) = held else {
        assert_eq!(after, before, "a refused hold wrote");
        return world.count("hold refused");
    };
    if held.version < after.head.value.version || after == before {
        return world.count("hold known");
    }
    world.count("hold");
    world.calls.push((thread.to_owned(), held.version));
    if again {
        let repeated = world.service.hold(thread, token, &name, &asked, until);
        assert_eq!(repeated.unwrap(), held);
        let now = world.service.load(thread).unwrap();
        assert_eq!(now, after, "a repeated hold wrote");
        world.count("hold known");
    }
}

fn settle(world: &mut RunnerFixture, thread: &str, n: u8, kind: u8) {
    let calls = world.calls.iter().filter(|(of, _)| of == thread);
    let versions: Vec<u64> = calls.map(|(_, version)| *version).collect();
    let Some(version) = versions.get(usize::from(n) % versions.len().max(1)) else {
        return;
    };
    let bill = match kind % 4 {
        0 => CallBill::Nothing,
        1 => CallBill::Amount(NanoUsd::new(u64::from(kind) << 12)),
        _ => CallBill::Usage(usage(u64::from(kind), 300).unwrap()),
    };
    let before = world.service.load(thread).unwrap();
    let settled = world.service.settle(thread, *version, bill);
    let after = world.service.load(thread).unwrap();
    if settled.is_err() {
        assert_eq!(after, before, "a refused bill wrote");
        return world.count("settle refused");
    }
    if after != before {
        world.count("settle");
    }
    world.service.settle(thread, *version, bill).unwrap();
    let now = world.service.load(thread).unwrap();
    assert_eq!(now, after, "a repeated bill wrote");
    world.count("settle repeated");
}
