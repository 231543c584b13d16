//! The two threads by their public functions. A test in which a thread dies runs in a child of
//! `fork`.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use libc::POLLIN;
use rddp_es_api::threads::{Direction, Task, Tried, Waiting, Waits, next_id, post, run};
use rddp_real::Errno;

/// Lock of each test: the tests count threads, and one sends signals.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pair() -> (UnixStream, UnixStream) {
    let (one, other) = UnixStream::pair().unwrap();
    one.set_nonblocking(true).unwrap();
    (one, other)
}

/// Returns an attempt that reads one octet, when it is there.
fn octet_of(stream: &UnixStream) -> impl FnMut() -> Tried<u8> + Send {
    move || {
        let (mut octet, mut from) = ([0], stream);
        match from.read(&mut octet) {
            Ok(1) => Tried::Done(octet[0]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                Tried::Later(Waiting { fd: stream.as_raw_fd(), events: POLLIN, until: None })
            }
            other => panic!("{other:?}"),
        }
    }
}

fn threads_named(name: &str) -> usize {
    let of =
        |path: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(path.unwrap().path().join("comm"));
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .map(of)
        .filter(|comm| comm.as_deref().is_ok_and(|comm| comm.trim() == name))
        .count()
}

/// Runs `body` in a child; returns whether it ended without a panic.
fn in_child(body: impl FnOnce()) -> bool {
    // SAFETY: the child only runs the code under test, and `_exit`; other threads of the harness
    // sleep in `alone` or wait.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY: ends the child without the harness' exit handlers.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    let mut status = 0;
    // SAFETY: waits for a child of ours; the status lives until the call returns.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status == 0
}

#[test]
fn a_call_comes_back_when_the_thread_has_done_it() {
    let _alone = alone();
    let (one, mut other) = pair();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| run(Direction::Receive, None, octet_of(&one)));
        other.write_all(b"x").unwrap();
        assert_eq!(waits.join().unwrap(), Ok(b'x'));
    });
    other.write_all(b"y").unwrap();
    assert_eq!(run(Direction::Receive, Some(Duration::MAX), octet_of(&one)), Ok(b'y'));
}

#[test]
fn there_is_one_thread_for_each_direction_however_many_sockets_wait() {
    let _alone = alone();
    let pairs: Vec<_> = (0..40).map(|_| pair()).collect();
    std::thread::scope(|scope| {
        let waits: Vec<_> = pairs
            .iter()
            .map(|(one, _)| scope.spawn(|| run(Direction::Receive, None, octet_of(one))))
            .collect();
        assert_eq!(run(Direction::Send, None, || Tried::Done(1)), Ok(1));
        for (index, (_, other)) in pairs.iter().enumerate().rev() {
            let mut to = other;
            to.write_all(&[index as u8]).unwrap();
        }
        for (index, wait) in waits.into_iter().enumerate() {
            assert_eq!(wait.join().unwrap(), Ok(index as u8));
        }
    });
    assert_eq!((threads_named("rddp-receive"), threads_named("rddp-send")), (1, 1));
}

#[test]
fn a_time_out_takes_the_call_back_from_the_thread() {
    let _alone = alone();
    let (one, mut other) = pair();
    let tried = AtomicUsize::new(0);
    let mut read = octet_of(&one);
    let timed = run(Direction::Receive, Some(Duration::from_millis(20)), || {
        tried.fetch_add(1, Ordering::Relaxed);
        read()
    });
    assert_eq!(timed, Err(Errno::WOULD_BLOCK));
    let before = tried.load(Ordering::Relaxed);
    other.write_all(b"z").unwrap();
    // An octet that comes afterwards is for the next call.
    assert_eq!(run(Direction::Receive, None, octet_of(&one)), Ok(b'z'));
    assert_eq!(tried.load(Ordering::Relaxed), before);
}

#[test]
fn a_time_at_which_to_try_again_is_kept_without_an_event() {
    let _alone = alone();
    let (one, _other) = pair();
    let mut tries = 0;
    let done = run(Direction::Receive, None, || {
        tries += 1;
        let until = Some(Instant::now() + Duration::from_millis(5));
        let waiting = Waiting { fd: one.as_raw_fd(), events: POLLIN, until };
        if tries == 3 { Tried::Done(tries) } else { Tried::Later(waiting) }
    });
    assert_eq!(done, Ok(3));
}

#[test]
fn a_signal_ends_the_wait_of_the_caller_and_not_of_the_thread() {
    extern "C" fn nothing(_: libc::c_int) {}
    let _alone = alone();
    let (one, mut other) = pair();
    // SAFETY: all zeros is an action without flags; the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut());
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (id, has_id) = std::sync::mpsc::channel();
        let waits = scope.spawn({
            let (one, is_over) = (&one, &is_over);
            move || {
                // SAFETY: takes nothing and cannot fail.
                id.send(unsafe { libc::pthread_self() }).unwrap();
                let ended = run(Direction::Receive, None, octet_of(one));
                is_over.store(true, Ordering::Release);
                ended
            }
        });
        let id = has_id.recv().unwrap();
        while !is_over.load(Ordering::Acquire) {
            // SAFETY: the thread is not joined yet, so its ID is valid.
            unsafe { libc::pthread_kill(id, libc::SIGUSR1) };
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(waits.join().unwrap(), Err(Errno::INTERRUPTED));
    });
    other.write_all(b"w").unwrap();
    assert_eq!(run(Direction::Receive, None, octet_of(&one)), Ok(b'w'));
}

#[test]
fn on_the_threads_themselves_a_call_is_made_in_place() {
    let _alone = alone();
    let (one, mut other) = pair();
    other.write_all(b"v").unwrap();
    let inner = run(Direction::Receive, None, || {
        Tried::Done((
            run(Direction::Receive, None, octet_of(&one)),
            run(Direction::Receive, Some(Duration::ZERO), octet_of(&one)),
        ))
    });
    assert_eq!(inner, Ok((Ok(b'v'), Err(Errno::WOULD_BLOCK))));
}

#[test]
fn a_child_of_fork_has_threads_of_its_own() {
    let _alone = alone();
    let (one, mut other) = pair();
    assert_eq!(run(Direction::Receive, None, || Tried::Done(0)), Ok(0));
    assert!(in_child(|| {
        other.write_all(b"u").unwrap();
        assert_eq!(run(Direction::Receive, None, octet_of(&one)), Ok(b'u'));
        assert_eq!(threads_named("rddp-receive"), 1);
    }));
    assert_eq!(run(Direction::Receive, None, || Tried::Done(0)), Ok(0));
}

/// A task that keeps its thread busy until it is told, or kills it.
struct Odd {
    id: u64,
    has_begun: AtomicBool,
    may_go_on: AtomicBool,
    is_deadly: bool,
    abandoned: AtomicBool,
}

impl Odd {
    fn new(is_deadly: bool) -> Arc<Self> {
        let (may_go_on, abandoned) = (AtomicBool::new(is_deadly), AtomicBool::new(false));
        let has_begun = AtomicBool::new(false);
        Arc::new(Odd { id: next_id(), has_begun, may_go_on, is_deadly, abandoned })
    }
}

impl Task for Odd {
    fn id(&self) -> u64 {
        self.id
    }

    fn fd(&self) -> libc::c_int {
        -1
    }

    fn advance(&self) -> bool {
        self.has_begun.store(true, Ordering::Release);
        while !self.may_go_on.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!self.is_deadly, "the end of a thread, as the test wants it");
        false
    }

    fn waits_for(&self, _: &mut Waits) -> bool {
        false
    }

    fn abandon(&self, errno: Errno) {
        assert_eq!(errno, Errno::ABORTED);
        self.abandoned.store(true, Ordering::Release);
    }
}

#[test]
fn posting_to_a_full_socket_fails_at_once() {
    let _alone = alone();
    let busy = Odd::new(false);
    let task: Arc<dyn Task> = busy.clone();
    // The thread must not read its socket, and so make room, once that is full.
    assert_eq!(post(Direction::Send, &task), Ok(()));
    while !busy.has_begun.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    let posted = (0..100_000).map(|_| post(Direction::Send, &task)).find(Result::is_err);
    assert_eq!(posted, Some(Err(Errno::WOULD_BLOCK)));
    assert_eq!(run(Direction::Send, None, || Tried::Done(1)), Err(Errno::WOULD_BLOCK));
    busy.may_go_on.store(true, Ordering::Release);
    // The other thread was not disturbed, and this one goes on.
    assert_eq!(run(Direction::Receive, None, || Tried::Done(2)), Ok(2));
    while run(Direction::Send, None, || Tried::Done(3)) == Err(Errno::WOULD_BLOCK) {
        std::thread::yield_now();
    }
}

/// A fault's signal must not be blocked: it would end the process whatever handler is set.
#[test]
fn the_threads_leave_the_signals_of_faults_open_and_no_others() {
    use libc::{SIGBUS, SIGFPE, SIGHUP, SIGILL, SIGINT, SIGSEGV, SIGSYS, SIGTERM, SIGTRAP, SIGUSR1};
    let _alone = alone();
    let asked = [SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGHUP, SIGINT, SIGTERM, SIGUSR1];
    for direction in [Direction::Send, Direction::Receive] {
        let blocked = run(direction, None, || {
            // SAFETY: all zeros is a valid set; the call only reads the mask.
            let mask = unsafe {
                let mut mask = std::mem::zeroed();
                libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut mask);
                mask
            };
            // SAFETY: a set that the kernel gave.
            Tried::Done(asked.map(|signal| unsafe { libc::sigismember(&raw const mask, signal) }))
        });
        assert_eq!(blocked, Ok([0, 0, 0, 0, 0, 0, 1, 1, 1, 1]));
    }
}

#[test]
fn the_death_of_a_thread_ends_what_it_had_and_what_comes() {
    let _alone = alone();
    let (one, _other) = pair();
    assert!(in_child(|| {
        std::panic::set_hook(Box::new(|_| {}));
        let deadly = Odd::new(true);
        let task: Arc<dyn Task> = deadly.clone();
        std::thread::scope(|scope| {
            let waits: Vec<_> =
                (0..3).map(|_| scope.spawn(|| run(Direction::Receive, None, octet_of(&one)))).collect();
            // The tasks are with the thread, or come when it has died.
            assert_eq!(post(Direction::Receive, &task), Ok(()));
            for wait in waits {
                assert_eq!(wait.join().unwrap(), Err(Errno::ABORTED));
            }
        });
        assert_eq!(post(Direction::Receive, &task), Err(Errno::ABORTED));
        assert_eq!(run(Direction::Receive, None, || Tried::Done(1)), Err(Errno::ABORTED));
        // The other thread lives.
        assert_eq!(run(Direction::Send, None, || Tried::Done(2)), Ok(2));
    }));
}
