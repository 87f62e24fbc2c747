//! Wrong requests to the interface `ledger`, through the component: each gets a typed outcome and
//! changes nothing else.

use crate::component::project::engine;
use std::sync::Arc;
use threadkeep::clock::{HostClock, SystemClock};
use threadkeep::component::{SystemRandom, TenantContext};
use threadkeep::error::CallError;
use threadkeep::storage::memory::MemoryStore;
use threadkeep::tenant::Tenant;
use threadkeep::wit::ledger::{Bill, Estimate, ModelCall};
use threadkeep::wit::{self, registry};
use threadkeep_tests::auditor::audit;
use threadkeep_tests::fixture::MapLibrary;

const THREAD: &str = "chat-1-abcdef";

struct LedgerChat {
    tenant: Tenant,
    store: Arc<MemoryStore>,
    token: u64,
}

impl LedgerChat {
    /// Creates a chat that may spend a dollar, held for a minute, and the models `default`, which
    /// has prices, and `free`.
    async fn new() -> Self {
        let store = Arc::new(MemoryStore::new());
        let free = r#"{"name":"free","provider":"p","window":8000,"output":400}"#;
        let context = TenantContext {
            storage: Arc::clone(&store) as Arc<_>,
            library: Arc::new(MapLibrary::small().with("model", "free", free)),
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
        };
        let tenant = Tenant::new(engine(), context);
        let draft = registry::Draft {
            id: Some(THREAD.to_owned()),
            ..registry::Draft::default()
        };
        tenant.create(draft).await.unwrap();
        let opened = tenant
            .open_thread(THREAD, "h/1", deadline_in(60))
            .await
            .unwrap();
        Self {
            tenant,
            store,
            token: opened.token,
        }
    }

    async fn hold(&self, key: &str, estimate: Estimate) -> Result<u64, CallError> {
        let held = self
            .tenant
            .hold(THREAD, self.token, key, estimate, deadline_in(30));
        held.await.map(|held| held.version)
    }

    /// The records that a refused call must not change.
    async fn state(&self) -> String {
        let thread = self.tenant.get(THREAD).await.unwrap();
        let account = self.tenant.account(THREAD).await.unwrap();
        format!("{thread:?} {account:?}")
    }
}

fn deadline_in(seconds: i64) -> wit::Instant {
    let now = SystemClock.now();
    wit::Instant {
        seconds: now.seconds + seconds,
        nanos: now.nanos,
    }
}

fn tokens(model: &str) -> Estimate {
    Estimate::Tokens(ModelCall {
        model: model.to_owned(),
        input: 100,
        output: 300,
    })
}

fn usage_bill(input: u64) -> Bill {
    Bill::Usage(wit::Usage {
        input,
        output: 1,
        read: 0,
        write: 0,
        reasoning: 0,
    })
}

/// The case of the error and the first field of its content.
#[track_caller]
fn error_case<T: std::fmt::Debug>(answer: Result<T, CallError>) -> (&'static str, String) {
    match answer {
        Err(CallError::Refused(error)) => match error {
            wit::Error::Invalid(e) => ("invalid", e.field),
            wit::Error::NotFound(e) => ("not-found", e.name),
            wit::Error::Refused(e) => ("refused", e.status),
            wit::Error::Fenced(e) => ("fenced", e.actual),
            wit::Error::Conflict(e) => ("conflict", e.field),
            wit::Error::Exceeded(e) => ("exceeded", e.code),
            error => panic!("{error:?}"),
        },
        other => panic!("it is not refused: {other:?}"),
    }
}

#[tokio::test]
async fn impossible_holds_are_refused() {
    let world = LedgerChat::new().await;
    let held = world.hold("first", Estimate::Amount(1_000)).await;
    held.unwrap();
    let before = world.state().await;
    let long = "x".repeat(129);
    let amount = Estimate::Amount;
    for (key, estimate, case, what) in [
        ("", amount(1), "invalid", "key"),
        (&long, amount(1), "invalid", "key"),
        ("a\0", amount(1), "invalid", "key"),
        (
            "k",
            amount(1_000_000_000_000_001),
            "invalid",
            "estimate.amount",
        ),
        ("k", amount(u64::MAX), "invalid", "estimate.amount"),
        ("k", amount(999_999_001), "exceeded", "spend_exceeded"),
        ("k", tokens("defualt"), "not-found", "defualt"),
        ("k", tokens(""), "not-found", ""),
        ("k", tokens("free"), "invalid", "estimate.model"),
        ("first", amount(1_001), "conflict", "estimate"),
        ("first", tokens("default"), "conflict", "estimate"),
    ] {
        let shown = format!("{key:.9} {estimate:?}");
        let told = error_case(world.hold(key, estimate).await);
        assert_eq!(told, (case, what.to_owned()), "{shown}");
    }
    for (thread, token, seconds, case, what) in [
        ("nobody", 1, 30, "not-found", "nobody"),
        ("../up", 1, 30, "invalid", "thread"),
        (THREAD, world.token + 1, 30, "fenced", "1"),
        (THREAD, 0, 30, "fenced", "1"),
        (THREAD, world.token, -1, "invalid", "deadline"),
        (THREAD, world.token, 3_700, "invalid", "deadline"),
    ] {
        let held = world
            .tenant
            .hold(thread, token, "k", amount(1), deadline_in(seconds));
        assert_eq!(
            error_case(held.await),
            (case, what.to_owned()),
            "{thread} {token}"
        );
    }
    assert_eq!(world.state().await, before);
    // Zero is a valid amount.
    world.hold("free", amount(0)).await.unwrap();
    assert!(audit(&*world.store).is_empty());
}

#[tokio::test]
async fn impossible_bills_are_refused() {
    let world = LedgerChat::new().await;
    let mut versions = Vec::new();
    for key in ["settled", "released", "open"] {
        let held = world.hold(key, Estimate::Amount(1_000)).await;
        versions.push(held.unwrap());
    }
    let [settled, released, open] = versions[..] else {
        panic!("three were held");
    };
    let tenant = &world.tenant;
    let version = tenant.settle(THREAD, settled, Bill::Amount(400)).await;
    let again = tenant.settle(THREAD, settled, Bill::Amount(400)).await;
    assert_eq!(version.unwrap(), again.unwrap());
    tenant.release(THREAD, released).await.unwrap();
    tenant.release(THREAD, released).await.unwrap();
    let before = world.state().await;
    let amount = Bill::Amount;
    for (version, bill, case, what) in [
        (settled, amount(401), "conflict", "bill"),
        (settled, amount(0), "conflict", "bill"),
        (settled, usage_bill(1), "conflict", "bill"),
        (released, amount(0), "conflict", "bill"),
        (released, usage_bill(0), "conflict", "bill"),
        (open, usage_bill(1), "invalid", "bill"),
        (
            open,
            amount(1_000_000_000_000_001),
            "invalid",
            "bill.amount",
        ),
        (open, amount(u64::MAX), "invalid", "bill.amount"),
        (0, amount(1), "invalid", "version"),
        (1, amount(1), "invalid", "version"),
        (u64::MAX, amount(1), "invalid", "version"),
    ] {
        let shown = format!("{version} {bill:?}");
        let told = error_case(tenant.settle(THREAD, version, bill).await);
        assert_eq!(told, (case, what.to_owned()), "{shown}");
    }
    for (thread, version, case, what) in [
        (THREAD, settled, "conflict", "bill"),
        (THREAD, 99, "invalid", "version"),
        ("nobody", open, "not-found", "nobody"),
    ] {
        let told = error_case(tenant.release(thread, version).await);
        assert_eq!(told, (case, what.to_owned()), "{thread} {version}");
    }
    assert_eq!(error_case(tenant.account("nobody").await).0, "not-found");
    assert_eq!(error_case(tenant.tree("nobody", None).await).0, "not-found");
    let cursor = Some("nobody\nelse".to_owned());
    assert_eq!(error_case(tenant.tree(THREAD, cursor).await).1, "cursor");
    assert_eq!(world.state().await, before);
    // After the end too: a charged call is corrected once, and a recorded bill stands.
    let closed = tenant.close_thread(THREAD, world.token, "completed", None);
    closed.await.unwrap();
    tenant.settle(THREAD, open, amount(70)).await.unwrap();
    tenant.settle(THREAD, open, amount(70)).await.unwrap();
    let other = tenant.settle(THREAD, open, amount(71)).await;
    assert_eq!(error_case(other), ("conflict", "bill".to_owned()));
    let late = world.hold("late", Estimate::Amount(1)).await;
    assert_eq!(error_case(late), ("refused", "completed".to_owned()));
    let account = tenant.account(THREAD).await.unwrap();
    assert_eq!((account.spent, account.held, account.users), (470, 0, 0));
    assert!(audit(&*world.store).is_empty());
}

/// An absurd count of tokens costs what the call can have used, and overflows no sum.
#[tokio::test]
async fn usage_beyond_reason_costs_what_a_call_can_have_used() {
    let world = LedgerChat::new().await;
    let held = world.hold("a", tokens("default")).await.unwrap();
    let bill = usage_bill(i64::MAX as u64);
    world.tenant.settle(THREAD, held, bill).await.unwrap();
    let account = world.tenant.account(THREAD).await.unwrap();
    assert_eq!((account.spent, account.held), (11_202_000, 0));
    let closed = world.tenant.close_thread(THREAD, world.token, "idle", None);
    closed.await.unwrap();
    assert!(audit(&*world.store).is_empty());
}
