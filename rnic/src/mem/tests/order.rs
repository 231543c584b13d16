//! Order of the stores of a Write: whoever sees its last octet sees all of it. Looked
//! at after each instruction.
#![cfg(all(target_arch = "x86_64", not(miri)))]

use std::arch::asm;
use std::ffi::c_int;
use std::mem;
use std::ops::Range;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::SeqCst};

use super::*;

const LEN: usize = 4096;

/// The octets that [`look`] looks at, all of which become 1.
static START: AtomicPtr<u8> = AtomicPtr::new(null_mut());
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Number of times that the last octet was there, and that one before it was missing then.
static SEEN: AtomicUsize = AtomicUsize::new(0);
static EARLY: AtomicUsize = AtomicUsize::new(0);

/// Looks at the memory as a program that polls does. Runs after each instruction while the trap
/// flag is set.
extern "C" fn look(_signal: c_int) {
    let (start, count) = (START.load(SeqCst), COUNT.load(SeqCst));
    // SAFETY: the test's region, which is there until it has cleared the trap flag.
    let octet = |at: usize| unsafe { start.add(at).read_volatile() };
    if octet(count - 1) == 1 {
        SEEN.fetch_add(1, SeqCst);
        EARLY.fetch_add(usize::from((0..count).any(|at| octet(at) != 1)), SeqCst);
    }
}

/// Runs `work` a single instruction at a time.
fn step_by_step(work: impl FnOnce()) {
    // SAFETY: the handler does only what a signal handler may do. The flag is this thread's, and
    // cleared behind `work`; nothing else in the process uses SIGTRAP.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = look as extern "C" fn(c_int) as libc::sighandler_t;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &raw const action, null_mut()), 0);
        asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq");
        work();
        asm!("pushfq", "and qword ptr [rsp], ~0x100", "popfq");
        assert_eq!(libc::sigaction(libc::SIGTRAP, null(), &raw mut action), 0);
    }
}

/// Returns lengths and alignments around those at which a copy changes its method.
fn places() -> impl Iterator<Item = Range<usize>> {
    let lengths = [1, 2, 3, 4, 7, 8, 9, 12, 16, 17, 31, 33, 64, 65, 100, 128, 200, 256, 300, 1000, 2000];
    let start = |len: usize| [0, 1, 4, 7].map(move |start| 64 + start..64 + start + len);
    lengths.into_iter().flat_map(start)
}

/// No program sees the last octet before another, since that is the one it polls.
#[test]
fn the_last_octet_is_stored_last() {
    let table = table();
    let region = allocate(&table, LEN, Access::LOCAL_WRITE);
    for place in places() {
        region.write_at(0, &[0; LEN]).unwrap();
        START.store(region.as_ptr().wrapping_add(place.start), SeqCst);
        COUNT.store(place.len(), SeqCst);
        let (to, len) = (region.base_to() + place.start as u64, place.len() as u64);
        let grant = table.check_local(region.stag(), to, len, true, PD).unwrap();
        let data = vec![1; place.len()];
        step_by_step(|| grant.place_in_order(0, &data).unwrap());
        assert!(SEEN.swap(0, SeqCst) > 0, "{place:?}");
        assert_eq!(EARLY.swap(0, SeqCst), 0, "{place:?}");
        let mut octets = vec![0; LEN];
        region.read_at(0, &mut octets).unwrap();
        assert_eq!(octets.iter().filter(|octet| **octet == 1).count(), place.len());
    }
}
