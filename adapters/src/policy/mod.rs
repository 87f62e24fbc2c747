//! The operator's grants for a tenant, whatever the tenant's own files ask for.
//!
//! A policy lies outside every tenant's directory and is intersected with what the files ask for:
//! caps are lowered to its limits, tools that it does not grant are not offered, models and
//! providers that it does not grant are refused by name. The decisions of the component are checked
//! once more where calls pass through the host: see [`crate::ceilings`].

mod address;
mod prefix;
mod reach;
mod read;

pub use address::ProviderAddress;
pub use prefix::AddressPrefix;
pub use reach::{NetworkReach, is_public};
pub use read::TEXT_BYTES_MAX;
pub use threadkeep_units::unknown_bill::UnknownBill;

use crate::ceilings::HostCeilings;
use crate::library::LibraryError;
use crate::library::models::{ModelPrices, ModelSpec, WireProtocol};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use threadkeep_storage::StorageQuota;
use threadkeep_units::money::NanoUsd;
use threadkeep_units::nearest::nearest;

/// Most names of one list: models, tools, hosts and keys that an operator grants by name. A
/// tenant's own table has at most as many models.
pub const NAMES_MAX: usize = 500;

/// The operator's policy for one tenant. There is no default: name a preset or read a file, then
/// change what must differ. `None` sets no bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The name in errors and in `doctor`: a file as the operator named it, or a preset.
    pub name: String,
    /// The preset whose caps hold where the policy sets none.
    pub preset: PolicyPreset,
    /// Caps that no thread may exceed, as the guest reads them: `turns`, `tokens`, `spend`,
    /// `spawns`, `depth`, `duration`.
    pub limits: Map<String, Value>,
    /// Models that may be used, by the names that their providers know. A price of the operator
    /// replaces the tenant's own; without one, ceilings use the built-in table.
    pub models: Option<BTreeMap<String, Option<ModelPrices>>>,
    /// Tools that may be called: names, with `*` for any ending.
    pub tools: Option<Vec<String>>,
    /// Tools of which each call needs a person's consent, in every thread: names, with `*` for any
    /// ending.
    pub approvals: Vec<String>,
    /// Providers that may be used, by their names in the tenant's table.
    pub providers: Option<BTreeMap<String, ProviderGrant>>,
    /// Bounds on what passes through the host.
    pub ceilings: HostCeilings,
    /// Charge for a model call of unknown cost.
    pub unknown_bill: UnknownBill,
    /// Bytes that the tenant's store may hold.
    pub quota_bytes: Option<u64>,
    /// File beside the policy that keeps the used totals between processes. Without it each process
    /// begins anew.
    pub book: Option<String>,
}

/// Reads a decimal with at most nine places, of US dollars or of seconds, as billionths.
fn billionths(text: &str) -> Option<u64> {
    NanoUsd::parse(text).ok().map(NanoUsd::get)
}

/// Grant of a provider: protocol, hosts and keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderGrant {
    /// The protocol of the provider; `None` leaves it to the tenant.
    pub wire: Option<WireProtocol>,
    /// Its address must be below one of these.
    pub hosts: Vec<AddressPrefix>,
    /// True if the names of its hosts may resolve to private addresses, where the policy refuses
    /// those.
    pub private: bool,
    /// Environment variables whose values may be sent there as the key.
    pub keys: Vec<String>,
}

/// A named set of caps, whose numbers the component has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyPreset {
    /// For a user's own project.
    Local,
    /// For tenants that do not trust each other: lower caps, a bounded store, and no provider at a
    /// loopback, link-local or private address that is not granted.
    Strict,
}

impl PolicyPreset {
    /// All presets.
    pub const ALL: [Self; 2] = [Self::Local, Self::Strict];

    /// The name, in a policy file and for the component.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Strict => "strict",
        }
    }
}

impl Policy {
    /// A preset that grants every tool, model and provider and sets no ceiling.
    pub fn preset(preset: PolicyPreset) -> Self {
        let quota_bytes = match preset {
            PolicyPreset::Local => None,
            PolicyPreset::Strict => Some(StorageQuota::STRICT_LIMIT_BYTES),
        };
        Self {
            name: format!("the preset {}", preset.as_str()),
            preset,
            limits: Map::new(),
            models: None,
            tools: None,
            approvals: Vec::new(),
            providers: None,
            ceilings: HostCeilings::none(),
            unknown_bill: UnknownBill::default(),
            quota_bytes,
            book: None,
        }
    }

    /// Parses a policy file: YAML or JSON, every key known. `name` is the name in errors.
    ///
    /// # Errors
    /// The first problem, with its line and the nearest valid name.
    pub fn parse(text: &str, name: &str) -> Result<Self, LibraryError> {
        read::parse_policy(text, name)
    }

    /// True if providers at loopback, link-local and private addresses are refused unless they are
    /// granted.
    pub fn refuses_private_addresses(&self) -> bool {
        match self.preset {
            PolicyPreset::Local => false,
            PolicyPreset::Strict => true,
        }
    }

    /// True if this model may be used.
    pub fn grants_model(&self, model: &str) -> bool {
        self.models
            .as_ref()
            .is_none_or(|models| models.contains_key(model))
    }

    /// True if this tool may be called.
    pub fn grants_tool(&self, tool: &str) -> bool {
        self.tools
            .as_ref()
            .is_none_or(|tools| tools.iter().any(|pattern| matches_pattern(pattern, tool)))
    }

    /// True if a call of this tool needs a person's consent.
    pub fn needs_approval(&self, tool: &str) -> bool {
        let tool = tool_capability(tool);
        let mut patterns = self.approvals.iter();
        patterns.any(|pattern| matches_pattern(&tool_capability(pattern), &tool))
    }

    /// Patterns of `approvals` that match none of these tools: nothing is asked because of them.
    pub fn unmatched_approvals(&self, tools: &[&str]) -> Vec<&str> {
        let matches_none = |pattern: &&str| {
            let pattern = tool_capability(pattern);
            !tools
                .iter()
                .any(|tool| matches_pattern(&pattern, &tool_capability(tool)))
        };
        self.approvals
            .iter()
            .map(String::as_str)
            .filter(matches_none)
            .collect()
    }

    /// The cap that no thread may exceed, in the unit of its record: nano-USD, milliseconds, or a
    /// number.
    pub fn cap(&self, name: &str) -> Option<u64> {
        let value = self.limits.get(name).filter(|value| !value.is_null())?;
        let text = match value {
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        match name {
            "spend" => billionths(&text),
            // A decimal of seconds.
            "duration" => billionths(&text).map(|nanos| nanos / 1_000_000),
            _ => value.as_u64(),
        }
    }

    /// The error for a model of the tenant's own table that is not granted, with the nearest
    /// granted one.
    pub fn model_refusal(&self, model: &ModelSpec) -> LibraryError {
        let (what, value, names): (_, _, Vec<&str>) = match self.grants_model(&model.name) {
            true => ("provider", &model.provider, granted_names(&self.providers)),
            false => ("model", &model.name, granted_names(&self.models)),
        };
        let shown = match names.as_slice() {
            [] => "it grants none".to_owned(),
            names => format!(
                "it grants {}",
                names[..names.len().min(REFUSAL_NAMES_MAX)].join(", ")
            ),
        };
        LibraryError::Invalid {
            place: what.to_owned(),
            value: value.clone(),
            problem: format!(
                "is not granted by the operator's policy, {}: {shown}",
                self.name
            ),
            nearest: nearest(value, names).map(str::to_owned),
        }
    }

    /// The policy as a document for the guest (`wit/library.wit`).
    pub(crate) fn to_guest_document(&self) -> Value {
        let mut document = json!({"limits": self.limits});
        if let Some(tools) = &self.tools {
            let capabilities = tools.iter().map(|tool| tool_capability(tool));
            document["capabilities"] = capabilities.collect::<Vec<_>>().into();
        }
        if !self.approvals.is_empty() {
            let approvals = self.approvals.iter().map(|tool| tool_capability(tool));
            document["approvals"] = approvals.collect::<Vec<_>>().into();
        }
        if self.unknown_bill == UnknownBill::Full {
            document["unknown_bill"] = "full".into();
        }
        document
    }
}

/// The capability of a tool. A pattern that is written as one stays as it is.
fn tool_capability(tool: &str) -> String {
    match tool.starts_with("execute.tool.") {
        true => tool.to_owned(),
        false => format!("execute.tool.{tool}"),
    }
}

/// True if the pattern equals the name, or its beginning before a `*` at the end.
pub fn matches_pattern(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == pattern,
    }
}

/// Most granted names that a refusal lists.
const REFUSAL_NAMES_MAX: usize = 10;

fn granted_names<T>(granted: &Option<BTreeMap<String, T>>) -> Vec<&str> {
    granted
        .iter()
        .flatten()
        .map(|(name, _)| name.as_str())
        .collect()
}

/// The last part of a path, as errors call a policy.
pub fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests;
