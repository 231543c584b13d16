//! Members of a completion queue: the QPs, of whatever kind, that complete into it.

use std::collections::HashMap;
use std::fmt::Debug;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use nix::poll::PollFlags;

use super::CqInner;

/// The number of members up to which a poll tries them all, and a thread that goes to sleep names
/// all their sockets. More members are in an epoll set.
pub(crate) const FEW: usize = 8;

/// A descriptor that a sleeping thread watches. The thread shares it, so that it is not closed, and
/// its number not used for another, meanwhile.
pub(crate) type Watched = Arc<dyn AsFd + Send + Sync>;

/// A queue pair of any kind, as its completion queues see it: a thread that polls a queue, or
/// sleeps on it, makes progress for the queue's members.
///
/// A member is also a [`Source`](crate::io::driver::Source) of the background thread, under the
/// same token. It tells its queues when its descriptor is to be watched ([`CqInner::admit`]), when
/// it waits for other events ([`CqInner::set_interest`]), and when its descriptor is no longer to
/// be watched ([`CqInner::dismiss`]).
pub(crate) trait Member: Debug + Send + Sync {
    /// Makes progress in the calling thread, without sleeping. Returns at once where another thread
    /// does so already: that thread also does what there is left to do.
    fn try_progress(&self);

    /// Returns the descriptor that a thread which sleeps on the queue is to watch, and the events
    /// to watch it for.
    fn watch_for(&self) -> Option<(Watched, PollFlags)>;

    /// Returns whether the member has nothing to do before its descriptor has one of those events.
    fn is_idle(&self) -> bool;

    /// Puts the member's descriptor, if it has one now, into the epoll set that `cq` begins to use.
    fn enter(&self, cq: &CqInner) -> io::Result<()>;
}

/// All members of a queue, by their tokens.
#[derive(Debug, Default)]
pub(super) struct Members {
    by_token: HashMap<u64, Arc<dyn Member>>,
    /// The members as a list, while they are no more than [`FEW`].
    few: Option<Arc<[Arc<dyn Member>]>>,
}

impl Members {
    /// Adds a member. Returns whether there are no more than [`FEW`] now.
    pub(super) fn insert(&mut self, token: u64, member: Arc<dyn Member>) -> bool {
        self.by_token.insert(token, member);
        self.changed();
        self.few.is_some()
    }

    pub(super) fn remove(&mut self, token: u64) {
        self.by_token.remove(&token);
        if self.by_token.len() <= FEW {
            self.changed();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_token.len()
    }

    pub(super) fn few(&self) -> Option<Arc<[Arc<dyn Member>]>> {
        self.few.clone()
    }

    pub(super) fn all(&self) -> Vec<Arc<dyn Member>> {
        self.by_token.values().cloned().collect()
    }

    pub(super) fn tokens(&self) -> impl Iterator<Item = u64> {
        self.by_token.keys().copied()
    }

    pub(super) fn by_token(&self, token: u64) -> Option<Arc<dyn Member>> {
        self.by_token.get(&token).cloned()
    }

    fn changed(&mut self) {
        self.few = (self.by_token.len() <= FEW).then(|| self.all().into());
    }
}
