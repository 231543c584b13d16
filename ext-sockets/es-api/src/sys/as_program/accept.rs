//! Places for accepted sockets and their peers' addresses.

use std::ffi::{c_int, c_void};

use libc::{sockaddr, socklen_t};
use rddp_real::Errno;

/// `exs_acceptaddr_t`: one accepted socket.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct AcceptAddr {
    /// Descriptor of the socket.
    pub fildes: c_int,
    /// Octets of room at `addr` before, octets of the address after.
    pub addr_len: socklen_t,
    /// Room for the peer's address, or null.
    pub addr: *mut sockaddr,
    /// Value of the program's own.
    pub ahandle: *mut c_void,
}

/// Places for accepted sockets, of which some are filled.
#[derive(Debug)]
pub struct Places {
    at: *mut AcceptAddr,
    count: usize,
    filled: usize,
}

// SAFETY: the memory stays for whichever thread uses it, as `new` requires.
unsafe impl Send for Places {}

impl Places {
    /// Takes `count` places.
    ///
    /// # Safety
    /// Until this is dropped they are there, with the room that they name, and nothing else reads
    /// or writes them.
    pub unsafe fn new(at: *mut AcceptAddr, count: usize) -> Self {
        Places { at, count, filled: 0 }
    }

    /// Returns the number of filled places.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Returns whether no more can be accepted.
    pub fn are_full(&self) -> bool {
        self.filled == self.count
    }

    /// Returns the address of the places.
    pub fn start(&self) -> *mut c_void {
        self.at.cast()
    }

    /// Returns the value that the program gave the first place.
    pub fn first_ahandle(&self) -> usize {
        // SAFETY: there is at least one place, which is there until this is dropped (`new`).
        if self.count == 0 { 0 } else { unsafe { (*self.at).ahandle }.expose_provenance() }
    }

    /// Fills the next place with the socket that `accept` returns; `accept` gets the room for an
    /// address.
    pub(super) fn fill(
        &mut self,
        accept: impl FnOnce(*mut sockaddr, *mut socklen_t) -> c_int,
    ) -> Result<(), Errno> {
        debug_assert!(!self.are_full());
        // SAFETY: the index is below `count`, and so many places are left to this value alone
        // (`new`).
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
