//! A byte stream without a socket: a write becomes an FPDU, and one that has come becomes octets.

use rddp_benches::pattern;
use rddp_octets::{Agreed, Duplex, Outgoing, Position, Terms};

use crate::Scenario;
use crate::count::measured;

/// Writes of a round.
const SOME: u32 = 16;

const SMALL: usize = 64;

/// With CRC.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "octets_send_64", ops: SOME, prepare: send },
    Scenario { name: "octets_recv_64", ops: 1, prepare: receive },
];

/// TCP takes each FPDU at once.
fn send() -> Box<dyn FnMut()> {
    let ([mut active, _], octets) = (ends(), pattern(SMALL));
    active.paid(active.owed().len());
    Box::new(move || {
        measured(&mut || {
            for _ in 0..SOME {
                assert_eq!(active.put(&octets), SMALL);
                active.paid(active.owed().len());
            }
        });
    })
}

/// TCP has delivered a whole FPDU.
fn receive() -> Box<dyn FnMut()> {
    let ([mut active, mut passive], octets) = (ends(), pattern(SMALL));
    let mut room = [0; SMALL];
    Box::new(move || {
        active.put(&octets);
        let count = active.owed().len();
        passive.space()[..count].copy_from_slice(active.owed());
        active.paid(count);
        measured(&mut || {
            passive.filled(count);
            assert_eq!(passive.take(&mut room), SMALL);
        });
        assert_eq!(room, octets[..]);
    })
}

/// Returns both ends of a stream.
fn ends() -> [Duplex; 2] {
    let (terms, outgoing) =
        (Terms { crc: true, ..Terms::default() }, Outgoing { crc: true, ..Outgoing::FIRST });
    let agreed = Agreed { terms, at: Position::FIRST, outgoing, first: None, may_send: true };
    [agreed; 2].map(|agreed| Duplex::new(&agreed))
}
