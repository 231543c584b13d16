//! Late acknowledgements: where a program answers each message at once, the acknowledgement goes in
//! the segment of its answer, which saves both ends a system call.
//!
//! One message's is held back, if the program has answered the last message at once. It goes with
//! the next request that is posted, or else
//!
//! - behind the next turn of reading: a program that polls and has nothing to post makes one, if
//!   the poll tries this connection;
//! - after [`PATIENCE`], if it was the background thread that read the message: the program may
//!   watch its memory;
//! - after [`LEASE`], if it was a program that polls: it may do something else now.

use std::time::{Duration, Instant};

use crate::queues::attributes::QpAttributes;
use crate::queues::context::Context;
use crate::wire::Watch;

/// Time within which a request is an answer at once.
const AT_ONCE: Duration = Duration::from_micros(20);

/// Time for which the background thread holds an acknowledgement back.
const PATIENCE: Duration = Duration::from_micros(30);

/// Time for which a thread of the program does. Where the peer counts on answers, it looks each
/// millisecond whether one has come, and gives up at the fourth look. Tests take longer to look.
const LEASE: Duration = Duration::from_millis(if cfg!(test) { 1000 } else { 2 });

/// The acknowledgement that is held back, and whether one may be.
#[derive(Debug, Default)]
pub(super) struct Late {
    waits: bool,
    /// The moment up to which it waits.
    until: Option<Instant>,
    /// The program has answered the last message at once.
    answers: bool,
    /// The moment of an acknowledgement of one message, behind which nothing was posted yet.
    told: Option<Instant>,
}

impl Late {
    /// Holds nothing back any more: the peer is told.
    pub(super) fn stop(&mut self) {
        (self.waits, self.until) = (false, None);
    }

    /// Returns whether one is held back.
    pub(super) fn waits(&self) -> bool {
        self.waits
    }

    /// Holds the acknowledgement of one message back, if the program is likely to answer. Returns
    /// whether it does.
    pub(super) fn hold_back(&mut self, watch: &mut Watch, cx: &Context<'_>) -> bool {
        if self.waits || !self.answers {
            return false;
        }
        let patience = match () {
            () if cx.attrs.device.driver.is_this_thread() => PATIENCE,
            () if !cx.attrs.cqs().any(|cq| cq.is_polled()) => return false,
            () => LEASE,
        };
        let now = Instant::now();
        (self.waits, self.until) = (true, Some(now + patience));
        watch.wake_by(now + patience, now, cx.attrs);
        true
    }

    /// Returns whether one has waited for as long as it may. Then the next does not wait.
    pub(super) fn is_due(&mut self, watch: &mut Watch, now: Instant, attrs: &QpAttributes) -> bool {
        let Some(until) = self.until else { return false };
        if until > now {
            watch.wake_by(until, now, attrs);
            return false;
        }
        self.answers = false;
        true
    }

    /// Notes that the program has something to send.
    pub(super) fn note_posted(&mut self, now: impl FnOnce() -> Instant) {
        if let Some(told) = self.told.take() {
            self.answers = now().saturating_duration_since(told) < AT_ONCE;
        }
    }

    /// Notes that an acknowledgement went without an answer: of one message, or of more. It may
    /// have waited for one.
    pub(super) fn note_alone(&mut self, waited: bool, is_one: bool) {
        self.answers &= !waited;
        self.told = is_one.then(Instant::now);
    }
}

#[cfg(test)]
impl Late {
    /// Pretends that the program has answered the last message at once, or has not.
    pub(super) fn pretend_answers(&mut self, answers: bool) {
        self.answers = answers;
    }

    /// Returns whether the program has answered the last message at once.
    pub(super) fn answers(&self) -> bool {
        self.answers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_an_answer_if_it_comes_at_once() {
        let now = Instant::now();
        let mut late = Late { told: Some(now), ..Late::default() };
        late.note_posted(|| now + AT_ONCE / 2);
        assert!(late.answers);
        late.note_posted(|| now + 9 * AT_ONCE);
        assert!(late.answers, "it answers nothing");
        late.told = Some(now);
        late.note_posted(|| now + AT_ONCE);
        assert!(!late.answers);
    }
}
