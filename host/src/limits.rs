//! What one call of the component may use. There is no default: a host chooses a preset by name or sets every field.

use std::time::Duration;

/// Bounds of the engine and of each call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of linear memory of one instance. The component works on one page of a history at a time: 64 MiB is
    /// more than any of its calls needs.
    pub memory_bytes_max: usize,
    /// Most elements of one table of an instance.
    pub table_elements_max: usize,
    /// Longest time a call may compute before it is stopped. Time inside storage counts too.
    pub call_time_max: Duration,
    /// Calls after which an instance is replaced by a clean one.
    pub instance_calls_max: u32,
    /// Most clean instances that a tenant keeps warm.
    pub instances_warm_max: usize,
    /// Threads of the pool that calls run on: at least 16, or writers never meet in one group commit.
    pub call_threads_max: usize,
    /// Most bytes that a call may hand to the host through one import call.
    pub host_call_bytes_max: usize,
}

impl Limits {
    /// For a person's own machine.
    pub fn local() -> Self {
        Self {
            memory_bytes_max: 256 << 20,
            table_elements_max: 20_000,
            call_time_max: Duration::from_secs(60),
            instance_calls_max: 1_000,
            instances_warm_max: 16,
            call_threads_max: 16,
            host_call_bytes_max: 32 << 20,
        }
    }

    /// For tenants that nobody trusts.
    pub fn strict() -> Self {
        Self {
            memory_bytes_max: 64 << 20,
            call_time_max: Duration::from_secs(10),
            instances_warm_max: 2,
            host_call_bytes_max: 8 << 20,
            ..Self::local()
        }
    }
}
