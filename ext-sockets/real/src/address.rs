//! Socket addresses as C has them.

use std::ffi::c_int;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use libc::{iovec, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};
use rddp_fault_guard::{copy_out, mask};

use rddp_stream::{Errno, SameErrno, lent};

/// Octets of the longest address that is read.
const LONGEST: usize = size_of::<sockaddr_in6>();

/// Returns the internet address at a program's pointer; `None` for another family, and where no
/// memory is mapped. Leaves errno as it was.
///
/// A bad pointer does no harm: the fault guard reads through it, or the kernel in a thread that has
/// no guard yet.
pub fn address_of(addr: *const sockaddr, len: socklen_t) -> Option<SocketAddr> {
    let copy = copied(addr, len)?;
    parse(&copy.octets[..copy.len as usize])
}

/// A socket address as C has it.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    octets: [u8; LONGEST],
    len: socklen_t,
}

impl Address {
    /// Makes C's form of an address.
    pub fn of(addr: SocketAddr) -> Self {
        let addr = socket2::SockAddr::from(addr);
        let mut octets = [0; LONGEST];
        let len = LONGEST.min(addr.len() as usize);
        // SAFETY: an address has as many octets as it says, all of which it has set.
        octets[..len].copy_from_slice(unsafe { std::slice::from_raw_parts(addr.as_ptr().cast(), len) });
        Address { octets, len: len as socklen_t }
    }

    /// Returns the octets of it.
    pub fn octets(&self) -> &[u8] {
        &self.octets[..self.len as usize]
    }

    /// Returns pointer and length, for a call of C's.
    pub fn as_c(&self) -> (*const sockaddr, socklen_t) {
        (self.octets.as_ptr().cast(), self.len)
    }
}

/// Returns a copy of the address at a program's pointer with another family; `None` where
/// `kernels` has none for its own, and where no memory is mapped. Leaves errno as it was.
pub fn address_in_kernels_family(
    addr: *const sockaddr,
    len: socklen_t,
    kernels: impl FnOnce(c_int) -> Option<c_int>,
) -> Option<Address> {
    let mut copy = copied(addr, len)?;
    let (family, _) = copy.octets[..copy.len as usize].split_first_chunk_mut()?;
    let kernels = kernels(u16::from_ne_bytes(*family).into())?;
    *family = u16::try_from(kernels).ok()?.to_ne_bytes();
    Some(copy)
}

/// Copies as much as an internet address is long.
fn copied(addr: *const sockaddr, len: socklen_t) -> Option<Address> {
    let mut octets = [0u8; LONGEST];
    let len = LONGEST.min(len as usize);
    let address = |octets| Address { octets, len: len as socklen_t };
    if mask::is_adopted() {
        // SAFETY: `connect` may read these octets, so the program lets us; `copy_out` bears a bad
        // pointer, and no Rust reference covers them.
        let copied = unsafe { copy_out(addr.cast(), &mut octets[..len]) };
        return copied.ok().map(|()| address(octets));
    }
    read_by_kernel(addr, len, &mut octets).then(|| address(octets))
}

/// Copies `len` octets from the program's pointer by `process_vm_readv`; returns whether they are
/// mapped.
fn read_by_kernel(addr: *const sockaddr, len: usize, octets: &mut [u8; LONGEST]) -> bool {
    let own = iovec { iov_base: octets.as_mut_ptr().cast(), iov_len: len };
    let programs = iovec { iov_base: addr.cast_mut().cast(), iov_len: len };
    let same = SameErrno::here();
    // SAFETY: the kernel writes `len` octets to `octets`, which is as long; where the program's
    // pointer is bad the call fails.
    let copied = unsafe {
        libc::process_vm_readv(
            std::process::id() as libc::pid_t,
            &raw const own,
            1,
            &raw const programs,
            1,
            0,
        )
    };
    let refused = copied < 0 && Errno::last() != Errno::FAULT;
    drop(same);
    if refused {
        // A sandbox may not know the call, or refuse it: read directly, as `connect` itself would.
        // SAFETY: the program passed this pointer to be read by `connect`; it must be as good as
        // that call needs it.
        return !addr.is_null() && unsafe { lent::get_octets(addr.cast(), &mut octets[..len]) }.is_ok();
    }
    copied == len as isize
}

/// Connects by the C library's `connect`. Leaves errno as it was.
///
/// # Errors
/// The errno of the call.
pub fn connect_to(fd: c_int, to: SocketAddr) -> Result<(), Errno> {
    let addr = socket2::SockAddr::from(to);
    let _same = SameErrno::here();
    // SAFETY: the address is as long as it says.
    let got = unsafe { super::connect(fd, addr.as_ptr().cast(), addr.len()) };
    if got == 0 { Ok(()) } else { Err(Errno::last()) }
}

/// Returns the address that a socket is bound to; `None` for another family. Leaves errno as it
/// was.
pub fn local_address(fd: c_int) -> Option<SocketAddr> {
    name_by(fd, super::getsockname)
}

/// Returns the address that a socket is connected to; `None` for one that is not connected, or of
/// another family. Leaves errno as it was.
pub fn peer_address(fd: c_int) -> Option<SocketAddr> {
    name_by(fd, super::getpeername)
}

fn name_by(fd: c_int, ask: unsafe fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int) -> Option<SocketAddr> {
    let mut octets = [0u8; LONGEST];
    let mut len = LONGEST as socklen_t;
    let _same = SameErrno::here();
    // SAFETY: the kernel writes at most `len` octets to `octets`, which is as long.
    let got = unsafe { ask(fd, octets.as_mut_ptr().cast(), &raw mut len) };
    if got == 0 { parse(octets.get(..len as usize)?) } else { None }
}

fn parse(octets: &[u8]) -> Option<SocketAddr> {
    match c_int::from(u16::from_ne_bytes(*octets.first_chunk()?)) {
        libc::AF_INET if octets.len() >= size_of::<sockaddr_in>() => {
            // SAFETY: `octets` is longer than this type, of which any octets make a value; the read
            // needs no alignment.
            let addr = unsafe { octets.as_ptr().cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from_bits(u32::from_be(addr.sin_addr.s_addr));
            Some(SocketAddrV4::new(ip, u16::from_be(addr.sin_port)).into())
        }
        libc::AF_INET6 if octets.len() >= size_of::<sockaddr_in6>() => {
            // SAFETY: as for IPv4.
            let addr = unsafe { octets.as_ptr().cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(addr.sin6_addr.s6_addr);
            let port = u16::from_be(addr.sin6_port);
            Some(SocketAddrV6::new(ip, port, addr.sin6_flowinfo, addr.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn addresses_are_read_as_the_kernel_writes_them() {
        for addr in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(addr) else { continue };
            assert_eq!(local_address(listener.as_raw_fd()), Some(listener.local_addr().unwrap()));
        }
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(local_address(file.as_raw_fd()), None);
    }

    #[test]
    fn an_address_of_another_family_is_copied_with_the_kernel_s() {
        let mut octets = [0u8; 128];
        octets[..8].copy_from_slice(&[27, 0, 0, 80, 192, 0, 2, 1]);
        let pointer = octets.as_ptr().cast();
        let of_27 = |family| (family == 27).then_some(libc::AF_INET);
        let copy = address_in_kernels_family(pointer, 128, of_27).unwrap();
        let (at, len) = copy.as_c();
        assert_eq!(len, 28, "no more than was copied");
        assert_eq!(address_of(at, len), Some("192.0.2.1:80".parse().unwrap()));
        assert!(address_in_kernels_family(pointer, 128, |_| None).is_none());
        assert!(address_in_kernels_family(pointer, 1, of_27).is_none(), "too short for a family");
        assert!(address_in_kernels_family(std::ptr::null(), 16, of_27).is_none());
    }

    #[test]
    fn a_bad_pointer_gives_no_address() {
        let mut octets = [0u8; LONGEST];
        octets[..8].copy_from_slice(&[2, 0, 0, 80, 192, 0, 2, 1]);
        let len = size_of::<sockaddr_in>() as socklen_t;
        assert_eq!(address_of(octets.as_ptr().cast(), len), Some("192.0.2.1:80".parse().unwrap()));
        assert_eq!(address_of(octets.as_ptr().cast(), len - 1), None);
        assert_eq!(address_of(std::ptr::without_provenance(8), len), None);
        assert_eq!(address_of(std::ptr::null(), 0), None);
    }
}
