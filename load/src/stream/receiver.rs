//! The receiving end.

use std::ops::Range;

use super::{LAST, Ready, Streams};

/// The loop of a receiving end.
#[derive(Debug)]
pub struct Receiver {
    flows: Vec<Flow>,
    /// Number of octets of a message.
    size: usize,
}

#[derive(Clone, Debug, Default)]
struct Flow {
    /// Number of octets of the present message that have arrived.
    position: usize,
    ended: bool,
}

impl Receiver {
    /// Makes an end whose first `streams` carry messages of `size` octets.
    #[must_use]
    pub fn new(streams: usize, size: usize) -> Self {
        Receiver { flows: vec![Flow::default(); streams], size }
    }

    /// Receives until the last message has arrived on every stream. `place` returns the part of
    /// `room` to receive into, given the number of octets of the message that are here already.
    /// `message` is called for each complete message that ends a call, except for the last of the
    /// slice, with its stream and its last octet.
    ///
    /// # Errors
    ///
    /// An error that stops the streams, or that `message` returns.
    pub fn serve<S: Streams>(
        &mut self,
        streams: &mut S,
        room: &mut [u8],
        place: impl Fn(usize) -> Range<usize>,
        mut message: impl FnMut(&mut S, usize, u8) -> Result<(), S::Failure>,
    ) -> Result<(), S::Failure> {
        self.flows.iter_mut().for_each(|flow| flow.ended = false);
        while !self.flows.iter().all(|flow| flow.ended) {
            streams.turn()?;
            let mut progress = 0;
            for at in 0..self.flows.len() {
                if self.flows[at].ended {
                    continue;
                }
                let room = &mut room[place(self.flows[at].position)];
                let count = streams.receive(at, room)?;
                progress += count;
                if let Some(mark) = self.received(at, &room[..count]) {
                    message(streams, at, mark)?;
                }
            }
            if progress == 0 {
                // A stream that has ended may have more octets, or be closed: it is not waited for.
                streams.idle(Ready::Receive, |at| self.flows.get(at).is_some_and(|flow| !flow.ended))?;
            }
        }
        Ok(())
    }

    /// Counts octets that were received; returns the last octet of a message that ends with them
    /// and is not the last of the slice.
    fn received(&mut self, at: usize, octets: &[u8]) -> Option<u8> {
        let flow = &mut self.flows[at];
        flow.position = (flow.position + octets.len()) % self.size;
        let mark = *octets.last()?;
        if flow.position != 0 {
            return None;
        }
        // Nothing follows the last message of a slice, so its mark is the last octet received.
        flow.ended = mark == LAST;
        (!flow.ended).then_some(mark)
    }
}
