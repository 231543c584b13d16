//! Datagrams of IP in fragments.

use rddp_decode::Unread;
use rddp_test_support::Random;

use super::talk::{LINES, everything};
use super::tape::Tape;
use super::{events, in_order, lines};

/// Returns the packets in fragments of at most `most` octets, each packet with a number of its own.
fn fragmented(tape: &Tape, most: usize) -> Vec<Vec<Vec<u8>>> {
    let of_packet = |(id, packet): (usize, &Vec<u8>)| {
        let (header, payload) = packet.split_at(if tape.is_v6 { 40 } else { 20 });
        let pieces = payload.chunks(most).enumerate();
        pieces
            .map(|(number, piece)| {
                let more = u16::from((number + 1) * most < payload.len());
                let at = (number * most) as u16;
                let mut header = header.to_vec();
                if tape.is_v6 {
                    header[4..6].copy_from_slice(&(8 + piece.len() as u16).to_be_bytes());
                    header[6] = 44;
                    header.extend([6, 0]);
                    header.extend((at | more).to_be_bytes());
                    header.extend((id as u32).to_be_bytes());
                } else {
                    header[2..4].copy_from_slice(&(20 + piece.len() as u16).to_be_bytes());
                    header[4..6].copy_from_slice(&(id as u16).to_be_bytes());
                    header[6..8].copy_from_slice(&((at / 8) | (more << 13)).to_be_bytes());
                }
                [&header[..], piece].concat()
            })
            .collect()
    };
    tape.packets.iter().enumerate().map(of_packet).collect()
}

fn taped(is_v6: bool) -> Tape {
    let talk = everything(true, false);
    let mut tape = Tape { is_v6, ..Tape::default() };
    tape.open();
    let mut at = [0; 2];
    for (from, octets) in &talk {
        tape.octets(*from, at[*from], octets);
        at[*from] += octets.len();
    }
    tape
}

#[test]
fn fragments_are_put_together_in_any_order() {
    let mut random = Random::new(1);
    for (is_v6, most) in [(false, 1480), (true, 1448), (false, 8), (true, 48)] {
        let tape = taped(is_v6);
        for round in 0..3 {
            let packets = fragmented(&tape, most);
            // The SYNs come first.
            let (mut packets, mut later) = (packets[..3].concat(), packets[3..].concat());
            for at in (1..later.len()).rev().filter(|_| round > 0) {
                later.swap(at, random.below(at + 1));
            }
            packets.extend(later);
            let (events, summary) = events(&Tape { packets, ..tape.clone() }.pcap(1, false, false));
            assert_eq!(lines(&events), LINES.map(<[&str]>::to_vec), "{is_v6} {most} {round}");
            assert_eq!(summary.unread, [].into());
        }
    }
}

/// Fragments may lie across each other.
#[test]
fn fragments_that_overlap_are_one_datagram() {
    let tape = taped(false);
    let packets = [fragmented(&tape, 512), fragmented(&tape, 24)].map(IntoIterator::into_iter);
    let [long, short] = packets;
    // Of each packet the small ones but the last, then the big ones, the last of which come when
    // it is whole already.
    let packets = long.zip(short).flat_map(|(long, mut short)| {
        short.truncate(if long.len() == 1 { 0 } else { short.len() - 1 });
        [short, long].concat()
    });
    let packets = packets.collect();
    let (events, summary) = events(&Tape { packets, ..tape }.pcap(1, false, false));
    assert_eq!(lines(&events), LINES.map(<[&str]>::to_vec));
    assert_eq!(summary.unread, [].into());
}

/// A capture of several interfaces has each packet more than once.
#[test]
fn fragments_may_come_twice() {
    let tape = taped(false);
    let packets = fragmented(&tape, 512).concat();
    let packets = packets.into_iter().flat_map(|packet| [packet.clone(), packet]).collect();
    let (events, summary) = events(&Tape { packets, ..tape }.pcap(1, false, false));
    assert_eq!(lines(&events), LINES.map(<[&str]>::to_vec));
    assert_eq!(summary.unread, [].into());
}

#[test]
fn fragments_that_are_alone_are_counted() {
    let tape = taped(false);
    let mut packets = fragmented(&tape, 1024);
    // The second message of the initiator is one fragment, the Write behind it three.
    let long = packets.iter().position(|packet| packet.len() > 2).unwrap();
    packets[long].remove(1);
    let left = packets[long].len();
    let (events, summary) = events(&Tape { packets: packets.concat(), ..tape }.pcap(1, false, false));
    assert_eq!(summary.unread, [(Unread::Fragment, left)].into());
    assert!(super::problems(&events)[0].contains("are missing"), "{:?}", super::problems(&events));
}

/// A number that is used again, more than a minute later, is that of another datagram.
#[test]
fn fragments_of_another_time_are_another_datagram() {
    let tape = in_order(&everything(true, false));
    let mut packets = fragmented(&tape, 1024).concat();
    let first = packets.iter().position(|packet| packet[6] & 0x20 != 0).unwrap();
    let mut stray = packets[first].clone();
    let end = stray.len();
    stray[end - 700..].fill(0xee);
    packets.insert(0, stray);
    let mut file = Tape { packets, ..tape }.pcap(101, false, false);
    // The time of the first packet is 61 s before the others'.
    let second = u32::from_le_bytes(file[24..28].try_into().unwrap());
    assert_eq!(second, 7);
    let mut at = 24;
    let mut number = 0;
    while at < file.len() {
        let len = u32::from_le_bytes(file[at + 8..at + 12].try_into().unwrap()) as usize;
        if number > 0 {
            file[at..at + 4].copy_from_slice(&(7_u32 + 61).to_le_bytes());
        }
        (at, number) = (at + 16 + len, number + 1);
    }
    let (events, summary) = events(&file);
    assert_eq!(lines(&events), LINES.map(<[&str]>::to_vec));
    assert_eq!(summary.unread, [(Unread::Fragment, 1)].into());
}
