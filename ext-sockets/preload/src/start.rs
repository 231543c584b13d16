//! Calls that start a thread or a program, for which signals are set as the program has set them.

use std::arch::naked_asm;
use std::ffi::{c_char, c_int, c_void};

use libc::{pid_t, pthread_attr_t, pthread_t};
use rddp_fault_guard::{as_ignored, mask::as_set};
use rddp_real as real;
use rddp_stream::Errno;
use rddp_switch::kinds;

use crate::hook::beside;

/// Functions that go on to the C library with the program's mask in the kernel, and, if they start
/// a program, with the signals ignored that the program ignores.
macro_rules! starts {
    ($($how:ident fn $name:ident($($arg:ident: $type:ty),*);)*) => {
        $(
            #[doc = concat!("Stands before the C library's `", stringify!($name), "`.")]
            ///
            /// # Safety
            ///
            /// As in C.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
                // SAFETY: the program's own arguments, passed on unchanged.
                starts!(@$how [$($arg),*] unsafe { real::$name($($arg),*) })
            }
        )*
    };
    (@thread [$($arg:ident),*] $call:expr) => { as_set(|| $call) };
    (@child [$pid:ident, $($arg:ident),*] $call:expr) => {{
        let mut own = 0;
        let $pid = if $pid.is_null() { &raw mut own } else { $pid };
        let result = as_set(|| $call);
        if result == 0 {
            // SAFETY: the call has succeeded, and has written the number.
            beside(|| kinds::program_runs(unsafe { $pid.read() }.cast_unsigned()));
        }
        result
    }};
    (@program [$($arg:ident),*] $call:expr) => {{
        kinds::program_begins();
        as_ignored(|| as_set(|| {
            let result = $call;
            (result, Errno::last())
        })).told()
    }};
}

/// A result together with its errno.
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
    child fn posix_spawn(
        pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: List,
        environment: List
    );
    child fn posix_spawnp(
        pid: *mut pid_t, file: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: List,
        environment: List
    );
}

/// The body of a variadic `exec`: makes one list of the arguments behind the first, some of which
/// are in registers and the rest on the stack, and calls `$way` with it.
#[cfg(target_arch = "x86_64")]
macro_rules! listed {
    ($way:ident) => {
        naked_asm!(
            "pop r11", // the return address: its place is for the last register
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

/// The body of a variadic `exec`, on aarch64.
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

/// Stands before the C library's `execl`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn execl(path: *const c_char, argument: *const c_char) -> c_int {
    listed!(execv)
}

/// Stands before the C library's `execlp`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn execlp(file: *const c_char, argument: *const c_char) -> c_int {
    listed!(execvp)
}

/// Stands before the C library's `execle`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn execle(path: *const c_char, argument: *const c_char) -> c_int {
    listed!(with_environment)
}

/// Runs `execve` with the environment that stands behind the list of arguments.
///
/// # Safety
///
/// `arguments` end with a null pointer, behind which is the environment.
unsafe extern "C" fn with_environment(path: *const c_char, arguments: List) -> c_int {
    // SAFETY: the program's list ends with a null pointer, and the environment stands behind it, as
    // `execle` asks.
    unsafe {
        let mut end = arguments;
        while !(*end).is_null() {
            end = end.add(1);
        }
        execve(path, arguments, (*end.add(1)).cast())
    }
}
