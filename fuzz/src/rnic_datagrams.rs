//! `rnic_datagrams`: any datagrams sent to a queue pair of unreliable datagrams.
//!
//! A naive reading of the same octets says which of them complete receives, and with what. The
//! others are dropped, and counted.

use std::net::UdpSocket;
use std::time::Duration;

use rddp_rnic::{
    Access, Completion, Datagram, DatagramOptions, QpConfig, QpNum, RecvWr, Rnic, Status, Transport,
};

/// Time for which a completion may be waited for: a wrong one, or none, is a fault.
const PATIENCE: Duration = Duration::from_secs(20);

/// Octets of each receive, those in front of the message included.
const ROOM: usize = Datagram::LEN + 48;

/// Datagrams of one input: fewer than what the socket holds.
const MOST: usize = 64;

const QKEY: u32 = 0x1234_5678;

/// Bits of a datagram's first octet: fields that are made right, which no input could guess.
const RIGHT_TO: u8 = 1;
const RIGHT_FROM: u8 = 2;
const RIGHT_QKEY: u8 = 4;
const RIGHT_FLAGS: u8 = 8;

/// The result of a receive: status, source, immediate value, solicited, message.
type Outcome = (Status, u32, Option<[u8; 4]>, bool, Vec<u8>);

/// The numbers of the two ends.
#[derive(Clone, Copy)]
struct Names {
    to: u32,
    from: u32,
}

/// Reads datagrams: an octet that says what is right, an octet with the length, and the octets.
pub fn run(mut octets: &[u8]) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    let number = |socket: &UdpSocket| u32::from(socket.local_addr().unwrap().port()) << 8 | 7;
    let names = Names { to: number(&socket), from: number(&peer) };
    let mut datagrams = Vec::new();
    while let Some((&[right, len], rest)) = octets.split_first_chunk()
        && datagrams.len() < MOST
    {
        let (datagram, rest) = rest.split_at(rest.len().min(len.into()));
        datagrams.push(corrected(datagram.to_vec(), right, names));
        octets = rest;
    }
    let last = corrected([&[0; 16][..], b"last"].concat(), u8::MAX, names);
    datagrams.push(last);
    let expected: Vec<Outcome> = datagrams.iter().filter_map(|datagram| model(datagram, names)).collect();
    real(socket, &peer, names, &datagrams, &expected);
}

/// Writes what is to be right into the first octets of a datagram.
fn corrected(mut datagram: Vec<u8>, right: u8, Names { to, from }: Names) -> Vec<u8> {
    let mut set = |bit: u8, at: usize, octets: &[u8]| {
        if right & bit != 0 && datagram.len() >= at + octets.len() {
            datagram[at..at + octets.len()].copy_from_slice(octets);
        }
    };
    set(RIGHT_TO, 0, &(1 << 24 | to).to_be_bytes());
    set(RIGHT_FROM, 5, &from.to_be_bytes()[1..]);
    set(RIGHT_QKEY, 8, &QKEY.to_be_bytes());
    if right & RIGHT_FLAGS != 0 && datagram.len() >= 16 {
        datagram[4] &= 3;
        if datagram[4] & 1 == 0 {
            datagram[12..16].fill(0);
        }
    }
    datagram
}

/// Returns what the receive gets, by a naive reading; `None` for a datagram that is dropped.
fn model(datagram: &[u8], Names { to, from }: Names) -> Option<Outcome> {
    if datagram.len() < 16 || datagram[0] != 1 || datagram[4] > 3 {
        return None;
    }
    let number = |at: usize| u32::from_be_bytes([0, datagram[at], datagram[at + 1], datagram[at + 2]]);
    let has_value = datagram[4] & 1 != 0;
    if number(1) != to
        || number(5) >> 8 != from >> 8
        || datagram[8..12] != QKEY.to_be_bytes()
        || (!has_value && datagram[12..16] != [0; 4])
    {
        return None;
    }
    let value = has_value.then(|| datagram[12..16].try_into().unwrap());
    let message = &datagram[16..];
    let fits = message.len() <= ROOM - Datagram::LEN;
    let status = if fits { Status::Success } else { Status::MessageTooLong };
    let placed = message[..message.len().min(ROOM - Datagram::LEN)].to_vec();
    Some((status, number(5), value, datagram[4] & 2 != 0, placed))
}

/// Sends the datagrams to a queue pair, and compares what its receives get.
fn real(socket: UdpSocket, peer: &UdpSocket, names: Names, datagrams: &[Vec<u8>], expected: &[Outcome]) {
    let rnic = Rnic::open().unwrap();
    let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(2 * MOST).unwrap());
    let config =
        QpConfig { transport: Transport::Unreliable, num: Some(QpNum(names.to)), ..QpConfig::new(&cq) };
    let qp = pd.create_qp(&config).unwrap();
    let inbox = pd.allocate((MOST + 1) * ROOM, Access::LOCAL_WRITE).unwrap();
    for slot in 0..=MOST {
        qp.post_recv(RecvWr::one(slot as u64, inbox.sge(slot * ROOM..(slot + 1) * ROOM))).unwrap();
    }
    qp.set_qkey(QKEY);
    let addr = socket.local_addr().unwrap();
    qp.bind_to(socket, &DatagramOptions::default()).unwrap();
    for datagram in datagrams {
        peer.send_to(datagram, addr).unwrap();
    }
    for (slot, wanted) in expected.iter().enumerate() {
        assert!(cq.wait(Some(PATIENCE)).unwrap(), "no completion came");
        let Completion { wr_id, status, source, immediate, solicited, byte_len, .. } = cq.poll_one().unwrap();
        assert_eq!(wr_id, slot as u64);
        let octets = inbox.read(slot * ROOM, byte_len as usize).unwrap();
        let front = Datagram::parse(octets.first_chunk().unwrap()).unwrap();
        assert_eq!((front.source, front.destination), (peer.local_addr().unwrap(), addr.ip()));
        let value = immediate.map(|[a, b, c, d, ..]| [a, b, c, d]);
        let got = (status, source.unwrap().get(), value, solicited, octets[Datagram::LEN..].to_vec());
        assert_eq!(&got, wanted);
    }
    assert!(cq.poll_one().is_none());
    assert_eq!(qp.counters().dropped, (datagrams.len() - expected.len()) as u64);
}
