//! The bound of a head, against the largest that there is.

use super::*;
use crate::json;
use crate::thread::{CallConsent, CauseDetail};

const USAGE: Usage = Usage {
    input: u64::MAX,
    output: u64::MAX,
    read: u64::MAX,
    write: u64::MAX,
    reasoning: u64::MAX,
};
const PRICES: TokenPrices = TokenPrices {
    input: NanoUsd::MAX,
    output: NanoUsd::MAX,
    read: NanoUsd::MAX,
    write: NanoUsd::MAX,
};
const LATEST: UnixTime = UnixTime {
    seconds: i64::MIN,
    nanos: 999_999_999,
};

fn largest_hold() -> Hold {
    let basis = ChargeBasis {
        input: u64::MAX,
        output: u64::MAX,
        rate: u64::MAX,
        since: LATEST,
    };
    Hold {
        amount: NanoUsd::MAX,
        prices: PRICES,
        basis: Some(basis),
    }
}

fn largest_external_hold() -> ExternalHold {
    let hold = largest_hold();
    ExternalHold {
        version: u64::MAX,
        key: "\"".repeat(128),
        model: "\"".repeat(128),
        amount: hold.amount,
        prices: Some(hold.prices),
        tokens: u64::MAX,
        basis: hold.basis,
    }
}

fn largest_charge() -> ChargedAttempt {
    ChargedAttempt {
        version: u64::MAX,
        hold: Hold {
            basis: largest_hold().basis.map(ChargeBasis::keep_tokens),
            ..largest_hold()
        },
        run: u64::MAX,
        tokens: u64::MAX,
        estimated: Some(USAGE),
        unpriced: true,
        late: Some(ReportedUsage {
            spend: NanoUsd::MAX,
            usage: USAGE,
            money: true,
            recorded: true,
        }),
    }
}

fn largest_cause() -> StatusCause {
    // Control characters take six bytes each as JSON.
    let message = "\u{1}".repeat(1_200);
    let code = "x".repeat(100);
    let cause = StatusCause::with_bound("approval", &code, message, u64::MAX, u64::MAX);
    cause.with_detail(CauseDetail {
        failure: Some("\u{1}".repeat(100)),
        account: Some("\"".repeat(crate::id::ID_BYTES_MAX)),
    })
}

fn largest_step() -> PendingStep {
    PendingStep {
        version: u64::MAX,
        kind: StepKind::CallTools,
        started: LATEST,
        deadline: LATEST,
        tries: u32::MAX,
        hash: "f".repeat(64),
        output: u64::MAX,
        until: Some(LATEST),
        failed: Some("\u{1}".repeat(100)),
        short_since: Some(LATEST),
        parked: true,
    }
}

const LARGEST_CALL: RoundCall = RoundCall {
    index: u32::MAX,
    idempotent: false,
    // A call that waits needs no consent any more, and its word is the shorter one.
    waits: false,
    consent: Some(CallConsent::Answered),
};

fn largest_phase() -> HandOffPhase {
    HandOffPhase {
        since: u64::MAX,
        tries: u32::MAX,
        spent: NanoUsd::MAX,
        overflow: true,
    }
}

fn largest_caps() -> ThreadCaps {
    ThreadCaps {
        turns: Some(u64::MAX),
        tokens: Some(u64::MAX),
        spend: Some(NanoUsd::MAX),
        spawns: Some(u64::MAX),
        depth: Some(u64::MAX),
        duration: Some(u64::MAX),
    }
}

fn largest_state() -> StateSummary {
    StateSummary {
        version: u64::MAX,
        bytes: u64::MAX,
        since: u64::MAX,
        patch_bytes: u64::MAX,
        snapshot: u64::MAX,
        run: true,
        calls: true,
    }
}

fn largest_head() -> Head {
    Head {
        incomplete: false,
        format: u32::MAX,
        status: ThreadStatus::Suspended,
        cause: Some(largest_cause()),
        run: u64::MAX,
        token: u64::MAX,
        holder: Some("\"".repeat(128)),
        expiry: Some(LATEST),
        request: Some("\"".repeat(134)),
        due: Some(u64::MAX),
        recency: u64::MAX,
        step: Some(largest_step()),
        phase: Some(largest_phase()),
        hand_offs: u32::MAX,
        shortened: true,
        round: Some(ToolRound {
            version: u64::MAX,
            calls: vec![LARGEST_CALL; crate::runner::CALLS_MAX],
        }),
        hold: Some(largest_hold()),
        holds: vec![largest_external_hold(); HOLDS_MAX],
        charged: vec![largest_charge(); CHARGED_MAX],
        counters: UsageCounters {
            turns: u64::MAX,
            usage: USAGE,
            spend: NanoUsd::MAX,
            duration: u64::MAX,
            run_turns: u64::MAX,
            run_tokens: u64::MAX,
            run_duration: u64::MAX,
            spawns: u64::MAX,
        },
        carried_spend: Some(NanoUsd::MAX),
        carried_turns: u64::MAX,
        unusable: u64::MAX,
        bad_rounds: u32::MAX,
        lost: u32::MAX,
        context: u64::MAX,
        estimated: u64::MAX,
        window_bytes: u64::MAX,
        window: Some(u64::MAX),
        prefix: "f".repeat(64),
        asked: true,
        asked_version: Some(u64::MAX),
        version: u64::MAX,
        hash: "f".repeat(64),
        intent: Some(EndIntent::Cancel),
        sweep: Some(EndIntent::Cancel),
        sweep_to: Some(u64::MAX),
        wait: Some(ChildWait {
            numbers: vec![u64::MAX; WAIT_MAX],
            any: true,
            until: LATEST,
            short: true,
            renewed: true,
        }),
        mail_from: u64::MAX,
        mail_to: u64::MAX,
        limits: largest_caps(),
        state: Some(largest_state()),
        session: Some("\u{1}".repeat(512)),
        updated: LATEST,
    }
}

#[test]
fn largest_head_fits_its_bound() {
    let bytes = json::to_text(&largest_head()).len();
    assert!(bytes <= HEAD_BYTES_MAX, "{bytes}");
    assert!(bytes > HEAD_BYTES_MAX / 2, "the bound is loose: {bytes}");
}
