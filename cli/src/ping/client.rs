//! The client of a ping.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rddp_command::addr;
use rddp_command::device::By;
use rddp_command::endpoint::{Agreed, Endpoint};
use rddp_command::failure::{Failure, FailureKind};
use rddp_command::out::{self, say};
use rddp_command::signals;
use rddp_command::units::micros;
use rddp_rnic::{Access, Completed, ConnectOptions, MemoryRegion, RecvWr, Rnic, SendWr};
use serde::Serialize;

use super::PingArgs;
use super::advert::{Advert, text};

/// Time within which the server must answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A wait before the first message: an rping server that receives it before it knows of the
/// connection waits for ever.
const SETTLE: Duration = Duration::from_millis(200);

const SEND: u64 = 1;
const RECEIVE: u64 = 2;

pub(super) fn run(host: &str, args: &PingArgs) -> Result<(), Failure> {
    let addrs = addr::resolve(host, args.port)?;
    let rnic = args.device.one()?.towards(|| Ok(addrs.clone()))?.open()?;
    let client = addr::first(&addrs, |addr| Client::connect(&rnic, addr, args.size))?;
    let addr = client.addr;
    if !args.json && !out::style().quiet {
        say!("PING {addr} by RDMA: {} octets each way, {}", args.size, client.agreed);
    }
    let mut times = Times::new()?;
    let ended = client.rounds(args, &mut times);
    let interrupted = ended.as_ref().is_err_and(|failure| failure.kind() == FailureKind::Interrupted);
    if times.rounds() > 0 || interrupted {
        client.summarise(addr, args, &times);
    }
    client.end.close();
    // A ping without a count is meant to end by Ctrl-C.
    if interrupted && args.count == 0 { Ok(()) } else { ended }
}

struct Client {
    addr: SocketAddr,
    end: Endpoint,
    agreed: Agreed,
    source: MemoryRegion,
    sink: MemoryRegion,
    inbox: MemoryRegion,
}

impl Client {
    fn connect(rnic: &Rnic, addr: SocketAddr, size: usize) -> Result<Self, Failure> {
        let end = Endpoint::new(rnic)?;
        let source = end.pd.allocate(size, Access::REMOTE_READ)?;
        let sink = end.pd.allocate(size, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let inbox = end.pd.allocate(Advert::LEN, Access::LOCAL_WRITE)?;
        end.qp.post_recv(RecvWr::one(RECEIVE, inbox.whole()))?;
        let connected = end.connect(
            addr,
            &ConnectOptions::default(),
            "an iWARP listener (rddp ping --server, or rping -s)",
        )?;
        signals::sleep(SETTLE)?;
        Ok(Client { addr, agreed: Agreed::of(rnic, &connected), end, source, sink, inbox })
    }

    fn rounds(&self, args: &PingArgs, times: &mut Times) -> Result<(), Failure> {
        let mut round = 0;
        while args.count == 0 || round < args.count {
            // Nothing comes meanwhile but the connection's end, which is told at once.
            if round > 0
                && let Some(unasked) = self.end.try_next(args.interval())?
            {
                return Err(Failure::peer(format!(
                    "a message of {} octets that nothing asked for",
                    unasked.byte_len
                )));
            }
            let begun = Instant::now();
            self.round(round, args.size)?;
            let took = begun.elapsed();
            times.record(took);
            if !args.json && !out::style().quiet {
                say!("{} octets there and back: round={round} time={:.1} us", args.size, micros(nanos(took)));
            }
            round += 1;
        }
        Ok(())
    }

    fn round(&self, round: u64, size: usize) -> Result<(), Failure> {
        let sent = text(round, size);
        self.source.write(0, &sent)?;
        self.sink.write(0, &vec![0xff; size])?;
        self.ask(&self.source, "Read the text")?;
        self.ask(&self.sink, "Write the text back")?;
        let received = self.sink.read(0, size)?;
        match sent.iter().zip(&received).position(|(sent, received)| sent != received) {
            None => Ok(()),
            Some(at) => Err(Failure::mismatch(format!(
                "round {round}: octet {at} of {size} came back as {:#04x}, not {:#04x}",
                received[at], sent[at]
            ))),
        }
    }

    /// Sends the advertisement of `region`, and waits until the server has used it.
    fn ask(&self, region: &MemoryRegion, what: &str) -> Result<(), Failure> {
        self.end.post(&SendWr::send_inline(SEND, &Advert::of(region).emit()).unsignaled())?;
        loop {
            let completion = self.end.next(PATIENCE).map_err(|failure| match failure.kind() {
                FailureKind::Interrupted => failure,
                kind => Failure::new(kind, format!("waiting for the server to {what}: {failure}")),
            })?;
            if completion.completed == Completed::Receive {
                if completion.byte_len as usize != Advert::LEN {
                    let len = completion.byte_len;
                    return Err(Failure::peer(format!("a message of {len} octets, not rping's 16")));
                }
                self.end.qp.post_recv(RecvWr::one(RECEIVE, self.inbox.whole()))?;
                return Ok(());
            }
        }
    }

    fn summarise(&self, addr: SocketAddr, args: &PingArgs, times: &Times) {
        let us = times.summary();
        if args.json {
            let agreed = self.agreed.clone();
            let by = agreed.by.clone();
            out::json(&Summary { peer: addr, by, size: args.size, rounds: times.rounds(), agreed, us });
            return;
        }
        say!("--- {addr}: {} rounds, no octet different", times.rounds());
        if times.rounds() > 0 {
            say!("round min/median/p99/max = {:.1}/{:.1}/{:.1}/{:.1} us", us.min, us.p50, us.p99, us.max);
        }
    }
}

/// The result for `--json`.
#[derive(Serialize)]
struct Summary {
    peer: SocketAddr,
    #[serde(flatten)]
    by: By,
    size: usize,
    rounds: u64,
    agreed: Agreed,
    us: Micros,
}

#[derive(Serialize)]
struct Micros {
    min: f64,
    p50: f64,
    p99: f64,
    max: f64,
}

struct Times(Histogram<u64>);

impl Times {
    fn new() -> Result<Self, Failure> {
        let histogram = Histogram::new_with_bounds(1, 3_600_000_000_000, 3);
        histogram.map(Times).map_err(|error| Failure::failed(error.to_string()))
    }

    fn record(&mut self, took: Duration) {
        self.0.saturating_record(nanos(took));
    }

    fn rounds(&self) -> u64 {
        self.0.len()
    }

    fn summary(&self) -> Micros {
        let at = |quantile| micros(self.0.value_at_quantile(quantile));
        Micros { min: micros(self.0.min()), p50: at(0.5), p99: at(0.99), max: micros(self.0.max()) }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
