//! System calls of UDP sockets: datagrams to and from an address, many by one call, and what the
//! network says of them. They never block.

use std::ffi::c_int;
use std::io::{self, IoSlice};
use std::mem::{MaybeUninit, offset_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

use rddp_capture::Direction;
use socket2::{SockAddr, SockRef};

use super::io::{Piece, fill, retry, with_vector};

/// Octets in front of each datagram in its buffer, which the kernel leaves alone.
pub const MARGIN: usize = rddp_rdma::Datagram::LEN;

/// The longest datagram or bundle of datagrams.
const LONGEST: usize = 65_535;

/// The greatest number of buffers that one call fills.
pub const MOST_BUFFERS: usize = 16;

/// Octets for control messages, aligned as those are.
type Control = [u64; 24];

/// Sends `pieces` to an address by one call: as one datagram, or cut into datagrams of `segment`
/// octets, of which the last may be shorter. All of them are sent, or none. There are at most 1,024
/// pieces.
pub fn send_datagrams(
    fd: BorrowedFd<'_>,
    to: &SockAddr,
    pieces: &[Piece<'_>],
    segment: Option<u16>,
) -> io::Result<usize> {
    with_vector(pieces.len(), |vector| {
        fill(vector, pieces);
        let mut control: [u64; 3] = [0; 3];
        let mut message = vector.message();
        message.msg_name = to.as_ptr().cast_mut().cast();
        message.msg_namelen = to.len();
        if let Some(segment) = segment {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&control) as _;
            // SAFETY: the control buffer is aligned, and has room for one message of two octets.
            unsafe {
                let first = libc::CMSG_FIRSTHDR(&raw const message);
                (*first).cmsg_level = libc::SOL_UDP;
                (*first).cmsg_type = libc::UDP_SEGMENT;
                (*first).cmsg_len = libc::CMSG_LEN(2) as _;
                libc::CMSG_DATA(first).cast::<u16>().write_unaligned(segment);
                message.msg_controllen = libc::CMSG_SPACE(2) as _;
            }
        }
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: the pieces are borrowed slices or ranges that grants found in live memory, the
        // address and the control message are on the stack; the call only reads them.
        let sent = retry(|| unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, flags) })?;
        if rddp_capture::is_on() {
            // SAFETY: an `IoSlice` is an `iovec` in its form, and the octets are as they were
            // during the call.
            let pieces =
                unsafe { std::slice::from_raw_parts(message.msg_iov.cast(), message.msg_iovlen as _) };
            record(fd, to, pieces, sent, segment);
        }
        Ok(sent)
    })
}

/// Records what a call has sent.
#[cold]
fn record(fd: BorrowedFd<'_>, to: &SockAddr, pieces: &[IoSlice<'_>], sent: usize, segment: Option<u16>) {
    let local = SockRef::from(&fd).local_addr().ok().and_then(|local| local.as_socket());
    if let (Some(local), Some(to)) = (local, to.as_socket()) {
        let segment = segment.map_or(sent, usize::from);
        let names = [local, to].map(|addr| SocketAddr::new(addr.ip().to_canonical(), addr.port()));
        rddp_capture::datagrams(names, Direction::Sent, pieces, sent, segment);
    }
}

/// The kernel's words about a buffer of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    pub source: SocketAddr,
    /// The address of this host that they were sent to, where the socket has several.
    pub destination: Option<IpAddr>,
    pub traffic_class: u8,
    /// Octets of all of them.
    pub len: usize,
    /// Octets of each but the last, which may have fewer.
    pub segment: usize,
    /// The datagrams that the socket has dropped in its life, by a count that wraps; 0 if none.
    pub overflow: u32,
}

/// Buffers for datagrams, of which there are as many as a call has wanted.
#[derive(Default)]
pub struct Inbox {
    buffers: Vec<Vec<u8>>,
    /// Senders of the buffers that the last call filled; `None` where one cannot be named.
    received: Vec<Option<Received>>,
}

impl Inbox {
    /// Receives into up to `buffers` buffers, one datagram or one bundle of one sender into each.
    /// Returns the number of buffers that have some; `WouldBlock` when nothing is there now.
    pub fn receive(&mut self, fd: BorrowedFd<'_>, buffers: usize) -> io::Result<usize> {
        let count = buffers.clamp(1, MOST_BUFFERS);
        while self.buffers.len() < count {
            self.buffers.push(vec![0; MARGIN + LONGEST]);
        }
        self.received.clear();
        let mut names: [MaybeUninit<libc::sockaddr_storage>; MOST_BUFFERS] =
            [const { MaybeUninit::uninit() }; MOST_BUFFERS];
        let mut controls: [MaybeUninit<Control>; MOST_BUFFERS] =
            [const { MaybeUninit::uninit() }; MOST_BUFFERS];
        let mut rooms: [MaybeUninit<libc::iovec>; MOST_BUFFERS] =
            [const { MaybeUninit::uninit() }; MOST_BUFFERS];
        let mut headers: [MaybeUninit<libc::mmsghdr>; MOST_BUFFERS] =
            [const { MaybeUninit::uninit() }; MOST_BUFFERS];
        for at in 0..count {
            let room = &mut self.buffers[at][MARGIN..];
            rooms[at].write(libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() });
            // SAFETY: integers and pointers, for all of which zero is valid.
            let header = headers[at].write(unsafe { std::mem::zeroed() });
            header.msg_hdr.msg_name = names[at].as_mut_ptr().cast();
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_storage>() as _;
            header.msg_hdr.msg_iov = rooms[at].as_mut_ptr();
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = controls[at].as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = size_of::<Control>() as _;
        }
        let first = headers.as_mut_ptr().cast::<libc::mmsghdr>();
        // SAFETY: `count` headers are written, whose pointers are to buffers that live on here.
        let filled = unsafe { receive_into(fd, first, count) }?;
        for header in &headers[..filled] {
            // SAFETY: the kernel has filled as many headers, their names and control messages.
            let received = unsafe { received(header.assume_init_ref()) };
            self.received.push(received);
        }
        Ok(self.received.len())
    }

    /// Returns what a buffer has, and its octets, of which the first [`MARGIN`] are not the
    /// kernel's; `None` where the sender has no address of IP.
    pub fn filled(&mut self, at: usize) -> Option<(Received, &mut [u8])> {
        let received = self.received[at]?;
        Some((received, &mut self.buffers[at][..MARGIN + received.len]))
    }
}

/// Receives into so many headers by one call, and returns the number of those that are filled. A
/// call for one of them costs less.
///
/// # Safety
/// `count` headers are written, and their pointers are to memory of the lengths that they say.
unsafe fn receive_into(fd: BorrowedFd<'_>, first: *mut libc::mmsghdr, count: usize) -> io::Result<usize> {
    let (fd, flags) = (fd.as_raw_fd(), libc::MSG_DONTWAIT);
    // SAFETY: as many headers are written as are read, and the memory they name is as they say: the
    // caller's promise.
    unsafe {
        if count > 1 {
            let timeout = std::ptr::null_mut();
            return retry(|| libc::recvmmsg(fd, first, count as _, flags, timeout) as libc::ssize_t);
        }
        let len = retry(|| libc::recvmsg(fd, &raw mut (*first).msg_hdr, flags))?;
        (*first).msg_len = len as _;
        Ok(1)
    }
}

/// Reads what the kernel has written. `None` without the address of a sender.
///
/// # Safety
/// The kernel has filled in the header, the name and the control messages it points to.
unsafe fn received(header: &libc::mmsghdr) -> Option<Received> {
    let (message, len) = (&header.msg_hdr, header.msg_len as usize);
    // SAFETY: the kernel has filled in the name, as the caller promises.
    let source = unsafe { address(message.msg_name.cast(), message.msg_namelen) }?;
    let (destination, traffic_class, overflow) = Default::default();
    let mut received = Received { source, destination, traffic_class, len, segment: len, overflow };
    // SAFETY: the kernel has filled in the control messages, as the caller promises.
    unsafe {
        for_each_control(message, |level, kind, data| match (level, kind) {
            // An `int`: whoever reads two octets of it takes bundles for datagrams.
            (libc::SOL_UDP, libc::UDP_GRO) => {
                if let Some(segment) = int(data).and_then(|segment| usize::try_from(segment).ok()) {
                    received.segment = segment.max(1);
                }
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                received.overflow = int(data).unwrap_or(0).cast_unsigned();
            }
            (libc::IPPROTO_IP, libc::IP_TOS) => received.traffic_class = data.first().copied().unwrap_or(0),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                received.traffic_class = int(data).unwrap_or(0) as u8;
            }
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let at = offset_of!(libc::in_pktinfo, ipi_addr);
                let ip = data.get(at..at + 4).and_then(|octets| <[u8; 4]>::try_from(octets).ok());
                received.destination = ip.map(|ip| Ipv4Addr::from(ip).into());
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let ip = data.get(..16).and_then(|octets| <[u8; 16]>::try_from(octets).ok());
                received.destination = ip.map(|ip| Ipv6Addr::from(ip).to_canonical());
            }
            _ => {}
        });
    }
    Some(received)
}

/// Calls `f` with the level, the type and the octets of each control message.
///
/// # Safety
/// The kernel has filled in the header and the control messages it points to.
unsafe fn for_each_control(message: &libc::msghdr, mut f: impl FnMut(c_int, c_int, &[u8])) {
    // SAFETY: the caller's promise; `cmsg_len` is within the buffer, since the kernel has set it.
    unsafe {
        let mut next = libc::CMSG_FIRSTHDR(&raw const *message);
        while let Some(control) = next.as_ref() {
            let len = control.cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
            let data = std::slice::from_raw_parts(libc::CMSG_DATA(next), len);
            f(control.cmsg_level, control.cmsg_type, data);
            next = libc::CMSG_NXTHDR(&raw const *message, next);
        }
    }
}

fn int(data: &[u8]) -> Option<c_int> {
    Some(c_int::from_ne_bytes(*data.first_chunk()?))
}

/// Returns an address of the kernel's; one of IPv4 as such, also where a socket of IPv6 maps it.
///
/// # Safety
/// `len` octets at `name` have been written, and it is aligned as an address.
unsafe fn address(name: *const libc::sockaddr, len: libc::socklen_t) -> Option<SocketAddr> {
    let len = len as usize;
    if len < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: the caller's promise; as much is read as was written.
    unsafe {
        match c_int::from((*name).sa_family) {
            libc::AF_INET if len >= size_of::<libc::sockaddr_in>() => {
                let name = &*name.cast::<libc::sockaddr_in>();
                let ip = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr));
                Some(SocketAddrV4::new(ip, u16::from_be(name.sin_port)).into())
            }
            libc::AF_INET6 if len >= size_of::<libc::sockaddr_in6>() => {
                let name = &*name.cast::<libc::sockaddr_in6>();
                let (ip, port) = (Ipv6Addr::from(name.sin6_addr.s6_addr), u16::from_be(name.sin6_port));
                Some(match ip.to_ipv4_mapped() {
                    Some(ip) => SocketAddrV4::new(ip, port).into(),
                    None => SocketAddrV6::new(ip, port, 0, name.sin6_scope_id).into(),
                })
            }
            _ => None,
        }
    }
}

/// An error that the socket has noted of a datagram sent earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The address that the datagram was sent to.
    pub to: Option<SocketAddr>,
    pub errno: c_int,
    /// True if the network has said so, false if this host.
    pub from_network: bool,
}

/// Takes the oldest error that the socket has noted; `WouldBlock` if there is none.
pub fn take_notice(fd: BorrowedFd<'_>) -> io::Result<Notice> {
    let mut name = MaybeUninit::<libc::sockaddr_storage>::zeroed();
    let mut control: [u64; 64] = [0; 64];
    // SAFETY: integers and pointers, for all of which zero is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = name.as_mut_ptr().cast();
    message.msg_namelen = size_of::<libc::sockaddr_storage>() as _;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: name and control messages have the lengths that the header says.
    retry(|| unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, flags) })?;
    // SAFETY: the kernel has filled in the name.
    let to = unsafe { address(name.as_ptr().cast(), message.msg_namelen) };
    let mut notice = Notice { to, errno: 0, from_network: false };
    // SAFETY: the kernel has filled in the control messages.
    unsafe {
        for_each_control(&message, |level, kind, data| {
            let is_error = matches!(
                (level, kind),
                (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
            );
            if is_error && let (Some(errno), Some(origin)) = (int(data), data.get(4)) {
                (notice.errno, notice.from_network) = (errno, *origin != libc::SO_EE_ORIGIN_LOCAL);
            }
        });
    }
    Ok(notice)
}

/// Sets an option whose value is a number.
pub fn set_option(fd: BorrowedFd<'_>, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    let len = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: the value lives through the call, and the length is its size.
    let outcome = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;

    use super::*;

    /// Only addresses of IP can be named in front of a datagram.
    #[test]
    fn a_sender_without_an_address_is_none_and_counts() {
        let (near, far) = UnixDatagram::pair().unwrap();
        near.send(b"one").unwrap();
        near.send(b"two").unwrap();
        let mut inbox = Inbox::default();
        assert_eq!(inbox.receive(far.as_fd(), 4).unwrap(), 2);
        assert!((0..2).all(|at| inbox.filled(at).is_none()));
    }

    #[test]
    fn each_buffer_keeps_its_sender_behind_one_that_has_none() {
        let (near, far) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        for message in [&b"first"[..], b"second", b"3"] {
            near.send_to(message, far.local_addr().unwrap()).unwrap();
        }
        let mut inbox = Inbox::default();
        assert_eq!(inbox.receive(far.as_fd(), 3).unwrap(), 3);
        inbox.received[0] = None;
        assert!(inbox.filled(0).is_none());
        for (at, message) in [(1, &b"second"[..]), (2, b"3")] {
            let (received, octets) = inbox.filled(at).unwrap();
            assert_eq!((received.source, received.len), (near.local_addr().unwrap(), message.len()));
            assert_eq!(&octets[MARGIN..], message);
        }
    }
}
