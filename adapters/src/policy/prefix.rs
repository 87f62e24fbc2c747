//! The part of a server that a policy grants: a host, or what lies below one path of it.
//!
//! Below a path, an address must be written so that no client and no server can take it for another
//! one: without `.`, `..`, empty parts, escapes, parameters or backslashes. Below a whole host any
//! path is at the same server, so its text does not matter.

use super::ProviderAddress;
use std::fmt;

/// Scheme, host, port and the beginning of a path, which ends where a part of the path ends.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AddressPrefix {
    address: ProviderAddress,
    /// Begins with a slash and does not end with one; empty for the whole host.
    path: String,
}

impl AddressPrefix {
    /// Parses a prefix of a policy: `api.openai.com`, `api.test:8443` and `gateway.test/team-a` are
    /// reached by `https`; `http://` must be written out. A slash at the end means nothing.
    pub fn from_text(text: &str) -> Option<Self> {
        let url = match text {
            url if url.starts_with("https://") || url.starts_with("http://") => url.to_owned(),
            host => format!("https://{host}"),
        };
        let url = url.strip_suffix('/').unwrap_or(&url);
        let path = path_of(url);
        is_plain(path).then_some(Self {
            address: ProviderAddress::from_url(url)?,
            path: path.to_owned(),
        })
    }

    /// Returns true if the prefix is on this scheme, host and port.
    pub fn is_on(&self, address: &ProviderAddress) -> bool {
        self.address == *address
    }

    /// Returns true if the URL, and everything below it, is below this prefix.
    pub fn covers(&self, url: &str) -> bool {
        if ProviderAddress::from_url(url).as_ref() != Some(&self.address) {
            return false;
        }
        if self.path.is_empty() {
            return true;
        }
        let path = path_of(url);
        let path = path.strip_suffix('/').unwrap_or(path);
        let below = path.strip_prefix(&self.path);
        is_plain(path) && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// The part of a URL after the host and port.
fn path_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.find('/').map_or("", |at| &rest[at..])
}

/// Returns true for an empty path, or one that every client and server reads alike.
fn is_plain(path: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:@!$&'()*+,=".contains(&byte);
    let name = |part: &str| !matches!(part, "" | "." | "..") && part.bytes().all(letter);
    path.is_empty() || path.split('/').skip(1).all(name)
}

impl fmt::Display for AddressPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.address, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_a_policy() {
        for (text, shown) in [
            ("api.openai.com", Some("https://api.openai.com")),
            ("api.openai.com:8443", Some("https://api.openai.com:8443")),
            ("https://a.test/", Some("https://a.test")),
            ("http://127.0.0.1:11434", Some("http://127.0.0.1:11434")),
            ("https://a.test/v1", Some("https://a.test/v1")),
            ("a.test/Team-a/v1/", Some("https://a.test/Team-a/v1")),
            ("[::1]:80/x", Some("https://[::1]:80/x")),
            ("a.test//", None),
            ("a.test/a//b", None),
            ("a.test/../b", None),
            ("a.test/./b", None),
            ("a.test/a/..", None),
            ("a.test/%2e%2e/b", None),
            ("a.test/a;x/b", None),
            ("a.test/a?b", None),
            ("a.test/a#b", None),
            ("a.test/a\\b", None),
            ("user@a.test/a", None),
            ("ftp://a.test", None),
            ("*.test", None),
            ("a.test/*é", None),
            ("", None),
        ] {
            let prefix = AddressPrefix::from_text(text).map(|prefix| prefix.to_string());
            assert_eq!(prefix.as_deref(), shown, "{text}");
        }
    }

    /// A prefix, an address, and whether the prefix covers the address.
    const COVERED: &[(&str, &str, bool)] = &[
        ("gw.test", "https://gw.test", true),
        ("gw.test", "https://gw.test/any/../where", true),
        ("gw.test/team-a", "https://gw.test/team-a", true),
        ("gw.test/team-a", "https://gw.test/team-a/", true),
        ("gw.test/team-a", "https://GW.test:443/team-a/v1", true),
        (
            "gw.test/team-a",
            "https://gw.test/team-a/chat/completions",
            true,
        ),
        ("gw.test/team-a", "https://gw.test", false),
        ("gw.test/team-a", "https://gw.test/", false),
        ("gw.test/team-a", "https://gw.test/team-ab", false),
        ("gw.test/team-a", "https://gw.test/Team-A", false),
        ("gw.test/team-a", "https://gw.test/team-b", false),
        ("gw.test/team-a", "https://gw.test/x/team-a", false),
        ("gw.test/team-a", "https://gw.test/team-a/../team-b", false),
        ("gw.test/team-a", "https://gw.test/team-a/..", false),
        ("gw.test/team-a", "https://gw.test/team-a/.", false),
        ("gw.test/team-a", "https://gw.test/team-a//v1", false),
        ("gw.test/team-a", "https://gw.test//team-a", false),
        (
            "gw.test/team-a",
            "https://gw.test/team-a/%2e%2e/team-b",
            false,
        ),
        (
            "gw.test/team-a",
            "https://gw.test/team-a/%2E%2E%2Fteam-b",
            false,
        ),
        ("gw.test/team-a", "https://gw.test/team-a/..;/team-b", false),
        ("gw.test/team-a", "https://gw.test/team-a/;x/v1", false),
        (
            "gw.test/team-a",
            "https://gw.test/team-a\\..\\team-b",
            false,
        ),
        ("gw.test/team-a", "https://gw.test/team-a?to=/team-b", false),
        ("gw.test/team-a", "https://gw.test/team-a#x", false),
        ("gw.test/team-a", "https://gw.test/team%2Da", false),
        ("gw.test/team-a", "http://gw.test/team-a", false),
        ("gw.test/team-a", "https://gw.test:8443/team-a", false),
        ("gw.test/team-a", "https://gw.test.evil.test/team-a", false),
        ("gw.test/team-a", "https://evil.test/gw.test/team-a", false),
        ("gw.test/team-a", "https://gw.test@evil.test/team-a", false),
        (
            "gw.test/team-a",
            "https://evil.test\\@gw.test/team-a",
            false,
        ),
        ("http://gw.test/a", "https://gw.test/a", false),
    ];

    /// General case: addresses that begin as a granted one and lead elsewhere.
    #[test]
    fn a_prefix_covers_what_lies_below_it_and_nothing_else() {
        for (text, url, covered) in COVERED {
            let prefix = AddressPrefix::from_text(text).expect(text);
            assert_eq!(prefix.covers(url), *covered, "{text} and {url}");
        }
    }
}
