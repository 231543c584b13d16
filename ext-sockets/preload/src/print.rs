//! `dprintf` and its like: formatted octets written to a descriptor.
//!
//! `dprintf` is called with any arguments, also floating-point ones. For a plain descriptor the
//! call goes on to the C library's function with all registers untouched, by the one jump that
//! assembly is needed for. For a framed one the saved registers are made a `va_list`, and the C
//! library's `vasprintf` makes the octets. A `va_list` is passed as a pointer, on `x86_64` (an
//! array) and on aarch64 (a structure of 32 octets, which goes by reference).

use std::arch::naked_asm;
use std::ffi::{c_char, c_int, c_void};
use std::io::IoSlice;
use std::ptr;

use rddp_real as real;
use rddp_stream::Errno;
use rddp_switch::gate;
use rddp_switch::kinds::Ours;

use crate::hook::{answer, fail};

unsafe extern "C" {
    fn vasprintf(text: *mut *mut c_char, format: *const c_char, args: *mut c_void) -> c_int;
}

/// Argument registers that the entry of a variadic function has saved.
#[cfg(target_arch = "x86_64")]
#[repr(C)]
struct Saved {
    /// In a `va_list`'s order: integers, then vectors.
    integers: [usize; 6],
    vectors: [[u64; 2]; 8],
    vectors_used: usize,
    result: c_int,
}

/// Argument registers that the entry of a variadic function has saved, on aarch64.
#[cfg(target_arch = "aarch64")]
#[repr(C)]
struct Saved {
    frame: [usize; 2],
    integers: [usize; 8],
    vectors: [[u64; 2]; 8],
    result: c_int,
}

/// A `va_list` (System V ABI, figure 3.34).
#[cfg(target_arch = "x86_64")]
#[repr(C)]
struct Arguments {
    integers_from: u32,
    vectors_from: u32,
    on_stack: *mut c_void,
    saved: *mut Saved,
}

/// A `va_list` (AAPCS64, appendix B).
#[cfg(target_arch = "aarch64")]
#[repr(C)]
struct Arguments {
    on_stack: *mut c_void,
    integers_end: *mut c_void,
    vectors_end: *mut c_void,
    integers_from: c_int,
    vectors_from: c_int,
}

impl Arguments {
    /// Returns the arguments behind the first `named` ones, which are integers.
    #[cfg(target_arch = "x86_64")]
    fn of(saved: *mut Saved, on_stack: *mut c_void, named: usize) -> Self {
        Arguments { integers_from: named as u32 * 8, vectors_from: 48, on_stack, saved }
    }

    /// Returns the arguments behind the first `named` ones, on aarch64.
    #[cfg(target_arch = "aarch64")]
    fn of(saved: *mut Saved, on_stack: *mut c_void, named: usize) -> Self {
        // SAFETY: the addresses lie within `saved`, or at its end.
        let (integers_end, vectors_end) = unsafe {
            ((&raw mut (*saved).integers).add(1).cast(), (&raw mut (*saved).vectors).add(1).cast())
        };
        Arguments {
            on_stack,
            integers_end,
            vectors_end,
            integers_from: -8 * (8 - named as c_int),
            vectors_from: -128,
        }
    }
}

/// The body of a variadic function: calls `$way` with the saved arguments, then jumps to the
/// address that it returns, with all argument registers as they were; or, where that is null,
/// returns the result that it has stored.
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
            "movaps [rsp + 48], xmm0",
            "movaps [rsp + 64], xmm1",
            "movaps [rsp + 80], xmm2",
            "movaps [rsp + 96], xmm3",
            "movaps [rsp + 112], xmm4",
            "movaps [rsp + 128], xmm5",
            "movaps [rsp + 144], xmm6",
            "movaps [rsp + 160], xmm7",
            "mov [rsp + 176], rax", // how many vector registers are in use
            "mov rdi, rsp",
            "lea rsi, [rbp + 16]",
            "call {way}",
            "test rax, rax",
            "jz 2f",
            "mov r11, rax",
            "mov rdi, [rsp]",
            "mov rsi, [rsp + 8]",
            "mov rdx, [rsp + 16]",
            "mov rcx, [rsp + 24]",
            "mov r8, [rsp + 32]",
            "mov r9, [rsp + 40]",
            "movaps xmm0, [rsp + 48]",
            "movaps xmm1, [rsp + 64]",
            "movaps xmm2, [rsp + 80]",
            "movaps xmm3, [rsp + 96]",
            "movaps xmm4, [rsp + 112]",
            "movaps xmm5, [rsp + 128]",
            "movaps xmm6, [rsp + 144]",
            "movaps xmm7, [rsp + 160]",
            "mov rax, [rsp + 176]",
            "leave",
            "jmp r11",
            "2:",
            "mov eax, [rsp + 184]",
            "leave",
            "ret",
            way = sym $way,
        )
    };
}

/// The body of a variadic function, on aarch64.
#[cfg(target_arch = "aarch64")]
macro_rules! on_to {
    ($way:ident) => {
        naked_asm!(
            "stp x29, x30, [sp, -224]!",
            "mov x29, sp",
            "stp x0, x1, [sp, 16]",
            "stp x2, x3, [sp, 32]",
            "stp x4, x5, [sp, 48]",
            "stp x6, x7, [sp, 64]",
            "stp q0, q1, [sp, 80]",
            "stp q2, q3, [sp, 112]",
            "stp q4, q5, [sp, 144]",
            "stp q6, q7, [sp, 176]",
            "mov x0, sp",
            "add x1, sp, 224",
            "bl {way}",
            "cbz x0, 2f",
            "mov x16, x0",
            "ldp x0, x1, [sp, 16]",
            "ldp x2, x3, [sp, 32]",
            "ldp x4, x5, [sp, 48]",
            "ldp x6, x7, [sp, 64]",
            "ldp q0, q1, [sp, 80]",
            "ldp q2, q3, [sp, 112]",
            "ldp q4, q5, [sp, 144]",
            "ldp q6, q7, [sp, 176]",
            "ldp x29, x30, [sp], 224",
            "br x16",
            "2:",
            "ldr w0, [sp, 208]",
            "ldp x29, x30, [sp], 224",
            "ret",
            way = sym $way,
        )
    };
}

/// Stands before the C library's `vdprintf`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vdprintf(fd: c_int, format: *const c_char, args: *mut c_void) -> c_int {
    // SAFETY: the program's format and arguments, as `vdprintf` takes them.
    if let Some(result) = answer(|| unsafe { print(&gate::data(fd).ours()?, fd, format, args) }) {
        return result;
    }
    // SAFETY: the program's own arguments, passed on unchanged.
    unsafe { real::vdprintf(fd, format, args) }
}

/// Stands before the C library's `__vdprintf_chk`, which programs built with `_FORTIFY_SOURCE`
/// call.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __vdprintf_chk(
    fd: c_int,
    flag: c_int,
    format: *const c_char,
    args: *mut c_void,
) -> c_int {
    // SAFETY: the program's format and arguments, as `vdprintf` takes them.
    if let Some(result) = answer(|| unsafe { print(&gate::data(fd).ours()?, fd, format, args) }) {
        return result;
    }
    // SAFETY: the program's own arguments, passed on unchanged.
    unsafe { real::__vdprintf_chk(fd, flag, format, args) }
}

/// Stands before the C library's `dprintf`.
///
/// # Safety
///
/// As in C, with the arguments that the format names.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dprintf(fd: c_int, format: *const c_char) -> c_int {
    on_to!(way_of_dprintf)
}

/// Stands before the C library's `__dprintf_chk`, which programs built with `_FORTIFY_SOURCE` call.
///
/// # Safety
///
/// As in C, with the arguments that the format names.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn __dprintf_chk(fd: c_int, flag: c_int, format: *const c_char) -> c_int {
    on_to!(way_of_dprintf_chk)
}

/// Decides where a call of [`dprintf`] goes on.
///
/// # Safety
///
/// Called by [`dprintf`] alone.
unsafe extern "C" fn way_of_dprintf(saved: *mut Saved, on_stack: *mut c_void) -> *const c_void {
    // SAFETY: `dprintf` has saved its registers there, and its format is the second argument.
    unsafe { way(saved, on_stack, 2, real::dprintf_address()) }
}

/// Decides where a call of [`__dprintf_chk`] goes on.
///
/// # Safety
///
/// Called by [`__dprintf_chk`] alone.
unsafe extern "C" fn way_of_dprintf_chk(saved: *mut Saved, on_stack: *mut c_void) -> *const c_void {
    // SAFETY: `__dprintf_chk` has saved its registers there, and its format is the third argument.
    unsafe { way(saved, on_stack, 3, real::dprintf_chk_address()) }
}

/// Returns the address at which a call with so many `named` arguments, of which the last is the
/// format, goes on; null when the result is stored.
///
/// # Safety
///
/// `saved` and `on_stack` are what a variadic function has been called with.
unsafe fn way(saved: *mut Saved, on_stack: *mut c_void, named: usize, next: *const c_void) -> *const c_void {
    // SAFETY: `saved` is the frame of the variadic function, which waits for this one.
    let integers = unsafe { (*saved).integers };
    let fd = integers[0] as c_int;
    let ours = answer(|| {
        let framed = gate::data(fd).ours()?;
        let mut args = Arguments::of(saved, on_stack, named);
        let format = ptr::with_exposed_provenance(integers[named - 1]);
        // SAFETY: the format is the program's, and the arguments are those that came with it.
        unsafe { print(&framed, fd, format, (&raw mut args).cast()) }
    });
    let result = match ours {
        None if next.is_null() => fail(Errno(libc::ENOSYS)),
        None => return next,
        Some(result) => result,
    };
    // SAFETY: `saved` is the frame of the variadic function, which reads the result after this.
    unsafe { (*saved).result = result };
    ptr::null()
}

/// Formats the octets and sends all of them.
///
/// # Safety
///
/// As for `vdprintf`.
unsafe fn print(framed: &Ours, fd: c_int, format: *const c_char, args: *mut c_void) -> Result<c_int, Errno> {
    let mut text = ptr::null_mut();
    // SAFETY: format and arguments as `vdprintf` takes them; `text` is set to memory of the C
    // library's.
    let len = unsafe { vasprintf(&raw mut text, format, args) };
    if len < 0 {
        return Err(Errno::last());
    }
    // SAFETY: `vasprintf` has written `len` octets there.
    let octets = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), len as usize) };
    let sent = send_all(framed, fd, octets);
    // SAFETY: the memory is from `vasprintf`, and nothing refers to it any more.
    unsafe { libc::free(text.cast()) };
    sent.map(|()| len)
}

fn send_all(framed: &Ours, fd: c_int, mut octets: &[u8]) -> Result<(), Errno> {
    while !octets.is_empty() {
        let sent = match framed.send(&[IoSlice::new(octets)], 0) {
            Err(Errno::PLAIN) => write_plain(fd, octets),
            sent => sent,
        }?;
        octets = &octets[sent..];
    }
    Ok(())
}

fn write_plain(fd: c_int, octets: &[u8]) -> Result<usize, Errno> {
    // SAFETY: the octets are borrowed until the call returns.
    let sent = unsafe { real::write(fd, octets.as_ptr().cast(), octets.len()) };
    usize::try_from(sent).map_err(|_| Errno::last())
}
