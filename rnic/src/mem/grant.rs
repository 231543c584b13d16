//! [`Grant`]: the only way to octets that a peer or a work request names.

use std::ops::Range;
use std::ptr::NonNull;

use rddp_fault_guard::Faulted;
use rddp_mpa::crc32c_append;
use thiserror::Error;

use super::file::{FilePart, FileRange};
use super::slot::{Pin, Scope};
use super::{Access, octets};

/// Proof that `len` octets lie in one live registration that the asker may use as it said, and that
/// they stay so.
///
/// Offsets count from the first granted octet, and going past the last one panics, as with a slice.
/// Octets are copied, or summed where they lie; what is read while a peer writes it is a mixture of
/// old and new. While a grant is held, invalidation and deregistration of its STag wait: see the
/// module's rule for holding one.
///
/// Memory that a program lends may go bad all the same (a file is cut short): then what touches it
/// returns [`Faulted`], and a part of the octets may have been copied.
#[must_use]
pub struct Grant {
    /// The pin that keeps the registration valid as long as the grant lives.
    pin: Pin,
    ptr: NonNull<u8>,
    len: usize,
    writable: bool,
}

// SAFETY: the octets belong to the process, and are reached only by copies and atomics through raw
// pointers.
unsafe impl Send for Grant {}
// SAFETY: as above; nothing in a grant changes.
unsafe impl Sync for Grant {}

/// The reason why an atomic operation was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AtomicError {
    /// The address is no multiple of eight (RFC 7306 §5.1).
    #[error("the atomic operation's address {addr:#x} is not a multiple of 8")]
    Misaligned {
        /// The address in our memory.
        addr: u64,
    },
    /// The memory has gone bad.
    #[error(transparent)]
    Faulted(#[from] Faulted),
}

/// Number of octets in a piece of a copy that is also summed: small enough to stay in the
/// first-level cache from one pass to the other, so that memory is read once.
const CHUNK: usize = 4096;

impl Grant {
    /// Returns a grant of `len` octets of the pin's scope, from `offset` on.
    ///
    /// # Safety
    /// `offset + len` must not pass the end of the scope, and `writable` may be set only
    /// if the rights of the scope let octets change.
    pub(super) unsafe fn new(pin: Pin, offset: usize, len: usize, writable: bool) -> Self {
        // SAFETY: the caller keeps `offset` within the scope, and a scope lies in one mapping.
        let ptr = unsafe { pin.scope().ptr.add(offset) };
        Self { pin, ptr, len, writable }
    }

    /// Returns the number of octets granted.
    #[allow(clippy::len_without_is_empty, reason = "nobody asks for an empty grant")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the octets may be changed through this grant.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Returns a grant of a part of this one's octets.
    pub fn slice(&self, range: Range<usize>) -> Self {
        let ptr = self.at(&range);
        Self { pin: self.pin.clone(), ptr, len: range.len(), writable: self.writable }
    }

    /// Keeps the first `len` octets only.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Returns whether the owner says that nobody changes the octets.
    #[inline]
    pub fn is_stable(&self) -> bool {
        self.pin.scope().access.contains(Access::STABLE)
    }

    /// Returns whether the octets are those of a file that is not mapped.
    #[inline]
    pub fn is_in_file(&self) -> bool {
        self.pin.scope().file.is_some()
    }

    /// Returns the octets from `offset` on if they are those of a file.
    pub(crate) fn in_file(&self, offset: usize) -> Option<FilePart> {
        let at = self.at(&(offset..offset));
        self.pin.scope().file.as_ref().map(|file| FilePart::new(file, at))
    }

    /// Copies `data` into the granted octets at `offset`.
    #[inline]
    pub fn place(&self, offset: usize, data: &[u8]) -> Result<(), Faulted> {
        let to = self.at_mut(&span(offset, data.len()));
        // SAFETY: `at_mut` found space for all of `data` in live memory that may be written. No
        // reference such as `data` covers it: the program that registered lent memory vouches for
        // that, and memory of our own is never lent out as a slice.
        unsafe { octets::write(self.is_lent(), to, data) }
    }

    /// Does what [`Grant::place`] does, in an order of stores that a polling program may rely on:
    /// one that sees the last octet sees all of them, and all that was placed before.
    pub fn place_in_order(&self, offset: usize, data: &[u8]) -> Result<(), Faulted> {
        let to = self.at_mut(&span(offset, data.len()));
        // SAFETY: as in `place`.
        unsafe { octets::write_in_order(self.is_lent(), to, data) }
    }

    /// Copies octets from `offset` on into `out`. Octets of a file count as gone if a disk has to
    /// be waited for: see [`Grant::in_file`].
    pub fn copy_to(&self, offset: usize, out: &mut [u8]) -> Result<(), Faulted> {
        let from = self.at(&span(offset, out.len()));
        let scope = self.pin.scope();
        if scope.lent
            && let Some(file) = &scope.file
        {
            return copy_from_file(file, from, out);
        }
        // SAFETY: `at` found that many octets in live memory, which no reference such as `out`
        // covers.
        unsafe { octets::read(scope.lent, from, out) }
    }

    /// Does what [`Grant::place`] does and appends the CRC of `data` to `crc`, in one pass over the
    /// octets.
    pub fn place_with_crc(&self, offset: usize, data: &[u8], mut crc: u32) -> Result<u32, Faulted> {
        let mut at = offset;
        for chunk in data.chunks(CHUNK) {
            // The sum is taken of `data`, which nobody else can change, and not of the octets
            // placed: a peer may already be writing there.
            crc = crc32c_append(crc, chunk);
            self.place(at, chunk)?;
            at += chunk.len();
        }
        Ok(crc)
    }

    /// Does what [`Grant::copy_to`] does and appends the CRC of what was copied to `crc`, in one
    /// pass. The CRC is that of `out` even when the memory changes meanwhile.
    pub fn copy_to_with_crc(&self, offset: usize, out: &mut [u8], mut crc: u32) -> Result<u32, Faulted> {
        let mut at = offset;
        for chunk in out.chunks_mut(CHUNK) {
            // The copy is summed and not its source: a peer may change that between the two passes,
            // and the FPDU must carry the CRC of the octets that are sent (RFC 5044 §4.4).
            self.copy_to(at, chunk)?;
            crc = crc32c_append(crc, chunk);
            at += chunk.len();
        }
        Ok(crc)
    }

    /// Returns `crc` with the CRC of `len` octets from `offset` on appended. If the octets change
    /// meanwhile, the sum belongs to no state of theirs.
    pub fn crc32c_append(&self, offset: usize, len: usize, crc: u32) -> Result<u32, Faulted> {
        let from = self.at(&span(offset, len));
        // SAFETY: `at` found that many octets in live memory.
        unsafe { octets::sum(self.is_lent(), from, len, crc) }
    }

    /// Replaces the first eight octets, a number in this machine's byte order, by the result of
    /// `change`, or leaves them if that is `None`. Returns the number before. One atomic operation
    /// (RFC 7306 §5.3), also against other CPUs' atomics.
    pub fn fetch_modify_u64(&self, change: impl Fn(u64) -> Option<u64>) -> Result<u64, AtomicError> {
        let cell = self.at_mut(&(0..8)).cast::<u64>();
        // RFC 7306 §5.1: it is the address in memory that must be aligned, whatever the Tagged
        // Offset.
        if !cell.is_aligned() {
            return Err(AtomicError::Misaligned { addr: cell.addr().get() as u64 });
        }
        // SAFETY: eight aligned octets in live memory that may be written; what else touches them
        // while we do are copies and atomics by raw pointers.
        Ok(unsafe { octets::modify(self.is_lent(), cell, change) }?)
    }

    /// Returns whether a program lent the memory. Lent memory may go bad while it is registered.
    #[inline]
    fn is_lent(&self) -> bool {
        self.pin.scope().lent
    }

    /// Returns the scope of the STag that the grant was made from.
    pub(super) fn scope(&self) -> &Scope {
        self.pin.scope()
    }

    /// Returns the addresses of the granted octets.
    pub(crate) fn octets(&self) -> Range<u64> {
        let start = self.ptr.addr().get() as u64;
        start..start + self.len as u64
    }

    /// Returns the address of a range inside the grant. Panics if the range is not inside it.
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

    /// Returns the address of a range inside the grant that may be written. Panics if it may not.
    #[inline]
    pub(super) fn at_mut(&self, range: &Range<usize>) -> NonNull<u8> {
        assert!(self.writable, "a grant for reading only");
        self.at(range)
    }
}

/// Copies octets of a file that are in memory.
// Kept out of the way of copies from memory.
#[cold]
#[inline(never)]
fn copy_from_file(file: &FileRange, from: NonNull<u8>, out: &mut [u8]) -> Result<(), Faulted> {
    let (_, stop) = file.read(file.offset_of(from), out, false);
    stop.map_or(Ok(()), |_| Err(Faulted))
}

/// Returns the range of `len` octets from `offset` on. If its end overflows, the result lies in no
/// grant, so that the check of bounds refuses it.
fn span(offset: usize, len: usize) -> Range<usize> {
    offset..offset.saturating_add(len)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    use super::*;
    use crate::mem::{Access, MemTable, PdId, QpNum, Region, RegionOptions};

    const PD: PdId = PdId(1);

    fn region(len: usize) -> (MemTable, Arc<Region>) {
        let table = MemTable::new(Default::default());
        let access = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC;
        let region = table.allocate(PD, len, access, &RegionOptions::default()).unwrap();
        (table, region)
    }

    fn local(table: &MemTable, region: &Region, write: bool) -> Grant {
        table.check_local(region.stag(), region.base_to(), region.len() as u64, write, PD).unwrap()
    }

    fn octets(region: &Region) -> Vec<u8> {
        let mut octets = vec![0; region.len()];
        region.read_at(0, &mut octets).unwrap();
        octets
    }

    #[test]
    fn octets_go_in_and_out_where_they_belong() {
        let (table, region) = region(16);
        let grant = local(&table, &region, true);
        grant.place(3, b"abc").unwrap();
        grant.place(13, b"end").unwrap();
        grant.place(16, b"").unwrap();
        let mut out = [0; 5];
        grant.copy_to(2, &mut out).unwrap();
        assert_eq!(&out, b"\0abc\0");
        assert_eq!(octets(&region), b"\0\0\0abc\0\0\0\0\0\0\0end");
    }

    /// RFC 5044 §4.4: the CRC is of exactly the octets that were copied, in pieces or not.
    #[test]
    fn copies_with_crc_copy_and_sum_alike_at_every_length_around_a_chunk() {
        let (table, region) = region(3 * CHUNK);
        let grant = local(&table, &region, true);
        for len in [0, 1, 7, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK - 5] {
            let data = rddp_test_support::pattern(len, 0);
            let wanted = crc32c_append(0x1234_5678, &data);
            assert_eq!(grant.place_with_crc(5, &data, 0x1234_5678), Ok(wanted), "{len}");
            assert_eq!(grant.crc32c_append(5, len, 0x1234_5678), Ok(wanted), "{len}");
            let mut out = vec![0; len];
            assert_eq!(grant.copy_to_with_crc(5, &mut out, 0x1234_5678), Ok(wanted), "{len}");
            assert_eq!(out, data);
        }
        assert_eq!(octets(&region)[..5], [0; 5]);
    }

    #[test]
    fn no_offset_leaves_the_grant() {
        let (table, region) = region(8);
        let grant = local(&table, &region, true);
        let panics = |what: &dyn Fn()| catch_unwind(AssertUnwindSafe(what)).is_err();
        for offset in [5, 8, 9, usize::MAX - 2, usize::MAX] {
            assert!(panics(&|| _ = grant.place(offset, b"four")), "{offset}");
            assert!(panics(&|| _ = grant.copy_to(offset, &mut [0; 4])), "{offset}");
            assert!(panics(&|| _ = grant.crc32c_append(offset, 4, 0)), "{offset}");
        }
        assert!(panics(&|| drop(grant.slice(4..9))));
        #[expect(clippy::reversed_empty_ranges, reason = "that is the case")]
        let reversed = 5..4;
        assert!(panics(&|| drop(grant.slice(reversed.clone()))));
        assert!(panics(&|| _ = grant.slice(0..4).fetch_modify_u64(Some)), "an atomic needs eight octets");
        assert_eq!(octets(&region), [0; 8]);
    }

    #[test]
    fn a_grant_for_reading_writes_nothing() {
        let (table, region) = region(8);
        let grant = local(&table, &region, false);
        assert!(!grant.is_writable() && !grant.slice(0..4).is_writable());
        assert!(catch_unwind(AssertUnwindSafe(|| grant.place(0, b"x"))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| grant.slice(0..8).fetch_modify_u64(Some))).is_err());
        assert_eq!(octets(&region), [0; 8]);
    }

    #[test]
    fn a_slice_counts_from_its_own_start() {
        let (table, region) = region(16);
        let part = local(&table, &region, true).slice(4..12);
        assert_eq!(part.len(), 8);
        part.slice(2..4).place(0, b"ab").unwrap();
        assert_eq!(octets(&region), b"\0\0\0\0\0\0ab\0\0\0\0\0\0\0\0");
    }

    fn atomic(table: &MemTable, region: &Region, offset: u64) -> Grant {
        let to = region.base_to() + offset;
        table.check_remote(region.stag(), to, 8, Access::REMOTE_ATOMIC, PD, QpNum(1)).unwrap()
    }

    /// RFC 7306 §5.1: the number is in this machine's order; the original comes back whether or not
    /// it was changed.
    #[test]
    fn an_atomic_gives_the_original_and_changes_it_if_wanted() {
        let (table, region) = region(16);
        region.write_at(8, &5_u64.to_ne_bytes()).unwrap();
        let grant = atomic(&table, &region, 8);
        assert_eq!(grant.fetch_modify_u64(|value| Some(value + 3)), Ok(5));
        assert_eq!(grant.fetch_modify_u64(|_| None), Ok(8));
        assert_eq!(octets(&region)[8..], 8_u64.to_ne_bytes());
        assert_eq!(octets(&region)[..8], [0; 8]);
    }

    /// RFC 7306 §5.1: a misaligned target is not touched.
    #[test]
    fn a_misaligned_atomic_touches_nothing() {
        let (table, region) = region(24);
        for offset in 1..8 {
            let grant = atomic(&table, &region, offset);
            let addr = region.as_ptr().addr() as u64 + offset;
            assert_eq!(grant.fetch_modify_u64(|_| Some(u64::MAX)), Err(AtomicError::Misaligned { addr }));
        }
        assert_eq!(octets(&region), [0; 24]);
    }

    /// RFC 7306 §5.1: what counts is the address, not the Tagged Offset.
    #[test]
    fn alignment_is_the_addresses_also_in_a_zero_based_window() {
        let table = MemTable::new(Default::default());
        let access = Access::LOCAL_WRITE | Access::BIND;
        let region = table.allocate(PD, 32, access, &RegionOptions::default()).unwrap();
        let window = table.allocate_window(PD).unwrap();
        let bind = crate::mem::BindWindow {
            window: window.stag(),
            region: region.stag(),
            addr: region.base_to() + 3,
            len: 16,
            access: Access::REMOTE_ATOMIC | Access::ZERO_BASED,
            pd: PD,
            qp: QpNum(1),
            key: None,
        };
        let stag = table.bind(&bind).unwrap();
        let check = |to| table.check_remote(stag, to, 8, Access::REMOTE_ATOMIC, PD, QpNum(1)).unwrap();
        assert!(check(0).fetch_modify_u64(Some).is_err());
        assert_eq!(check(5).fetch_modify_u64(|_| Some(1)), Ok(0));
        assert_eq!(octets(&region)[8..16], 1_u64.to_ne_bytes());
    }
}
