//! One client of a server of disks, of whatever protocol, as the thread that serves all sees it.

use std::error::Error;
use std::time::{Duration, Instant};

use rddp_block::nvme::target::Target;
use rddp_rnic::{Completion, QpNum};

use super::buffers::Buffers;
use super::disk::{Disk, Done};
use super::troubles::Troubles;

/// Octets of payload of a client that are under way: behind that nothing of it is read.
pub(super) const MOST_OCTETS: usize = 64 << 20;

/// Time for a handshake, and for a client that goes to take its last replies.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The end of a client that did something wrong, or to which nothing can be sent.
pub(super) type Wrong = Box<dyn Error>;

/// The means by which all clients are served.
pub(super) struct Means {
    pub(super) disks: Vec<Disk>,
    pub(super) buffers: Buffers,
    /// The controllers of NVMe's hosts.
    pub(super) target: Target,
    pub(super) troubles: Troubles,
    pub(super) began: Instant,
}

impl Means {
    /// Returns the time by which the target counts.
    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Ends a client, and takes back what disks have not begun of it: one that hangs keeps no more
    /// memory, and does no write once its client may have connected anew.
    pub(super) fn end(&mut self, num: QpNum, client: Box<dyn Session>) {
        client.end(self);
        self.buffers.leave(num.0);
        for disk in &mut self.disks {
            disk.withdraw(num.0).for_each(|buffer| self.buffers.give_back(buffer));
        }
    }
}

/// A client. After an error it has to be ended, and nothing else.
pub(super) trait Session: Send {
    /// The client's address, for messages.
    fn peer(&self) -> &str;

    /// Completions that the client can have in the queue at a time.
    fn completions(&self) -> usize;

    /// Acts on a completion of the client's queue pair.
    fn take(&mut self, completion: &Completion, means: &mut Means) -> Result<(), Wrong>;

    /// Acts on what a disk has done for the client.
    fn done(&mut self, done: Done, means: &mut Means) -> Result<(), Wrong>;

    /// Returns whether the client waits for room.
    fn waits(&self) -> bool;

    /// Goes on where there was no room, if there is some now.
    fn resume(&mut self, means: &mut Means) -> Result<(), Wrong>;

    /// Sends all replies that there are.
    fn flush(&mut self, means: &mut Means) -> Result<(), Wrong>;

    /// Returns for how long the client has taken none of the replies, and given none of the octets,
    /// that keep memory from others.
    fn is_stalled_for(&self, now: Instant) -> Option<Duration>;

    /// Returns whether all is over.
    fn is_over(&self, now: Instant, means: &Means) -> Result<bool, Wrong>;

    /// Gives back the memory of a client that has gone. Its connection goes first.
    fn end(self: Box<Self>, means: &mut Means);
}
