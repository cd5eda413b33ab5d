//! Range of IP addresses with a common prefix.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Range of IP addresses with a common prefix, such as `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpRange {
    address: IpAddr,
    prefix_bits: u8,
}

/// Text that is not a range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a range of addresses; write an address such as 127.0.0.1 or a range such as 10.0.0.0/8"
)]
pub struct IpRangeError {
    /// Rejected text.
    pub text: String,
}

impl IpRange {
    /// Returns whether the range contains an address. An IPv4 address in an IPv6 one counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(range), IpAddr::V4(address)) => {
                let difference = u32::from(range) ^ u32::from(address);
                difference.checked_shr(32 - u32::from(self.prefix_bits)).unwrap_or(0) == 0
            }
            (IpAddr::V6(range), IpAddr::V6(address)) => {
                let difference = u128::from(range) ^ u128::from(address);
                difference.checked_shr(128 - u32::from(self.prefix_bits)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl FromStr for IpRange {
    type Err = IpRangeError;

    fn from_str(text: &str) -> Result<Self, IpRangeError> {
        let error = || IpRangeError { text: text.to_owned() };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| error())?;
        let max_bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match bits {
            Some(bits) => bits.parse().map_err(|_| error())?,
            None => max_bits,
        };
        if prefix_bits > max_bits {
            return Err(error());
        }
        Ok(Self { address, prefix_bits })
    }
}

impl fmt::Display for IpRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}
