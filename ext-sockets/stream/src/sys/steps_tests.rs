//! Receives that are stopped after each instruction: a process that is killed there leaves numbers
//! that fit what is in the kernel, or a mark by which the next owner of the lock ends the stream.

use std::cell::Cell;
use std::ffi::c_int;
use std::io::{IoSlice, IoSliceMut};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::ptr;

use rddp_test_support::random_octets;

use super::tests::may_have_blocks;
use super::{Calls, Kernel, SharedState, Table};
use crate::rx::Next;
use crate::sink::Sink;
use crate::state::{Rx, State};
use crate::{Errno, Format, Options, Role, SdpOptions, Stream, sdp};

static CALLS: Calls = Calls(Table { recvmsg, ..Calls::libc().0 });

thread_local! {
    /// Octets after which the next `recvmsg` stops.
    static STOPS_AT: Cell<usize> = const { Cell::new(usize::MAX) };
}

unsafe extern "C" fn recvmsg(fd: c_int, message: *mut libc::msghdr, flags: c_int) -> libc::ssize_t {
    let mut left = STOPS_AT.replace(usize::MAX);
    // SAFETY: the caller's message, whose pieces become shorter, as `recvmsg` takes it.
    unsafe {
        for piece in std::slice::from_raw_parts_mut((*message).msg_iov, (*message).msg_iovlen) {
            piece.iov_len = piece.iov_len.min(left);
            left -= piece.iov_len;
        }
        libc::recvmsg(fd, message, flags)
    }
}

/// A receiver, and its peer.
struct Ends {
    tcp: [TcpStream; 2],
    states: [SharedState; 2],
}

/// Makes a call of a stream, by its kind: of the receiver (0), or of its peer.
macro_rules! of_either {
    ($ends:expr, $nth:expr, $stream:ident => $call:expr) => {{
        let (fd, state) = ($ends.tcp[$nth].as_raw_fd(), &$ends.states[$nth]);
        if let Ok($stream) = Stream::new(fd, state, &CALLS) {
            $call
        } else {
            let $stream = sdp::Stream::new(fd, state, &CALLS).unwrap();
            $call
        }
    }};
}

/// Numbers as another process would find them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    /// Octets in the kernel.
    unread: usize,
    position: u64,
    message: (u32, u64, bool),
    left: [u32; 5],
    /// Octets of the queue; the stub, and free buffers.
    queue: (usize, (u32, u32)),
}

impl Seen {
    /// Returns nothing where the numbers would not be believed.
    fn of(rx: &Rx, unread: usize) -> Option<Self> {
        let is_believed = !rx.moving && rx.is_sound() && rx.sdp.is_sound();
        is_believed.then(|| Self {
            unread,
            position: rx.at.octets,
            message: (rx.at.msn, rx.at.mo, rx.at.is_open),
            left: [rx.left, rx.trailer * u32::from(rx.left > 0), rx.kept.at, rx.shown, rx.absorbed],
            queue: (rx.held.len(), rx.sdp.stub_and_bufs()),
        })
    }
}

impl Ends {
    fn new(format: Format, markers: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let active = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let tcp = [listener.accept().unwrap().0, active];
        let states = [Role::Responder, Role::Initiator].map(|role| {
            let markers = markers && role == Role::Responder;
            SharedState::anonymous(&Options { format, markers, ..Options::new(role) }).unwrap()
        });
        let ends = Self { tcp, states };
        assert_eq!(of_either!(ends, 1, stream => stream.greet()), Ok(false));
        assert_eq!(of_either!(ends, 0, stream => stream.greet()), Ok(true));
        of_either!(ends, 1, stream => stream.start(None)).unwrap();
        while of_either!(ends, 0, stream => stream.has_leave_to_send()) != Ok(true) {
            std::thread::yield_now();
        }
        ends
    }

    /// Returns the receiver's stream of SDP.
    fn receiver(&self) -> sdp::Stream<'_> {
        sdp::Stream::new(self.tcp[0].as_raw_fd(), &self.states[0], &CALLS).unwrap()
    }

    fn rx(&self) -> super::Guard<'_, Rx> {
        self.states[0].rx.lock().unwrap()
    }

    /// Sends octets, which have arrived when this returns.
    fn send(&self, octets: &[u8]) {
        let before = self.unread();
        let pieces = [IoSlice::new(octets)];
        let sent = of_either!(self, 1, stream => stream.send(&pieces, libc::MSG_NOSIGNAL));
        assert_eq!(sent, Ok(octets.len()));
        while self.unread() <= before + octets.len() || self.kernel(1).unacknowledged() > 0 {
            std::thread::yield_now();
        }
    }

    fn unread(&self) -> usize {
        self.kernel(0).unread().unwrap()
    }

    fn kernel(&self, nth: usize) -> Kernel<'_> {
        of_either!(self, nth, stream => stream.kernel)
    }

    fn recv(&self, room: usize, flags: i32) -> Result<Vec<u8>, Errno> {
        let mut octets = vec![0; room];
        let pieces = &mut [IoSliceMut::new(&mut octets)];
        let count = of_either!(self, 0, stream => stream.recv(pieces, flags | libc::MSG_DONTWAIT))?;
        octets.truncate(count);
        Ok(octets)
    }

    /// Has a child do `work` instruction by instruction. Returns the states, each once, that would
    /// be believed if it were killed there. (A panic would take a child of steps minutes.)
    fn steps_of(&self, work: impl FnOnce() -> bool) -> Vec<Seen> {
        let mut seen = Vec::new();
        // SAFETY: the child does what any call does, and ends. It stands still
        // while its memory is read, in which the direction lies where its state says.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
                libc::raise(libc::SIGSTOP);
                libc::_exit(work().into());
            }
            let state: &State = &self.states[0];
            let rx = ptr::from_ref(state).byte_add(State::RX).cast::<Rx>();
            let mut status = 0;
            while libc::waitpid(pid, &raw mut status, 0) == pid && libc::WIFSTOPPED(status) {
                let now = Seen::of(&*rx, self.unread());
                if now.is_some() && seen.last() != now.as_ref() {
                    seen.extend(now);
                }
                // A page that is missing is the guard's to handle.
                let signal = Some(libc::WSTOPSIG(status)).filter(|signal| *signal == libc::SIGSEGV);
                libc::ptrace(libc::PTRACE_SINGLESTEP, pid, 0, signal.unwrap_or(0));
            }
            assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 1), "wrong octets");
        }
        seen
    }

    /// Receives so many octets step by step, which leaves `states`, the first and the last one
    /// included.
    fn receives_by_steps(&self, octets: &[u8], flags: i32, states: usize) {
        let seen = self.steps_of(|| {
            let got = self.recv(octets.len(), flags);
            got.is_ok_and(|got| got == octets || flags & libc::MSG_TRUNC != 0)
        });
        assert_eq!(seen.len(), states, "{seen:#?}");
    }
}

const SDP: Format = Format::Sdp(SdpOptions::DEFAULT);
const FORMATS: [Format; 2] = [Format::Octets, SDP];

#[test]
fn short_messages_are_taken_whole_or_not_at_all() {
    for format in FORMATS {
        let ends = Ends::new(format, false);
        (0..5).for_each(|number| ends.send(&[number; 10]));
        // The last one in part.
        let octets = [[0; 10], [1; 10], [2; 10], [3; 10]].concat();
        ends.receives_by_steps(&octets[..35], 0, 2);
        ends.receives_by_steps(&[3; 5], 0, 2);
        assert_eq!(ends.recv(100, 0), Ok(vec![4; 10]));
    }
}

// Without a look; where it is longer, what was taken of it is in memory.
#[test]
fn an_expected_message_is_taken_whole_or_not_at_all() {
    let ends = Ends::new(Format::Octets, false);
    let expect = || {
        for _ in 0..2 {
            ends.send(&[1; 64]);
            assert_eq!(ends.recv(64, 0), Ok(vec![1; 64]));
        }
        assert_eq!(ends.rx().guess.expected_fpdu, 88);
    };
    expect();
    ends.send(&[2; 64]);
    ends.receives_by_steps(&[2; 64], 0, 2);
    expect();
    ends.send(&[3; 100]);
    // A part taken, the rest of it moved, checked, read.
    ends.receives_by_steps(&[3; 64], 0, 5);
    ends.receives_by_steps(&[3; 36], 0, 2);
    ends.send(b"behind");
    assert_eq!(ends.recv(100, 0), Ok(b"behind".to_vec()));
}

// There would be no place for a part.
#[test]
fn without_a_block_an_expected_message_is_looked_at_first() {
    let ends = Ends::new(Format::Octets, false);
    for _ in 0..2 {
        ends.send(&[1; 64]);
        assert_eq!(ends.recv(64, 0), Ok(vec![1; 64]));
    }
    ends.send(&[2; 100]);
    may_have_blocks(0);
    assert_eq!(ends.recv(64, 0), Ok(vec![2; 64]));
    may_have_blocks(usize::MAX);
    assert_eq!(ends.recv(64, 0), Ok(vec![2; 36]));
}

#[test]
fn a_large_message_is_taken_whole_or_not_at_all() {
    for format in FORMATS {
        let ends = Ends::new(format, false);
        let octets = random_octets(1, 9000);
        ends.send(&octets);
        assert_eq!(ends.recv(9000, 0).as_ref(), Ok(&octets));
        assert!(ends.rx().guess.bulk);
        ends.send(&octets);
        ends.receives_by_steps(&octets, 0, 2);
        ends.send(b"behind");
        assert_eq!(ends.recv(100, 0), Ok(b"behind".to_vec()));
    }
}

#[test]
fn the_rest_of_a_message_is_taken_whole_or_not_at_all() {
    for format in FORMATS {
        for flags in [0, libc::MSG_TRUNC] {
            let ends = Ends::new(format, false);
            let octets = random_octets(2, 5000);
            ends.send(&octets);
            assert_eq!(ends.recv(1000, 0).as_deref(), Ok(&octets[..1000]));
            ends.receives_by_steps(&octets[1000..2000], flags, 2);
            ends.receives_by_steps(&octets[2000..], flags, 2);
            ends.send(b"behind");
            assert_eq!(ends.recv(100, 0), Ok(b"behind".to_vec()));
        }
    }
}

// The payload has gaps in the kernel where markers stand, so that its rest moves to memory.
#[test]
fn the_rest_in_memory_is_taken_whole_or_not_at_all() {
    for format in FORMATS {
        let ends = Ends::new(format, true);
        let octets = random_octets(3, 3000);
        ends.send(&octets);
        ends.receives_by_steps(&octets[..1000], 0, 2);
        assert!(ends.rx().left_is_kept);
        ends.receives_by_steps(&octets[1000..2000], 0, 2);
        ends.receives_by_steps(&octets[2000..], 0, 2);
        ends.send(b"behind");
        assert_eq!(ends.recv(100, 0), Ok(b"behind".to_vec()));
    }
}

// Without memory such an FPDU stays in the kernel whole.
#[test]
fn octets_that_were_read_and_stay_are_counted_whole_or_not_at_all() {
    let ends = Ends::new(Format::Octets, true);
    ends.send(b"before");
    let octets = random_octets(4, 3000);
    ends.send(&octets);
    may_have_blocks(0);
    ends.receives_by_steps(&[b"before", &octets[..994]].concat(), 0, 2);
    assert_eq!(ends.rx().shown, 994);
    ends.receives_by_steps(&octets[994..2000], 0, 2);
    ends.receives_by_steps(&octets[2000..], 0, 2);
    may_have_blocks(usize::MAX);
    ends.send(b"behind");
    assert_eq!(ends.recv(100, 0), Ok(b"behind".to_vec()));
}

// A large FPDU that is read by pieces moves to memory first; there it is checked.
#[test]
fn a_message_that_moves_to_memory_is_counted_whole_or_not_at_all() {
    for format in FORMATS {
        let ends = Ends::new(format, false);
        let octets = random_octets(5, 9000);
        ends.send(&octets);
        assert_eq!(ends.recv(9000, 0).as_ref(), Ok(&octets));
        ends.send(&octets);
        // Moved, checked, read.
        ends.receives_by_steps(&octets[..1000], 0, 4);
        assert!(ends.rx().left_is_kept);
        ends.receives_by_steps(&octets[1000..5000], 0, 2);
        assert_eq!(ends.recv(9000, 0).as_deref(), Ok(&octets[5000..]));
    }
}

// At a page that is not there the kernel stops; what it has taken by then is counted.
#[test]
fn a_message_up_to_a_missing_page_is_counted_whole_or_not_at_all() {
    for format in FORMATS {
        // In the middle of the payload, or of the headers.
        for stops_at in [5000, 10] {
            let ends = Ends::new(format, false);
            let octets = random_octets(6, 9000);
            ends.send(&octets);
            assert_eq!(ends.recv(9000, 0).as_ref(), Ok(&octets));
            ends.send(&octets);
            let seen = ends.steps_of(|| {
                STOPS_AT.set(stops_at);
                ends.recv(9000, 0).as_ref() == Ok(&octets)
            });
            // Between the two parts.
            assert_eq!(seen.len(), 3, "{seen:#?}");
            ends.send(b"behind");
            assert_eq!(ends.recv(100, 0), Ok(b"behind".to_vec()));
        }
    }
}

// Octets that are moved out of the way of credits, and read from there.
#[test]
fn octets_in_the_queue_are_counted_whole_or_not_at_all() {
    let ends = Ends::new(SDP, false);
    let octets = random_octets(7, 2000);
    ends.send(&octets);
    ends.send(b"behind");
    assert_eq!(ends.recv(500, 0).as_deref(), Ok(&octets[..500]));
    let seen = ends.steps_of(|| {
        let mut rx = ends.rx();
        ends.receiver().absorb_front(&mut rx) == Ok(true)
    });
    assert_eq!(seen.len(), 2, "{seen:#?}");
    let seen = ends.steps_of(|| {
        let mut rx = ends.rx();
        matches!(ends.receiver().fetch_behind(&mut rx), Ok(Next::Full))
    });
    assert_eq!(seen.len(), 2, "{seen:#?}");
    let seen = ends.steps_of(|| {
        let (mut rx, mut room) = (ends.rx(), [0; 1000]);
        let mut pieces = [IoSliceMut::new(&mut room)];
        ends.receiver().unload_held(&mut rx, &mut Sink::new(&mut pieces, false)).is_ok()
    });
    assert_eq!(seen.len(), 2, "{seen:#?}");
    ends.receives_by_steps(&[&octets[1500..], b"behind"].concat(), 0, 2);
    ends.send(b"on it goes");
    assert_eq!(ends.recv(100, 0), Ok(b"on it goes".to_vec()));
}
