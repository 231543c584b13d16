//! The end that receives.

use std::net::{TcpListener, TcpStream};

use nix::poll::PollFlags;

use super::octets::Octets;
use super::{ANSWER, LAST, MORE, Streams};
use crate::Outcome;
use crate::control::Control;
use crate::host::now_ns;
use crate::spec::{Kind, Latency, Spec};

/// Octets that one call receives at most: a message, but short ones many at a time, and long ones in pieces.
const LEAST: usize = 64 << 10;
const MOST: usize = 1 << 20;

pub(crate) struct Passive {
    streams: Streams,
    flows: Vec<Flow>,
    room: Octets,
    answer: Octets,
}

#[derive(Clone, Default)]
struct Flow {
    /// How much of the present message is here.
    position: usize,
    ended: bool,
}

impl Passive {
    pub(crate) fn accept(spec: &Spec, listener: &TcpListener) -> Outcome<Self> {
        let list: Result<Vec<TcpStream>, _> =
            (0..spec.connections).map(|_| listener.accept().map(|(stream, _)| stream)).collect();
        let room = Octets::new(spec.size.clamp(LEAST, MOST), |_| MORE);
        let answer = Octets::new(spec.size, |_| MORE);
        let flows = vec![Flow::default(); spec.active()];
        Ok(Passive { streams: Streams::new(spec, list?)?, flows, room, answer })
    }

    /// Does its part until the active end has ended the slice on every stream.
    pub(crate) fn serve(&mut self, kind: Kind, control: &mut Control) -> Outcome<Option<Latency>> {
        if matches!(kind, Kind::Watch | Kind::Silent) {
            return Err("a stream has no memory to watch".into());
        }
        if kind == Kind::Notice {
            return self.notice(control);
        }
        self.flows.iter_mut().for_each(|flow| flow.ended = false);
        while !self.flows.iter().all(|flow| flow.ended) {
            let mut progress = 0;
            for at in 0..self.flows.len() {
                if !self.flows[at].ended {
                    progress += self.receive(at, kind)?;
                }
            }
            if progress == 0 {
                self.streams.idle(PollFlags::POLLIN)?;
            }
        }
        Ok(None)
    }

    fn receive(&mut self, at: usize, kind: Kind) -> Outcome<usize> {
        let count = self.streams.receive(at, &mut self.room)?;
        let flow = &mut self.flows[at];
        flow.position = (flow.position + count) % self.answer.len();
        if count > 0 && flow.position == 0 {
            let mark = self.room[count - 1];
            flow.ended = mark == LAST;
            match kind {
                Kind::Latency if !flow.ended => self.streams.send_all(at, &self.answer, 0)?,
                Kind::Window if mark == ANSWER => self.streams.send_all(at, &[MORE], 0)?,
                _ => {}
            }
        }
        Ok(count)
    }

    fn notice(&mut self, control: &mut Control) -> Outcome<Option<Latency>> {
        let mut times = Vec::new();
        loop {
            let sent = self.receive_stamp()?;
            if sent == u64::MAX {
                return Ok(Latency::of(times));
            }
            times.push(now_ns()?.saturating_sub(sent));
            control.nod()?;
        }
    }

    fn receive_stamp(&mut self) -> Outcome<u64> {
        let (size, mut have) = (self.answer.len(), 0);
        while have < size {
            match self.streams.receive(0, &mut self.room[have..size])? {
                0 => self.streams.idle(PollFlags::POLLIN)?,
                count => have += count,
            }
        }
        let stamp = self.room[..size].last_chunk().ok_or("a message has no room for the time")?;
        Ok(u64::from_be_bytes(*stamp))
    }
}
