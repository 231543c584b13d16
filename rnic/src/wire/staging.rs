//! Staging: a buffer of the reading thread, in which octets lie between TCP and their place.

use std::cell::Cell;

use crate::scratch::{Own, with_own};

/// Octets of the buffer: room for several of the largest FPDUs.
pub(super) const STAGING_LEN: usize = 256 * 1024;

thread_local! {
    static BUFFER: Own<Staging> = const { Cell::new(None) };
}

/// Octets that have been read and not been handled, at the front of a buffer of the calling thread.
#[derive(Debug)]
pub(crate) struct Staging {
    pub(super) octets: Vec<u8>,
    pub(super) have: usize,
    /// The last read has shown that TCP has nothing more now.
    pub(super) dry: bool,
}

impl Default for Staging {
    fn default() -> Self {
        Staging { octets: vec![0; STAGING_LEN], have: 0, dry: false }
    }
}

impl Staging {
    /// Lends `f` the buffer of the calling thread, empty.
    #[inline]
    pub(crate) fn with_own<R>(f: impl FnOnce(&mut Self) -> R) -> R {
        with_own(&BUFFER, |staging: &mut Self| {
            staging.clear();
            f(staging)
        })
    }

    /// Throws away what has not been handled. Returns how many octets that was.
    pub(crate) fn clear(&mut self) -> usize {
        std::mem::take(&mut self.have)
    }

    /// Drops what has been handled from the front.
    pub(super) fn consume(&mut self, used: usize) {
        self.octets.copy_within(used..self.have, 0);
        self.have -= used;
    }
}
