//! The end that sends.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use nix::poll::PollFlags;

use super::octets::Octets;
use super::{ANSWER, LAST, MORE, Streams, mode};
use crate::Outcome;
use crate::control::Control;
use crate::host::now_ns;
use crate::spec::{Latency, Spec};

pub(crate) struct Active {
    streams: Streams,
    message: Octets,
    answer: Octets,
    /// How much of the present message each stream has taken.
    positions: Vec<usize>,
}

impl Active {
    pub(crate) fn connect(spec: &Spec, addr: SocketAddr) -> Outcome<Self> {
        let list = (0..spec.connections).map(|_| mode::connect(spec, addr)).collect::<Outcome<Vec<_>>>()?;
        // Octets that tell pieces of a message apart.
        let mut message = Octets::new(spec.size, |at| (at ^ at >> 8) as u8);
        let answer = Octets::new(spec.size, |_| 0);
        *message.last_mut().ok_or("a message has no octets")? = MORE;
        Ok(Active { streams: Streams::new(spec, list)?, message, answer, positions: vec![0; spec.active()] })
    }

    /// Sends for that long; how many messages.
    pub(crate) fn bandwidth(&mut self, time: Duration) -> Outcome<u64> {
        let end = Instant::now() + time;
        let mut octets = 0;
        while Instant::now() < end {
            let mut progress = 0;
            for at in 0..self.positions.len() {
                progress += self.send_batch(at)?;
            }
            if progress == 0 {
                self.streams.idle(PollFlags::POLLOUT)?;
            }
            octets += progress as u64;
        }
        octets += self.finish()?;
        Ok(octets / self.message.len() as u64)
    }

    /// One call, which begins where the last one stopped.
    fn send_batch(&mut self, at: usize) -> Outcome<usize> {
        let position = self.positions[at];
        let count = match self.streams.spec.batch {
            1 => self.streams.send_from(at, &self.message, position)?,
            batch => {
                let mut pieces = vec![IoSlice::new(&self.message[..]); batch];
                pieces[0] = IoSlice::new(&self.message[position..]);
                self.streams.send(at, &pieces)?
            }
        };
        self.positions[at] = (position + count) % self.message.len();
        Ok(count)
    }

    /// The rest of what was begun, and the last message, on every stream; how many octets.
    fn finish(&mut self) -> Outcome<u64> {
        let mut octets = 0;
        for at in 0..self.positions.len() {
            let position = std::mem::take(&mut self.positions[at]);
            if position > 0 {
                self.streams.send_all(at, &self.message, position)?;
                octets += self.message.len() - position;
            }
        }
        self.mark(LAST);
        for at in 0..self.positions.len() {
            self.streams.send_all(at, &self.message, 0)?;
            octets += self.message.len();
        }
        self.mark(MORE);
        Ok(octets as u64)
    }

    fn mark(&mut self, mark: u8) {
        if let Some(last) = self.message.last_mut() {
            *last = mark;
        }
    }

    /// One message at a time there and back.
    pub(crate) fn latency(&mut self, time: Duration) -> Outcome<Option<Latency>> {
        let mut times = Vec::new();
        let mut begun = Instant::now();
        let end = begun + time;
        while begun < end {
            self.streams.send_all(0, &self.message, 0)?;
            self.receive_answer(self.answer.len())?;
            let now = Instant::now();
            times.push((now - begun).as_nanos() as u64 / 2);
            begun = now;
        }
        self.finish()?;
        Ok(Latency::of(times))
    }

    /// Windows, each answered; how many messages, and how long a window took.
    pub(crate) fn windows(&mut self, time: Duration) -> Outcome<(u64, Option<Latency>)> {
        let depth = self.streams.spec.depth.max(1);
        let mut times = Vec::new();
        let mut begun = Instant::now();
        let end = begun + time;
        while begun < end {
            for left in (0..depth).rev() {
                self.mark(if left == 0 { ANSWER } else { MORE });
                self.streams.send_all(0, &self.message, 0)?;
            }
            self.receive_answer(1)?;
            let now = Instant::now();
            times.push((now - begun).as_nanos() as u64);
            begun = now;
        }
        self.finish()?;
        Ok(((times.len() * depth) as u64 + 1, Latency::of(times)))
    }

    fn receive_answer(&mut self, count: usize) -> Outcome<()> {
        let mut have = 0;
        while have < count {
            match self.streams.receive(0, &mut self.answer[have..count])? {
                0 => self.streams.idle(PollFlags::POLLIN)?,
                count => have += count,
            }
        }
        Ok(())
    }

    /// One message at a time that says when it was sent; the passive end measures, and answers.
    pub(crate) fn notice(&mut self, time: Duration, control: &mut Control) -> Outcome<()> {
        let end = Instant::now() + time;
        let mut message = vec![MORE; self.message.len()];
        let stamp = message.len().checked_sub(8).ok_or("a message has no room for the time")?;
        while Instant::now() < end {
            message[stamp..].copy_from_slice(&now_ns()?.to_be_bytes());
            self.streams.send_all(0, &message, 0)?;
            control.await_nod()?;
        }
        message[stamp..].copy_from_slice(&u64::MAX.to_be_bytes());
        self.streams.send_all(0, &message, 0)
    }
}
