//! A sender and a receiver that are made of this crate alone, joined by a TCP that takes as much of
//! a write as it likes and delivers in pieces of any size.
#![allow(clippy::unwrap_used, reason = "a test")]

mod receiver;
mod sender;
mod tcp;

use proptest::prelude::*;
use rddp_mpa::{Framing, fpdu_len};
use rddp_rdmap::StreamConfig;
use rddp_test_support::{Random, pattern};
use receiver::Arriving;
use sender::{Message, Sender};
use tcp::Tcp;

const CONFIG: StreamConfig = StreamConfig { ird: 1, ord: 1, extensions: false };

fn messages() -> impl Strategy<Value = Vec<Message>> {
    let message = (any::<bool>(), prop_oneof![0..3_usize, 0..300_usize, 0..20_000_usize]);
    prop::collection::vec(message, 1..20).prop_map(|list| {
        let sized = |(at, (is_send, len)): (usize, (bool, usize))| Message {
            is_send,
            payload: pattern(len, at as u8),
        };
        list.into_iter().enumerate().map(sized).collect()
    })
}

proptest! {
    /// RFC 5044 §4, §6, RFC 5041 §5.3, §5.4: whatever TCP takes and however it cuts, what arrives
    /// is what was sent, once and in order.
    #[test]
    fn whatever_tcp_takes_and_cuts_what_was_sent_arrives(
        messages in messages(),
        (crc, markers) in any::<(bool, bool)>(),
        emss in 300..3000_usize,
        seed in any::<u64>(),
    ) {
        let framing = Framing { crc, markers };
        let mut random = Random::new(seed);
        let mut sender = Sender::new(framing, emss, &messages);
        let mut receiver = Arriving::new(framing, seed % 3 == 0);
        let mut tcp = Tcp::new(emss);
        while !sender.is_done() || !tcp.is_empty() {
            sender.write(&mut tcp, &mut random);
            let arrived = tcp.deliver(&mut random);
            receiver.take(&arrived, &mut random);
        }
        prop_assert_eq!(receiver.finish(), messages);
    }

    /// RFC 5044 §5.1: where TCP takes parts of writes, too, every FPDU begins in the segment that
    /// it ends in.
    #[test]
    fn no_fpdu_reaches_over_the_end_of_a_segment(
        messages in messages(),
        emss in (75..700_usize).prop_map(|words| 4 * words),
        seed in any::<u64>(),
    ) {
        let mut random = Random::new(seed);
        let mut sender = Sender::new(Framing { crc: true, markers: false }, emss, &messages);
        let mut tcp = Tcp::new(emss);
        while !sender.is_done() {
            sender.write(&mut tcp, &mut random);
        }
        let mut at = 0;
        for ulpdu_len in sender.ulpdus() {
            let end = at + fpdu_len(*ulpdu_len);
            let crossed = tcp.boundaries().iter().any(|boundary| (at + 1..end).contains(boundary));
            prop_assert!(!crossed, "an FPDU at {}..{}, segments begin at {:?}", at, end, tcp.boundaries());
            at = end;
        }
        prop_assert_eq!(at, tcp.len());
    }
}
