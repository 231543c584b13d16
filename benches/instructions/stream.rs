//! The byte stream of DDPMODE and of SDP: one call of a program, whose octets are there or have
//! room in TCP.

use rddp_benches::{Streams, Wire, pattern};
use rddp_stream::Kind;

use crate::Scenario;
use crate::count::measured;

/// Calls of a round.
const SOME: u32 = 16;

const SMALL: usize = 64;
const LARGE: usize = 64 * 1024;

/// Small ones with CRC, large ones without: it is counted for itself. By SDP all octets go as Data.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "stream_send_64", ops: SOME, prepare: || send(Streams::new(Wire::CRC), SOME, SMALL) },
    Scenario { name: "stream_recv_64", ops: 1, prepare: || receive(Streams::new(Wire::CRC), SMALL) },
    Scenario { name: "stream_send_64k", ops: 1, prepare: || send(Streams::new(Wire::STEADY), 1, LARGE) },
    Scenario { name: "stream_recv_64k", ops: 1, prepare: || receive(Streams::new(Wire::STEADY), LARGE) },
    Scenario { name: "sdp_send_64", ops: SOME, prepare: || send(Streams::sdp(Wire::CRC), SOME, SMALL) },
    Scenario { name: "sdp_recv_64", ops: 1, prepare: || receive(Streams::sdp(Wire::CRC), SMALL) },
    Scenario { name: "sdp_send_64k", ops: 1, prepare: || send(Streams::sdp(Wire::STEADY), 1, LARGE) },
    Scenario { name: "sdp_recv_64k", ops: 1, prepare: || receive(Streams::sdp(Wire::STEADY), LARGE) },
    Scenario { name: "sdp_ping_64", ops: 1, prepare: || ping(Streams::sdp(Wire::PLAIN), SMALL) },
];

/// TCP takes all of them at once.
fn send<K: Kind>(streams: Streams<K>, calls: u32, len: usize) -> Box<dyn FnMut()> {
    let octets = pattern(len);
    Box::new(move || {
        measured(&mut || {
            for _ in 0..calls {
                streams.send(&octets);
            }
        });
        streams.peer_reads(calls as usize * len);
    })
}

/// The whole FPDUs of one message lie in the socket.
fn receive<K: Kind>(streams: Streams<K>, len: usize) -> Box<dyn FnMut()> {
    let (octets, mut room) = (pattern(len), vec![0; len]);
    Box::new(move || {
        streams.incoming(&octets);
        measured(&mut || streams.receive(&mut room));
        assert_eq!(room, octets);
    })
}

/// One end's calls of a transaction: a message is received, and answered.
fn ping<K: Kind>(streams: Streams<K>, len: usize) -> Box<dyn FnMut()> {
    let (octets, mut room) = (pattern(len), vec![0; len]);
    Box::new(move || {
        streams.incoming(&octets);
        measured(&mut || {
            streams.receive(&mut room);
            streams.send(&octets);
        });
        streams.peer_reads(len);
    })
}
