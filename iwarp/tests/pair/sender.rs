//! A sender of Sends and Writes: trains of what fits, and what is owed first.

use rddp_ddp::{Header, Msn, Stag, cut};
use rddp_iwarp::{Gather, Record, Segments, push_copied, push_gathered, rest_ends_record, taken};
use rddp_mpa::{Framer, Framing, crc32c_append, mulpdu};
use rddp_rdmap::{Opcode, tagged_header, untagged_header};
use rddp_test_support::Random;

use crate::tcp::Tcp;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) is_send: bool,
    pub(crate) payload: Vec<u8>,
}

/// The state in which the sender goes on: message, offset in it, MSN of the next Send, framer.
#[derive(Clone)]
struct State {
    message: usize,
    offset: usize,
    msn: Msn,
    framer: Framer,
    ulpdus: usize,
}

pub(crate) struct Sender<'m> {
    messages: &'m [Message],
    emss: usize,
    state: State,
    owed: Vec<u8>,
    /// Octets from the beginning of a segment to the end of what is owed.
    unaligned: usize,
    ulpdus: Vec<usize>,
}

/// A train of few octets, so that it is full now and then.
struct Train {
    octets: Vec<u8>,
    max: usize,
}

impl Gather for Train {
    type Mark = usize;

    fn mark(&self) -> usize {
        self.octets.len()
    }

    fn cut_back(&mut self, mark: usize) {
        self.octets.truncate(mark);
    }

    fn own<R>(&mut self, len: usize, write: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        let start = self.octets.len();
        if start > 0 && start + len > self.max {
            return None;
        }
        self.octets.resize(start + len, 0xee);
        Some(write(&mut self.octets[start..]))
    }
}

impl<'m> Sender<'m> {
    pub(crate) fn new(framing: Framing, emss: usize, messages: &'m [Message]) -> Self {
        let framer = Framer::new(framing);
        let state = State { message: 0, offset: 0, msn: Msn::FIRST, framer, ulpdus: 0 };
        Self { messages, emss, state, owed: Vec::new(), unaligned: 0, ulpdus: Vec::new() }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.state.message == self.messages.len() && self.owed.is_empty()
    }

    /// ULPDU lengths of the FPDUs so far.
    pub(crate) fn ulpdus(&self) -> &[usize] {
        &self.ulpdus
    }

    /// One write: of what is owed, else of a train.
    pub(crate) fn write(&mut self, tcp: &mut Tcp, random: &mut Random) {
        if !self.owed.is_empty() {
            let ends = rest_ends_record(self.emss, self.unaligned);
            let count = tcp.write(&self.owed, ends, random);
            self.owed.drain(..count);
            return;
        }
        let mut train = Train { octets: Vec::new(), max: 1 + random.below(12 * self.emss) };
        let mut segments = Segments::new(self.emss, 0);
        let mut records = Vec::new();
        self.fill(&mut train, &mut segments, &mut records, random);
        if train.octets.is_empty() {
            return;
        }
        let ends = segments.end_record(train.octets.len());
        let count = tcp.write(&train.octets, ends, random);
        let taken = taken(&records, count);
        self.owed.extend_from_slice(&train.octets[taken.owed()]);
        self.unaligned = taken.end();
        let is_long = train.octets.len() >= self.emss && count == train.octets.len();
        if self.owed.is_empty() && !is_long {
            tcp.push();
        }
        if let Some(record) = taken.last() {
            self.state = record.after.clone();
        }
        self.ulpdus.truncate(self.state.ulpdus);
    }

    fn fill(
        &mut self,
        train: &mut Train,
        segments: &mut Segments,
        records: &mut Vec<Record<State>>,
        random: &mut Random,
    ) {
        let mut state = self.state.clone();
        let markers = state.framer.framing().markers;
        while let Some(message) = self.messages.get(state.message) {
            let segment = cut(
                message.payload.len() as u64,
                state.offset as u64,
                mulpdu(self.emss, markers),
                Header::MAX_LEN,
            );
            let header = if message.is_send {
                untagged_header(Opcode::Send, Stag(0), state.msn, state.offset as u32, segment.last)
            } else {
                tagged_header(Opcode::Write, Stag(7), state.offset as u64, segment.last)
            };
            let ulpdu_len = header.len() + segment.len;
            if !markers && !segments.admit(state.framer.fpdu_len(ulpdu_len)) {
                return;
            }
            let payload = &message.payload[state.offset..][..segment.len];
            if !push(train, &mut state.framer, &header, payload, !markers && random.below(2) == 0) {
                return;
            }
            state.offset += segment.len;
            if segment.last {
                (state.message, state.offset) = (state.message + 1, 0);
                state.msn = if message.is_send { state.msn.next() } else { state.msn };
            }
            self.ulpdus.push(ulpdu_len);
            state.ulpdus = self.ulpdus.len();
            records.push(Record { end: train.octets.len(), after: state.clone() });
        }
    }
}

fn push(train: &mut Train, framer: &mut Framer, header: &Header, payload: &[u8], gathers: bool) -> bool {
    let pushed: Result<bool, ()> = if gathers {
        push_gathered(train, framer, header, payload.len(), |train, crc| {
            train.octets.extend_from_slice(payload);
            Ok(Some(crc32c_append(crc, payload)))
        })
    } else {
        push_copied(train, framer, header, payload.len(), |at, dst| {
            dst.copy_from_slice(&payload[at..at + dst.len()]);
            Ok(())
        })
    };
    pushed.unwrap()
}
