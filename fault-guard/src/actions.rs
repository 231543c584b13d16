//! A store for the program's signal actions, which a signal handler can add to and read.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// An action in the store: it is never changed and never freed.
pub(crate) type Kept = &'static libc::sigaction;

/// The number of different actions that are stored without the allocator. Programs have a handful.
const ROOM: usize = 64;

static KEPT: [ActionSlot; ROOM] = [const { ActionSlot::new() }; ROOM];
static USED: AtomicUsize = AtomicUsize::new(0);

struct ActionSlot {
    ready: AtomicBool,
    action: UnsafeCell<MaybeUninit<libc::sigaction>>,
}

// SAFETY: the action is written once, by the one call of `keep` to which `USED` gave this slot,
// before `ready` is set; it is read only after `ready` was found set.
unsafe impl Sync for ActionSlot {}

impl ActionSlot {
    const fn new() -> Self {
        ActionSlot { ready: AtomicBool::new(false), action: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    fn action(&'static self) -> Option<Kept> {
        // SAFETY: `ready` is set, so the action was written, and is not written any more.
        self.ready.load(Ordering::Acquire).then(|| unsafe { (*self.action.get()).assume_init_ref() })
    }
}

/// Stores an action. Neither allocates nor locks, unless the store is full.
pub(crate) fn keep(action: libc::sigaction) -> Kept {
    if let Some(same) = KEPT.iter().filter_map(ActionSlot::action).find(|kept| is_same(kept, &action)) {
        return same;
    }
    // A signal handler must not allocate. A program with so many different actions is not known;
    // for it the risk is taken rather than to lose an action.
    let Some(slot) = KEPT.get(USED.fetch_add(1, Ordering::Relaxed).min(ROOM)) else {
        return Box::leak(Box::new(action));
    };
    // SAFETY: `USED` gave the slot to this call alone, and nobody reads it before `ready` is set.
    unsafe { (*slot.action.get()).write(action) };
    slot.ready.store(true, Ordering::Release);
    slot.action().unwrap_or_else(|| Box::leak(Box::new(action)))
}

fn is_same(a: &libc::sigaction, b: &libc::sigaction) -> bool {
    let blocks = |action: &libc::sigaction, signal| crate::held::has(&action.sa_mask, signal);
    a.sa_sigaction == b.sa_sigaction
        && a.sa_flags == b.sa_flags
        && (1..=LAST).all(|signal| blocks(a, signal) == blocks(b, signal))
}

/// The highest number of a signal on Linux.
pub(crate) const LAST: c_int = 64;

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;
    use crate::system;

    #[test]
    fn equal_actions_are_stored_once() {
        let mut one = system::no_action();
        one.sa_sigaction = 0x1234;
        let mut other = one;
        crate::held::only(libc::SIGUSR1).clone_into(&mut other.sa_mask);
        let first = keep(one);
        assert!(ptr::eq(keep(one), first));
        let second = keep(other);
        assert!(!ptr::eq(second, first) && ptr::eq(keep(other), second));
        for more in 0..2 * ROOM {
            one.sa_sigaction = 0x5000 + more;
            assert_eq!(keep(one).sa_sigaction, one.sa_sigaction);
        }
        assert!(ptr::eq(keep(other), second));
    }
}
