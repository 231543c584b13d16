//! The client's half of a session.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rddp_command::device::Choice;
use rddp_command::endpoint::Agreed;
use rddp_command::failure::{Failure, FailureKind};
use rddp_load::Extent;

use super::control::{Channel, Phase, Placed, Reply, Request, Sent, Setup, VERSION};
use super::cpu;
use super::engine::{Engine, Rdma, Slice};
use super::measure::Latencies;
use super::spin::Wish;
use super::{rdma, tcp};

/// Time limit for an answer of the server.
const PATIENCE: Duration = Duration::from_secs(15);

/// Time limit for the server's reason after it gave up.
const REASON_TIMEOUT: Duration = Duration::from_millis(500);

pub(super) struct Session {
    setup: Setup,
    channel: Channel,
    engine: Engine,
    agreed: Option<Agreed>,
    /// Octets that the kernel had placed at the server at the end of the last slice.
    placed: Placed,
    /// Seconds of all slices so far, and those for which the thread that measures waited for a
    /// processor, at the end where it was more; `None` if an end's kernel does not count them.
    seconds: f64,
    waited_s: Option<f64>,
}

/// Measurements of a slice of bandwidth.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measured {
    pub(super) messages: u64,
    /// Datagrams that have not arrived.
    pub(super) lost: u64,
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
    pub(super) fn open(addr: SocketAddr, setup: &Setup, device: &Choice) -> Result<Self, Failure> {
        let mut channel = control(addr)?;
        let mut setup = Setup { local: channel.local(), ..setup.clone() };
        let rdma = match setup.op.is_iwarp() {
            true => {
                let rnic = rdma::open(&setup, device)?;
                setup.sends = rdma::needs_sends(&rnic);
                Some(Rdma::new(&setup, &rnic, Wish::Own)?)
            }
            false => None,
        };
        let buffers = rdma.as_ref().map(Rdma::buffers).unwrap_or_default();
        let begin = Request::Begin { version: VERSION, setup: setup.clone(), buffers };
        channel.send(&begin).map_err(|failure| explained(&mut channel, failure))?;
        let first = reply(&mut channel).map_err(|failure| nobody_of_ours(addr, failure))?;
        let Reply::Ready { session, rdma_port, sends } = first else { return Err(out_of_step()) };
        let connected = match rdma {
            None => tcp::connect(&setup, addr, session)
                .and_then(|list| Engine::over(&setup, list, Wish::Own))
                .map(|engine| (engine, None)),
            Some(mut rdma) => {
                if sends {
                    rdma.use_sends();
                }
                rdma.connect(SocketAddr::new(addr.ip(), rdma_port), session)
                    .map(|agreed| (Engine::Rdma(rdma), Some(agreed)))
            }
        };
        let (mut engine, agreed) = connected.map_err(|failure| explained(&mut channel, failure))?;
        let Reply::Connected { buffers } = reply(&mut channel)? else { return Err(out_of_step()) };
        if let Engine::Rdma(rdma) = &mut engine {
            rdma.aim(&buffers)?;
        }
        Ok(Session {
            setup,
            channel,
            engine,
            agreed,
            placed: Placed::default(),
            seconds: 0.0,
            waited_s: Some(0.0),
        })
    }

    pub(super) fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Returns the outcome of the MPA startup; `None` for plain TCP.
    pub(super) fn agreed(&self) -> Option<&Agreed> {
        self.agreed.as_ref()
    }

    pub(super) fn bandwidth(&mut self, extent: Extent) -> Result<Measured, Failure> {
        let begun = Instant::now();
        let (Sent { messages, lost }, cpu_s) = self.run(Phase::Bandwidth, extent, None)?;
        let octets = messages * u64::from(self.setup.size);
        Ok(Measured { messages, lost, octets, seconds: begun.elapsed().as_secs_f64(), cpu_s })
    }

    /// Returns the datagrams that were lost.
    pub(super) fn latency(&mut self, extent: Extent, latencies: &mut Latencies) -> Result<u64, Failure> {
        self.run(Phase::Latency, extent, Some(latencies)).map(|(sent, _)| sent.lost)
    }

    /// Runs a slice at both ends; returns the messages, and the processor time of both.
    fn run(
        &mut self,
        phase: Phase,
        extent: Extent,
        latencies: Option<&mut Latencies>,
    ) -> Result<(Sent, f64), Failure> {
        let millis = u64::try_from(extent.time.as_millis()).unwrap_or(u64::MAX);
        self.channel.send(&Request::Run { phase, millis, messages: extent.messages })?;
        let Reply::Go = reply(&mut self.channel)? else { return Err(out_of_step()) };
        let (begun, cpu, waited) = (Instant::now(), cpu::seconds(), cpu::waited());
        let ours = self.engine.run(Slice { phase, extent, deadline: None, latencies });
        let ours = ours.map_err(|failure| explained(&mut self.channel, failure))?;
        let Reply::Done { messages, lost, cpu_s, placed, waited_s } = reply(&mut self.channel)? else {
            return Err(out_of_step());
        };
        self.placed = placed;
        self.seconds += begun.elapsed().as_secs_f64();
        let slice = cpu::waited_since(waited).zip(waited_s).map(|(ours, theirs)| ours.max(theirs));
        self.waited_s = self.waited_s.zip(slice).map(|(before, now)| before + now);
        let theirs = Sent { messages, lost };
        Ok((if self.setup.reverse { theirs } else { ours }, cpu::seconds() - cpu + cpu_s))
    }

    /// Returns the share of the time for which the thread that measures waited for a processor, at
    /// the end where it is more.
    pub(super) fn waited(&self) -> Option<f64> {
        self.waited_s.filter(|_| self.seconds > 0.0).map(|waited| waited / self.seconds)
    }

    /// Returns what the kernel has placed at both ends.
    pub(super) fn placed(&self) -> Placed {
        self.placed + self.engine.placed()
    }

    pub(super) fn close(self) {
        drop(self.channel);
        self.engine.close();
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
    if failure.kind() == FailureKind::Interrupted {
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

/// Adds a remedy where no first answer has come: another service closes, or says nothing.
fn nobody_of_ours(addr: SocketAddr, failure: Failure) -> Failure {
    if failure.kind() != FailureKind::Peer || failure.how().is_some() {
        return failure;
    }
    failure.remedy(format!("is it rddp perf server that listens on {addr}? If not, name its port"))
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
