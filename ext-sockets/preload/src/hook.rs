//! Parts that most exported functions share.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rddp_stream::Errno;
use rddp_switch::gate;

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

/// Returns what C gets of a result: the value, or -1 with errno set.
pub(crate) fn returned<T: Failed>(result: Result<T, Errno>) -> T {
    result.unwrap_or_else(fail)
}

/// Makes a call of ours, and returns what C gets of it. A panic is a fault of ours, which ends the
/// call and not the program: a panic must not unwind into C.
pub(crate) fn caught(call: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    returned(catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(Errno(libc::EIO))))
}

/// Returns what the program gets of a framed stream; `None`: the C library is to make the call.
pub(crate) fn answer<T: Failed>(result: Result<T, Errno>) -> Option<T> {
    if matches!(result, Err(Errno::PLAIN)) { None } else { Some(returned(result)) }
}

/// Makes a call that makes a descriptor. While no number is free, connections that linger after
/// their close give up theirs.
#[inline]
pub(crate) fn with_room(mut call: impl FnMut() -> c_int) -> c_int {
    loop {
        let result = call();
        if result >= 0 || !gate::makes_room() {
            return result;
        }
    }
}

/// Functions that go on to the C library:
///
/// - `through[GATE(fd, ...)] fn ...`: when the gate lets the call pass for these descriptors;
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
            if let Route::Refused(errno) = gate::$gate($fd) {
                return fail(errno);
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
