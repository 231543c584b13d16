//! Rules one by one, with both ends at hand: what the model check cannot see, because its ends keep
//! the rules or do not care.

use super::config;
use super::pair::Pair;
use crate::machine::{Abort, Blocked, Core, Machine, Received, Unusable, Urgent, Violation};
use crate::wire::{Body, Flags, HEADER_LEN, Message, Mode};

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
