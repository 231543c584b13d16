//! The device by which a command makes its connections: what the option `--device` says, and what
//! results tell of it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rddp_rnic::{Rnic, RnicConfig};
use serde::Serialize;

use crate::complain;
use crate::failure::{Failure, LACKS};
use crate::out;

/// The device that a user asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Choice {
    /// None in particular: that of the variable `RDDP_DEVICE`, else software.
    #[default]
    Unsaid,
    /// The device of this host that the way to the peer leads through, else software.
    Auto,
    /// The device of this name, or `soft`.
    Named(String),
}

impl Choice {
    /// Returns the choice of software, whatever `RDDP_DEVICE` says.
    pub fn software() -> Self {
        Choice::Named(RnicConfig::SOFTWARE.to_owned())
    }

    /// Parses the option's value.
    pub fn parse(text: &str) -> Result<Self, String> {
        let is_name = !text.is_empty() && !text.contains(|c: char| "/,".contains(c) || c.is_whitespace());
        match text {
            list if list.contains(',') => Err("one device, as this end makes one connection".to_owned()),
            "auto" => Ok(Choice::Auto),
            name if is_name => Ok(Choice::Named(name.to_owned())),
            _ => Err("soft, auto, or the name of a device as rdma link shows it".to_owned()),
        }
    }

    /// Returns this choice, with the device that is found in place of [`Auto`](Self::Auto), which a
    /// line tells of. A peer with several addresses is reached by the first that any leads to.
    pub fn towards(&self, peer: impl FnOnce() -> Result<Vec<SocketAddr>, Failure>) -> Result<Self, Failure> {
        if *self != Choice::Auto {
            return Ok(self.clone());
        }
        let found = peer()?.into_iter().find_map(Rnic::device_towards).map(Choice::Named);
        let found = found.unwrap_or_else(Self::software);
        if let Choice::Named(name) = &found
            && !out::style().quiet
            && !out::style().json
        {
            complain!("rddp: --device auto: {name}");
        }
        Ok(found)
    }

    /// Opens the device. A choice of [`Auto`](Self::Auto) was to be made [before](Self::towards).
    pub fn open(&self) -> Result<Rnic, Failure> {
        Ok(Rnic::with_config(&self.config())?)
    }

    /// Opens the device as [`open`](Self::open) does, beside another: for one completion queue of
    /// both.
    pub(crate) fn open_beside(&self, other: &Rnic) -> Result<Rnic, Failure> {
        Ok(other.open_beside(&self.config())?)
    }

    fn config(&self) -> RnicConfig {
        let device = match self {
            Choice::Unsaid => None,
            Choice::Auto => Some(RnicConfig::SOFTWARE.to_owned()),
            Choice::Named(name) => Some(name.clone()),
        };
        RnicConfig { device, ..RnicConfig::default() }
    }
}

/// The device by which a connection was made, and its protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct By {
    /// The device's name, or `soft`.
    pub device: String,
    /// The protocol that it speaks.
    pub transport: String,
}

impl By {
    /// Returns what results tell of a device.
    pub fn of(rnic: &Rnic) -> Self {
        By { device: rnic.device().to_owned(), transport: rnic.capabilities().protocol.to_string() }
    }

    /// Returns what results tell of messages over plain TCP or UDP.
    pub fn without_rdma(by_datagrams: bool) -> Self {
        let transport = if by_datagrams { "udp" } else { "tcp" };
        By { device: RnicConfig::SOFTWARE.to_owned(), transport: transport.to_owned() }
    }

    /// Returns the failure of a command that asks for what the device does not have.
    pub fn lacks(&self, what: &str) -> Failure {
        Failure::failed(format!("{self} does not have {what}")).remedy(LACKS)
    }

    /// Returns whether a device of the host moves the octets.
    pub fn is_host(&self) -> bool {
        self.device != RnicConfig::SOFTWARE
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.device, self.transport)
    }
}

/// Returns an address of this host for both ends of a connection: of the loopback, or the device's.
pub fn own_address(rnic: &Rnic, ipv6: bool) -> Result<IpAddr, Failure> {
    let Some(own) = rnic.own_addresses() else {
        return Ok(if ipv6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() });
    };
    own.into_iter().find(|own| own.is_ipv6() == ipv6).ok_or_else(|| {
        let family = if ipv6 { "IPv6" } else { "IPv4" };
        Failure::failed(format!("{} has no {family} address", rnic.device())).remedy(ADD_ADDRESS)
    })
}

/// The remedy for a device without an address.
pub(crate) const ADD_ADDRESS: &str =
    "give its network interface one: rdma link shows the interface, ip address add adds an address";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_asked_for_by_word_or_name() {
        assert_eq!(Choice::parse("auto"), Ok(Choice::Auto));
        assert_eq!(Choice::parse("soft"), Ok(Choice::software()));
        assert_eq!(Choice::parse("mlx5_0"), Ok(Choice::Named("mlx5_0".to_owned())));
        for text in ["", "a b", "siw0/192.0.2.1"] {
            assert!(Choice::parse(text).is_err(), "{text}");
        }
        assert!(Choice::parse("soft,rxe0").unwrap_err().contains("one device"));
    }

    #[test]
    fn no_device_leads_to_this_host_itself() {
        let peer = || Ok(vec!["127.0.0.1:1".parse().unwrap(), "[::1]:1".parse().unwrap()]);
        assert_eq!(Choice::Auto.towards(peer).unwrap(), Choice::software());
        let unasked = || Err(Failure::peer("nobody"));
        assert_eq!(Choice::Unsaid.towards(unasked).unwrap(), Choice::Unsaid);
        assert!(Choice::Auto.towards(unasked).is_err());
    }

    #[test]
    fn a_device_that_is_not_there_is_refused_with_what_helps() {
        let refused = Choice::Named("siw77".to_owned()).open().unwrap_err();
        assert!(refused.how().unwrap().contains("--device soft"), "{refused}");
        assert!(!refused.to_string().contains("RnicConfig"), "{refused}");
        assert!(!By::of(&Choice::software().open().unwrap()).is_host());
    }
}
