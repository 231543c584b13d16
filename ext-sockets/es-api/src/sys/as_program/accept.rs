//! Where accepted sockets and their peers' addresses go.

use std::ffi::{c_int, c_void};

use libc::{sockaddr, socklen_t};
use rddp_real::Errno;

/// `exs_acceptaddr_t`: one accepted socket.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct AcceptAddr {
    /// The descriptor.
    pub fildes: c_int,
    /// Octets at `addr`; then the address's length.
    pub addr_len: socklen_t,
    /// Room for the peer's address, or null.
    pub addr: *mut sockaddr,
    /// The program's.
    pub ahandle: *mut c_void,
}

/// Places for accepted sockets, of which some are filled.
#[derive(Debug)]
pub struct Places {
    at: *mut AcceptAddr,
    count: usize,
    filled: usize,
}

// SAFETY: whoever made it promised that the memory stays for whichever thread uses it.
unsafe impl Send for Places {}

impl Places {
    /// `count` of them.
    ///
    /// # Safety
    /// Until this is dropped they are there, with the room that they name, and nobody else changes or looks at them.
    pub unsafe fn new(at: *mut AcceptAddr, count: usize) -> Self {
        Places { at, count, filled: 0 }
    }

    /// How many are filled.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Whether no more can be accepted.
    pub fn are_full(&self) -> bool {
        self.filled == self.count
    }

    /// Where they are.
    pub fn start(&self) -> *mut c_void {
        self.at.cast()
    }

    /// The handle that the program gave the first.
    pub fn first_ahandle(&self) -> usize {
        // SAFETY: `new`'s promise; there is at least one.
        if self.count == 0 { 0 } else { unsafe { (*self.at).ahandle }.expose_provenance() }
    }

    /// Fills one by what `accept` makes of the place for an address.
    pub(super) fn fill(
        &mut self,
        accept: impl FnOnce(*mut sockaddr, *mut socklen_t) -> c_int,
    ) -> Result<(), Errno> {
        debug_assert!(!self.are_full());
        // SAFETY: `new`'s promise; the index is below `count`.
        let place = unsafe { &mut *self.at.add(self.filled) };
        let len = if place.addr.is_null() { std::ptr::null_mut() } else { &raw mut place.addr_len };
        let fd = accept(place.addr, len);
        if fd < 0 {
            return Err(Errno::last());
        }
        place.fildes = fd;
        self.filled += 1;
        Ok(())
    }
}
