//! Warnings of a server in trouble: shown whatever `-v`, and seldom enough that a crowd of clients
//! cannot fill the operator's log.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::out;

/// Time in which clients that are turned away are told of once.
const EVERY: Duration = Duration::from_secs(10);

/// The time of the last warning, and what has happened since.
#[derive(Default)]
pub(super) struct Warnings(Mutex<(Option<Instant>, u64)>);

impl Warnings {
    /// Warns that a client was turned away, unless that was said just now.
    pub(super) fn turned_away(&self, cause: &str) {
        if let Some(untold) = self.due(Instant::now()) {
            let more = if untold == 0 { String::new() } else { format!(" ({untold} more before)") };
            out::server_warns(format_args!("a client is turned away: {cause}{more}"));
        }
    }

    /// Returns how many were not told of since the last warning, if there may be another.
    fn due(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.0.is_some_and(|last| now.saturating_duration_since(last) < EVERY) {
            state.1 += 1;
            return None;
        }
        let (_, untold) = std::mem::replace(&mut *state, (Some(now), 0));
        Some(untold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_warning_stands_for_all_of_its_time() {
        let (warnings, now) = (Warnings::default(), Instant::now());
        let due = [0, 1, 2, 10, 11, 21].map(|second| warnings.due(now + Duration::from_secs(second)));
        assert_eq!(due, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
