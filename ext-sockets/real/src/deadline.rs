//! Time limits as programs give them.

use std::time::{Duration, Instant};

/// Returns the moment at which a limit that begins now is over. `None`: there is no limit, or it
/// reaches beyond what the clock can tell.
pub fn after(limit: Option<Duration>) -> Option<Instant> {
    limit.and_then(|limit| Instant::now().checked_add(limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_beyond_the_clock_is_none() {
        let now = Instant::now();
        for limit in [None, Some(Duration::MAX), Some(Duration::from_secs(i64::MAX as u64))] {
            assert_eq!(after(limit), None);
        }
        assert!(after(Some(Duration::from_secs(60))).is_some_and(|moment| moment > now));
        assert!(after(Some(Duration::ZERO)).is_some_and(|moment| moment <= Instant::now()));
    }
}
