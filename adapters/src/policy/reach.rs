//! Network addresses at which a provider may be.
//!
//! A tenant's table may name any server, and so the machine itself, its neighbours or a cloud's
//! credential service. The preset `strict` refuses those unless the operator grants them. A name is
//! judged by the addresses that it resolves to when the connection is made: an earlier resolution
//! says nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The network addresses that a connection may be made to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NetworkReach {
    /// Any address.
    #[default]
    Anywhere,
    /// Only this machine.
    Loopback,
    /// Only addresses of the public internet: see [`is_public`].
    Public,
}

impl NetworkReach {
    /// Returns true if a connection to this address may be made.
    pub fn allows(self, address: IpAddr) -> bool {
        match self {
            Self::Anywhere => true,
            Self::Loopback => address.is_loopback(),
            Self::Public => is_public(address),
        }
    }
}

/// Returns true for an address that is assigned on the public internet to one machine or to a few:
/// not loopback, link-local, private, shared, reserved, unspecified, multicast or broadcast.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

/// By IANA's registry of special-purpose addresses.
fn is_public_v4(address: Ipv4Addr) -> bool {
    let special = match address.octets() {
        // This network, private, loopback, multicast and reserved with broadcast.
        [0 | 10 | 127 | 224..=255, ..] => true,
        // Shared by the customers of a provider; metadata services of some clouds.
        [100, 64..=127, ..] => true,
        [169, 254, ..] | [172, 16..=31, ..] | [192, 168, ..] => true,
        // Protocol assignments, and benchmarks.
        [192, 0, 0, _] | [198, 18..=19, ..] => true,
        _ => false,
    };
    !special
}

/// Only global unicast is public; where an address embeds an IPv4 address, that one is judged. So
/// unspecified, loopback, mapped IPv4, unique local, link-local, site-local and multicast addresses
/// are not public.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let inner = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        // NAT64: the way to IPv4 for machines without it.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => inner(high, low),
        // 6to4.
        [0x2002, high, low, ..] => inner(high, low),
        // Teredo.
        [0x2001, 0, ..] => false,
        [0x2000..=0x3fff, ..] => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: &[&str] = &[
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "10.255.255.255",
        "100.64.0.1",
        "100.100.100.200",
        "127.0.0.1",
        "127.255.255.254",
        "169.254.0.1",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.192",
        "192.168.0.1",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::7f00:1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:8.8.8.8",
        "64:ff9b::a00:1",
        "64:ff9b:1::1",
        "2001:0:1::1",
        "2002:7f00:1::",
        "2002:c0a8:1::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "febf::1",
        "fec0::1",
        "ff02::1",
    ];

    const PUBLIC: &[&str] = &[
        "1.1.1.1",
        "9.255.255.255",
        "100.63.255.255",
        "100.128.0.1",
        "126.255.255.255",
        "128.0.0.1",
        "169.253.255.255",
        "172.15.255.255",
        "172.32.0.1",
        "192.167.255.255",
        "198.20.0.1",
        "223.255.255.255",
        "2606:4700::1111",
        "2a00:1450::1",
        "64:ff9b::808:808",
        "2002:808:808::1",
    ];

    #[test]
    fn only_public_addresses_are_public() {
        for (addresses, expected) in [(REFUSED, false), (PUBLIC, true)] {
            for text in addresses {
                let address: IpAddr = text.parse().expect(text);
                assert_eq!(is_public(address), expected, "{text}");
                assert_eq!(NetworkReach::Public.allows(address), expected, "{text}");
                assert!(NetworkReach::Anywhere.allows(address), "{text}");
            }
        }
        for (text, expected) in [
            ("127.0.0.1", true),
            ("::1", true),
            ("10.0.0.1", false),
            ("8.8.8.8", false),
            ("::ffff:127.0.0.1", false),
        ] {
            let address: IpAddr = text.parse().expect(text);
            assert_eq!(NetworkReach::Loopback.allows(address), expected, "{text}");
        }
    }
}
