//! No allocation between a message and its delivery: a caller may be in a signal handler.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use rddp_ddp::{Msn, Stag};
use rddp_iwarp::{
    Gather, OwnMessage, Receive, Receiver, Record, Refusal, Segment, Segments, Step, Target, Termination,
    push_copied, push_gathered, taken,
};
use rddp_mpa::{Deframer, Framer, Framing, Rtr, StartupError, crc32c_append};
use rddp_rdmap::{
    Event, Fault, Opcode, Place, Response, Stream, StreamConfig, TerminateCode, TerminateRepr,
    untagged_header,
};

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: hands everything on to the system's allocator and counts beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which is that of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as in `alloc`, and `ptr` is from there.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Train {
    octets: [u8; 4096],
    len: usize,
}

impl Gather for Train {
    type Mark = usize;

    fn mark(&self) -> usize {
        self.len
    }

    fn cut_back(&mut self, mark: usize) {
        self.len = mark;
    }

    fn own<R>(&mut self, len: usize, write: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        let octets = self.octets.get_mut(self.len..self.len + len)?;
        self.len += len;
        Some(write(octets))
    }
}

struct Buffer([u8; 1024]);

impl Target for Buffer {
    fn receive(&mut self) -> Receive {
        Receive::Posted(1024)
    }

    fn place(&mut self, _: &Segment, skip: usize, payload: &[u8]) -> Result<(), Fault> {
        self.0[skip..skip + payload.len()].copy_from_slice(payload);
        Ok(())
    }
}

const SEND: Event = Event::Received { length: 1000, invalidate: None, solicited: false };

/// Two Sends there and back through one train; the events.
fn exchange(framing: Framing) -> [Option<Event>; 2] {
    let (mut train, mut framer) = (Train { octets: [0; 4096], len: 0 }, Framer::new(framing));
    let mut segments = Segments::new(1448, 0);
    let mut records = [Record { end: 0, after: 0 }; 2];
    for (record, msn) in records.iter_mut().zip(1..) {
        let header = untagged_header(Opcode::Send, Stag(0), Msn(msn), 0, true);
        segments.admit(framer.fpdu_len(header.len() + 1000));
        let pushed: Result<bool, ()> = if framing.markers {
            push_copied(&mut train, &mut framer, &header, 1000, |_, dst| {
                dst.fill(7);
                Ok(())
            })
        } else {
            push_gathered(&mut train, &mut framer, &header, 1000, |train, crc| {
                Ok(train.own(1000, |octets| {
                    octets.fill(7);
                    crc32c_append(crc, octets)
                }))
            })
        };
        assert_eq!(pushed, Ok(true));
        *record = Record { end: train.len, after: msn };
    }
    assert_eq!(taken(&records, train.len - 1).owed().len(), 1);
    let mut stream = Stream::new(StreamConfig { ird: 1, ord: 1, extensions: true });
    let mut receiver = Receiver { deframer: &mut Deframer::new(framing), stream: &mut stream };
    let (mut buffer, mut at) = (Buffer([0; 1024]), 0);
    [1, 2].map(|_| match receiver.step(&mut train.octets[at..train.len], &mut buffer) {
        Ok(Step::Taken { delivered, used, .. }) => {
            at += used;
            Some(delivered.event)
        }
        _ => None,
    })
}

/// A Read of no octets there, and its Response back.
fn read(framing: Framing) -> Option<Event> {
    let config = StreamConfig { ird: 1, ord: 1, extensions: true };
    let (mut ours, mut theirs) = (Stream::new(config), Stream::new(config));
    let message = OwnMessage::ready_to_receive(Rtr::Read);
    ours.issue_read(9, Stag(0), 0, 0);
    let place = theirs.accept(&message.header, message.payload().len(), &mut || None);
    assert_eq!(place, Ok(Place::Control));
    theirs.commit(&message.header, message.payload().len(), message.payload()).ok()?;
    let Some(Response::Read(response)) = theirs.next_response() else { return None };
    let header = response.segment(128).header;
    theirs.response_done();
    let (mut train, mut framer) = (Train { octets: [0; 4096], len: 0 }, Framer::new(framing));
    assert_eq!(push_copied(&mut train, &mut framer, &header, 0, |_, _| Ok::<(), ()>(())), Ok(true));
    let mut receiver = Receiver { deframer: &mut Deframer::new(framing), stream: &mut ours };
    match receiver.step(&mut train.octets[..train.len], &mut Buffer([0; 1024])) {
        Ok(Step::Taken { delivered, .. }) => Some(delivered.event),
        _ => None,
    }
}

/// A first FPDU, a Terminate and a refusal.
fn own_messages(framing: Framing) {
    let mut out = [0; 256];
    let error = StartupError::InsufficientIrd { ord: 2, max_ird: 1 };
    assert!(matches!(Refusal::of(&error, Some(framing), false), Refusal::Terminate { .. }));
    let terminate = Termination::of(&Fault::bad_close(), None, true).terminate();
    let terminate = terminate.unwrap_or(TerminateRepr::bare(TerminateCode::LOCAL_CATASTROPHIC));
    for message in [OwnMessage::ready_to_receive(Rtr::Read), OwnMessage::terminate(&terminate)] {
        let mut framer = Framer::new(framing);
        let len = message.fpdu_len(&framer);
        message.emit(&mut framer, &mut out[..len]);
    }
}

#[test]
fn nothing_is_allocated_between_a_message_and_its_delivery() {
    for (crc, markers) in [(false, false), (true, false), (true, true)] {
        let framing = Framing { crc, markers };
        // Whatever is set up once for a process.
        exchange(framing);
        let before = COUNT.get();
        let events = exchange(framing);
        own_messages(framing);
        let done = read(framing);
        let allocated = COUNT.get() - before;
        assert_eq!((events, allocated), ([Some(SEND), Some(SEND)], 0), "{framing:?}");
        assert_eq!(done, Some(Event::ReadDone { id: 9 }));
    }
}
