//! Calls that fail on demand: what stands between a program and the functions that it calls.

use nix::errno::Errno;

use super::environment::settings;
use crate::errors::Outcome;
use crate::faults::{self, Plan};
use crate::refusal::because;

/// Returns the rules of this process, if there are any.
#[inline]
pub(super) fn plan() -> Option<&'static Plan> {
    faults::plan(|| settings().map_or_else(Plan::default, |settings| Plan::new(settings.faults())))
}

/// Fails where a rule says that this call does.
#[inline]
pub(super) fn pass(verb: &str) -> Outcome<()> {
    match plan().and_then(|plan| plan.call(verb)) {
        None => Ok(()),
        Some(error) => Err(because(error, "a fault on demand")),
    }
}

/// A function of C with six arguments at most: integers and pointers, which are passed on as they
/// are.
pub(super) type Function = unsafe extern "C-unwind" fn(usize, usize, usize, usize, usize, usize) -> usize;

/// Defines a function that fails in one of the ways below where a rule says so, and else calls the
/// one of this name.
#[cfg(not(test))]
macro_rules! gate {
    ($gate:ident = $name:ident, $verb:literal $way:ident) => {
        unsafe extern "C-unwind" fn $gate(
            a: usize,
            b: usize,
            c: usize,
            d: usize,
            e: usize,
            f: usize,
        ) -> usize {
            if let Err(error) = crate::c::gate::pass($verb) {
                return crate::c::gate::$way(error);
            }
            // SAFETY: the function's contract is that of the one behind it. Where this library is
            // built (x86-64, AArch64), six integers and pointers of any width come in registers,
            // as does the result: they are passed on as they are, with those that are not there.
            unsafe {
                let behind = crate::c::entries::$name as *const ();
                std::mem::transmute::<*const (), crate::c::gate::Function>(behind)(a, b, c, d, e, f)
            }
        }
    };
}
#[cfg(not(test))]
pub(super) use gate;

/// Returns NULL.
pub(super) fn null(error: Errno) -> usize {
    error.set();
    0
}

/// Returns the error number.
pub(super) fn number(error: Errno) -> usize {
    error as usize
}

/// Returns -1.
pub(super) fn minus(error: Errno) -> usize {
    error.set();
    usize::MAX
}
