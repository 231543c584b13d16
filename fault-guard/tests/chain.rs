//! Signals that guarded work did not cause have the effect that they would have without the guard.
//!
//! A handler is installed for a whole process: each case runs in a child of `fork`, and the parent
//! installs none.
#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

mod common;

use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::SeqCst};

use common::{PAGE, Pages, in_child, touch};
use libc::{SIGBUS, SIGSEGV, SIGUSR1};
use rddp_fault_guard::{Faulted, call, copy_out, install, mask};

static CALLS: AtomicUsize = AtomicUsize::new(0);
static ADDRESS: AtomicUsize = AtomicUsize::new(0);
/// The signals [`USR1`] and [`ITSELF`], as far as they were blocked in the handler.
static BLOCKED: AtomicUsize = AtomicUsize::new(0);
const USR1: usize = 1;
const ITSELF: usize = 2;
/// The pages that the handler makes accessible again: otherwise the fault would happen again.
static PAGES: AtomicPtr<Pages> = AtomicPtr::new(ptr::null_mut());

/// A handler with one argument: counts, looks at its mask and makes the pages accessible.
extern "C" fn plain(signal: c_int) {
    CALLS.fetch_add(1, SeqCst);
    // SAFETY: the call only asks for the mask; the pages live as long as the test's process.
    unsafe {
        let mut mask = mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &raw mut mask);
        let blocked = |signal| usize::from(libc::sigismember(&raw const mask, signal) == 1);
        BLOCKED.store(USR1 * blocked(SIGUSR1) + ITSELF * blocked(signal), SeqCst);
        if let Some(pages) = PAGES.load(SeqCst).as_ref() {
            pages.grow();
        }
    }
}

/// A handler with three arguments: records the address, and does what [`plain`] does.
extern "C" fn informed(signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: `info` is the kernel's.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr()) };
    ADDRESS.store(if code > 0 { address.addr() } else { 0 }, SeqCst);
    plain(signal);
}

fn action(signal: c_int, handler: libc::sighandler_t, flags: c_int) {
    // SAFETY: the handlers above do what a signal handler may.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        libc::sigaddset(&raw mut action.sa_mask, SIGUSR1);
        assert_eq!(libc::sigaction(signal, &raw const action, ptr::null_mut()), 0);
    }
}

fn with_plain(flags: c_int) {
    action(SIGBUS, plain as extern "C" fn(c_int) as libc::sighandler_t, flags);
}

fn with_informed(flags: c_int) {
    let handler = informed as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
    action(SIGBUS, handler as libc::sighandler_t, flags | libc::SA_SIGINFO);
}

/// Returns truncated pages, which the handler will find.
fn cut() -> Pages {
    let pages = Pages::new(7).cut();
    PAGES.store(Box::into_raw(Box::new(pages)), SeqCst);
    pages
}

/// Causes a fault that is not guarded.
fn fault(at: *const u8) {
    // SAFETY: reads the test's own memory, or faults, which is the purpose.
    unsafe { at.read_volatile() };
}

fn guarded(at: *const u8) -> Result<(), Faulted> {
    // SAFETY: the test's own memory.
    unsafe { copy_out(at, &mut [0; 8]) }
}

#[test]
fn a_fault_of_the_programs_own_goes_to_its_handler_with_the_address() {
    let end = in_child(|| {
        with_informed(0);
        install().unwrap();
        let pages = cut();
        assert_eq!(guarded(pages.bad()), Err(Faulted));
        assert_eq!(CALLS.load(SeqCst), 0);
        fault(pages.bad().wrapping_add(5));
        assert_eq!(ADDRESS.load(SeqCst), pages.bad().addr() + 5);
        CALLS.load(SeqCst) as u8
    });
    assert_eq!(end, 1);
}

#[test]
fn handlers_of_one_argument_are_called_too() {
    let end = in_child(|| {
        with_plain(0);
        install().unwrap();
        fault(cut().bad());
        CALLS.load(SeqCst) as u8
    });
    assert_eq!(end, 1);
}

#[test]
fn the_handlers_mask_and_flags_take_effect() {
    for (flags, wanted) in [(0, USR1 | ITSELF), (libc::SA_NODEFER, USR1)] {
        let end = in_child(|| {
            with_plain(flags);
            install().unwrap();
            fault(cut().bad());
            // The signals are no longer blocked after the handler.
            // SAFETY: asks for the mask.
            let after = unsafe {
                let mut mask = mem::zeroed();
                libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &raw mut mask);
                libc::sigismember(&raw const mask, SIGUSR1) | libc::sigismember(&raw const mask, SIGBUS)
            };
            BLOCKED.load(SeqCst) as u8 | (after as u8) << 4
        });
        assert_eq!(end, wanted as c_int, "{flags:#x}");
    }
}

#[test]
fn a_handler_for_once_is_called_once() {
    let end = in_child(|| {
        with_plain(libc::SA_RESETHAND);
        install().unwrap();
        fault(cut().bad());
        assert_eq!(CALLS.load(SeqCst), 1);
        assert_eq!(guarded(Pages::new(1).cut().bad()), Err(Faulted), "the guard stays");
        fault(Pages::new(1).cut().bad());
        0
    });
    assert_eq!(end, -SIGBUS);
}

#[test]
fn by_default_the_process_ends_by_the_signal() {
    for (signal, pages) in [(SIGBUS, Pages::new(1).cut()), (SIGSEGV, Pages::new(1).forbid())] {
        let end = in_child(|| {
            action(signal, libc::SIG_DFL, 0);
            install().unwrap();
            assert_eq!(guarded(pages.bad()), Err(Faulted));
            fault(pages.bad());
            0
        });
        assert_eq!(end, -signal);
        let end = in_child(|| {
            action(signal, libc::SIG_DFL, 0);
            install().unwrap();
            // SAFETY: sends a signal to the process itself.
            unsafe { libc::raise(signal) };
            0
        });
        assert_eq!(end, -signal, "sent by raise");
    }
}

/// The kernel ends a process that ignores the signal of its own fault, and drops a signal that
/// others send.
#[test]
fn ignored_signals_are_ignored_and_faults_are_not() {
    let end = in_child(|| {
        action(SIGBUS, libc::SIG_IGN, 0);
        install().unwrap();
        // SAFETY: sends a signal to the process itself.
        unsafe { libc::raise(SIGBUS) };
        fault(Pages::new(1).cut().bad());
        0
    });
    assert_eq!(end, -SIGBUS);
}

/// Raises a signal in the middle of guarded work.
extern "C" fn raising(_to: *mut c_void, _from: *const c_void, signal: usize) -> *mut c_void {
    // SAFETY: sends a signal to the process itself.
    unsafe { libc::raise(signal as c_int) };
    ptr::null_mut()
}

#[test]
fn a_signal_that_somebody_sends_is_no_fault() {
    let end = in_child(|| {
        with_informed(0);
        install().unwrap();
        // SAFETY: `raising` owns nothing; all addresses are guarded.
        let found = unsafe { call(0..usize::MAX, raising, ptr::null_mut(), ptr::null(), SIGBUS as usize) };
        assert_eq!(found, Ok(()));
        CALLS.load(SeqCst) as u8
    });
    assert_eq!(end, 1);
}

#[test]
fn a_signal_that_arrives_under_a_lock_is_delivered_behind_it() {
    for adopted in [false, true] {
        let end = in_child(|| {
            with_informed(0);
            install().unwrap();
            if adopted {
                mask::adopt_thread();
            }
            mask::lock();
            // SAFETY: sends a signal to the process itself.
            unsafe { libc::raise(SIGBUS) };
            assert_eq!(CALLS.load(SeqCst), 0);
            mask::unlock();
            mask::deliver();
            CALLS.load(SeqCst) as u8
        });
        assert_eq!(end, 1, "adopted: {adopted}");
    }
}

#[test]
fn a_fault_elsewhere_in_guarded_work_is_the_programs() {
    let end = in_child(|| {
        with_informed(0);
        install().unwrap();
        let pages = cut();
        let guarded = pages.start.addr()..pages.bad().addr();
        // SAFETY: `touch` owns nothing.
        let found = unsafe { call(guarded, touch, ptr::null_mut(), pages.bad().cast(), 1) };
        assert_eq!(found, Ok(()), "the handler made it good");
        CALLS.load(SeqCst) as u8
    });
    assert_eq!(end, 1);
}

/// The address at which [`usr1`] faults.
static TOUCHED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn usr1(_signal: c_int) {
    fault(ptr::with_exposed_provenance(TOUCHED.load(SeqCst)));
}

/// A handler on a stack above the recorded frame is not the guarded work, even at a guarded
/// address.
#[test]
fn a_fault_on_a_stack_above_the_frame_is_the_programs() {
    let end = in_child(|| {
        with_informed(0);
        install().unwrap();
        let pages = cut();
        TOUCHED.store(pages.bad().expose_provenance(), SeqCst);
        // A stack that is older than the frames of the calls below, and so above them.
        let mut above = [0_u8; 32 * PAGE];
        let stack = libc::stack_t { ss_sp: above.as_mut_ptr().cast(), ss_flags: 0, ss_size: above.len() };
        let handler = usr1 as extern "C" fn(c_int);
        action(SIGUSR1, handler as libc::sighandler_t, libc::SA_ONSTACK);
        // SAFETY: the stack is the handler's alone until the child ends.
        unsafe { assert_eq!(libc::sigaltstack(&raw const stack, ptr::null_mut()), 0) };
        let bad = pages.bad().addr();
        // SAFETY: `raising` owns nothing.
        let found = unsafe { call(bad..bad + 1, raising, ptr::null_mut(), ptr::null(), SIGUSR1 as usize) };
        assert_eq!(found, Ok(()), "the handler made it good");
        CALLS.load(SeqCst) as u8
    });
    assert_eq!(end, 1);
}

#[test]
fn a_second_install_changes_nothing() {
    let end = in_child(|| {
        with_informed(0);
        install().unwrap();
        install().unwrap();
        fault(cut().bad());
        CALLS.load(SeqCst) as u8
    });
    assert_eq!(end, 1);
}
