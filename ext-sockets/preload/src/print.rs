//! `dprintf` and its like: formatted octets to a descriptor.
//!
//! A `va_list` comes as a pointer on `x86_64` (an array) and on aarch64 (a structure of 32 octets, which goes by reference). `dprintf` itself
//! is called with any arguments at all, also floating-point ones; it goes on as it came, all registers untouched, by the one jump
//! that assembly is needed for.

use std::arch::naked_asm;
use std::ffi::{c_char, c_int, c_void};

use rddp_switch::gate::{self, Way};
use rddp_switch::next;

use crate::hook::fail;

/// The body of a variadic function: asks `$way` about the first argument, then jumps to where it says with all registers that carry
/// arguments as they were, or returns -1.
#[cfg(target_arch = "x86_64")]
macro_rules! on_to {
    ($way:ident) => {
        naked_asm!(
            "push rbp",
            "mov rbp, rsp",
            "sub rsp, 192",
            "mov [rsp], rdi",
            "mov [rsp + 8], rsi",
            "mov [rsp + 16], rdx",
            "mov [rsp + 24], rcx",
            "mov [rsp + 32], r8",
            "mov [rsp + 40], r9",
            "mov [rsp + 48], rax", // how many vector registers are in use
            "movaps [rsp + 64], xmm0",
            "movaps [rsp + 80], xmm1",
            "movaps [rsp + 96], xmm2",
            "movaps [rsp + 112], xmm3",
            "movaps [rsp + 128], xmm4",
            "movaps [rsp + 144], xmm5",
            "movaps [rsp + 160], xmm6",
            "movaps [rsp + 176], xmm7",
            "call {way}",
            "mov r11, rax",
            "mov rdi, [rsp]",
            "mov rsi, [rsp + 8]",
            "mov rdx, [rsp + 16]",
            "mov rcx, [rsp + 24]",
            "mov r8, [rsp + 32]",
            "mov r9, [rsp + 40]",
            "mov rax, [rsp + 48]",
            "movaps xmm0, [rsp + 64]",
            "movaps xmm1, [rsp + 80]",
            "movaps xmm2, [rsp + 96]",
            "movaps xmm3, [rsp + 112]",
            "movaps xmm4, [rsp + 128]",
            "movaps xmm5, [rsp + 144]",
            "movaps xmm6, [rsp + 160]",
            "movaps xmm7, [rsp + 176]",
            "leave",
            "test r11, r11",
            "jz 2f",
            "jmp r11",
            "2:",
            "mov eax, -1",
            "ret",
            way = sym $way,
        )
    };
}

/// As on `x86_64`.
#[cfg(target_arch = "aarch64")]
macro_rules! on_to {
    ($way:ident) => {
        naked_asm!(
            "stp x29, x30, [sp, -208]!",
            "mov x29, sp",
            "stp x0, x1, [sp, 16]",
            "stp x2, x3, [sp, 32]",
            "stp x4, x5, [sp, 48]",
            "stp x6, x7, [sp, 64]",
            "stp q0, q1, [sp, 80]",
            "stp q2, q3, [sp, 112]",
            "stp q4, q5, [sp, 144]",
            "stp q6, q7, [sp, 176]",
            "bl {way}",
            "mov x16, x0",
            "ldp x0, x1, [sp, 16]",
            "ldp x2, x3, [sp, 32]",
            "ldp x4, x5, [sp, 48]",
            "ldp x6, x7, [sp, 64]",
            "ldp q0, q1, [sp, 80]",
            "ldp q2, q3, [sp, 112]",
            "ldp q4, q5, [sp, 144]",
            "ldp q6, q7, [sp, 176]",
            "ldp x29, x30, [sp], 208",
            "cbz x16, 2f",
            "br x16",
            "2:",
            "mov w0, -1",
            "ret",
            way = sym $way,
        )
    };
}

hooks! {
    through[data(fd)] fn vdprintf(fd: c_int, format: *const c_char, args: *mut c_void) -> c_int;
    through[data(fd)] fn __vdprintf_chk(
        fd: c_int, flag: c_int, format: *const c_char, args: *mut c_void
    ) -> c_int;
}

/// See `dprintf` in the C library's manual.
///
/// # Safety
///
/// As in C, with the arguments that the format names.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dprintf(fd: c_int, format: *const c_char) -> c_int {
    on_to!(way_of_dprintf)
}

/// See `dprintf` in the C library's manual; what programs call that are built with `_FORTIFY_SOURCE`.
///
/// # Safety
///
/// As in C, with the arguments that the format names.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn __dprintf_chk(fd: c_int, flag: c_int, format: *const c_char) -> c_int {
    on_to!(way_of_dprintf_chk)
}

extern "C" fn way_of_dprintf(fd: c_int) -> *const c_void {
    way(fd, next::dprintf_address())
}

extern "C" fn way_of_dprintf_chk(fd: c_int) -> *const c_void {
    way(fd, next::dprintf_chk_address())
}

/// Where the call goes on; null, with errno set, when it does not.
fn way(fd: c_int, next: *const c_void) -> *const c_void {
    let errno = match gate::data(fd) {
        Way::Refused(errno) => errno,
        Way::Plain if next.is_null() => libc::ENOSYS,
        Way::Plain => return next,
    };
    next::set_errno(errno);
    std::ptr::null()
}
