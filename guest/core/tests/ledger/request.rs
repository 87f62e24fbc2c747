//! What is asked of the world, at random.

use proptest::prelude::*;

/// Amounts are small beside limits, so that a limit is met after some requests.
const AMOUNT_MAX: u16 = 1_500;

/// One request; the first number picks a thread, or a driver that was lost.
#[derive(Debug, Clone)]
pub enum Request {
    Root(Option<u16>),
    /// Amount, whether it names one, whether what is left will do.
    Spawn(u16, Option<(u16, bool)>),
    Start(u16),
    /// Tokens read and written, and whether it calls a tool.
    Reply(u16, u16, u16, bool),
    Tools(u16, u16),
    /// Was it sent, and what was reported.
    Fail(u16, bool, Option<u16>),
    Wait(u16),
    /// The driver dies.
    Crash(u16),
    Claim(u16),
    Recover(u16),
    Late(u16, u16),
    Repeat(u16),
    Differ(u16),
    Raise(u16, u16, bool),
    Cancel(u16),
    Kill(u16),
    /// The two are decided at once and committed one after the other.
    Race(Box<Request>, Box<Request>),
    /// Seconds, also back.
    Clock(i8),
}

pub fn request() -> impl Strategy<Value = Request> {
    use Request::Race;
    prop_oneof![
        8 => one(),
        1 => (one(), one()).prop_map(|(a, b)| Race(Box::new(a), Box::new(b))),
    ]
}

fn one() -> impl Strategy<Value = Request> {
    use Request::*;
    let n = any::<u16>;
    let amount = 0..AMOUNT_MAX;
    let named = proptest::option::of((amount.clone(), any::<bool>()));
    prop_oneof![
        1 => proptest::option::weighted(0.9, 600..4_000_u16).prop_map(Root),
        6 => (n(), named).prop_map(|(t, named)| Spawn(t, named)),
        20 => n().prop_map(Start),
        24 => (n(), 0..200_u16, 0..2_500_u16, any::<bool>()).prop_map(|(t, i, o, m)| Reply(t, i, o, m)),
        10 => (n(), 0..200_u16).prop_map(|(t, c)| Tools(t, c)),
        12 => (n(), any::<bool>(), proptest::option::weighted(0.2, amount.clone())).prop_map(|(t, s, u)| Fail(t, s, u)),
        6 => n().prop_map(Wait),
        7 => n().prop_map(Crash),
        4 => n().prop_map(Claim),
        4 => n().prop_map(Recover),
        10 => (n(), amount.clone()).prop_map(|(t, u)| Late(t, u)),
        3 => n().prop_map(Repeat),
        3 => n().prop_map(Differ),
        16 => (n(), 0..4_000_u16, any::<bool>()).prop_map(|(t, a, h)| Raise(t, a, h)),
        1 => n().prop_map(Cancel),
        1 => n().prop_map(Kill),
        2 => any::<i8>().prop_map(Clock),
    ]
}
