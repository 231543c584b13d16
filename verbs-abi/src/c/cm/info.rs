//! `rdma_getaddrinfo`: names and services as addresses.

use std::ffi::{c_char, c_int};

use nix::errno::Errno;

use super::super::abi::{Plain, port_space, qp_type, rai, rdma_addrinfo};
use super::super::border::minus;
use crate::refusal::because;

/// An answer, with room for its addresses behind it.
#[repr(C)]
struct Answer {
    info: rdma_addrinfo,
    source: libc::sockaddr_storage,
    destination: libc::sockaddr_storage,
}

/// Copies an address into the answer's own room. Returns its length.
///
/// # Safety
/// As many octets can be read; room for any address is at `to`.
unsafe fn copy(
    from: *const libc::sockaddr,
    len: libc::socklen_t,
    to: *mut libc::sockaddr_storage,
) -> libc::socklen_t {
    let len = (len as usize).min(size_of::<libc::sockaddr_storage>());
    // SAFETY: promised by the caller.
    unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast::<u8>(), len) };
    len as libc::socklen_t
}

impl Answer {
    fn new(hints: &rdma_addrinfo) -> Box<Answer> {
        let mut info = rdma_addrinfo::zeroed();
        info.ai_flags = hints.ai_flags;
        info.ai_qp_type = match (hints.ai_qp_type, hints.ai_port_space as u32) {
            (0, port_space::UDP) => qp_type::UD as c_int,
            (0, _) => qp_type::RC as c_int,
            (kind, _) => kind,
        };
        info.ai_port_space = match (hints.ai_port_space, info.ai_qp_type as u32) {
            (0, qp_type::RC) => port_space::TCP as c_int,
            (0, _) => port_space::UDP as c_int,
            (space, _) => space,
        };
        let (source, destination) = (libc::sockaddr_storage::zeroed(), libc::sockaddr_storage::zeroed());
        Box::new(Answer { info, source, destination })
    }

    /// # Safety
    /// The address can be read.
    unsafe fn set_source(&mut self, addr: *const libc::sockaddr, len: libc::socklen_t) {
        // SAFETY: promised by the caller.
        self.info.ai_src_len = unsafe { copy(addr, len, &raw mut self.source) };
        self.info.ai_src_addr = (&raw mut self.source).cast();
    }

    /// # Safety
    /// The address can be read.
    unsafe fn set_destination(&mut self, addr: *const libc::sockaddr, len: libc::socklen_t) {
        // SAFETY: promised by the caller.
        self.info.ai_dst_len = unsafe { copy(addr, len, &raw mut self.destination) };
        self.info.ai_dst_addr = (&raw mut self.destination).cast();
    }
}

/// Has the C library look a name up. The error is its own, such as `EAI_NONAME`.
///
/// # Safety
/// NULL or C strings.
unsafe fn look_up(
    node: *const c_char,
    service: *const c_char,
    hints: &rdma_addrinfo,
) -> Result<*mut libc::addrinfo, c_int> {
    let flag = |rai: c_int, ai: c_int| if hints.ai_flags & rai != 0 { ai } else { 0 };
    // SAFETY: numbers and NULLs.
    let mut wanted: libc::addrinfo = unsafe { std::mem::zeroed() };
    wanted.ai_flags = flag(rai::PASSIVE, libc::AI_PASSIVE) | flag(rai::NUMERICHOST, libc::AI_NUMERICHOST);
    wanted.ai_family = flag(rai::FAMILY, hints.ai_family);
    wanted.ai_socktype = libc::SOCK_STREAM;
    let mut found = std::ptr::null_mut();
    // SAFETY: promised by the caller.
    match unsafe { libc::getaddrinfo(node, service, &raw const wanted, &raw mut found) } {
        0 => Ok(found),
        error => Err(error),
    }
}

/// Takes the answer's address from what a name, or a service, stands for.
///
/// # Safety
/// NULL or C strings.
unsafe fn resolve(
    node: *const c_char,
    service: *const c_char,
    hints: &rdma_addrinfo,
    answer: &mut Answer,
) -> Result<(), c_int> {
    // SAFETY: promised by the caller.
    let found = unsafe { look_up(node, service, hints)? };
    // SAFETY: what the C library has found.
    unsafe {
        let first = &*found;
        answer.info.ai_family = first.ai_family;
        if hints.ai_flags & rai::PASSIVE != 0 {
            answer.set_source(first.ai_addr, first.ai_addrlen);
        } else {
            answer.set_destination(first.ai_addr, first.ai_addrlen);
        }
        libc::freeaddrinfo(found);
    }
    Ok(())
}

/// Resolves a name, or takes the addresses of the hints where there is none.
pub(in crate::c) unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    to: *mut *mut rdma_addrinfo,
) -> c_int {
    let named = !node.is_null() || !service.is_null();
    if to.is_null() || (!named && hints.is_null()) {
        let why = "there is no name, no hint, or no room for the answer";
        return minus("rdma_getaddrinfo", Err(because(Errno::EINVAL, why)));
    }
    let none = rdma_addrinfo::zeroed();
    // SAFETY: NULL or the program's structure.
    let hints = unsafe { hints.as_ref() }.unwrap_or(&none);
    let mut answer = Answer::new(hints);
    if named {
        // SAFETY: the function's contract.
        if let Err(error) = unsafe { resolve(node, service, hints, &mut answer) } {
            return error;
        }
    } else {
        answer.info.ai_family = hints.ai_family;
    }
    // SAFETY: the program's own addresses, and room for the answer.
    unsafe {
        if !named && !hints.ai_dst_addr.is_null() && hints.ai_dst_len > 0 {
            answer.set_destination(hints.ai_dst_addr, hints.ai_dst_len);
        }
        if answer.info.ai_src_len == 0 && !hints.ai_src_addr.is_null() && hints.ai_src_len > 0 {
            answer.set_source(hints.ai_src_addr, hints.ai_src_len);
        }
        to.write(Box::into_raw(answer).cast());
    }
    0
}

pub(in crate::c) unsafe extern "C" fn rdma_freeaddrinfo(info: *mut rdma_addrinfo) {
    if !info.is_null() {
        // SAFETY: made by `rdma_getaddrinfo`, whose answer begins with it.
        drop(unsafe { Box::from_raw(info.cast::<Answer>()) });
    }
}

const _: () = assert!(std::mem::offset_of!(Answer, info) == 0);
