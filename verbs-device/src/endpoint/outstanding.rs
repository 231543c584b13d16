//! Requests that the device has.
//!
//! The device's `wr_id` is a number of ours: a completion that has failed says nothing else that
//! can be relied on, not even whether it is of a receive.

use std::collections::VecDeque;

use rddp_rdma::{Completed, Status};

/// A request of the send queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) wr_id: u64,
    pub(super) completed: Completed,
    /// Octets that a Read brings.
    pub(super) read: u32,
    /// The program is told of success.
    pub(super) signaled: bool,
    /// A request of the endpoint's own.
    pub(super) own: bool,
}

/// A request, and what the device has told of it.
#[derive(Debug)]
struct Place {
    sent: Sent,
    is_signaled: bool,
    told: Option<Status>,
}

/// The send queue: devices free the places of requests when a later one that is signaled completes,
/// and at no other time.
///
/// Linux's siw completes Sends and Writes before a Read that was posted before them, and whose
/// Response is on its way. So each request that is signaled waits for a completion of its own.
#[derive(Debug)]
pub(super) struct Sends {
    capacity: usize,
    first: u64,
    requests: VecDeque<Place>,
    own: usize,
    /// Requests behind the last one that is signaled.
    silent: usize,
    /// Number behind the latest request of which the device has told.
    told: u64,
}

impl Sends {
    pub(super) fn new(capacity: usize) -> Self {
        Sends { capacity, first: 0, requests: VecDeque::new(), own: 0, silent: 0, told: 0 }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.requests.len() - self.own >= self.capacity
    }

    /// Returns whether the device tells nothing when the last request is done.
    pub(super) fn ends_silently(&self) -> bool {
        self.silent > 0
    }

    /// Returns whether the device has yet to tell of a request.
    pub(super) fn are_awaited(&self) -> bool {
        self.requests.len() > self.silent
    }

    /// Returns requests of the endpoint's own that are outstanding.
    pub(super) fn own(&self) -> usize {
        self.own
    }

    /// Returns the number of the next request, and whether the device has to signal it: when the
    /// program asks for it, and else often enough that the queue never fills up.
    pub(super) fn next(&self, signaled: bool) -> (u64, bool) {
        let number = self.first + self.requests.len() as u64;
        (number, signaled || self.silent + 1 >= self.capacity.div_ceil(2))
    }

    /// Notes a request that was posted.
    #[inline]
    pub(super) fn push(&mut self, sent: Sent, is_signaled: bool) {
        self.own += usize::from(sent.own);
        self.silent = if is_signaled { 0 } else { self.silent + 1 };
        self.requests.push_back(Place { sent, is_signaled, told: None });
    }

    /// Notes what the device tells of a request.
    pub(super) fn tell(&mut self, number: u64, status: Status) {
        let index = number.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        if let Some(place) = index.and_then(|index| self.requests.get_mut(index)) {
            place.told = Some(status);
            self.told = self.told.max(number + 1);
        }
    }

    /// Takes the oldest request, if it is done: the device has told of it, or, if it tells nothing
    /// of it, of a later one.
    pub(super) fn take(&mut self) -> Option<(Sent, Status)> {
        let place = self.requests.front()?;
        let silently = (!place.is_signaled && self.first < self.told).then_some(Status::Success);
        let (sent, status) = (place.sent, place.told.or(silently)?);
        self.requests.pop_front();
        self.first += 1;
        self.own -= usize::from(sent.own);
        Some((sent, status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silent(wr_id: u64) -> Sent {
        Sent { wr_id, completed: Completed::Send, read: 0, signaled: false, own: false }
    }

    #[test]
    fn a_queue_of_silent_requests_is_signaled_before_it_is_full() {
        for capacity in 1..9 {
            let mut sends = Sends::new(capacity);
            let mut signaled = Vec::new();
            while !sends.is_full() {
                let (number, is_signaled) = sends.next(false);
                signaled.extend(is_signaled.then_some(number));
                sends.push(silent(number), is_signaled);
            }
            signaled.into_iter().for_each(|number| sends.tell(number, Status::Success));
            while sends.take().is_some() {}
            assert!(!sends.is_full(), "{capacity}");
        }
    }

    fn taken(sends: &mut Sends) -> Vec<(u64, Status)> {
        std::iter::from_fn(|| sends.take()).map(|(sent, status)| (sent.wr_id, status)).collect()
    }

    #[test]
    fn a_completion_ends_the_silent_requests_before_it() {
        let mut sends = Sends::new(4);
        for (wr_id, is_signaled) in [(7, false), (8, true), (9, false)] {
            sends.push(silent(wr_id), is_signaled);
        }
        sends.tell(1, Status::RemoteAccess);
        assert_eq!(taken(&mut sends), [(7, Status::Success), (8, Status::RemoteAccess)]);
        assert_eq!(sends.next(false).0, 3);
        // What a device tells twice, or of nothing.
        sends.tell(1, Status::Flushed);
        sends.tell(77, Status::Flushed);
        assert_eq!(taken(&mut sends), []);
    }

    #[test]
    fn a_request_waits_for_its_own_completion_and_those_behind_it_wait_for_it() {
        let mut sends = Sends::new(4);
        for wr_id in [7, 8, 9] {
            sends.push(silent(wr_id), true);
        }
        sends.tell(1, Status::Success);
        assert_eq!(taken(&mut sends), []);
        sends.tell(0, Status::Success);
        assert_eq!(taken(&mut sends), [(7, Status::Success), (8, Status::Success)]);
    }
}
