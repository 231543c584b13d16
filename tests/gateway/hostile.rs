//! Plain hosts made by hand, which break rules, flood, take nothing or are reset.

use std::io::Write;
use std::net::TcpStream;
use std::time::Instant;

use rddp_ddp::Msn;
use rddp_gateway::{Counts, Reason};
use rddp_rdmap::{Opcode, ReadRequestRepr, untagged_header};
use rddp_rnic::{Access, RecvWr, Remote, Stag, Status};
use rddp_test_support::{Peer, connect, pattern, plain, read_to_end, segment};
use rddp_verbs_device::{Event, Offer};

use crate::devices::{self, Kind, completions, quirk};
use crate::troubles::still_works;
use crate::world::{PATIENCE, Program, Told, World, until, world, world_with};

/// Connects a peer whose frames are made by hand.
pub(crate) fn by_hand(world: &World) -> (Peer, Program) {
    let socket = connect(world.gateway.address);
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| Peer::initiator(socket, &plain()));
        let program = world.answer(Offer::default());
        (opening.join().unwrap(), program)
    })
}

/// Sends an FPDU whose CRC is wrong.
pub(crate) fn send_damaged(peer: &mut Peer) {
    let mut frame = peer.frame(&segment::send(1, 0, true, b"damaged."));
    *frame.last_mut().unwrap() ^= 1;
    peer.octets(&frame);
}

/// The device takes what came before it, and nothing of what came behind.
#[test]
fn nothing_passes_a_request_that_the_device_does_not_take() {
    let world = world("gw_refused", Kind::Siw);
    let (mut peer, mut program) = by_hand(&world);
    peer.open();
    let inbox = world.host.memory(8, Access::LOCAL_WRITE);
    for at in 0..2 {
        program.end.post_receive(&RecvWr::one(at, inbox.piece(0, 8))).unwrap();
    }
    let immediate = segment::ulpdu(&untagged_header(Opcode::Immediate, Stag(0), Msn(2), 0, true), &[0; 8]);
    peer.send_all(&[
        &segment::send(1, 0, true, b"before"),
        &immediate,
        &segment::send(3, 0, true, b"behind"),
    ]);
    assert_eq!(peer.terminate_code().0, 0x0206);
    assert!(matches!(devices::event(&mut program.end), Event::Disconnected));
    let received = completions(&mut program.end, 2);
    assert_eq!((received[0].status, received[1].status), (Status::Success, Status::Flushed));
}

#[test]
fn a_peer_that_floods_behind_its_end_does_not_keep_the_gateway() {
    let mut world = world("gw_endless", Kind::Rxe);
    let (peer, program) = by_hand(&world);
    let mut socket = peer.socket.try_clone().unwrap();
    let flood = std::thread::spawn(move || while socket.write_all(&[0; 1 << 16]).is_ok() {});
    drop(program);
    world.gateway.stop();
    flood.join().unwrap();
    world.gateway.ended();
}

/// A connection that always has something to do never sleeps: its device is slower than its peer.
#[test]
fn a_gateway_stops_though_a_plain_host_never_pauses() {
    let mut world = world_with("gw_busy", Kind::Rxe, quirk::SLOW_LOOKS);
    let (mut peer, program) = by_hand(&world);
    let there = program.remote();
    let frames = peer.frame(&segment::write(there.stag, there.to, true, &pattern(1000, 1))).repeat(100);
    let mut socket = peer.socket.try_clone().unwrap();
    let flood = std::thread::spawn(move || {
        let since = Instant::now();
        while socket.write_all(&frames).is_ok() {
            assert!(since.elapsed() < PATIENCE, "the gateway goes on");
        }
    });
    while program.octets(0, 1000) != pattern(1000, 1) {
        std::thread::yield_now();
    }
    world.gateway.stop();
    flood.join().unwrap();
    assert!(matches!(world.gateway.ended().1, Reason::Stopped));
}

/// A program without receives lets a plain host wait as long as it likes, but not one that is gone.
#[test]
fn a_plain_host_that_is_held_back_and_is_reset_is_noticed() {
    let world = world("gw_held_reset", Kind::Rxe);
    let (mut peer, mut program) = by_hand(&world);
    peer.open();
    for msn in 1..=40 {
        peer.send(&segment::send(msn, 0, true, &pattern(1000, 1)));
    }
    assert!(matches!(world.gateway.told.recv(), Ok(Told::Opened)));
    until("the gateway has taken what it can", || world.host.sends() >= 32);
    peer.reset();
    assert!(matches!(devices::event(&mut program.end), Event::Disconnected));
    assert!(matches!(world.gateway.ended().1, Reason::Tcp(_)));
}

#[test]
fn a_peer_that_reads_nothing_is_sent_no_more_than_fits_and_keeps_nobody_waiting() {
    let world = world("gw_flood", Kind::Rxe);
    let good = world.connect();
    let (mut peer, program) = by_hand(&world);
    let there = program.remote();
    for msn in 1..=16 {
        let request = read_of(there, 1 << 20);
        peer.send(&segment::read(msn, &request));
    }
    for _ in 0..200 {
        still_works(&good.0, &good.1);
    }
    // The answers are still there, in their order, as soon as somebody reads.
    for _ in 0..16 {
        let mut got = 0;
        while got < 1 << 20 {
            let (_, payload) = peer.segment().expect("a Response");
            got += payload.len();
        }
        assert_eq!(got, 1 << 20);
    }
    peer.fin();
    assert_eq!(peer.ended(), None);
    assert_eq!(
        world.gateway.ended().0,
        Counts { reads: 16, octets_in: 16 * 28, octets_out: 16 << 20, ..Counts::default() }
    );
}

pub(crate) fn read_of(there: Remote, size: u32) -> ReadRequestRepr {
    ReadRequestRepr { sink_stag: Stag(1), sink_to: 0, size, src_stag: there.stag, src_to: there.to }
}

#[test]
fn more_reads_than_were_agreed_on_are_a_fault() {
    let world = world("gw_reads", Kind::Rxe);
    for more in [0, 1] {
        let (mut peer, program) = by_hand(&world);
        let count = u32::from(peer.negotiated.ord) + more;
        // All of them come before one is answered.
        let reads: Vec<_> =
            (1..=count).map(|msn| segment::read(msn, &read_of(program.remote(), 8))).collect();
        peer.send_all(&reads.iter().map(Vec::as_slice).collect::<Vec<_>>());
        if more == 0 {
            assert_eq!(peer.payload(8 * count as usize).len(), 8 * count as usize);
            peer.fin();
        }
        let code = peer.ended().map(|terminate| terminate.code.0);
        assert_eq!(code, (more > 0).then_some(0x1203));
        drop(peer);
        let (_, reason) = world.gateway.ended();
        assert_eq!(reason.terminate().map(|code| code.0), code, "{reason}");
    }
}

#[test]
fn octets_that_are_no_mpa_and_silence_end_in_the_startup() {
    let world = world("gw_garbage", Kind::Rxe);
    let silent = TcpStream::connect(world.gateway.address).unwrap();
    let mut garbage = connect(world.gateway.address);
    garbage.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let good = world.connect();
    assert!(matches!(world.gateway.refused(), Reason::Startup(_)));
    still_works(&good.0, &good.1);
    // The half-open connection has its time.
    let reason = loop {
        match world.gateway.told.recv_timeout(PATIENCE).unwrap() {
            Told::Refused(reason) => break reason,
            Told::Opened => {}
            told => panic!("{told:?}"),
        }
    };
    assert!(matches!(reason, Reason::TooLong(_)), "{reason}");
    assert!(read_to_end(&silent).is_empty());
    still_works(&good.0, &good.1);
}

/// RFC 5044 §7.1.2: a responder sends nothing before it has a good FPDU.
#[test]
fn a_fault_in_the_first_fpdu_ends_in_fin_alone_and_no_terminate_is_told_of() {
    let world = world("gw_crc_first", Kind::Rxe);
    let (mut peer, _program) = by_hand(&world);
    send_damaged(&mut peer);
    assert_eq!(peer.ended(), None);
    drop(peer);
    let (_, reason) = world.gateway.ended();
    assert!(matches!(reason, Reason::Broken { code: None, .. }), "{reason:?}");
}

#[test]
fn a_damaged_fpdu_and_a_reset_end_one_connection() {
    let world = world("gw_crc", Kind::Rxe);
    let good = world.connect();
    let (mut peer, program) = by_hand(&world);
    peer.open();
    let there = program.remote();
    let mut frame = peer.frame(&segment::write(there.stag, there.to, true, b"damaged."));
    let last = frame.len() - 5;
    frame[last] ^= 1;
    peer.octets(&frame);
    assert_eq!(peer.terminate_code().0, 0x2002);
    drop(peer);
    assert_eq!(program.octets(0, 8), [0; 8]);
    assert_eq!(world.gateway.ended().1.terminate().map(|code| code.0), Some(0x2002));
    let (mut peer, mut program) = by_hand(&world);
    let half = peer.frame(&segment::write(there.stag, there.to, true, b"half a message"));
    peer.octets(&half[..20]);
    peer.reset();
    assert!(matches!(devices::event(&mut program.end), Event::Disconnected));
    assert!(matches!(world.gateway.ended().1, Reason::Tcp(_) | Reason::PlainCut));
    still_works(&good.0, &good.1);
}
