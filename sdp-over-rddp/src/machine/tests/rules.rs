//! Rules one by one, with both ends at hand: what the model check cannot see, because its ends keep
//! the rules or do not care.

use super::config;
use crate::machine::{
    Abort, Blocked, Core, Half, Machine, PeerSink, Received, SourceState, Tables, Unusable, Urgent, Violation,
};
use crate::wire::{Advert, Body, Flags, Front, HEADER_LEN, Message, Mode};

struct Pair {
    cores: [Core; 2],
    tables: [Tables; 2],
}

impl Pair {
    fn new() -> Self {
        Self { cores: [super::core(); 2], tables: Default::default() }
    }

    /// A pair in Pipelined both ways.
    fn pipelined() -> Self {
        let mut pair = Self::new();
        for at in [0, 1] {
            let front = pair.at(at).change_mode(Half::Out, Mode::Pipelined).unwrap();
            pair.take(1 - at, &front).unwrap();
        }
        pair
    }

    fn at(&mut self, at: usize) -> Machine<'_> {
        Machine::new(&mut self.cores[at], Some(&mut self.tables[at]))
    }

    fn take(&mut self, at: usize, front: &Front) -> Result<Received, Violation> {
        self.at(at).receive(&Message::parse(front).unwrap())
    }

    /// Hands over the next control message of `from`, and returns what it was and what it did.
    fn control(&mut self, from: usize) -> (Message, Received) {
        let front = self.at(from).next_control().expect("nothing is due");
        (Message::parse(&front).unwrap(), self.take(1 - from, &front).unwrap())
    }

    /// A message of any kind from a peer that keeps numbers and credits, and no other rule.
    fn forge(&mut self, to: usize, body: Body, payload: usize, flags: Flags) -> Result<Received, Violation> {
        let from = 1 - to;
        let front = self.at(from).front(body, payload, flags);
        self.take(to, &front)
    }

    fn refused(&mut self, body: Body, payload: usize) -> Violation {
        self.forge(1, body, payload, Flags::empty()).unwrap_err()
    }
}

fn advert(len: u32, to: u64) -> Advert {
    Advert { len, stag: 7, to }
}

/// No acknowledgement of what was never sent, none that goes back.
#[test]
fn acknowledgements_stay_in_their_range() {
    let mut pair = Pair::new();
    let mut message = Message::new(Body::Data, 0);
    (message.header.mseq, message.header.mseq_ack) = (1, 1);
    assert_eq!(pair.at(0).receive(&message), Err(Violation::MseqAck(1)));
    let mut pair = Pair::new();
    pair.at(0).data(5, false).unwrap();
    assert_eq!(pair.at(0).receive(&message), Ok(Received::Nothing));
    (message.header.mseq, message.header.mseq_ack) = (2, 0);
    assert_eq!(pair.at(0).receive(&message), Err(Violation::MseqAck(0)));
}

/// Credits are a hard rule (C9, RFC 5041 §7.2): a message without a buffer ends the connection.
#[test]
fn a_message_finds_a_buffer() {
    let mut pair = Pair::new();
    let front = pair.at(0).data(5, false).unwrap();
    assert_eq!(pair.take(1, &front), Ok(Received::Data { urgent: false }));
    for _ in 1..64 {
        assert!(pair.forge(1, Body::Data, 5, Flags::empty()).is_ok());
    }
    assert_eq!(pair.at(1).free_bufs(), 0);
    assert_eq!(pair.refused(Body::Data, 0), Violation::NoBuffer);
}

/// Two credits stay for control, and one of those only goes for credits.
#[test]
fn data_leaves_two_credits() {
    let mut pair = Pair::new();
    let sent = std::iter::from_fn(|| pair.at(0).data(5, false).ok()).count();
    assert_eq!((sent, pair.at(0).credits()), (62, 2));
    assert_eq!(pair.at(0).data_room(), Err(Blocked::Credits));
    assert_eq!(pair.at(0).source_room(), Err(Blocked::Credits));
    pair.at(0).update_now();
    assert!(pair.at(0).next_control().is_some());
    pair.at(0).update_now();
    assert!(pair.at(0).next_control().is_none() && pair.at(0).control_due());
}

/// Half of the buffers make an update; a peer behind its `DisConn` gets none for that.
#[test]
fn updates_at_half_of_the_buffers() {
    for closes in [false, true] {
        let mut pair = Pair::new();
        for taken in 1..=40 {
            let front = pair.at(0).data(5, false).unwrap();
            pair.take(1, &front).unwrap();
            pair.at(1).buffer_freed();
            assert_eq!(pair.at(1).update_due(), taken >= 32);
        }
        if closes {
            pair.at(0).close_sending();
            assert_eq!(pair.control(0).1, Received::Disconnected);
        }
        assert_eq!(pair.at(1).control_due(), !closes);
    }
}

/// Updates are not answered by updates without end.
#[test]
fn an_update_asks_for_none() {
    let mut pair = Pair::new();
    pair.at(0).update_now();
    pair.control(0);
    assert!(!pair.at(0).control_due() && !pair.at(1).control_due());
}

/// An acknowledgement waits below a cancel while Reads are in progress (W5).
#[test]
fn a_cancel_is_acknowledged_after_the_reads() {
    let mut pair = Pair::new();
    let (id, front) = pair.at(0).advertise_source(1000, 10, 7, 0).unwrap();
    assert_eq!(pair.take(1, &front), Ok(Received::SrcAvail));
    let read = pair.at(1).next_read().unwrap();
    assert_eq!((read.to, read.left), (10, 990));
    pair.at(1).reading(100).unwrap();
    pair.at(0).cancel_sources().unwrap();
    assert_eq!(pair.control(0).1, Received::SourcesCancelled);
    assert_eq!(pair.at(1).next_read(), None);
    pair.at(1).update_now();
    assert_eq!(pair.control(1).0.header.mseq_ack, 1);
    assert_eq!(pair.at(0).data_room(), Err(Blocked::Cancelling));
    pair.at(1).read_done(100).unwrap();
    let (report, did) = pair.control(1);
    assert_eq!((report.body, report.header.mseq_ack), (Body::RdmaRdCompl { octets: 100 }, 2));
    assert_eq!(did, Received::SourceRead { source: id, done: false });
    assert_eq!(pair.control(1), (pair_send_sm(&report), Received::SourcesReturned));
    let source = pair.at(0).source(id);
    assert_eq!((source.done, source.state), (110, SourceState::Returned));
    assert_eq!(pair.at(0).data_room(), Err(Blocked::Returned));
}

fn pair_send_sm(before: &Message) -> Message {
    let mut message = Message::new(Body::SendSm, 0);
    message.header.bufs = before.header.bufs;
    message.header.mseq = before.header.mseq + 1;
    message.header.mseq_ack = before.header.mseq_ack;
    message
}

/// The answer to a sink's cancel comes from a peer that holds its acknowledgement below our
/// `SrcAvailCancel`: it answers all the same.
#[test]
fn a_held_acknowledgement_does_not_hide_an_answer() {
    let mut pair = Pair::pipelined();
    let (_, source) = pair.at(0).advertise_source(40_000, 0, 7, 0).unwrap();
    pair.take(1, &source).unwrap();
    pair.at(1).reading(10).unwrap();
    let (_, sink) = pair.at(0).advertise_sink(40_000, 8, 0).unwrap();
    pair.take(1, &sink).unwrap();
    pair.at(0).cancel_sources().unwrap();
    pair.control(0);
    // Sinks are cancelled by a message behind.
    pair.at(0).cancel_sinks().unwrap();
    pair.control(0);
    let (ack, did) = pair.control(1);
    assert_eq!((ack.body, did), (Body::SinkCancelAck, Received::SinksReturned));
}

/// An answer that came before the cancel could be seen answers an earlier one.
#[test]
fn a_late_answer_ends_no_later_cancel() {
    let mut pair = Pair::pipelined();
    let (_, sink) = pair.at(0).advertise_sink(40_000, 8, 0).unwrap();
    pair.take(1, &sink).unwrap();
    // Behind the advert, before the cancel.
    let early = pair.at(1).front(Body::SinkCancelAck, 0, Flags::empty());
    pair.at(0).cancel_sinks().unwrap();
    pair.at(0).next_control().unwrap();
    assert_eq!(pair.take(0, &early), Err(Violation::UnaskedSinkCancelAck));
}

/// Adverts hold octets, and end within the address space.
#[test]
fn adverts_do_not_wrap() {
    for (len, to) in [(0, 0), (40_000, u64::MAX - 39_999), (2, u64::MAX)] {
        let body = Body::SrcAvail { advert: advert(len, to) };
        assert_eq!(Pair::pipelined().refused(body, 0), Violation::AdvertRange { len, to });
        assert_eq!(Pair::pipelined().at(0).advertise_source(len, 0, 7, to).err(), Some(Blocked::Length));
    }
    let advert = advert(40_000, u64::MAX - 39_998);
    let body = Body::SinkAvail { advert, non_discards: 0 };
    let range = Violation::AdvertRange { len: 40_000, to: advert.to };
    assert_eq!(Pair::pipelined().refused(body, 0), range);
    let pair = &mut Pair::pipelined();
    assert_eq!(pair.at(0).advertise_sink(40_000, 7, advert.to).err(), Some(Blocked::Length));
    assert_eq!(pair.at(0).advertise_sink(32_767, 7, 0).err(), Some(Blocked::Length));
}

/// Source and sink adverts of an end count together (`MaxAdverts`), both ways.
#[test]
fn max_adverts_counts_both_kinds() {
    let mut pair = Pair::pipelined();
    pair.cores[0].peer_max_adverts = 3;
    pair.cores[1].max_adverts = 3;
    let front = pair.at(0).advertise_sink(40_000, 8, 0).unwrap().1;
    pair.take(1, &front).unwrap();
    for _ in 0..2 {
        let front = pair.at(0).advertise_source(40_000, 0, 7, 0).unwrap().1;
        pair.take(1, &front).unwrap();
    }
    assert_eq!(pair.at(0).source_room(), Err(Blocked::Adverts));
    assert_eq!(pair.at(0).advertise_sink(40_000, 8, 0).err(), Some(Blocked::Adverts));
    let body = Body::SinkAvail { advert: advert(40_000, 0), non_discards: 0 };
    assert_eq!(pair.refused(body, 0), Violation::TooManyAdverts);
}

/// A sink wins over a `SrcAvail` that crossed it, and refuses one that did not.
#[test]
fn a_source_that_has_a_sink_advertises_nothing() {
    let mut pair = Pair::pipelined();
    let front = pair.at(1).advertise_sink(40_000, 8, 0).unwrap().1;
    pair.take(0, &front).unwrap();
    assert_eq!(pair.at(0).source_room(), Err(Blocked::PeerSink));
    let body = Body::SrcAvail { advert: advert(40_000, 0) };
    assert_eq!(pair.refused(body, 0), Violation::SourceUnderSink);
}

/// `SendSm` without cause: nothing is out, or several adverts may be (A10).
#[test]
fn send_sm_needs_a_cause() {
    assert_eq!(Pair::new().refused(Body::SendSm, 0), Violation::UnaskedSendSm);
    let mut pair = Pair::pipelined();
    let front = pair.at(1).advertise_source(40_000, 0, 7, 0).unwrap().1;
    pair.take(0, &front).unwrap();
    assert_eq!(pair.at(0).refuse_source(), Err(Blocked::Mode));
    assert_eq!(pair.refused(Body::SendSm, 0), Violation::UnaskedSendSm);
}

/// Nothing that speaks of octets goes behind their end or past an advert.
#[test]
fn a_disconn_and_a_mode_change_wait_for_adverts() {
    for (body, why) in [
        (Body::DisConn, Violation::DisConnUnderSource),
        (
            Body::ModeChange { of_receivers_half: false, mode: Mode::Combined },
            Violation::ModeChangeUnderSource,
        ),
        (Body::SinkAvail { advert: advert(40_000, 0), non_discards: 0 }, Violation::PayloadUnderSource),
        (Body::Data, Violation::PayloadUnderSource),
    ] {
        let mut pair = Pair::pipelined();
        let front = pair.at(0).advertise_source(40_000, 0, 7, 0).unwrap().1;
        pair.take(1, &front).unwrap();
        let payload = if matches!(body, Body::SinkAvail { .. } | Body::Data) { 4 } else { 0 };
        assert_eq!(pair.refused(body, payload), why);
    }
}

/// A `SinkAvail` behind our `DisConn` is dropped when it crossed, and refused when not.
#[test]
fn a_sink_avail_behind_the_last_octet() {
    let mut pair = Pair::pipelined();
    let crosses = pair.at(0).advertise_sink(40_000, 8, 0).unwrap().1;
    pair.at(1).close_sending();
    let disconn = pair.at(1).next_control().unwrap();
    let dropped = Received::SinkAvail { kept: false, returned: false };
    assert_eq!(pair.take(1, &crosses), Ok(dropped));
    pair.take(0, &disconn).unwrap();
    let body = Body::SinkAvail { advert: advert(40_000, 0), non_discards: 0 };
    assert_eq!(pair.refused(body, 0), Violation::SinkAfterDisConn);
}

/// A write completes the advert when the room left is shorter than a message (K5), or when
/// nothing waits to be sent.
#[test]
fn writes_complete_early() {
    let mut pair = Pair::pipelined();
    let front = pair.at(1).advertise_sink(40_000, 8, 100).unwrap().1;
    assert_eq!(pair.take(0, &front), Ok(Received::SinkAvail { kept: true, returned: false }));
    pair.at(0).written(7_232).unwrap();
    assert_eq!(pair.at(0).peer_sink(), Some(PeerSink { stag: 8, to: 7_332, left: 32_768 }));
    assert!(!pair.at(0).control_due());
    assert_eq!(pair.at(0).data_room(), Err(Blocked::PartlyWritten));
    pair.at(0).written(1).unwrap();
    assert_eq!(pair.at(0).data_room(), Err(Blocked::Control));
    let (report, _) = pair.control(0);
    assert_eq!(report.body, Body::RdmaWrCompl { octets: 7_233 });
}

/// Urgent data: announced by any message, sent as the last of a Data, and passed once read.
#[test]
fn urgent_data_is_announced_marked_and_passed() {
    let mut pair = Pair::new();
    assert_eq!(pair.at(1).urgent(), Urgent::None);
    pair.at(0).announce_urgent();
    let front = pair.at(0).data(5, false).unwrap();
    assert_eq!(Message::parse(&front).unwrap().header.flags, Flags::OOB_PEND);
    pair.take(1, &front).unwrap();
    assert_eq!(pair.at(1).urgent(), Urgent::Announced);
    let front = pair.at(0).data(3, true).unwrap();
    assert_eq!(pair.take(1, &front), Ok(Received::Data { urgent: true }));
    assert_eq!(pair.at(1).urgent(), Urgent::Mark(7));
    pair.at(1).octets_taken(7);
    assert_eq!(pair.at(1).urgent(), Urgent::Mark(0));
    pair.at(1).octets_taken(1);
    assert_eq!(pair.at(1).urgent(), Urgent::None);
    let front = pair.at(0).data(5, false).unwrap();
    assert_eq!(Message::parse(&front).unwrap().header.flags, Flags::empty());
}

/// Larger buffers: always answered, used when larger, ignored when nobody asked.
#[test]
fn buffers_grow_on_request() {
    let mut pair = Pair::new();
    for core in &mut pair.cores {
        core.send_size = 100_000;
    }
    assert_eq!(pair.at(0).request_buffer_size(32_784), Err(Blocked::Length));
    pair.at(0).request_buffer_size(65_552).unwrap();
    assert_eq!(pair.control(0).1, Received::LargerBuffersWanted { size: 65_552 });
    assert_eq!(pair.at(0).request_buffer_size(70_000), Err(Blocked::Control));
    pair.at(1).answer_buffer_size(Some(50_000));
    assert_eq!(pair.control(1).1, Received::LongerMessages);
    assert_eq!(pair.at(0).data_room(), Ok(50_000 - HEADER_LEN));
    pair.at(0).request_buffer_size(65_552).unwrap();
    pair.control(0);
    pair.at(1).answer_buffer_size(None);
    let (answer, did) = pair.control(1);
    assert_eq!((answer.body, did), (Body::ChRcvBufAck { size: 50_000 }, Received::Nothing));
    let unasked = Body::ChRcvBufAck { size: 90_000 };
    assert_eq!(pair.forge(0, unasked, 0, Flags::empty()), Ok(Received::Nothing));
    assert_eq!(pair.at(0).data_room(), Ok(50_000 - HEADER_LEN));
    // None that makes the messages shorter again.
    pair.at(0).request_buffer_size(65_552).unwrap();
    pair.control(0);
    assert_eq!(pair.forge(0, Body::ChRcvBufAck { size: 40 }, 0, Flags::empty()), Ok(Received::Nothing));
    assert_eq!(pair.at(0).data_room(), Ok(50_000 - HEADER_LEN));
}

/// The sink's wish for a mode travels with its reports of Reads (W8).
#[test]
fn a_sink_says_which_mode_it_would_like() {
    let mut pair = Pair::new();
    let front = pair.at(0).advertise_source(1000, 10, 7, 0).unwrap().1;
    pair.take(1, &front).unwrap();
    pair.at(1).prefer_pipelined(true);
    pair.at(1).reading(990).unwrap();
    pair.at(1).read_done(990).unwrap();
    assert_eq!(pair.control(1).0.header.flags, Flags::REQ_PIPE);
    assert_eq!(pair.at(0).peer_prefers(), Mode::Pipelined);
}

/// The end that closes first takes down the transport (D2); an abort is a message only behind
/// `DisConn` (D4).
#[test]
fn the_end_of_a_connection() {
    let mut pair = Pair::new();
    assert_eq!(Pair::new().at(0).abort(), Abort::Transport);
    pair.at(0).close_sending();
    assert_eq!(pair.at(0).data_room(), Err(Blocked::Closed));
    assert_eq!(pair.control(0).1, Received::Disconnected);
    let mut aborted = Pair { ..pair };
    pair.at(1).close_sending();
    assert_eq!(pair.control(1).1, Received::Disconnected);
    assert!(pair.at(0).takes_down_transport() && !pair.at(1).takes_down_transport());

    assert_eq!(aborted.at(0).abort(), Abort::Message);
    assert_eq!(aborted.control(0).1, Received::Aborted);
    assert!(aborted.at(0).aborted() && aborted.at(1).aborted());
    assert_eq!(aborted.at(1).abort(), Abort::Transport);
}

/// A request to suspend the connection is refused.
#[test]
fn suspending_is_refused() {
    assert_eq!(Pair::new().refused(Body::SuspComm { service_id: 1 }, 0), Violation::Suspend);
    assert_eq!(Pair::new().refused(Body::SuspCommAck, 0), Violation::Suspend);
}

/// Without tables an advert is not taken, and nothing has changed.
#[test]
fn adverts_wait_for_tables() {
    let mut pair = Pair::new();
    let front = pair.at(0).advertise_source(1000, 10, 7, 0).unwrap().1;
    let message = Message::parse(&front).unwrap();
    let before = pair.cores[1];
    let mut bare = Machine::new(&mut pair.cores[1], None);
    assert_eq!(bare.receive(&message), Ok(Received::NeedsTables));
    assert_eq!(bare.advertise_source(1000, 10, 7, 0).err(), Some(Blocked::NoTables));
    assert!(bare.tables_idle());
    assert_eq!(pair.cores[1], before);
    assert_eq!(pair.take(1, &front), Ok(Received::SrcAvail));
}

/// Ends that could never talk are refused.
#[test]
fn configurations_that_cannot_work() {
    let with = |change: fn(&mut crate::machine::Config)| {
        let mut config = config();
        change(&mut config);
        Core::new(&config).unwrap_err()
    };
    assert_eq!(with(|config| config.peer_buf_size = 35), Unusable::BufferSize(35));
    assert_eq!(with(|config| config.bufs = 2), Unusable::Bufs(2));
    assert_eq!(with(|config| config.peer_max_adverts = 0), Unusable::MaxAdverts(0));
}
