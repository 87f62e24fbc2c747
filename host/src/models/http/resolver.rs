//! Resolution of a server's name to addresses that a connection may be made to.
//!
//! The addresses that are checked are those that the client connects to. There is no second lookup
//! in between, so a name that resolves differently a moment later gains nothing.

use crate::policy::NetworkReach;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::error::Error;
use std::net::{SocketAddr, ToSocketAddrs};

/// The system's resolver, limited to addresses within reach.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReachResolver(pub NetworkReach);

/// The name resolves to no address within reach.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("its name leads to no address that may be reached")]
pub(super) struct OutOfReach;

impl Resolve for ReachResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.0;
        Box::pin(async move {
            // The client sets the port.
            let look_up = move || (name.as_str(), 0).to_socket_addrs();
            let found = tokio::task::spawn_blocking(look_up).await??;
            let found = filter_reachable(found, reach)?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

fn filter_reachable(
    found: impl Iterator<Item = SocketAddr>,
    reach: NetworkReach,
) -> Result<Vec<SocketAddr>, OutOfReach> {
    let allowed: Vec<SocketAddr> = found.filter(|address| reach.allows(address.ip())).collect();
    match allowed.is_empty() {
        true => Err(OutOfReach),
        false => Ok(allowed),
    }
}

/// Returns true if no connection was made because the name resolves out of reach.
pub(super) fn is_out_of_reach(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<OutOfReach>() {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kind of bug: a name with a good address and a bad one. The bad one is never tried.
    #[test]
    fn only_addresses_within_reach_are_handed_out() {
        let addresses = |texts: &[&str]| -> Vec<SocketAddr> {
            let address = |text: &&str| SocketAddr::new(text.parse().expect("an address"), 0);
            texts.iter().map(address).collect()
        };
        let mixed = addresses(&["169.254.169.254", "1.1.1.1", "::1", "10.0.0.1"]);
        let judged = |reach| filter_reachable(mixed.clone().into_iter(), reach);
        assert_eq!(judged(NetworkReach::Public), Ok(addresses(&["1.1.1.1"])));
        assert_eq!(judged(NetworkReach::Loopback), Ok(addresses(&["::1"])));
        assert_eq!(judged(NetworkReach::Anywhere), Ok(mixed.clone()));
        let private = addresses(&["127.0.0.1"]).into_iter();
        assert_eq!(
            filter_reachable(private, NetworkReach::Public),
            Err(OutOfReach)
        );
    }
}
