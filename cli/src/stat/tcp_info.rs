//! Messages of the kernel's `inet_diag`: the request, and connections with their `tcp_info`
//! (`linux/inet_diag.h`, `linux/tcp.h`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::libc;
use serde::Serialize;

/// Counts and times that the kernel's TCP has of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct TcpInfo {
    /// Smoothed round trip time and its variance, in microseconds.
    pub(super) rtt_us: u32,
    pub(super) rttvar_us: u32,
    pub(super) snd_mss: u32,
    /// Congestion window, in segments.
    pub(super) cwnd: u32,
    /// Octets that the peer has acknowledged; the SYN counts as one.
    pub(super) bytes_acked: u64,
    pub(super) bytes_received: u64,
    pub(super) segs_out: u32,
    pub(super) segs_in: u32,
    pub(super) retrans: u32,
    /// Octets that the program has not read yet, and those that the peer has not acknowledged.
    pub(super) recv_queue: u32,
    pub(super) send_queue: u32,
}

/// A connection of the kernel's TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TcpSocket {
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    pub(super) info: TcpInfo,
}

/// One part of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// A connection, by the cookie of its socket.
    Connection(u64, TcpSocket),
    /// The answer is over.
    Done,
    /// The kernel refuses: an errno.
    Refused(i32),
}

/// Makes the request for all connections of an address family, in all states but `LISTEN`.
pub(super) fn request(family: u8) -> Vec<u8> {
    let mut octets = Vec::with_capacity(REQUEST_LEN);
    octets.extend((REQUEST_LEN as u32).to_ne_bytes());
    octets.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    octets.extend(REQUEST_DUMP.to_ne_bytes());
    octets.extend([0; 8]); // sequence number and port
    octets.extend([family, IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 0]);
    octets.extend((!LISTEN).to_ne_bytes());
    octets.resize(REQUEST_LEN, 0); // any addresses
    octets
}

/// Splits a datagram into messages; what is cut short or not understood is passed over.
pub(super) fn messages(datagram: &[u8]) -> impl Iterator<Item = Message> + '_ {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        loop {
            let (len, kind) = (u32_at(rest, 0)? as usize, u16_at(rest, 4)?);
            let body = rest.get(NLMSG..len)?;
            rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
            match kind {
                NLMSG_DONE => return Some(Message::Done),
                NLMSG_ERROR => return Some(Message::Refused(u32_at(body, 0)?.cast_signed().wrapping_neg())),
                SOCK_DIAG_BY_FAMILY => {
                    if let Some((cookie, socket)) = connection(body) {
                        return Some(Message::Connection(cookie, socket));
                    }
                }
                _ => {}
            }
        }
    })
}

/// Reads an `inet_diag_msg` and the attribute behind it that has the `tcp_info`.
fn connection(body: &[u8]) -> Option<(u64, TcpSocket)> {
    let cookie = u64::from(u32_at(body, COOKIE)?) | u64::from(u32_at(body, COOKIE + 4)?) << 32;
    let (recv_queue, send_queue) = (u32_at(body, QUEUES)?, u32_at(body, QUEUES + 4)?);
    let (local, peer) = (address(body, PORTS, ADDRESSES)?, address(body, PORTS + 2, ADDRESSES + 16)?);
    let mut rest = body.get(DIAG_MSG..)?;
    loop {
        let (len, kind) = (usize::from(u16_at(rest, 0)?), u16_at(rest, 2)?);
        let value = rest.get(4..len)?;
        if kind == u16::from(INET_DIAG_INFO) {
            let info = TcpInfo { recv_queue, send_queue, ..tcp_info(value) };
            return Some((cookie, TcpSocket { local, peer, info }));
        }
        rest = rest.get(len.next_multiple_of(4)..)?;
    }
}

/// Reads an address of the family that the body names.
fn address(body: &[u8], port: usize, ip: usize) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(*body.get(port..)?.first_chunk()?);
    let ip: [u8; 16] = *body.get(ip..)?.first_chunk()?;
    let ip = match i32::from(*body.first()?) {
        libc::AF_INET => IpAddr::V4(Ipv4Addr::new(ip[0], ip[1], ip[2], ip[3])),
        libc::AF_INET6 => IpAddr::V6(Ipv6Addr::from(ip)),
        _ => return None,
    };
    Some(SocketAddr::new(ip.to_canonical(), port))
}

/// Reads a `tcp_info`; fields that an older kernel does not have are 0.
fn tcp_info(value: &[u8]) -> TcpInfo {
    let short = |at| u32_at(value, at).unwrap_or(0);
    let long = |at| {
        value.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |octets| u64::from_ne_bytes(*octets))
    };
    TcpInfo {
        snd_mss: short(16),
        rtt_us: short(68),
        rttvar_us: short(72),
        cwnd: short(80),
        retrans: short(100),
        bytes_acked: long(120),
        bytes_received: long(128),
        segs_out: short(136),
        segs_in: short(140),
        ..TcpInfo::default()
    }
}

fn u32_at(octets: &[u8], at: usize) -> Option<u32> {
    octets.get(at..)?.first_chunk().map(|octets| u32::from_ne_bytes(*octets))
}

fn u16_at(octets: &[u8], at: usize) -> Option<u16> {
    octets.get(at..)?.first_chunk().map(|octets| u16::from_ne_bytes(*octets))
}

/// Octets of a header of netlink, and of the request with it.
const NLMSG: usize = 16;
const REQUEST_LEN: usize = NLMSG + 56;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const REQUEST_DUMP: u16 = 0x301;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const IPPROTO_TCP: u8 = 6;
const INET_DIAG_INFO: u8 = 2;
/// The bit of the state `TCP_LISTEN`.
const LISTEN: u32 = 1 << 10;
/// Places in an `inet_diag_msg`, and its length.
const PORTS: usize = 4;
const ADDRESSES: usize = 8;
const COOKIE: usize = 44;
const QUEUES: usize = 56;
const DIAG_MSG: usize = 72;

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// An answer as the kernel makes it: a connection, and the end.
    fn answer() -> Vec<u8> {
        let mut info = vec![0; 144];
        info[68..72].copy_from_slice(&50_u32.to_ne_bytes());
        info[120..128].copy_from_slice(&1001_u64.to_ne_bytes());
        info[140..144].copy_from_slice(&9_u32.to_ne_bytes());
        let mut body = vec![0; DIAG_MSG];
        body[0] = libc::AF_INET as u8;
        body[PORTS..PORTS + 4].copy_from_slice(&[0x1f, 0x90, 0, 80]);
        body[ADDRESSES..ADDRESSES + 4].copy_from_slice(&[10, 0, 0, 1]);
        body[COOKIE..COOKIE + 8].copy_from_slice(&0x1_0000_0002_u64.to_ne_bytes());
        body[QUEUES..QUEUES + 4].copy_from_slice(&7_u32.to_ne_bytes());
        // Another attribute comes first, of an odd length.
        body.extend([5, 0, 8, 0, 1, 0, 0, 0]);
        body.extend([148, 0, INET_DIAG_INFO, 0]);
        body.extend(info);
        let mut octets = framed(SOCK_DIAG_BY_FAMILY, &body);
        octets.extend(framed(NLMSG_DONE, &[0; 4]));
        octets
    }

    fn framed(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut octets = ((NLMSG + body.len()) as u32).to_ne_bytes().to_vec();
        octets.extend(kind.to_ne_bytes());
        octets.extend([0; 10]);
        octets.extend(body);
        octets
    }

    /// Each field is where the C library's structure has it.
    #[test]
    fn fields_are_read_from_their_places() {
        let octets: Vec<u8> = (0..36_u32).flat_map(|word| (4 * word).to_ne_bytes()).collect();
        let info = tcp_info(&octets);
        for (value, place) in [
            (info.snd_mss, offset_of!(libc::tcp_info, tcpi_snd_mss)),
            (info.rtt_us, offset_of!(libc::tcp_info, tcpi_rtt)),
            (info.rttvar_us, offset_of!(libc::tcp_info, tcpi_rttvar)),
            (info.cwnd, offset_of!(libc::tcp_info, tcpi_snd_cwnd)),
            (info.retrans, offset_of!(libc::tcp_info, tcpi_total_retrans)),
        ] {
            assert_eq!(value as usize, place);
        }
    }

    #[test]
    fn a_connection_is_read_with_its_cookie() {
        let info = TcpInfo { rtt_us: 50, bytes_acked: 1001, segs_in: 9, recv_queue: 7, ..TcpInfo::default() };
        let all: Vec<_> = messages(&answer()).collect();
        let [local, peer] = ["10.0.0.1:8080", "0.0.0.0:80"].map(|text| text.parse().unwrap());
        let socket = TcpSocket { local, peer, info };
        assert_eq!(all, [Message::Connection(0x1_0000_0002, socket), Message::Done]);
        let refused = framed(NLMSG_ERROR, &(-13_i32).to_ne_bytes());
        assert_eq!(messages(&refused).collect::<Vec<_>>(), [Message::Refused(13)]);
    }

    #[test]
    fn a_datagram_cut_or_changed_anywhere_is_read_as_far_as_it_goes() {
        let whole = answer();
        for len in 0..whole.len() {
            assert!(messages(&whole[..len]).count() <= 2);
        }
        for at in 0..whole.len() {
            for value in [0, 1, 4, 0xff] {
                let mut changed = whole.clone();
                changed[at] = value;
                assert!(messages(&changed).count() <= whole.len());
            }
        }
    }
}
