//! The address of a provider: scheme, host and port. A key is bound to it.
//!
//! It is parsed more strictly than an HTTP client parses a URL, so that both always mean the same
//! host: anything that a client might parse otherwise (a user, a backslash, an escape, a short form
//! of a number) is no address here.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Longest address that is parsed, in bytes: the longest host name has 253.
pub const ADDRESS_BYTES_MAX: usize = 2_048;

/// Scheme, host and port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProviderAddress {
    secure: bool,
    /// In lower case.
    host: String,
    port: u16,
}

impl ProviderAddress {
    /// Parses the address of a URL, such as `https://api.openai.com/v1`; the part after the host
    /// and port is ignored.
    pub fn from_url(url: &str) -> Option<Self> {
        let (secure, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return None,
        };
        let graphic = url.bytes().all(|byte| byte.is_ascii_graphic());
        if !graphic || url.len() > ADDRESS_BYTES_MAX {
            return None;
        }
        let end = rest.find('/').unwrap_or(rest.len());
        Self::from_authority(secure, &rest[..end])
    }

    fn from_authority(secure: bool, authority: &str) -> Option<Self> {
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (inner, after) = rest.split_once(']')?;
                let address: Ipv6Addr = inner.parse().ok()?;
                let port = match after {
                    "" => None,
                    after => Some(after.strip_prefix(':')?),
                };
                (format!("[{address}]"), port)
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host.to_ascii_lowercase(), Some(port)),
                None => (authority.to_ascii_lowercase(), None),
            },
        };
        let port = match port {
            None if secure => 443,
            None => 80,
            Some(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok()?,
            Some(_) => return None,
        };
        (host.starts_with('[') || is_host(&host)).then_some(Self { secure, host, port })
    }

    /// The host alone, in lower case.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The IP address, if the host is one.
    pub fn ip(&self) -> Option<IpAddr> {
        self.host.trim_matches(['[', ']']).parse().ok()
    }

    /// Returns true for the names that stand for this machine on every system.
    pub fn is_localhost(&self) -> bool {
        self.host == "localhost" || self.host.ends_with(".localhost")
    }

    /// True if nothing sent there leaves this machine.
    pub fn is_loopback(&self) -> bool {
        let v4 = self.host.parse::<Ipv4Addr>();
        self.host == "localhost" || self.host == "[::1]" || v4.is_ok_and(|v4| v4.is_loopback())
    }
}

/// True for a name, or four numbers. Clients read a host whose last part begins with a digit, but
/// that is not four numbers, as a short form.
fn is_host(host: &str) -> bool {
    let last = host.rsplit('.').next().unwrap_or_default();
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let labels = host
        .split('.')
        .all(|label| !label.is_empty() && label.bytes().all(letter));
    let numeric = last
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_digit());
    labels && (!numeric || host.parse::<Ipv4Addr>().is_ok())
}

impl fmt::Display for ProviderAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, own) = if self.secure {
            ("https", 443)
        } else {
            ("http", 80)
        };
        write!(f, "{scheme}://{}", self.host)?;
        match self.port == own {
            true => Ok(()),
            false => write!(f, ":{}", self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_every_client_reads_alike() {
        for (url, shown, loopback) in [
            ("https://api.openai.com/v1", "https://api.openai.com", false),
            (
                "https://API.OpenAI.com:443",
                "https://api.openai.com",
                false,
            ),
            ("http://localhost:11434/v1/", "http://localhost:11434", true),
            ("http://127.0.0.1", "http://127.0.0.1", true),
            ("http://127.9.9.9:80/", "http://127.9.9.9", true),
            ("https://[::1]:8443/x", "https://[::1]:8443", true),
            ("https://[0:0::1]/", "https://[::1]", true),
            ("http://10.0.0.1:1", "http://10.0.0.1:1", false),
            ("https://a.b/@c", "https://a.b", false),
            (
                "https://localhost.evil.test",
                "https://localhost.evil.test",
                false,
            ),
        ] {
            let address = ProviderAddress::from_url(url).expect(url);
            assert_eq!(
                (address.to_string().as_str(), address.is_loopback()),
                (shown, loopback)
            );
        }
    }

    #[test]
    fn refuses_what_a_client_might_read_otherwise() {
        for url in [
            "",
            "api.openai.com",
            "ftp://a",
            "HTTPS://a",
            "https://",
            "https:///x",
            "https://:443",
            "https://user@a",
            "https://a:b@c",
            "https://a\\@b/",
            "https://a\\b",
            "https://a?b",
            "https://a#b",
            "https://a%2eb",
            "https://a b",
            "https://a\tb",
            "https://a..b",
            "https://a.",
            "https://127.1",
            "https://0x7f.0.0.1x.1",
            "https://2130706433",
            "https://127.0.0.01",
            "https://a:",
            "https://a:+1",
            "https://a:65536",
            "https://[::1",
            "https://[::1]x",
            "https://[::g]",
            "https://é.test",
        ] {
            assert_eq!(ProviderAddress::from_url(url), None, "{url}");
        }
        assert!(
            ProviderAddress::from_url(&format!("https://a/{}", "x".repeat(ADDRESS_BYTES_MAX)))
                .is_none()
        );
    }
}
