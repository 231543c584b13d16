//! The system calls for handlers and masks, as `syscall` makes them, served by the fault guard.

use std::ffi::c_int;
use std::ptr;

use libc::sigset_t;
use rddp_fault_guard::{is_installed, mask};
use rddp_real as real;
use rddp_stream::{Errno, lent};

use crate::hook::returned;
use crate::signals::{bits_of, set_of};

/// Serves the system call `rt_sigprocmask`. `None`: the kernel is to make it.
///
/// # Safety
///
/// As for the system call.
pub(crate) unsafe fn sigprocmask(how: c_int, set: *const u64, old: *mut u64, len: usize) -> Option<c_int> {
    if len != size_of::<u64>() || !mask::is_adopted() {
        return None;
    }
    // SAFETY: null or the program's sets; `lent` fails where no memory is.
    Some(told(|| unsafe {
        let set = if set.is_null() { None } else { Some(set_of(lent::get(set)?)) };
        let before = mask::sigmask_by(change, how, set.as_ref()).map_err(Errno)?;
        if old.is_null() { Ok(()) } else { lent::put(old, bits_of(&before)) }
    }))
}

/// Changes the mask by the kernel's own call, which hides no signal from the program as the C
/// library's does.
fn change(how: c_int, set: Option<&sigset_t>) -> Result<sigset_t, c_int> {
    let set = set.map(bits_of);
    let set_at = set.as_ref().map_or(0, |set| ptr::from_ref(set).expose_provenance());
    let mut before = 0_u64;
    let before_at = (&raw mut before).expose_provenance();
    // SAFETY: both sets live until the call returns, and have as many octets as it is told.
    let done = unsafe {
        real::syscall(libc::SYS_rt_sigprocmask, how as usize, set_at, before_at, size_of::<u64>(), 0, 0)
    };
    if done == 0 { Ok(set_of(before)) } else { Err(Errno::last().0) }
}

/// An action in the kernel's layout.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Action {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// Serves the system call `rt_sigaction`. A handler returns by the C library's code. `None`: the
/// kernel is to make it.
///
/// # Safety
///
/// As for the system call.
pub(crate) unsafe fn sigaction(
    signal: c_int,
    new: *const Action,
    old: *mut Action,
    len: usize,
) -> Option<c_int> {
    if len != size_of::<u64>() || !is_installed() || OF_THE_LIBRARY.contains(&signal) {
        return None;
    }
    // SAFETY: null or the program's actions; `lent` fails where no memory is.
    Some(told(|| unsafe {
        let new = if new.is_null() { None } else { Some(lent::get(new)?.action()) };
        let before = rddp_fault_guard::sigaction(signal, new.as_ref()).map_err(Errno)?;
        if old.is_null() { Ok(()) } else { lent::put(old, Action::of(&before)) }
    }))
}

impl Action {
    fn action(self) -> libc::sigaction {
        // SAFETY: all zeros is the default action.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        (action.sa_sigaction, action.sa_flags) = (self.handler, self.flags as c_int);
        action.sa_mask = set_of(self.mask);
        action
    }

    fn of(action: &libc::sigaction) -> Self {
        Action {
            handler: action.sa_sigaction,
            flags: u64::from(action.sa_flags.cast_unsigned()),
            restorer: action.sa_restorer.map_or(0, |restorer| restorer as usize),
            mask: bits_of(&action.sa_mask),
        }
    }
}

fn told(call: impl FnOnce() -> Result<(), Errno>) -> c_int {
    returned(|| call().map(|()| 0))
}

/// Signals that the C library uses itself, and lets no program handle.
const OF_THE_LIBRARY: [c_int; 2] = [32, 33];
