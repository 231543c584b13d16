//! Copies of memory that has gone bad return an error: in each thread, and when nested.
#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

mod common;

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::SeqCst};
use std::{ptr, thread};

use common::{PAGE, Pages, touch};
use rddp_fault_guard::{Faulted, call, copy_in, copy_out, install};

fn ready() {
    install().unwrap();
}

#[test]
fn copies_of_good_memory_succeed() {
    ready();
    let pages = Pages::new(7);
    let mut out = [0; 300];
    // SAFETY: the test's own memory.
    unsafe {
        copy_out(pages.start.wrapping_add(PAGE - 100), &mut out).unwrap();
        assert_eq!(out, [7; 300]);
        copy_in(pages.start.wrapping_add(PAGE - 2), b"abcd").unwrap();
        copy_out(pages.start.wrapping_add(PAGE - 3), &mut out[..6]).unwrap();
    }
    assert_eq!(&out[..6], b"\x07abcd\x07");
}

#[test]
fn copies_at_impossible_addresses_fail() {
    ready();
    for at in [0xdead_beef_dead_beef_usize, 1 << 63, 1 << 47, (1 << 47) - 4096, usize::MAX - 7, usize::MAX] {
        for len in [1, 8, 64, 4096, 100_000] {
            let (mut octets, at) = (vec![0; len], std::ptr::without_provenance_mut::<u8>(at));
            // SAFETY: no memory is or can be at this address, so the copy changes nothing.
            unsafe {
                assert_eq!(copy_out(at, &mut octets), Err(Faulted), "{len} at {at:?}");
                assert_eq!(copy_in(at, &octets), Err(Faulted), "{len} at {at:?}");
            }
        }
    }
}

#[test]
fn copies_that_reach_bad_memory_fail() {
    ready();
    for pages in [Pages::new(7).cut(), Pages::new(7).forbid()] {
        for len in [1, 2, 7, 8, 15, 16, 31, 33, 63, 65, 128, 500, 2048, PAGE] {
            let mut octets = vec![0; len];
            for before in [0, 1.min(len - 1), len / 2, len - 1] {
                let at = pages.bad().wrapping_sub(before);
                // SAFETY: the test's own memory.
                unsafe {
                    assert_eq!(copy_out(at, &mut octets), Err(Faulted), "{before} of {len}");
                    assert_eq!(copy_in(at, &octets), Err(Faulted), "{before} of {len}");
                }
            }
            // SAFETY: the test's own memory.
            unsafe { copy_out(pages.bad().wrapping_sub(len), &mut octets).unwrap() };
        }
    }
}

#[test]
fn octets_before_the_bad_page_may_be_copied_and_the_guard_works_again() {
    ready();
    let pages = Pages::new(7).cut();
    // SAFETY: the test's own memory.
    unsafe {
        assert_eq!(copy_in(pages.bad(), b"x"), Err(Faulted));
        pages.grow();
        copy_in(pages.bad(), b"x").unwrap();
    }
}

#[test]
fn every_thread_has_its_own_guard() {
    ready();
    let bad = Pages::new(1).cut();
    thread::scope(|threads| {
        for number in 0..4 {
            threads.spawn(move || {
                let good = Pages::new(number);
                let mut out = [0; 64];
                for _ in 0..2000 {
                    // SAFETY: the test's own memory.
                    unsafe {
                        assert_eq!(copy_out(bad.bad(), &mut out), Err(Faulted));
                        assert_eq!(copy_out(good.bad(), &mut out), Ok(()));
                    }
                    assert_eq!(out, [number; 64]);
                }
            });
        }
    });
}

/// Guarded work that calls guarded work: `from` holds two addresses, one guarded by the inner call
/// and one by the outer.
extern "C" fn nested(to: *mut c_void, from: *const c_void, _len: usize) -> *mut c_void {
    // SAFETY: `guards_nest` passes two addresses of the test's own memory.
    unsafe {
        let [inner, outer] = from.cast::<[*const u8; 2]>().read();
        let mut out = [0; 8];
        let found = copy_out(inner, &mut out);
        to.cast::<Option<Result<(), Faulted>>>().write(Some(found));
        touch(ptr::null_mut(), outer.cast(), 1)
    }
}

#[test]
fn guards_nest() {
    ready();
    let (bad, good) = (Pages::new(1).cut().bad().cast_const(), Pages::new(1).bad().cast_const());
    let bad_outer = Pages::new(1).cut().bad().cast_const();
    for (inner, outer) in [(bad, good), (good, bad_outer), (bad, bad_outer), (good, good)] {
        let (addresses, mut found) = ([inner, outer], None::<Result<(), Faulted>>);
        let range = outer.addr()..outer.addr() + 1;
        // SAFETY: `nested` owns nothing.
        let whole = unsafe { call(range, nested, (&raw mut found).cast(), (&raw const addresses).cast(), 0) };
        assert_eq!(found, Some(if inner == bad { Err(Faulted) } else { Ok(()) }));
        assert_eq!(whole, if outer == bad_outer { Err(Faulted) } else { Ok(()) });
    }
}

/// The address from which [`in_handler`] copies, and whether the copy reported bad memory.
static SOURCE: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
static FAULTED: AtomicBool = AtomicBool::new(false);

extern "C" fn in_handler(_signal: c_int) {
    // SAFETY: the test's own memory.
    let copied = unsafe { copy_out(SOURCE.load(SeqCst), &mut [0; 8]) };
    FAULTED.store(copied == Err(Faulted), SeqCst);
}

/// Guarded work that is interrupted by a signal, and then faults.
extern "C" fn interrupted(to: *mut c_void, from: *const c_void, len: usize) -> *mut c_void {
    // SAFETY: sends a signal to the process itself.
    unsafe { libc::raise(libc::SIGUSR2) };
    touch(to, from, len)
}

#[test]
fn a_signal_handler_that_copies_leaves_the_interrupted_guard_as_it_was() {
    ready();
    let (inner, outer) = (Pages::new(1).cut().bad(), Pages::new(1).forbid().bad());
    SOURCE.store(inner, SeqCst);
    // SAFETY: the handler only makes a guarded copy and a store, which a signal handler may do.
    unsafe { libc::signal(libc::SIGUSR2, in_handler as extern "C" fn(c_int) as libc::sighandler_t) };
    let range = outer.addr()..outer.addr() + 1;
    // SAFETY: `interrupted` owns nothing.
    let found = unsafe { call(range, interrupted, ptr::null_mut(), outer.cast(), 1) };
    assert_eq!((found, FAULTED.load(SeqCst)), (Err(Faulted), true));
}

/// Guarded work that fills the registers that a function must preserve, and faults.
#[cfg(target_arch = "x86_64")]
extern "C" fn clobber(_to: *mut c_void, from: *const c_void, _len: usize) -> *mut c_void {
    // SAFETY: the registers are restored, unless the read faults; then the guard restores them.
    unsafe {
        std::arch::asm!(
            "push rbx", "push rbp", "std",
            "mov rbx, rax", "mov rbp, rax", "mov r12, rax", "mov r13, rax", "mov r14, rax", "mov r15, rax",
            "mov al, byte ptr [rsi]",
            "cld", "pop rbp", "pop rbx",
            in("rsi") from, inout("rax") !0_u64 => _,
            out("r12") _, out("r13") _, out("r14") _, out("r15") _,
        );
    }
    ptr::null_mut()
}

/// The caller's registers and flags are as before, whatever the work did to them until it faulted.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_fault_leaves_the_callers_registers() {
    ready();
    let bad = Pages::new(1).cut().bad();
    let numbers: Vec<u64> = std::hint::black_box((0..16).collect());
    let mut sum = 0;
    for number in &numbers {
        // SAFETY: `clobber` owns nothing.
        let found = unsafe { call(bad.addr()..bad.addr() + 1, clobber, ptr::null_mut(), bad.cast(), 1) };
        assert_eq!(found, Err(Faulted));
        sum += number;
        let copy = std::hint::black_box(&numbers).clone();
        assert_eq!(copy, numbers);
    }
    assert_eq!(sum, 120);
}
