//! Calls that start a thread or a program, which find the signals as the program has set them.

use std::arch::naked_asm;
use std::ffi::{c_char, c_int, c_void};

use libc::{pid_t, pthread_attr_t, pthread_t};
use rddp_fault_guard::{as_ignored, mask::as_set};
use rddp_real as real;
use rddp_stream::Errno;

/// Functions that go on to the C library with the kernel's mask, and for a program with what is
/// ignored, as the program has set it.
macro_rules! starts {
    ($($how:ident fn $name:ident($($arg:ident: $type:ty),*);)*) => {
        $(
            #[doc = concat!("See `", stringify!($name), "` in the C library's manual.")]
            ///
            /// # Safety
            ///
            /// As in C.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
                // SAFETY: our caller's promise.
                starts!(@$how unsafe { real::$name($($arg),*) })
            }
        )*
    };
    (@thread $call:expr) => { as_set(|| $call) };
    (@program $call:expr) => {
        as_ignored(|| as_set(|| {
            let result = $call;
            (result, Errno::last())
        })).told()
    };
}

/// A result, and the errno that came with it.
trait Told {
    fn told(self) -> c_int;
}

impl Told for (c_int, Errno) {
    fn told(self) -> c_int {
        self.1.set_last();
        self.0
    }
}

type List = *const *const c_char;

starts! {
    thread fn pthread_create(
        thread: *mut pthread_t, attributes: *const pthread_attr_t, start: *const c_void, argument: *mut c_void
    );
    program fn execve(path: *const c_char, arguments: List, environment: List);
    program fn execv(path: *const c_char, arguments: List);
    program fn execvp(file: *const c_char, arguments: List);
    program fn execvpe(file: *const c_char, arguments: List, environment: List);
    program fn fexecve(fd: c_int, arguments: List, environment: List);
    program fn execveat(dir: c_int, path: *const c_char, arguments: List, environment: List, flags: c_int);
    thread fn posix_spawn(
        pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: List,
        environment: List
    );
    thread fn posix_spawnp(
        pid: *mut pid_t, file: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: List,
        environment: List
    );
}

/// The body of a variadic `exec`: its arguments behind the first, of which some are in registers
/// and the rest on the stack, become one list on the stack, which `$way` is called with.
#[cfg(target_arch = "x86_64")]
macro_rules! listed {
    ($way:ident) => {
        naked_asm!(
            "pop r11", // where to return to: its place is for the last register
            "push r9",
            "push r8",
            "push rcx",
            "push rdx",
            "push rsi",
            "mov rsi, rsp",
            "push r11",
            "call {way}",
            "pop r11",
            "add rsp, 32",
            "mov [rsp], r11",
            "ret",
            way = sym $way,
        )
    };
}

/// The functions of the `execl` family, as on `x86_64`.
#[cfg(target_arch = "aarch64")]
macro_rules! listed {
    ($way:ident) => {
        naked_asm!(
            "sub sp, sp, #80",
            "str x30, [sp]",
            "stp x1, x2, [sp, #24]",
            "stp x3, x4, [sp, #40]",
            "stp x5, x6, [sp, #56]",
            "str x7, [sp, #72]",
            "add x1, sp, #24",
            "bl {way}",
            "ldr x30, [sp]",
            "add sp, sp, #80",
            "ret",
            way = sym $way,
        )
    };
}

/// See `execl` in the C library's manual.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn execl(path: *const c_char, argument: *const c_char) -> c_int {
    listed!(execv)
}

/// See `execlp` in the C library's manual.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn execlp(file: *const c_char, argument: *const c_char) -> c_int {
    listed!(execvp)
}

/// See `execle` in the C library's manual.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn execle(path: *const c_char, argument: *const c_char) -> c_int {
    listed!(with_environment)
}

/// # Safety
///
/// `arguments` end with null, behind which is the environment.
unsafe extern "C" fn with_environment(path: *const c_char, arguments: List) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let mut end = arguments;
        while !(*end).is_null() {
            end = end.add(1);
        }
        execve(path, arguments, (*end.add(1)).cast())
    }
}
