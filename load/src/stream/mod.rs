//! Load on byte streams.
//!
//! A message is plain octets. Its last octet tells whether it is the last message of the slice;
//! nothing follows that one until the slice is over.

mod receiver;
mod sender;

pub use self::receiver::Receiver;
pub use self::sender::Sender;

use std::io::IoSlice;

/// Last octet of a message that is followed by more in this slice. Buffers are filled with it, too.
pub const MORE: u8 = crate::FILL;

/// Last octet of the last message of a slice.
pub const LAST: u8 = 0xa5;

/// A condition that a stream is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// Octets to receive.
    Receive,
    /// Room for octets to send.
    Send,
}

/// One end of a number of streams, and the program's way to wait.
pub trait Streams {
    /// An error that stops a measurement.
    type Failure;

    /// Sends by one call; returns the number of octets, 0 if the call would block.
    fn send(&mut self, at: usize, pieces: &[IoSlice<'_>]) -> Result<usize, Self::Failure>;

    /// Receives by one call; returns the number of octets, 0 if the call would block.
    fn receive(&mut self, at: usize, octets: &mut [u8]) -> Result<usize, Self::Failure>;

    /// Spins, or sleeps until one of the streams that `waits` names is ready, or for a while.
    fn idle(&mut self, ready: Ready, waits: impl Fn(usize) -> bool) -> Result<(), Self::Failure>;

    /// Sends a message from `position` on, by one call.
    fn send_from(&mut self, at: usize, message: &[u8], position: usize) -> Result<usize, Self::Failure> {
        self.send(at, &[IoSlice::new(&message[position..])])
    }

    /// Called for each turn of a receiver, which may give up.
    fn turn(&mut self) -> Result<(), Self::Failure> {
        Ok(())
    }
}

/// Sends all of a message from `position` on.
///
/// # Errors
///
/// An error that stops the streams.
pub fn send_all<S: Streams>(
    streams: &mut S,
    at: usize,
    message: &[u8],
    mut position: usize,
) -> Result<(), S::Failure> {
    while position < message.len() {
        match streams.send_from(at, message, position)? {
            0 => streams.idle(Ready::Send, |other| other == at)?,
            count => position += count,
        }
    }
    Ok(())
}

/// Receives until `octets` is full.
///
/// # Errors
///
/// An error that stops the streams.
pub fn receive_all<S: Streams>(streams: &mut S, at: usize, octets: &mut [u8]) -> Result<(), S::Failure> {
    let mut have = 0;
    while have < octets.len() {
        match streams.receive(at, &mut octets[have..])? {
            0 => streams.idle(Ready::Receive, |other| other == at)?,
            count => have += count,
        }
    }
    Ok(())
}
