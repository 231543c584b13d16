//! Values that belong to one process, descriptors of our own, a word to sleep on, a closure that
//! is lent to another thread.

use std::ffi::c_int;
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use libc::{MSG_DONTWAIT, MSG_NOSIGNAL};
use rddp_real::{self as real, Errno, hidden};

use crate::threads::{DESCRIPTOR, Waiting};

/// A value that is made once in each process, and is never freed. A child of `fork` begins without.
pub(crate) struct PerProcess<T> {
    at: AtomicPtr<T>,
}

impl<T: Sync + Send + 'static> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        PerProcess { at: AtomicPtr::new(null_mut()) }
    }

    /// Returns the value, if there is one.
    pub(crate) fn get(&self) -> Option<&'static T> {
        // SAFETY: null, or from `Box::into_raw` in `get_or_make`, and never freed.
        unsafe { self.at.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the value, made now if there is none.
    pub(crate) fn get_or_make<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&'static T, E> {
        if let Some(value) = self.get() {
            return Ok(value);
        }
        let made = Box::into_raw(Box::new(make()?));
        let before = self.at.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Acquire).err();
        if before.is_some() {
            // Another thread was faster. SAFETY: just made, and no other thread has seen it.
            drop(unsafe { Box::from_raw(made) });
        }
        // SAFETY: not null, from `Box::into_raw`, and never freed.
        Ok(unsafe { &*before.unwrap_or(made) })
    }

    /// Forgets the value, in a child of `fork`: the parent's stays in memory, with locks as they
    /// were.
    pub(crate) fn forget(&self) {
        self.at.store(null_mut(), Ordering::Release);
    }
}

/// A socket pair: descriptors go in at one end and come out at the other.
#[derive(Debug)]
pub(crate) struct PostBox {
    outbox: c_int,
    inbox: c_int,
}

impl PostBox {
    pub(crate) fn new() -> Result<Self, Errno> {
        let mut fds = [-1; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: the call sets two ints, and the array has two.
        if unsafe { real::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) } != 0 {
            return Err(Errno::last());
        }
        Ok(PostBox { outbox: out_of_the_way(fds[0]), inbox: out_of_the_way(fds[1]) })
    }

    pub(crate) fn inbox(&self) -> c_int {
        self.inbox
    }

    pub(crate) fn post(&self, octets: &[u8; DESCRIPTOR]) -> Result<(), Errno> {
        let flags = MSG_DONTWAIT | MSG_NOSIGNAL;
        // SAFETY: `octets` has `DESCRIPTOR` octets, which are only read.
        match unsafe { real::send(self.outbox, octets.as_ptr().cast(), DESCRIPTOR, flags) } {
            count if count < 0 => Err(Errno::last()),
            _ => Ok(()),
        }
    }

    /// Shuts the sending end: the receiving end finds the end of the stream.
    pub(crate) fn hang_up(&self) {
        // SAFETY: takes two ints.
        unsafe { real::shutdown(self.outbox, libc::SHUT_RDWR) };
    }

    /// Takes the next descriptor; `None` when there is none now.
    pub(crate) fn take(&self) -> Result<Option<[u8; DESCRIPTOR]>, Errno> {
        let mut octets = [0; DESCRIPTOR];
        // SAFETY: `octets` has `DESCRIPTOR` octets, borrowed for writing.
        match unsafe { real::recv(self.inbox, octets.as_mut_ptr().cast(), DESCRIPTOR, MSG_DONTWAIT) } {
            count if count == DESCRIPTOR as isize => Ok(Some(octets)),
            count if count < 0 && matches!(Errno::last(), Errno::WOULD_BLOCK | Errno::INTERRUPTED) => {
                Ok(None)
            }
            count if count < 0 => Err(Errno::last()),
            _ => Err(Errno::BROKEN_PIPE),
        }
    }
}

impl Drop for PostBox {
    fn drop(&mut self) {
        hidden::close(self.outbox);
        hidden::close(self.inbox);
    }
}

/// An eventfd: readable from [`ring`](Self::ring) to [`quiet`](Self::quiet).
#[derive(Debug)]
pub(crate) struct Bell {
    fd: c_int,
}

impl Bell {
    pub(crate) fn new() -> Result<Self, Errno> {
        // SAFETY: takes two ints.
        match unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) } {
            fd if fd < 0 => Err(Errno::last()),
            fd => Ok(Bell { fd: out_of_the_way(fd) }),
        }
    }

    pub(crate) fn fd(&self) -> c_int {
        self.fd
    }

    pub(crate) fn ring(&self) {
        // SAFETY: reads eight octets, which `ONE` has.
        unsafe { real::write(self.fd, (&raw const ONE).cast(), size_of::<u64>()) };
    }

    pub(crate) fn quiet(&self) {
        let mut count = 0u64;
        // SAFETY: writes eight octets, which `count` has.
        unsafe { real::read(self.fd, (&raw mut count).cast(), size_of::<u64>()) };
    }
}

static ONE: u64 = 1;

impl Drop for Bell {
    fn drop(&mut self) {
        hidden::close(self.fd);
    }
}

/// Moves a descriptor to a high number, and hides it from the program.
fn out_of_the_way(fd: c_int) -> c_int {
    let number = real::duplicate_high(fd).inspect(|_| real::close_number(fd)).unwrap_or(fd);
    hidden::hide(number);
    number
}

/// Starts a thread with all signals blocked but those of its own faults: the others are the
/// program's.
pub(crate) fn spawn(name: &str, life: impl FnOnce() + Send + 'static) -> Result<(), Errno> {
    let _no_signals = real::NoSignals::here();
    let life = move || {
        real::take_faults();
        life();
    };
    let made = std::thread::Builder::new().name(name.to_owned()).stack_size(STACK).spawn(life);
    made.map(drop).map_err(|error| error.raw_os_error().map_or(Errno::WOULD_BLOCK, Errno))
}

/// Octets of a thread's stack: its calls need a buffer or two.
const STACK: usize = 512 << 10;

/// Sleeps while the word has this value, until a time at most.
pub(crate) fn sleep_on(word: &AtomicU32, value: u32, until: Option<Instant>) -> Result<(), Errno> {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    let time = left.map(|left| libc::timespec {
        tv_sec: left.as_secs() as libc::time_t,
        tv_nsec: left.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word and the time live until the call returns; the kernel reads nothing else.
    let slept = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, time) };
    match (slept < 0).then(Errno::last) {
        Some(Errno::TIMED_OUT) => Err(Errno::WOULD_BLOCK),
        Some(Errno::INTERRUPTED) => Err(Errno::INTERRUPTED),
        _ => Ok(()),
    }
}

/// Wakes a thread that sleeps on the word.
pub(crate) fn wake(word: &AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel uses the address alone.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, 1) };
}

type Attempt<'a> = dyn FnMut() -> Option<Waiting> + Send + 'a;

/// A closure on another thread's stack, usable as long as that thread lends it.
#[derive(Clone)]
pub(crate) struct Lent(Arc<Mutex<Loan>>);

struct Loan {
    attempt: Option<&'static mut Attempt<'static>>,
    waiting: Option<Waiting>,
}

impl Lent {
    /// Calls the closure, unless it was taken back. Returns whether it is to be called again.
    pub(crate) fn attempt(&self) -> bool {
        let mut loan = self.loan();
        loan.waiting = loan.attempt.as_mut().and_then(|attempt| attempt());
        if loan.waiting.is_none() {
            loan.attempt = None;
        }
        loan.waiting.is_some()
    }

    /// Returns what the closure waits for.
    pub(crate) fn waiting(&self) -> Option<Waiting> {
        self.loan().waiting
    }

    fn loan(&self) -> MutexGuard<'_, Loan> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lends `attempt` for as long as `meanwhile` runs.
pub(crate) fn lend<R>(attempt: &mut Attempt<'_>, meanwhile: impl FnOnce(Lent) -> R) -> R {
    /// Takes the closure back, also when `meanwhile` panics; waits for a call under way to end.
    struct Return(Lent);
    impl Drop for Return {
        fn drop(&mut self) {
            let mut loan = self.0.loan();
            loan.attempt = None;
            loan.waiting = None;
        }
    }
    // SAFETY: the closure is called only under the lock of `Loan`, and `Return` takes it out under
    // that lock before its real lifetime ends.
    let attempt = unsafe { transmute::<&mut Attempt<'_>, &'static mut Attempt<'static>>(attempt) };
    let lent = Lent(Arc::new(Mutex::new(Loan { attempt: Some(attempt), waiting: None })));
    let _return = Return(lent.clone());
    meanwhile(lent)
}
