//! The control connection: JSON messages, each behind its length in four octets.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::ops::Add;
use std::time::{Duration, Instant};

use rddp_command::device::By;
use rddp_command::failure::Failure;
use rddp_command::signals;
use rddp_rnic::{Atomics, ConnectOptions, Remote, Rnic, Stag};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::op::{ATOMIC, Level, MAX_DATAGRAM, Op, Wait};
use crate::congestion;

/// Version of the protocol between client and server; changes when the messages do.
pub(super) const VERSION: u32 = 2;

/// Length of the longest message.
const MAX_MESSAGE: usize = 256 * 1024;

/// Octets of registered memory that one session may have at one end.
const MAX_MEMORY: u64 = 1 << 30;

/// Limit on the octets outstanding on one connection: a slice of long messages has to end some
/// time.
const IN_FLIGHT: usize = 64 << 20;

/// Memory of a connection for messages that the kernel places.
const PLACED: usize = 64 << 20;

/// Number of octets that are posted, or written, at once.
const BATCH_OCTETS: usize = 256 * 1024;

/// Least number of receives that are posted: reporting them takes time.
const MIN_WINDOW: usize = 512;

/// The settings of one session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) op: Op,
    /// True if the server is the end that sends or posts. Clients of version 1 leave it out, and
    /// are told which version this is.
    #[serde(default)]
    pub(crate) reverse: bool,
    pub(crate) size: u32,
    pub(crate) qps: u16,
    pub(crate) depth: u16,
    pub(crate) crc: bool,
    pub(crate) markers: bool,
    pub(crate) place_before_crc: bool,
    pub(crate) mss: Option<u16>,
    /// TCP's congestion control at both ends; the hosts' without one. Older clients leave it out.
    #[serde(default)]
    pub(crate) congestion: Option<String>,
    /// FPDUs may be longer than TCP segments, if both ends say so by their private data. Older
    /// clients leave it out.
    #[serde(default)]
    pub(crate) large_fpdus: bool,
    /// The octets that are sent lie in memory that nobody changes meanwhile. Older clients leave it
    /// out.
    #[serde(default)]
    pub(crate) stable: bool,
    /// Older clients leave it out.
    #[serde(default)]
    pub(crate) placement: Level,
    pub(crate) wait: Wait,
    /// Slices end, and credits and answers come, by Sends: a device has no Immediate Data of eight
    /// octets, or no order of the octets of a Write. Older clients have neither.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) sends: bool,
    /// This end's address of the control connection, on whose interface the kernel places.
    #[serde(skip)]
    pub(crate) local: Option<IpAddr>,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            op: Op::Write,
            reverse: false,
            size: 64,
            qps: 1,
            depth: 64,
            crc: true,
            markers: false,
            place_before_crc: false,
            mss: None,
            congestion: None,
            large_fpdus: false,
            stable: false,
            placement: Level::User,
            wait: Wait::Poll,
            sends: false,
            local: None,
        }
    }
}

impl Setup {
    /// Returns an error if this end cannot, or will not, run with these settings.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.size == 0 || self.qps == 0 || self.qps > 256 || self.depth == 0 || self.depth > 4096 {
            return Err("size, qps or depth is out of range".into());
        }
        if self.op.is_atomic() && self.size != ATOMIC {
            return Err(format!("{} has {ATOMIC} octets: --size {ATOMIC}", self.op.name()));
        }
        if self.op.is_datagrams() && self.size > MAX_DATAGRAM {
            return Err(format!("a datagram has at most {MAX_DATAGRAM} octets: a smaller --size"));
        }
        if self.large_fpdus && self.markers {
            return Err("large FPDUs have no markers: leave out --large-fpdus or --markers".into());
        }
        if self.placement != Level::User && (self.large_fpdus || self.markers) {
            return Err(
                "the kernel places FPDUs that begin segments: leave out --large-fpdus and --markers".into()
            );
        }
        self.congestion.as_deref().map_or(Ok(()), |name| congestion::parse(name).map(drop))?;
        let memory = self.memory();
        if memory > MAX_MEMORY {
            let (need, most) = (rddp_command::units::about(memory), rddp_command::units::about(MAX_MEMORY));
            return Err(format!("size times qps needs {need} of memory at each end, at most {most}"));
        }
        Ok(())
    }

    /// Returns the octets of memory that a session takes at each end.
    pub(super) fn memory(&self) -> u64 {
        (u64::from(self.size) + self.target_len() as u64) * u64::from(self.qps)
    }

    /// Returns the octets of memory of one connection that data arrives in. Where the kernel
    /// places, messages go to places of their own.
    pub(super) fn target_len(&self) -> usize {
        match self.placement {
            Level::User => self.size(),
            Level::Auto | Level::Kernel => self.size().next_multiple_of(PLACED),
        }
    }

    pub(super) fn size(&self) -> usize {
        self.size as usize
    }

    /// Returns the number of messages outstanding on one connection; of very long ones fewer than
    /// was asked for.
    pub(super) fn depth(&self) -> usize {
        usize::from(self.depth).min((IN_FLIGHT / self.size()).max(2))
    }

    /// Returns the number of messages that are posted, or written, at once: a part of the depth, so
    /// that some are always outstanding.
    pub(super) fn batch(&self) -> usize {
        (self.depth() / 4).min(BATCH_OCTETS / self.size()).max(1)
    }

    /// Returns the number of receives that the passive end keeps posted on each connection.
    pub(super) fn window(&self) -> usize {
        (2 * self.depth()).max(MIN_WINDOW)
    }

    /// Returns the number of messages that one call sends, of ends that can send many.
    pub(super) fn messages_a_call(&self) -> usize {
        if self.op == Op::Udp { 1 } else { self.batch() }
    }

    /// Returns whether ends see a Write by its last octet in memory.
    pub(super) fn looks_at_memory(&self) -> bool {
        self.wait == Wait::Poll && !self.sends
    }

    /// Returns the number of data connections over plain TCP: where messages are not a stream's,
    /// with the one beside them.
    pub(super) fn streams(&self) -> u16 {
        match self.op {
            op if op.is_iwarp() => 0,
            op if op.is_datagrams() => 1,
            Op::Tcp => self.qps,
            _ => self.qps + 1,
        }
    }

    /// Returns an error if a device cannot run with these settings: at once, and not in the middle.
    pub(super) fn check_device(&self, rnic: &Rnic) -> Result<(), Failure> {
        let (limits, by) = (rnic.capabilities(), By::of(rnic));
        let is_too_long = self.op == Op::Send && u64::from(self.size) > limits.max_message;
        let lacking = [
            ("atomic operations", self.op.is_atomic() && limits.atomics == Atomics::None),
            ("Sends of that length", is_too_long),
            ("FPDUs longer than TCP's segments", by.is_host() && self.large_fpdus),
            ("placement in the kernel", by.is_host() && self.placement != Level::User),
        ];
        lacking.iter().find(|(_, lacks)| *lacks).map_or(Ok(()), |(what, _)| Err(by.lacks(what)))
    }

    pub(super) fn options(&self) -> ConnectOptions {
        // Powers of two, because some peers round.
        let depth = self.depth.next_power_of_two().clamp(2, 128);
        ConnectOptions {
            crc: self.crc,
            markers: self.markers,
            place_before_crc: self.place_before_crc,
            mss: self.mss,
            congestion: self.congestion.clone(),
            ird: depth,
            ord: depth,
            ..ConnectOptions::default()
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// A place in memory of the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RemoteMemory {
    stag: u32,
    to: u64,
}

impl From<Remote> for RemoteMemory {
    fn from(remote: Remote) -> Self {
        RemoteMemory { stag: remote.stag.0, to: remote.to }
    }
}

impl From<RemoteMemory> for Remote {
    fn from(remote: RemoteMemory) -> Self {
        Remote { stag: Stag(remote.stag), to: remote.to }
    }
}

/// Memory of one connection at one end: source of Reads, target of Writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Buffers {
    pub(super) source: RemoteMemory,
    pub(super) target: RemoteMemory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Phase {
    Bandwidth,
    Latency,
}

/// Octets that the kernel has placed at one end, or both, and those that it has not seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Placed {
    /// Octets that were right, and not placed again.
    pub(crate) octets: u64,
    /// Octets that were placed while a segment in front of them was missing.
    pub(crate) behind: u64,
    /// Octets of the streams that have come past no interface with the program.
    pub(crate) unseen: u64,
    /// Segments that are not whole FPDUs.
    #[serde(default)]
    pub(crate) unaligned: u64,
}

impl Add for Placed {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Placed {
            octets: self.octets + other.octets,
            behind: self.behind + other.behind,
            unseen: self.unseen + other.unseen,
            unaligned: self.unaligned + other.unaligned,
        }
    }
}

/// Messages of the active end in a slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    /// Messages that have arrived.
    pub(super) messages: u64,
    /// Datagrams that have not.
    pub(super) lost: u64,
}

/// A message from client to server.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// The first message on a control connection.
    Begin {
        version: u32,
        setup: Setup,
        #[serde(rename = "places")]
        buffers: Vec<Buffers>,
    },
    /// The first and only message on a plain data connection.
    Data { session: u64, lane: u16 },
    /// Run a slice of at most `millis` milliseconds and `messages` messages.
    Run { phase: Phase, millis: u64, messages: u64 },
}

/// A message from server to client.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// The server is ready for the data connections.
    Ready {
        session: u64,
        rdma_port: u16,
        /// The value of [`Setup::sends`] for the server's devices. Older servers leave it out.
        #[serde(default, skip_serializing_if = "is_false")]
        sends: bool,
    },
    /// The data connections are there.
    Connected {
        #[serde(rename = "places")]
        buffers: Vec<Buffers>,
    },
    /// The slice begins now.
    Go,
    /// All octets of the slice have arrived: `messages` from the server, which used so much
    /// processor time. `placed` counts from the session's begin.
    Done {
        messages: u64,
        /// Datagrams from the server that have not arrived. Older servers leave it out.
        #[serde(default)]
        lost: u64,
        cpu_s: f64,
        #[serde(default)]
        placed: Placed,
        /// Time for which the session's thread waited for a processor. Older servers leave it out.
        #[serde(default)]
        waited_s: Option<f64>,
    },
    /// The server refuses, or gives up.
    Refused { reason: String },
}

/// Messages over a TCP connection.
pub(super) struct Channel(TcpStream);

impl Channel {
    pub(super) fn new(stream: TcpStream) -> Result<Self, Failure> {
        let set_up = stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(false));
        let set_up = set_up.and_then(|()| stream.set_read_timeout(Some(signals::CHECK_INTERVAL)));
        set_up
            .and_then(|()| stream.set_write_timeout(Some(Duration::from_secs(10))))
            .map_err(|error| lost(&error))?;
        Ok(Channel(stream))
    }

    /// Returns this end's address.
    pub(super) fn local(&self) -> Option<IpAddr> {
        self.0.local_addr().ok().map(|addr| addr.ip().to_canonical())
    }

    pub(super) fn into_stream(self) -> TcpStream {
        self.0
    }

    pub(super) fn send(&mut self, message: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_vec(message).map_err(|error| Failure::failed(error.to_string()))?;
        let len = u32::try_from(text.len()).map_err(|_| Failure::failed("a control message is too long"))?;
        let mut octets = len.to_be_bytes().to_vec();
        octets.extend(text);
        self.0.write_all(&octets).map_err(|error| lost(&error))
    }

    pub(super) fn receive<T: DeserializeOwned>(&mut self, patience: Duration) -> Result<T, Failure> {
        self.receive_or_end(patience)?.ok_or_else(closed)
    }

    /// Receives a message; `None` when the other end has closed instead.
    pub(super) fn receive_or_end<T: DeserializeOwned>(
        &mut self,
        patience: Duration,
    ) -> Result<Option<T>, Failure> {
        let deadline = Instant::now() + patience;
        let mut len = [0; 4];
        if !self.fill(&mut len, deadline)? {
            return Ok(None);
        }
        let len = u32::from_be_bytes(len) as usize;
        if len > MAX_MESSAGE {
            return Err(foreign());
        }
        let mut text = vec![0; len];
        if !self.fill(&mut text, deadline)? {
            return Err(closed());
        }
        serde_json::from_slice(&text).map(Some).map_err(|_| foreign())
    }

    /// Receives all of `octets`. Returns false if the stream ended before the first.
    fn fill(&mut self, octets: &mut [u8], deadline: Instant) -> Result<bool, Failure> {
        let mut have = 0;
        while have < octets.len() {
            match self.0.read(&mut octets[have..]) {
                Ok(0) if have == 0 => return Ok(false),
                Ok(0) => return Err(closed()),
                Ok(count) => have += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    signals::check()?;
                    if Instant::now() >= deadline {
                        return Err(Failure::peer("the other end says nothing on the control connection"));
                    }
                }
                Err(error) => return Err(lost(&error)),
            }
        }
        Ok(true)
    }
}

fn closed() -> Failure {
    Failure::peer("the other end closed the control connection")
}

fn lost(error: &std::io::Error) -> Failure {
    Failure::peer(format!("the control connection: {error}"))
}

fn foreign() -> Failure {
    Failure::peer("the other end is no rddp perf").remedy("name the port of rddp perf server")
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (here, listener.accept().unwrap().0)
    }

    #[test]
    fn messages_come_out_as_they_went_in() {
        let (here, there) = pair();
        let (mut here, mut there) = (Channel::new(here).unwrap(), Channel::new(there).unwrap());
        let setup = Setup { mss: Some(1448), ..Setup::default() };
        here.send(&Request::Begin { version: VERSION, setup: setup.clone(), buffers: Vec::new() }).unwrap();
        match there.receive(Duration::from_secs(5)).unwrap() {
            Request::Begin { version: VERSION, setup: received, .. } => assert_eq!(received, setup),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn rubbish_and_endless_messages_are_errors() {
        for octets in [&b"GET / HTTP/1.1\r\n"[..], b"\0\0\0\x02{}", b"\xff\xff\xff\xff", b"\0\0"] {
            let (here, mut there) = pair();
            there.write_all(octets).unwrap();
            drop(there);
            assert!(Channel::new(here).unwrap().receive::<Request>(Duration::from_secs(5)).is_err());
        }
    }

    #[test]
    fn a_batch_leaves_part_of_the_depth() {
        let batch = |size, depth| Setup { size, depth, ..Setup::default() }.batch();
        assert_eq!(batch(64, 64), 16);
        assert_eq!(batch(65_536, 64), 4);
        assert_eq!(batch(1 << 20, 64), 1);
        assert_eq!(batch(64, 1), 1);
    }

    #[test]
    fn long_messages_do_not_queue_up_for_ever() {
        let depth = |size, depth| Setup { size, depth, ..Setup::default() }.depth();
        assert_eq!(depth(1 << 20, 64), 64);
        assert_eq!(depth(16 << 20, 64), 4);
        assert_eq!(depth(1 << 30, 64), 2);
        assert_eq!(depth(1 << 30, 1), 1);
    }

    #[test]
    fn a_session_that_wants_too_much_memory_is_refused() {
        assert!(Setup { size: u32::MAX, qps: 2, ..Setup::default() }.check().is_err());
        assert!(Setup { size: 4 << 20, qps: 16, ..Setup::default() }.check().is_ok());
        // The kernel's memory comes in pieces.
        let setup = |qps| Setup { size: 64, qps, placement: Level::Auto, ..Setup::default() };
        assert_eq!(setup(2).memory(), 2 * (64 + (64 << 20)));
        assert!(setup(15).check().is_ok() && setup(16).check().is_err());
    }
}
