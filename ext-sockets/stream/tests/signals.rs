//! Signals while a call waits. The test has a program of its own: handlers belong to the process.

mod signalled;

use std::io::IoSlice;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use rddp_stream::{Errno, Options, Role, Stream};
use rddp_test_support::Sleeper;
use signalled::{End, greeted, handle};

static HANDLED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn note(_: libc::c_int) {
    HANDLED.fetch_add(1, Ordering::SeqCst);
}

/// Sends in one call.
fn send(end: &End, octets: &[u8], flags: i32) -> Result<usize, Errno> {
    end.stream().send(&[IoSlice::new(octets)], flags)
}

fn pair() -> (End, End) {
    let (a, b) = greeted(&Options::new(Role::Initiator), &Options::new(Role::Responder));
    send(&a, b"!", 0).unwrap();
    assert_eq!(b.read(1, 0).unwrap(), b"!");
    (a, b)
}

/// A thread that signals can be sent to.
struct Caller<'s, T> {
    handle: thread::ScopedJoinHandle<'s, T>,
    id: libc::pthread_t,
    sleeper: Arc<Sleeper>,
}

fn call<'s, T: Send + 's>(
    scope: &'s thread::Scope<'s, '_>,
    body: impl FnOnce() -> T + Send + 's,
) -> Caller<'s, T> {
    let (tell, told) = mpsc::channel();
    let sleeper = Arc::new(Sleeper::default());
    let here = sleeper.clone();
    let handle = scope.spawn(move || {
        here.is_here();
        // SAFETY: takes nothing and cannot fail.
        tell.send(unsafe { libc::pthread_self() }).unwrap();
        body()
    });
    Caller { handle, id: told.recv().unwrap(), sleeper }
}

impl<T> Caller<'_, T> {
    /// Sends the signal while the thread sleeps in its call, and waits for the handler.
    fn interrupt(&self, signal: i32) {
        self.sleeper.await_asleep();
        let before = HANDLED.load(Ordering::SeqCst);
        // SAFETY: the thread has not been joined, so its ID is valid.
        unsafe { libc::pthread_kill(self.id, signal) };
        while HANDLED.load(Ordering::SeqCst) == before {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sends the signal until the call has ended: one that comes before the thread sleeps
    /// interrupts nothing.
    fn interrupt_for_good(&self, signal: i32) {
        while !self.handle.is_finished() {
            thread::sleep(Duration::from_millis(50));
            // SAFETY: the thread has not been joined, so its ID is valid.
            unsafe { libc::pthread_kill(self.id, signal) };
        }
    }

    fn join(self) -> T {
        self.handle.join().unwrap()
    }
}

/// Sends until the kernel takes no more, also after a short time.
fn fill(end: &End, octets: &[u8]) {
    let mut refused = 0;
    while refused < 5 {
        match send(end, octets, libc::MSG_DONTWAIT) {
            Ok(_) => refused = 0,
            Err(_) => refused += 1,
        }
        thread::sleep(Duration::from_millis(20));
    }
}

// One test: the installed handlers are part of what is tested.
#[test]
fn signals_interrupt_calls_as_they_do_tcp() {
    let (restarts, interrupts) = (libc::SIGUSR1, libc::SIGUSR2);
    let (a, b) = pair();
    handle(restarts, libc::SA_RESTART, note);
    let full = vec![7; 64 << 20];
    thread::scope(|scope| {
        // All handlers restart calls: no call is interrupted, whatever it waits for.
        let reader = call(scope, || b.read(10, libc::MSG_WAITALL));
        reader.interrupt(restarts);
        send(&a, b"01234", 0).unwrap();
        reader.interrupt(restarts);
        send(&a, b"56789", 0).unwrap();
        assert_eq!(reader.join().unwrap(), b"0123456789");
        let writer = call(scope, || send(&a, &full, 0));
        writer.interrupt(restarts);
        let mut got = 0;
        while got < full.len() {
            got += b.read(1 << 20, 0).unwrap().len();
        }
        assert_eq!(writer.join(), Ok(full.len()));
    });
    handle(interrupts, 0, note);
    thread::scope(|scope| {
        // The kernel knows which handler ran, where a call waits for any octet.
        let reader = call(scope, || b.read(10, 0));
        reader.interrupt(restarts);
        assert!(!reader.handle.is_finished());
        reader.interrupt_for_good(interrupts);
        assert_eq!(reader.join(), Err(Errno::INTERRUPTED));
        // A call that has moved octets returns their number.
        send(&a, b"part", 0).unwrap();
        let reader = call(scope, || b.read(10, libc::MSG_WAITALL));
        reader.interrupt_for_good(interrupts);
        assert_eq!(reader.join().unwrap(), b"part");
        let writer = call(scope, || send(&a, &full, 0));
        writer.interrupt_for_good(interrupts);
        let sent = writer.join().unwrap();
        assert!(sent > 0 && sent < full.len());
        fill(&a, &full);
        let writer = call(scope, || send(&a, &full, 0));
        writer.interrupt_for_good(interrupts);
        assert_eq!(writer.join(), Err(Errno::INTERRUPTED));
    });
    // Sending into a closed direction gives EPIPE, and the signal unless the flags forbid it.
    handle(libc::SIGPIPE, 0, note);
    let (a, _b) = pair();
    a.stream().shutdown(libc::SHUT_WR).unwrap();
    let before = HANDLED.load(Ordering::SeqCst);
    assert_eq!(send(&a, b"x", libc::MSG_NOSIGNAL), Err(Errno::BROKEN_PIPE));
    assert_eq!(HANDLED.load(Ordering::SeqCst), before);
    assert_eq!(send(&a, b"x", 0), Err(Errno::BROKEN_PIPE));
    assert_eq!(HANDLED.load(Ordering::SeqCst), before + 1);
}
