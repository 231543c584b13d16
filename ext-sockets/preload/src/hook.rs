//! What most functions do, written once.

use std::ffi::c_int;

use rddp_real as real;
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

/// Fails with this errno.
#[cold]
pub(crate) fn fail<T: Failed>(errno: c_int) -> T {
    real::set_errno(errno);
    T::failed()
}

/// What the program gets of a framed stream; `None`: the C library is to be asked.
pub(crate) fn answer<T: Failed>(result: Result<T, Errno>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(Errno::PLAIN) => None,
        Err(errno) => Some(fail(errno.0)),
    }
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
