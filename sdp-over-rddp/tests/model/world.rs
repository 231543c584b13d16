//! Two ends, the wires between them, and the binding of each end as a model: a stream of numbered
//! octets, rooms in the order of the wire, and memory that may be touched while its call lasts.

use std::collections::VecDeque;

use rddp_sdp::machine::{Config, Core, Machine, Received, SinkId, SinkState, SourceId, Tables, Urgent};
use rddp_sdp::wire::{Front, Message};

/// Octets of a stream, by their numbers.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) len: u32,
}

/// Items on a wire, in their order.
#[derive(Clone, Debug, Hash)]
pub(crate) enum Item {
    Message { front: Vec<u8>, payload: Span },
    Write { stag: u32, to: u64, span: Span },
    ReadRequest { stag: u32, to: u64, len: u32 },
    ReadResponse { span: Span },
}

/// An own `SrcAvail` and the memory behind it.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Offer {
    pub(crate) id: SourceId,
    pub(crate) stag: u32,
    pub(crate) span: Span,
    /// The call lasts: the program's memory is behind the STag. Else a copy is.
    pub(crate) in_call: bool,
}

/// A piece of the incoming stream, in its order.
#[derive(Clone, Debug, Hash)]
pub(crate) enum Piece {
    Ready { span: Span, buffer: bool },
    Reading { len: u32 },
    Sink { id: SinkId, stag: u32, len: u32, first: u64, filled: u32, taken: u32, in_call: bool },
}

#[derive(Clone, Debug, Hash)]
pub(crate) struct End {
    pub(crate) core: Core,
    pub(crate) tables: Tables,
    /// The number of the next octet of the program.
    pub(crate) next: u64,
    pub(crate) offers: Vec<Offer>,
    pub(crate) stags: u32,
    /// Reads of the peer that are not served.
    pub(crate) requests: VecDeque<(u32, u64, u32)>,
    pub(crate) rooms: VecDeque<Piece>,
    pub(crate) delivered: u64,
    pub(crate) urgent: VecDeque<u64>,
    pub(crate) wanted_size: Option<u32>,
    pub(crate) closed: bool,
    pub(crate) got_abort: bool,
}

/// Octets of a stag's range begin here, so that offsets are seen to be added.
pub(crate) fn base(stag: u32) -> u64 {
    u64::from(stag) * 0x1_0000
}

impl End {
    fn new(config: &Config, mseq: u32) -> Self {
        Self {
            core: Core::new(config).unwrap().numbered_from(mseq),
            tables: Tables::default(),
            next: 0,
            offers: vec![],
            stags: 1,
            requests: VecDeque::new(),
            rooms: VecDeque::new(),
            delivered: 0,
            urgent: VecDeque::new(),
            wanted_size: None,
            closed: false,
            got_abort: false,
        }
    }

    pub(crate) fn machine(&mut self) -> Machine<'_> {
        Machine::new(&mut self.core, Some(&mut self.tables))
    }
}

#[derive(Clone, Debug, Hash)]
pub(crate) struct World {
    pub(crate) ends: [End; 2],
    /// By the end that sends.
    pub(crate) wires: [VecDeque<Item>; 2],
    /// Messages made.
    pub(crate) messages: usize,
}

impl World {
    pub(crate) fn new(configs: [Config; 2], mseq: u32) -> Self {
        let ends = configs.map(|config| End::new(&config, mseq));
        Self { ends, wires: Default::default(), messages: 0 }
    }

    pub(crate) fn send(&mut self, from: usize, front: &Front, payload: Span) {
        self.messages += 1;
        self.wires[from].push_back(Item::Message { front: front.to_vec(), payload });
    }

    /// Takes the next item off the wire to `to`.
    pub(crate) fn deliver(&mut self, to: usize) -> bool {
        let Some(item) = self.wires[1 - to].pop_front() else { return false };
        let peer_urgent = self.ends[1 - to].urgent.clone();
        let end = &mut self.ends[to];
        match item {
            Item::Message { front, payload } => end.take(&front, payload, &peer_urgent),
            Item::Write { stag, to, span } => end.place_write(stag, to, span),
            Item::ReadRequest { stag, to, len } => end.requests.push_back((stag, to, len)),
            Item::ReadResponse { span } => end.place_response(span),
        }
        assert!(end.core.is_sound() && end.tables.is_sound(), "state is not sound");
        true
    }

    /// Serves the next Read of the peer, from what is behind the STag now.
    pub(crate) fn serve(&mut self, at: usize) -> bool {
        let end = &mut self.ends[at];
        let Some((stag, to, len)) = end.requests.pop_front() else { return false };
        let offer = end.offers.iter().find(|offer| offer.stag == stag);
        let offer = offer.expect("a Read of memory that is no longer advertised").clone();
        let offset = to.checked_sub(base(stag)).unwrap();
        assert!(offset + u64::from(len) <= offer.span.len.into(), "a Read past the advert");
        let span = Span { start: offer.span.start + offset, len };
        self.wires[at].push_back(Item::ReadResponse { span });
        true
    }
}

impl End {
    fn take(&mut self, front: &[u8], payload: Span, peer_urgent: &VecDeque<u64>) {
        let message = Message::parse(front).unwrap();
        assert_eq!(message.payload_len, payload.len as usize);
        let received = self.machine().receive(&message);
        let received = received.unwrap_or_else(|why| panic!("{why} ({message:?})"));
        let mut place = payload.len > 0;
        match received {
            Received::Data { urgent } => self.check_mark(urgent, payload, peer_urgent),
            Received::DataIntoSink { sink, urgent } => {
                self.check_mark(urgent, payload, peer_urgent);
                self.discard_sink(sink, payload);
                place = false;
            }
            Received::SinkWritten { sink, octets } => self.sink_written(sink, octets),
            Received::SinksReturned | Received::ModeChanged { .. } | Received::Disconnected => {
                self.sinks_returned();
            }
            Received::LargerBuffersWanted { size } => self.wanted_size = Some(size),
            Received::Aborted => self.got_abort = true,
            Received::NeedsTables => panic!("there are tables"),
            _ => {}
        }
        if place {
            self.rooms.push_back(Piece::Ready { span: payload, buffer: true });
        }
    }

    fn check_mark(&mut self, urgent: bool, payload: Span, peer_urgent: &VecDeque<u64>) {
        if !urgent {
            return;
        }
        let last = payload.start + u64::from(payload.len) - 1;
        assert!(peer_urgent.contains(&last), "an octet is urgent that was not");
        let delivered = self.delivered;
        assert_eq!(self.machine().urgent(), Urgent::Mark(last - delivered));
    }

    fn sink_piece(&self, wanted: SinkId) -> usize {
        let mut pieces = self.rooms.iter();
        pieces.position(|piece| matches!(piece, Piece::Sink { id, .. } if *id == wanted)).unwrap()
    }

    fn discard_sink(&mut self, sink: SinkId, payload: Span) {
        let at = self.sink_piece(sink);
        let Piece::Sink { filled, len, .. } = self.rooms[at] else { unreachable!() };
        assert_eq!(filled, 0, "a Data discards an advert that was written");
        assert!(payload.len <= len, "a Data is longer than the advert it discards");
        self.rooms[at] = Piece::Ready { span: payload, buffer: true };
        self.machine().release_sink(sink).unwrap();
    }

    fn sink_written(&mut self, sink: SinkId, octets: u32) {
        let at = self.sink_piece(sink);
        let Piece::Sink { first, filled, taken, .. } = self.rooms[at] else { unreachable!() };
        assert_eq!(filled, octets, "a RdmaWrCompl of other octets than were written");
        let span = Span { start: first + u64::from(taken), len: filled - taken };
        self.rooms[at] = Piece::Ready { span, buffer: false };
        self.machine().release_sink(sink).unwrap();
    }

    fn sinks_returned(&mut self) {
        let (mut core, mut tables) = (self.core, self.tables);
        let mut machine = Machine::new(&mut core, Some(&mut tables));
        self.rooms.retain(|piece| match piece {
            Piece::Sink { id, filled, .. } if machine.sink(*id).state == SinkState::Returned => {
                assert_eq!(*filled, 0, "an advert that was written came back");
                machine.release_sink(*id).unwrap();
                false
            }
            _ => true,
        });
        (self.core, self.tables) = (core, tables);
    }

    fn place_write(&mut self, wanted: u32, to: u64, span: Span) {
        let piece =
            self.rooms.iter_mut().find(|piece| matches!(piece, Piece::Sink { stag, .. } if *stag == wanted));
        let piece = piece.expect("a Write into memory that is no longer advertised");
        let Piece::Sink { len, first, filled, .. } = piece else { unreachable!() };
        assert_eq!(to - base(wanted), u64::from(*filled), "a Write leaves a gap");
        assert!(*filled + span.len <= *len, "a Write past the advert");
        if *filled == 0 {
            *first = span.start;
        }
        assert_eq!(*first + u64::from(*filled), span.start);
        *filled += span.len;
    }

    fn place_response(&mut self, span: Span) {
        let piece = self.rooms.iter_mut().find(|piece| matches!(piece, Piece::Reading { .. }));
        let piece = piece.expect("a Response to no Read");
        let Piece::Reading { len } = *piece else { unreachable!() };
        assert_eq!(len, span.len);
        *piece = Piece::Ready { span, buffer: false };
        self.machine().read_done(len).unwrap();
    }

    /// The program takes up to `most` octets; each must be the next of the stream.
    pub(crate) fn recv(&mut self, most: u32) -> bool {
        let mut left = most;
        while left > 0 {
            let (start, len, freed) = match self.rooms.front_mut() {
                Some(Piece::Ready { span, buffer }) => {
                    let len = span.len.min(left);
                    let start = span.start;
                    *span = Span { start: start + u64::from(len), len: span.len - len };
                    let over = span.len == 0;
                    let freed = over && *buffer;
                    if over {
                        self.rooms.pop_front();
                    }
                    (start, len, freed)
                }
                Some(Piece::Sink { first, filled, taken, .. }) if *taken < *filled => {
                    let len = (*filled - *taken).min(left);
                    let start = *first + u64::from(*taken);
                    *taken += len;
                    (start, len, false)
                }
                _ => break,
            };
            if len > 0 {
                assert_eq!(start, self.delivered, "an octet is lost, or comes twice");
            }
            self.delivered += u64::from(len);
            let mut machine = self.machine();
            machine.octets_taken(len.into());
            if freed {
                machine.buffer_freed();
            }
            left -= len;
        }
        left < most
    }
}
