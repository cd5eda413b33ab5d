//! Addresses that untrusted targets must not have.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses outside the link-local ranges where clouds serve credentials and settings of a machine.
const METADATA_V4: [Ipv4Addr; 3] = [
    // Alibaba Cloud.
    Ipv4Addr::new(100, 100, 100, 200),
    // Azure.
    Ipv4Addr::new(168, 63, 129, 16),
    // Oracle Cloud.
    Ipv4Addr::new(192, 0, 0, 192),
];
/// Range of Amazon's services of one machine, such as those of metadata and of Pod Identity.
const AMAZON_METADATA_V6: [u16; 2] = [0xfd00, 0xec2];
const METADATA_V6: [Ipv6Addr; 2] = [
    // Google Cloud.
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    // Scaleway.
    Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42),
];
/// Address of the metadata service in most clouds, in the link-local range.
const COMMON_METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);

/// Kind of an address that untrusted targets must not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestrictedKind {
    /// Address of the machine itself.
    Loopback,
    /// Address that is valid only on one link.
    LinkLocal,
    /// Address where a cloud serves credentials of the machine.
    Metadata,
    /// Address that means any address, which connects to the machine itself.
    Unspecified,
    /// Address of a group of machines, broadcast included.
    Multicast,
    /// Address without a defined use.
    Reserved,
}

/// Returns the kind of a restricted address, None for other addresses. An IPv6 address that contains an IPv4
/// address (mapped, compatible, NAT64, 6to4) is restricted like that.
pub fn restricted_kind(address: IpAddr) -> Option<RestrictedKind> {
    match address {
        IpAddr::V4(address) => restricted_v4(address),
        IpAddr::V6(address) => restricted_v6(address),
    }
}

fn restricted_v4(address: Ipv4Addr) -> Option<RestrictedKind> {
    let first = address.octets()[0];
    if address == COMMON_METADATA || METADATA_V4.contains(&address) {
        Some(RestrictedKind::Metadata)
    } else if address.is_loopback() {
        Some(RestrictedKind::Loopback)
    } else if address.is_link_local() {
        Some(RestrictedKind::LinkLocal)
    } else if first == 0 {
        Some(RestrictedKind::Unspecified)
    } else if address.is_multicast() || address.is_broadcast() {
        Some(RestrictedKind::Multicast)
    } else if first >= 240 {
        Some(RestrictedKind::Reserved)
    } else {
        None
    }
}

fn restricted_v6(address: Ipv6Addr) -> Option<RestrictedKind> {
    if METADATA_V6.contains(&address) || address.segments().starts_with(&AMAZON_METADATA_V6) {
        Some(RestrictedKind::Metadata)
    } else if address.is_loopback() {
        Some(RestrictedKind::Loopback)
    } else if address.is_unspecified() {
        Some(RestrictedKind::Unspecified)
    } else if address.is_unicast_link_local() {
        Some(RestrictedKind::LinkLocal)
    } else if address.is_multicast() {
        Some(RestrictedKind::Multicast)
    } else {
        embedded_v4(address).and_then(restricted_v4)
    }
}

/// Returns the IPv4 address that an IPv6 address leads to.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let low = Ipv4Addr::from(u128::from(address) as u32);
    match address.segments() {
        // Mapped, compatible, and translated (RFC 2765).
        [0, 0, 0, 0, 0, 0xffff | 0, _, _] | [0, 0, 0, 0, 0xffff, 0, _, _] => Some(low),
        // NAT64: the well-known and the local prefix.
        [0x64, 0xff9b, 0, 0, 0, 0, _, _] | [0x64, 0xff9b, 1, _, _, _, _, _] => Some(low),
        // 6to4.
        [0x2002, high, low, ..] => Some(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low))),
        _ => None,
    }
}

impl fmt::Display for RestrictedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loopback => "loopback",
            Self::LinkLocal => "link-local",
            Self::Metadata => "metadata",
            Self::Unspecified => "unspecified",
            Self::Multicast => "multicast",
            Self::Reserved => "reserved",
        })
    }
}
