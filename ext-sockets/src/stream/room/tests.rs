//! A kernel that is made up, and memory that is scarce: what streams do in the worst moments.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::Ordering;

use super::{Calls, SharedState, Table};
use crate::stream::rx::Pull;
use crate::stream::sink::{Sink, Source};
use crate::stream::state::Tx;
use crate::stream::{Errno, Options, Role, Stream};

thread_local! {
    /// Scratches that this thread may have.
    static SCRATCHES: Cell<usize> = const { Cell::new(usize::MAX) };
    /// What the kernel was given.
    static SENT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// What the kernel has received.
    static RECEIVED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// Octets behind which a page of the program's is not there.
    static PAGE: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Fails when this thread has had all scratches that it may have.
pub(super) fn spend_a_scratch() -> Result<(), Errno> {
    let left = SCRATCHES.get().checked_sub(1).ok_or(Errno::NO_BUFFERS)?;
    SCRATCHES.set(left);
    Ok(())
}

fn calls() -> Calls {
    Calls(Table { recv, send, sendmsg, ..Calls::libc().0 })
}

unsafe extern "C-unwind" fn recv(_: c_int, at: *mut c_void, len: usize, flags: c_int) -> libc::ssize_t {
    let peeks = flags & libc::MSG_PEEK != 0;
    let count = RECEIVED.with_borrow_mut(|received| {
        let count = len.min(received.len()).min(if peeks { usize::MAX } else { PAGE.get() });
        if flags & libc::MSG_TRUNC == 0 {
            // SAFETY: the caller's room.
            let room = unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), len) };
            room[..count].copy_from_slice(&received[..count]);
        }
        received.drain(..if peeks { 0 } else { count });
        count
    });
    if count > 0 { count.cast_signed() } else { fails_with(Errno::WOULD_BLOCK) }
}

fn fails_with(error: Errno) -> libc::ssize_t {
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() = error.0 };
    -1
}

unsafe extern "C" fn send(_: c_int, at: *const c_void, len: usize, _: c_int) -> libc::ssize_t {
    // SAFETY: the caller's octets.
    let octets = unsafe { std::slice::from_raw_parts(at.cast::<u8>(), len) };
    SENT.with_borrow_mut(|sent| sent.extend(octets));
    len.cast_signed()
}

unsafe extern "C" fn sendmsg(fd: c_int, message: *const libc::msghdr, flags: c_int) -> libc::ssize_t {
    // SAFETY: the caller's message, and the pieces that it says it has.
    unsafe {
        let pieces = std::slice::from_raw_parts((*message).msg_iov, (*message).msg_iovlen as _);
        pieces.iter().map(|piece| send(fd, piece.iov_base, piece.iov_len, flags)).sum()
    }
}

/// A responder's state that may send.
fn framed() -> SharedState {
    let state = SharedState::anonymous(&Options::new(Role::Responder)).unwrap();
    state.set_framed();
    state.may_send.store(true, Ordering::Relaxed);
    state.rx.lock().unwrap().msn = 1;
    state.tx.lock().unwrap().msn = 1;
    state
}

fn keep_early(tx: &mut Tx, octets: &[u8]) {
    tx.early_room().unwrap()[..octets.len()].copy_from_slice(octets);
    tx.early_added(octets.len());
}

#[test]
fn early_octets_that_find_no_memory_are_kept() {
    let (state, calls) = (framed(), calls());
    let stream = Stream::new(-1, &state, &calls);
    let mut tx = stream.lock_tx().unwrap();
    keep_early(&mut tx, &[7; 100]);
    SCRATCHES.set(1);
    assert_eq!(stream.pay(&mut tx), Err(Errno::NO_BUFFERS));
    assert_eq!(tx.early(), [7; 100]);
    SCRATCHES.set(usize::MAX);
    assert_eq!((stream.pay(&mut tx), tx.early()), (Ok(true), &[][..]));
    assert!(SENT.with_borrow(|sent| sent.windows(100).any(|octets| octets == [7; 100])));
}

// RFC 5041 §5.2: a message that is left open would have the MSN of the next.
#[test]
fn a_message_that_is_begun_needs_no_more_memory() {
    let (state, calls) = (framed(), calls());
    let octets = vec![7; 700_000];
    SCRATCHES.set(1);
    let pushed = Stream::new(-1, &state, &calls).push(Source::new(&[IoSlice::new(&octets)]), false);
    assert_eq!(pushed, Ok(octets.len()));
}

#[test]
fn what_came_before_a_missing_page_is_counted_though_memory_is_scarce() {
    let (state, calls) = (framed(), calls());
    let stream = Stream::new(-1, &state, &calls);
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
