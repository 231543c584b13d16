//! Checks that what lies in a slot is a state of this build, before anybody refers to it as one.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::State;
use crate::options::Asked;
use crate::state::MAGIC;

/// Returns whether the slot holds a state of this build, in which every truth value and every
/// option is one. All else in a state may be any number. Only the user whose file it is can have
/// written something else, now or later: docs/security.md.
pub(super) fn is_sound(at: NonNull<State>) -> bool {
    // SAFETY: a slot, which is allocated and stays mapped; octets and words of it are looked at by
    // atomics, for which all are values.
    let octet = |offset| unsafe { at.cast::<AtomicU8>().add(offset).as_ref() }.load(Ordering::Relaxed);
    // SAFETY: as above, and the front of a slot is aligned.
    let magic = unsafe { at.byte_add(State::MAGIC_AT).cast::<AtomicU64>().as_ref() }.load(Ordering::Acquire);
    // SAFETY: as above; integers, written before the slot was known to anybody.
    let asked = unsafe { at.byte_add(State::ASKED).cast::<Asked>().as_ref() };
    magic == MAGIC && State::TRUTHS.into_iter().all(|offset| octet(offset) <= 1) && asked.is_sound()
}
