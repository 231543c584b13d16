//! What connections that never come about may write to the log (RFC 5042 §6.4: a peer must not make us work for nothing).

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Messages of one window.
const AT_MOST: u32 = 10;

const WINDOW: Duration = Duration::from_secs(1);

/// Lets some messages a second through and counts the others. One for the device: peers can have many addresses.
#[derive(Debug, Default)]
pub(crate) struct LogLimit(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    begun: Option<Instant>,
    written: u32,
    left_out: u64,
}

impl LogLimit {
    /// If a message may be written now: how many were left out before it.
    pub(super) fn admit(&self) -> Option<u64> {
        self.admit_at(Instant::now())
    }

    fn admit_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock();
        if state.begun.is_none_or(|begun| now.duration_since(begun) >= WINDOW) {
            (state.begun, state.written) = (Some(now), 0);
        }
        if state.written == AT_MOST {
            state.left_out += 1;
            return None;
        }
        state.written += 1;
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_writes_ten_lines_a_second_and_says_what_it_left_out() {
        let (limit, now) = (LogLimit::default(), Instant::now());
        let written = (0..1000).filter_map(|_| limit.admit_at(now)).collect::<Vec<_>>();
        assert_eq!(written, [0; 10]);
        assert_eq!(limit.admit_at(now + WINDOW), Some(990));
        assert_eq!(limit.admit_at(now + WINDOW), Some(0));
    }
}
