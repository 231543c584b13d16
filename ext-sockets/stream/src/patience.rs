//! Patience: how long a call may wait.

use std::time::Duration;

use super::sys::now;

/// The time that a call may wait.
#[derive(Clone, Copy)]
pub struct Patience {
    none: bool,
    /// End of the time, by [`now`]; `None` for no limit.
    until: Option<u64>,
}

impl Patience {
    /// Returns a patience of no time at all, or of `timeout` from now, or without limit.
    #[inline]
    pub fn new(none: bool, timeout: Option<Duration>) -> Self {
        let until = timeout
            .map(|timeout| now().saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX)));
        Self { none, until }
    }

    /// Returns this patience, but no longer than `span` from now.
    #[inline]
    pub(super) fn at_most(&self, span: Duration) -> Self {
        let longest = Self::new(self.none, Some(span));
        let until = [self.until, longest.until].into_iter().flatten().min();
        Self { none: self.none, until }
    }

    /// Returns the time that is left, if there is a limit.
    #[inline]
    pub fn left(&self) -> Option<Duration> {
        self.until.map(|until| Duration::from_nanos(until.saturating_sub(now())))
    }

    /// Returns whether the call must not sleep at all, whatever the descriptor's flags.
    pub(super) fn is_none(&self) -> bool {
        self.none
    }

    /// Returns whether the time is limited: the kernel restarts no call that has a timeout.
    pub(super) fn has_limit(&self) -> bool {
        self.until.is_some()
    }

    /// Returns whether no time is left.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.left() == Some(Duration::ZERO)
    }
}
