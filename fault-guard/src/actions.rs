//! Actions of the program's, kept so that a signal handler may keep and read them.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// An action that was kept: it is never changed, and stays.
pub(crate) type Kept = &'static libc::sigaction;

/// Different actions that are kept without the allocator. Programs have a handful.
const ROOM: usize = 64;

static KEPT: [Place; ROOM] = [const { Place::new() }; ROOM];
static USED: AtomicUsize = AtomicUsize::new(0);

struct Place {
    ready: AtomicBool,
    action: UnsafeCell<MaybeUninit<libc::sigaction>>,
}

// SAFETY: the action is written once, before `ready` is set, by whoever was given the place.
unsafe impl Sync for Place {}

impl Place {
    const fn new() -> Self {
        Place { ready: AtomicBool::new(false), action: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    fn action(&'static self) -> Option<Kept> {
        // SAFETY: it is ready, so it was written and is not written any more.
        self.ready.load(Ordering::Acquire).then(|| unsafe { (*self.action.get()).assume_init_ref() })
    }
}

/// Keeps an action, allocating and locking nothing unless very many different ones were kept.
pub(crate) fn keep(action: libc::sigaction) -> Kept {
    if let Some(same) = KEPT.iter().filter_map(Place::action).find(|kept| is_same(kept, &action)) {
        return same;
    }
    let Some(place) = KEPT.get(USED.fetch_add(1, Ordering::Relaxed).min(ROOM)) else {
        return Box::leak(Box::new(action));
    };
    // SAFETY: the place was given to this call alone, and is not ready.
    unsafe { (*place.action.get()).write(action) };
    place.ready.store(true, Ordering::Release);
    place.action().unwrap_or_else(|| Box::leak(Box::new(action)))
}

fn is_same(a: &libc::sigaction, b: &libc::sigaction) -> bool {
    let blocks = |action: &libc::sigaction, signal| crate::held::has(&action.sa_mask, signal);
    a.sa_sigaction == b.sa_sigaction
        && a.sa_flags == b.sa_flags
        && (1..=LAST).all(|signal| blocks(a, signal) == blocks(b, signal))
}

/// Linux has as many signals.
pub(crate) const LAST: c_int = 64;

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;
    use crate::system;

    #[test]
    fn equal_actions_are_kept_once_and_others_for_themselves() {
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
