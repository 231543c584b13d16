//! Hello and `HelloAck`, in the private data of the MPA startup.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::shared::ADVERTS;
use rddp_ddp::UntaggedRepr;
use rddp_mpa::mulpdu;
use rddp_sdp::wire::{Addresses, Capabilities, Hello, HelloAck, LONGEST_CONTROL, Version};

use crate::Errno;
use crate::ended::{Ended, Why};
use crate::options::PrivateData;
use crate::rooms::RUNS;
use crate::sdp::Stream;
use crate::state::Rx;
use crate::sys::{BLOCK, MOST_BLOCKS, names};

impl Stream<'_> {
    /// Returns the private data of this end's Request: Hello.
    pub(super) fn hello(&self, rx: &mut Rx) -> Result<PrivateData, Errno> {
        self.choose_buffers(rx);
        let (own, peer) = match names(self.kernel.fd) {
            // TCP has been reset: whoever sends this frame learns it.
            Err(Errno::NOT_CONNECTED) => (NOBODY, NOBODY),
            names => names?,
        };
        let hello = Hello {
            version: Version::OURS,
            bufs: rx.sdp.bufs as u16,
            capabilities: Capabilities::default(),
            max_adverts: ADVERTS,
            desired_remote_size: rx.sdp.size,
            local_size: rx.sdp.size,
            port: own.port(),
            addresses: addresses(own, peer),
            ext_max_adverts: 0,
            rddp: true,
        };
        Ok(PrivateData::cut(&hello.octets()))
    }

    /// Returns the private data of this end's Reply: the answer to the Hello in `request`. `None`:
    /// that is no Hello.
    pub(super) fn hello_ack(&self, rx: &mut Rx, request: &[u8]) -> Option<PrivateData> {
        let hello = Hello::parse(request).ok()?;
        self.choose_buffers(rx);
        rx.sdp.begin(hello.bufs, hello.local_size, hello.max_adverts.get()).ok()?;
        let ack = HelloAck {
            version: Version::OURS,
            bufs: rx.sdp.bufs as u16,
            max_adverts: ADVERTS.get(),
            actual_size: rx.sdp.size,
            rddp: true,
        };
        Some(PrivateData::cut(&ack.octets()))
    }

    /// Takes the answer to this end's Hello out of the peer's private data.
    pub(super) fn take_hello_ack(&self, rx: &mut Rx, data: &[u8]) -> Result<(), Errno> {
        let begun = HelloAck::parse(data).ok().and_then(|ack| {
            let HelloAck { bufs, actual_size, max_adverts, .. } = ack;
            rx.sdp.begin(bufs, actual_size, max_adverts).ok()
        });
        if begun.is_none() {
            self.state.end.set(Ended::new(Why::NotSdp, Errno::PROTOCOL));
            self.kernel.reset();
            return Err(Errno::PROTOCOL);
        }
        // The responder may send only after a message, and the program may have none to send.
        rx.sdp.greet();
        self.state.sdp.begin_nudges();
        Ok(())
    }

    /// Chooses the receive buffers of this end, once.
    fn choose_buffers(&self, rx: &mut Rx) {
        if rx.sdp.size != 0 {
            return;
        }
        let asked = self.state.asked.format.sdp();
        // Markers make the FPDU of a path shorter, and may yet be agreed on.
        let emss = self.kernel.emss().unwrap_or(SAFE_EMSS).max(SAFE_EMSS);
        let of_path = mulpdu(emss, true).saturating_sub(UntaggedRepr::LEN) as u32;
        (rx.sdp.bufs, rx.sdp.size) = buffers(asked.bufs.into(), asked.size, of_path);
        // A sender without credits may need what lies behind all that the peer has credits for.
        rx.rooms.begin((rx.sdp.bufs * rx.sdp.size) as usize);
    }
}

/// Returns Bufs and the octets of each, on a path with FPDUs of `of_path` octets; 0 of those asked
/// for is the default.
fn buffers(bufs: u32, size: u32, of_path: u32) -> (u32, u32) {
    // The EMSS may grow: on loopback TCP halves it until it has seen the peer's window. A buffer
    // has room for longer FPDUs, and only their number is the path's.
    let (of_path, size) = if size == 0 { (of_path, of_path.saturating_mul(GROWTH)) } else { (size, size) };
    let size = size.clamp(LEAST_SIZE, MOST_SIZE);
    let bufs = if bufs == 0 { WINDOW.div_ceil(of_path.clamp(LEAST_SIZE, MOST_SIZE)) } else { bufs };
    (bufs.clamp(LEAST_BUFS, MOST_BUFS.min(MOST_ROOM / size)), size)
}

fn addresses(own: SocketAddr, peer: SocketAddr) -> Addresses {
    match (own.ip().to_canonical(), peer.ip().to_canonical()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Addresses::V4 { source, destination },
        (source, destination) => {
            let v6 = |addr| match addr {
                IpAddr::V4(addr) => addr.to_ipv6_mapped(),
                IpAddr::V6(addr) => addr,
            };
            Addresses::V6 { source: v6(source), destination: v6(destination) }
        }
    }
}

const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
/// Octets that the receive buffers of an end hold together in FPDUs of the path.
const WINDOW: u32 = 4 << 20;
/// A path's FPDUs may become so many times as long.
const GROWTH: u32 = 4;
/// The fewest buffers, and the most: the queue of octets that were moved out of the way has a place
/// for a message in each, and some for what comes between them.
const LEAST_BUFS: u32 = 256;
const MOST_BUFS: u32 = 2000;
/// Most octets of all buffers together, and so of a peer's Data that a program has not read: no
/// more than a queue has blocks for.
const MOST_ROOM: u32 = 32 << 20;
/// The shortest buffer holds each control message and some octets, the longest what one FPDU can.
const LEAST_SIZE: u32 = 4 * LONGEST_CONTROL as u32;
const MOST_SIZE: u32 = 65_535 - UntaggedRepr::LEN as u32;
/// The EMSS if TCP does not tell it.
const SAFE_EMSS: usize = 536;

const _: () = assert!(LEAST_BUFS * MOST_SIZE <= MOST_ROOM && (MOST_BUFS as usize) < RUNS);
const _: () = assert!((MOST_ROOM as usize) < MOST_BLOCKS as usize * BLOCK);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_credits_for_no_more_than_can_be_moved_out_of_the_way() {
        for of_path in [0, 500, 1400, 8900, 32_700, MOST_SIZE] {
            let (bufs, size) = buffers(0, 0, of_path);
            assert!(bufs * size <= 17 << 20, "{bufs} x {size}, {of_path}");
            assert!(bufs * of_path >= 4 << 20 || bufs == MOST_BUFS || of_path == 0, "{bufs}, {of_path}");
        }
        assert_eq!(buffers(0, 0, 32_700), (256, MOST_SIZE));
        assert_eq!(buffers(0, 0, 1400), (2000, 5600));
        assert_eq!(buffers(1, 2000, 1400), (256, 2000));
        assert_eq!(buffers(65_535, 2000, 1400), (2000, 2000));
        assert_eq!(buffers(65_535, 0, 32_700), (512, MOST_SIZE));
    }
}
