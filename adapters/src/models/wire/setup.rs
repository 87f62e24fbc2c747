//! Settings of a provider that are checked before anything is sent: its address and its headers.

use crate::models::{IDLE_TIME, SecretText};
use http::header::{HeaderName, HeaderValue};
use std::time::Duration;
use url::Url;

/// Timeouts of the calls to a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProviderTimeouts {
    /// Longest time to make a connection.
    pub connect: Duration,
    /// Longest time until an answer begins. Servers that queue requests begin late.
    pub answer: Duration,
    /// Longest time in which a stream may bring nothing of a reply. Comments, pings and empty
    /// chunks do not count.
    pub idle: Duration,
}

impl Default for ProviderTimeouts {
    /// Times that suit hosted and local servers, and models that think in silence: 10 s to connect,
    /// 600 s to begin, 300 s of silence.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            answer: Duration::from_secs(600),
            idle: IDLE_TIME,
        }
    }
}

/// An error of setting a provider up. It repeats nothing of the key or the address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The address cannot be read.
    #[error("the provider's base_url is not an address like https://host/v1: {problem}")]
    Address {
        /// The parser's message.
        problem: String,
    },
    /// The address is neither `http` nor `https`.
    #[error("the provider's base_url must begin with http:// or https://")]
    Scheme,
    /// The address has a user, a password, a query or a fragment. They would be sent or logged in
    /// unexpected places.
    #[error(
        "the provider's base_url must not have a user, a password, a query or a fragment; the key \
         has a field of its own"
    )]
    Parts,
    /// The address is loopback, link-local or private, and such addresses are out of reach.
    #[error(
        "the provider's base_url is a loopback, link-local or private address, and those are not \
         granted"
    )]
    OutOfReach,
    /// A configured header cannot be sent.
    #[error("the provider's header {name} cannot be sent: {problem}")]
    Header {
        /// Its name.
        name: String,
        /// The reason.
        problem: &'static str,
    },
    /// The key has a character that no header can carry.
    #[error(
        "the provider's key has a character that it cannot have; look for a line break at its end"
    )]
    Key,
    /// The HTTP client could not be made, for example because there are no certificates to trust.
    #[error("the HTTP client cannot be set up: {problem}")]
    Client {
        /// Message of the client library.
        problem: String,
    },
}

/// Headers that the exchange itself sets.
const RESERVED_HEADERS: [&str; 6] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "transfer-encoding",
];

pub(super) fn parse_header(
    name: &str,
    value: &SecretText,
) -> Result<(HeaderName, HeaderValue), SetupError> {
    let wrong = |problem| SetupError::Header {
        name: name.to_owned(),
        problem,
    };
    let header = HeaderName::try_from(name).map_err(|_| wrong("no header has such a name"))?;
    if RESERVED_HEADERS.contains(&header.as_str()) {
        return Err(wrong("the exchange sets it by itself"));
    }
    let value = HeaderValue::try_from(value.expose());
    let mut value = value.map_err(|_| wrong("its value has a character that it cannot have"))?;
    value.set_sensitive(true);
    Ok((header, value))
}

/// Parses and checks the base address of a provider. The adapter adds its path.
pub(in crate::models) fn parse_base_url(base: &str) -> Result<Url, SetupError> {
    let url = Url::parse(base.trim()).map_err(|error| SetupError::Address {
        problem: error.to_string(),
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(SetupError::Scheme);
    }
    let named = !url.username().is_empty() || url.password().is_some();
    if named || url.query().is_some() || url.fragment().is_some() {
        return Err(SetupError::Parts);
    }
    Ok(url)
}
