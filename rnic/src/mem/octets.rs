//! Copies and sums of registered octets: memory of our own directly, memory that a program lends
//! under the fault guard.
//!
//! Memory of our own stays mapped and no file is behind it, so it cannot go bad. Lent memory can:
//! its file may be cut short, or the range unmapped. Then the process must survive.
//!
//! Peers, the kernel and all threads of the program may change registered octets at any time, by
//! safe code too. In Rust's terms an access to them that is not atomic is a data race, so they are
//! copied by a routine that the compiler does not see ([`copy_shared`]), and changed by atomics.
//!
//! The CRC is the exception ([`sum`]): the CRC library reads them where they lie, as a slice. If
//! somebody changes octets in that very moment, the behaviour is undefined by the language. What
//! makes it work is that the library is called where the compiler does not see into the call, and
//! loads each octet into the sum, with no branch and no address that depends on it.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use rddp_fault_guard::{Faulted, Work, call, call_unseen, copy_in, copy_out, copy_shared, install};
use rddp_mpa::{crc32c, crc32c_append};

/// Installs the handler of faults in lent memory, once for the process.
pub(super) fn prepare() {
    static READY: AtomicBool = AtomicBool::new(false);
    if READY.load(Ordering::Acquire) {
        return;
    }
    // The first call of the CRC library examines the processor and caches the result. A fault must
    // not interrupt that half-way, so the first call is made here.
    std::hint::black_box([1, 64, 4096].map(|len| crc32c(&[0; 4096][..len])));
    if let Err(error) = install() {
        tracing::warn!(%error, "no handler for SIGBUS and SIGSEGV: memory that goes bad will end the process");
    }
    READY.store(true, Ordering::Release);
}

/// Copies `data` to `to`.
///
/// # Safety
/// `to` must have space for all of `data`, in live memory that may be written and that no reference
/// covers. The memory must be `lent`, or stay mapped until this returns.
#[inline]
pub(super) unsafe fn write(lent: bool, to: NonNull<u8>, data: &[u8]) -> Result<(), Faulted> {
    // A guarded copy costs some 2.5 ns more. Memory of our own cannot fault, so it need not pay for
    // that.
    if lent {
        // SAFETY: the caller gives a live range that no reference covers; if it is not mapped any
        // more, the guard catches the fault.
        return unsafe { copy_in(to.as_ptr(), data) };
    }
    // SAFETY: the caller gives live memory that stays mapped. `data` cannot overlap it, because
    // memory of our own is never lent out as a slice.
    unsafe { copy_shared(to.as_ptr(), data.as_ptr(), data.len()) };
    Ok(())
}

/// Copies `data` to `to` so that whoever sees the last octet sees all of them, and
/// what was written before.
///
/// # Safety
/// As for [`write()`].
#[inline]
pub(super) unsafe fn write_in_order(lent: bool, to: NonNull<u8>, data: &[u8]) -> Result<(), Faulted> {
    let range = to.addr().get()..to.addr().get() + data.len();
    let (to, from) = (to.as_ptr().cast(), data.as_ptr().cast());
    // SAFETY: the caller gives a live range that no reference covers, and `data` has the same
    // length. A fault may leave `store_in_order` at any access: it owns nothing and holds no lock.
    unsafe { access(lent, range, store_in_order, to, from, data.len()) }
}

/// Calls `work(to, from, len)`, which accesses registered octets in `range`: guarded if they are
/// lent, and in any case unseen by the compiler.
///
/// # Safety
/// As for [`call`], and without a fault if the octets are not lent.
#[inline]
unsafe fn access(
    lent: bool,
    range: Range<usize>,
    work: Work,
    to: *mut c_void,
    from: *const c_void,
    len: usize,
) -> Result<(), Faulted> {
    // SAFETY: the caller has made sure that the call is sound except for faults, and that there are
    // none in memory that is not lent; those in lent memory are guarded.
    unsafe {
        if lent {
            return call(range, work, to, from, len);
        }
        call_unseen(work, to, from, len);
    }
    Ok(())
}

/// Number of octets at the end of a Write that a program may poll.
pub(crate) const POLLED: usize = 8;

/// Copies `len` octets, the last [`POLLED`] of them after all others, in order, and by one store
/// where alignment allows. A program that polls the last octets of a Write as one number must not
/// see half of it if it is aligned, and must find all the rest in place.
///
/// # Safety
/// The octets must be readable at `from` and writable at `to`, or the call be guarded.
#[inline]
unsafe extern "C" fn store_in_order(to: *mut c_void, from: *const c_void, len: usize) -> *mut c_void {
    let (start, from) = (to.cast::<u8>(), from.cast::<u8>());
    let mut at = len.saturating_sub(POLLED);
    // SAFETY: the caller vouches for both ranges of `len` octets; each piece lies inside of them,
    // and its address in `to` is aligned as its type needs (see `piece_len`).
    unsafe {
        if at > 0 {
            copy_shared(start, from, at);
        }
        fence(Ordering::Release);
        while at < len {
            let (to, from) = (start.add(at), from.add(at));
            let piece = piece_len(to.addr(), len - at);
            match piece {
                8 => AtomicU64::from_ptr(to.cast())
                    .store(from.cast::<u64>().read_unaligned(), Ordering::Release),
                4 => AtomicU32::from_ptr(to.cast())
                    .store(from.cast::<u32>().read_unaligned(), Ordering::Release),
                2 => AtomicU16::from_ptr(to.cast())
                    .store(from.cast::<u16>().read_unaligned(), Ordering::Release),
                _ => AtomicU8::from_ptr(to).store(*from, Ordering::Release),
            }
            at += piece;
        }
    }
    to
}

/// Returns the size of the largest aligned store at `addr` for at most `left` octets: 1, 2, 4 or 8.
#[inline]
fn piece_len(addr: usize, left: usize) -> usize {
    1 << addr.trailing_zeros().min(left.ilog2()).min(POLLED.ilog2())
}

/// Copies octets from `from` on into `out`.
///
/// # Safety
/// As for [`write()`], but the memory need only be readable.
#[inline]
pub(super) unsafe fn read(lent: bool, from: NonNull<u8>, out: &mut [u8]) -> Result<(), Faulted> {
    if lent {
        // SAFETY: the caller gives a live range that no reference covers; if it is not mapped any
        // more, the guard catches the fault.
        return unsafe { copy_out(from.as_ptr(), out) };
    }
    // SAFETY: the caller gives live memory that stays mapped. `out` cannot overlap it, because
    // memory of our own is never lent out as a slice.
    unsafe { copy_shared(out.as_mut_ptr(), from.as_ptr(), out.len()) };
    Ok(())
}

/// Returns `crc` with the CRC of `len` octets from `from` on appended.
///
/// # Safety
/// As for [`read`].
#[inline]
pub(super) unsafe fn sum(lent: bool, from: NonNull<u8>, len: usize, mut crc: u32) -> Result<u32, Faulted> {
    let from = from.as_ptr().cast::<c_void>().cast_const();
    let range = from.addr()..from.addr() + len;
    // SAFETY: the caller gives a live range that no reference covers. A fault may leave
    // `add_to_sum` at any access: it owns nothing and holds no lock.
    unsafe { access(lent, range, add_to_sum, (&raw mut crc).cast(), from, len)? };
    Ok(crc)
}

/// Appends `len` octets to the CRC at `crc`.
///
/// # Safety
/// The octets must be readable, or the call be guarded; `crc` must point to a `u32` of the caller's
/// own.
#[inline]
unsafe extern "C" fn add_to_sum(crc: *mut c_void, from: *const c_void, len: usize) -> *mut c_void {
    let sum = crc.cast::<u32>();
    // To copy first, by pieces of 4 to 16 KiB, so that nothing changes under the slice, takes 2.2
    // to 2.7 times as long for 1 MiB in the cache and 1.4 to 1.7 times for what is not, and costs
    // 12 % of the bandwidth of Sends of 1 MiB; relaxed loads for the processor's CRC instruction
    // cost half of the speed. Should a peer write meanwhile, the sum is of a mixture.
    // SAFETY: the range is live, as the caller says. That nobody changes it, which a slice demands,
    // nobody can say (see the head of this file): the slice is seen by the CRC library alone, which
    // loads octets of any value, branches on none and owns nothing. No caller is compiled with
    // knowledge of it: see `access`.
    unsafe { *sum = crc32c_append(*sum, std::slice::from_raw_parts(from.cast(), len)) };
    crc
}

/// Replaces the number at `cell` by the result of `change`, or leaves it if that is `None`. Returns
/// the number before.
///
/// # Safety
/// `cell` must be eight aligned octets as for [`write()`], which other threads touch by
/// copies and atomics only. `change` must be pure: a fault may leave it at any point, and
/// it may run more than once.
pub(super) unsafe fn modify<F: Fn(u64) -> Option<u64>>(
    lent: bool,
    cell: NonNull<u64>,
    change: F,
) -> Result<u64, Faulted> {
    let range = cell.addr().get()..cell.addr().get() + size_of::<u64>();
    let cell = cell.as_ptr().cast_const().cast();
    let mut work = Modify { change, original: 0 };
    // SAFETY: the caller gives eight aligned octets of live memory. A fault may leave `run` at its
    // access to them: `change` is pure, and nothing else has been done by then.
    unsafe { access(lent, range, Modify::<F>::run, (&raw mut work).cast(), cell, size_of::<u64>())? };
    Ok(work.original)
}

struct Modify<F> {
    change: F,
    original: u64,
}

impl<F: Fn(u64) -> Option<u64>> Modify<F> {
    /// # Safety
    /// `work` must point to a `Self`; `cell` must be as [`modify`] demands.
    unsafe extern "C" fn run(work: *mut c_void, cell: *const c_void, _len: usize) -> *mut c_void {
        // SAFETY: `modify` calls this with its own `work`, to which nobody else refers meanwhile.
        let this = unsafe { &mut *work.cast::<Self>() };
        // SAFETY: `modify` has the word of its caller that the cell is aligned, and that other
        // threads touch it by copies and atomics only.
        let cell = unsafe { AtomicU64::from_ptr(cell.cast_mut().cast()) };
        let before = cell.fetch_update(Ordering::AcqRel, Ordering::Acquire, &this.change);
        this.original = before.unwrap_or_else(|original| original);
        work
    }
}

#[cfg(test)]
mod tests {
    use super::piece_len;

    #[test]
    fn the_last_octets_are_stored_in_the_largest_aligned_pieces() {
        let pieces = |mut addr: usize, mut left: usize| {
            let mut pieces = Vec::new();
            while left > 0 {
                let piece = piece_len(addr, left);
                (addr, left) = (addr + piece, left - piece);
                pieces.push(piece);
            }
            pieces
        };
        assert_eq!(pieces(0x1000, 8), [8]);
        assert_eq!(pieces(0x1008, 4), [4]);
        assert_eq!(pieces(0x1004, 8), [4, 4]);
        assert_eq!(pieces(0x1002, 8), [2, 4, 2]);
        assert_eq!(pieces(0x1001, 8), [1, 2, 4, 1]);
        assert_eq!(pieces(0x1007, 8), [1, 4, 2, 1]);
        assert_eq!(pieces(0x1003, 1), [1]);
    }
}
