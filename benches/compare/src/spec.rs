//! Messages between the script, the active end and the passive end.

use rddp_rnic::{ConnectOptions, PortMapper, Rnic};
use serde::{Deserialize, Serialize};

use crate::host::Usage;

/// A command of the script to the active end.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Command {
    /// Connects a lane; answered by [`Opened`]. Lanes are numbered from 0 on.
    Open(Spec),
    /// Measures; answered by [`Report`].
    Slice(Slice),
    /// Asks for the processor time and memory that both processes have used; answered by
    /// [`Usages`].
    Usage {},
}

/// A message from one end to the other over the control connection.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ControlMessage {
    /// Active: prepare a lane. The passive end answers with the port to connect to.
    Open(Spec),
    Listening {
        port: u16,
    },
    /// Both ways, once all connections of the lane are there: the memory that the other end may
    /// use.
    Memory {
        stag: u32,
        to: u64,
    },
    /// Active: a slice begins. The passive end answers once it is ready, and again when it has seen
    /// the end of the slice.
    Slice(Slice),
    Ready,
    Done(Tally),
    Usage,
    Used(Usage),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Op {
    /// A plain TCP stream.
    Tcp,
    /// The same program on sockets in DDPMODE; `librddp_sockets.so` has to be loaded.
    Ddp,
    /// The same program on sockets that speak SDP; `librddp_sockets.so` has to be loaded.
    Sdp,
    Send,
    Write,
    Read,
}

/// The way in which an end waits for something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Wait {
    /// Spins: non-blocking sockets, or polls of the completion queue.
    Poll,
    /// Sleeps: blocking calls (on many sockets: poll), or `CompletionQueue::wait`.
    Sleep,
    /// Sleeps on the completion channel. TCP: as `Sleep`.
    Channel,
    /// Calls `CompletionQueue::wait` before each poll, whether there is something or not. TCP: as
    /// `Sleep`.
    First,
}

/// The way in which the pieces of an FPDU of a socket in DDPMODE are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Gather {
    Writev,
    Copy,
    Cork,
}

/// One lane: connections of one kind, and the traffic that they carry.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Spec {
    pub(crate) op: Op,
    /// Octets of a message.
    pub(crate) size: usize,
    /// Octets of messages of several sizes, in place of `size`: they take turns, and a batch has
    /// each of them. On a stream they are written by one call.
    pub(crate) sizes: Vec<usize>,
    /// Streams: octets of the header in front of each message, beside its own.
    pub(crate) header: usize,
    /// Requests outstanding on a connection.
    pub(crate) depth: usize,
    /// Requests posted by one call, or (TCP) messages written by one.
    pub(crate) batch: usize,
    /// Receives posted on each connection.
    pub(crate) window: usize,
    pub(crate) connections: usize,
    /// Number of connections that carry messages; 0: all.
    pub(crate) active: usize,
    pub(crate) wait: Wait,
    pub(crate) crc: bool,
    pub(crate) markers: bool,
    pub(crate) place_before_crc: bool,
    /// RDMA: what is sent or read lies in memory of its own that nobody writes (`Access::STABLE`).
    pub(crate) stable: bool,
    /// RDMA: the segment size that TCP is asked for.
    pub(crate) mss: Option<u16>,
    /// RDMA: FPDUs may be longer than segments.
    pub(crate) large: bool,
    /// Number of pieces of memory from which one call writes a message of a stream.
    pub(crate) pieces: usize,
    pub(crate) gather: Gather,
    /// SDP: least octets of a call that sends by RDMA (-1: none does), and of one that receives by
    /// it.
    pub(crate) source_threshold: Option<i32>,
    pub(crate) sink_threshold: Option<i32>,
    /// SDP: octets are copied through private buffers at both ends.
    pub(crate) bcopy: bool,
    /// Streams: each connection has a thread of its own at both ends, with blocking calls.
    pub(crate) threads: bool,
}

impl Default for Spec {
    fn default() -> Self {
        Spec {
            op: Op::Tcp,
            size: 64,
            sizes: Vec::new(),
            header: 0,
            depth: 1,
            batch: 1,
            window: 64,
            connections: 1,
            active: 0,
            wait: Wait::Poll,
            crc: true,
            markers: false,
            place_before_crc: false,
            stable: false,
            mss: None,
            large: false,
            pieces: 1,
            gather: Gather::Writev,
            source_threshold: None,
            sink_threshold: None,
            bcopy: false,
            threads: false,
        }
    }
}

impl Spec {
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let active = self.active();
        let fits = self.batch * self.sizes().len() <= self.depth.max(1) || self.is_stream();
        let out_of_range = |size: &usize| *size == 0 || *size > 1 << 30;
        match self {
            _ if self.sizes().iter().any(out_of_range) => Err("size is out of range"),
            _ if self.connections == 0 || active > self.connections => Err("connections are out of range"),
            _ if self.batch == 0 || !fits => Err("batch is out of range"),
            _ if self.pieces == 0 || self.sizes().iter().any(|size| self.pieces > *size) => {
                Err("pieces are out of range")
            }
            _ if self.is_stream() && self.cuts().len() * self.batch > MAX_PIECES => {
                Err("a call has too many pieces")
            }
            _ if self.threads && !(self.is_stream() && self.wait == Wait::Sleep && self.active == 0) => {
                Err("threads are for streams that sleep, all of them")
            }
            _ if (self.stable || self.large || self.mss.is_some()) && self.is_stream() => {
                Err("stable, large and mss are for RDMA")
            }
            _ if self.large && self.markers => Err("large FPDUs have no markers"),
            _ if self.window < 4 => Err("window is out of range"),
            _ => Ok(()),
        }
    }

    /// Returns whether the octets go over sockets, by the calls that any program makes.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.op, Op::Tcp | Op::Ddp | Op::Sdp)
    }

    /// Returns the spec of one connection, whose thread has no other.
    pub(crate) fn of_thread(&self) -> Self {
        Spec { connections: 1, threads: false, ..self.clone() }
    }

    /// Returns the sizes of messages that take turns.
    pub(crate) fn sizes(&self) -> &[usize] {
        if self.sizes.is_empty() { std::slice::from_ref(&self.size) } else { &self.sizes }
    }

    /// Returns the octets that a connection's memory for one message has.
    pub(crate) fn longest(&self) -> usize {
        self.sizes().iter().copied().max().unwrap_or(self.size)
    }

    /// Returns the octets of so many messages, without their headers.
    pub(crate) fn octets(&self, messages: u64) -> u64 {
        messages * self.sizes().iter().sum::<usize>() as u64 / self.sizes().len() as u64
    }

    /// Returns where the pieces of memory end from which a stream's messages are written by one
    /// call; the last ends with the messages. A header lies in front of its message, and is a piece
    /// of its own unless the message is short.
    pub(crate) fn cuts(&self) -> Vec<usize> {
        let (mut cuts, mut end) = (Vec::new(), 0);
        for &size in self.sizes() {
            end += self.header;
            if self.header > 0 && size > SHORT {
                cuts.push(end);
            }
            let piece = size.div_ceil(self.pieces);
            cuts.extend((piece..size).step_by(piece).map(|at| end + at));
            end += size;
            cuts.push(end);
        }
        cuts
    }

    pub(crate) fn active(&self) -> usize {
        if self.active == 0 { self.connections } else { self.active }
    }

    /// Returns whether messages are copied when they are posted, as a program would do with short
    /// ones.
    pub(crate) fn is_inline(&self) -> bool {
        self.longest() <= Rnic::CAPABILITIES.max_inline
    }

    pub(crate) fn options(&self) -> ConnectOptions {
        let most = Rnic::CAPABILITIES.max_ird;
        let depth = u16::try_from(self.depth.next_power_of_two()).unwrap_or(most).clamp(32, most);
        ConnectOptions {
            crc: self.crc,
            markers: self.markers,
            place_before_crc: self.place_before_crc,
            mss: self.mss,
            port_mapper: PortMapper::Off,
            // As many Reads as are posted.
            ird: depth,
            ord: depth,
            ..Default::default()
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SliceKind {
    /// One way, as fast as possible.
    Bandwidth,
    /// There and back, one at a time.
    Latency,
    /// Streams only: as many messages one way as the spec's depth says, answered by one octet; then
    /// the next window.
    Window,
    /// One way, one at a time, to a receiver that sleeps in a read (TCP) or looks at memory alone
    /// (Write).
    Notice,
    /// There and back by Writes, one at a time: each end polls until its own has completed, then
    /// looks at memory alone.
    Watch,
    /// There and back by Writes, one at a time: each end looks at memory alone, and never polls.
    Silent,
    /// A request and its answer on a connection of their own, which is then closed.
    Request,
}

/// A piece of one lane's traffic.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Slice {
    pub(crate) lane: usize,
    pub(crate) kind: SliceKind,
    pub(crate) ms: u64,
}

/// Measurements of one end in one slice.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub(crate) cpu_s: f64,
    pub(crate) send_calls: u64,
    pub(crate) receive_calls: u64,
    pub(crate) fpdus_sent: u64,
    /// Octets that this end's program has received by SDP, and those copied from memory of this end
    /// to memory of this end.
    pub(crate) delivered: u64,
    pub(crate) copied: u64,
    /// Latencies in nanoseconds, from the end that can measure them: of ping-pong, of windows, of
    /// noticing.
    pub(crate) latency_ns: Option<Latency>,
}

/// Place in a page at which messages begin, at all ends alike. `rep movsb`, by which kernels copy,
/// takes 20 to 30 times as long on some processors where target less source, modulo a page, is 1 to
/// 31; in an empty queue of TCP's, a message begins a page, and its payload a header later.
pub(crate) const PLACE_IN_PAGE: usize = 2048;

/// Pieces of memory that one call takes: `IOV_MAX`.
const MAX_PIECES: usize = 1024;

/// Octets of a message up to which a program would put it next to its header.
const SHORT: usize = 1024;

/// Quantiles of times. Of ping-pong: half of a round trip (of a Read: all of it).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) count: usize,
    pub(crate) mean: u64,
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) p999: u64,
    pub(crate) max: u64,
}

impl Latency {
    pub(crate) fn of(mut times: Vec<u64>) -> Option<Self> {
        times.sort_unstable();
        let at = |share: f64| times.get(((times.len() as f64 - 1.0) * share).round() as usize).copied();
        let mean = times.iter().sum::<u64>().checked_div(times.len() as u64)?;
        let (p50, p99, p999, max) = (at(0.5)?, at(0.99)?, at(0.999)?, at(1.0)?);
        Some(Latency { count: times.len(), mean, p50, p99, p999, max })
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Opened {
    pub(crate) lane: usize,
    /// Time that connecting all connections of the lane took.
    pub(crate) seconds: f64,
    /// CRC and markers as agreed on; nothing for TCP.
    pub(crate) crc: Option<bool>,
    pub(crate) markers: Option<bool>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) messages: u64,
    pub(crate) octets: u64,
    pub(crate) seconds: f64,
    pub(crate) active: Tally,
    pub(crate) passive: Tally,
}

#[derive(Debug, Serialize)]
pub(crate) struct Usages {
    pub(crate) active: Usage,
    pub(crate) passive: Usage,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_sorted_times() {
        let latency = Latency::of((1..=101).rev().collect()).unwrap();
        assert_eq!((latency.count, latency.mean), (101, 51));
        assert_eq!((latency.p50, latency.p99, latency.p999, latency.max), (51, 100, 101, 101));
        assert!(Latency::of(Vec::new()).is_none());
    }

    #[test]
    fn a_spec_that_cannot_be_carried_out_is_refused() {
        let spec = Spec { op: Op::Write, depth: 4, batch: 4, ..Spec::default() };
        assert!(spec.check().is_ok());
        assert!(Spec { batch: 5, ..spec.clone() }.check().is_err());
        assert!(Spec { size: 0, ..spec.clone() }.check().is_err());
        assert!(Spec { pieces: 65, ..spec.clone() }.check().is_err());
        assert!(Spec { sizes: vec![1, 2, 3], batch: 2, ..spec.clone() }.check().is_err());
        assert!(Spec { op: Op::Tcp, batch: 513, size: 2000, header: 20, ..spec.clone() }.check().is_err());
        assert!(Spec { threads: true, wait: Wait::Sleep, ..spec.clone() }.check().is_err());
        assert!(Spec { connections: 2, active: 3, ..spec }.check().is_err());
    }

    #[test]
    fn a_header_is_a_piece_of_its_own_in_front_of_a_long_message() {
        let spec = Spec { header: 20, size: 2000, ..Spec::default() };
        assert_eq!(spec.cuts(), [20, 2020]);
        assert_eq!(Spec { pieces: 2, ..spec.clone() }.cuts(), [20, 1020, 2020]);
        assert_eq!(Spec { header: 0, ..spec.clone() }.cuts(), [2000]);
        let mixed = Spec { sizes: vec![64, 2000, 1], ..spec };
        assert_eq!(mixed.cuts(), [84, 104, 2104, 2125]);
        assert_eq!((mixed.longest(), mixed.octets(6)), (2000, 2 * 2065));
    }
}
