//! The routine for x86-64, System V ABI.

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
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "push rbx",
    ".cfi_def_cfa_offset 24",
    ".cfi_offset rbx, -24",
    "push r12",
    ".cfi_def_cfa_offset 32",
    ".cfi_offset r12, -32",
    "push r13",
    ".cfi_def_cfa_offset 40",
    ".cfi_offset r13, -40",
    "push r14",
    ".cfi_def_cfa_offset 48",
    ".cfi_offset r14, -48",
    "push r15",
    ".cfi_def_cfa_offset 56",
    ".cfi_offset r15, -56",
    "mov rbx, qword ptr [rip + rddp_fault_guard_noted@GOTTPOFF]",
    // Save the note from before. Three words leave the stack aligned for the call.
    "push qword ptr fs:[rbx]",
    ".cfi_def_cfa_offset 64",
    "push qword ptr fs:[rbx + 8]",
    ".cfi_def_cfa_offset 72",
    "push qword ptr fs:[rbx + 16]",
    ".cfi_def_cfa_offset 80",
    // A signal may arrive between any two of these: with frame 0 nothing is guarded while the range
    // changes.
    "mov qword ptr fs:[rbx], 0",
    "mov qword ptr fs:[rbx + 8], r8",
    "mov qword ptr fs:[rbx + 16], r9",
    "mov qword ptr fs:[rbx], rsp",
    "mov rax, rdi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov rdx, rcx",
    "call rax",
    ".globl rddp_fault_guard_return",
    ".hidden rddp_fault_guard_return",
    "rddp_fault_guard_return:",
    "xor eax, eax",
    "2:",
    "mov qword ptr fs:[rbx], 0",
    ".cfi_remember_state",
    "pop qword ptr fs:[rbx + 16]",
    ".cfi_def_cfa_offset 72",
    "pop qword ptr fs:[rbx + 8]",
    ".cfi_def_cfa_offset 64",
    "pop qword ptr fs:[rbx]",
    ".cfi_def_cfa_offset 56",
    "pop r15",
    ".cfi_def_cfa_offset 48",
    "pop r14",
    ".cfi_def_cfa_offset 40",
    "pop r13",
    ".cfi_def_cfa_offset 32",
    "pop r12",
    ".cfi_def_cfa_offset 24",
    "pop rbx",
    ".cfi_def_cfa_offset 16",
    "pop rbp",
    ".cfi_def_cfa_offset 8",
    "ret",
    ".cfi_restore_state",
    ".globl rddp_fault_guard_landing",
    ".hidden rddp_fault_guard_landing",
    "rddp_fault_guard_landing:",
    "mov rbx, qword ptr [rip + rddp_fault_guard_noted@GOTTPOFF]",
    "mov eax, 1",
    "jmp 2b",
    ".cfi_endproc",
    ".size rddp_fault_guard_call, . - rddp_fault_guard_call",
    ".globl rddp_fault_guard_note",
    ".hidden rddp_fault_guard_note",
    ".type rddp_fault_guard_note,@function",
    "rddp_fault_guard_note:",
    ".cfi_startproc",
    "mov rax, qword ptr fs:[0]",
    "add rax, qword ptr [rip + rddp_fault_guard_noted@GOTTPOFF]",
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
            "call {work}",
            work = in(reg) work,
            in("rdi") to,
            in("rsi") from,
            in("rdx") len,
            clobber_abi("C"),
        );
    }
}

unsafe extern "C" {
    /// The address to which the work returns.
    #[link_name = "rddp_fault_guard_return"]
    static RETURN: u8;
}

/// Returns whether the work that was called with this stack pointer is still running, and was not
/// left by `longjmp`: the stack then still holds its return address.
///
/// # Safety
/// The stack is mapped below `frame`.
pub(super) unsafe fn is_live(frame: usize) -> bool {
    let place = ptr::with_exposed_provenance::<usize>(frame - size_of::<usize>());
    // SAFETY: the caller has made sure that the word below `frame` is mapped.
    unsafe { place.read_volatile() == (&raw const RETURN).addr() }
}

/// The direction flag, which is clear whenever a function is called or returns.
const DIRECTION: libc::greg_t = 1 << 10;

/// Returns the stack pointer of the interrupted thread.
pub(super) fn stack_pointer(machine: &libc::mcontext_t) -> usize {
    machine.gregs[libc::REG_RSP as usize] as usize
}

/// Makes the interrupted thread continue at `landing`, with this stack pointer.
pub(super) fn resume_at(machine: &mut libc::mcontext_t, landing: usize, stack_pointer: usize) {
    machine.gregs[libc::REG_RSP as usize] = stack_pointer as libc::greg_t;
    machine.gregs[libc::REG_RIP as usize] = landing as libc::greg_t;
    machine.gregs[libc::REG_EFL as usize] &= !DIRECTION;
}
