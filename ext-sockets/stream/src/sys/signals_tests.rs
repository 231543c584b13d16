//! Signals while memory is out, sent to the thread of the test alone.

use std::cell::Cell;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Once;
use std::time::Duration;

use rddp_test_support::Sleeper;

use super::signals::HeldBack;
use super::{Calls, Kernel};
use crate::caller::Nobody;

static CALLS: Calls = Calls::libc();
/// Ends a test that would hang.
const LONG: Option<Duration> = Some(Duration::from_secs(60));
const SHORT: Option<Duration> = Some(Duration::from_millis(5));

thread_local! {
    static IS_OUT: Cell<bool> = const { Cell::new(false) };
    /// The number of handlers that ran: with the memory withdrawn, and with the memory out.
    static HANDLED: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

extern "C" fn handler(_: libc::c_int) {
    let (good, bad) = HANDLED.get();
    HANDLED.set(if IS_OUT.get() { (good, bad + 1) } else { (good + 1, bad) });
}

fn handle_signals() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for signal in [libc::SIGUSR1, libc::SIGUSR2] {
            // SAFETY: installs a handler that counts in its thread's own numbers.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = handler as extern "C" fn(i32) as usize;
                assert_eq!(libc::sigaction(signal, &raw const action, std::ptr::null_mut()), 0);
            }
        }
    });
}

fn send(thread: libc::pthread_t, signal: i32) {
    // SAFETY: the thread is one of the test's, which runs.
    assert_eq!(unsafe { libc::pthread_kill(thread, signal) }, 0);
}

fn me() -> libc::pthread_t {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::pthread_self() }
}

/// Memory that is out until this is dropped, and after it the signals that are held back.
struct Out {
    _withdraws: Withdraws,
    // Dropped last, as in a call.
    signals: HeldBack,
}

struct Withdraws;

impl Drop for Withdraws {
    fn drop(&mut self) {
        IS_OUT.set(false);
    }
}

impl Out {
    fn begin() -> Self {
        handle_signals();
        let signals = HeldBack::here(&CALLS);
        IS_OUT.set(true);
        Self { _withdraws: Withdraws, signals }
    }

    /// Sleeps, and returns whether a signal waits.
    fn sleep(&mut self, kernel: &Kernel<'_>, longest: Option<Duration>) -> bool {
        self.sleep_after(kernel, longest, || {})
    }

    /// Sleeps after a look that does something.
    fn sleep_after(&mut self, kernel: &Kernel<'_>, longest: Option<Duration>, look: impl FnOnce()) -> bool {
        let look = || {
            look();
            Ok(Some(((), longest, self.signals.descriptor())))
        };
        kernel.sleep_with_signals_held(Duration::from_secs(60), look).unwrap();
        self.signals.is_waiting()
    }
}

/// Lends a connection.
fn with_connection(work: impl FnOnce(&Kernel<'_>)) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    work(&Kernel { fd: tcp.as_raw_fd(), calls: &CALLS, caller: &Nobody });
}

#[test]
fn a_handler_runs_after_the_memory_is_withdrawn() {
    with_connection(|kernel| {
        let mut out = Out::begin();
        let (sleeper, here) = (me(), Sleeper::here());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                here.await_asleep();
                send(sleeper, libc::SIGUSR1);
            });
            assert!(out.sleep(kernel, LONG));
        });
        assert_eq!(HANDLED.get(), (0, 0));
        drop(out);
        assert_eq!(HANDLED.get(), (1, 0));
    });
}

#[test]
fn a_sleep_with_memory_out_looks_before_it_sleeps() {
    with_connection(|kernel| {
        let mut out = Out::begin();
        let nothing = kernel.sleep_with_signals_held(Duration::from_secs(60), || Ok(None::<((), _, _)>));
        assert!(nothing.is_ok() && !out.signals.is_waiting());
        assert!(out.sleep_after(kernel, LONG, || send(me(), libc::SIGUSR1)));
        drop(out);
        assert_eq!(HANDLED.get(), (1, 0));
    });
}

thread_local! {
    static BACK: Cell<Option<libc::ucontext_t>> = const { Cell::new(None) };
    static JUMPED: Cell<bool> = const { Cell::new(false) };
}

extern "C" fn jump(_: libc::c_int) {
    assert!(!JUMPED.replace(true));
    let (good, bad) = HANDLED.get();
    HANDLED.set(if IS_OUT.get() { (good, bad + 1) } else { (good + 1, bad) });
    let back = BACK.take().unwrap();
    // SAFETY: the context is that of `leave_by_a_jump`, which has not returned.
    unsafe { libc::setcontext(&raw const back) };
}

/// Lets memory out, and takes a signal whose handler does not return: it goes on here, as
/// `siglongjmp` would.
#[inline(never)]
fn leave_by_a_jump() {
    let mut here = std::mem::MaybeUninit::<libc::ucontext_t>::zeroed();
    // SAFETY: the call fills the context. It returns twice, and all that is looked at after it lies
    // in thread-local cells.
    unsafe { assert_eq!(libc::getcontext(here.as_mut_ptr()), 0) };
    if !std::hint::black_box(JUMPED.get()) {
        // SAFETY: filled above.
        BACK.set(Some(unsafe { here.assume_init() }));
        let out = Out::begin();
        send(me(), libc::SIGALRM);
        drop(out);
        unreachable!("the handler does not return");
    }
}

#[test]
fn a_handler_that_leaves_by_a_jump_finds_the_memory_withdrawn_and_everything_closed() {
    // SAFETY: installs a handler that jumps back to the thread that was interrupted.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = jump as extern "C" fn(i32) as usize;
        assert_eq!(libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()), 0);
    }
    leave_by_a_jump();
    assert_eq!(HANDLED.get(), (1, 0));
    with_connection(|kernel| {
        let mut out = Out::begin();
        send(me(), libc::SIGUSR1);
        assert!(out.sleep(kernel, LONG));
        drop(out);
        assert_eq!(HANDLED.get(), (2, 0));
    });
}

#[test]
fn two_signals_that_came_before_the_sleep_end_it_and_are_both_handled() {
    with_connection(|kernel| {
        let mut out = Out::begin();
        send(me(), libc::SIGUSR1);
        send(me(), libc::SIGUSR2);
        assert!(out.sleep(kernel, LONG));
        drop(out);
        assert_eq!(HANDLED.get(), (2, 0));
    });
}

#[test]
fn a_signal_for_another_thread_is_handled_there() {
    with_connection(|kernel| {
        let mut out = Out::begin();
        std::thread::spawn(|| {
            // The new thread has its maker's mask.
            let mut none = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
            // SAFETY: an empty set, which lives until the call returns.
            unsafe {
                libc::sigemptyset(none.as_mut_ptr());
                libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
            }
            send(me(), libc::SIGUSR1);
            assert_eq!(HANDLED.get(), (1, 0));
        })
        .join()
        .unwrap();
        assert!(!out.sleep(kernel, SHORT));
        drop(out);
        assert_eq!(HANDLED.get(), (0, 0));
    });
}

#[test]
fn a_signal_that_is_ignored_ends_no_sleep() {
    with_connection(|kernel| {
        let mut out = Out::begin();
        send(me(), libc::SIGWINCH);
        assert!(!out.sleep(kernel, LONG), "it is taken");
        assert!(!out.sleep(kernel, SHORT));
        drop(out);
    });
}

#[test]
fn a_signal_that_the_program_has_blocked_ends_no_sleep() {
    with_connection(|kernel| {
        handle_signals();
        let mut only = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: the set lives until the calls return.
        unsafe {
            libc::sigaddset(only.as_mut_ptr(), libc::SIGUSR1);
            libc::pthread_sigmask(libc::SIG_BLOCK, only.as_ptr(), std::ptr::null_mut());
        }
        send(me(), libc::SIGUSR1);
        let mut out = Out::begin();
        assert!(!out.sleep(kernel, SHORT));
        drop(out);
        assert_eq!(HANDLED.get(), (0, 0));
        // SAFETY: as above.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, only.as_ptr(), std::ptr::null_mut()) };
        assert_eq!(HANDLED.get(), (1, 0));
    });
}

#[test]
fn an_edge_ends_the_sleep_without_a_signal() {
    with_connection(|kernel| {
        let mut out = Out::begin();
        assert!(!out.sleep_after(kernel, LONG, || kernel.kick()));
        drop(out);
    });
}

#[test]
fn a_panic_or_a_cancelled_thread_withdraws_the_memory() {
    let done = std::panic::catch_unwind(|| {
        let _out = Out::begin();
        send(me(), libc::SIGUSR1);
        panic!("as a cancelled thread unwinds");
    });
    assert!(done.is_err() && !IS_OUT.get());
    assert_eq!(HANDLED.get(), (1, 0));
}

#[test]
fn the_descriptor_has_a_high_number_and_is_readable_while_a_signal_waits() {
    let mut out = Out::begin();
    let fd = out.signals.descriptor().unwrap();
    assert!(fd >= 200 && !is_readable(fd));
    send(me(), libc::SIGUSR1);
    assert!(out.signals.is_waiting() && is_readable(fd));
    drop(out);
    assert_eq!(HANDLED.get(), (1, 0));
}

fn is_readable(fd: libc::c_int) -> bool {
    let mut one = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, as the second argument says.
    unsafe { libc::poll(&raw mut one, 1, 0) == 1 }
}
