//! One connection, as values: what the FPDUs of the plain host become at the device, and what the
//! device's completions become at the plain host.
//!
//! | file | subject |
//! |---|---|
//! | `arriving` | FPDUs become requests of the device |
//! | `leaving` | completions become Sends, Responses and Immediate Data |
//! | `outcome` | the end: faults, and the Terminate for each |
//! | `shape` | memory, terms and requests |
//!
//! STags and Tagged Offsets go on as they are, as keys and addresses of the device's host, which
//! checks them. There are three parts of one piece of registered memory ([`Shape`]): what is on
//! its way to the device, what its Reads and atomics bring, and what it receives. An FPDU is taken
//! when there is room for whatever it may be ([`Bridge::has_room`]), and a receive is posted again
//! when its message has left: so neither side makes a gateway keep more than that memory.

mod arriving;
mod leaving;
mod outcome;
mod shape;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use rddp_iwarp::{Receiver, Step, Trouble};
use rddp_mpa::Deframer;
use rddp_rdma::{Completed, Completion, RecvWr, SendWr, Stag, Status};
use rddp_rdmap::{Event, Offending, Opcode, Response, Stream, StreamConfig, TerminateCode};

use self::arriving::{Arriving, Inbound, Work};
use self::leaving::{Message, Outbound};
pub(crate) use self::outcome::Stop;
use self::outcome::{fault_of, refusal_of};
use self::shape::{Memory, Posted, opcode_of};
pub(crate) use self::shape::{RECEIVES, SENDS, Shape, Terms};

/// Numbers of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Writes of the plain host.
    pub writes: u64,
    /// Reads of the plain host.
    pub reads: u64,
    /// Atomics of the plain host.
    pub atomics: u64,
    /// Sends and Immediate Data of the plain host.
    pub sends: u64,
    /// Sends and Immediate Data of the device's host.
    pub receives: u64,
    /// Octets of payload from the plain host.
    pub octets_in: u64,
    /// Octets of payload to the plain host.
    pub octets_out: u64,
}

/// The state of one connection, which knows neither socket nor device.
#[derive(Debug)]
pub(crate) struct Bridge {
    deframer: Deframer,
    stream: Stream,
    inbound: Inbound,
    outbound: Outbound,
    posted: VecDeque<Posted>,
    counts: Counts,
}

impl Bridge {
    pub(crate) fn new(terms: &Terms, shape: Shape) -> Self {
        // A Read may be the first FPDU, and is answered.
        let first = terms.first.as_ref().and_then(|first| opcode_of(&first.header));
        let reads = first == Some(Opcode::ReadRequest);
        let config = StreamConfig { ird: terms.ird, ord: u32::from(reads), extensions: true };
        let mut stream = Stream::new(config);
        if reads {
            stream.issue_read(0, Stag(0), 0, 0);
        }
        Bridge {
            deframer: Deframer::new(terms.rx),
            stream,
            inbound: Inbound::new(shape, terms.first.is_some()),
            outbound: Outbound::new(terms, shape),
            posted: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns whether another FPDU can be taken, whatever it is.
    pub(crate) fn has_room(&self) -> bool {
        // Half of the send queue is left to Reads, which wait for their turn behind Writes.
        self.inbound.has_room() && self.inbound.work.len() + self.posted.len() < SENDS / 2
    }

    /// Takes the FPDU at the front of some octets, if it is whole, and returns how many to drop: 0
    /// if more are to come first.
    pub(crate) fn arrived(&mut self, octets: &mut [u8], memory: &impl Memory) -> Result<usize, Stop> {
        let mut receiver = Receiver { deframer: &mut self.deframer, stream: &mut self.stream };
        let mut target = Arriving { inbound: &mut self.inbound, memory };
        match receiver.step(octets, &mut target)? {
            Step::Taken { delivered, used, .. } => {
                let (segment, event) = (delivered.segment, delivered.event);
                let is_first = self.counts.octets_in == 0;
                self.counts.octets_in += segment.payload_len as u64;
                let offending = Offending::new(segment.header, segment.payload_len);
                self.take(event, offending, segment.payload_len > 0, is_first)?;
                Ok(used)
            }
            // No segment is taken by the short way, or left.
            Step::Need { .. } | Step::Plain { .. } | Step::Waits { .. } => Ok(0),
        }
    }

    /// Has the device do what a message asks for.
    fn take(
        &mut self,
        event: Event,
        offending: Offending,
        has_octets: bool,
        is_first: bool,
    ) -> Result<(), Stop> {
        match event {
            Event::None => return Ok(()),
            Event::Terminated(terminate) => return Err(Stop::Terminated(terminate.code)),
            _ => self.inbound.close_write(),
        }
        match event {
            // One without octets goes nowhere.
            Event::WriteDone => self.counts.writes += u64::from(has_octets),
            Event::Received { length, invalidate, solicited } => {
                self.counts.sends += 1;
                self.inbound.send(length as usize, invalidate, solicited, offending);
            }
            Event::Immediate { data, solicited } => {
                self.counts.sends += 1;
                self.inbound.immediate(data, solicited, offending)?;
            }
            Event::InboundRequest => match self.stream.responses().last() {
                Some(Response::Read(read)) => {
                    self.counts.reads += 1;
                    if is_first && read.request.size == 0 {
                        // An initiator is ready. The device's host may answer no Reads at all.
                        let place = self.inbound.sinks.take(1);
                        self.outbound.answers.extend(place.map(|at| (at, 0)));
                    } else {
                        self.inbound.read(read);
                    }
                }
                Some(Response::Atomic(atomic)) => {
                    self.counts.atomics += 1;
                    self.inbound.atomic(atomic)?;
                }
                None => {}
            },
            // The answer to this end's first FPDU.
            _ => {}
        }
        Ok(())
    }

    /// Returns whether no message of the plain host's is half received.
    pub(crate) fn is_between_messages(&self) -> bool {
        self.stream.is_between_messages()
    }

    /// Gives all octets of a Write to the device that have come, though the rest has not.
    pub(crate) fn no_more(&mut self) {
        self.inbound.close_write();
    }

    /// Takes the next request for the device's send queue, which is to be posted now.
    pub(crate) fn next_request(&mut self) -> Option<SendWr> {
        if self.posted.len() >= SENDS {
            return None;
        }
        let Work { request, posted } = self.inbound.next()?;
        self.posted.push_back(posted);
        Some(request)
    }

    /// Returns the end of a connection whose last request the device did not take. It gets none of
    /// those that came behind.
    pub(crate) fn refused(&mut self, error: rddp_verbs_device::PostError) -> Stop {
        self.inbound.forget_requests();
        let offending = self.posted.pop_back().map(|posted| posted.offending);
        refusal_of(error, offending)
    }

    /// Takes the next receive that is to be posted.
    pub(crate) fn next_receive(&mut self) -> Option<RecvWr> {
        self.outbound.next_receive()
    }

    /// Notes a completion of the device's.
    pub(crate) fn completed(&mut self, completion: &Completion) -> Result<(), Stop> {
        if matches!(completion.completed, Completed::Receive | Completed::ReceiveImmediate) {
            return self.received(completion);
        }
        let Some(posted) = self.posted.pop_front() else { return Ok(()) };
        if completion.status != Status::Success {
            return fault_of(completion.status, posted.kind, Some(posted.offending));
        }
        match (posted.kind, posted.place) {
            (Completed::Read | Completed::FetchAdd, Some(place)) => self.outbound.answers.push_back(place),
            (_, Some((at, _))) => self.inbound.outgoing.free(at),
            (_, None) => {}
        }
        Ok(())
    }

    fn received(&mut self, completion: &Completion) -> Result<(), Stop> {
        if completion.status != Status::Success {
            return fault_of(completion.status, completion.completed, None);
        }
        if completion.immediate.is_some() && completion.byte_len > 0 {
            return Err(Stop::ImmediateWithOctets);
        }
        self.counts.receives += 1;
        self.outbound.messages.push_back(Message::of(completion));
        Ok(())
    }

    /// Appends FPDUs to an empty train, as far as there is something to send and the train is not
    /// long. Returns whether the train has to end TCP's segment.
    pub(crate) fn leave(&mut self, train: &mut Vec<u8>, memory: &impl Memory) -> bool {
        if !self.inbound.may_send {
            return false;
        }
        let ends = self.outbound.leave(&mut self.stream, &mut self.inbound.sinks, train, memory);
        self.counts.octets_out += self.outbound.take_octets();
        ends
    }

    /// Appends the Terminate that the plain host is owed, if it is, and drops all else. Returns the
    /// Terminate's code.
    pub(crate) fn terminate(&mut self, trouble: &Trouble, train: &mut Vec<u8>) -> Option<TerminateCode> {
        self.stream.fail();
        self.outbound.terminate(trouble, self.inbound.may_send, train)
    }

    /// Returns whether nothing of the plain host's is on its way to the device, or unanswered.
    pub(crate) fn is_quiet(&self) -> bool {
        self.inbound.is_empty() && self.posted.is_empty() && self.stream.inbound() == 0
    }

    /// Returns whether the plain host may be sent something: RFC 5044 §7.1.2.
    pub(crate) fn may_send(&self) -> bool {
        self.inbound.may_send
    }

    /// Returns whether there is something for the plain host that may leave.
    pub(crate) fn has_more(&self) -> bool {
        self.inbound.may_send && self.outbound.has_more()
    }
}
