//! Octets that begin in the middle of a page, or a header before it.
//!
//! The speed of the kernel's copies depends on where in a page the octets lie, and an allocator's
//! choice depends on everything else that was allocated: with a library preloaded, on that.

use std::ops::{Deref, DerefMut};

use crate::spec::PLACE_IN_PAGE;

const PAGE: usize = 4096;

pub(super) struct Octets {
    room: Vec<u8>,
    start: usize,
    len: usize,
}

impl Octets {
    /// Makes octets, each as `octet` returns it. The first behind the header is at
    /// [`PLACE_IN_PAGE`].
    pub(super) fn new(header: usize, len: usize, octet: impl Fn(usize) -> u8) -> Self {
        let before = header.next_multiple_of(PAGE) + PLACE_IN_PAGE;
        let mut room = vec![0; len + before + PAGE];
        let start = room.as_ptr().align_offset(PAGE).min(PAGE) + before - header;
        for (at, place) in room[start..start + len].iter_mut().enumerate() {
            *place = octet(at);
        }
        Octets { room, start, len }
    }
}

impl Deref for Octets {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.room[self.start..self.start + self.len]
    }
}

impl DerefMut for Octets {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.room[self.start..self.start + self.len]
    }
}
