//! Commands that begin anew when the server has no place for them at the moment.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rddp_command::failure::{Failure, FailureKind};
use rddp_command::{out, signals};

/// The first pause and the longest, each of which is varied so that many clients do not come back
/// at once.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(1);

/// The remedy where the server has named none.
const LATER: &str = "repeat the command later, or with a longer --retry";

/// The user knows that it is tried again: the connections of a command tell it once.
static TOLD: AtomicBool = AtomicBool::new(false);

/// Does `work`, and again for so long while the server turns this client away. That time begins
/// when the client is turned away, and anew when more octets have `moved` meanwhile: of a tree, it
/// has what has arrived.
pub(super) fn patiently<T>(
    retry: Duration,
    moved: impl Fn() -> u64,
    mut work: impl FnMut() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let (mut until, mut pause, mut before) = (None, FIRST, 0);
    loop {
        let failure = match work() {
            Err(failure) if failure.kind() == FailureKind::TurnedAway => failure,
            done => return done,
        };
        if moved() > before {
            (until, before) = (None, moved());
        }
        let now = Instant::now();
        let left = until.get_or_insert(now + retry).saturating_duration_since(now);
        if left.is_zero() {
            let has_remedy = failure.how().is_some();
            return Err(if has_remedy { failure } else { failure.remedy(LATER) });
        }
        if pause == FIRST && !out::style().quiet && !TOLD.swap(true, Ordering::Relaxed) {
            out::warn(format_args!("{failure}; it is tried again for {} s", retry.as_secs_f32()));
        }
        signals::sleep(varied(pause).min(left))?;
        pause = (2 * pause).min(LONGEST);
    }
}

/// Returns a time between half and one and a half times this one.
fn varied(pause: Duration) -> Duration {
    let mut random = [128];
    // Without random numbers all clients wait for the same time.
    let _ = getrandom::fill(&mut random);
    pause.mul_f32(0.5 + f32::from(random[0]) / 256.0)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::thread;

    use super::*;

    #[test]
    fn only_a_client_that_is_turned_away_comes_back_and_for_so_long() {
        let mut calls = 0;
        let mut work = |kind, times| {
            patiently(
                Duration::from_secs(60),
                || 0,
                || {
                    calls += 1;
                    if calls <= times { Err(Failure::new(kind, "no")) } else { Ok(calls) }
                },
            )
        };
        assert_eq!(work(FailureKind::TurnedAway, 2).unwrap(), 3);
        assert_eq!(work(FailureKind::Refused, 4).unwrap_err().kind(), FailureKind::Refused);
        let away = || Err::<(), _>(Failure::new(FailureKind::TurnedAway, "no"));
        assert_eq!(patiently(Duration::ZERO, || 0, away).unwrap_err().how(), Some(LATER));
    }

    /// Each time octets move before the client is turned away, it has all the time again.
    #[test]
    fn a_client_that_got_on_comes_back_for_as_long_as_before() {
        let retry = Duration::from_millis(200);
        let calls = Cell::new(0);
        let moved = || u64::min(calls.get(), 5);
        let away = || {
            calls.set(calls.get() + 1);
            thread::sleep(retry);
            Err::<(), _>(Failure::new(FailureKind::TurnedAway, "no"))
        };
        assert!(patiently(retry, moved, away).is_err());
        assert!(calls.get() > 5, "{calls:?}");
    }
}
