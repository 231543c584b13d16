//! A register of this process's sockets, which a child of `fork` closes: otherwise a connection
//! would outlive its process, only because a child that cannot use it still has the descriptor.
//!
//! A child closes what it inherited when it first notes a socket of its own, or calls
//! [`close_inherited`]. A descriptor may be another file by then, which shows by the kernel's
//! cookie. No function here takes a lock, so it does not matter what the parent's other threads
//! were doing when it forked.

use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::fork::Origin;

/// Registers a socket, until [`forget`] is called for its descriptor.
pub fn note(socket: BorrowedFd<'_>) {
    close_inherited();
    if let Some(place) = place(socket.as_raw_fd())
        && let Some(cookie) = cookie(socket.as_raw_fd())
    {
        place.store(cookie, Ordering::Relaxed);
    }
}

/// Removes a socket that is about to be closed from the register.
pub fn forget(socket: BorrowedFd<'_>) {
    if let Some(place) = existing(socket.as_raw_fd()) {
        place.store(NONE, Ordering::Relaxed);
    }
}

/// Closes, in a child of `fork`, the sockets that its parent had registered; nothing is sent to
/// their peers. Done once; a call that has nothing to do costs one load.
pub fn close_inherited() {
    let here = Origin::here().epoch();
    loop {
        let settled = SETTLED.load(Ordering::Acquire);
        if settled == here {
            return;
        }
        if settled == here | BUSY {
            // Another thread is closing them. It does not wait for anything, so this ends soon.
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

/// The process whose sockets are registered: its epoch, with [`BUSY`] set while it closes those of
/// its parent.
static SETTLED: AtomicU64 = AtomicU64::new(0);

/// The bit that no epoch has: an epoch counts in its upper 32 bits, from 1 on.
const BUSY: u64 = 1 << 63;

/// The cookie of no socket. The kernel's cookies begin at 1.
const NONE: u64 = 0;

/// Cookies by descriptor, in chunks that are allocated when first needed.
static CHUNKS: [AtomicPtr<Chunk>; CHUNK_COUNT] = [const { AtomicPtr::new(ptr::null_mut()) }; CHUNK_COUNT];

type Chunk = [AtomicU64; CHUNK_LEN];

const CHUNK_LEN: usize = 1024;

/// Enough for a million descriptors, which is Linux's limit unless raised. Higher descriptors are
/// not registered.
const CHUNK_COUNT: usize = 1024;

/// Returns the place of a descriptor, if its chunk has been allocated.
fn existing(fd: RawFd) -> Option<&'static AtomicU64> {
    let fd = usize::try_from(fd).ok()?;
    let chunk = CHUNKS.get(fd / CHUNK_LEN)?.load(Ordering::Acquire);
    // SAFETY: null, or published by `place`, which never frees a chunk.
    unsafe { chunk.as_ref() }.map(|chunk| &chunk[fd % CHUNK_LEN])
}

/// Returns the place of a descriptor, and allocates its chunk if necessary.
fn place(fd: RawFd) -> Option<&'static AtomicU64> {
    if let Some(place) = existing(fd) {
        return Some(place);
    }
    let slot = CHUNKS.get(usize::try_from(fd).ok()? / CHUNK_LEN)?;
    let new = Box::into_raw(Box::new([const { AtomicU64::new(NONE) }; CHUNK_LEN]));
    if slot.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: from `into_raw` above. Another thread came first, so this chunk was not
        // published.
        drop(unsafe { Box::from_raw(new) });
    }
    existing(fd)
}

fn close_all() {
    for (nth, slot) in CHUNKS.iter().enumerate() {
        // SAFETY: null, or published by `place`, which never frees a chunk.
        let Some(chunk) = (unsafe { slot.load(Ordering::Acquire).as_ref() }) else { continue };
        for (at, place) in chunk.iter().enumerate() {
            let noted = place.swap(NONE, Ordering::Relaxed);
            let fd = (nth * CHUNK_LEN + at) as RawFd;
            if noted != NONE && cookie(fd) == Some(noted) {
                // SAFETY: the descriptor is a socket of the parent's that nothing in this process
                // uses, since the objects that have it know that they are copies. Closing it leaves
                // the parent's open.
                unsafe { libc::close(fd) };
            }
        }
    }
}

/// Returns the kernel's cookie of a socket, which no other socket has or will have; `None` if the
/// descriptor is not a socket.
fn cookie(fd: RawFd) -> Option<u64> {
    let (mut cookie, mut len) = (0_u64, mem::size_of::<u64>() as libc::socklen_t);
    // SAFETY: the buffer is as long as `len` says, and both live until the call returns. A
    // descriptor that is not open or not a socket is refused.
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
        // SAFETY: `F_GETFD` has no further argument and accesses no memory; a descriptor that is
        // not open is refused.
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
            // By now the descriptor is another socket.
            // SAFETY: both are open, and the child's own.
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
            // SAFETY: the arguments are numbers, so no memory is accessed; the new descriptor
            // belongs to this function.
            let own = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) };
            // SAFETY: the descriptor was made above, and is open until the child ends.
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
