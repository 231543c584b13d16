//! stdio on framed sockets.
//!
//! The C library's own streams read and write by internal calls that no library can stand before.
//! For that reason `fdopen` of a socket in DDPMODE makes a stream whose octets go through functions
//! of ours, and a program that got such a socket as its standard input or output by `exec` (as from
//! inetd) gets its `stdin`, `stdout` and `stderr` made so.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use libc::{FILE, size_t, ssize_t};
use rddp_real as real;
use rddp_stream::Errno;
use rddp_switch::gate::{self, Route};
use rddp_switch::socket;

use crate::hook::fail;
use crate::{create, data};

/// `cookie_io_functions_t`.
#[repr(C)]
struct Functions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: Option<unsafe extern "C" fn(*mut c_void, *mut i64, c_int) -> c_int>,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

const FUNCTIONS: Functions =
    Functions { read: read_cookie, write: write_cookie, seek: None, close: close_cookie };

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
}

/// Streams made here and their descriptors, which the C library does not know.
static OURS: Mutex<Vec<(usize, c_int)>> = Mutex::new(Vec::new());

fn descriptor_of(file: *mut FILE) -> Option<c_int> {
    let ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
    ours.iter().find(|(address, _)| *address == file.addr()).map(|(_, fd)| *fd)
}

/// Stands before the C library's `fdopen`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    if socket::hold(fd).is_some_and(|held| held.is_in_ddpmode()) {
        // SAFETY: the program's text, as `fdopen` takes it.
        return unsafe { open(fd, mode) };
    }
    // SAFETY: the program's own arguments, passed on unchanged.
    unsafe { real::fdopen(fd, mode) }
}

/// Makes a stream whose octets go through functions of ours.
///
/// # Safety
///
/// `mode` is text.
unsafe fn open(fd: c_int, mode: *const c_char) -> *mut FILE {
    // SAFETY: `mode` is text; the functions have the contracts of `cookie_io_functions_t`, and
    // their cookie is a number.
    let file = unsafe { fopencookie(ptr::without_provenance_mut(fd as usize), mode, FUNCTIONS) };
    if !file.is_null() {
        OURS.lock().unwrap_or_else(PoisonError::into_inner).push((file.addr(), fd));
    }
    file
}

macro_rules! filenos {
    ($($name:ident)*) => {
        $(
            #[doc = concat!("Stands before the C library's `", stringify!($name), "`.")]
            ///
            /// # Safety
            ///
            /// As in C.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(file: *mut FILE) -> c_int {
                if let Some(fd) = descriptor_of(file) {
                    return fd;
                }
                // SAFETY: the program's own arguments, passed on unchanged.
                unsafe { real::$name(file) }
            }
        )*
    };
}

filenos! { fileno fileno_unlocked }

/// Replaces the standard streams that are framed sockets, which the program got by `exec`.
pub(crate) fn replace_standard_streams() {
    // SAFETY: the C library has these as variables that may be set, and no other thread runs yet.
    unsafe {
        replace(0, &raw mut stdin, c"r");
        replace(1, &raw mut stdout, c"w");
        replace(2, &raw mut stderr, c"w");
    }
}

/// Replaces one standard stream, if its descriptor is ours.
///
/// # Safety
///
/// `place` is one of the C library's variables, and no other thread uses it.
unsafe fn replace(fd: c_int, place: *mut *mut FILE, mode: &CStr) {
    if matches!(gate::data(fd), Route::Plain) {
        return;
    }
    // SAFETY: `place` is a variable of the C library's that no other thread uses; `mode` is text.
    unsafe {
        let file = open(fd, mode.as_ptr());
        if !file.is_null() {
            if fd == 2 {
                libc::setvbuf(file, ptr::null_mut(), libc::_IONBF, 0);
            }
            *place = file;
        }
    }
}

/// Writes out the buffers of all streams.
pub(crate) fn flush() {
    if !OURS.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
        // SAFETY: null stands for all streams.
        unsafe { libc::fflush(ptr::null_mut()) };
    }
}

unsafe extern "C" fn read_cookie(cookie: *mut c_void, buf: *mut c_char, len: size_t) -> ssize_t {
    // SAFETY: a buffer of stdio's with room for `len` octets.
    unsafe { data::read(cookie.addr() as c_int, buf.cast(), len) }
}

/// Writes all of the octets: stdio takes a short write for an error.
unsafe extern "C" fn write_cookie(cookie: *mut c_void, buf: *const c_char, len: size_t) -> ssize_t {
    let mut done = 0;
    while done < len {
        // SAFETY: a buffer of stdio's with `len` octets, of which `done` were sent.
        let sent = unsafe { data::write(cookie.addr() as c_int, buf.add(done).cast(), len - done) };
        match usize::try_from(sent) {
            Ok(count) => done += count,
            Err(_) if Errno::last() == Errno::INTERRUPTED => {}
            Err(_) => break,
        }
    }
    done as ssize_t
}

unsafe extern "C" fn close_cookie(cookie: *mut c_void) -> c_int {
    let fd = cookie.addr() as c_int;
    OURS.lock().unwrap_or_else(PoisonError::into_inner).retain(|(_, of)| *of != fd);
    if fd < 0 {
        return fail(Errno::NO_DESCRIPTOR);
    }
    // SAFETY: takes an integer.
    unsafe { create::close(fd) }
}
