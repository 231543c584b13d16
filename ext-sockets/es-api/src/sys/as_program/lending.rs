//! Sends whose memory a socket lends to its peer, which reads from there.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::io::IoSlice;
use std::time::Duration;

use libc::iovec;
use rddp_real::{Errno, Recall, Sends, source_pieces};

use super::calls;
use super::memory::Pieces;

/// Sends that are under way, in their order. The methods are called on the thread that lends.
pub(crate) trait Outgoing {
    /// Returns the memory of the next send. Its [`Pieces`] stay until [`accepted`](Self::accepted)
    /// tells of their last octet, or [`lend`] has returned.
    fn next(&mut self) -> Option<Loan>;

    /// Learns how many octets of all that were lent the socket has accepted.
    fn accepted(&mut self, octets: usize);

    /// Returns whether the memory is wanted back.
    fn recall(&mut self) -> Recall;

    /// Returns a descriptor that is readable when there may be another send, or a recall.
    fn descriptor(&self) -> c_int;

    /// Returns the time after which the memory is wanted back.
    fn left(&self) -> Option<Duration>;
}

/// The memory of a send, for [`lend`].
#[derive(Debug)]
pub(crate) struct Loan {
    list: Vec<iovec>,
    octets: usize,
}

impl Pieces {
    /// Returns the rest of the pieces, to be lent; `None` if some of that is nowhere.
    pub(crate) fn to_lend(&self) -> Option<Loan> {
        let list: Vec<_> = self.rest().iter().filter(|piece| piece.iov_len > 0).copied().collect();
        let is_somewhere = list.iter().all(|piece| !piece.iov_base.is_null());
        is_somewhere.then_some(Loan { list, octets: self.left() })
    }
}

/// Returns whether a send of so many octets may lend its memory.
pub(crate) fn lends(fd: c_int, octets: usize) -> bool {
    (calls().lends)(fd, octets)
}

/// Lends the memory of sends until there are no more. Returns whether the first octets that are not
/// accepted are to be sent by a call.
///
/// # Errors
/// Those octets cannot be sent.
pub(crate) fn lend(fd: c_int, outgoing: &mut dyn Outgoing) -> Result<bool, Errno> {
    (calls().lend)(fd, &mut Lending { outgoing, out: VecDeque::new(), lent: 0 })
}

/// Says that receives of so many octets wait.
pub(crate) fn offer(fd: c_int, room: usize) {
    (calls().offer)(fd, room);
}

struct Lending<'o> {
    outgoing: &'o mut dyn Outgoing,
    /// The list of each send that is not accepted, and the octets lent up to its end.
    out: VecDeque<(usize, Vec<iovec>)>,
    lent: usize,
}

impl<'m> Sends<'m> for Lending<'_> {
    fn next(&mut self) -> Option<&'m [IoSlice<'m>]> {
        let loan = self.outgoing.next()?;
        self.lent += loan.octets;
        let (at, count) = (loan.list.as_ptr(), loan.list.len());
        self.out.push_back((self.lent, loan.list));
        // SAFETY: the list stays in `out`, and the memory with its `Pieces`, until all octets of it
        // are accepted or the call of `lend` is over. From then on the caller, for which `'m` may
        // be any time, uses neither: so `Sends` says.
        Some(unsafe { source_pieces(at, count) })
    }

    fn accepted(&mut self, octets: usize) {
        while self.out.front().is_some_and(|(end, _)| *end <= octets) {
            self.out.pop_front();
        }
        self.outgoing.accepted(octets);
    }

    fn recall(&mut self) -> Recall {
        self.outgoing.recall()
    }

    fn descriptor(&self) -> c_int {
        self.outgoing.descriptor()
    }

    fn left(&self) -> Option<Duration> {
        self.outgoing.left()
    }
}
