//! What most functions do, written once.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rddp_stream::Errno;
use rddp_switch::gate;

/// A result that says that errno was set.
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

/// A handler of signals.
impl Failed for libc::sighandler_t {
    fn failed() -> Self {
        libc::SIG_ERR
    }
}

/// Sets errno, and returns what says so.
#[cold]
pub(crate) fn fail<T: Failed>(errno: Errno) -> T {
    errno.set_last();
    T::failed()
}

/// Returns what C gets of a result: the value, or -1 and the errno.
pub(crate) fn returned<T: Failed>(result: Result<T, Errno>) -> T {
    result.unwrap_or_else(fail)
}

/// Makes a call of ours, and returns what C gets of it. A panic is a fault of ours, which ends the
/// call and not the program: none goes through C.
pub(crate) fn caught(call: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    returned(catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(Errno(libc::EIO))))
}

/// Returns what the program gets of a framed stream; `None`: the C library is to be asked.
pub(crate) fn answer<T: Failed>(result: Result<T, Errno>) -> Option<T> {
    if matches!(result, Err(Errno::PLAIN)) { None } else { Some(returned(result)) }
}

/// A call that makes descriptors. Where no number is left for one, what lingers gives its own up.
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
/// - `through[GATE(fd, ...)] fn ...`: when the gates say so of these descriptors;
/// - `new fn ...`: always, and the result is a descriptor that was not there before;
/// - `plain fn ...`: always.
macro_rules! hooks {
    ($($how:ident $([$gate:ident($($fd:ident),+)])? fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            #[doc = concat!("See `", stringify!($name), "` in the C library's manual.")]
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
        // SAFETY: our caller's promise.
        unsafe { real::$name($($arg),*) }
    }};
    (@new $name:ident($($arg:ident),*)) => {{
        // SAFETY: our caller's promise.
        let fd = crate::hook::with_room(|| unsafe { real::$name($($arg),*) });
        gate::fresh(fd);
        fd
    }};
    (@plain $name:ident($($arg:ident),*)) => {
        // SAFETY: our caller's promise.
        unsafe { real::$name($($arg),*) }
    };
}
