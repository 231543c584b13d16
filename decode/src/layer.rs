//! From a captured packet to a TCP segment, header by header: those of the link, of tunnels, of IP.

use core::net::{IpAddr, SocketAddr};

use etherparse::IpNumber;

use crate::capture::Packet;
use crate::fragments::Fragments;
use crate::ip::datagram;
use crate::unread::{Header, Unread};
use crate::{link, tunnel};

/// A TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment<'a> {
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    /// The sequence number.
    pub(crate) seq: u32,
    pub(crate) syn: bool,
    pub(crate) payload: &'a [u8],
    /// Octets of payload behind it that were not captured.
    pub(crate) cut: usize,
}

/// The header that comes next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Layer {
    Ethernet,
    EtherType(u16),
    Mpls,
    Ppp,
    Ip,
    /// The payload of IP between these ends.
    Transport(IpNumber, [IpAddr; 2]),
}

/// The header that comes next, and the octets that it begins.
pub(crate) type Next<'a> = Result<(Layer, &'a [u8]), Unread>;

/// Reads packets of a capture.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    fragments: Fragments,
}

impl Reader {
    /// Hands over the TCP segment in a packet, or in the datagram whose last fragment it is.
    pub(crate) fn read(
        &mut self,
        packet: &Packet<'_>,
        take: impl FnOnce(&Segment<'_>),
    ) -> Result<(), Unread> {
        let mut whole;
        let mut cut = packet.cut;
        let (mut layer, mut octets) = link::of_capture(packet.link, packet.octets)?;
        for _ in 0..MOST_HEADERS {
            (layer, octets) = match layer {
                Layer::Ethernet => link::ethernet(octets)?,
                Layer::EtherType(kind) => link::of_type(kind, octets)?,
                Layer::Mpls => link::mpls(octets)?,
                Layer::Ppp => link::ppp(octets)?,
                Layer::Transport(IpNumber::TCP, ends) => {
                    take(&segment(ends, octets, cut)?);
                    return Ok(());
                }
                Layer::Transport(protocol, _) => tunnel::of_protocol(protocol, octets)?,
                Layer::Ip => {
                    let datagram = datagram(octets, cut)?;
                    let transport = Layer::Transport(datagram.protocol, datagram.ends);
                    match datagram.fragment {
                        None => {
                            cut = datagram.cut;
                            (transport, datagram.payload)
                        }
                        Some(fragment) => {
                            let found = self.fragments.push(packet.time, &datagram, fragment);
                            let Some(found) = found else { return Ok(()) };
                            (whole, cut) = found;
                            (transport, &whole[..])
                        }
                    }
                }
            };
        }
        Err(Unread::Nested)
    }

    /// Returns the number of packets that are fragments of a datagram that has not become whole.
    pub(crate) fn fragments_left(&self) -> usize {
        self.fragments.left()
    }
}

/// Takes a header of `N` octets off the front.
pub(crate) fn take<const N: usize>(octets: &[u8], header: Header) -> Result<(&[u8; N], &[u8]), Unread> {
    octets.split_first_chunk().ok_or(Unread::Short(header))
}

/// Reads a segment, whose options may have been cut off.
fn segment(ends: [IpAddr; 2], octets: &[u8], cut: usize) -> Result<Segment<'_>, Unread> {
    let (header, _) = take::<20>(octets, Header::Tcp)?;
    let len = usize::from(header[12] >> 4) * 4;
    if len < header.len() {
        return Err(Unread::Kind(Header::Tcp));
    }
    let port = |at| u16::from_be_bytes([header[at], header[at + 1]]);
    let payload = octets.get(len..).unwrap_or_default();
    Ok(Segment {
        source: SocketAddr::new(ends[0], port(0)),
        destination: SocketAddr::new(ends[1], port(2)),
        seq: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
        syn: header[13] & SYN != 0,
        payload,
        cut: (octets.len() + cut).saturating_sub(len) - payload.len(),
    })
}

const SYN: u8 = 2;

/// Headers in front of a segment at most: tags, labels and tunnels.
const MOST_HEADERS: usize = 32;
