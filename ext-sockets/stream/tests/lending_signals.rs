//! Signals while a send of SDP lends its memory: no handler runs before the memory is the program's
//! again. The test has a program of its own, as handlers belong to the process.

mod signalled;

use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rddp_stream::sdp::Stream;
use rddp_stream::{Errno, Format, Options, Role, SdpOptions};
use signalled::{End, greeted, handle};

static HANDLED: AtomicUsize = AtomicUsize::new(0);
static LENT: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

const SIZE: usize = 600_000;

/// Overwrites the memory that the interrupted call was given.
extern "C" fn poison(_: libc::c_int) {
    let lent = LENT.load(Ordering::SeqCst);
    if !lent.is_null() {
        // SAFETY: the buffer has `SIZE` octets, and lives as long as its address is noted.
        unsafe { lent.write_bytes(0xee, SIZE) };
    }
    HANDLED.fetch_add(1, Ordering::SeqCst);
}

fn pair() -> (End, End) {
    let sdp = SdpOptions { threshold: 0, ..SdpOptions::DEFAULT };
    let options = |role| Options { format: Format::Sdp(sdp), ..Options::new(role) };
    let (a, b) = greeted(&options(Role::Initiator), &options(Role::Responder));
    a.stream().start(None).unwrap();
    // The first message has been taken: what comes next is the test's.
    while b.stream().revents(libc::POLLIN | libc::POLLOUT, libc::POLLOUT) & libc::POLLOUT == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    (a, b)
}

/// Returns octets that no poison leaves.
fn octets() -> Vec<u8> {
    (0..SIZE).map(|at| (at % 97) as u8).collect()
}

/// Sends `octets` in one call, which a signal interrupts so long after its advert has come to the
/// peer. Returns what it returns.
fn send_interrupted(end: &End, peer: &End, signal: i32, delay: Duration) -> Result<usize, Errno> {
    let mut lent = octets();
    LENT.store(lent.as_mut_ptr(), Ordering::SeqCst);
    let before = HANDLED.load(Ordering::SeqCst);
    // SAFETY: takes nothing and cannot fail.
    let me = unsafe { libc::pthread_self() };
    let sent = thread::scope(|scope| {
        scope.spawn(move || {
            // An update of credits has 40 octets on the wire, an advert 60.
            while peer.tcp.peek(&mut [0; 100]).unwrap() < 45 {
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(delay);
            // SAFETY: the thread waits for this one, so its ID is valid.
            unsafe { libc::pthread_kill(me, signal) };
        });
        end.stream().send(&[IoSlice::new(&lent)], 0)
    });
    while HANDLED.load(Ordering::SeqCst) == before {
        thread::sleep(Duration::from_millis(1));
    }
    LENT.store(std::ptr::null_mut(), Ordering::SeqCst);
    assert!(lent.iter().all(|octet| *octet == 0xee), "the handler has run");
    sent
}

// One test: the installed handlers are part of what is tested.
#[test]
fn no_handler_meets_memory_that_is_lent() {
    let expected = octets();
    for (signal, flags) in [(libc::SIGUSR1, libc::SA_RESTART), (libc::SIGUSR2, 0)] {
        handle(signal, flags, poison);
        // Nobody reads: the call ends with the octets that it has accepted.
        for delay in [0, 1, 5, 50] {
            let (a, b) = pair();
            let sent = send_interrupted(&a, &b, signal, Duration::from_millis(delay));
            assert_eq!(sent, Ok(SIZE), "all of it was advertised");
            let over = AtomicBool::new(false);
            let got = thread::scope(|scope| {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        a.stream().meet_obligation();
                        thread::sleep(Duration::from_millis(1));
                    }
                });
                let got = b.read(SIZE, libc::MSG_WAITALL).unwrap();
                over.store(true, Ordering::Relaxed);
                got
            });
            assert!(got == expected, "after {delay} ms");
            assert_eq!((a.state.ended(), b.state.ended()), (None, None));
        }
    }
    // A signal that is ignored ends nothing.
    // SAFETY: sets the disposition of a signal that nothing else uses.
    unsafe { libc::signal(libc::SIGUSR1, libc::SIG_IGN) };
    let (a, b) = pair();
    let lent = octets();
    // SAFETY: takes nothing and cannot fail.
    let me = unsafe { libc::pthread_self() };
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            for _ in 0..20 {
                // SAFETY: the thread waits for this one, so its ID is valid.
                unsafe { libc::pthread_kill(me, libc::SIGUSR1) };
                thread::sleep(Duration::from_millis(1));
            }
            b.read(SIZE, libc::MSG_WAITALL).unwrap()
        });
        assert_eq!(a.stream().send(&[IoSlice::new(&lent)], 0), Ok(SIZE));
        assert!(!a.stream().has_obligation(), "the peer has read all of it in the call");
        assert!(reader.join().unwrap() == expected);
    });
}
