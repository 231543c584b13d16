//! From what was said to packets, and to what `check.py` compares them with.

use std::io::{self, Write};

use rddp_mpa::{Deframer, Framing, Step};
use rddp_rnic::Negotiated;
use serde_json::{Value, json};

use crate::meant::Expected;
use crate::pcap::Capture;
use crate::relay::{Side, Talk};

/// Startup frames as they were asked for.
pub struct Startup {
    pub request: Value,
    pub reply: Value,
}

/// One side's octets that are no packet yet.
struct Stream<'a> {
    side: Side,
    octets: Vec<u8>,
    started: bool,
    deframer: Deframer,
    position: u64,
    startup: &'a Value,
    expected: Expected,
}

impl Stream<'_> {
    /// The next startup frame or FPDU, if it is all there, and what it has to be.
    fn next(&mut self) -> Result<Option<(Vec<u8>, Value)>, String> {
        if !self.started {
            let Some(length) = self.octets.get(18..20) else { return Ok(None) };
            let total = 20 + usize::from(u16::from_be_bytes([length[0], length[1]]));
            if self.octets.len() < total {
                return Ok(None);
            }
            self.started = true;
            let kind = if self.side == Side::Initiator { "request" } else { "reply" };
            let frame: Vec<u8> = self.octets.drain(..total).collect();
            return Ok(Some((frame, json!({"frame": kind, "stream_pos": 0, "fields": self.startup}))));
        }
        let mut copy = self.octets.clone();
        match self.deframer.step(&mut copy).map_err(|error| error.to_string())? {
            Step::Need { .. } => Ok(None),
            Step::Fpdu { ulpdu, used } => {
                let fields = self.expected.fpdu(ulpdu.len())?;
                let position = self.position;
                self.position += used as u64;
                let frame: Vec<u8> = self.octets.drain(..used).collect();
                Ok(Some((frame, json!({"frame": "fpdu", "stream_pos": position, "fields": fields}))))
            }
        }
    }
}

/// Writes the capture and the list of what its frames have to be.
pub fn write(
    talk: Talk,
    negotiated: &Negotiated,
    startup: &Startup,
    expected: [Expected; 2],
    pcap: impl Write,
    mut list: impl Write,
) -> io::Result<()> {
    let mut capture = Capture::new(pcap)?;
    let [of_initiator, of_responder] = expected;
    // `negotiated` is the initiator's view.
    let stream = |side, markers, startup, expected| Stream {
        side,
        octets: Vec::new(),
        started: false,
        deframer: Deframer::new(Framing { crc: negotiated.crc, markers }),
        position: 0,
        startup,
        expected,
    };
    let mut streams = [
        stream(Side::Initiator, negotiated.markers_tx, &startup.request, of_initiator),
        stream(Side::Responder, negotiated.markers_rx, &startup.reply, of_responder),
    ];
    let mut frames = Vec::new();
    for (side, octets) in talk {
        let stream = &mut streams[if side == Side::Initiator { 0 } else { 1 }];
        stream.octets.extend(octets);
        while let Some((frame, mut meant)) = stream.next().map_err(io::Error::other)? {
            capture.segment(side, &frame)?;
            meant["dir"] = json!(if side == Side::Initiator { "i2r" } else { "r2i" });
            meant["hex"] = json!(frame.iter().map(|octet| format!("{octet:02x}")).collect::<String>());
            frames.push(meant);
        }
    }
    for stream in &streams {
        if !stream.expected.is_empty() || !stream.octets.is_empty() {
            return Err(io::Error::other(format!("{:?}: not all that was meant was sent", stream.side)));
        }
    }
    serde_json::to_writer(&mut list, &frames)?;
    list.write_all(b"\n")
}
