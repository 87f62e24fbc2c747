//! Each field of `Limits` fires: with the field at its edge the same call is stopped by that
//! limit's name, or the resource is not used.

use super::project::{engine, engine_with};
use std::sync::Arc;
use std::time::Duration;
use threadkeep::clock::SystemClock;
use threadkeep::component::{SystemRandom, TenantContext};
use threadkeep::error::CallError;
use threadkeep::library::{LibraryError, TenantLibrary};
use threadkeep::limits::EngineLimits;
use threadkeep::storage::memory::MemoryStore;
use threadkeep::tenant::Tenant;
use threadkeep::wit::registry;
use threadkeep_tests::fixture::MapLibrary;

/// A library that takes 120 ms for each document and each listing.
struct SlowLibrary(MapLibrary);

impl TenantLibrary for SlowLibrary {
    fn document(&self, kind: &str, name: &str) -> Result<Option<String>, LibraryError> {
        std::thread::sleep(Duration::from_millis(120));
        self.0.document(kind, name)
    }

    fn names(&self, kind: &str) -> Result<Vec<String>, LibraryError> {
        std::thread::sleep(Duration::from_millis(120));
        self.0.names(kind)
    }
}

fn tenant(limits: EngineLimits) -> Tenant {
    let context = TenantContext {
        storage: Arc::new(MemoryStore::new()),
        library: Arc::new(SlowLibrary(MapLibrary::small())),
        clock: Arc::new(SystemClock),
        random: Arc::new(SystemRandom),
    };
    Tenant::new(engine_with(limits), context)
}

fn draft() -> registry::Draft {
    threadkeep_tests::fixture::draft(Some("work"))
}

#[tokio::test]
async fn a_call_is_stopped_by_the_limit_that_it_runs_into() {
    let local = EngineLimits::local();
    for (name, limits) in [
        (
            "memory_bytes_max",
            EngineLimits {
                memory_bytes_max: 64 << 10,
                ..local
            },
        ),
        (
            "table_elements_max",
            EngineLimits {
                table_elements_max: 1,
                ..local
            },
        ),
        (
            "wall_time_max",
            EngineLimits {
                wall_time_max: Duration::from_millis(20),
                ..local
            },
        ),
        (
            "host_call_bytes_max",
            EngineLimits {
                host_call_bytes_max: 16,
                ..local
            },
        ),
    ] {
        let answer = tenant(limits).create(draft()).await;
        let end = answer.as_ref().expect_err(name);
        assert!(!end.retry_unchanged(), "it may have made a thread");
        let end = match end {
            CallError::OutcomeUnknown(end) => end,
            end => end,
        };
        assert!(
            matches!(end, CallError::Limit(limit) if *limit == name),
            "{name}: {answer:?}"
        );
    }
    assert!(tenant(local).create(draft()).await.is_ok());
}

#[tokio::test]
async fn instances_are_kept_and_replaced_as_the_limits_say() {
    let local = EngineLimits::local();
    for (what, limits, kept) in [
        ("local", local, 1),
        (
            "none is kept warm",
            EngineLimits {
                instances_warm_max: 0,
                ..local
            },
            0,
        ),
        (
            "each is used once",
            EngineLimits {
                instance_calls_max: 1,
                ..local
            },
            0,
        ),
    ] {
        let tenant = tenant(limits);
        tenant.create(draft()).await.unwrap();
        assert_eq!(tenant.instances_warm(), kept, "{what}");
        assert!(tenant.create(draft()).await.is_ok(), "{what}");
    }
}

#[tokio::test]
async fn a_trap_costs_its_instance_and_nothing_else() {
    let limits = EngineLimits {
        wall_time_max: Duration::from_millis(20),
        ..EngineLimits::local()
    };
    let tenant = tenant(limits);
    tenant.create(draft()).await.unwrap_err();
    assert_eq!(tenant.instances_warm(), 0);
    // Measured without the limit: on a busy machine the limit would stop this call, too.
    let unbounded = Tenant::new(engine(), tenant.context().clone());
    let listed = unbounded.list(filter(), 10, None).await.unwrap();
    assert!(listed.threads.is_empty());
}

fn filter() -> registry::Filter {
    registry::Filter::All
}
