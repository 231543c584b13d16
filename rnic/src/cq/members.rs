//! Members of a completion queue: what completes into it.

use std::collections::HashMap;
use std::fmt::Debug;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use nix::poll::PollFlags;

use super::CqInner;

/// Up to so many members a poll looks at them all and a thread asleep names them all; above, they
/// are in an epoll set.
pub(crate) const FEW: usize = 8;

/// A descriptor that a thread asleep watches. It is shared, so that it is not closed, and its number
/// taken by another, meanwhile.
pub(crate) type Watched = Arc<dyn AsFd + Send + Sync>;

/// A queue pair of any kind, as its completion queues see it: whoever polls or waits on a queue makes
/// progress for its members.
///
/// A member is also a [`Source`](crate::io::driver::Source) of the background thread, under the same
/// token. It tells its queues when its descriptor begins to be watched ([`CqInner::admit`]), when what
/// it waits for changes ([`CqInner::set_interest`]), and when that is over ([`CqInner::dismiss`]).
pub(crate) trait Member: Debug + Send + Sync {
    /// Makes progress in the calling thread, without sleeping. Returns at once where another thread is
    /// at it: that one will finish.
    fn try_progress(&self);

    /// Returns what a thread that sleeps on the queue is to watch, if there is anything.
    fn watch_for(&self) -> Option<(Watched, PollFlags)>;

    /// Puts its descriptor, if it has one now, into the epoll set of `cq`, which begins to use that.
    fn enter(&self, cq: &CqInner) -> io::Result<()>;
}

/// All members of a queue, by their tokens.
#[derive(Debug, Default)]
pub(super) struct Members {
    by_token: HashMap<u64, Arc<dyn Member>>,
    /// All of them while they are a [`FEW`].
    few: Option<Arc<[Arc<dyn Member>]>>,
}

impl Members {
    /// Takes one in. Returns whether they are still a [`FEW`].
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
