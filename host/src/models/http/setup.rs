//! The client that reaches one provider.

use super::resolver::ReachResolver;
use super::{error_chain, tls};
use crate::policy::NetworkReach;
use reqwest::Client;
use std::sync::Arc;
use threadkeep_adapters::models::{ProviderTimeouts, SetupError};

/// Builds a client that sends each request once. Its pool may take another connection if the one it
/// picked was closed before anything was written to it; nothing is ever written twice.
///
/// The client reaches nothing out of `reach`: a name is checked when it is resolved, and a literal
/// address was checked when the provider's profile was made.
pub(super) fn build_client(
    secure: bool,
    times: ProviderTimeouts,
    reach: NetworkReach,
) -> Result<Client, SetupError> {
    let failed = |problem: String| SetupError::Client { problem };
    let tls = tls::client_config(secure).map_err(|error| failed(error.to_string()))?;
    let client = Client::builder()
        .user_agent(concat!("threadkeep/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(times.connect)
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .retry(reqwest::retry::never())
        .no_proxy()
        .tls_backend_preconfigured(tls);
    let client = match reach {
        NetworkReach::Anywhere => client,
        NetworkReach::Loopback | NetworkReach::Public => {
            client.dns_resolver(Arc::new(ReachResolver(reach)))
        }
    };
    client
        .build()
        .map_err(|error| failed(error_chain(&error.without_url())))
}
