//! The sockets of this process, for its children: a connection must not outlive its process only
//! because a child of `fork`, which has no use for it, still has the descriptor.
//!
//! A child closes what it inherited when it first asks for a socket of its own, or calls
//! [`close_inherited`]. A number may be another file by then: the kernel's cookie tells. Nothing
//! here takes a lock, so it does not matter what the parent's other threads were at when it forked.

use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::fork::Origin;

/// Notes a socket, until [`forget`] is called for its number.
pub fn note(socket: BorrowedFd<'_>) {
    close_inherited();
    if let Some(place) = place(socket.as_raw_fd())
        && let Some(cookie) = cookie(socket.as_raw_fd())
    {
        place.store(cookie, Ordering::Relaxed);
    }
}

/// Forgets a socket, which is about to be closed.
pub fn forget(socket: BorrowedFd<'_>) {
    if let Some(place) = existing(socket.as_raw_fd()) {
        place.store(NONE, Ordering::Relaxed);
    }
}

/// In a child of `fork`, closes the sockets that its parent had noted, without a word to their
/// peers; once. Costs one look where there is nothing to do.
pub fn close_inherited() {
    let here = Origin::here().epoch();
    loop {
        let settled = SETTLED.load(Ordering::Acquire);
        if settled == here {
            return;
        }
        if settled == here | BUSY {
            // Another thread is at it. It waits for nothing.
            std::thread::yield_now();
            continue;
        }
        if SETTLED.compare_exchange(settled, here | BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            close_all();
            SETTLED.store(here, Ordering::Release);
            return;
        }
    }
}

/// The process whose sockets are noted here: its epoch,
/// with [`BUSY`] set while it closes those of its parent.
static SETTLED: AtomicU64 = AtomicU64::new(0);

/// No epoch has this bit: it counts from 1 on, in the half of a word.
const BUSY: u64 = 1 << 63;

/// No socket. The kernel's cookies begin at 1.
const NONE: u64 = 0;

/// Cookies by descriptor, in chunks that are made when they are first needed.
static CHUNKS: [AtomicPtr<Chunk>; CHUNK_COUNT] = [const { AtomicPtr::new(ptr::null_mut()) }; CHUNK_COUNT];

type Chunk = [AtomicU64; CHUNK_LEN];

const CHUNK_LEN: usize = 1024;

/// For a million descriptors, Linux's own limit unless it was raised. Those above are not noted.
const CHUNK_COUNT: usize = 1024;

/// The place of a descriptor, if its chunk has been made.
fn existing(fd: RawFd) -> Option<&'static AtomicU64> {
    let fd = usize::try_from(fd).ok()?;
    let chunk = CHUNKS.get(fd / CHUNK_LEN)?.load(Ordering::Acquire);
    // SAFETY: null, or published by `place`: it lives for ever.
    unsafe { chunk.as_ref() }.map(|chunk| &chunk[fd % CHUNK_LEN])
}

/// The place of a descriptor.
fn place(fd: RawFd) -> Option<&'static AtomicU64> {
    if let Some(place) = existing(fd) {
        return Some(place);
    }
    let slot = CHUNKS.get(usize::try_from(fd).ok()? / CHUNK_LEN)?;
    let new = Box::into_raw(Box::new([const { AtomicU64::new(NONE) }; CHUNK_LEN]));
    if slot.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: from `into_raw` above; another thread came first, and nobody has seen this one.
        drop(unsafe { Box::from_raw(new) });
    }
    existing(fd)
}

fn close_all() {
    for (nth, slot) in CHUNKS.iter().enumerate() {
        // SAFETY: null, or published by `place`: it lives for ever.
        let Some(chunk) = (unsafe { slot.load(Ordering::Acquire).as_ref() }) else { continue };
        for (at, place) in chunk.iter().enumerate() {
            let noted = place.swap(NONE, Ordering::Relaxed);
            let fd = (nth * CHUNK_LEN + at) as RawFd;
            if noted != NONE && cookie(fd) == Some(noted) {
                // SAFETY: the descriptor is a socket of the parent's, which nothing of this
                // process uses: the objects that have it know that they are copies. Closing it
                // leaves the parent's open.
                unsafe { libc::close(fd) };
            }
        }
    }
}

/// The kernel's number for a socket, which no other has or will have; `None` if it is no socket.
fn cookie(fd: RawFd) -> Option<u64> {
    let (mut cookie, mut len) = (0_u64, mem::size_of::<u64>() as libc::socklen_t);
    // SAFETY: the buffer is as long as is said, and both live until the call returns; a number that
    // is no socket, or not open, is refused.
    let answer = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_COOKIE, (&raw mut cookie).cast(), &raw mut len)
    };
    (answer == 0 && cookie != NONE).then_some(cookie)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsFd;

    use super::*;
    use crate::fork::tests::holds_in_child;

    fn is_open(fd: RawFd) -> bool {
        // SAFETY: `F_GETFD` has no further argument and touches no memory;
        // a number that is not open is refused.
        unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
    }

    #[test]
    fn a_child_closes_what_its_parent_noted_and_nothing_else() {
        let make = || TcpListener::bind("127.0.0.1:0").unwrap();
        let [noted, forgotten, other, replaced] = [make(), make(), make(), make()];
        for socket in [&noted, &forgotten, &replaced] {
            note(socket.as_fd());
        }
        forget(forgotten.as_fd());
        let numbers = [&noted, &forgotten, &other, &replaced].map(AsRawFd::as_raw_fd);
        assert!(holds_in_child(|| {
            // The number is another socket by now.
            // SAFETY: both are open, and the child's own.
            unsafe { libc::dup2(numbers[2], numbers[3]) };
            close_inherited();
            let first = numbers.map(is_open) == [false, true, true, true];
            close_inherited();
            first && numbers.map(is_open) == [false, true, true, true]
        }));
        assert_eq!(numbers.map(is_open), [true; 4]);
        close_inherited();
        assert_eq!(numbers.map(is_open), [true; 4], "in the process itself nothing is closed");
    }

    #[test]
    fn a_child_that_notes_a_socket_of_its_own_keeps_it_and_its_child_closes_it() {
        let parents = TcpListener::bind("127.0.0.1:0").unwrap();
        note(parents.as_fd());
        assert!(holds_in_child(|| {
            // SAFETY: the arguments are numbers, so no memory is touched;
            // the new descriptor is this function's own.
            let own = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) };
            // SAFETY: just made, and open until the child ends.
            note(unsafe { BorrowedFd::borrow_raw(own) });
            let kept = is_open(own) && !is_open(parents.as_raw_fd());
            kept && holds_in_child(|| {
                close_inherited();
                !is_open(own)
            })
        }));
        assert!(is_open(parents.as_raw_fd()));
    }
}
