//! The C library's functions that take paths, before its own.
//!
//! `open` and `openat` are variadic in C. On `x86_64` and aarch64 an argument that is passed so
//! stands where a named one would, so that these take the mode whether it was passed or not, and
//! hand it on.
#![allow(unsafe_code)] // function pointers by name, and a program's C strings

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStringExt;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{mode_t, size_t, ssize_t};
use rddp_policy::RoceDevice;

use crate::map::{self, PATH_MAX, Shown};

/// A function of the C library; null before it was looked up, and where there is none.
struct Found(AtomicPtr<c_void>);

/// The version of functions that the C library has for old programs only, which call them by it.
#[cfg(target_arch = "aarch64")]
const OLDEST: &CStr = c"GLIBC_2.17";
#[cfg(not(target_arch = "aarch64"))]
const OLDEST: &CStr = c"GLIBC_2.2.5";

impl Found {
    /// Returns the next function of a name. Looking up takes no lock and allocates nothing where
    /// it finds something; two threads find the same.
    fn address(&self, name: &CStr) -> *mut c_void {
        let known = self.0.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: both strings end with a nul, and the handle is one of the dynamic linker's.
        let found = unsafe {
            let found = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
            if found.is_null() {
                libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), OLDEST.as_ptr())
            } else {
                found
            }
        };
        self.0.store(found, Ordering::Relaxed);
        found
    }
}

/// The result of a call that this C library does not have.
trait Absent {
    const RESULT: Self;
}

impl Absent for c_int {
    const RESULT: Self = -1;
}

impl Absent for ssize_t {
    const RESULT: Self = -1;
}

impl<T> Absent for *mut T {
    const RESULT: Self = null_mut();
}

fn absent<R: Absent>() -> R {
    // SAFETY: errno is this thread's own.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    R::RESULT
}

/// Returns the folder of the tree: read when the library is loaded, as programs may change their
/// environment later.
fn tree() -> Option<&'static [u8]> {
    static TREE: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    let read =
        || std::env::var_os(RoceDevice::PATHS).map(OsStringExt::into_vec).filter(|path| !path.is_empty());
    TREE.get_or_init(read).as_deref()
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    tree();
}

/// Calls a function with the path that a program means.
///
/// # Safety
/// `path` is NULL, or a C string.
unsafe fn with_path<R>(path: *const c_char, call: impl FnOnce(*const c_char) -> R) -> R {
    if path.is_null() {
        return call(path);
    }
    // SAFETY: a C string, as the caller promises; the function that is called reads it likewise.
    let shown = Shown::of(unsafe { CStr::from_ptr(path) }.to_bytes());
    let (Some(shown), Some(tree)) = (shown, tree()) else { return call(path) };
    let mut room = [0; PATH_MAX];
    match shown.there(tree, &mut room) {
        Some(there) => call(there.as_ptr()),
        None => call(path),
    }
}

/// Shortens a path in the tree to that which programs know, in its place.
///
/// # Safety
/// `path` is NULL, or a C string that nobody else uses and that may be written.
unsafe fn as_seen(path: *mut c_char) -> *mut c_char {
    if let (false, Some(tree)) = (path.is_null(), tree()) {
        // SAFETY: a C string, whose length is taken before it is moved within its own room.
        unsafe {
            let octets = CStr::from_ptr(path).to_bytes();
            if let Some(len) = map::seen(octets, tree).map(<[u8]>::len) {
                std::ptr::copy(path.add(octets.len() - len), path, len + 1);
            }
        }
    }
    path
}

/// Functions with arguments before and behind a path, and what is done to their result.
macro_rules! calls {
    ($(fn $name:ident[$($before:ident: $b:ty),*]($($behind:ident: $a:ty),*) -> $out:ty $(, $then:ident)?;)*) => {
        $(
            #[doc = concat!("Stands before the C library's `", stringify!($name), "`.")]
            ///
            /// # Safety
            ///
            /// As in C.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name($($before: $b,)* path: *const c_char $(, $behind: $a)*) -> $out {
                type Real = unsafe extern "C" fn($($b,)* *const c_char $(, $a)*) -> $out;
                static FOUND: Found = Found(AtomicPtr::new(null_mut()));
                const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a name ends with a nul"),
                };
                let address = FOUND.address(NAME);
                if address.is_null() {
                    return absent();
                }
                // SAFETY: the function of this name has this type.
                let real = unsafe { std::mem::transmute::<*mut c_void, Real>(address) };
                // SAFETY: the program's own arguments; a path in place of its own is a C string.
                let result = unsafe { with_path(path, |path| real($($before,)* path $(, $behind)*)) };
                // SAFETY: a path that the call has just written for the program, or NULL.
                $(let result = unsafe { $then(result) };)?
                result
            }
        )*
    };
}

calls! {
    fn open[](flags: c_int, mode: mode_t) -> c_int;
    fn open64[](flags: c_int, mode: mode_t) -> c_int;
    fn openat[dir: c_int](flags: c_int, mode: mode_t) -> c_int;
    fn openat64[dir: c_int](flags: c_int, mode: mode_t) -> c_int;
    fn __open_2[](flags: c_int) -> c_int;
    fn __open64_2[](flags: c_int) -> c_int;
    fn __openat_2[dir: c_int](flags: c_int) -> c_int;
    fn __openat64_2[dir: c_int](flags: c_int) -> c_int;
    fn fopen[](mode: *const c_char) -> *mut c_void;
    fn fopen64[](mode: *const c_char) -> *mut c_void;
    fn opendir[]() -> *mut c_void;
    fn scandir[](list: *mut c_void, filter: *const c_void, compare: *const c_void) -> c_int;
    fn scandir64[](list: *mut c_void, filter: *const c_void, compare: *const c_void) -> c_int;
    fn chdir[]() -> c_int;
}

calls! {
    fn stat[](to: *mut c_void) -> c_int;
    fn stat64[](to: *mut c_void) -> c_int;
    fn lstat[](to: *mut c_void) -> c_int;
    fn lstat64[](to: *mut c_void) -> c_int;
    fn fstatat[dir: c_int](to: *mut c_void, flags: c_int) -> c_int;
    fn fstatat64[dir: c_int](to: *mut c_void, flags: c_int) -> c_int;
    fn statx[dir: c_int](flags: c_int, mask: c_uint, to: *mut c_void) -> c_int;
    fn __xstat[version: c_int](to: *mut c_void) -> c_int;
    fn __xstat64[version: c_int](to: *mut c_void) -> c_int;
    fn __lxstat[version: c_int](to: *mut c_void) -> c_int;
    fn __lxstat64[version: c_int](to: *mut c_void) -> c_int;
    fn __fxstatat[version: c_int, dir: c_int](to: *mut c_void, flags: c_int) -> c_int;
    fn __fxstatat64[version: c_int, dir: c_int](to: *mut c_void, flags: c_int) -> c_int;
    fn access[](mode: c_int) -> c_int;
    fn eaccess[](mode: c_int) -> c_int;
    fn euidaccess[](mode: c_int) -> c_int;
    fn faccessat[dir: c_int](mode: c_int, flags: c_int) -> c_int;
}

calls! {
    fn readlink[](to: *mut c_char, room: size_t) -> ssize_t;
    fn readlinkat[dir: c_int](to: *mut c_char, room: size_t) -> ssize_t;
    fn __readlink_chk[](to: *mut c_char, room: size_t, most: size_t) -> ssize_t;
    fn __readlinkat_chk[dir: c_int](to: *mut c_char, room: size_t, most: size_t) -> ssize_t;
    fn getxattr[](name: *const c_char, to: *mut c_void, room: size_t) -> ssize_t;
    fn lgetxattr[](name: *const c_char, to: *mut c_void, room: size_t) -> ssize_t;
    fn listxattr[](to: *mut c_char, room: size_t) -> ssize_t;
    fn llistxattr[](to: *mut c_char, room: size_t) -> ssize_t;
    fn realpath[](to: *mut c_char) -> *mut c_char, as_seen;
    fn __realpath_chk[](to: *mut c_char, most: size_t) -> *mut c_char, as_seen;
    fn canonicalize_file_name[]() -> *mut c_char, as_seen;
}
