//! The end that receives.

use std::ops::Range;

use super::{LAST, Ready, Streams};

/// The loop of a receiving end.
#[derive(Debug)]
pub struct Receiver {
    flows: Vec<Flow>,
    /// Octets of a message.
    size: usize,
}

#[derive(Clone, Debug, Default)]
struct Flow {
    /// Number of octets of the present message that have arrived.
    position: usize,
    ended: bool,
}

impl Receiver {
    /// An end whose first `streams` carry messages of `size` octets.
    #[must_use]
    pub fn new(streams: usize, size: usize) -> Self {
        Receiver { flows: vec![Flow::default(); streams], size }
    }

    /// Receives until the last message has come on every stream. `place` says which part of `room`
    /// a call receives into, of a message of which so much is here. `message` hears of each whole
    /// message that ends a call but for the last: its stream and its last octet.
    ///
    /// # Errors
    ///
    /// Whatever stops the streams, and what `message` returns.
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
                // A stream that has ended may have more, or be closed: nobody waits for that.
                streams.idle(Ready::Receive, |at| self.flows.get(at).is_some_and(|flow| !flow.ended))?;
            }
        }
        Ok(())
    }

    /// Counts octets in; returns the mark of a message that ends with them and is not the last.
    fn received(&mut self, at: usize, octets: &[u8]) -> Option<u8> {
        let flow = &mut self.flows[at];
        flow.position = (flow.position + octets.len()) % self.size;
        let mark = *octets.last()?;
        if flow.position != 0 {
            return None;
        }
        // Nothing follows the last message of a slice, so it is the last of what was received.
        flow.ended = mark == LAST;
        (!flow.ended).then_some(mark)
    }
}
