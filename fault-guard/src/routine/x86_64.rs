//! x86-64, System V ABI.

use std::arch::global_asm;
use std::ffi::c_void;

use super::Note;
use crate::Work;

/// Whether faults are guarded on this system.
pub const GUARDED: bool = true;

unsafe extern "C" {
    /// Calls `work(to, from, len)`; 1 if it ended at a fault between `start` and `end`, else 0.
    #[link_name = "rddp_fault_guard_call"]
    pub(crate) fn call(
        work: Work,
        to: *mut c_void,
        from: *const c_void,
        len: usize,
        start: usize,
        end: usize,
    ) -> u32;

    #[link_name = "rddp_fault_guard_note"]
    fn note() -> *const Note;

    #[link_name = "rddp_fault_guard_landing"]
    static LANDING: u8;
}

global_asm!(
    ".pushsection .tbss.rddp_fault_guard_noted,\"awT\",@nobits",
    ".balign 8",
    ".local rddp_fault_guard_noted",
    ".type rddp_fault_guard_noted,@tls_object",
    ".size rddp_fault_guard_noted,24",
    "rddp_fault_guard_noted:",
    ".zero 24",
    ".popsection",
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
    // The note before, which leaves the stack aligned.
    "push qword ptr fs:[rbx]",
    ".cfi_def_cfa_offset 64",
    "push qword ptr fs:[rbx + 8]",
    ".cfi_def_cfa_offset 72",
    "push qword ptr fs:[rbx + 16]",
    ".cfi_def_cfa_offset 80",
    // A signal may come between any two of these: nothing is noted while the range changes.
    "mov qword ptr fs:[rbx], 0",
    "mov qword ptr fs:[rbx + 8], r8",
    "mov qword ptr fs:[rbx + 16], r9",
    "mov qword ptr fs:[rbx], rsp",
    "mov rax, rdi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov rdx, rcx",
    "call rax",
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

/// The direction flag, clear between functions.
const DIRECTION: libc::greg_t = 1 << 10;

/// Has the interrupted thread go on at the landing, if the fault at `address` is its guarded
/// work's.
///
/// # Safety
/// `context` is the `ucontext_t` that the kernel gave a signal handler, on this thread.
pub(crate) unsafe fn recover(address: usize, context: *mut c_void) -> bool {
    // SAFETY: the caller's word; the note is this thread's own, and read once for each field.
    let (registers, note) = unsafe {
        let context = context.cast::<libc::ucontext_t>();
        (&mut (*context).uc_mcontext.gregs, note().read_volatile())
    };
    if !note.covers(address, registers[libc::REG_RSP as usize] as usize) {
        return false;
    }
    registers[libc::REG_RSP as usize] = note.frame as libc::greg_t;
    registers[libc::REG_RIP as usize] = (&raw const LANDING).addr() as libc::greg_t;
    registers[libc::REG_EFL as usize] &= !DIRECTION;
    true
}
