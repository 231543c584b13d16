//! The server: takes control connections and data connections, and runs a thread for each session.
//!
//! A client can do no more harm than to use up its own session: everything it asks for is bounded,
//! and an error or silence ends that session only.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout};
use rddp_command::device::{By, Choice};
use rddp_command::failure::{Failure, FailureKind};
use rddp_command::listeners::{At, Listeners};
use rddp_command::out;
use rddp_command::places::{self, Place};
use rddp_command::seldom::Seldom;
use rddp_command::threads::{self, NO_THREAD};
use rddp_command::{addr, signals};
use rddp_load::Extent;
use rddp_rnic::{ConnectOptions, ConnectRequest, Protocol, Rnic};
use serde::{Deserialize, Serialize};

use super::control::{Buffers, Channel, Phase, Reply, Request, Sent, Setup, VERSION};
use super::cpu;
use super::engine::{Engine, Rdma, Slice};
use super::op::Level;
use super::options::ServerArgs;
use super::rdma;
use super::spin::Wish;
use crate::child;

/// Limit on sessions at a time, half of them from one network.
const MAX_SESSIONS: usize = 256;

/// Limit on connections at a time whose first message has not arrived, half of them from one
/// network: more than a session has data connections (`Setup::check`), which come all at once.
const MAX_NEW: usize = 1024;

const TOO_MANY: &str = "too many connections";

/// Limit on the octets of memory of all sessions together.
const MAX_MEMORY: u64 = 4 << 30;

/// Time limit for the first message of a new connection.
const HELLO: Duration = Duration::from_secs(5);

/// Time limit for a session between slices, and for its data connections to come.
const IDLE: Duration = Duration::from_secs(120);
const ARRIVAL: Duration = Duration::from_secs(15);

/// Length of the longest slice that a client may ask for, and the time that it may take beyond
/// that.
const MAX_SLICE: Duration = Duration::from_secs(60);
const SLACK: Duration = Duration::from_secs(30);

/// The output of `--json`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Listening {
    pub(crate) listening: SocketAddr,
    rdma: SocketAddr,
    #[serde(skip_deserializing)]
    devices: Vec<At>,
}

pub(super) fn run(args: &ServerArgs) -> Result<(), Failure> {
    if args.until_stdin_ends {
        child::stop_with_stdin()?;
    }
    let mut server = Server::bind(args.bind, args.port, args.placement, &args.device.all()?)?;
    // The process that started this one as its second prints its own messages.
    server.quiet = args.until_stdin_ends;
    let listening = server.listening();
    if args.json {
        out::json_event(listening);
    } else {
        let Listening { listening, rdma, .. } = listening;
        let (control, port) = (addr::shown(*listening), rdma.port());
        let by = server.by();
        out::event(format_args!("listening on {control}: control and TCP; RDMA at port {port}{by}"));
    }
    server.run()
}

pub(crate) struct Server {
    control: TcpListener,
    rdma: Listeners,
    listening: Listening,
    shared: Arc<Shared>,
    /// True if errors of clients are not printed.
    pub(crate) quiet: bool,
}

/// State shared by the threads.
struct Shared {
    /// The sessions that wait for data connections.
    waiting: Mutex<HashMap<u64, SyncSender<Arrival>>>,
    sessions: Arc<places::Places>,
    /// Places of connections whose first message has not arrived.
    new: Arc<places::Places>,
    memory: AtomicU64,
    placement: bool,
    /// The value of [`Setup::sends`] that an iWARP device of this server asks for.
    sends: bool,
}

/// Memory that a session may use, until it is dropped.
struct Memory<'a>(&'a Shared, u64);

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        self.0.memory.fetch_sub(self.1, Ordering::Relaxed);
    }
}

/// A data connection, and its number.
enum Arrival {
    Rdma(u16, Rnic, Box<ConnectRequest>),
    Tcp(u16, TcpStream),
}

impl Server {
    /// Listens. `placement` says whether clients may have the kernel place.
    pub(crate) fn bind(
        bind: Option<IpAddr>,
        port: u16,
        placement: bool,
        devices: &[Choice],
    ) -> Result<Self, Failure> {
        let rdma_port = match port {
            0 => 0,
            port => {
                port.checked_add(1).ok_or_else(|| Failure::usage("--port 65535 leaves no port for RDMA"))?
            }
        };
        let control = addr::listen_on(bind, port, TcpListener::bind)?;
        let failed = |error: std::io::Error| Failure::failed(format!("listening: {error}"));
        control.set_nonblocking(true).map_err(failed)?;
        let listening = control.local_addr().map_err(failed)?;
        let options = ConnectOptions::default();
        let rdma = Listeners::open(devices, Some(listening.ip()), rdma_port, &options)?;
        let listening = Listening { listening, rdma: rdma.addr(), devices: rdma.places() };
        // Clients of RoCE and InfiniBand have devices that lack the same.
        let is_iwarp = |rnic: &&Rnic| rnic.capabilities().protocol == Protocol::Iwarp;
        let sends = rdma.devices().filter(is_iwarp).any(rdma::needs_sends);
        let shared = Arc::new(Shared::new(placement, sends));
        Ok(Server { control, rdma, listening, shared, quiet: false })
    }

    /// Returns the words for the devices, where there is another than software.
    fn by(&self) -> String {
        let devices = &self.listening.devices;
        let is_soft = devices.iter().all(|at| !at.by.is_host());
        // A device may listen at several addresses.
        let mut all: Vec<_> = devices.iter().map(|at| at.by.to_string()).collect();
        all.dedup();
        if is_soft { String::new() } else { format!(" by {}", all.join(", ")) }
    }

    pub(crate) fn listening(&self) -> &Listening {
        &self.listening
    }

    /// Serves until the program is told to stop.
    ///
    /// # Errors
    /// Nobody can connect any more, over TCP or by any device, or by one of them since it is gone.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let Server { control, rdma, listening, shared, quiet } = self;
        let failed = |error: std::io::Error| Failure::failed(format!("accepting connections: {error}"));
        let for_rdma = shared.clone();
        let accepting = thread::Builder::new().spawn(move || accept_rdma(rdma, &for_rdma)).map_err(failed)?;
        let mut warnings = Seldom::default();
        while !signals::stopped() && !accepting.is_finished() {
            let mut fds = [PollFd::new(control.as_fd(), PollFlags::POLLIN)];
            // A poll that fails has not slept.
            let _ = nix::poll::poll(&mut fds, PollTimeout::from(100u8));
            match control.accept() {
                Ok((stream, peer)) => {
                    let rdma_port = listening.rdma.port();
                    shared.clone().take_in(stream, addr::plain(peer), rdma_port, quiet, &mut warnings);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error)
                    if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(error) if is_shortage(&error) => {
                    warnings.warn(format_args!("{error}; existing sessions go on"));
                    thread::sleep(signals::CHECK_INTERVAL);
                }
                Err(error) => return Err(failed(error)),
            }
        }
        accepting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Returns whether descriptors or memory are short: others may give some back.
fn is_shortage(error: &std::io::Error) -> bool {
    use nix::errno::Errno::{EMFILE, ENFILE, ENOBUFS, ENOMEM};
    error
        .raw_os_error()
        .is_some_and(|code| [EMFILE, ENFILE, ENOBUFS, ENOMEM].iter().any(|errno| *errno as i32 == code))
}

fn accept_rdma(mut listeners: Listeners, shared: &Shared) -> Result<(), Failure> {
    while !signals::stopped() {
        let Some((rnic, request)) = listeners.accept(signals::CHECK_INTERVAL)? else { continue };
        let Some((session, lane)) = parse_private_data(request.private_data()) else {
            tracing::info!("an RDMA connection that belongs to no rddp perf client");
            let _ = request.reject(b"this is rddp perf: connect with rddp perf client");
            continue;
        };
        shared.deliver(session, Arrival::Rdma(lane, rnic, Box::new(request)));
    }
    listeners.end()
}

/// Returns the session and the number of a connection. What follows them is for the session.
fn parse_private_data(octets: &[u8]) -> Option<(u64, u16)> {
    let (session, rest) = octets.split_first_chunk()?;
    Some((u64::from_be_bytes(*session), u16::from_be_bytes(*rest.first_chunk()?)))
}

impl Shared {
    fn new(placement: bool, sends: bool) -> Self {
        let places = |most| Arc::new(places::Places::new(most, None));
        let (sessions, new) = (places(MAX_SESSIONS), places(MAX_NEW));
        Shared { waiting: Mutex::default(), sessions, new, memory: AtomicU64::new(0), placement, sends }
    }

    /// Hands a data connection to its session; closes one for which no session waits.
    fn deliver(&self, session: u64, arrival: Arrival) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.get(&session).is_none_or(|mailbox| mailbox.try_send(arrival).is_err()) {
            tracing::info!("a data connection that no session waits for");
        }
    }

    /// Starts a thread for a new connection.
    fn take_in(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        rdma_port: u16,
        quiet: bool,
        warnings: &mut Seldom,
    ) {
        let Some(place) = self.new.take(Some(peer.ip())) else {
            tracing::warn!(%peer, "refused: too many connections");
            return refuse(stream, TOO_MANY);
        };
        let started = threads::start((stream, place), move |(stream, place)| {
            match self.converse(stream, peer.ip(), place, rdma_port) {
                Ok(()) => tracing::info!(%peer, "session over"),
                Err(failure) if quiet || failure.kind() == FailureKind::Interrupted => {
                    tracing::info!(%peer, %failure);
                }
                Err(failure) => out::client_failed(&peer.to_string(), &failure),
            }
        });
        if let Err(((stream, _place), error)) = started {
            warnings.warn(format_args!("starting a thread: {error}; others are served"));
            refuse(stream, NO_THREAD);
        }
    }

    /// Serves a connection, which has `place` until its first message has arrived.
    fn converse(&self, stream: TcpStream, peer: IpAddr, place: Place, rdma_port: u16) -> Result<(), Failure> {
        let mut channel = Channel::new(stream)?;
        // A client that only checks for a server sends nothing.
        let Some(hello) = channel.receive_or_end(HELLO)? else { return Ok(()) };
        match hello {
            Request::Data { session, lane } => {
                self.deliver(session, Arrival::Tcp(lane, channel.into_stream()));
                Ok(())
            }
            Request::Begin { version, setup, buffers } => {
                let session = self.sessions.take(Some(peer)).ok_or_else(|| Failure::failed(TOO_MANY));
                drop(place);
                let served = session
                    .and_then(|_session| self.serve(&mut channel, version, &setup, &buffers, rdma_port));
                if let Err(failure) = &served {
                    // The client may be gone.
                    let _ = channel.send(&Reply::Refused { reason: failure.to_string() });
                }
                served
            }
            Request::Run { .. } => Err(Failure::peer("a slice before there is a session")),
        }
    }

    fn serve(
        &self,
        channel: &mut Channel,
        version: u32,
        setup: &Setup,
        theirs: &[Buffers],
        rdma_port: u16,
    ) -> Result<(), Failure> {
        if version != VERSION {
            return Err(Failure::peer(format!("the client speaks version {version}, this server {VERSION}")));
        }
        setup.check().map_err(Failure::peer)?;
        if setup.placement != Level::User && !self.placement {
            return Err(Failure::peer("placement in the kernel: start rddp perf server with --placement"));
        }
        tracing::info!(?setup, "session");
        let _memory = self.reserve(setup.memory())?;
        let (session, mailbox) = self.announce(usize::from(setup.qps.max(setup.streams())))?;
        let sends = setup.sends || self.sends;
        let ready = channel.send(&Reply::Ready { session, rdma_port, sends });
        let own = Setup { local: channel.local(), sends, ..setup.clone() };
        let engine = ready.and_then(|()| connect(&own, theirs, &mailbox));
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
        let (mut engine, buffers) = engine?;
        channel.send(&Reply::Connected { buffers })?;
        while let Some(request) = channel.receive_or_end(IDLE)? {
            let Request::Run { phase, millis, messages } = request else {
                return Err(Failure::peer("the client is out of step"));
            };
            if setup.reverse && phase == Phase::Latency {
                return Err(Failure::peer("latency is measured by the client alone"));
            }
            channel.send(&Reply::Go)?;
            let before = (cpu::seconds(), cpu::waited());
            let extent = Extent { time: Duration::from_millis(millis).min(MAX_SLICE), messages };
            let deadline = Some(Instant::now() + extent.time + SLACK);
            let Sent { messages, lost } = engine.run(Slice { phase, extent, deadline, latencies: None })?;
            let (cpu_s, waited_s) = (cpu::seconds() - before.0, cpu::waited_since(before.1));
            let placed = engine.placed();
            channel.send(&Reply::Done { messages, lost, cpu_s, placed, waited_s })?;
        }
        engine.close();
        Ok(())
    }

    fn reserve(&self, octets: u64) -> Result<Memory<'_>, Failure> {
        let memory = Memory(self, octets);
        if self.memory.fetch_add(octets, Ordering::Relaxed) + octets > MAX_MEMORY {
            return Err(Failure::failed("other sessions have all the memory that there is for sessions"));
        }
        Ok(memory)
    }

    /// Registers a session that waits for data connections.
    fn announce(&self, lanes: usize) -> Result<(u64, Receiver<Arrival>), Failure> {
        // Only the client must be able to name the session.
        let mut number = [0; 8];
        getrandom::fill(&mut number).map_err(|error| Failure::failed(format!("random numbers: {error}")))?;
        let (session, (sender, mailbox)) = (u64::from_ne_bytes(number), sync_channel(lanes));
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(session, sender);
        Ok((session, mailbox))
    }
}

/// Tells a client why it is not served. The client may be gone; if not, the few octets fit into
/// TCP's buffer.
fn refuse(stream: TcpStream, reason: &str) {
    let refused = Reply::Refused { reason: reason.into() };
    let _ = Channel::new(stream).and_then(|mut channel| channel.send(&refused));
}

/// Returns the device of a session whose connections come by this one: of software one of its own,
/// with a thread of its own.
fn own_device(setup: &Setup, rnic: &Rnic) -> Result<Rnic, Failure> {
    if By::of(rnic).is_host() { Ok(rnic.clone()) } else { rdma::open(setup, &Choice::software()) }
}

/// Waits for the data connections; returns them, and the memory that the client may use.
fn connect(
    setup: &Setup,
    theirs: &[Buffers],
    mailbox: &Receiver<Arrival>,
) -> Result<(Engine, Vec<Buffers>), Failure> {
    let deadline = Instant::now() + ARRIVAL;
    let next = || {
        let left = deadline.saturating_duration_since(Instant::now());
        mailbox.recv_timeout(left).map_err(|_| Failure::peer("the client's data connections have not come"))
    };
    let wrong = || Failure::peer("a data connection of another kind than was announced");
    if setup.op.is_iwarp() {
        let prepared = |rnic: &Rnic| {
            let mut rdma = Rdma::new(setup, rnic, Wish::Clients)?;
            rdma.aim(theirs).map(|()| rdma)
        };
        // A kernel that places belongs to software, and may refuse.
        let mut made = match setup.placement {
            Level::User => None,
            _ => Some(prepared(&rdma::open(setup, &Choice::software())?)?),
        };
        for _ in 0..setup.qps {
            let Arrival::Rdma(lane, rnic, request) = next()? else { return Err(wrong()) };
            let rdma = match &mut made {
                Some(rdma) => rdma,
                None => made.insert(prepared(&own_device(setup, &rnic)?)?),
            };
            rdma.accept(lane, *request)?;
        }
        let rdma = made.ok_or_else(wrong)?;
        let buffers = rdma.buffers();
        return Ok((Engine::Rdma(rdma), buffers));
    }
    let mut list = Vec::new();
    for _ in 0..setup.streams() {
        let Arrival::Tcp(lane, stream) = next()? else { return Err(wrong()) };
        list.push((lane, stream));
    }
    list.sort_by_key(|(lane, _)| *lane);
    let list = list.into_iter().map(|(_, stream)| stream).collect();
    Ok((Engine::over(setup, list, Wish::Clients)?, Vec::new()))
}
