//! The active end, which carries out the script's commands.

use std::io::{BufRead, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::Outcome;
use crate::control::Control;
use crate::counted::Counted;
use crate::host::{Usage, allow_connections, cpu_s};
use crate::spec::{
    Command, ControlMessage, Latency, Op, Opened, Report, Slice, SliceKind, Spec, Tally, Usages, Wait,
};
use crate::{rdma, tcp};

/// The connections that were opened for one [`Spec`], at this end.
enum Lane {
    Tcp(Box<tcp::Active>),
    Rdma(Box<rdma::Active>),
}

/// A session with one passive end.
struct Session {
    server: SocketAddr,
    control: Control,
    lanes: Vec<(Spec, Lane)>,
}

/// Carries out one command a line until there are no more.
pub(crate) fn obey(server: &str) -> Outcome<()> {
    let server: SocketAddr = server.parse()?;
    let control = Control::new(TcpStream::connect(server)?)?;
    let mut session = Session { server, control, lanes: Vec::new() };
    for line in std::io::stdin().lock().lines() {
        match serde_json::from_str(&line?)? {
            Command::Open(spec) => answer(&session.open(&spec)?)?,
            Command::Slice(slice) => answer(&session.slice(slice)?)?,
            Command::Usage {} => answer(&session.usage()?)?,
        }
    }
    Ok(())
}

fn answer(answer: &impl Serialize) -> Outcome<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, answer)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

impl Session {
    fn open(&mut self, spec: &Spec) -> Outcome<Opened> {
        spec.check()?;
        allow_connections(spec.connections)?;
        let mut addr = self.server;
        match self.control.ask(&ControlMessage::Open(spec.clone()))? {
            ControlMessage::Listening { port } => addr.set_port(port),
            other => return Err(unexpected(&other)),
        }
        let begun = Instant::now();
        let (lane, agreed) = match spec.op {
            Op::Tcp | Op::Ddp | Op::Sdp => (Lane::Tcp(Box::new(tcp::Active::connect(spec, addr)?)), None),
            _ => {
                let mut active = rdma::Active::new(spec, addr)?;
                let agreed = active.connect()?;
                (Lane::Rdma(Box::new(active)), Some(agreed))
            }
        };
        let seconds = begun.elapsed().as_secs_f64();
        let lane = self.introduce(lane)?;
        self.lanes.push((spec.clone(), lane));
        let markers = agreed.as_ref().map(|agreed| agreed.markers_tx && agreed.markers_rx);
        Ok(Opened { lane: self.lanes.len() - 1, seconds, crc: agreed.map(|agreed| agreed.crc), markers })
    }

    /// Exchanges the places of memory with the other end.
    fn introduce(&mut self, mut lane: Lane) -> Outcome<Lane> {
        match &mut lane {
            Lane::Rdma(active) => active.aim(self.control.ask(&active.memory())?)?,
            Lane::Tcp(_) => match self.control.expect()? {
                ControlMessage::Ready => {}
                other => return Err(unexpected(&other)),
            },
        }
        Ok(lane)
    }

    fn slice(&mut self, slice: Slice) -> Outcome<Report> {
        let (spec, lane) = self.lanes.get_mut(slice.lane).ok_or("there is no such lane")?;
        if let Lane::Rdma(_) = lane {
            rdma::Active::can(spec, slice.kind)?;
        }
        if slice.kind == SliceKind::Request && spec.wait != Wait::Sleep {
            return Err("requests are for ends that sleep".into());
        }
        let control = &mut self.control;
        match control.ask(&ControlMessage::Slice(slice))? {
            ControlMessage::Ready => {}
            other => return Err(unexpected(&other)),
        }
        let (mut active, before) = (Tally::default(), lane.counted()?);
        let (cpu_before, begun) = (cpu_s()?, Instant::now());
        let (messages, latency_ns) = lane.run(slice, control)?;
        let passive = match control.expect()? {
            ControlMessage::Done(tally) => tally,
            other => return Err(unexpected(&other)),
        };
        let seconds = begun.elapsed().as_secs_f64();
        (active.cpu_s, active.latency_ns) = (cpu_s()? - cpu_before, latency_ns);
        lane.counted()?.enter(&before, &mut active);
        Ok(Report { messages, octets: spec.octets(messages), seconds, active, passive })
    }

    fn usage(&mut self) -> Outcome<Usages> {
        match self.control.ask(&ControlMessage::Usage)? {
            ControlMessage::Used(passive) => Ok(Usages { active: Usage::now()?, passive }),
            other => Err(unexpected(&other)),
        }
    }
}

impl Lane {
    /// Runs one slice. Returns the number of messages (of bandwidth), and the times
    /// that they took (of latency).
    fn run(&mut self, slice: Slice, control: &mut Control) -> Outcome<(u64, Option<Latency>)> {
        let time = Duration::from_millis(slice.ms);
        Ok(match (self, slice.kind) {
            (Lane::Tcp(lane), SliceKind::Bandwidth) => (lane.bandwidth(time)?, None),
            (Lane::Tcp(lane), SliceKind::Latency) => (0, lane.latency(time)?),
            (Lane::Tcp(lane), SliceKind::Window) => lane.windows(time)?,
            (Lane::Tcp(lane), SliceKind::Notice) => (lane.notice(time, control).map(|()| 0)?, None),
            (Lane::Tcp(lane), SliceKind::Request) => (0, lane.requests(time)?),
            (Lane::Rdma(lane), SliceKind::Request) => (0, lane.requests(time)?),
            (Lane::Rdma(lane), SliceKind::Bandwidth) => (lane.bandwidth(time)?, None),
            (Lane::Rdma(lane), SliceKind::Latency) => (0, lane.latency(time)?),
            (Lane::Rdma(_), SliceKind::Window) => return Err("windows are for streams".into()),
            (Lane::Tcp(_), SliceKind::Watch | SliceKind::Silent) => {
                return Err("a stream has no memory to watch".into());
            }
            (Lane::Rdma(lane), SliceKind::Watch | SliceKind::Silent) => (0, lane.watch(time, slice.kind)?),
            (Lane::Rdma(lane), SliceKind::Notice) => (lane.notice(time, control).map(|()| 0)?, None),
        })
    }

    fn counted(&self) -> Outcome<Counted> {
        Ok(match self {
            Lane::Tcp(lane) => Counted::Stream(lane.counted()?),
            Lane::Rdma(lane) => Counted::Rdma(lane.counters()),
        })
    }
}

fn unexpected(message: &ControlMessage) -> crate::Fault {
    format!("the passive end said {message:?}").into()
}
