//! Rules of adverts and their cancels, one by one.

use super::pair::{Pair, advert};
use crate::machine::{Blocked, Half, PeerSink, Received, SourceState, Violation};
use crate::wire::{Body, Flags, Message, Mode};

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

/// A source answers a sink's cancel when it dropped an advert, and only then: reports of what was
/// written are answer enough (X5).
#[test]
fn a_cancel_is_answered_when_something_was_dropped() {
    for adverts in [0, 1, 2] {
        let mut pair = Pair::pipelined();
        for _ in 0..adverts {
            let front = pair.at(0).advertise_sink(40_000, 8, 0).unwrap().1;
            pair.take(1, &front).unwrap();
        }
        let _ = pair.at(1).written(10);
        pair.forge(1, Body::SinkAvailCancel, 0, Flags::empty()).unwrap();
        let due = std::iter::from_fn(|| pair.at(1).next_control());
        let due: Vec<_> = due.map(|front| Message::parse(&front).unwrap().body).collect();
        let all = [Body::RdmaWrCompl { octets: 10 }, Body::SinkCancelAck];
        assert_eq!(due, all[..adverts]);
    }
}

/// The answer to a sink's cancel goes before a change of mode and Data.
#[test]
fn an_answer_is_not_overtaken() {
    let mut pair = Pair::pipelined();
    let front = pair.at(0).advertise_sink(40_000, 8, 0).unwrap().1;
    pair.take(1, &front).unwrap();
    pair.forge(1, Body::SinkAvailCancel, 0, Flags::empty()).unwrap();
    assert_eq!(pair.at(1).change_mode(Half::Out, Mode::Combined).err(), Some(Blocked::Control));
    assert_eq!(pair.at(1).data_room(), Err(Blocked::Control));
    assert_eq!(pair.at(1).source_room(), Err(Blocked::Control));
}

/// A sink's cancel ends with the last of its adverts; an answer that comes then is ignored (X5b,
/// X6).
#[test]
fn an_answer_to_a_cancel_that_has_ended_is_ignored() {
    let mut pair = Pair::pipelined();
    let (id, _) = pair.at(0).advertise_sink(40_000, 8, 0).unwrap();
    assert_eq!(pair.at(0).release_sink(id), Err(Blocked::Sink));
    pair.at(0).cancel_sinks().unwrap();
    pair.at(0).next_control().unwrap();
    assert_eq!(pair.at(0).advertise_sink(40_000, 8, 0).err(), Some(Blocked::Cancelling));
    let data = pair.forge(0, Body::Data, 4, Flags::empty());
    assert_eq!(data, Ok(Received::DataIntoSink { sink: id, urgent: false }));
    assert!(!pair.at(0).cancelling());
    assert_eq!(pair.forge(0, Body::SinkCancelAck, 0, Flags::empty()), Ok(Received::Nothing));
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

/// Octets stand behind an own advert, whether it is out or came back, and behind nothing else.
#[test]
fn octets_are_queued_behind_an_advert() {
    let mut pair = Pair::new();
    assert_eq!(pair.at(0).queue_behind(5).err(), Some(Blocked::Nothing));
    let (advert, front) = pair.at(0).advertise_source(1000, 10, 7, 0).unwrap();
    let queued = pair.at(0).queue_behind(5).unwrap();
    assert_ne!(queued, advert);
    assert_eq!((pair.at(0).queue_behind(7), pair.at(0).source(queued).len), (Ok(queued), 12));
    pair.take(1, &front).unwrap();
    pair.at(1).refuse_source().unwrap();
    assert_eq!(pair.control(1).1, Received::SourcesReturned);
    assert_eq!((pair.at(0).queue_behind(1), pair.at(0).source(queued).len), (Ok(queued), 13));
}

/// Octets without credits are queued, too, and go when there are some.
#[test]
fn octets_wait_for_credits() {
    let mut pair = Pair::new();
    while pair.at(0).data_room().is_ok() {
        assert_eq!(pair.at(0).queue_behind(5), Err(Blocked::Nothing));
        let front = pair.at(0).data(1, false).unwrap();
        pair.take(1, &front).unwrap();
    }
    let queued = pair.at(0).queue_behind(5).unwrap();
    assert_eq!(
        (pair.at(0).data_room(), pair.at(0).resend_room()),
        (Err(Blocked::Returned), Err(Blocked::Credits))
    );
    for _ in 0..10 {
        pair.at(1).buffer_freed();
    }
    pair.at(1).update_now();
    pair.control(1);
    assert_eq!(pair.at(0).returned(), Some(queued));
    pair.at(0).resend(queued, 5).unwrap();
    assert_eq!(pair.at(0).source(queued).state, SourceState::Done);
}
