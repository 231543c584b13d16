//! A decoder of captures: the messages of MPA, DDP, RDMAP and SDP in the TCP streams of a file.
//!
//! [`decode`] takes a pcap or pcapng file as octets and tells [`Event`]s: the frames of MPA's
//! startup, each FPDU, and on connections whose private data is a Hello, each message of SDP.
//! Segments may be out of order or come twice. A fault is an event, too, and what comes behind it
//! is read as far as it is certain where it begins: behind an FPDU with a bad CRC it is, behind
//! octets that are missing, or a bad marker, it is not.
//!
//! | file | subject |
//! |---|---|
//! | `capture` | pcap and pcapng: packets |
//! | `link` | link and IP headers: TCP segments |
//! | `reorder` | one direction of a TCP stream |
//! | `connection` | a connection: MPA's startup, then FPDUs both ways |
//! | `direction` | one direction's FPDUs, and the messages of SDP in them |
//! | `event`, `text` | what is told, as values and as text |
#![forbid(unsafe_code)]
#![warn(clippy::unwrap_used)]

mod capture;
mod connection;
mod direction;
mod event;
mod link;
mod reorder;
mod text;

use core::net::SocketAddr;
use std::collections::HashMap;

pub use capture::{CaptureError, Packet, Packets, packets};
pub use event::{Detail, Event, Fpdu, Greeting, Problem, Sdp, Startup, What};
pub use rddp_ddp::Header;
pub use text::mode_name;

use connection::Connection;
use link::{Segment, segment};

/// The contents of a capture in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Packets.
    pub packets: usize,
    /// Packets that are no TCP segment in one piece, or have a link header that is not known.
    pub others: usize,
    /// TCP connections.
    pub connections: usize,
    /// FPDUs.
    pub fpdus: usize,
    /// Messages of SDP.
    pub sdp: usize,
    /// Things that are wrong or cannot be read.
    pub problems: usize,
}

/// Decodes a capture. Calls `tell` for each event: those of one direction in order, those of all
/// connections in the order of the packets that complete them.
///
/// # Errors
/// The file is no capture, or ends or becomes unreadable in the middle; events of what was read
/// have been told.
pub fn decode(file: &[u8], mut tell: impl FnMut(Event)) -> Result<Summary, CaptureError> {
    let mut summary = Summary::default();
    let mut decoder = Decoder::default();
    let mut tell = |event: Event, summary: &mut Summary| {
        match event.what {
            What::Startup(_) => {}
            What::Fpdu(_) => summary.fpdus += 1,
            What::Sdp(_) => summary.sdp += 1,
            What::Problem(_) => summary.problems += 1,
        }
        tell(event);
    };
    let mut outcome = Ok(());
    for packet in packets(file)? {
        let packet = match packet {
            Ok(packet) => packet,
            Err(error) => {
                outcome = Err(error);
                break;
            }
        };
        summary.packets += 1;
        match segment(&packet) {
            Some(segment) => decoder.push(packet.time, &segment, &mut |event| tell(event, &mut summary)),
            None => summary.others += 1,
        }
    }
    for connection in &mut decoder.connections {
        connection.finish(&mut |event| tell(event, &mut summary));
    }
    summary.connections = decoder.connections.len();
    outcome.map(|()| summary)
}

/// The connections of a capture.
#[derive(Default)]
struct Decoder {
    connections: Vec<Connection>,
    /// The newest connection between two ends.
    newest: HashMap<[SocketAddr; 2], usize>,
}

impl Decoder {
    fn push(&mut self, time: core::time::Duration, segment: &Segment<'_>, tell: &mut dyn FnMut(Event)) {
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
                self.connections.push(Connection::new(number, segment));
                self.newest.insert(ends, number);
                number
            }
        };
        self.connections[number].push(time, segment, tell);
    }
}
