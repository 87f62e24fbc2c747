//! Access control for providers: their permitted addresses, and the keys that may be sent there.
//!
//! A tenant writes its own model table. A table that combined any address with any variable could
//! send the operator's key to a stranger. The operator's policy therefore binds both: a granted
//! provider is at one of its hosts, and only its keys are sent there.
//!
//! If no policy mentions providers, the name of a key decides. `X_API_KEY` may be sent to the
//! address in `X_BASE_URL`, which the operator sets in the same environment, to the wire's own
//! address for the two names that have one, and to this machine. A key that is written out in the
//! table is the tenant's own and is not restricted.

use super::{FieldOrigin, ModelTable, ProviderEntry, WireProtocol};
use crate::environment;
use crate::library::LibraryError;
use crate::policy::{
    AddressPrefix, NetworkReach, Policy, ProviderAddress, ProviderGrant, is_public,
};
use std::collections::BTreeMap;

/// The provider grants of a policy.
#[derive(Debug, Clone)]
pub(super) struct PolicyGrants {
    /// The policy's name.
    pub(super) policy: String,
    providers: BTreeMap<String, ProviderGrant>,
}

impl PolicyGrants {
    /// Returns the grants of a policy; `None` if it does not mention providers.
    pub(super) fn from_policy(policy: &Policy) -> Option<Self> {
        Some(Self {
            policy: policy.name.clone(),
            providers: policy.providers.clone()?,
        })
    }
}

impl ModelTable {
    /// Refuses a provider whose address is not permitted, or whose key may not be sent there.
    pub(super) fn check_access(
        &self,
        name: &str,
        entry: &ProviderEntry,
        base_url: &str,
    ) -> Result<(), LibraryError> {
        let headers = entry.settings.headers.iter();
        let secrets = headers.map(|(_, text)| text.as_str());
        let secrets = secrets.chain(entry.key.as_deref());
        let variables: Vec<String> = secrets
            .flat_map(|text| match FieldOrigin::from_text(Some(text)) {
                FieldOrigin::Variables(names) => names,
                FieldOrigin::Absent | FieldOrigin::Written => Vec::new(),
            })
            .collect();
        let grants = self.grants.as_ref();
        let granted = grants.and_then(|grants| Some((grants, grants.providers.get(name)?)));
        let problem = match (granted, ProviderAddress::from_url(base_url)) {
            (Some((grants, grant)), address) => grant
                .find_problem(
                    entry.wire,
                    address.is_some().then_some(base_url),
                    &variables,
                )
                .map(|(field, problem)| {
                    let policy = &grants.policy;
                    (
                        field,
                        format!("{problem}, by the operator's policy, {policy}"),
                    )
                }),
            (None, Some(address)) => variables
                .iter()
                .find_map(|variable| self.variable_problem(variable, &address))
                .map(|problem| ("key", problem)),
            (None, None) => None,
        };
        match problem {
            Some((field, problem)) => Err(entry.invalid(field, "", problem)),
            None => Ok(()),
        }
    }

    /// Returns the network addresses that the provider may be at. Called after
    /// [`Self::check_access`]: if a policy grants the provider, its address is a granted one.
    pub(super) fn permitted_reach(
        &self,
        name: &str,
        entry: &ProviderEntry,
        base_url: &str,
    ) -> Result<NetworkReach, LibraryError> {
        let (Some(policy), Some(address)) = (
            &self.private_refused_by,
            ProviderAddress::from_url(base_url),
        ) else {
            return Ok(NetworkReach::Anywhere);
        };
        let grants = self.grants.as_ref();
        let grant = grants.and_then(|grants| grants.providers.get(name));
        let is_private = address.is_localhost() || address.ip().is_some_and(|ip| !is_public(ip));
        match grant {
            Some(grant) if grant.private => Ok(NetworkReach::Anywhere),
            Some(_) if address.is_localhost() => Ok(NetworkReach::Loopback),
            // The address is written as a number, so the policy granted exactly this number.
            Some(_) if is_private => Ok(NetworkReach::Anywhere),
            None if is_private => {
                let problem = format!(
                    "{address} is a loopback, link-local or private address, and {policy} does not \
                     grant it; the operator \
                     can, under providers"
                );
                Err(entry.invalid("base_url", "", problem))
            }
            Some(_) | None => Ok(NetworkReach::Public),
        }
    }

    /// Returns the reason why the value of this variable may not be sent to this address, if no
    /// policy grants the provider.
    fn variable_problem(&self, variable: &str, address: &ProviderAddress) -> Option<String> {
        let stem = variable.strip_suffix(environment::KEY_SUFFIX)?;
        let own = match stem {
            "OPENAI" => WireProtocol::OpenAi.default_base_url(),
            "ANTHROPIC" => WireProtocol::Anthropic.default_base_url(),
            _ => None,
        };
        let set = format!("{stem}{}", environment::ADDRESS_SUFFIX);
        let is =
            |url: Option<&str>| url.and_then(ProviderAddress::from_url).as_ref() == Some(address);
        if address.is_loopback() || is(own) || is(self.environment.get(&set)) {
            return None;
        }
        let own = own.map_or(String::new(), |own| format!("{own}, to "));
        Some(format!(
            "{variable} may go to {own}the address in {set} and to this machine, not to {address}; \
             set {set}, or grant \
             the provider in a policy"
        ))
    }
}

impl ProviderGrant {
    /// Returns the field that asks for more than is granted, and the problem.
    fn find_problem(
        &self,
        wire: WireProtocol,
        base_url: Option<&str>,
        variables: &[String],
    ) -> Option<(&'static str, String)> {
        if let Some(granted) = self.wire.filter(|granted| *granted != wire) {
            let (wire, granted) = (wire.as_str(), granted.as_str());
            return Some(("wire", format!("the provider speaks {granted}, not {wire}")));
        }
        let base_url = base_url?;
        if !self.hosts.iter().any(|prefix| prefix.covers(base_url)) {
            let hosts: Vec<String> = self.hosts.iter().map(AddressPrefix::to_string).collect();
            let hosts = match hosts.is_empty() {
                true => "none".to_owned(),
                false => hosts.join(", "),
            };
            // The path is not shown, because it may hold the value of a variable.
            let address = ProviderAddress::from_url(base_url)?;
            let of_path = match self.hosts.iter().any(|prefix| prefix.is_on(&address)) {
                true => "with this path is not below",
                false => "is not",
            };
            let problem = format!("{address} {of_path} one of its hosts ({hosts})");
            return Some(("base_url", problem));
        }
        let strange = variables.iter().find(|name| !self.keys.contains(*name))?;
        Some(("key", format!("{strange} is not one of its keys")))
    }
}

#[cfg(test)]
mod tests;
