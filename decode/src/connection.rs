//! A TCP connection: MPA's startup, then FPDUs both ways (RFC 5044 §7.1, §4).

use core::net::SocketAddr;
use core::time::Duration;

use rddp_mpa::{Frame, FrameKind, Framing, Parsed, Revision};
use rddp_sdp::wire::{Hello, HelloAck};

use crate::direction::Direction;
use crate::event::{Event, Greeting, Problem, Startup, What};
use crate::layer::Segment;
use crate::reorder::Reorder;
use crate::stream::{Hole, Stream};

/// A connection, from its first segment to its last.
#[derive(Debug)]
pub(crate) struct Connection {
    number: usize,
    /// The ends, in the order in which they sent.
    ends: [SocketAddr; 2],
    halves: [Half; 2],
    /// The frames of the startup that have come, by their sender.
    frames: [Option<Terms>; 2],
    /// The messages of the connection are SDP's.
    is_sdp: bool,
    /// The connection is plain TCP, and that is still to be told.
    is_plain: bool,
    /// Nothing more is read.
    is_over: bool,
    has_finished: bool,
    time: Duration,
}

/// A direction of a connection: its octets, and what has been read of them.
#[derive(Debug, Default)]
struct Half {
    tcp: Reorder,
    /// Octets that are in order and were not used yet.
    octets: Stream,
    /// FPDUs, once the startup is through.
    fpdus: Option<Direction>,
}

/// The part of a frame of the startup that decides about FPDUs.
#[derive(Clone, Copy, Debug)]
struct Terms {
    kind: FrameKind,
    markers: bool,
    crc: bool,
}

impl Connection {
    pub(crate) fn new(number: usize, first: &Segment<'_>, is_plain: bool) -> Self {
        Self {
            number,
            ends: [first.source, first.destination],
            halves: Default::default(),
            frames: [None; 2],
            is_sdp: false,
            is_plain,
            is_over: false,
            has_finished: false,
            time: Duration::ZERO,
        }
    }

    /// Returns whether a segment begins another connection between the same ends.
    pub(crate) fn is_another(&self, segment: &Segment<'_>) -> bool {
        segment.syn && self.halves[self.side(segment)].tcp.is_of_another(segment.seq)
    }

    fn side(&self, segment: &Segment<'_>) -> usize {
        usize::from(self.ends[0] != segment.source)
    }

    /// Takes a segment.
    pub(crate) fn push(&mut self, time: Duration, segment: &Segment<'_>, tell: &mut dyn FnMut(Event)) {
        self.time = time;
        let side = self.side(segment);
        if std::mem::take(&mut self.is_plain) {
            self.is_over = true;
            tell(self.stamp(time, side).event(What::PlainTcp));
        }
        let tcp = &mut self.halves[side].tcp;
        let mut seq = segment.seq;
        if segment.syn {
            tcp.begin(seq);
            seq = seq.wrapping_add(1);
        }
        tcp.push(time, seq, segment.payload, segment.cut);
        while let Some(piece) = self.halves[side].tcp.pop() {
            if !self.is_over {
                self.halves[side].octets.push(&piece.octets, piece.cut);
                self.read(time, side, tell);
            }
        }
    }

    /// Reads as much as can be read, of both directions: the frame of one may be awaited by the
    /// other.
    fn read(&mut self, time: Duration, side: usize, tell: &mut dyn FnMut(Event)) {
        if self.halves[side].fpdus.is_none() && self.frames[side].is_none() {
            self.startup(time, side, tell);
        }
        for side in [side, 1 - side] {
            self.fpdus(time, side, tell);
        }
    }

    fn fpdus(&mut self, time: Duration, side: usize, tell: &mut dyn FnMut(Event)) {
        let stamp = self.stamp(time, side);
        let half = &mut self.halves[side];
        if let Some(fpdus) = &mut half.fpdus {
            fpdus.take(&mut half.octets, &mut |what| tell(stamp.event(what)));
        }
    }

    fn startup(&mut self, time: Duration, side: usize, tell: &mut dyn FnMut(Event)) {
        let stamp = self.stamp(time, side);
        let stream = &mut self.halves[side].octets;
        let mut octets = stream.front().to_vec();
        let is_reply = self.frames[1 - side].is_some_and(|terms| terms.kind == FrameKind::Request)
            || octets.starts_with(b"MPA ID Rep");
        let kind = if is_reply { FrameKind::Reply } else { FrameKind::Request };
        let captured = octets.len();
        let mut parsed = Frame::parse(kind, &octets);
        // Octets that were not captured may be all that it lacks.
        if let Ok(Parsed::Need { total }) = parsed
            && let Some(hole) = stream.hole(total)
        {
            if captured < Frame::HEADER_LEN {
                self.is_over = true;
                let Hole { at, octets } = hole;
                return tell(stamp.event(What::Problem(Problem::NotCaptured { at, octets })));
            }
            if stream.len() >= total as u64 {
                octets.resize(total, 0);
                parsed = Frame::parse(kind, &octets);
            }
        }
        let (frame, used) = match parsed {
            Ok(Parsed::Need { .. }) => return,
            Ok(Parsed::Frame { frame, used }) => (frame, used),
            Err(error) => {
                self.is_over = true;
                let is_whole = self.halves[side].tcp.has_beginning();
                let problem = if is_whole { Problem::NotMpa(error) } else { Problem::NoBeginning };
                return tell(stamp.event(What::Problem(problem)));
            }
        };
        let private_data_len = frame.private_data.len();
        let in_front = used - private_data_len;
        let private_data = &frame.private_data[..captured.saturating_sub(in_front).min(private_data_len)];
        let is_sdp = is_greeting(kind, private_data, private_data_len);
        let (greeting, problem) =
            if is_sdp && captured >= used { greeting(kind, private_data) } else { (None, None) };
        self.is_sdp |= is_sdp && problem.is_none() && kind == FrameKind::Request;
        self.is_over |= frame.rejected;
        self.frames[side] = Some(Terms { kind, markers: frame.markers, crc: frame.crc });
        tell(stamp.event(What::Startup(Startup {
            kind,
            markers: frame.markers,
            crc: frame.crc,
            rejected: frame.rejected,
            revision: if frame.revision == Revision::One { 1 } else { 2 },
            enhanced: frame.enhanced.filter(|_| captured >= in_front),
            private_data: private_data.to_vec(),
            private_data_len,
            greeting,
        })));
        if let Some(problem) = problem {
            tell(stamp.event(What::Problem(problem)));
        }
        self.halves[side].octets.skip(used as u64);
        self.begin();
    }

    /// Begins with FPDUs, once both frames have come.
    fn begin(&mut self) {
        let [Some(one), Some(other)] = self.frames else { return };
        if self.is_over {
            return;
        }
        // RFC 5044 §7.1.1: M is what an end wants to receive; CRCs are used when either end wants
        // them.
        let crc = one.crc || other.crc;
        for (half, receiver) in self.halves.iter_mut().zip([other, one]) {
            let framing = Framing { crc, markers: receiver.markers };
            half.fpdus = Some(Direction::new(framing, self.is_sdp));
        }
    }

    /// Ends the connection: tells what is missing, and what was cut off.
    pub(crate) fn finish(&mut self, tell: &mut dyn FnMut(Event)) {
        if self.has_finished {
            return;
        }
        self.has_finished = true;
        for side in 0..2 {
            let stamp = self.stamp(self.time, side);
            let mut tell = |what| tell(stamp.event(what));
            let is_alone = self.frames[side].is_some() && self.frames[1 - side].is_none();
            let half = &mut self.halves[side];
            if self.is_over {
                continue;
            }
            if let Some(gap) = half.tcp.gap() {
                tell(What::Problem(Problem::Missing { at: gap.at, octets: gap.octets }));
            } else if let Some(fpdus) = &mut half.fpdus {
                fpdus.finish(half.octets.len(), &mut tell);
            } else if is_alone && half.octets.len() > 0 {
                tell(What::Problem(Problem::OneDirection));
            } else if half.octets.len() > 0 {
                tell(What::Problem(Problem::StartupTruncated { have: half.octets.len() }));
            }
        }
    }

    fn stamp(&self, time: Duration, side: usize) -> Stamp {
        Stamp { time, connection: self.number, from: self.ends[side], to: self.ends[1 - side] }
    }
}

/// The time and the ends of something that was sent.
#[derive(Clone, Copy)]
struct Stamp {
    time: Duration,
    connection: usize,
    from: SocketAddr,
    to: SocketAddr,
}

impl Stamp {
    fn event(self, what: What) -> Event {
        let Self { time, connection, from, to } = self;
        Event { time, connection, from, to, what }
    }
}

/// Returns whether private data, of which the front may be all that was captured, has the MID and
/// the length of a message of SDP.
fn is_greeting(kind: FrameKind, front: &[u8], len: usize) -> bool {
    let (whole, mid) = match kind {
        FrameKind::Request => (Hello::LEN, 0),
        FrameKind::Reply => (HelloAck::LEN, 1),
    };
    len == whole
        && front.first() == Some(&mid)
        && front.get(4..8).is_none_or(|field| field == (whole as u32).to_be_bytes())
}

/// Reads the message of SDP that private data is.
fn greeting(kind: FrameKind, private_data: &[u8]) -> (Option<Greeting>, Option<Problem>) {
    let read = match kind {
        FrameKind::Request => Hello::parse(private_data).map(Greeting::Hello),
        FrameKind::Reply => HelloAck::parse(private_data).map(Greeting::HelloAck),
    };
    match read {
        Ok(greeting) => (Some(greeting), None),
        Err(error) => (None, Some(Problem::Greeting { error })),
    }
}
