//! Parts that most exported functions share.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rddp_stream::{Errno, SameErrno};
use rddp_switch::{exit, gate};

/// A type of result with a value that says that errno was set.
pub(crate) trait Failed {
    fn failed() -> Self;
}

impl Failed for c_int {
    fn failed() -> Self {
        -1
    }
}

impl Failed for isize {
    fn failed() -> Self {
        -1
    }
}

/// The address of a signal handler.
impl Failed for libc::sighandler_t {
    fn failed() -> Self {
        libc::SIG_ERR
    }
}

/// Sets errno, and returns the value that says so.
#[cold]
pub(crate) fn fail<T: Failed>(errno: Errno) -> T {
    errno.set_last();
    T::failed()
}

/// Makes a call of ours, and returns what C gets of it: the value, or -1 with errno set. A call
/// that succeeds leaves errno as it was, whatever was tried in it.
pub(crate) fn returned<T: Failed>(call: impl FnOnce() -> Result<T, Errno>) -> T {
    beside(call).unwrap_or_else(fail)
}

/// Makes a call as [`returned`] does. A panic is a fault of ours, which ends the call and not the
/// program: a panic must not unwind into C.
pub(crate) fn caught(call: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    returned(|| catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(Errno(libc::EIO))))
}

/// Makes a call on what may be a socket of ours as [`returned`] does; `None`: the C library is to
/// make it.
pub(crate) fn answer<T: Failed>(call: impl FnOnce() -> Result<T, Errno>) -> Option<T> {
    let result = beside(call);
    if matches!(result, Err(Errno::PLAIN)) {
        return None;
    }
    exit::wait_out();
    Some(result.unwrap_or_else(fail))
}

/// Returns the refusal of a call that the C library is to make otherwise.
pub(crate) fn refused<T: Failed>(call: impl FnOnce() -> Result<(), Errno>) -> Option<T> {
    answer(|| call().and(Err(Errno::PLAIN)))
}

/// Does what belongs to a call of the C library's, and leaves errno as it was.
pub(crate) fn beside<T>(step: impl FnOnce() -> T) -> T {
    let _same = SameErrno::here();
    step()
}

/// Makes a call that makes a descriptor. While no number is free, connections that linger after
/// their close give up theirs.
#[inline]
pub(crate) fn with_room(mut call: impl FnMut() -> c_int) -> c_int {
    let errno = Errno::last();
    let mut result = call();
    while result < 0 && gate::makes_room() {
        errno.set_last();
        result = call();
    }
    result
}

/// Functions that go on to the C library:
///
/// - `through[GATE(fd, ...)] fn ...`: when the gate refuses the call for none of these descriptors;
/// - `new fn ...`: always, and the result is a new descriptor;
/// - `plain fn ...`: always.
macro_rules! hooks {
    ($($how:ident $([$gate:ident($($fd:ident),+)])? fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            #[doc = concat!("Stands before the C library's `", stringify!($name), "`.")]
            ///
            /// # Safety
            ///
            /// As in C.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> $result {
                hooks!(@$how $($gate($($fd),+))? $name($($arg),*))
            }
        )*
    };
    (@through $gate:ident($($fd:ident),+) $name:ident($($arg:ident),*)) => {{
        $(
            if let Some(refusal) = crate::hook::refused(|| gate::$gate($fd)) {
                return refusal;
            }
        )+
        // SAFETY: the program's own arguments, passed on unchanged.
        unsafe { real::$name($($arg),*) }
    }};
    (@new $name:ident($($arg:ident),*)) => {{
        // SAFETY: the program's own arguments, passed on unchanged.
        let fd = crate::hook::with_room(|| unsafe { real::$name($($arg),*) });
        gate::fresh(fd);
        fd
    }};
    (@plain $name:ident($($arg:ident),*)) => {
        // SAFETY: the program's own arguments, passed on unchanged.
        unsafe { real::$name($($arg),*) }
    };
}
