//! [`Grant`]: the only way to octets that a peer or a work request names.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rddp_mpa::crc32c_append;
use thiserror::Error;

use super::slot::Pin;

/// Proof that `len` octets lie in one live registration that the asker may use as it said, and that they stay so.
///
/// Offsets count from the first granted octet, and going past the last one panics, as with a slice. Octets are copied;
/// what is read while a peer writes it is a mixture of old and new. While a grant is held, invalidation and
/// deregistration of its STag wait: see the module's rule for holding one.
#[must_use]
pub struct Grant {
    /// What keeps the rest true.
    pin: Pin,
    ptr: NonNull<u8>,
    len: usize,
    writable: bool,
}

// SAFETY: the octets belong to the process, and are reached only by copies and atomics through raw pointers.
unsafe impl Send for Grant {}
// SAFETY: as above; nothing in a grant changes.
unsafe impl Sync for Grant {}

/// The address of an atomic operation is no multiple of eight (RFC 7306 §5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the atomic operation's address {addr:#x} is not a multiple of 8")]
pub struct Misaligned {
    /// The address in our memory.
    pub addr: u64,
}

/// Copies that are summed as well go in pieces that stay in the first-level cache between the two passes.
const CHUNK: usize = 4096;

impl Grant {
    /// What `pin` holds from `offset` on.
    ///
    /// # Safety
    /// `offset + len` must not pass the end of the pin's scope, and `writable` only if its rights let octets change.
    pub(super) unsafe fn new(pin: Pin, offset: usize, len: usize, writable: bool) -> Self {
        // SAFETY: inside the scope, by the caller's word, and so inside one mapping.
        let ptr = unsafe { pin.scope().ptr.add(offset) };
        Self { pin, ptr, len, writable }
    }

    /// How many octets are granted.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks for an empty grant")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether octets may be changed through it.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// A grant of part of this one.
    pub fn slice(&self, range: Range<usize>) -> Self {
        let ptr = self.at(&range);
        Self { pin: self.pin.clone(), ptr, len: range.len(), writable: self.writable }
    }

    /// Puts `data` at `offset`.
    pub fn place(&self, offset: usize, data: &[u8]) {
        let to = self.at_mut(&span(offset, data.len()));
        // SAFETY: `at_mut` gave room for all of `data` in live memory that may be written, which no reference such as
        // `data` covers: whoever registered it promised so, and memory of our own is never lent as one.
        unsafe { to.copy_from_nonoverlapping(NonNull::from(data).cast(), data.len()) };
    }

    /// Copies octets from `offset` on into `out`.
    pub fn copy_to(&self, offset: usize, out: &mut [u8]) {
        let from = self.at(&span(offset, out.len()));
        // SAFETY: `at` found that many octets in live memory, which no reference such as `out` covers.
        unsafe { from.copy_to_nonoverlapping(NonNull::from(&mut *out).cast(), out.len()) };
    }

    /// [`Grant::place`], with the CRC of `data` appended to `crc`, in one pass.
    pub fn place_with_crc(&self, offset: usize, data: &[u8], mut crc: u32) -> u32 {
        let mut at = offset;
        for chunk in data.chunks(CHUNK) {
            crc = crc32c_append(crc, chunk);
            self.place(at, chunk);
            at += chunk.len();
        }
        crc
    }

    /// [`Grant::copy_to`], with the CRC of what was copied appended to `crc`, in one pass. The CRC fits `out` even when
    /// the memory changes meanwhile.
    pub fn copy_to_with_crc(&self, offset: usize, out: &mut [u8], mut crc: u32) -> u32 {
        let mut at = offset;
        for chunk in out.chunks_mut(CHUNK) {
            self.copy_to(at, chunk);
            crc = crc32c_append(crc, chunk);
            at += chunk.len();
        }
        crc
    }

    /// The CRC of `len` octets from `offset` on, appended to `crc`.
    pub fn crc32c_append(&self, offset: usize, len: usize, mut crc: u32) -> u32 {
        // Through a copy in the first-level cache: a slice of octets that change under it must not exist.
        let mut copy = [0; CHUNK];
        let mut at = span(offset, len);
        while !at.is_empty() {
            let chunk = &mut copy[..at.len().min(CHUNK)];
            self.copy_to(at.start, chunk);
            crc = crc32c_append(crc, chunk);
            at.start += chunk.len();
        }
        crc
    }

    /// Replaces the first eight octets, a number in this machine's order, by what `change` makes of it, or leaves them if that is
    /// `None`; gives the number before. One atomic operation (RFC 7306 §5.3), also against other CPUs' atomics.
    pub fn fetch_modify_u64(&self, change: impl Fn(u64) -> Option<u64>) -> Result<u64, Misaligned> {
        let cell = self.at_mut(&(0..8)).cast::<u64>();
        // RFC 7306 §5.1: it is the address in memory that must be aligned, whatever the Tagged Offset.
        if !cell.is_aligned() {
            return Err(Misaligned { addr: cell.addr().get() as u64 });
        }
        // SAFETY: eight aligned octets in live memory that may be written; what else touches them while we do are
        // copies and atomics by raw pointers.
        let cell = unsafe { AtomicU64::from_ptr(cell.as_ptr()) };
        Ok(cell.fetch_update(Ordering::AcqRel, Ordering::Acquire, change).unwrap_or_else(|original| original))
    }

    /// Where a range inside the grant starts.
    #[inline]
    pub(super) fn at(&self, range: &Range<usize>) -> NonNull<u8> {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "octets {range:?} of a grant of {}",
            self.len
        );
        // SAFETY: `start` is at most `len`, and all `len` octets are in one mapping.
        unsafe { self.ptr.add(range.start) }
    }

    /// The same for writing.
    #[inline]
    pub(super) fn at_mut(&self, range: &Range<usize>) -> NonNull<u8> {
        assert!(self.writable, "a grant for reading only");
        self.at(range)
    }
}

/// `len` from `offset` on; past what can be counted it is a range that no grant has.
fn span(offset: usize, len: usize) -> Range<usize> {
    offset..offset.saturating_add(len)
}
