//! The client's half of a session.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::control::{Channel, Op, Phase, Reply, Request, Setup, VERSION};
use super::cpu;
use super::measure::Latencies;
use super::{rdma, tcp};
use crate::endpoint::Agreed;
use crate::failure::{Failure, Kind};

/// Time limit for an answer of the server.
const PATIENCE: Duration = Duration::from_secs(15);

/// Time limit for the server's reason after it gave up.
const REASON_TIMEOUT: Duration = Duration::from_millis(500);

pub(super) struct Session {
    setup: Setup,
    channel: Channel,
    engine: Engine,
    agreed: Option<Agreed>,
}

enum Engine {
    Rdma(Box<rdma::Active>),
    Tcp(tcp::Active),
}

/// Measurements of a slice of bandwidth.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slice {
    pub(super) octets: u64,
    pub(super) seconds: f64,
    /// Processor time of both ends.
    pub(super) cpu_s: f64,
}

/// Returns `addr` if a server listens there.
pub(super) fn find(addr: SocketAddr) -> Result<SocketAddr, Failure> {
    control(addr).map(|_| addr)
}

fn control(addr: SocketAddr) -> Result<Channel, Failure> {
    let stream = TcpStream::connect_timeout(&addr, Duration::from_secs(5));
    Channel::new(stream.map_err(|error| unreachable(addr, &error))?)
}

impl Session {
    /// Opens a session with the server at `addr`, data connections and all.
    pub(super) fn open(addr: SocketAddr, setup: &Setup) -> Result<Self, Failure> {
        let mut channel = control(addr)?;
        let rdma = if setup.op == Op::Tcp { None } else { Some(rdma::Active::new(setup)?) };
        let places = rdma.as_ref().map(rdma::Active::places).unwrap_or_default();
        let begin = Request::Begin { version: VERSION, setup: setup.clone(), places };
        channel.send(&begin).map_err(|failure| explained(&mut channel, failure))?;
        let Reply::Ready { session, rdma_port } = reply(&mut channel)? else { return Err(out_of_step()) };
        let connected = match rdma {
            None => tcp::Active::connect(setup, addr, session).map(|active| (Engine::Tcp(active), None)),
            Some(active) => active
                .connect(SocketAddr::new(addr.ip(), rdma_port), session)
                .map(|agreed| (Engine::Rdma(Box::new(active)), Some(agreed))),
        };
        let (mut engine, agreed) = connected.map_err(|failure| explained(&mut channel, failure))?;
        let Reply::Connected { places } = reply(&mut channel)? else { return Err(out_of_step()) };
        if let Engine::Rdma(active) = &mut engine {
            active.aim(&places)?;
        }
        Ok(Session { setup: setup.clone(), channel, engine, agreed })
    }

    pub(super) fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Returns the outcome of the MPA startup; `None` for plain TCP.
    pub(super) fn agreed(&self) -> Option<&Agreed> {
        self.agreed.as_ref()
    }

    pub(super) fn bandwidth(&mut self, time: Duration) -> Result<Slice, Failure> {
        self.go(Phase::Bandwidth, time)?;
        let (begun, cpu) = (Instant::now(), cpu::seconds());
        let messages = match &mut self.engine {
            Engine::Rdma(active) => active.bandwidth(time),
            Engine::Tcp(active) => active.bandwidth(time),
        };
        let messages = messages.map_err(|failure| explained(&mut self.channel, failure))?;
        let theirs = self.done()?;
        let seconds = begun.elapsed().as_secs_f64();
        let octets = messages * u64::from(self.setup.size);
        Ok(Slice { octets, seconds, cpu_s: cpu::seconds() - cpu + theirs })
    }

    pub(super) fn latency(&mut self, time: Duration, latencies: &mut Latencies) -> Result<(), Failure> {
        self.go(Phase::Latency, time)?;
        let measured = match &mut self.engine {
            Engine::Rdma(active) => active.latency(time, latencies),
            Engine::Tcp(active) => active.latency(time, latencies),
        };
        measured.map_err(|failure| explained(&mut self.channel, failure))?;
        self.done().map(drop)
    }

    fn go(&mut self, phase: Phase, time: Duration) -> Result<(), Failure> {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.channel.send(&Request::Run { phase, millis })?;
        match reply(&mut self.channel)? {
            Reply::Go => Ok(()),
            _ => Err(out_of_step()),
        }
    }

    /// Returns the server's processor time.
    fn done(&mut self) -> Result<f64, Failure> {
        match reply(&mut self.channel)? {
            Reply::Done { cpu_s } => Ok(cpu_s),
            _ => Err(out_of_step()),
        }
    }

    pub(super) fn close(self) {
        drop(self.channel);
        if let Engine::Rdma(active) = self.engine {
            active.close();
        }
    }
}

fn reply(channel: &mut Channel) -> Result<Reply, Failure> {
    match channel.receive(PATIENCE)? {
        Reply::Refused { reason } => Err(refused(&reason)),
        reply => Ok(reply),
    }
}

/// Returns the server's reason for giving up, if it has sent one; otherwise `failure`.
fn explained(channel: &mut Channel, failure: Failure) -> Failure {
    if failure.kind() == Kind::Interrupted {
        return failure;
    }
    match channel.receive(REASON_TIMEOUT) {
        Ok(Reply::Refused { reason }) => refused(&reason),
        _ => failure,
    }
}

fn refused(reason: &str) -> Failure {
    let reason: String = reason.chars().take(300).collect();
    Failure::refused(format!("the server: {reason}"))
}

fn out_of_step() -> Failure {
    Failure::peer("the server answers something else than was asked")
        .remedy("run the same version of rddp at both ends")
}

fn unreachable(addr: SocketAddr, error: &std::io::Error) -> Failure {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => Failure::peer(format!("nothing listens on {addr}"))
            .remedy("start rddp perf server there, or name its port"),
        _ => Failure::peer(format!("connecting to {addr}: {error}"))
            .remedy("check the address, and what is in between"),
    }
}
