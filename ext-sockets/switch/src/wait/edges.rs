//! The sockets of one wait that are waited for by edges: `poll` and `select` get the number of a
//! private edge-triggered set in their place.

use std::ffi::{c_int, c_short};
use std::time::Duration;

use rddp_real as real;
use rddp_stream::{self as stream, Calls, EdgeSet};
use smallvec::SmallVec;

use super::watched::Watched;
use crate::kinds::Ours;

static CALLS: Calls = real::calls(|| None);

/// The time between two looks where no set can be had.
const RECHECK: Duration = Duration::from_millis(10);

/// Ends the registrations of a socket of ours under `fd`, which is about to be closed.
pub fn forget_edges(fd: c_int) {
    stream::forget_edges_of(&CALLS, fd);
}

/// Closes the copies of the parent's sets in the child of a `fork`.
pub fn forget_inherited_sets() {
    stream::forget_inherited_sets(&CALLS);
}

/// The set of a wait, made for the first socket that needs it.
#[derive(Default)]
pub(super) struct Edges {
    set: Option<EdgeSet>,
    /// The events collected for each registered socket.
    events: SmallVec<[c_short; 4]>,
}

/// The way in which a sleep is for a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Way {
    /// For its interest, level-triggered.
    #[default]
    Level,
    /// By the set, in which it was registered just now under this tag: a look comes before the
    /// sleep.
    New(u32),
    /// By the set, in which it is registered under this tag.
    Edges(u32),
    /// By looking from time to time, as the process can have no set.
    Looks,
}

impl Edges {
    /// Returns how to wait for `want` of a socket; `before` is the answer for the last sleep, and
    /// `known` the tag of the socket, if it was registered in this wait.
    pub(super) fn way(&mut self, watched: &Watched, want: c_short, known: &mut Option<u32>) -> Way {
        let Watched::Ours(ours) = watched else { return Way::Level };
        if !ours.waits_by_edges(want) {
            return Way::Level;
        }
        if known.is_none() {
            *known = self.register(ours);
            return known.map_or(Way::Looks, Way::New);
        }
        // An edge that came while the wait was level-triggered is in the set no more.
        let has_edge = |tag: &u32| self.events.get(*tag as usize).is_some_and(|events| *events != 0);
        match known {
            Some(tag) if has_edge(tag) => Way::New(*tag),
            Some(tag) => Way::Edges(*tag),
            None => Way::Looks,
        }
    }

    fn register(&mut self, ours: &Ours) -> Option<u32> {
        let (fd, cookie) = (ours.fd(), ours.held().cookie());
        if self.set.is_none() {
            self.set = EdgeSet::take(&CALLS, fd, cookie).ok();
        }
        let tag = self.events.len() as u32;
        self.set.as_mut()?.register(fd, cookie, tag).ok()?;
        self.events.push(0);
        Some(tag)
    }

    /// Returns the number to wait for in place of the sockets.
    pub(super) fn number(&self) -> Option<c_int> {
        self.set.as_ref().map(EdgeSet::number)
    }

    /// Takes the edges that there are.
    pub(super) fn collect(&mut self) {
        let Some(set) = &mut self.set else { return };
        let events = &mut self.events;
        set.collect(|tag, now| {
            if let Some(events) = events.get_mut(tag as usize) {
                *events |= now;
            }
        });
    }

    /// Returns the events of a socket since the last call: those that were collected, or, where no
    /// set can be had, those that hold.
    pub(super) fn take(&mut self, way: Way, watched: &Watched, want: c_short) -> c_short {
        match (way, watched) {
            (Way::New(tag) | Way::Edges(tag), _) => {
                self.events.get_mut(tag as usize).map_or(0, std::mem::take)
            }
            (Way::Looks, Watched::Ours(ours)) => real::events_now(ours.fd(), ours.interest(want)),
            _ => 0,
        }
    }
}

impl Way {
    /// Returns how long to sleep at most.
    pub(super) fn longest(self) -> Option<Duration> {
        match self {
            Way::Looks => Some(RECHECK),
            Way::New(_) => Some(Duration::ZERO),
            Way::Level | Way::Edges(_) => None,
        }
    }

    /// Returns whether the socket is looked at after the sleep whatever has happened. A kept
    /// registration tells nothing of what holds; and the look notes the sleeper.
    pub(super) fn must_recheck(self) -> bool {
        matches!(self, Way::New(_))
    }
}
