//! Load on queue pairs: the active end posts, the passive end answers.
//!
//! A slice ends with Immediate Data from the active end on every connection. Immediate Data the
//! other way says how many receives have been used up and posted again: a Send without a receive
//! would end the connection (RFC 5041 §7.1), so the active end never has more on its way than are
//! posted.
//!
//! Where a device has no Immediate Data of eight octets, both are Sends of no octets (`by_sends`),
//! and messages have at least one: such a Send ends the slice, or says that a quarter of the
//! window, or the rest at the end of a slice, is posted again.

mod active;
mod passive;

pub use self::active::{Active, Limits};
pub use self::passive::{Answers, Passive};

use rddp_rnic::{Completion, MemError, MemoryRegion, PostError, QueuePair, SendWr};

use crate::FILL;

/// Kinds of work requests, in the upper half of their ids; the lower half is the connection.
const RECEIVE: u64 = 1 << 32;
const BATCH: u64 = 2 << 32;
const SINGLE: u64 = 3 << 32;

/// One end of a number of connections, with their memory and the program's way to wait.
pub trait End {
    /// An error that stops a measurement.
    type Failure: From<PostError>;

    /// Returns the queue pair of a connection.
    fn qp(&self, at: usize) -> &QueuePair;

    /// Posts a receive whose id is [`receive_id`].
    fn post_receive(&self, at: usize) -> Result<(), Self::Failure>;

    /// Takes completions, all of them successes, and returns their number; [`polled`](Self::polled)
    /// returns them until the next call.
    fn poll(&mut self) -> Result<usize, Self::Failure>;

    /// Returns the completions of the last [`poll`](Self::poll).
    fn polled(&self) -> &[Completion];

    /// Spins or sleeps, since there is nothing to do.
    fn idle(&mut self) -> Result<(), Self::Failure>;

    /// Notes that something has happened, or that a wait begins.
    fn progressed(&mut self);

    /// Called for each turn of a passive end, which may give up.
    fn turn(&mut self) -> Result<(), Self::Failure> {
        Ok(())
    }
}

/// Returns the id of a connection's receives.
#[must_use]
pub fn receive_id(at: usize) -> u64 {
    RECEIVE | at as u64
}

/// Returns the id of a connection's requests outside of batches.
#[must_use]
pub fn single_id(at: usize) -> u64 {
    SINGLE | at as u64
}

/// Posts requests on a connection, all or none.
///
/// # Errors
///
/// As for `QueuePair::post_sends`.
pub fn post<E: End>(end: &E, at: usize, list: &[SendWr]) -> Result<(), E::Failure> {
    Ok(end.qp(at).post_sends(list).map_err(|refused| refused.error)?)
}

/// Fills all of a region with [`FILL`].
///
/// # Errors
///
/// As for `MemoryRegion::write`.
pub fn fill(region: &MemoryRegion) -> Result<(), MemError> {
    let chunk = vec![FILL; region.len().min(1 << 20)];
    for at in (0..region.len()).step_by(chunk.len()) {
        region.write(at, &chunk[..chunk.len().min(region.len() - at)])?;
    }
    Ok(())
}

/// Returns the message that ends a slice, or gives a credit of so many receives so far.
fn marker(at: usize, by_sends: bool, number: [u8; 8]) -> SendWr {
    if by_sends { SendWr::send_inline(single_id(at), &[]) } else { SendWr::immediate(single_id(at), number) }
}

/// Returns the receives that are posted again before the active end is told.
fn step_of(window: usize) -> u64 {
    (window as u64 / 4).max(1)
}

fn connection_of(wr_id: u64) -> usize {
    (wr_id & 0xffff_ffff) as usize
}

fn kind_of(wr_id: u64) -> u64 {
    wr_id >> 32 << 32
}
