//! Segments that somebody else puts on the path, and that TCP drops or holds back: what is
//! delivered has the octets of the stream.
//!
//! Over the loopback of the test's own namespace, which is not trusted: what the peer sends is not
//! placed, as nobody has summed it, and the forged frames have right checksums.

use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::time::Duration;

use rddp_kernel_patch::layout::Tuple;
use rddp_rnic::{KernelPlacement, Placement, Status};
use rddp_test_support::segment;

use super::hostile::{Scene, part};
use super::path_test::frame::{Frame, IP, fpdu};
use super::path_test::net::{self, in_namespace, set};
use super::path_test::tap::{DEVICE, Way, tap};

const FIRST: &[u8] = b"the first";
const GENUINE: &[u8] = b"genuine octets of the stream";
const FORGED: &[u8] = b"octets of another, as many..";

pub(crate) fn scene(placement: Placement, interface: &str) -> Scene {
    set("ipv4/tcp_timestamps", "0");
    let kernel = KernelPlacement { interfaces: vec![interface.into()], trusted: false };
    Scene::with(kernel, placement, |_| {})
}

/// A number of the peer's socket: the sequence number of the octet that it sends next, or of the
/// one that it waits for.
fn number(scene: &Scene, queue: i32) -> u32 {
    let fd = scene.peer.socket.as_raw_fd();
    let set = |name, value: i32| {
        let value = (&raw const value).cast();
        // SAFETY: a number of four octets, as said.
        let done = unsafe { libc::setsockopt(fd, libc::IPPROTO_TCP, name, value, 4) };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
    };
    set(libc::TCP_REPAIR, 1);
    set(libc::TCP_REPAIR_QUEUE, queue);
    let (mut number, mut len) = (0_u32, 4);
    // SAFETY: as above.
    let got = unsafe {
        let value = (&raw mut number).cast();
        libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_QUEUE_SEQ, value, &raw mut len)
    };
    assert_eq!(got, 0, "{}", io::Error::last_os_error());
    set(libc::TCP_REPAIR, -1);
    number
}

const RECEIVES: i32 = 1;
const SENDS: i32 = 2;

/// Returns a frame of the peer's connection, so many octets behind those that it has sent.
pub(crate) fn frame(scene: &Scene, ahead: u32, payload: &[u8]) -> Frame {
    let socket = &scene.peer.socket;
    let tuple = Tuple::new(socket.local_addr().unwrap(), socket.peer_addr().unwrap());
    let seq = number(scene, SENDS).wrapping_add(ahead);
    Frame { ack: number(scene, RECEIVES), ..Frame::new(tuple, seq, payload.to_vec()) }
}

/// Makes an acknowledgement that TCP does not accept (RFC 5961 §5.2).
fn unacceptable(frame: Frame) -> Frame {
    Frame { ack: frame.ack.wrapping_add(1 << 31), ..frame }
}

/// Returns the octets of a frame that IP drops: with a wrong checksum of its own header.
fn dropped_by_ip(frame: &Frame) -> Vec<u8> {
    let mut octets = frame.octets();
    octets[IP + 10] ^= 1;
    octets
}

/// Puts a frame on the loopback, and waits a moment for what that does.
pub(crate) fn inject(frame: &Frame) {
    inject_octets(&frame.octets());
}

fn inject_octets(octets: &[u8]) {
    net::inject(octets);
    std::thread::sleep(Duration::from_millis(50));
}

/// Sends the message that the forged one was to replace, and another one: both are as they were
/// sent.
fn is_delivered(scene: &mut Scene) {
    scene.peer.send(&segment::send(1, 0, true, GENUINE));
    let completion = scene.end.success();
    assert_eq!((completion.wr_id, completion.byte_len as usize), (1, GENUINE.len()));
    assert_eq!(scene.octets(1, GENUINE.len()), GENUINE);
    scene.peer.send(&segment::send(2, 0, true, b"the second"));
    assert_eq!((scene.end.success().wr_id, scene.octets(2, 10)), (2, b"the second".to_vec()));
}

/// Returns FPDUs of two messages of the peer's, and a forged one for the place of the second.
fn two_and_a_lie(scene: &mut Scene) -> ([Vec<u8>; 2], Vec<u8>) {
    let peers = [(1, FIRST), (2, GENUINE)].map(|(msn, octets)| {
        let message = segment::send(msn, 0, true, octets);
        scene.peer.frame(&message)
    });
    (peers, fpdu(&segment::send(2, 0, true, FORGED)))
}

/// Checks that the forged message is in the place of the second, sends the peer's two, and checks
/// that both are as they were sent.
fn are_delivered(scene: &mut Scene, peers: &[Vec<u8>; 2]) {
    assert_eq!(scene.octets(2, FORGED.len()), FORGED, "it is placed");
    scene.peer.octets(&peers.concat());
    for (id, octets) in [(1, FIRST), (2, GENUINE)] {
        assert_eq!((scene.end.success().wr_id, scene.octets(id, octets.len())), (id, octets.to_vec()));
    }
}

#[test]
fn a_message_that_tcp_drops_is_not_delivered() {
    in_namespace(|| {
        let lie = fpdu(&segment::send(1, 0, true, FORGED));
        for (placement, ahead) in [(Placement::Auto, 1000), (Placement::Kernel, 0), (Placement::Kernel, 1000)]
        {
            let mut scene = scene(placement, "lo");
            inject(&unacceptable(frame(&scene, ahead, &lie)));
            is_delivered(&mut scene);
        }
        // Of another length, in the place of the next one.
        let mut scene = scene(Placement::Kernel, "lo");
        inject(&unacceptable(frame(&scene, 0, &fpdu(&segment::send(1, 0, true, b"short")))));
        is_delivered(&mut scene);
    });
}

/// TCP takes it, and so it is the peer's, as far as anybody can tell: it waits behind the hole, and
/// ends the connection in its turn. What is in front of it is delivered as it was sent.
#[test]
fn a_segment_with_a_wrong_crc_changes_no_message_in_front_of_it() {
    in_namespace(|| {
        for placement in [Placement::Auto, Placement::Kernel] {
            let mut scene = scene(placement, "lo");
            let first = scene.peer.frame(&segment::send(1, 0, true, GENUINE));
            let mut second = scene.peer.frame(&segment::send(2, 0, true, FORGED));
            second[15] ^= 3; // the MSN becomes 1
            inject(&frame(&scene, first.len() as u32, &second));
            scene.peer.octets(&first);
            assert_eq!((scene.end.success().wr_id, scene.octets(1, GENUINE.len())), (1, GENUINE.to_vec()));
            assert_eq!(scene.end.next().status, Status::Flushed);
        }
    });
}

/// RFC 5044 §4.4: octets that were changed between their placement and their turn do not make the
/// CRC, and are taken from the stream.
#[test]
fn octets_that_have_changed_since_their_placement_are_those_of_the_stream() {
    in_namespace(|| {
        for placement in [Placement::Auto, Placement::Kernel] {
            let mut scene = scene(placement, "lo");
            let (peers, _) = two_and_a_lie(&mut scene);
            std::thread::sleep(Duration::from_millis(50)); // till nobody waits for what is missing
            inject(&frame(&scene, peers[0].len() as u32, &peers[1]));
            assert_eq!(scene.octets(2, GENUINE.len()), GENUINE, "it is placed");
            scene.region.write(part(2).start, FORGED).unwrap();
            scene.peer.octets(&peers[0]);
            for (id, octets) in [(1, FIRST), (2, GENUINE)] {
                assert_eq!(
                    (scene.end.success().wr_id, scene.octets(id, octets.len())),
                    (id, octets.to_vec())
                );
            }
            let counts = scene.end.qp.kernel_counts().expect("the kernel places");
            assert_eq!((counts.wrong, counts.summed_ahead, counts.confirmed), (1, 0, 0));
        }
    });
}

/// The background thread sums what is behind a segment that is missing, while the program's own
/// thread sleeps; what comes by again is summed anew.
#[test]
fn what_waits_behind_a_missing_segment_is_summed_meanwhile() {
    in_namespace(|| {
        for placement in [Placement::Auto, Placement::Kernel] {
            let mut scene = scene(placement, "lo");
            let messages = [segment::send(1, 0, false, b"one half, "), segment::send(1, 10, true, FIRST)];
            let [first, second] = messages.map(|message| scene.peer.frame(&message));
            let third = scene.peer.frame(&segment::send(2, 0, true, GENUINE));
            // Once there is nothing to read any more, it is looked for what is placed.
            scene.peer.octets(&first);
            inject(&frame(&scene, second.len() as u32, &third));
            while scene.end.qp.kernel_counts().is_none_or(|counts| counts.summed_ahead == 0) {
                scene.end.cq.wait(Some(Duration::from_millis(1))).unwrap();
            }
            scene.peer.octets(&second);
            for (id, len) in [(1, 10 + FIRST.len()), (2, GENUINE.len())] {
                let completion = scene.end.success();
                assert_eq!((completion.wr_id, completion.byte_len as usize), (id, len));
            }
            assert_eq!(scene.octets(2, GENUINE.len()), GENUINE);
            let counts = scene.end.qp.kernel_counts().expect("the kernel places");
            assert_eq!((counts.summed_ahead, counts.confirmed, counts.wrong), (1, 1, 0));
        }
    });
}

/// The program takes it for the peer's, and places it; the stream has other octets there.
#[test]
fn a_message_that_the_stream_does_not_bring_is_not_delivered() {
    in_namespace(|| {
        let mut scene = scene(Placement::Kernel, "lo");
        let seq = number(&scene, SENDS);
        // A hole in front of it keeps TCP from delivering it, until the peer's own octets come.
        let before = scene.peer.frame(&segment::write(rddp_ddp::Stag(1), 0, true, b""));
        let genuine = scene.peer.frame(&segment::send(1, 0, true, GENUINE));
        scene.peer.octets(&[&before[..], &genuine].concat());
        let lie = fpdu(&segment::send(1, 0, true, FORGED));
        let forged = frame(&scene, 0, &lie);
        inject(&Frame { seq: seq.wrapping_add(before.len() as u32), ..forged });
        assert_eq!((scene.end.success().wr_id, scene.octets(1, GENUINE.len())), (1, GENUINE.to_vec()));
    });
}

/// The program takes it for the peer's, and sums its CRC. IP drops it, and the peer's own segment
/// comes by later.
#[test]
fn a_message_that_ip_drops_is_not_delivered() {
    in_namespace(|| {
        for placement in [Placement::Auto, Placement::Kernel] {
            let mut scene = scene(placement, "lo");
            let (peers, lie) = two_and_a_lie(&mut scene);
            inject_octets(&dropped_by_ip(&frame(&scene, peers[0].len() as u32, &lie)));
            are_delivered(&mut scene, &peers);
        }
    });
}

/// Segments far behind the window, and far in front of it, that IP drops, too: they change nothing
/// about which octets have come.
#[test]
fn a_message_that_ip_drops_is_not_delivered_behind_segments_far_away() {
    in_namespace(|| {
        for placement in [Placement::Auto, Placement::Kernel] {
            let mut scene = scene(placement, "lo");
            let (peers, lie) = two_and_a_lie(&mut scene);
            inject_octets(&dropped_by_ip(&frame(&scene, peers[0].len() as u32, &lie)));
            const STEP: u32 = 60_000;
            for number in 0..4 {
                let far = frame(&scene, 1000 + number * STEP, &[1; STEP as usize]);
                inject_octets(&dropped_by_ip(&far));
            }
            for number in 1..=4 {
                let ahead = (1000 + number * STEP).wrapping_sub(1 << 31).wrapping_sub(1);
                inject_octets(&dropped_by_ip(&frame(&scene, ahead, &[1])));
            }
            are_delivered(&mut scene, &peers);
        }
    });
}

/// The peer's own segments come by an interface without the program.
#[test]
fn a_message_that_ip_drops_is_not_delivered_for_one_that_the_program_has_not_seen() {
    in_namespace(|| {
        for placement in [Placement::Auto, Placement::Kernel] {
            let wire = tap(["10.9.9.1/24", "fd99::1/64"], Way::Plain);
            net::ip(&format!("link set {DEVICE} address 02:00:00:00:00:02"));
            set("ipv4/tcp_timestamps", "0");
            let kernel = KernelPlacement { interfaces: vec![DEVICE.into()], trusted: false };
            let mut scene = Scene::at("10.9.9.1", kernel, placement, |_| {});
            let (peers, lie) = two_and_a_lie(&mut scene);
            let forged = frame(&scene, peers[0].len() as u32, &lie);
            let forged = Frame { to: [2, 0, 0, 0, 0, 2], ..forged };
            (&wire).write_all(&dropped_by_ip(&forged)).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            are_delivered(&mut scene, &peers);
        }
    });
}

/// RFC 1122 §3.2.1.3: IP drops a loopback address that comes from elsewhere.
#[test]
fn a_message_from_a_loopback_address_that_comes_by_a_wire_is_not_delivered() {
    in_namespace(|| {
        let wire = tap(["10.9.9.1/24", "fd99::1/64"], Way::Plain);
        net::ip(&format!("link set {DEVICE} address 02:00:00:00:00:02"));
        let mut scene = scene(Placement::Auto, DEVICE);
        let lie = fpdu(&segment::send(1, 0, true, FORGED));
        let frame = Frame { to: [2, 0, 0, 0, 0, 2], ..frame(&scene, 1000, &lie) };
        (&wire).write_all(&frame.octets()).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(scene.end.qp.kernel_counts().map(|counts| counts.placed), Some(0));
        is_delivered(&mut scene);
    });
}
