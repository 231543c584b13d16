//! A decoder of captures: the messages of MPA, DDP, RDMAP and SDP in the TCP streams of a file.
//!
//! [`decode`] takes a pcap or pcapng file as octets and tells [`Event`]s: the frames of MPA's
//! startup, each FPDU, and on connections whose private data is a Hello, each message of SDP. That
//! a connection is plain TCP, only a capture by `RDDP_CAPTURE` tells.
//! Segments may be out of order or come twice. A fault is an event, too, and what comes behind it
//! is read as far as it is certain where it begins: behind an FPDU with a bad CRC it is, behind
//! octets that are missing, or a bad marker, it is not. Of packets that were cut by the snap
//! length, headers are read. [`Summary`] has what was not read, and why.
//!
//! | file | subject |
//! |---|---|
//! | `capture` | pcap and pcapng: packets |
//! | `layer` | headers one behind the other: TCP segments |
//! | `link`, `tunnel` | link headers; tunnels |
//! | `ip`, `fragments` | IP; its datagrams made of fragments |
//! | `unread` | why a packet was not read |
//! | `reorder`, `stream` | one direction of a TCP stream; its octets, captured or not |
//! | `connection` | a connection: MPA's startup, then FPDUs both ways |
//! | `direction` | one direction's FPDUs, and the messages of SDP in them |
//! | `event`, `text` | what is told, as values and as text |
#![forbid(unsafe_code)]
#![warn(clippy::unwrap_used)]

mod capture;
mod connection;
mod direction;
mod event;
mod fragments;
mod ip;
mod layer;
mod link;
mod reorder;
mod stream;
mod text;
mod tunnel;
mod unread;

use core::net::SocketAddr;
use std::collections::{BTreeMap, HashMap};

pub use capture::{CaptureError, Packet, Packets, packets};
pub use event::{Detail, Event, Fpdu, Greeting, Problem, Sdp, Startup, What};
pub use rddp_ddp::Header;
pub use text::mode_name;
pub use unread::{Header as PacketHeader, Unread};

use connection::Connection;
use layer::{Reader, Segment};

/// The contents of a capture in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Packets.
    pub packets: usize,
    /// Packets that were not read, by the reason.
    pub unread: BTreeMap<Unread, usize>,
    /// TCP connections.
    pub connections: usize,
    /// Connections of plain TCP among them, whose octets are not read.
    pub plain: usize,
    /// Frames of MPA's startup.
    pub startups: usize,
    /// FPDUs.
    pub fpdus: usize,
    /// FPDUs among them that were not captured whole.
    pub cut_fpdus: usize,
    /// Messages of SDP.
    pub sdp: usize,
    /// Things that are wrong or cannot be read, and Terminates.
    pub problems: usize,
    /// Terminates among them, by their code, if it was captured.
    pub terminates: BTreeMap<Option<u16>, usize>,
    /// The reason why the rest of the file was not read.
    pub stopped: Option<CaptureError>,
}

impl Summary {
    fn count(&mut self, what: &What) {
        self.problems += usize::from(what.is_problem());
        match what {
            What::Startup(_) => self.startups += 1,
            What::Fpdu(fpdu) => {
                self.fpdus += 1;
                self.cut_fpdus += usize::from(fpdu.captured.is_some());
                if let Some(code) = fpdu.terminate() {
                    *self.terminates.entry(code.map(|code| code.0)).or_default() += 1;
                }
            }
            What::Sdp(_) => self.sdp += 1,
            What::PlainTcp => self.plain += 1,
            What::Problem(_) => {}
        }
    }
}

/// Decodes a capture. Calls `tell` for each event: those of one direction in order, those of all
/// connections in the order of the packets that complete them. A file that ends or becomes
/// unreadable in the middle is decoded as far as that; [`Summary::stopped`] says so.
///
/// # Errors
/// The file is no capture.
pub fn decode(file: &[u8], mut tell: impl FnMut(Event)) -> Result<Summary, CaptureError> {
    let mut summary = Summary::default();
    let mut reader = Reader::default();
    let mut decoder = Decoder::default();
    let mut tell = |event: Event, summary: &mut Summary| {
        summary.count(&event.what);
        tell(event);
    };
    for packet in packets(file)? {
        let packet = match packet {
            Ok(packet) => packet,
            Err(error) => {
                summary.stopped = Some(error);
                break;
            }
        };
        summary.packets += 1;
        let read = reader.read(&packet, |segment| {
            decoder.push(&packet, segment, &mut |event| tell(event, &mut summary));
        });
        if let Err(reason) = read {
            *summary.unread.entry(reason).or_default() += 1;
        }
    }
    for connection in &mut decoder.connections {
        connection.finish(&mut |event| tell(event, &mut summary));
    }
    if reader.fragments_left() > 0 {
        summary.unread.insert(Unread::Fragment, reader.fragments_left());
    }
    summary.connections = decoder.connections.len();
    Ok(summary)
}

/// The connections of a capture.
#[derive(Default)]
struct Decoder {
    connections: Vec<Connection>,
    /// The newest connection between two ends.
    newest: HashMap<[SocketAddr; 2], usize>,
}

impl Decoder {
    fn push(&mut self, packet: &Packet<'_>, segment: &Segment<'_>, tell: &mut dyn FnMut(Event)) {
        let mut ends = [segment.source, segment.destination];
        ends.sort_unstable();
        let known = self.newest.get(&ends).copied();
        let number = match known.filter(|number| !self.connections[*number].is_another(segment)) {
            Some(number) => number,
            None => {
                // Ports are used again: the connection before this one is over.
                if let Some(old) = known {
                    self.connections[old].finish(tell);
                }
                let number = self.connections.len();
                self.connections.push(Connection::new(number, segment, packet.is_plain));
                self.newest.insert(ends, number);
                number
            }
        };
        self.connections[number].push(packet.time, segment, tell);
    }
}
