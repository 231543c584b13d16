//! Streams over a simulated kernel and with little memory, at the worst moments.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::Ordering;
use std::time::Duration;

use rddp_ddp::{Msn, Stag};
use rddp_mpa::{Framer, Framing};
use rddp_rdmap::{Opcode, untagged_header};

use super::{Calls, SharedState, Table};
use crate::owed::owe_fpdu;
use crate::rx::Pull;
use crate::sink::{Sink, Source};
use crate::state::{State, Tx};
use crate::{Errno, Options, Role, Stream};

thread_local! {
    /// Number of scratch buffers that this thread may have.
    static SCRATCHES: Cell<usize> = const { Cell::new(usize::MAX) };
    /// Number of blocks that this thread may have for what it receives, and for chains and tables.
    static BLOCKS: Cell<usize> = const { Cell::new(usize::MAX) };
    /// Octets that were given to the kernel.
    static SENT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// Octets that the kernel has received.
    static RECEIVED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// Number of empty Sends that arrive, each when all octets before it are taken.
    static EMPTY_SENDS: Cell<u32> = const { Cell::new(0) };
    /// Number of octets that the kernel has room for.
    static ROOM: Cell<usize> = const { Cell::new(usize::MAX) };
    /// Number of calls that a signal interrupts.
    static SIGNALS: Cell<usize> = const { Cell::new(0) };
    /// Number of octets before a page of the program that is not mapped.
    static PAGE: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Fails when this thread has had all scratch buffers that it may have.
pub(super) fn spend_a_scratch() -> Result<(), Errno> {
    let left = SCRATCHES.get().checked_sub(1).ok_or(Errno::NO_BUFFERS)?;
    SCRATCHES.set(left);
    Ok(())
}

/// Returns `None` when this thread has had all blocks that it may have.
pub(crate) fn spend_a_block() -> Option<()> {
    BLOCKS.set(BLOCKS.get().checked_sub(1)?);
    Some(())
}

/// Sets how many blocks this thread may have from now on.
pub(crate) fn may_have_blocks(count: usize) {
    BLOCKS.set(count);
}

fn calls() -> Calls {
    Calls(Table { ppoll, recv, send, sendmsg, ..Calls::libc().0 })
}

unsafe extern "C-unwind" fn recv(_: c_int, at: *mut c_void, len: usize, flags: c_int) -> libc::ssize_t {
    let peeks = flags & libc::MSG_PEEK != 0;
    let count = RECEIVED.with_borrow_mut(|received| {
        let left = EMPTY_SENDS.get();
        if received.is_empty() && left > 0 {
            EMPTY_SENDS.set(left - 1);
            let framing = Framing { crc: false, markers: false };
            Framer::new(framing).emit(
                send_header(SENDS + 1 - left).octets().as_ref(),
                0,
                |_, _| {},
                received,
            );
        }
        let count = len.min(received.len()).min(if peeks { usize::MAX } else { PAGE.get() });
        if flags & libc::MSG_TRUNC == 0 {
            // SAFETY: the caller's buffer has room for `len` octets, as `recv` asks.
            let room = unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), len) };
            room[..count].copy_from_slice(&received[..count]);
        }
        received.drain(..if peeks { 0 } else { count });
        count
    });
    if count > 0 { count.cast_signed() } else { fails_with(Errno::WOULD_BLOCK) }
}

fn fails_with(error: Errno) -> libc::ssize_t {
    error.set_last();
    -1
}

/// Returns whether a signal interrupts this call.
fn is_interrupted() -> bool {
    let left = SIGNALS.get();
    SIGNALS.set(left.saturating_sub(1));
    left > 0
}

unsafe extern "C-unwind" fn ppoll(
    entries: *mut libc::pollfd,
    _: libc::nfds_t,
    _: *const libc::timespec,
    _: *const libc::sigset_t,
) -> c_int {
    if is_interrupted() {
        return fails_with(Errno::INTERRUPTED) as c_int;
    }
    // SAFETY: the caller has one entry there, as `ppoll` asks.
    unsafe { (*entries).revents = (*entries).events };
    1
}

unsafe extern "C" fn send(_: c_int, at: *const c_void, len: usize, _: c_int) -> libc::ssize_t {
    // SAFETY: the caller has `len` octets there, as `send` asks.
    let octets = unsafe { std::slice::from_raw_parts(at.cast::<u8>(), len) };
    if is_interrupted() {
        return fails_with(Errno::INTERRUPTED);
    }
    let count = len.min(ROOM.get());
    ROOM.set(ROOM.get() - count);
    SENT.with_borrow_mut(|sent| sent.extend(&octets[..count]));
    if count > 0 { count.cast_signed() } else { fails_with(Errno::WOULD_BLOCK) }
}

unsafe extern "C" fn sendmsg(fd: c_int, message: *const libc::msghdr, flags: c_int) -> libc::ssize_t {
    // SAFETY: the caller's message has the pieces that it names, as `sendmsg` asks.
    unsafe {
        let pieces = std::slice::from_raw_parts((*message).msg_iov, (*message).msg_iovlen as _);
        let taken = pieces.iter().map(|piece| send(fd, piece.iov_base, piece.iov_len, flags).max(0)).sum();
        // The call that failed has set errno.
        if taken > 0 { taken } else { -1 }
    }
}

/// Returns a responder's state that may send.
fn framed() -> SharedState {
    let state = SharedState::anonymous(&Options::new(Role::Responder)).unwrap();
    state.set_framed();
    state.startup.may_send.store(true, Ordering::Relaxed);
    state.rx.lock().unwrap().at.msn = 1;
    state.tx.lock().unwrap().out.msn = 1;
    state
}

fn keep_early(tx: &mut Tx, octets: &[u8]) {
    tx.early_room().unwrap()[..octets.len()].copy_from_slice(octets);
    tx.early_added(octets.len());
}

#[test]
fn early_octets_that_find_no_memory_are_kept() {
    let (state, calls) = (framed(), calls());
    let stream = Stream::new(-1, &state, &calls).unwrap();
    let mut tx = stream.lock_tx().unwrap();
    keep_early(&mut tx, &[7; 100]);
    SCRATCHES.set(1);
    assert_eq!(stream.pay_and_frame(&mut tx), Err(Errno::NO_BUFFERS));
    assert_eq!(tx.early(), [7; 100]);
    SCRATCHES.set(usize::MAX);
    assert_eq!((stream.pay_and_frame(&mut tx), tx.early()), (Ok(true), &[][..]));
    assert!(SENT.with_borrow(|sent| sent.windows(100).any(|octets| octets == [7; 100])));
}

// A message that is left open would give the next one its MSN (RFC 5041 §5.2).
#[test]
fn early_octets_do_not_outlive_the_stream() {
    let (state, calls) = (framed(), calls());
    let stream = Stream::new(-1, &state, &calls).unwrap();
    let mut tx = stream.lock_tx().unwrap();
    keep_early(&mut tx, &[7; 100]);
    assert_eq!((stream.pay_at_end(&mut tx), tx.early()), (Ok(true), &[][..]));
}

#[test]
fn a_message_that_is_begun_needs_no_more_memory() {
    let (state, calls) = (framed(), calls());
    let octets = vec![7; 700_000];
    SCRATCHES.set(1);
    let pushed =
        Stream::new(-1, &state, &calls).unwrap().push_octets(Source::new(&[IoSlice::new(&octets)]), false);
    assert_eq!(pushed, Ok(octets.len()));
}

#[test]
fn octets_before_a_missing_page_are_counted_though_memory_is_scarce() {
    let (state, calls) = (framed(), calls());
    let stream = Stream::new(-1, &state, &calls).unwrap();
    let mut rx = state.rx.lock().unwrap();
    (rx.left, rx.trailer) = (10, 4);
    drop(rx);
    RECEIVED.set(b"0123456789crc.".to_vec());
    PAGE.set(4);
    SCRATCHES.set(0);
    let pull = |room: usize| {
        let mut octets = vec![0; room];
        let mut pieces = [IoSliceMut::new(&mut octets)];
        let mut sink = Sink::new(&mut pieces, false);
        let pulled = stream.pull(&mut sink);
        (pulled, sink.done(), octets)
    };
    assert_eq!(pull(8), (Ok(Pull::Some), 4, b"0123\0\0\0\0".to_vec()));
    assert_eq!(state.rx.lock().unwrap().left, 6);
    PAGE.set(usize::MAX);
    SCRATCHES.set(usize::MAX);
    assert_eq!(pull(5), (Ok(Pull::Some), 5, b"45678".to_vec()));
    assert_eq!(state.rx.lock().unwrap().left, 1);
}

#[test]
fn a_signal_pays_nothing_of_what_is_owed() {
    let (state, calls) = (framed(), calls());
    let stream = Stream::new(-1, &state, &calls).unwrap();
    let mut tx = stream.lock_tx().unwrap();
    assert!(tx.owe(b"owed"));
    keep_early(&mut tx, b"early");
    SIGNALS.set(1);
    assert_eq!((stream.pay_and_frame(&mut tx), tx.owed()), (Ok(false), &b"owed"[..]));
    tx.paid(4);
    // Each piece of an FPDU.
    SIGNALS.set(100);
    assert_eq!((stream.pay_and_frame(&mut tx), tx.early()), (Ok(false), &b"early"[..]));
    SIGNALS.set(0);
    assert_eq!((stream.pay_and_frame(&mut tx), tx.early()), (Ok(true), &b""[..]));
}

#[test]
fn a_look_at_readiness_is_not_interrupted() {
    let (state, calls) = (framed(), calls());
    SIGNALS.set(1);
    let ready = Stream::new(-1, &state, &calls).unwrap().kernel.poll(libc::POLLOUT, Some(Duration::ZERO));
    assert_eq!(ready, Ok(libc::POLLOUT));
}

#[test]
fn a_peer_that_sends_no_octets_does_not_hold_a_look() {
    let (state, calls) = (framed(), calls());
    let stream = Stream::new(-1, &state, &calls).unwrap();
    EMPTY_SENDS.set(SENDS);
    assert_eq!(stream.available(), Ok(0));
    let looked = SENDS - EMPTY_SENDS.get();
    assert!((2..SENDS).contains(&looked), "{looked}");
}

// The first good FPDU lets this end send, whether the program reads all of it or not
// (RFC 5044 §7.1.2 r4).
#[test]
fn an_fpdu_that_stays_in_the_kernel_gives_leave_to_send() {
    let (state, calls) = (framed(), calls());
    let stream = Stream::new(-1, &state, &calls).unwrap();
    state.startup.may_send.store(false, Ordering::Relaxed);
    state.rx.lock().unwrap().terms.markers = true;
    keep_early(&mut state.tx.lock().unwrap(), b"early");
    let mut fpdu = Vec::new();
    let fill = |_: usize, out: &mut [u8]| out.fill(7);
    let mut framer = Framer::new(Framing { crc: false, markers: true });
    framer.emit(send_header(1).octets().as_ref(), 10, fill, &mut fpdu);
    RECEIVED.set(fpdu);
    BLOCKS.set(0);
    let (mut octets, before) = ([0; 3], state.tx.lock().unwrap().out.msn);
    let mut pieces = [IoSliceMut::new(&mut octets)];
    assert_eq!(stream.pull(&mut Sink::new(&mut pieces, false)), Ok(Pull::Some));
    assert_eq!(state.rx.lock().unwrap().shown, 3);
    let tx = state.tx.lock().unwrap();
    assert_eq!((tx.early(), tx.out.msn), (&b""[..], before + 1));
}

/// A direction as another process would see it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    owed: Vec<u8>,
    early: Vec<u8>,
    position: u64,
    msn: u32,
}

impl Seen {
    fn of(tx: &Tx) -> Option<Self> {
        let believed = !tx.moving && !tx.changing && tx.is_sound();
        let (owed, early) = (tx.owed().to_vec(), tx.early().to_vec());
        believed.then_some(Self { owed, early, position: tx.out.octets, msn: tx.out.msn })
    }
}

/// Has a child do `work` step by step, and checks after each instruction what it would leave if it
/// were killed there: nothing of the work, or all of it, or a state that is detected as broken.
#[cfg(target_arch = "x86_64")]
fn is_done_whole_or_detected(state: &SharedState, work: impl FnOnce()) {
    let before = Seen::of(&state.tx.lock().unwrap()).unwrap();
    let (mut seen, mut doubtful) = (vec![before], 0);
    // SAFETY: the child does what any call does, and is killed. It stands still while its memory is
    // read, in which the direction lies where its state says.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            libc::raise(libc::SIGSTOP);
            work();
            libc::kill(libc::getpid(), libc::SIGKILL);
        }
        let mut status = 0;
        while libc::waitpid(pid, &raw mut status, 0) == pid && libc::WIFSTOPPED(status) {
            let at = std::ptr::from_ref::<State>(state).byte_add(State::TX).cast::<Tx>();
            match Seen::of(&*at) {
                None => doubtful += 1,
                Some(now) if seen.last() != Some(&now) => seen.push(now),
                Some(_) => {}
            }
            libc::ptrace(libc::PTRACE_SINGLESTEP, pid, 0, 0);
        }
    }
    assert!(seen.len() <= 2 && doubtful > 0, "{doubtful} {seen:?}");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_process_killed_at_any_instruction_of_owing_is_detected() {
    let state = framed();
    let owe = |octets: &[u8]| {
        is_done_whole_or_detected(&state, || {
            let mut tx = state.tx.lock().unwrap();
            assert!(tx.owe(octets));
            std::mem::forget(tx);
        });
        assert_eq!(state.tx.lock().unwrap().owed()[..3], [1, 2, 3]);
    };
    assert!(state.tx.lock().unwrap().owe(&[&[0; 500][..], &[1; 1], &[2; 1], &[3; 400]].concat()));
    state.tx.lock().unwrap().paid(500);
    owe(&[4; 300]);
    owe(&[5; 2000]);
    is_done_whole_or_detected(&state, || {
        let mut tx = state.tx.lock().unwrap();
        assert!(owe_fpdu(&mut tx, &send_header(1), b"octets"));
        std::mem::forget(tx);
    });
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_process_killed_at_any_instruction_of_keeping_is_detected() {
    let state = framed();
    keep_early(&mut state.tx.lock().unwrap(), b"0123456789");
    state.tx.lock().unwrap().early_framed(3);
    is_done_whole_or_detected(&state, || {
        let mut tx = state.tx.lock().unwrap();
        assert!(tx.early_room().is_some());
        std::mem::forget(tx);
    });
    assert_eq!(state.tx.lock().unwrap().early(), b"3456789");
}

// TCP takes the first segment and a part of the second: the message is then ended by a short one.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_process_killed_at_any_instruction_of_a_send_is_detected() {
    let (state, calls) = (framed(), calls());
    is_done_whole_or_detected(&state, || {
        ROOM.set(700);
        let pushed = Stream::new(-1, &state, &calls)
            .unwrap()
            .push_octets(Source::new(&[IoSlice::new(&[7; 2000])]), false);
        assert!(pushed.is_ok());
    });
}

fn send_header(msn: u32) -> rddp_ddp::Header {
    untagged_header(Opcode::Send, Stag(0), Msn(msn), 0, true)
}

const SENDS: u32 = 1000;
