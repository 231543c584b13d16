//! The socket calls of this process as its program finds them, none of which waits.
//!
//! What acts for a program, the ES-API and the threads, makes the very calls that the program would make: in the preloaded
//! library its own functions ([`install`]), which serve a socket in any mode; elsewhere the C library's.
#![allow(unsafe_code)] // C functions take pointers

mod accept;
mod calls;
mod memory;

use std::ffi::{c_int, c_void};

use libc::{msghdr, nfds_t, pollfd, sockaddr, socklen_t, ssize_t};
use once_cell::race::OnceBox;

use crate::next;

pub use accept::{AcceptAddr, Places};
pub use calls::{
    Address, accept, connect, file_length, is_ready, nonblocking, poll, read_at, receive, send, send_octets,
    socket_error, would_block,
};
pub use memory::{Pieces, PollPlaces};

/// Socket calls, each with the contract of the C function of its name.
///
/// # Safety
/// They keep that contract, from any thread.
#[expect(clippy::missing_safety_doc, reason = "as in C")]
#[expect(missing_docs, reason = "each is the C function of its name")]
pub unsafe trait Sockets: Sync {
    unsafe fn recvmsg(&self, fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t;
    unsafe fn sendmsg(&self, fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t;
    unsafe fn connect(&self, fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int;
    unsafe fn accept4(&self, fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int;
    unsafe fn poll(&self, fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    unsafe fn fcntl(&self, fd: c_int, command: c_int, argument: usize) -> c_int;
    unsafe fn getsockopt(
        &self,
        fd: c_int,
        level: c_int,
        name: c_int,
        value: *mut c_void,
        len: *mut socklen_t,
    ) -> c_int;
}

static INSTALLED: OnceBox<&'static dyn Sockets> = OnceBox::new();

/// Has these calls made from now on. The first to say so is heard.
pub fn install(sockets: &'static dyn Sockets) {
    let _ = INSTALLED.set(Box::new(sockets));
}

fn calls() -> &'static dyn Sockets {
    INSTALLED.get().copied().unwrap_or(&CLibrary)
}

/// The C library's own.
struct CLibrary;

// SAFETY: they are the C functions themselves.
unsafe impl Sockets for CLibrary {
    unsafe fn recvmsg(&self, fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t {
        // SAFETY: our caller's promise.
        unsafe { next::recvmsg(fd, msg, flags) }
    }

    unsafe fn sendmsg(&self, fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t {
        // SAFETY: our caller's promise.
        unsafe { next::sendmsg(fd, msg, flags) }
    }

    unsafe fn connect(&self, fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
        // SAFETY: our caller's promise.
        unsafe { next::connect(fd, addr, len) }
    }

    unsafe fn accept4(&self, fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int {
        // SAFETY: our caller's promise.
        unsafe { next::accept4(fd, addr, len, flags) }
    }

    unsafe fn poll(&self, fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
        // SAFETY: our caller's promise.
        unsafe { next::poll(fds, count, timeout) }
    }

    unsafe fn fcntl(&self, fd: c_int, command: c_int, argument: usize) -> c_int {
        // SAFETY: our caller's promise.
        unsafe { next::fcntl(fd, command, argument) }
    }

    unsafe fn getsockopt(
        &self,
        fd: c_int,
        level: c_int,
        name: c_int,
        value: *mut c_void,
        len: *mut socklen_t,
    ) -> c_int {
        // SAFETY: our caller's promise.
        unsafe { next::getsockopt(fd, level, name, value, len) }
    }
}
