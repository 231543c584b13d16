//! Lines that may come in crowds: one stands for all of its time.

use std::fmt;
use std::time::{Duration, Instant};

use crate::out;

/// Time in which one line is shown.
const EVERY: Duration = Duration::from_secs(10);

/// The time of the last line of a kind, and how many were not shown since.
#[derive(Debug, Default)]
pub struct Seldom {
    last: Option<Instant>,
    untold: u64,
}

impl Seldom {
    /// Warns of a server in trouble, unless it was done just now.
    pub fn warn(&mut self, text: fmt::Arguments<'_>) {
        if let Some(more) = self.due(Instant::now()) {
            out::server_warns(format_args!("{text}{more}"));
        }
    }

    /// Returns the end of the next line, which says how many were not shown since the last one;
    /// `None` if that was shown just now.
    pub fn due(&mut self, now: Instant) -> Option<String> {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < EVERY) {
            self.untold += 1;
            return None;
        }
        let before = std::mem::replace(self, Seldom { last: Some(now), untold: 0 });
        Some(if before.untold == 0 { String::new() } else { format!(" ({} more before)", before.untold) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_stands_for_all_of_its_time() {
        let (mut seldom, now) = (Seldom::default(), Instant::now());
        let due = [0, 1, 2, 10, 11, 21].map(|second| seldom.due(now + Duration::from_secs(second)));
        let told = |more: &str| Some(more.to_owned());
        assert_eq!(due, [told(""), None, None, told(" (2 more before)"), None, told(" (1 more before)")]);
    }
}
