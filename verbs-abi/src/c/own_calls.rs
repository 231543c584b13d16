//! System calls of the library itself, which no preload may take for the program's.
//!
//! A preload that makes rsockets of sockets (`librspreload.so`) would make one of the TCP socket
//! beneath an rsocket, too, and so on without end. So the names by which the crates beneath call
//! the C library lead, inside this library alone, to functions that ask the C library itself,
//! whatever stands before it in the dynamic linker's search order. The socket switch of `rddp run`
//! is passed as well: it never sees the device's connections.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Functions of at most six arguments, all of them integers and pointers, which are passed on in
/// their registers as they are; so is what comes back.
type Function = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> isize;

/// Returns the C library's function of a name. It is looked up once; threads that do so at the same
/// time find the same.
fn find(found: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let function = found.load(Ordering::Relaxed);
    if !function.is_null() {
        return function;
    }
    // SAFETY: names that end with nul. The C library is there already, is only asked for, and is
    // never unloaded.
    let function = unsafe {
        let library = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        libc::dlsym(if library.is_null() { libc::RTLD_NEXT } else { library }, name.as_ptr())
    };
    found.store(function, Ordering::Relaxed);
    function
}

macro_rules! own {
    ($($name:ident)*) => { $(
        unsafe extern "C" fn $name(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
            static FOUND: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("no nul in a name"),
            };
            let function = find(&FOUND, NAME);
            if function.is_null() {
                nix::errno::Errno::ENOSYS.set();
                return -1;
            }
            // SAFETY: the C library's function of this name, whose contract is this one's.
            unsafe { std::mem::transmute::<*mut c_void, Function>(function)(a, b, c, d, e, f) }
        }

        // Not visible outside: the program's calls are none of ours.
        #[cfg(target_arch = "x86_64")]
        core::arch::global_asm!(
            concat!(".text\n.globl ", stringify!($name), "\n.hidden ", stringify!($name), "\n.type ",
                    stringify!($name), ", %function\n", stringify!($name), ": jmp {f}"),
            f = sym $name);
        #[cfg(not(target_arch = "x86_64"))]
        core::arch::global_asm!(
            concat!(".text\n.globl ", stringify!($name), "\n.hidden ", stringify!($name), "\n.type ",
                    stringify!($name), ", %function\n", stringify!($name), ": b {f}"),
            f = sym $name);
    )* };
}

own! {
    accept4 bind close connect epoll_create1 epoll_ctl epoll_wait fcntl getpeername getsockname
    getsockopt ioctl listen poll ppoll read readv recv recvfrom recvmsg send sendmsg sendto
    setsockopt shutdown socket write writev
}
