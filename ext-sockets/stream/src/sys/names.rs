//! The addresses of a socket's two ends.

use std::ffi::c_long;
use std::mem::size_of;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;

use crate::Errno;

/// Returns the socket's own address and its peer's. The kernel is asked directly: a preloaded
/// library may stand before the C library's functions.
pub(crate) fn names(fd: RawFd) -> Result<(SocketAddr, SocketAddr), Errno> {
    Ok((name(libc::SYS_getsockname, fd)?, name(libc::SYS_getpeername, fd)?))
}

fn name(call: c_long, fd: RawFd) -> Result<SocketAddr, Errno> {
    // SAFETY: all zeros is an address of no family.
    let mut name: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    // SAFETY: both calls write at most `len` octets of the address, and `len`, which live until
    // they return.
    let done = unsafe { libc::syscall(call, fd, &raw mut name, &raw mut len) };
    if done < 0 {
        return Err(Errno::last());
    }
    match libc::c_int::from(name.sin6_family) {
        libc::AF_INET => {
            // SAFETY: the kernel has written an address of this family, which is the shorter one;
            // both are aligned alike.
            let name = unsafe { &*(&raw const name).cast::<libc::sockaddr_in>() };
            let addr = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr));
            Ok((addr, u16::from_be(name.sin_port)).into())
        }
        libc::AF_INET6 => {
            let addr = Ipv6Addr::from(name.sin6_addr.s6_addr);
            Ok((addr, u16::from_be(name.sin6_port)).into())
        }
        _ => Err(Errno(libc::EAFNOSUPPORT)),
    }
}
