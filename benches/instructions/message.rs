//! One message from a QP to another over each of the wires, both ends: a receive is posted, a
//! request is posted, and both complete.

use rddp_benches::Pair;
use rddp_rnic::Transport;

use crate::Scenario;
use crate::count::measured;

const ALONE: u32 = 1;
/// Messages that are posted by one call.
const TOGETHER: u32 = 64;

const SMALL: usize = 64;
const LARGE: usize = 64 * 1024;
/// A datagram has no more.
const LARGE_DATAGRAM: usize = 65_000;

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "iwarp_64", ops: ALONE, prepare: || message(Transport::Iwarp, ALONE, SMALL) },
    Scenario {
        name: "iwarp_64_by_64",
        ops: TOGETHER,
        prepare: || message(Transport::Iwarp, TOGETHER, SMALL),
    },
    Scenario { name: "iwarp_64k", ops: ALONE, prepare: || message(Transport::Iwarp, ALONE, LARGE) },
    Scenario { name: "raw_64", ops: ALONE, prepare: || message(Transport::Tcp, ALONE, SMALL) },
    Scenario { name: "raw_64_by_64", ops: TOGETHER, prepare: || message(Transport::Tcp, TOGETHER, SMALL) },
    Scenario { name: "raw_64k", ops: ALONE, prepare: || message(Transport::Tcp, ALONE, LARGE) },
    Scenario { name: "record_64", ops: ALONE, prepare: || message(Transport::Record, ALONE, SMALL) },
    Scenario {
        name: "record_64_by_64",
        ops: TOGETHER,
        prepare: || message(Transport::Record, TOGETHER, SMALL),
    },
    Scenario { name: "record_64k", ops: ALONE, prepare: || message(Transport::Record, ALONE, LARGE) },
    Scenario { name: "udp_64", ops: ALONE, prepare: || message(Transport::Udp, ALONE, SMALL) },
    Scenario { name: "udp_64_by_64", ops: TOGETHER, prepare: || message(Transport::Udp, TOGETHER, SMALL) },
    Scenario { name: "udp_64k", ops: ALONE, prepare: || message(Transport::Udp, ALONE, LARGE_DATAGRAM) },
];

/// Sends messages by one call, and polls once they have arrived.
fn message(transport: Transport, count: u32, len: usize) -> Box<dyn FnMut()> {
    let mut pair = Pair::new(transport, len);
    let list = pair.messages(count as usize);
    Box::new(move || {
        let before = pair.octets_sent();
        measured(&mut || pair.send(&list));
        pair.await_octets((pair.octets_sent() - before) as usize);
        measured(&mut || pair.receive(count as usize));
    })
}
