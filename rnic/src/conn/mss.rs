//! The segment size that TCP is asked for, so that FPDUs fill its segments (RFC 5044 §5.1).
//!
//! An FPDU is a multiple of four octets long. Where the length of segments is not, as with an MTU
//! of 1450 (VXLAN) or 9001, no FPDU fills a segment, and FPDUs are not aligned with segments. TCP
//! takes a smaller segment size only before its handshake, so the path is asked for its MTU before.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::IpMtu;
use rddp_iwarp::Segments;
use socket2::Socket;

/// Makes the segments of a connection to `addr`, which is not begun yet, multiples of four octets.
/// Where the path is not known, or TCP refuses, the segments stay as they are.
pub(super) fn fit_to_path(socket: &Socket, addr: SocketAddr) {
    if let Some(mss) = path_mtu(addr).and_then(|mtu| fitting_mss(mtu, addr.is_ipv6())) {
        let _ = socket.set_tcp_mss(mss);
    }
}

/// Returns the MTU of the path to `addr`, as far as the system knows. Nothing is sent.
fn path_mtu(addr: SocketAddr) -> Option<u32> {
    let any = if addr.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let udp = UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
    udp.connect(addr).ok()?;
    u32::try_from(getsockopt(&udp, IpMtu).ok()?).ok()
}

/// Returns the MSS to ask for, if the one of a path with this MTU is no multiple of four, and FPDUs
/// are aligned with such segments.
fn fitting_mss(mtu: u32, is_ipv6: bool) -> Option<u32> {
    // The headers are multiples of four, and so are TCP's timestamps.
    let headers = if is_ipv6 { IPV6_HEADER } else { IPV4_HEADER } + TCP_HEADER;
    let mss = mtu.checked_sub(headers)?;
    let fitting = mss - mss % 4;
    (fitting < mss && Segments::new(fitting as usize, 0).is_set()).then_some(fitting)
}

const IPV4_HEADER: u32 = 20;
const IPV6_HEADER: u32 = 40;
const TCP_HEADER: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 5044 §5.1: FPDUs, which are multiples of four octets, fill segments that are, too.
    #[test]
    fn a_segment_is_cut_to_a_multiple_of_four_octets() {
        for (mtu, mss) in [(1450, 1408), (1442, 1400), (9001, 8960), (1499, 1456)] {
            assert_eq!(fitting_mss(mtu, false), Some(mss));
            assert_eq!(fitting_mss(mtu, true), Some(mss - 20));
        }
        assert!([1500, 9000, 65_535, 1280, 39].iter().all(|mtu| fitting_mss(*mtu, false).is_none()));
    }

    #[test]
    fn the_mtu_of_a_path_is_that_of_its_device() {
        let lo: u32 = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap().trim().parse().unwrap();
        // No IP packet is longer.
        let lo = Some(lo.min(65_535));
        assert_eq!(path_mtu("127.0.0.1:9".parse().unwrap()), lo);
        // A system may be without IPv6, whose packets are as long as the device takes.
        if UdpSocket::bind("[::1]:0").is_ok() {
            assert!(path_mtu("[::1]:9".parse().unwrap()) >= lo);
        }
    }
}
