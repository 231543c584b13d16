//! The active end, which sends.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rddp_load::stream::{MORE, Sender, receive_all, send_all};

use super::octets::Octets;
use super::{ANSWER, Copies, Lane, joined, len_of, mode, requests};
use crate::Outcome;
use crate::control::Control;
use crate::host::now_ns;
use crate::spec::{Latency, Spec};

pub(crate) struct Active {
    addr: SocketAddr,
    streams: Lane,
    load: Sender,
    message: Octets,
    answer: Octets,
    /// The connections that other threads serve.
    others: Vec<Active>,
}

impl Active {
    pub(crate) fn connect(spec: &Spec, addr: SocketAddr) -> Outcome<Self> {
        if spec.threads {
            let one = spec.of_thread();
            let others = (1..spec.connections).map(|_| Self::connect(&one, addr)).collect::<Outcome<_>>()?;
            return Ok(Active { others, ..Self::connect(&one, addr)? });
        }
        let list = (0..spec.connections).map(|_| mode::connect(spec, addr)).collect::<Outcome<Vec<_>>>()?;
        // Neighbouring pieces of a message have different octets.
        let mut message = Octets::new(spec.header, len_of(spec), |at| (at ^ at >> 8) as u8);
        let answer = Octets::new(spec.header, len_of(spec), |_| 0);
        *message.last_mut().ok_or("a message has no octets")? = MORE;
        let load = Sender::new(spec.active(), spec.batch);
        Ok(Active { addr, streams: Lane::new(spec, list)?, load, message, answer, others: Vec::new() })
    }

    /// Returns what all connections have counted.
    pub(crate) fn counted(&self) -> Outcome<Copies> {
        let all = self.others.iter().chain([self]).flat_map(|end| &end.streams.list);
        Copies::of(&self.streams.spec, all)
    }

    /// Sends for `time`; returns the number of messages, of which a batch has several sizes.
    pub(crate) fn bandwidth(&mut self, time: Duration) -> Outcome<u64> {
        let Active { streams, load, message, others, .. } = self;
        std::thread::scope(|scope| {
            let others: Vec<_> =
                others.iter_mut().map(|other| scope.spawn(|| other.bandwidth(time))).collect();
            let own = load.bandwidth(streams, message, time);
            let own = own? * streams.spec.sizes().len() as u64;
            others.into_iter().try_fold(own, |sum, other| Ok(sum + joined(other.join())?))
        })
    }

    /// Measures one message at a time there and back.
    pub(crate) fn latency(&mut self, time: Duration) -> Outcome<Option<Latency>> {
        let mut times = Vec::new();
        self.load.latency(&mut self.streams, &mut self.message, &mut self.answer, time, |time| {
            times.push(time.as_nanos() as u64 / 2);
        })?;
        Ok(Latency::of(times))
    }

    /// Sends windows, each of which is answered; returns the number of messages, and the times of
    /// windows.
    pub(crate) fn windows(&mut self, time: Duration) -> Outcome<(u64, Option<Latency>)> {
        let depth = self.streams.spec.depth.max(1);
        let mut times = Vec::new();
        let mut begun = Instant::now();
        let end = begun + time;
        while begun < end {
            for left in (0..depth).rev() {
                self.mark(if left == 0 { ANSWER } else { MORE });
                send_all(&mut self.streams, 0, &self.message, 0)?;
            }
            receive_all(&mut self.streams, 0, &mut self.answer[..1])?;
            let now = Instant::now();
            times.push((now - begun).as_nanos() as u64);
            begun = now;
        }
        self.load.finish(&mut self.streams, &mut self.message)?;
        Ok(((times.len() * depth) as u64 + 1, Latency::of(times)))
    }

    /// Measures one message there and back on a connection of its own, from its opening to its end.
    pub(crate) fn requests(&mut self, time: Duration) -> Outcome<Option<Latency>> {
        requests::ask(&self.streams.spec, self.addr, (&mut self.message, &mut self.answer), time)
    }

    fn mark(&mut self, mark: u8) {
        if let Some(last) = self.message.last_mut() {
            *last = mark;
        }
    }

    /// Sends one message at a time that carries the time of sending; the passive end measures, and
    /// answers.
    pub(crate) fn notice(&mut self, time: Duration, control: &mut Control) -> Outcome<()> {
        let end = Instant::now() + time;
        let mut message = vec![MORE; self.message.len()];
        let stamp = message.len().checked_sub(8).ok_or("a message has no room for the time")?;
        while Instant::now() < end {
            message[stamp..].copy_from_slice(&now_ns()?.to_be_bytes());
            send_all(&mut self.streams, 0, &message, 0)?;
            control.await_nod()?;
        }
        message[stamp..].copy_from_slice(&u64::MAX.to_be_bytes());
        send_all(&mut self.streams, 0, &message, 0)
    }
}
