//! Random requests to the test world.

use proptest::prelude::*;
use threadkeep_core::money::NanoUsd;

/// Amounts are small beside limits, so that some requests reach a limit.
const AMOUNT_MAX: u64 = 1_500;

/// Generates small amounts, and rarely the largest possible one. A tree that has had one owes it
/// from then on, so most trees must have none.
fn bill_strategy(small: u64) -> impl Strategy<Value = u64> {
    let most = NanoUsd::BILL_MAX.get();
    prop_oneof![300 => 0..small, 1 => 0..=most, 1 => Just(most)]
}

/// Generates reported token counts, and rarely more tokens than there can be.
fn token_strategy(small: u64) -> impl Strategy<Value = u64> {
    prop_oneof![600 => 0..small, 1 => Just(u64::MAX)]
}

/// Generates raises of a limit: rarely enough to pay the largest bill, or more than a limit may be.
fn raise_strategy() -> impl Strategy<Value = u64> {
    let most = NanoUsd::BILL_MAX.get();
    prop_oneof![60 => 0..4_000_u64, 4 => most..3 * most, 1 => Just(u64::MAX)]
}

/// One request. The first number picks a thread, or a driver that was lost.
#[derive(Debug, Clone)]
pub enum RandomRequest {
    Root(Option<u64>),
    /// The amount to reserve, if one is named, and true if the rest of the budget will do.
    Spawn(u16, Option<(u64, bool)>),
    Start(u16),
    /// Tokens read and written, and which calls the reply makes.
    Reply(u16, u64, u64, u8),
    /// The cost of each call, and which edits of the state it returns.
    Tools(u16, u64, Option<u8>),
    /// A caller changes the state.
    Edit(u16, u8),
    /// A person decides about a call.
    Decide(u16, u8),
    /// True if the call was sent, and the reported usage.
    Fail(u16, bool, Option<u64>),
    Wait(u16),
    /// The driver dies.
    Crash(u16),
    Claim(u16),
    Recover(u16),
    Late(u16, u64),
    Repeat(u16),
    Differ(u16),
    Raise(u16, u64, bool),
    /// The second number picks a version of the path.
    Fork(u16, u16),
    Resume(u16),
    Cancel(u16),
    Kill(u16),
    /// Two requests that are decided at once and committed one after the other.
    Race(Box<RandomRequest>, Box<RandomRequest>),
    /// Minutes that the clock moves, also back.
    Clock(i8),
}

pub fn request_strategy() -> impl Strategy<Value = RandomRequest> {
    use RandomRequest::Race;
    prop_oneof![
        8 => single_request_strategy(),
        1 => (single_request_strategy(), single_request_strategy())
            .prop_map(|(a, b)| Race(Box::new(a), Box::new(b))),
    ]
}

fn single_request_strategy() -> impl Strategy<Value = RandomRequest> {
    use RandomRequest::*;
    let n = any::<u16>;
    let named = proptest::option::of((0..AMOUNT_MAX, any::<bool>()));
    prop_oneof![
        1 => proptest::option::weighted(0.9, 600..4_000_u64).prop_map(Root),
        6 => (n(), named).prop_map(|(t, named)| Spawn(t, named)),
        20 => n().prop_map(Start),
        24 => (n(), token_strategy(200), token_strategy(2_500), any::<u8>())
            .prop_map(|(t, i, o, m)| Reply(t, i, o, m)),
        10 => (n(), bill_strategy(200), proptest::option::of(any::<u8>()))
            .prop_map(|(t, c, e)| Tools(t, c, e)),
        6 => (n(), any::<u8>()).prop_map(|(t, k)| Edit(t, k)),
        8 => (n(), any::<u8>()).prop_map(|(t, k)| Decide(t, k)),
        12 => (n(), any::<bool>(), proptest::option::weighted(0.2, token_strategy(AMOUNT_MAX)))
            .prop_map(|(t, s, u)| Fail(t, s, u)),
        6 => n().prop_map(Wait),
        7 => n().prop_map(Crash),
        4 => n().prop_map(Claim),
        4 => n().prop_map(Recover),
        10 => (n(), token_strategy(AMOUNT_MAX)).prop_map(|(t, u)| Late(t, u)),
        3 => n().prop_map(Repeat),
        3 => n().prop_map(Differ),
        16 => (n(), raise_strategy(), any::<bool>()).prop_map(|(t, a, h)| Raise(t, a, h)),
        2 => (n(), n()).prop_map(|(t, v)| Fork(t, v)),
        8 => n().prop_map(Resume),
        1 => n().prop_map(Cancel),
        1 => n().prop_map(Kill),
        2 => any::<i8>().prop_map(Clock),
    ]
}
