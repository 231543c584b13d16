//! The byte stream of DDPMODE: one call of a program, whose octets are there or have room in TCP.

use rddp_benches::{Streams, Wire, pattern};

use crate::Scenario;
use crate::count::measured;

/// Calls of a round.
const SOME: u32 = 16;

const SMALL: usize = 64;
const LARGE: usize = 64 * 1024;

/// Small ones with CRC, large ones without: it is counted for itself.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "stream_send_64", ops: SOME, prepare: || send(Wire::CRC, SOME, SMALL) },
    Scenario { name: "stream_recv_64", ops: 1, prepare: || receive(Wire::CRC, SMALL) },
    Scenario { name: "stream_send_64k", ops: 1, prepare: || send(Wire::STEADY, 1, LARGE) },
    Scenario { name: "stream_recv_64k", ops: 1, prepare: || receive(Wire::STEADY, LARGE) },
];

/// TCP takes all of them at once.
fn send(wire: Wire, calls: u32, len: usize) -> Box<dyn FnMut()> {
    let (streams, octets) = (Streams::new(wire), pattern(len));
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
fn receive(wire: Wire, len: usize) -> Box<dyn FnMut()> {
    let (streams, octets, mut room) = (Streams::new(wire), pattern(len), vec![0; len]);
    Box::new(move || {
        streams.incoming(&octets);
        measured(&mut || streams.receive(&mut room));
        assert_eq!(room, octets);
    })
}
