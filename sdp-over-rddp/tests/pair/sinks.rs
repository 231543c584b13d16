//! Several receives with their adverts out, and messages that come in the place of a Write.

use rddp_sdp::socket::{Config, Error, OperationId, Options};

use crate::mock::Octets;
use crate::world::{CH_RCV_BUF_ACK, DATA, Pair, RDMA_WR_COMPL, pattern, with_thresholds};

const URGENT: Options = Options { non_blocking: false, peek: false, wait_all: false, urgent: true };

/// A pair whose end 1 has these receives waiting, with their adverts out.
fn waiting(seed: u64, lens: &[usize], config: Config) -> (Pair, Vec<(OperationId, Octets)>) {
    let config = Config { pipelined: true, sink_adverts: true, ..config };
    let mut pair = Pair::new(seed, config);
    for _ in 0..3 {
        pair.send(0, &pattern(1500, 9));
    }
    let all = Options { wait_all: true, ..Options::default() };
    pair.receive(1, 4500, all);
    pair.run();
    let receives = lens.iter().map(|len| pair.receive(1, *len, Options::default())).collect();
    pair.run();
    (pair, receives)
}

/// Lets everything come, and only then the receiver look.
fn end_0_and_wire_go_on(pair: &mut Pair) {
    loop {
        pair.ends[0].progress(pair.now);
        pair.collect();
        if !pair.wire.borrow_mut().step() {
            return;
        }
    }
}

/// Returns what these receives have got, and the rest of the stream.
fn all_of(pair: &mut Pair, receives: &[(OperationId, Octets)]) -> Vec<u8> {
    pair.run();
    pair.ends[0].shutdown_send();
    let (rest, error) = pair.receive_to_end(1);
    assert_eq!(error, None);
    let mut got = Vec::new();
    for (id, memory) in receives {
        let filled = pair.outcome(1, *id).expect("the receive has ended").octets;
        got.extend_from_slice(&memory.octets.borrow()[..filled]);
    }
    [got, rest].concat()
}

/// An urgent octet comes as Data in the place of a Write; what is written behind it is in later
/// receives. It stays in front of those where urgent octets are part of the stream.
#[test]
fn an_urgent_octet_is_in_front_of_what_is_written_behind_it() {
    for (seed, len) in (0..8).flat_map(|seed| [(seed, 1), (seed, 10)]) {
        let (mut pair, receives) = waiting(seed, &[3022; 4], with_thresholds(Some(0), Some(0)));
        pair.ends[1].set_urgent_inline(true);
        let octets = [pattern(len, 1), pattern(4000, 2), pattern(len, 3), pattern(5, 4)];
        for (octets, options) in octets.iter().zip([URGENT, Options::default()].into_iter().cycle()) {
            pair.send_with(0, octets, options);
        }
        end_0_and_wire_go_on(&mut pair);
        let mids = pair.mids(0);
        assert!(mids.contains(&DATA) && mids.contains(&RDMA_WR_COMPL));
        assert!(all_of(&mut pair, &receives) == octets.concat(), "octets are not in their order");
    }
}

/// An urgent octet apart from the stream leaves the receive whose place it took with nothing, and
/// what comes is behind later ones: that receive ends as if it had been taken back.
#[test]
fn a_receive_in_whose_place_an_urgent_octet_came_ends_with_nothing() {
    for seed in 0..8 {
        let (mut pair, receives) = waiting(seed, &[3022; 3], with_thresholds(Some(0), Some(0)));
        pair.send_with(0, &[7], URGENT);
        let octets = pattern(5000, 2);
        pair.send(0, &octets);
        end_0_and_wire_go_on(&mut pair);
        assert!(all_of(&mut pair, &receives) == octets, "octets are not in their order");
        let first = pair.outcome(1, receives[0].0).unwrap();
        assert_eq!((first.octets, first.error), (0, Some(Error::Cancelled)));
    }
}

/// Receive buffers grow while adverts are out that are shorter than a message is then: the peer is
/// told when they are no longer.
#[test]
fn longer_messages_wait_for_shorter_adverts() {
    let config = Config { send_size: 2000, largest_buffer: 2500, ..with_thresholds(Some(0), Some(0)) };
    let mut grew = 0;
    for (buffers, short) in (8..20).step_by(3).flat_map(|buffers| (0..10).map(move |short| (buffers, short)))
    {
        let (mut pair, receives) = waiting(1, &[1024; 16], Config { buffers, ..config });
        pair.ends[1].set_urgent_inline(true);
        let has_grown = |pair: &Pair| pair.mids(1).contains(&CH_RCV_BUF_ACK);
        let before = has_grown(&pair);
        let mut octets = Vec::new();
        for salt in 0..short {
            octets.extend(pattern(9, salt));
            pair.send_with(0, &pattern(9, salt), URGENT);
            pair.run();
        }
        octets.extend([pattern(1900, 10), pattern(3000, 11)].concat());
        pair.send_with(0, &pattern(1900, 10), URGENT);
        pair.send(0, &pattern(3000, 11));
        end_0_and_wire_go_on(&mut pair);
        assert!(all_of(&mut pair, &receives) == octets, "octets are not in their order");
        grew += usize::from(!before && has_grown(&pair));
    }
    assert!(grew > 0, "buffers never grew with adverts out");
}
