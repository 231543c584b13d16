//! Completions that wait in a queue until the program polls for them.

use std::collections::VecDeque;
use std::sync::Arc;

use rddp_rdma::Completion;

use crate::mem::QpNum;
use crate::queues::srq::SrqInner;

/// The completions of one queue, oldest first, and the notification that the program has asked for.
#[derive(Debug)]
pub(super) struct Entries {
    list: VecDeque<Entry>,
    capacity: usize,
    armed: Option<Armed>,
    /// A device of the host completes receives here.
    all_are_urgent: bool,
}

/// A completion, and the shared receive queue that its receive was taken from. That queue counts
/// the receive as outstanding until the program has [taken](Self::take) the completion.
#[derive(Debug)]
pub(super) struct Entry {
    completion: Completion,
    srq: Option<Arc<SrqInner>>,
}

/// The kind of completion that a program has asked to be notified of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    Any,
    /// One that the peer solicited, or an error.
    Solicited,
}

impl Entries {
    pub(super) fn new(capacity: usize) -> Self {
        Entries { list: VecDeque::new(), capacity, armed: None, all_are_urgent: false }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Changes the capacity, unless there are more entries. Returns whether it did.
    pub(super) fn resize(&mut self, capacity: usize) -> bool {
        let fits = self.list.len() <= capacity;
        if fits {
            self.capacity = capacity;
        }
        fits
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.list.len() >= self.capacity
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Adds a completion. Returns whether the program is to be notified, which disarms the queue.
    #[inline]
    pub(super) fn push(&mut self, completion: Completion, srq: Option<&Arc<SrqInner>>) -> bool {
        self.list.push_back(Entry { completion, srq: srq.cloned() });
        let fires = match self.armed {
            None => false,
            Some(Armed::Any) => true,
            Some(Armed::Solicited) => self.is_urgent(&completion),
        };
        if fires {
            self.armed = None;
        }
        fires
    }

    /// Has every completion notify also who waits for solicited ones alone.
    pub(super) fn take_all_for_urgent(&mut self) {
        self.all_are_urgent = true;
    }

    fn is_urgent(&self, completion: &Completion) -> bool {
        self.all_are_urgent || completion.is_urgent()
    }

    /// Arms the queue. Returns whether a completion of that kind is here already: then the program
    /// is to be notified at once, and the queue is not armed.
    pub(super) fn arm(&mut self, solicited_only: bool) -> bool {
        let has_one = if solicited_only {
            self.list.iter().any(|entry| self.is_urgent(&entry.completion))
        } else {
            !self.list.is_empty()
        };
        if has_one {
            self.armed = None;
        } else {
            self.arm_next(solicited_only);
        }
        has_one
    }

    /// Arms the queue for completions that are still to come.
    pub(super) fn arm_next(&mut self, solicited_only: bool) {
        self.armed = match (solicited_only, self.armed) {
            // A program that has asked for any completion still waits for any.
            (false, _) | (true, Some(Armed::Any)) => Some(Armed::Any),
            (true, _) => Some(Armed::Solicited),
        };
    }

    /// Removes the oldest entry.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Entry> {
        self.list.pop_front()
    }

    /// Removes up to `max` entries, oldest first.
    pub(super) fn drain(&mut self, max: usize) -> impl Iterator<Item = Entry> {
        let count = max.min(self.list.len());
        self.list.drain(..count)
    }

    /// Removes the entries of a QP.
    pub(super) fn remove(&mut self, qp: QpNum) -> VecDeque<Entry> {
        let of_qp = |entry: &Entry| entry.completion.qp == qp;
        let (removed, kept) = std::mem::take(&mut self.list).into_iter().partition(of_qp);
        self.list = kept;
        removed
    }
}

impl Entry {
    /// Hands the completion to the program, whose receive no longer counts as outstanding.
    #[inline]
    pub(super) fn take(self) -> Completion {
        if let Some(srq) = self.srq {
            srq.release(self.completion.qp);
        }
        self.completion
    }
}
