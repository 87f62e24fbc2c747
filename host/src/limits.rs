//! Limits of the component's calls. There is no default: a host chooses a preset by name or sets
//! every field.
//!
//! A call that reaches a limit fails with [`CallError::Limit`](crate::error::CallError::Limit) and
//! the name of the field. What it had committed stands; its instance is dropped. ARCHITECTURE.md
//! has the table.

use std::time::Duration;

/// Bounds of an engine, of each tenant and of each call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineLimits {
    /// Most bytes of all linear memories of one instance. The component works on one page of a
    /// history at a time: 64 MiB is more than any of its calls needs.
    pub memory_bytes_max: usize,
    /// Most bytes of linear memory of all live instances of one tenant, idle ones included. Idle
    /// instances are dropped before a call is stopped for it.
    pub tenant_memory_bytes_max: usize,
    /// Most elements of all tables of one instance: a table is how a module calls a function by
    /// number.
    pub table_elements_max: usize,
    /// Most tables of one instance: the component has one, and one of its wrapping.
    pub tables_max: usize,
    /// Most linear memories of one instance: the component has one.
    pub memories_max: usize,
    /// Most core instances in one instance: the component is one module with its wrapping.
    pub core_instances_max: usize,
    /// Most resource handles that live in one instance, those of its own resources included. World
    /// `threads` has none.
    pub handles_max: usize,
    /// Most bytes of stack: bounds recursion.
    pub stack_bytes_max: usize,
    /// Longest time that a call may compute. Time inside imports does not count, because no epoch
    /// fires there.
    pub compute_time_max: Duration,
    /// Longest time from asking to answering, including the wait for a thread and the time inside
    /// imports. An import that does not return cannot be stopped: its caller is answered, and it
    /// counts as one of the tenant's calls until it returns.
    pub wall_time_max: Duration,
    /// Most imports that a call may call.
    pub host_calls_max: u32,
    /// Most bytes that a call may hand to the host through one import, as they lie in the host's
    /// memory.
    pub host_call_bytes_max: usize,
    /// Most bytes that a call may hand to the host through all imports together.
    pub host_bytes_max: usize,
    /// Most bytes that the host may hand to a call as answers of all imports together.
    pub answer_bytes_max: usize,
    /// Calls after which an instance is replaced by a clean one.
    pub instance_calls_max: u32,
    /// Most clean instances that a tenant keeps warm.
    pub instances_warm_max: usize,
    /// Longest time that a warm instance is kept without a call: a tenant that waits holds none.
    pub instance_idle_max: Duration,
    /// Most calls of one tenant that run at once. Less than `call_threads_max`, so that no tenant
    /// takes all threads.
    pub calls_running_max: usize,
    /// Most calls of one tenant that wait for a thread, beyond those that may run. More are refused
    /// at once.
    pub calls_queued_max: usize,
    /// Threads of the pool that calls run on: at least 16, or writers never meet in one group
    /// commit.
    pub call_threads_max: usize,
}

impl EngineLimits {
    /// Limits for the user's own machine.
    pub fn local() -> Self {
        Self {
            memory_bytes_max: 256 << 20,
            tenant_memory_bytes_max: 1 << 30,
            table_elements_max: 20_000,
            tables_max: 4,
            memories_max: 2,
            core_instances_max: 16,
            handles_max: 1_024,
            stack_bytes_max: 512 << 10,
            compute_time_max: Duration::from_secs(60),
            wall_time_max: Duration::from_secs(180),
            host_calls_max: 50_000,
            host_call_bytes_max: 32 << 20,
            host_bytes_max: 256 << 20,
            answer_bytes_max: 512 << 20,
            instance_calls_max: 1_000,
            instances_warm_max: 16,
            instance_idle_max: Duration::from_secs(60),
            calls_running_max: 16,
            calls_queued_max: 16_384,
            call_threads_max: 20,
        }
    }

    /// Limits for untrusted tenants.
    pub fn strict() -> Self {
        Self {
            memory_bytes_max: 64 << 20,
            tenant_memory_bytes_max: 128 << 20,
            handles_max: 64,
            compute_time_max: Duration::from_secs(10),
            wall_time_max: Duration::from_secs(30),
            host_calls_max: 10_000,
            host_call_bytes_max: 8 << 20,
            host_bytes_max: 64 << 20,
            answer_bytes_max: 64 << 20,
            instances_warm_max: 2,
            instance_idle_max: Duration::from_secs(10),
            calls_running_max: 4,
            calls_queued_max: 1_024,
            call_threads_max: 32,
            ..Self::local()
        }
    }

    /// Every field by its name, with its value as a person reads it.
    pub fn named_values(&self) -> [(&'static str, String); 20] {
        let Self {
            memory_bytes_max,
            tenant_memory_bytes_max,
            table_elements_max,
            tables_max,
            memories_max,
            core_instances_max,
            handles_max,
            stack_bytes_max,
            compute_time_max,
            wall_time_max,
            host_calls_max,
            host_call_bytes_max,
            host_bytes_max,
            answer_bytes_max,
            instance_calls_max,
            instances_warm_max,
            instance_idle_max,
            calls_running_max,
            calls_queued_max,
            call_threads_max,
        } = *self;
        let bytes = |bytes: usize| match (bytes >> 20, bytes >> 10) {
            (0, kib) => format!("{kib} KiB"),
            (mib, _) => format!("{mib} MiB"),
        };
        let time = |time: Duration| format!("{} s", time.as_secs_f64());
        [
            ("memory_bytes_max", bytes(memory_bytes_max)),
            ("tenant_memory_bytes_max", bytes(tenant_memory_bytes_max)),
            ("table_elements_max", table_elements_max.to_string()),
            ("tables_max", tables_max.to_string()),
            ("memories_max", memories_max.to_string()),
            ("core_instances_max", core_instances_max.to_string()),
            ("handles_max", handles_max.to_string()),
            ("stack_bytes_max", bytes(stack_bytes_max)),
            ("compute_time_max", time(compute_time_max)),
            ("wall_time_max", time(wall_time_max)),
            ("host_calls_max", host_calls_max.to_string()),
            ("host_call_bytes_max", bytes(host_call_bytes_max)),
            ("host_bytes_max", bytes(host_bytes_max)),
            ("answer_bytes_max", bytes(answer_bytes_max)),
            ("instance_calls_max", instance_calls_max.to_string()),
            ("instances_warm_max", instances_warm_max.to_string()),
            ("instance_idle_max", time(instance_idle_max)),
            ("calls_running_max", calls_running_max.to_string()),
            ("calls_queued_max", calls_queued_max.to_string()),
            ("call_threads_max", call_threads_max.to_string()),
        ]
    }

    /// The first contradiction, as the field and a sentence.
    pub(crate) fn find_contradiction(&self) -> Option<(&'static str, String)> {
        if self.calls_running_max == 0 {
            return Some(("calls_running_max", "no call could ever run".to_owned()));
        }
        if self.calls_running_max >= self.call_threads_max {
            let (running, threads) = (self.calls_running_max, self.call_threads_max);
            let problem = format!(
                "{running} calls of one tenant would take all {threads} threads: at most {} may \
                 run at once",
                threads.saturating_sub(1)
            );
            return Some(("calls_running_max", problem));
        }
        if self.stack_bytes_max > STACK_BYTES_BOUND {
            let problem = format!("a stack has at most {STACK_BYTES_BOUND} bytes");
            return Some(("stack_bytes_max", problem));
        }
        if self.wall_time_max > WALL_TIME_BOUND {
            let problem = format!("a call takes at most {} s", WALL_TIME_BOUND.as_secs());
            return Some(("wall_time_max", problem));
        }
        None
    }
}

/// Upper bound of `stack_bytes_max`: each thread of the pool reserves that much.
const STACK_BYTES_BOUND: usize = 16 << 20;
/// Upper bound of `wall_time_max`, a day: a call that takes longer is stuck. Each call adds the
/// time to an `Instant`, which would overflow for a huge one.
pub(crate) const WALL_TIME_BOUND: Duration = Duration::from_secs(24 * 60 * 60);

/// The error of a call that reached the limit of this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the limit {0} was reached")]
pub(crate) struct LimitHit(pub(crate) &'static str);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_in_order_and_what_cannot_work_is_named() {
        let (local, strict) = (EngineLimits::local(), EngineLimits::strict());
        for (what, limits, field) in [
            ("local", local, None),
            ("strict", strict, None),
            (
                "all threads",
                EngineLimits {
                    calls_running_max: local.call_threads_max,
                    ..local
                },
                Some("calls_running_max"),
            ),
            (
                "no call",
                EngineLimits {
                    calls_running_max: 0,
                    ..strict
                },
                Some("calls_running_max"),
            ),
            (
                "a stack of a gigabyte",
                EngineLimits {
                    stack_bytes_max: 1 << 30,
                    ..local
                },
                Some("stack_bytes_max"),
            ),
            (
                "a day",
                EngineLimits {
                    wall_time_max: WALL_TIME_BOUND,
                    ..local
                },
                None,
            ),
            (
                "more than a day",
                EngineLimits {
                    wall_time_max: WALL_TIME_BOUND + Duration::from_nanos(1),
                    ..local
                },
                Some("wall_time_max"),
            ),
            (
                "for ever",
                EngineLimits {
                    wall_time_max: Duration::MAX,
                    ..local
                },
                Some("wall_time_max"),
            ),
        ] {
            let problem = limits.find_contradiction();
            assert_eq!(problem.as_ref().map(|(field, _)| *field), field, "{what}");
        }
    }
}
