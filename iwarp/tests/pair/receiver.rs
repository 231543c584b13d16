//! A receiver whose receives come late now and then, and whose large payloads are received
//! elsewhere.

use rddp_iwarp::{Delivered, Receive, Receiver, Segment, Step, Target};
use rddp_mpa::{CRC_LEN, Deframer, Framing, LENGTH_LEN, crc32c, pad_len};
use rddp_rdmap::{Event, Fault, Place, Stream};
use rddp_test_support::Random;

use crate::CONFIG;
use crate::sender::Message;

pub(crate) struct Arriving {
    deframer: Deframer,
    stream: Stream,
    staging: Vec<u8>,
    /// ULPDU of a message that waits for a receive.
    waiting: Option<Vec<u8>>,
    memory: Memory,
    messages: Vec<Message>,
}

struct Memory {
    /// Receives come one by one, and late.
    is_slow: bool,
    posted: usize,
    receive: Vec<u8>,
    region: Vec<u8>,
    good: usize,
}

impl Target for Memory {
    fn note_good_fpdu(&mut self) {
        self.good += 1;
    }

    fn receive(&mut self) -> Receive {
        if self.is_slow && self.posted == 0 {
            return Receive::Awaited;
        }
        self.posted = self.posted.saturating_sub(1);
        Receive::Posted(1 << 20)
    }

    fn place(&mut self, segment: &Segment, skip: usize, payload: &[u8]) -> Result<(), Fault> {
        let (memory, at) = match segment.place {
            Place::Receive { mo } => (&mut self.receive, mo as usize),
            Place::Write { to, .. } => (&mut self.region, to as usize),
            place => panic!("{place:?}"),
        };
        let end = at + skip + payload.len();
        memory.resize(end.max(memory.len()), 0);
        memory[at + skip..end].copy_from_slice(payload);
        Ok(())
    }
}

impl Arriving {
    pub(crate) fn new(framing: Framing, is_slow: bool) -> Self {
        let memory = Memory { is_slow, posted: 0, receive: Vec::new(), region: Vec::new(), good: 0 };
        let (deframer, stream) = (Deframer::new(framing), Stream::new(CONFIG));
        Self { deframer, stream, staging: Vec::new(), waiting: None, memory, messages: Vec::new() }
    }

    pub(crate) fn take(&mut self, octets: &[u8], random: &mut Random) {
        self.staging.extend_from_slice(octets);
        if random.below(2) == 0 {
            self.memory.posted += 1;
        }
        while self.take_one(random) {}
    }

    /// All messages, once everything has arrived.
    pub(crate) fn finish(mut self) -> Vec<Message> {
        self.memory.is_slow = false;
        while self.take_one(&mut Random::new(1)) {}
        assert!(self.staging.is_empty() && self.waiting.is_none() && self.stream.is_between_messages());
        assert!(self.memory.good >= self.messages.len());
        self.messages
    }

    fn take_one(&mut self, random: &mut Random) -> bool {
        if let Some(ulpdu) = self.waiting.take() {
            let mut receiver = Receiver { deframer: &mut self.deframer, stream: &mut self.stream };
            let Some(delivered) = receiver.segment(&ulpdu, &mut self.memory).unwrap() else {
                self.waiting = Some(ulpdu);
                return false;
            };
            self.delivered(&delivered);
            return true;
        }
        if random.below(3) == 0 && self.take_elsewhere(random) {
            return true;
        }
        let mut receiver = Receiver { deframer: &mut self.deframer, stream: &mut self.stream };
        let used = match receiver.step(&mut self.staging, &mut self.memory).unwrap() {
            Step::Need { .. } => return false,
            Step::Waits { ulpdu, used } => {
                self.waiting = Some(self.staging[ulpdu].to_vec());
                used
            }
            Step::Plain { .. } => panic!("the memory takes none by the short way"),
            Step::Taken { delivered, payload, used } => {
                assert_eq!(payload.len(), delivered.segment.payload_len);
                self.delivered(&delivered);
                used
            }
        };
        self.staging.drain(..used);
        true
    }

    /// Takes an FPDU as a user does who receives payload straight into place, but for the last
    /// octets.
    fn take_elsewhere(&mut self, random: &mut Random) -> bool {
        let mut receiver = Receiver { deframer: &mut self.deframer, stream: &mut self.stream };
        let Some(segment) = receiver.announced(&self.staging, &mut self.memory) else { return false };
        let begin = LENGTH_LEN + segment.header.len();
        let end = begin + segment.payload_len;
        let covered = end + pad_len(segment.ulpdu_len());
        let has_memory = matches!(segment.place, Place::Receive { .. } | Place::Write { .. });
        if self.staging.len() < covered + CRC_LEN || !has_memory {
            return false;
        }
        let split = begin + random.below(segment.payload_len + 1);
        if split > begin {
            self.memory.place(&segment, 0, &self.staging[begin..split]).unwrap();
        }
        let field = *self.staging[covered..].first_chunk().unwrap();
        let crc = crc32c(&self.staging[..covered]);
        let last = &self.staging[split..end];
        let delivered = receiver.received(segment, last, crc, field, &mut self.memory).unwrap();
        self.delivered(&delivered);
        self.staging.drain(..covered + CRC_LEN);
        true
    }

    fn delivered(&mut self, delivered: &Delivered) {
        let (is_send, payload) = match delivered.event {
            Event::None => return,
            Event::Received { length, .. } => {
                assert_eq!(self.memory.receive.len(), length as usize);
                (true, std::mem::take(&mut self.memory.receive))
            }
            Event::WriteDone => (false, std::mem::take(&mut self.memory.region)),
            ref event => panic!("{event:?}"),
        };
        self.messages.push(Message { is_send, payload });
    }
}
