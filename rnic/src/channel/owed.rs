//! Events of a channel that its descriptor is yet to show.
//!
//! To show an event and to hide it again are two system calls, which are in vain where the program
//! takes the event without sleeping on the descriptor, as one does that posts a request and then
//! asks for the event of its completion. Nobody can tell beforehand. So while the background thread
//! is about to have a turn anyway, it is left to that thread to show what the program has not taken
//! by then. Where it had to, later events are shown at once, and more of them each time.

/// The most events that are shown at once before one is left to the background thread again.
const MOST: u32 = 1 << 16;

/// Fewest events of that kind.
const FEWEST: u32 = 64;

/// The record of one channel's events.
#[derive(Debug, Default)]
pub(super) struct Owed {
    /// Set while the background thread is to look at the channel: the value of `taken` when it was
    /// asked, or last looked.
    asked: Option<u64>,
    /// Events that the program has taken.
    taken: u64,
    /// Events that are to be shown at once, and how many these were at first.
    at_once: u32,
    patience: u32,
}

/// Findings of the background thread at a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The program takes its events.
    Nothing,
    /// There is an event, and it may be new: look again.
    New,
    /// There is an event, and the program has taken none since the last look.
    Old,
}

impl Owed {
    /// Returns whether an event may be left to the background thread.
    pub(super) fn may_wait(&mut self) -> bool {
        let waits = self.at_once == 0;
        self.at_once = self.at_once.saturating_sub(1);
        waits
    }

    /// Returns whether the background thread has been asked to look.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// Notes that the background thread has been asked to look.
    pub(super) fn ask(&mut self) {
        self.asked = Some(self.taken);
    }

    /// Notes that the program has taken an event.
    pub(super) fn take(&mut self) {
        self.taken += 1;
    }

    /// Looks, for the background thread, where the channel has events or not.
    pub(super) fn look(&mut self, has_events: bool) -> Found {
        let is_old = self.asked.take() == Some(self.taken);
        match (has_events, is_old) {
            (false, _) => {
                self.patience /= 2;
                Found::Nothing
            }
            (true, false) => {
                self.ask();
                Found::New
            }
            (true, true) => {
                self.patience = (2 * self.patience).clamp(FEWEST, MOST);
                self.at_once = self.patience;
                Found::Old
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_old_once_the_program_has_taken_none_between_two_looks() {
        let mut owed = Owed::default();
        assert!(owed.may_wait() && !owed.is_asked());
        owed.ask();
        owed.take();
        assert_eq!((owed.look(true), owed.is_asked()), (Found::New, true));
        assert_eq!((owed.look(true), owed.is_asked()), (Found::Old, false));
        owed.ask();
        assert_eq!((owed.look(false), owed.is_asked()), (Found::Nothing, false));
    }

    #[test]
    fn a_program_that_sleeps_on_the_descriptor_has_more_and_more_events_shown_at_once() {
        let mut owed = Owed::default();
        let mut at_once = Vec::new();
        for _ in 0..15 {
            owed.ask();
            assert_eq!(owed.look(true), Found::Old);
            at_once.push((0..).take_while(|_| !owed.may_wait()).count() as u32);
        }
        assert_eq!((at_once[0], at_once[1], at_once[14]), (FEWEST, 2 * FEWEST, MOST));
        // And fewer once it takes them in time.
        for _ in 0..20 {
            owed.ask();
            assert_eq!(owed.look(false), Found::Nothing);
        }
        owed.ask();
        owed.look(true);
        assert_eq!((0..).take_while(|_| !owed.may_wait()).count() as u32, FEWEST);
    }
}
