//! A plain host made by hand on one side, and requests and completions on the other one.

mod arriving;
mod leaving;

use std::cell::RefCell;

use rddp_ddp::Header;
use rddp_iwarp::{OwnMessage, Receive, Segment, Target};
use rddp_mpa::{Framer, Framing};
use rddp_rdma::{Operation, QpNum, Remote, Sge};
use rddp_rdmap::{
    AtomicOp, AtomicRequestRepr, Fault, Place, ReadRequestRepr, SEND_QUEUE, SendCounters, TerminateCode,
    TerminateRepr, tagged_header, untagged_header,
};
use rddp_test_support::pattern;

use super::shape::{PIECE, SINKS};
use super::*;

const FRAMING: Framing = Framing { crc: true, markers: false };
const MAX_MESSAGE: usize = 4096;
const EMSS: usize = 1000;
const IRD: u32 = 200;
const START: u64 = 0x7000_0000;
const SHAPE: Shape = Shape { max_message: MAX_MESSAGE, start: START, local: Stag(1), sink: Stag(2) };

struct Ram(RefCell<Vec<u8>>);

impl Memory for Ram {
    fn write(&self, at: usize, octets: &[u8]) {
        self.0.borrow_mut()[at..at + octets.len()].copy_from_slice(octets);
    }

    fn read(&self, at: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.0.borrow()[at..at + into.len()]);
    }
}

/// A plain host, and a bridge with its memory.
struct World {
    bridge: Bridge,
    memory: Ram,
    framer: Framer,
    counters: SendCounters,
    deframer: Deframer,
    stream: Stream,
    host: Host,
}

/// Memory of the plain host.
#[derive(Default)]
struct Host {
    sink: Vec<u8>,
    message: Vec<u8>,
}

impl Target for Host {
    fn receive(&mut self) -> Receive {
        Receive::Posted(1 << 20)
    }

    fn place(&mut self, segment: &Segment, _skip: usize, payload: &[u8]) -> Result<(), Fault> {
        match segment.place {
            Place::Sink { .. } => self.sink.extend_from_slice(payload),
            Place::Receive { .. } => self.message.extend_from_slice(payload),
            place => panic!("{place:?}"),
        }
        Ok(())
    }
}

fn world() -> World {
    world_with(None)
}

/// Makes one whose bridge is the initiator, if it has a first message.
fn world_with(first: Option<OwnMessage>) -> World {
    let terms = Terms { rx: FRAMING, tx: FRAMING, ird: IRD, emss: EMSS, first };
    World {
        bridge: Bridge::new(&terms, SHAPE),
        memory: Ram(RefCell::new(vec![0; Shape::len_for(MAX_MESSAGE)])),
        framer: Framer::new(FRAMING),
        counters: SendCounters::new(),
        deframer: Deframer::new(FRAMING),
        stream: Stream::new(StreamConfig { ird: 0, ord: IRD + 1, extensions: true }),
        host: Host::default(),
    }
}

impl World {
    /// Has an FPDU of the plain host arrive.
    fn arrive(&mut self, header: &Header, payload: &[u8]) -> Result<(), Stop> {
        let mut octets = vec![0; self.framer.fpdu_len(header.len() + payload.len())];
        let fill = |at: usize, into: &mut [u8]| into.copy_from_slice(&payload[at..at + into.len()]);
        self.framer.emit_into(&header.octets(), payload.len(), fill, &mut octets);
        let used = self.bridge.arrived(&mut octets, &self.memory)?;
        assert_eq!(used, octets.len());
        Ok(())
    }

    fn write(&mut self, stag: u32, to: u64, payload: &[u8], last: bool) -> Result<(), Stop> {
        self.arrive(&tagged_header(Opcode::Write, Stag(stag), to, last), payload)
    }

    fn send(&mut self, opcode: Opcode, payload: &[u8]) -> Result<(), Stop> {
        let msn = self.counters.next(SEND_QUEUE);
        self.arrive(&untagged_header(opcode, Stag(77), msn, 0, true), payload)
    }

    /// Asks for a Read into a sink of the plain host.
    fn read(&mut self, src_to: u64, size: u32) -> Result<(), Stop> {
        let request = ReadRequestRepr { sink_stag: Stag(5), sink_to: 6, size, src_stag: Stag(9), src_to };
        self.stream.issue_read(src_to, request.sink_stag, request.sink_to, size);
        let msn = self.counters.next(rddp_rdmap::REQUEST_QUEUE);
        self.arrive(&untagged_header(Opcode::ReadRequest, Stag(0), msn, 0, true), &request.octets())
    }

    fn atomic(&mut self, op: AtomicOp, to: u64) -> Result<(), Stop> {
        let request_id = self.stream.issue_atomic(1);
        let request = AtomicRequestRepr { op, request_id, stag: Stag(9), to };
        let msn = self.counters.next(rddp_rdmap::REQUEST_QUEUE);
        self.arrive(&untagged_header(Opcode::AtomicRequest, Stag(0), msn, 0, true), &request.octets())
    }

    /// Completes the oldest request of the device.
    fn complete(&mut self, status: Status) -> Result<(), Stop> {
        self.bridge.completed(&completion(0, status, Completed::Send, 0))
    }

    /// Returns what has left for the plain host, as events there.
    fn left(&mut self) -> Vec<Event> {
        let mut train = Vec::new();
        self.bridge.leave(&mut train, &self.memory);
        assert!(train.len() < (64 << 10) + 2 * EMSS, "{} octets in a train", train.len());
        self.events(train)
    }

    fn events(&mut self, mut train: Vec<u8>) -> Vec<Event> {
        let (mut at, mut events) = (0, Vec::new());
        while at < train.len() {
            let mut receiver = Receiver { deframer: &mut self.deframer, stream: &mut self.stream };
            let Step::Taken { delivered, used, .. } =
                receiver.step(&mut train[at..], &mut self.host).unwrap()
            else {
                panic!("whole FPDUs");
            };
            at += used;
            if delivered.event != Event::None {
                events.push(delivered.event);
            }
        }
        events
    }

    /// Returns the code that the plain host gets for an end.
    fn terminate(&mut self, stop: &Stop) -> TerminateRepr {
        let mut train = Vec::new();
        self.bridge.terminate(&stop.trouble().expect("there is a Terminate"), &mut train);
        match &self.events(train)[..] {
            [Event::Terminated(terminate)] => terminate.clone(),
            events => panic!("{events:?}"),
        }
    }
}

fn completion(wr_id: u64, status: Status, completed: Completed, byte_len: u32) -> Completion {
    Completion {
        wr_id,
        status,
        completed,
        byte_len,
        qp: QpNum(1),
        invalidated: None,
        immediate: None,
        source: None,
        solicited: false,
    }
}

fn there(to: u64) -> Remote {
    Remote { stag: Stag(9), to }
}

fn local(at: usize, len: u64) -> Sge {
    Sge { stag: SHAPE.local, addr: START + at as u64, len }
}
