//! The ES-API's engine over the C library's own calls, many threads at a time.

use std::collections::HashSet;
use std::ffi::{c_int, c_void};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use libc::{ECANCELED, ECONNABORTED};
use rddp_es_api::exs::{self, Event, EventPlaces, To, UNREGISTERED};
use rddp_real::Errno;

const ATTRIBUTE_PROGRESS: c_int = 5;

/// Returns memory to lend to operations: nothing else uses it, and it is never freed.
fn lent(len: usize) -> *mut c_void {
    Box::leak(vec![7u8; len].into_boxed_slice()).as_mut_ptr().cast()
}

fn pair(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (one, listener.accept().unwrap().0)
}

fn take(queue: c_int, least: usize, timeout: Duration) -> Vec<Event> {
    let mut events = [Event::default(); 16];
    // SAFETY: the places live until the call returns.
    let mut places = unsafe { EventPlaces::new(events.as_mut_ptr(), events.len()) };
    let count = exs::dequeue(queue, &mut places, least, Some(timeout)).unwrap();
    events[..count].to_vec()
}

fn send(fd: c_int, len: usize, to: To) -> Result<(), Errno> {
    // SAFETY: the memory is never freed or used otherwise.
    exs::post(fd, unsafe { exs::send(lent(len), len, 0, UNREGISTERED) }?, to)
}

fn receive(fd: c_int, len: usize, to: To) -> Result<(), Errno> {
    // SAFETY: the memory is never freed or used otherwise.
    exs::post(fd, unsafe { exs::receive(lent(len), len, libc::MSG_WAITALL, UNREGISTERED) }?, to)
}

/// Posts, cancels and closes; notes the handles of what was accepted.
fn trouble(queue: c_int, listener: &TcpListener, next: &AtomicUsize, accepted: &Mutex<HashSet<usize>>) {
    for round in 0..40 {
        let (one, other) = pair(listener);
        let (one_fd, other_fd) = (one.as_raw_fd(), other.as_raw_fd());
        let mut last = 0;
        for step in 0..8 {
            let to = To { queue, ahandle: next.fetch_add(1, Ordering::Relaxed) };
            let posted = match step % 4 {
                0 => send(one_fd, 1 + round * 30_000, to),
                1 => receive(other_fd, 1 + round * 20_000, to),
                2 => send(other_fd, 100, to),
                _ => receive(one_fd, 150, to),
            };
            match posted {
                Ok(()) => assert!(accepted.lock().unwrap().insert(to.ahandle)),
                Err(errno) => assert_eq!(errno, Errno::WOULD_BLOCK),
            }
            last = to.ahandle;
        }
        if round % 3 == 0 {
            assert!(matches!(exs::cancel(one_fd, Some(last)), Ok(()) | Err(Errno(libc::ENOENT))));
        }
        if round % 5 == 0 {
            let _ = exs::cancel(other_fd, None);
        }
        exs::closing(one_fd);
        drop(one);
        exs::closing(other_fd);
        drop(other);
    }
}

#[test]
fn every_accepted_call_has_one_event_whatever_becomes_of_its_socket() {
    exs::init(exs::VERSION).unwrap();
    for progress in [0, 1] {
        let queue = exs::create_queue(200).unwrap();
        exs::modify_queue(queue, ATTRIBUTE_PROGRESS, progress).unwrap();
        let (next, accepted) = (AtomicUsize::new(1), Mutex::new(HashSet::new()));
        let (seen, is_over) = (Mutex::new(HashSet::new()), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Acquire) || exs::queue_status(queue, 3) != Ok(0) {
                        for event in take(queue, 1, Duration::from_millis(5)) {
                            assert!(
                                [0, ECANCELED, ECONNABORTED, libc::ECONNRESET, libc::EPIPE]
                                    .contains(&event.errno),
                                "{event:?}"
                            );
                            assert!(seen.lock().unwrap().insert(event.ahandle), "a second {event:?}");
                        }
                    }
                });
            }
            let makers: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                        trouble(queue, &listener, &next, &accepted);
                    })
                })
                .collect();
            for maker in makers {
                maker.join().unwrap();
            }
            is_over.store(true, Ordering::Release);
        });
        assert_eq!(*seen.lock().unwrap(), *accepted.lock().unwrap());
        assert!(accepted.lock().unwrap().len() > 200);
        assert_eq!(exs::delete_queue(queue), Ok(()));
    }
}

#[test]
fn events_wake_the_caller_that_waits_for_so_many() {
    exs::init(exs::VERSION).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (one, other) = pair(&listener);
    let queue = exs::create_queue(64).unwrap();
    std::thread::scope(|scope| {
        let many = scope.spawn(|| take(queue, 8, Duration::from_secs(60)).len());
        let few = scope.spawn(|| take(queue, 4, Duration::from_secs(60)).len());
        // The caller that waits for few takes all that are there: there are enough for both.
        for ahandle in 0..24 {
            send(one.as_raw_fd(), 10, To { queue, ahandle }).unwrap();
        }
        let counts = [many.join().unwrap(), few.join().unwrap()];
        assert!(counts[0] >= 8 && counts[1] >= 4 && counts[0] + counts[1] <= 24, "{counts:?}");
    });
    // One thread posts while another waits already; the waiting one makes progress with it.
    std::thread::scope(|scope| {
        let left = exs::queue_status(queue, 3).unwrap();
        let wanted = left as usize + 1;
        assert!(wanted <= 16);
        let waits = scope.spawn(move || take(queue, wanted, Duration::from_secs(60)));
        receive(other.as_raw_fd(), 240, To { queue, ahandle: 77 }).unwrap();
        assert_eq!(waits.join().unwrap().last().unwrap().ahandle, 77);
    });
    exs::closing(one.as_raw_fd());
    exs::closing(other.as_raw_fd());
}
