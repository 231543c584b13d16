//! The routine for aarch64, AAPCS64.

use std::arch::{asm, global_asm};
use std::ffi::c_void;
use std::ptr;

use crate::Work;

global_asm!(
    ".pushsection .text.rddp_fault_guard,\"ax\",@progbits",
    ".balign 16",
    ".globl rddp_fault_guard_call",
    ".hidden rddp_fault_guard_call",
    ".type rddp_fault_guard_call,@function",
    "rddp_fault_guard_call:",
    ".cfi_startproc",
    "stp x29, x30, [sp, #-192]!",
    ".cfi_def_cfa_offset 192",
    ".cfi_offset x29, -192",
    ".cfi_offset x30, -184",
    "mov x29, sp",
    "stp x19, x20, [sp, #16]",
    ".cfi_offset x19, -176",
    ".cfi_offset x20, -168",
    "stp x21, x22, [sp, #32]",
    ".cfi_offset x21, -160",
    ".cfi_offset x22, -152",
    "stp x23, x24, [sp, #48]",
    ".cfi_offset x23, -144",
    ".cfi_offset x24, -136",
    "stp x25, x26, [sp, #64]",
    ".cfi_offset x25, -128",
    ".cfi_offset x26, -120",
    "stp x27, x28, [sp, #80]",
    ".cfi_offset x27, -112",
    ".cfi_offset x28, -104",
    "stp d8, d9, [sp, #96]",
    "stp d10, d11, [sp, #112]",
    "stp d12, d13, [sp, #128]",
    "stp d14, d15, [sp, #144]",
    "bl 3f",
    // Save the note from before.
    "ldp x10, x11, [x9]",
    "ldr x12, [x9, #16]",
    "stp x10, x11, [sp, #160]",
    "str x12, [sp, #176]",
    // A signal may arrive between any two of these: with frame 0 nothing is guarded while the range
    // changes.
    "str xzr, [x9]",
    "str x4, [x9, #8]",
    "str x5, [x9, #16]",
    "mov x10, sp",
    "mvn x11, x10",
    "str x11, [sp, #184]",
    "str x10, [x9]",
    "mov x9, x0",
    "mov x0, x1",
    "mov x1, x2",
    "mov x2, x3",
    "blr x9",
    "mov w0, #0",
    "2:",
    "bl 3f",
    "ldp x10, x11, [sp, #160]",
    "ldr x12, [sp, #176]",
    "str xzr, [x9]",
    "str xzr, [sp, #184]",
    "str x11, [x9, #8]",
    "str x12, [x9, #16]",
    "str x10, [x9]",
    "ldp d14, d15, [sp, #144]",
    "ldp d12, d13, [sp, #128]",
    "ldp d10, d11, [sp, #112]",
    "ldp d8, d9, [sp, #96]",
    "ldp x27, x28, [sp, #80]",
    "ldp x25, x26, [sp, #64]",
    "ldp x23, x24, [sp, #48]",
    "ldp x21, x22, [sp, #32]",
    "ldp x19, x20, [sp, #16]",
    ".cfi_remember_state",
    "ldp x29, x30, [sp], #192",
    ".cfi_def_cfa_offset 0",
    ".cfi_restore x29",
    ".cfi_restore x30",
    "ret",
    ".cfi_restore_state",
    ".globl rddp_fault_guard_landing",
    ".hidden rddp_fault_guard_landing",
    "rddp_fault_guard_landing:",
    "mov w0, #1",
    "b 2b",
    ".cfi_endproc",
    ".size rddp_fault_guard_call, . - rddp_fault_guard_call",
    // Returns the address of the note in x9; changes x10 too.
    "3:",
    "mrs x9, tpidr_el0",
    "adrp x10, :gottprel:rddp_fault_guard_noted",
    "ldr x10, [x10, :gottprel_lo12:rddp_fault_guard_noted]",
    "add x9, x9, x10",
    "ret",
    ".globl rddp_fault_guard_note",
    ".hidden rddp_fault_guard_note",
    ".type rddp_fault_guard_note,@function",
    "rddp_fault_guard_note:",
    ".cfi_startproc",
    "mrs x0, tpidr_el0",
    "adrp x10, :gottprel:rddp_fault_guard_noted",
    "ldr x10, [x10, :gottprel_lo12:rddp_fault_guard_noted]",
    "add x0, x0, x10",
    "ret",
    ".cfi_endproc",
    ".size rddp_fault_guard_note, . - rddp_fault_guard_note",
    ".popsection",
);

/// Calls `work(to, from, len)`, which the compiler does not see.
///
/// # Safety
/// The call is sound, and does not unwind.
#[inline]
pub(crate) unsafe fn call_unseen(work: Work, to: *mut c_void, from: *const c_void, len: usize) {
    // SAFETY: the caller has made sure that the call is sound. It changes the registers that a C
    // function may change, and memory.
    unsafe {
        asm!(
            "blr {work}",
            work = in(reg) work,
            in("x0") to,
            in("x1") from,
            in("x2") len,
            clobber_abi("C"),
        );
    }
}

/// Returns whether the work that was called with this stack pointer is still running, and was not
/// left by `longjmp`: the frame then still holds the mark that the routine wrote into it.
///
/// # Safety
/// `frame` is in the stack of a thread.
pub(super) unsafe fn is_live(frame: usize) -> bool {
    let place = ptr::with_exposed_provenance::<usize>(frame + 184);
    // SAFETY: the caller has made sure that `frame` is in a stack, and the routine's frame is
    // larger than 184 octets.
    unsafe { place.read_volatile() == !frame }
}

/// Returns the stack pointer of the interrupted thread.
pub(super) fn stack_pointer(machine: &libc::mcontext_t) -> usize {
    machine.sp as usize
}

/// Makes the interrupted thread continue at `landing`, with this stack pointer.
pub(super) fn resume_at(machine: &mut libc::mcontext_t, landing: usize, stack_pointer: usize) {
    machine.sp = stack_pointer as u64;
    machine.pc = landing as u64;
}
