//! Holds an instance to its limits of memory and tables, and a tenant to its memory.
//!
//! Growth beyond a limit is a trap at once, not a refusal that the guest could ignore: a guest that
//! grows for ever would otherwise be stopped for its time, under the wrong name. Another guest
//! could survive a refusal; ours cannot.

use super::instances::TenantInstances;
use crate::limits::{EngineLimits, LimitHit};
use std::sync::Weak;
use wasmtime::{ResourceLimiter, Result};

/// Sums over all memories and all tables of one instance.
pub(crate) struct InstanceLimiter {
    limits: EngineLimits,
    tenant: Weak<TenantInstances>,
    memory_bytes: usize,
    table_elements: usize,
    /// Amount added by the growth under way, to be given back if it fails.
    growing: usize,
}

impl InstanceLimiter {
    pub(crate) fn new(limits: &EngineLimits, tenant: Weak<TenantInstances>) -> Self {
        Self {
            limits: *limits,
            tenant,
            memory_bytes: 0,
            table_elements: 0,
            growing: 0,
        }
    }

    fn reserve_tenant_memory(&self, bytes: usize) -> Result<(), LimitHit> {
        // A tenant that is gone has no calls.
        let hit = LimitHit("tenant_memory_bytes_max");
        let tenant = self.tenant.upgrade().ok_or(hit)?;
        let most = self.limits.tenant_memory_bytes_max;
        if !tenant.reserve_memory(bytes, most) {
            tenant.drop_warm();
            if !tenant.reserve_memory(bytes, most) {
                return Err(hit);
            }
        }
        Ok(())
    }

    fn release_tenant_memory(&self, bytes: usize) {
        if let Some(tenant) = self.tenant.upgrade() {
            tenant.release_memory(bytes);
        }
    }
}

impl Drop for InstanceLimiter {
    fn drop(&mut self) {
        self.release_tenant_memory(self.memory_bytes);
    }
}

impl ResourceLimiter for InstanceLimiter {
    fn memory_growing(&mut self, now: usize, then: usize, _: Option<usize>) -> Result<bool> {
        let more = then.saturating_sub(now);
        let bytes = self.memory_bytes.saturating_add(more);
        if bytes > self.limits.memory_bytes_max {
            return Err(LimitHit("memory_bytes_max").into());
        }
        self.reserve_tenant_memory(more)?;
        (self.memory_bytes, self.growing) = (bytes, more);
        Ok(true)
    }

    fn memory_grow_failed(&mut self, _: wasmtime::Error) -> Result<()> {
        self.memory_bytes -= self.growing;
        self.release_tenant_memory(self.growing);
        self.growing = 0;
        Ok(())
    }

    fn table_growing(&mut self, now: usize, then: usize, _: Option<usize>) -> Result<bool> {
        let more = then.saturating_sub(now);
        let elements = self.table_elements.saturating_add(more);
        if elements > self.limits.table_elements_max {
            return Err(LimitHit("table_elements_max").into());
        }
        (self.table_elements, self.growing) = (elements, more);
        Ok(true)
    }

    fn table_grow_failed(&mut self, _: wasmtime::Error) -> Result<()> {
        self.table_elements -= self.growing;
        self.growing = 0;
        Ok(())
    }

    fn instances(&self) -> usize {
        self.limits.core_instances_max
    }

    fn tables(&self) -> usize {
        self.limits.tables_max
    }

    fn memories(&self) -> usize {
        self.limits.memories_max
    }
}
