//! A child that stands still at each of its system calls, before it and behind it.

use std::ptr;

/// A child of this thread, which traces it.
pub(crate) struct Traced {
    pid: libc::pid_t,
    /// Set where it is about to make a system call, and not behind one.
    enters: bool,
}

impl Traced {
    /// Begins `body` in a child. `None`: children cannot be traced here.
    pub(crate) fn fork(body: impl FnOnce()) -> Option<Self> {
        let pid = crate::fork(|| {
            // SAFETY: has the parent trace this process, which stops.
            unsafe {
                if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0 {
                    libc::_exit(NOT_TRACED);
                }
                libc::raise(libc::SIGSTOP);
            }
            body();
        });
        let traced = Self { pid, enters: false };
        let status = traced.wait();
        if libc::WIFEXITED(status) {
            assert_eq!(libc::WEXITSTATUS(status), NOT_TRACED);
            return None;
        }
        let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
        // SAFETY: the child is traced by this thread, and stands still.
        assert_eq!(unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, options) }, 0);
        Some(traced)
    }

    fn wait(&self) -> libc::c_int {
        let mut status = 0;
        // SAFETY: a child of this process; the status lives until the call returns.
        assert_eq!(unsafe { libc::waitpid(self.pid, &raw mut status, 0) }, self.pid);
        status
    }

    /// Goes on to the next system call, or to the end of the one it is at. `false`: the child has
    /// ended well.
    pub(crate) fn step(&mut self) -> bool {
        let mut signal = 0;
        loop {
            // SAFETY: the child is traced by this thread, and stands still.
            unsafe { libc::ptrace(libc::PTRACE_SYSCALL, self.pid, 0, signal) };
            let status = self.wait();
            if libc::WIFEXITED(status) {
                assert_eq!(libc::WEXITSTATUS(status), 0);
                return false;
            }
            assert!(libc::WIFSTOPPED(status), "{status:#x}");
            signal = libc::WSTOPSIG(status);
            if signal == libc::SIGTRAP | 0x80 {
                self.enters = !self.enters;
                return true;
            }
        }
    }

    /// Returns whether the child is about to sleep, which it does without a lock.
    pub(crate) fn sleeps(&self) -> bool {
        // SAFETY: all zeros are registers.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        // SAFETY: the child stands still; the registers live until the call returns.
        unsafe { libc::ptrace(libc::PTRACE_GETREGS, self.pid, 0, &raw mut registers) };
        self.enters
            && match registers.orig_rax.cast_signed() {
                libc::SYS_recvfrom => registers.r10 & libc::MSG_DONTWAIT as u64 == 0,
                libc::SYS_epoll_wait | libc::SYS_epoll_pwait => registers.r10 != 0,
                libc::SYS_ppoll => registers.rdx == 0 || !self.is_zero(registers.rdx),
                _ => false,
            }
    }

    /// Returns whether there is a time of zero in the child's memory.
    fn is_zero(&self, at: u64) -> bool {
        // SAFETY: reads the child's memory, which stands still.
        let word = |at: u64| unsafe { libc::ptrace(libc::PTRACE_PEEKDATA, self.pid, at, ptr::null::<u8>()) };
        word(at) == 0 && word(at + 8) == 0
    }

    /// Kills the child where it is.
    pub(crate) fn kill(self) {
        // SAFETY: a child of ours that has not been waited for.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        assert!(libc::WIFSIGNALED(self.wait()));
    }

    /// Lets the child go on, untraced.
    pub(crate) fn go_on(&self) {
        // SAFETY: the child is traced by this thread, and stands still.
        assert_eq!(unsafe { libc::ptrace(libc::PTRACE_DETACH, self.pid, 0, 0) }, 0);
    }

    /// Waits for the end of a child that goes on.
    pub(crate) fn join(self) {
        assert_eq!(self.wait(), 0);
    }
}

/// The exit status of a child that cannot be traced.
const NOT_TRACED: libc::c_int = 77;
