//! Checks that a slot holds a state of this build, before anything refers to it as one.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::State;
use crate::options::Asked;
use crate::state::MAGIC;

/// Returns whether the slot holds a state of this build, in which every boolean and every option is
/// a valid one. All other fields may be any number. Only the user whose file it is can have written
/// something else, now or later: docs/security.md.
pub(super) fn is_sound(at: NonNull<State>) -> bool {
    // SAFETY: the slot is allocated and stays mapped; octets and words of it are read by atomics,
    // for which all are values.
    let octet = |offset| unsafe { at.cast::<AtomicU8>().add(offset).as_ref() }.load(Ordering::Relaxed);
    // SAFETY: as for octets, and the front of a slot is aligned.
    let magic = unsafe { at.byte_add(State::MAGIC_AT).cast::<AtomicU64>().as_ref() }.load(Ordering::Acquire);
    // SAFETY: the slot is allocated and aligned; integers, written before the slot was known to
    // other processes.
    let asked = unsafe { at.byte_add(State::ASKED).cast::<Asked>().as_ref() };
    magic == MAGIC && State::TRUTHS.into_iter().all(|offset| octet(offset) <= 1) && asked.is_sound()
}
