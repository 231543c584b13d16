//! The sending end, which measures.

use std::io::IoSlice;
use std::time::{Duration, Instant};

use super::{LAST, MORE, Ready, Streams, receive_all, send_all};

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

    /// Sends for `time`, then the last message; returns the number of messages that the other end
    /// gets.
    ///
    /// # Errors
    ///
    /// An error that stops the streams.
    pub fn bandwidth<S: Streams>(
        &mut self,
        streams: &mut S,
        message: &mut [u8],
        time: Duration,
    ) -> Result<u64, S::Failure> {
        let until = Instant::now() + time;
        let mut octets = 0;
        while Instant::now() < until {
            let mut progress = 0;
            for at in 0..self.positions.len() {
                progress += self.send_batch(streams, at, message)?;
            }
            if progress == 0 {
                streams.idle(Ready::Send, |_| true)?;
            }
            octets += progress as u64;
        }
        octets += self.finish(streams, message)?;
        Ok(octets / message.len() as u64)
    }

    /// Sends by one call, from where the last call stopped.
    fn send_batch<S: Streams>(
        &mut self,
        streams: &mut S,
        at: usize,
        message: &[u8],
    ) -> Result<usize, S::Failure> {
        let position = self.positions[at];
        let count = match self.batch {
            1 => streams.send_from(at, message, position)?,
            batch => {
                let mut pieces = vec![IoSlice::new(message); batch];
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

    /// Sends one message at a time on the first stream for `time`, and records the time until the
    /// answer to each.
    ///
    /// # Errors
    ///
    /// An error that stops the streams.
    pub fn latency<S: Streams>(
        &mut self,
        streams: &mut S,
        message: &mut [u8],
        answer: &mut [u8],
        time: Duration,
        mut record: impl FnMut(Duration),
    ) -> Result<(), S::Failure> {
        let mut begun = Instant::now();
        let until = begun + time;
        while begun < until {
            send_all(streams, 0, message, 0)?;
            receive_all(streams, 0, answer)?;
            let now = Instant::now();
            record(now - begun);
            begun = now;
        }
        self.finish(streams, message).map(drop)
    }
}

fn mark(message: &mut [u8], mark: u8) {
    if let Some(last) = message.last_mut() {
        *last = mark;
    }
}
