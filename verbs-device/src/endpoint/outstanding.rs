//! Requests that the device has.
//!
//! The device's `wr_id` is a number of ours: a completion that has failed says nothing else that
//! can be relied on, not even whether it is of a receive.

use std::collections::VecDeque;

use rddp_rdma::Completed;

/// The bit of a number that says that it is a receive's.
const RECEIVE: u64 = 1 << 63;

/// Returns whether a number is a receive's.
pub(super) fn is_receive(number: u64) -> bool {
    number & RECEIVE != 0
}

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

/// The send queue: devices free the places of requests when a later one that is signaled completes,
/// and at no other time.
#[derive(Debug)]
pub(super) struct Sends {
    capacity: usize,
    first: u64,
    requests: VecDeque<Sent>,
    own: usize,
    /// Requests behind the last one that is signaled.
    silent: usize,
}

impl Sends {
    pub(super) fn new(capacity: usize) -> Self {
        Sends { capacity, first: 0, requests: VecDeque::new(), own: 0, silent: 0 }
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
    pub(super) fn push(&mut self, sent: Sent, is_signaled: bool) {
        self.own += usize::from(sent.own);
        self.silent = if is_signaled { 0 } else { self.silent + 1 };
        self.requests.push_back(sent);
    }

    /// Takes the oldest request, if its number is at most this one; says whether it has this one.
    pub(super) fn take(&mut self, upto: u64) -> Option<(Sent, bool)> {
        if self.first > upto {
            return None;
        }
        let sent = self.requests.pop_front()?;
        self.first += 1;
        self.own -= usize::from(sent.own);
        Some((sent, self.first > upto))
    }
}

/// The receive queue, whose requests complete in their order.
#[derive(Debug, Default)]
pub(super) struct Receives {
    next: u64,
    requests: VecDeque<u64>,
}

impl Receives {
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(super) fn next(&self) -> u64 {
        RECEIVE | self.next
    }

    pub(super) fn push(&mut self, wr_id: u64) {
        self.next += 1;
        self.requests.push_back(wr_id);
    }

    pub(super) fn take(&mut self) -> Option<u64> {
        self.requests.pop_front()
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
            let mut last_signaled = None;
            while !sends.is_full() {
                let (number, is_signaled) = sends.next(false);
                last_signaled = is_signaled.then_some(number).or(last_signaled);
                sends.push(silent(number), is_signaled);
            }
            while sends.take(last_signaled.unwrap()).is_some() {}
            assert!(!sends.is_full(), "{capacity}");
        }
    }

    #[test]
    fn a_completion_ends_all_requests_before_it() {
        let mut sends = Sends::new(4);
        for wr_id in [7, 8, 9] {
            sends.push(silent(wr_id), false);
        }
        let mut taken = Vec::new();
        while let Some((sent, is_last)) = sends.take(1) {
            taken.push((sent.wr_id, is_last));
        }
        assert_eq!(taken, [(7, false), (8, true)]);
        assert_eq!(sends.next(false).0, 3);
    }
}
