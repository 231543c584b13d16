//! The end of connections: what is done, in each state of a connection.

use std::time::Duration;

use rddp_sdp::socket::{Config, Error, OperationId, Options};

use crate::world::{ABORT_CONN, DIS_CONN, Pair, SRC_AVAIL, pattern, with_thresholds};

/// States of the end that closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// Octets of the peer that nobody has received.
    Unread,
    /// Octets of a send that wait for credits.
    Queued,
    /// An advert that nobody has read.
    SrcAvail,
}

const STATES: [State; 4] = [State::Idle, State::Unread, State::Queued, State::SrcAvail];
const LEN: usize = 20_000;

/// Returns a connection in this state at end 0, with the send that is under way.
fn pair(state: State, seed: u64) -> (Pair, Option<OperationId>) {
    let threshold = (state == State::SrcAvail).then_some(0);
    // Nothing is Read ahead or taken back while the test looks.
    let config = Config { longest_advert: 1 << 20, read_ahead: 0, ..with_thresholds(threshold, Some(0)) };
    let mut pair = Pair::new(seed, config);
    if state == State::Unread {
        pair.send(1, &pattern(100, 5));
    }
    let sends = state == State::Queued || state == State::SrcAvail;
    let id = sends.then(|| pair.send(0, &pattern(LEN, 6)));
    pair.run();
    assert!(id.is_none_or(|id| pair.outcome(0, id).is_none()), "{state:?}");
    assert_eq!(pair.mids(0).contains(&SRC_AVAIL), state == State::SrcAvail);
    (pair, id)
}

/// Returns the octets that the peer is to receive before the end of the stream.
fn stream(state: State) -> Vec<u8> {
    let sends = state == State::Queued || state == State::SrcAvail;
    if sends { pattern(LEN, 6) } else { Vec::new() }
}

fn each(case: impl Fn(State, Pair, Option<OperationId>)) {
    for state in STATES {
        for seed in 0..20 {
            let (pair, id) = pair(state, seed);
            case(state, pair, id);
        }
    }
}

/// Octets that were sent arrive, and the end; with octets unread the peer sees a reset, as over
/// TCP.
#[test]
fn close_in_each_state() {
    each(|state, mut pair, id| {
        pair.ends[0].close();
        if state == State::Unread {
            pair.run();
            assert_eq!(pair.ends[1].error(), Some(Error::Reset));
            return;
        }
        assert_eq!(pair.receive_to_end(1), (stream(state), None), "{state:?}");
        assert!(id.is_none_or(|id| pair.outcome(0, id).unwrap().octets == LEN));
        // The peer sends on to nobody, and closes.
        pair.send(1, b"late");
        pair.ends[1].shutdown_send();
        pair.run_for(Duration::from_secs(1));
        assert!(pair.ends.iter().all(|end| end.error() == Some(Error::Closed)), "{state:?}");
    });
}

#[test]
fn shutdown_of_sending_in_each_state() {
    each(|state, mut pair, id| {
        pair.ends[0].shutdown_send();
        assert_eq!(pair.receive_to_end(1), (stream(state), None), "{state:?}");
        assert!(id.is_none_or(|id| pair.outcome(0, id).unwrap().octets == LEN));
        let late = pair.send(0, b"late");
        assert_eq!(pair.outcome(0, late).unwrap().error, Some(Error::Closed));
        pair.send(1, b"answer");
        pair.ends[1].shutdown_send();
        let before = if state == State::Unread { pattern(100, 5) } else { Vec::new() };
        assert_eq!(pair.receive_to_end(0), ([before, b"answer".to_vec()].concat(), None));
        pair.run_for(Duration::from_secs(1));
        assert!(pair.ends.iter().all(|end| end.error() == Some(Error::Closed)), "{state:?}");
    });
}

/// The peer is not told; what it sends is taken and dropped, and what this end sends arrives.
#[test]
fn shutdown_of_receiving_in_each_state() {
    each(|state, mut pair, _| {
        let before = [pair.mids(0), pair.mids(1)].concat();
        pair.ends[0].shutdown_receive();
        pair.run();
        assert!(![pair.mids(0), pair.mids(1)].concat()[before.len()..].contains(&DIS_CONN));
        let ids: Vec<_> = (0..5).map(|_| pair.send(1, &pattern(6000, 1))).collect();
        pair.run_for(Duration::from_millis(500));
        if state != State::SrcAvail {
            assert!(ids.iter().all(|id| pair.outcome(1, *id).unwrap().octets == 6000), "{state:?}");
        }
        pair.ends[0].shutdown_send();
        assert_eq!(pair.receive_to_end(1), (stream(state), None), "{state:?}");
    });
}

#[test]
fn abort_in_each_state() {
    each(|state, mut pair, id| {
        pair.ends[0].abort();
        pair.collect();
        // Its `DisConn` has not gone, so that there is no message for it.
        assert_eq!(pair.ends[0].error(), Some(Error::Aborted), "{state:?}");
        assert!(!pair.mids(0).contains(&ABORT_CONN));
        assert!(id.is_none_or(|id| pair.outcome(0, id).unwrap().error == Some(Error::Aborted)));
        pair.run();
        assert_eq!(pair.ends[1].error(), Some(Error::Reset));
        let (id, _) = pair.receive(1, 10, Options::default());
        assert_eq!(pair.outcome(1, id).unwrap().error, Some(Error::Reset), "{state:?}");
    });
}

/// Behind its own `DisConn`, and there alone, an end aborts by a message.
#[test]
fn abort_behind_dis_conn_is_a_message() {
    for seed in 0..20 {
        for (peer_closes, reads) in [(false, false), (true, false), (false, true)] {
            let mut pair = Pair::new(seed, with_thresholds(Some(0), Some(0)));
            pair.ends[0].shutdown_send();
            if peer_closes {
                pair.send(1, b"unread");
                pair.ends[1].shutdown_send();
            }
            // A Read of the peer's advert may be under way.
            let sent = reads.then(|| pair.send(1, &pattern(5000, 1)));
            let received = reads.then(|| pair.receive(0, 5000, Options::default()).0);
            for _ in 0..seed % 7 {
                pair.wire.borrow_mut().step();
                for end in &mut pair.ends {
                    end.progress(pair.now);
                }
            }
            if !pair.mids(0).contains(&DIS_CONN) {
                pair.run();
            }
            if pair.ends[0].is_over() {
                continue;
            }
            pair.ends[0].abort();
            pair.collect();
            assert_eq!(pair.mids(0).last(), Some(&ABORT_CONN));
            pair.run_for(Duration::from_secs(1));
            assert_eq!(pair.ends[0].error(), Some(Error::Aborted));
            assert!(matches!(pair.ends[1].error(), Some(Error::Reset)), "{:?}", pair.ends[1].error());
            assert!(sent.is_none_or(|id| pair.outcome(1, id).is_some()));
            assert!(received.is_none_or(|id| pair.outcome(0, id).is_some()));
            assert!(pair.lent.is_empty());
        }
    }
}
