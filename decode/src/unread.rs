//! Reasons why a packet was not read.

use etherparse::{EtherType, IpNumber};

/// A reason why a packet was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Unread {
    /// A kind of link header (`LINKTYPE`) that the decoder does not know.
    #[error("link type {0}, which is not known")]
    Link(u16),
    /// No IP, but what this `EtherType` names.
    #[error("no IP, but EtherType {:?}", EtherType(*.0))]
    EtherType(u16),
    /// No IP, but a frame of IEEE 802.3, with its length in place of an `EtherType`.
    #[error("no IP, but a frame with an 802.3 length (LLC)")]
    Length,
    /// No IP, but what this number of PPP names.
    #[error("no IP, but protocol {0:#06x} of PPP")]
    Ppp(u16),
    /// No TCP, but what this protocol number of IP names.
    #[error("no TCP, but IP protocol {:?}", IpNumber(*.0))]
    Protocol(u8),
    /// The packet ends, or was cut by the snap length, within a header.
    #[error("cut short within the {0} header")]
    Short(Header),
    /// A header of a kind or version that the decoder does not know, or that contradicts itself.
    #[error("{0} header of a kind that is not known")]
    Kind(Header),
    /// More headers within each other than the decoder follows.
    #[error("too many headers within each other")]
    Nested,
    /// Fragments of an IP datagram others of which are not in the capture.
    #[error("fragments of IP datagrams that are not whole in the capture")]
    Fragment,
}

/// Headers in front of a TCP segment's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Header {
    /// The header of the link.
    Link,
    /// A tag of a VLAN.
    Vlan,
    /// A label of MPLS.
    Mpls,
    /// `PPPoE`, or PPP.
    Ppp,
    /// IP, and its extension headers.
    Ip,
    /// UDP.
    Udp,
    /// GRE.
    Gre,
    /// ERSPAN.
    Erspan,
    /// VXLAN.
    Vxlan,
    /// GENEVE.
    Geneve,
    /// TCP.
    Tcp,
}

impl core::fmt::Display for Header {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Link => "link",
            Self::Vlan => "VLAN",
            Self::Mpls => "MPLS",
            Self::Ppp => "PPP",
            Self::Ip => "IP",
            Self::Udp => "UDP",
            Self::Gre => "GRE",
            Self::Erspan => "ERSPAN",
            Self::Vxlan => "VXLAN",
            Self::Geneve => "GENEVE",
            Self::Tcp => "TCP",
        })
    }
}
