//! The sending end, which measures.

use std::io::IoSlice;
use std::time::{Duration, Instant};

use super::{LAST, MORE, Ready, Streams, receive_all, send_all};
use crate::Extent;

/// The loops of a sending end. All streams send the same message again and again.
#[derive(Debug)]
pub struct Sender {
    /// Number of octets of the present message that each stream has taken.
    positions: Vec<usize>,
    /// Number of messages that one call sends.
    batch: usize,
}

impl Sender {
    /// Makes an end whose first `streams` carry messages.
    #[must_use]
    pub fn new(streams: usize, batch: usize) -> Self {
        Sender { positions: vec![0; streams], batch }
    }

    /// Sends within the limits, then the last message; returns the number of messages that the
    /// other end gets.
    ///
    /// # Errors
    ///
    /// An error that stops the streams.
    pub fn bandwidth<S: Streams>(
        &mut self,
        streams: &mut S,
        message: &mut [u8],
        extent: impl Into<Extent>,
    ) -> Result<u64, S::Failure> {
        let extent = extent.into();
        let until = Instant::now() + extent.time;
        // Each stream's last message comes on top.
        let most = extent.messages.saturating_sub(self.positions.len() as u64);
        let (mut octets, mut begun) = (0, 0);
        while begun < most && Instant::now() < until {
            let mut progress = 0;
            for at in 0..self.positions.len() {
                let before = self.positions[at];
                let count = self.send_batch(streams, at, message, most - begun)?;
                begun += messages_begun(before, count, message.len());
                progress += count;
            }
            if progress == 0 {
                streams.idle(Ready::Send, |_| true)?;
            }
            octets += progress as u64;
        }
        octets += self.finish(streams, message)?;
        Ok(octets / message.len() as u64)
    }

    /// Sends by one call, from where the last call stopped, and begins at most `most` messages.
    fn send_batch<S: Streams>(
        &mut self,
        streams: &mut S,
        at: usize,
        message: &[u8],
        most: u64,
    ) -> Result<usize, S::Failure> {
        let position = self.positions[at];
        let pieces = most.saturating_add(u64::from(position > 0)).min(self.batch as u64) as usize;
        let count = match pieces {
            0 => return Ok(0),
            1 => streams.send_from(at, message, position)?,
            pieces => {
                let mut pieces = vec![IoSlice::new(message); pieces];
                pieces[0] = IoSlice::new(&message[position..]);
                streams.send(at, &pieces)?
            }
        };
        self.positions[at] = (position + count) % message.len();
        Ok(count)
    }

    /// Sends the rest of each message that was begun, and the last one; returns the number of
    /// octets.
    ///
    /// # Errors
    ///
    /// An error that stops the streams.
    pub fn finish<S: Streams>(&mut self, streams: &mut S, message: &mut [u8]) -> Result<u64, S::Failure> {
        let mut octets = 0;
        for at in 0..self.positions.len() {
            let position = std::mem::take(&mut self.positions[at]);
            if position > 0 {
                send_all(streams, at, message, position)?;
                octets += message.len() - position;
            }
        }
        mark(message, LAST);
        for at in 0..self.positions.len() {
            send_all(streams, at, message, 0)?;
            octets += message.len();
        }
        mark(message, MORE);
        Ok(octets as u64)
    }

    /// Sends one message at a time on the first stream within the limits, and records the time
    /// until the answer to each.
    ///
    /// # Errors
    ///
    /// An error that stops the streams.
    pub fn latency<S: Streams>(
        &mut self,
        streams: &mut S,
        message: &mut [u8],
        answer: &mut [u8],
        extent: impl Into<Extent>,
        mut record: impl FnMut(Duration),
    ) -> Result<(), S::Failure> {
        let extent = extent.into();
        let (mut begun, mut rounds) = (Instant::now(), 0);
        let until = begun + extent.time;
        while rounds < extent.messages && begun < until {
            rounds += 1;
            send_all(streams, 0, message, 0)?;
            receive_all(streams, 0, answer)?;
            let now = Instant::now();
            record(now - begun);
            begun = now;
        }
        self.finish(streams, message).map(drop)
    }
}

/// Returns how many messages a call began that moved `count` octets from `position` on.
fn messages_begun(position: usize, count: usize, len: usize) -> u64 {
    ((position + count).div_ceil(len) - usize::from(position > 0)) as u64
}

fn mark(message: &mut [u8], mark: u8) {
    if let Some(last) = message.last_mut() {
        *last = mark;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_begun_by_its_first_octet() {
        for ((position, count), begun) in
            [((0, 0), 0), ((0, 1), 1), ((0, 10), 1), ((0, 11), 2), ((3, 0), 0), ((3, 7), 0), ((3, 8), 1)]
        {
            assert_eq!(messages_begun(position, count, 10), begun, "{count} octets from {position} on");
        }
    }
}
