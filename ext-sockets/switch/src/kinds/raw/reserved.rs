//! Room in a completion queue: the endpoints of an event queue reserve room for all their
//! completions, so that it never overflows.

use std::collections::HashMap;
use std::ffi::c_int;

/// The room for the completions of all endpoints of a queue together.
pub(super) const CAPACITY: usize = 1 << 22;

/// The largest number of completions that one endpoint can have in the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    /// Completions of works of its own.
    pub(super) own: usize,
    /// The number of the shared receives that the endpoint takes from, and their largest count.
    pub(super) shared: Option<(c_int, usize)>,
}

/// The room that the endpoints of a queue have reserved.
#[derive(Debug, Default)]
pub(super) struct Reserved {
    completions: usize,
    /// The count of endpoints for each set of shared receives, for which room is reserved once.
    sharing: HashMap<c_int, usize>,
}

impl Reserved {
    /// Reserves room for an endpoint. Returns whether there was enough.
    pub(super) fn take(&mut self, share: Share) -> bool {
        let first = share.shared.filter(|(number, _)| !self.sharing.contains_key(number));
        let sum = self.completions + share.own + first.map_or(0, |(_, max)| max);
        if sum > CAPACITY {
            return false;
        }
        self.completions = sum;
        if let Some((number, _)) = share.shared {
            *self.sharing.entry(number).or_default() += 1;
        }
        true
    }

    /// Gives back the room of an endpoint that has ended, when none of its completions is left.
    pub(super) fn give(&mut self, share: Share) {
        self.completions -= share.own;
        let Some((number, max)) = share.shared else { return };
        let Some(endpoints) = self.sharing.get_mut(&number) else { return };
        *endpoints -= 1;
        if *endpoints == 0 {
            self.sharing.remove(&number);
            self.completions -= max;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(own: usize, shared: Option<(c_int, usize)>) -> Share {
        Share { own, shared }
    }

    /// RFC 5042 §6.4.6
    #[test]
    fn shared_receives_count_once_for_all_their_endpoints() {
        let mut reserved = Reserved::default();
        let half = CAPACITY / 2;
        let sharing = share(1, Some((7, half)));
        assert!((0..10).all(|_| reserved.take(sharing)));
        assert_eq!(reserved.completions, half + 10);
        assert!(!reserved.take(share(1, Some((8, half)))), "other receives do not fit beside them");
        assert!(reserved.take(share(half - 10, None)) && !reserved.take(share(1, None)));
        assert_eq!(reserved.completions, CAPACITY);
        reserved.give(share(half - 10, None));
        (0..10).for_each(|_| reserved.give(sharing));
        assert_eq!((reserved.completions, reserved.sharing.len()), (0, 0));
    }
}
