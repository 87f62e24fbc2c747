//! Instances are used again while they are clean, and no longer.

use super::fixture::{TwoTenants, limits};
use std::time::Duration;
use threadkeep::error::CallError;
use threadkeep::limits::EngineLimits;
use threadkeep::tenant::Tenant;
use threadkeep::wit;

/// The answer of the program `counts`: the number of calls that its instance has had.
async fn count(tenant: &Tenant) -> String {
    match tenant.get("x").await {
        Err(CallError::Refused(wit::Error::Deleted(count))) => count.thread,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_clean_instance_is_used_as_often_as_the_limits_say() {
    for (instance_calls_max, counts) in [(1, ["1", "1", "1", "1"]), (3, ["1", "2", "3", "1"])] {
        let limits = EngineLimits {
            instance_calls_max,
            ..limits()
        };
        let world = TwoTenants::new("counts", limits);
        for expected in counts {
            assert_eq!(count(&world.hostile).await, expected);
        }
    }
}

#[tokio::test]
async fn no_more_instances_wait_than_the_limits_say() {
    for most in [0, 1, 3] {
        let limits = EngineLimits {
            instances_warm_max: most,
            ..limits()
        };
        let world = TwoTenants::new("counts", limits);
        let calls = (0..4).map(|_| count(&world.hostile));
        futures_util::future::join_all(calls).await;
        assert!(world.hostile.instances_warm() <= most, "{most}");
        let last = count(&world.hostile).await;
        assert_eq!(last == "1", most == 0, "{most}: {last}");
    }
}

/// A call after a trap has a clean instance, and a call that traps in a used one is tried once more
/// in a clean one.
#[tokio::test]
async fn a_trap_costs_its_instance_and_the_next_call_is_clean() {
    let world = TwoTenants::new("counts", limits());
    assert_eq!(count(&world.hostile).await, "1");
    assert_eq!(count(&world.hostile).await, "2");
    let trapped = world.hostile.get("trap").await;
    assert!(matches!(trapped, Err(CallError::Trapped(_))), "{trapped:?}");
    assert_eq!(world.hostile.instances_warm(), 0);
    assert_eq!(count(&world.hostile).await, "1");
}

#[tokio::test]
async fn an_instance_that_nobody_calls_is_dropped() {
    let limits = EngineLimits {
        instance_idle_max: Duration::ZERO,
        ..limits()
    };
    let world = TwoTenants::new("counts", limits);
    count(&world.hostile).await;
    while world.hostile.instances_warm() > 0 || world.hostile.memory_bytes() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(count(&world.hostile).await, "1");
}

/// Idle instances block no call: they give up their memory for a call that needs it.
#[tokio::test]
async fn instances_that_wait_make_room_for_a_call() {
    let page = 64 << 10;
    let limits = EngineLimits {
        tenant_memory_bytes_max: 2 * page,
        instances_warm_max: 4,
        ..limits()
    };
    let world = TwoTenants::new("counts", limits);
    while world.hostile.instances_warm() < 2 {
        futures_util::future::join_all((0..2).map(|_| count(&world.hostile))).await;
    }
    assert_eq!(world.hostile.memory_bytes(), 2 * page);
    let grown = world.hostile.get("grows").await;
    assert!(matches!(grown, Err(CallError::Refused(_))), "{grown:?}");
    assert_eq!(world.hostile.instances_warm(), 1, "the other made room");
    assert_eq!(world.hostile.memory_bytes(), 2 * page);
}
