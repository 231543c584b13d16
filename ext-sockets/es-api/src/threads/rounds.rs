//! Progress with many tasks by rounds of `poll`, in a thread or in a caller that waits.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Instant;

use rddp_real::Errno;

use super::task::{Task, Waits};
use crate::as_program;

/// One `poll` over the descriptors of all tasks. Kept from round to round for its memory.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    waits: Waits,
    spans: Vec<Span>,
}

/// The entries of one task.
#[derive(Debug)]
struct Span {
    start: usize,
    waits: bool,
    until: Option<Instant>,
}

impl Rounds {
    /// Polls `first` and the tasks' descriptors, until `until` at the latest. Returns whether
    /// `first` is ready.
    pub(crate) fn wait(
        &mut self,
        first: c_int,
        tasks: &[Arc<dyn Task>],
        until: Option<Instant>,
    ) -> Result<bool, Errno> {
        self.gather(first, tasks);
        let earliest = self.spans.iter().filter_map(|span| span.until).chain(until).min();
        let timeout = earliest.map(|time| time.saturating_duration_since(Instant::now()));
        let polled = as_program::poll(self.waits.fds(), timeout);
        for (task, span) in tasks.iter().zip(&self.spans) {
            if span.waits {
                task.waited();
            }
        }
        polled?;
        Ok(self.first_events() != 0)
    }

    fn gather(&mut self, first: c_int, tasks: &[Arc<dyn Task>]) {
        self.waits.clear();
        self.spans.clear();
        self.waits.add(first, libc::POLLIN);
        for task in tasks {
            let start = self.waits.count();
            self.waits.until = None;
            let waits = task.waits_for(&mut self.waits);
            self.spans.push(Span { start, waits, until: self.waits.until });
        }
    }

    /// Returns whether the task of this index can go on.
    pub(crate) fn is_due(&self, index: usize) -> bool {
        let Some(span) = self.spans.get(index) else { return true };
        let end = self.spans.get(index + 1).map_or(self.waits.count(), |next| next.start);
        // A task that waits for nothing was finished by another thread.
        !span.waits
            || self.waits.found(span.start..end) != 0
            || span.until.is_some_and(|until| until <= Instant::now())
    }

    /// Returns the events that `poll` has found of the first descriptor.
    pub(crate) fn first_events(&self) -> i16 {
        self.waits.found(0..1)
    }
}
