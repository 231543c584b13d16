//! The reader of the socket: the program's thread while it polls, else the background thread.

use super::*;

fn is_watched(qp: &QueuePair) -> bool {
    qp.inner.anywhere().with_core(|_, core| core.connection.as_ref().unwrap().watch.is_watched())
}

/// A Write of no octets, which completes nothing.
fn write(framer: &mut Framer) -> Vec<u8> {
    let mut out = Vec::new();
    let header = rddp_rdmap::tagged_header(Opcode::Write, Stag(0), 0, true);
    framer.emit(header.octets().as_ref(), 0, |_, _| {}, &mut out);
    out
}

/// Arriving octets no longer wake the background thread once it has seen that the program polls,
/// and wake it again when the program has stopped.
#[test]
fn a_socket_is_left_to_a_program_that_polls_and_taken_back() {
    let (_pd, cq, qp, mut peer) = taken_over(Msn::FIRST);
    let mut framer = Framer::new(Framing { crc: true, markers: false });
    let deadline = Instant::now() + PATIENCE;
    for round in 1..=3 {
        while is_watched(&qp) {
            assert!(Instant::now() < deadline, "round {round}: both read the socket");
            peer.write_all(&write(&mut framer)).unwrap();
            (0..1000).for_each(|_| assert!(cq.poll_one().is_none()));
        }
        let before = qp.counters().fpdus_received;
        peer.write_all(&write(&mut framer)).unwrap();
        while qp.counters().fpdus_received == before || !is_watched(&qp) {
            assert!(Instant::now() < deadline, "round {round}: nobody reads the socket");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
