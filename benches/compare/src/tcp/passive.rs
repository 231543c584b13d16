//! The passive end, which receives.

use std::net::{TcpListener, TcpStream};

use rddp_load::stream::{MORE, Receiver, receive_all, send_all};

use super::octets::Octets;
use super::{ANSWER, Copies, Lane, joined, len_of, requests};
use crate::Outcome;
use crate::control::Control;
use crate::host::now_ns;
use crate::spec::{Latency, SliceKind, Spec};

/// Bounds on the octets that one call receives. Between them it is a message; short messages come
/// many at a time, and long ones in pieces.
const LEAST: usize = 64 << 10;
const MOST: usize = 1 << 20;

pub(crate) struct Passive {
    listener: TcpListener,
    streams: Lane,
    load: Receiver,
    room: Octets,
    answer: Octets,
    /// The connections that other threads serve.
    others: Vec<Passive>,
}

impl Passive {
    pub(crate) fn accept(spec: &Spec, listener: TcpListener) -> Outcome<Self> {
        if spec.threads {
            let one = spec.of_thread();
            let another = || Self::accept(&one, listener.try_clone()?);
            let others = (1..spec.connections).map(|_| another()).collect::<Outcome<_>>()?;
            return Ok(Passive { others, ..Self::accept(&one, listener)? });
        }
        let list: Result<Vec<TcpStream>, _> =
            (0..spec.connections).map(|_| listener.accept().map(|(stream, _)| stream)).collect();
        let room = Octets::new(0, len_of(spec).clamp(LEAST, MOST), |_| MORE);
        let answer = Octets::new(spec.header, len_of(spec), |_| MORE);
        let load = Receiver::new(spec.active(), len_of(spec));
        Ok(Passive { listener, streams: Lane::new(spec, list?)?, load, room, answer, others: Vec::new() })
    }

    /// Returns what all connections have counted.
    pub(crate) fn counted(&self) -> Outcome<Copies> {
        let all = self.others.iter().chain([self]).flat_map(|end| &end.streams.list);
        Copies::of(&self.streams.spec, all)
    }

    /// Does its part until the active end has ended the slice on every stream.
    pub(crate) fn serve(&mut self, kind: SliceKind, control: &mut Control) -> Outcome<Option<Latency>> {
        if matches!(kind, SliceKind::Watch | SliceKind::Silent) {
            return Err("a stream has no memory to watch".into());
        }
        match kind {
            SliceKind::Notice => return self.notice(control),
            SliceKind::Request => return self.requests().map(|()| None),
            _ => {}
        }
        if !self.others.is_empty() && kind != SliceKind::Bandwidth {
            return Err("threads are for bandwidth".into());
        }
        self.receive(kind)?;
        Ok(None)
    }

    /// Receives on its own connections, while other threads do on theirs.
    fn receive(&mut self, kind: SliceKind) -> Outcome<()> {
        let Passive { streams, load, room, answer, others, .. } = self;
        let all = 0..room.len();
        std::thread::scope(|scope| {
            let others: Vec<_> = others.iter_mut().map(|other| scope.spawn(|| other.receive(kind))).collect();
            load.serve(
                streams,
                room,
                |_| all.clone(),
                |streams, at, mark| match kind {
                    SliceKind::Latency => send_all(streams, at, answer, 0),
                    SliceKind::Window if mark == ANSWER => send_all(streams, at, &[MORE], 0),
                    _ => Ok(()),
                },
            )?;
            others.into_iter().try_for_each(|other| joined(other.join()))
        })
    }

    fn requests(&mut self) -> Outcome<()> {
        requests::answer(&self.streams.spec, &self.listener, &mut self.room, &self.answer)
    }

    /// Measures from the time that each message carries until it is here; the active end has
    /// [`notice`](super::Active::notice), too.
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

    /// Receives a message, and returns the time that it carries; `u64::MAX` is the end.
    fn receive_stamp(&mut self) -> Outcome<u64> {
        let size = self.answer.len();
        let message = self.room.get_mut(..size).ok_or("a message is too long to be noticed at once")?;
        receive_all(&mut self.streams, 0, message)?;
        let stamp = message.last_chunk().ok_or("a message has no room for the time")?;
        Ok(u64::from_be_bytes(*stamp))
    }
}
