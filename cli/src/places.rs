//! How many clients there may be, and how many of them from one address, so that no host takes all places.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(super) struct Places {
    most: usize,
    /// One entry a client; those whose address is not known are as of one host.
    taken: Mutex<Vec<Option<IpAddr>>>,
}

/// A client's; free again when it is dropped.
pub(super) struct Place {
    places: Arc<Places>,
    peer: Option<IpAddr>,
}

impl Places {
    pub(super) fn new(most: usize) -> Self {
        Places { most, taken: Mutex::default() }
    }

    pub(super) fn take(self: &Arc<Self>, peer: Option<IpAddr>) -> Option<Place> {
        let mut taken = self.taken();
        let of_peer = taken.iter().filter(|other| **other == peer).count();
        if taken.len() >= self.most || of_peer >= self.most.div_ceil(2) {
            return None;
        }
        taken.push(peer);
        Some(Place { places: self.clone(), peer })
    }

    pub(super) fn are_free(&self) -> bool {
        self.taken().is_empty()
    }

    fn taken(&self) -> MutexGuard<'_, Vec<Option<IpAddr>>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        if let Some(at) = taken.iter().position(|peer| *peer == self.peer) {
            taken.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_gets_half_of_the_places() {
        let places = Arc::new(Places::new(3));
        let [one, two, three] = [1, 2, 3].map(|last| Some(IpAddr::from([192, 0, 2, last])));
        let first = [places.take(one), places.take(one)];
        assert!(first.iter().all(Option::is_some) && places.take(one).is_none());
        let second = places.take(two);
        assert!(second.is_some() && places.take(three).is_none());
        drop(first);
        assert!(places.take(one).is_some() && !places.are_free());
        drop(second);
        assert!(places.are_free());
    }
}
