//! A line of requests in the order in which they are answered. The first one lies in place: a
//! stream with at most one at a time, as that of a byte stream, allocates nothing for it.

use std::collections::VecDeque;

#[derive(Clone, Debug)]
pub(super) struct Line<T> {
    /// The first entry; `None` only if the line is empty.
    first: Option<T>,
    others: VecDeque<T>,
}

impl<T> Line<T> {
    pub(super) const fn new() -> Self {
        Self { first: None, others: VecDeque::new() }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }

    #[inline]
    pub(super) fn first(&self) -> Option<&T> {
        self.first.as_ref()
    }

    #[inline]
    pub(super) fn first_mut(&mut self) -> Option<&mut T> {
        self.first.as_mut()
    }

    #[inline]
    pub(super) fn push(&mut self, entry: T) {
        if self.first.is_none() {
            self.first = Some(entry);
        } else {
            self.others.push_back(entry);
        }
    }

    /// Removes the first entry.
    #[inline]
    pub(super) fn end_first(&mut self) {
        self.first = self.others.pop_front();
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.others)
    }
}
