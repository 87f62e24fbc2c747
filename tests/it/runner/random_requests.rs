//! Random requests against the runner: after every one of them the auditor finds nothing.

use super::external_loop;
use super::fixture::{RunnerFixture, calls, fails, raise, reply, says, usage, user};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use std::sync::Mutex;
use threadkeep_component::service::progress::ProgressVerdict;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::runner::{
    CallDecision, DecisionInputs, HolderProof, LlmFailure, ReplyBlock, Signal, StepOutcome,
    StepSubmission, ToolState,
};
use threadkeep_core::thread::{DecisionVerdict, StepKind, ThreadStatus};

/// One request; the first number picks the thread.
#[derive(Debug, Clone)]
pub enum RunnerRequest {
    Create(u8),
    Start(u8, bool),
    Reply(u8, u8),
    Fail(u8, u8, bool),
    Stop(u8),
    Progress(u8, u16),
    Repeat(u8),
    Differ(u8),
    OldToken(u8),
    Claim(u8, u8),
    Recover(u8),
    Signal(u8, u8, u8),
    Decide(u8, u8, u8),
    Own(u8, external_loop::LoopRequest),
    Advance(u32),
    StepBack(u16),
}

pub fn request() -> impl Strategy<Value = RunnerRequest> {
    use RunnerRequest::*;
    prop_oneof![
        1 => any::<u8>().prop_map(Create),
        6 => (any::<u8>(), any::<bool>()).prop_map(|(t, i)| Start(t, i)),
        24 => (any::<u8>(), any::<u8>()).prop_map(|(t, k)| Reply(t, k)),
        5 => (any::<u8>(), any::<u8>(), any::<bool>()).prop_map(|(t, k, s)| Fail(t, k, s)),
        1 => any::<u8>().prop_map(Stop),
        2 => (any::<u8>(), any::<u16>()).prop_map(|(t, n)| Progress(t, n)),
        3 => any::<u8>().prop_map(Repeat),
        2 => any::<u8>().prop_map(Differ),
        2 => any::<u8>().prop_map(OldToken),
        3 => (any::<u8>(), any::<u8>()).prop_map(|(t, p)| Claim(t, p)),
        2 => any::<u8>().prop_map(Recover),
        4 => (any::<u8>(), any::<u8>(), any::<u8>()).prop_map(|(t, n, k)| Signal(t, n, k)),
        6 => (any::<u8>(), any::<u8>(), any::<u8>()).prop_map(|(t, c, k)| Decide(t, c, k)),
        12 => (any::<u8>(), external_loop::request()).prop_map(|(t, own)| Own(t, own)),
        3 => any::<u32>().prop_map(|n| Advance(n % 2_000_000)),
        1 => any::<u16>().prop_map(StepBack),
    ]
}

/// The same, with the money of external loops.
fn request_or_money() -> impl Strategy<Value = RunnerRequest> {
    let money = (any::<u8>(), external_loop::money_request())
        .prop_map(|(t, own)| RunnerRequest::Own(t, own));
    prop_oneof![12 => request(), 1 => money]
}

static TOTAL: Mutex<std::collections::BTreeMap<String, u64>> =
    Mutex::new(std::collections::BTreeMap::new());

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        max_shrink_iters: 2_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_auditor_finds_nothing_after_any_request(
        requests in prop::collection::vec(request_or_money(), 1..80)
    ) {
        let mut world = RunnerFixture::new();
        for directive in [Some("work"), Some("poor"), None] {
            world.create(directive);
        }
        for request in requests {
            perform(&mut world, request);
            world.audit();
        }
        let mut total = TOTAL.lock().unwrap();
        for (what, n) in &world.counts {
            *total.entry(what.clone()).or_default() += n;
        }
    }
}

/// Checks in a world of its own that each kind of answer occurs when it is provoked.
#[test]
fn every_kind_of_answer_occurs() {
    let mut world = RunnerFixture::new();
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for directive in [Some("work"), Some("poor"), None] {
        world.create(directive);
    }
    for _ in 0..4_000 {
        let request = request_or_money().new_tree(&mut runner).unwrap().current();
        perform(&mut world, request);
    }
    world.audit();
    println!("answers: {:?}", world.counts);
    for what in [
        "start",
        "start refused",
        "reply",
        "fail",
        "stop",
        "go on",
        "repeat",
        "differ refused",
        "old token refused",
        "claim",
        "claim refused",
        "recover",
        "signal",
        "signal seen",
        "signal refused",
        "approve",
        "deny",
        "answer",
        "decision seen",
        "decision refused",
        "decision while it runs",
        "asked by its tool",
        "open",
        "open refused",
        "append",
        "append repeated",
        "append refused",
        "close",
        "close refused",
        "hold",
        "hold known",
        "hold refused",
        "settle",
        "settle repeated",
        "settle refused",
    ] {
        assert!(
            world.counts.get(what).is_some_and(|n| *n > 0),
            "{what} never occurred"
        );
    }
}

fn perform(world: &mut RunnerFixture, request: RunnerRequest) {
    use RunnerRequest::*;
    let pick =
        |world: &RunnerFixture, n: u8| world.threads[usize::from(n) % world.threads.len()].clone();
    match request {
        Create(kind) => {
            world.create([Some("work"), Some("poor"), None][usize::from(kind) % 3]);
        }
        Start(t, input) => start(world, &pick(world, t), input),
        Reply(t, kind) => answer(world, &pick(world, t), kind),
        Fail(t, kind, sent) => fail(world, &pick(world, t), kind, sent),
        Stop(t) => stop(world, &pick(world, t)),
        Progress(t, n) => progress(world, &pick(world, t), n),
        Repeat(t) => repeat(world, &pick(world, t)),
        Differ(t) => submit_different(world, &pick(world, t)),
        OldToken(t) => old_token(world, &pick(world, t)),
        Claim(t, proof) => claim(world, &pick(world, t), proof),
        Recover(t) => recover(world, &pick(world, t)),
        Signal(t, name, kind) => signal(world, &pick(world, t), name, kind),
        Decide(t, call, kind) => decide(world, &pick(world, t), call, kind),
        Own(t, own) => external_loop::perform(world, &pick(world, t), own),
        Advance(millis) => world.advance(u64::from(millis)),
        StepBack(seconds) => {
            use threadkeep::clock::{ClockTime, HostClock};
            let seconds = world.clock.now().seconds - i64::from(seconds);
            world.clock.set(ClockTime { seconds, nanos: 0 });
        }
    }
}

fn start(world: &mut RunnerFixture, thread: &str, input: bool) {
    let started = world.start(thread, input.then_some("go on 漢"));
    world.count(if started.is_ok() {
        "start"
    } else {
        "start refused"
    });
}

fn fail(world: &mut RunnerFixture, thread: &str, kind: u8, sent: bool) {
    const KINDS: [&str; 6] = [
        "transient",
        "rate-limited",
        "permanent",
        "quota",
        "context-overflow",
        "new",
    ];
    let failure = LlmFailure {
        usage: kind.is_multiple_of(4).then(|| usage(50, 5)).flatten(),
        partial: if kind.is_multiple_of(3) { "half a" } else { "" }.to_owned(),
        ..fails(KINDS[usize::from(kind) % KINDS.len()], sent)
    };
    submit(
        world,
        thread,
        StepKind::CallLlm,
        StepOutcome::Failure(failure),
        "fail",
    );
}

fn stop(world: &mut RunnerFixture, thread: &str) {
    if let Some(kind) = world.pending(thread) {
        submit(
            world,
            thread,
            kind,
            StepOutcome::Stopped(fails("cancelled", true)),
            "stop",
        );
    }
}

fn progress(world: &mut RunnerFixture, thread: &str, n: u16) {
    let token = world.held.get(thread).map_or(0, |held| held.token);
    let text = "p".repeat(usize::from(n) % 50);
    let news = world.service.progress(thread, token, &text).unwrap();
    world.count(if news == ProgressVerdict::Continue {
        "go on"
    } else {
        "do not"
    });
}

fn old_token(world: &mut RunnerFixture, thread: &str) {
    let Some(held) = world.held.get(thread).cloned() else {
        return;
    };
    let version = held.handed.step.version;
    let submission = StepSubmission {
        token: held.token.saturating_sub(1),
        version,
        outcome: says("late"),
        inputs: DecisionInputs::default(),
    };
    let refused = world.service.submit(thread, &submission, version).is_err();
    assert!(refused, "a fenced driver wrote");
    world.count("old token refused");
}

fn recover(world: &mut RunnerFixture, thread: &str) {
    let holder = world
        .service
        .load(thread)
        .unwrap()
        .head
        .value
        .holder
        .clone();
    let dead: Vec<String> = holder.into_iter().collect();
    for closed in world.service.recover(&dead, None).unwrap().closed {
        // A waiting cancel takes effect; any other thread can go on.
        let status = world.status(&closed);
        let expected = ["suspended", "cancelled"].contains(&status.as_str());
        assert!(closed == thread && expected, "{closed}: {status}");
        world.count("recover");
    }
}

fn submit(
    world: &mut RunnerFixture,
    thread: &str,
    kind: StepKind,
    outcome: StepOutcome,
    what: &str,
) {
    if world.pending(thread) == Some(kind) {
        let answered = world.submit(thread, outcome).is_ok();
        world.count(if answered { what } else { "fenced" });
    }
}

fn answer(world: &mut RunnerFixture, thread: &str, kind: u8) {
    match world.pending(thread) {
        Some(StepKind::CallLlm) => {
            let outcome = match kind % 11 {
                0 => says("done"),
                1 => calls(&[("read", "{}")]),
                2 => calls(&[("write", "{\"a\": 1}"), ("read", "{}")]),
                3 => calls(&[("raed", "{}")]),
                4 => calls(&[("read", "not json"), ("write", "{}")]),
                5 => calls(&[("ask", "{}")]),
                9 => calls(&[("ask", "{}"), ("write", "{}"), ("ask", "{}")]),
                10 => calls(&[("read", "{}"), ("ask", "{}")]),
                6 => reply(
                    vec![ReplyBlock::Text {
                        text: "free".to_owned(),
                    }],
                    None,
                ),
                7 => reply(
                    vec![ReplyBlock::Thinking {
                        text: "hm".to_owned(),
                        raw: None,
                    }],
                    usage(9_000, 4_000),
                ),
                _ => reply(Vec::new(), usage(1, 0)),
            };
            submit(world, thread, StepKind::CallLlm, outcome, "reply");
        }
        Some(StepKind::CallTools) => {
            let mut outcome = world.outcomes_with_state(thread);
            if let (true, StepOutcome::ToolOutcomes(outcomes)) =
                (kind.is_multiple_of(5), &mut outcome)
            {
                outcomes[0].state = ToolState::NeedsConsent;
                world.count("asked by its tool");
            }
            submit(world, thread, StepKind::CallTools, outcome, "tools");
        }
        Some(StepKind::Wait) => {
            submit(world, thread, StepKind::Wait, StepOutcome::Waited, "waited")
        }
        Some(StepKind::ExternalLoop) | None => {}
    }
}

fn repeat(world: &mut RunnerFixture, thread: &str) {
    let Some((submission, version)) = world.held.get(thread).and_then(|held| held.last.clone())
    else {
        return;
    };
    // The same result again gives the same next step, unless another driver has taken the thread
    // over since.
    if let Ok(handed) = world
        .service
        .submit(thread, &submission, submission.version)
    {
        let same = handed.step.kind.is_none() || handed.step.version == version;
        assert!(same, "a repeated submit got another step");
        world.count("repeat");
    }
}

fn submit_different(world: &mut RunnerFixture, thread: &str) {
    let Some((submission, _)) = world.held.get(thread).and_then(|held| held.last.clone()) else {
        return;
    };
    let other = StepSubmission {
        outcome: says("something else"),
        ..submission
    };
    assert!(
        world.service.submit(thread, &other, other.version).is_err(),
        "another result was taken"
    );
    world.count("differ refused");
}

fn claim(world: &mut RunnerFixture, thread: &str, proof: u8) {
    let loaded = world.service.load(thread).unwrap();
    let step = loaded
        .head
        .value
        .step
        .as_ref()
        .map_or(0, |step| step.version);
    let partial = world.service.partial(&loaded).unwrap().version;
    let proof = match proof % 4 {
        0 => HolderProof::Dead,
        1 => HolderProof::None,
        2 => HolderProof::Watched { step, partial },
        _ => HolderProof::Watched {
            step: step.saturating_sub(1),
            partial,
        },
    };
    let holder = format!("claimer/{}", world.counts.values().sum::<u64>());
    let claimed = world.service.claim(thread, &holder, proof);
    let claimed = world.hold(thread, claimed);
    world.count(if claimed.is_ok() {
        "claim"
    } else {
        "claim refused"
    });
}

fn signal(world: &mut RunnerFixture, thread: &str, name: u8, kind: u8) {
    let signal = match kind % 64 {
        0..=40 => {
            Signal::Message(threadkeep_core::history::parse_user(&user("by the way")).unwrap())
        }
        41..=61 => raise(ThreadCaps {
            turns: Some(u64::from(kind)),
            spend: Some(NanoUsd::new(u64::from(kind) << 24)),
            ..ThreadCaps::NONE
        }),
        62 => Signal::Cancel,
        _ => Signal::Kill,
    };
    let name = format!("s{}", name % 8);
    let before = world.service.load(thread).unwrap();
    match world.service.signal(thread, &name, &signal) {
        Ok(after) if after.head == before.head => world.count("signal seen"),
        Ok(_) => world.count("signal"),
        Err(_) => world.count("signal refused"),
    }
}

/// Decides about an open call of the thread, or about one that is not open.
fn decide(world: &mut RunnerFixture, thread: &str, call: u8, kind: u8) {
    let before = world.service.load(thread).unwrap();
    let head = &before.head.value;
    let open = head.round.as_ref();
    let (version, calls) = open.map_or((head.version, 3), |open| (open.version, open.calls.len()));
    let at = usize::from(call) % calls;
    let index = open.map_or(0, |open| open.calls[at].index);
    let (verdict, what) = match kind % 3 {
        0 => (DecisionVerdict::Approve, "approve"),
        1 => (DecisionVerdict::Deny, "deny"),
        _ => (DecisionVerdict::Answer, "answer"),
    };
    let decision = CallDecision {
        version,
        index,
        verdict,
        text: (kind.is_multiple_of(2) || verdict == DecisionVerdict::Answer)
            .then(|| "words 漢".to_owned()),
    };
    let name = format!("d{}", call % 16);
    let signal = Signal::Decision(decision);
    match world.service.signal(thread, &name, &signal) {
        Ok(after) if after.head == before.head => world.count("decision seen"),
        Ok(_) => {
            world.count(what);
            if head.status == ThreadStatus::Running {
                world.count("decision while it runs");
            }
        }
        Err(_) => world.count("decision refused"),
    }
}
