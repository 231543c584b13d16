//! Random segments: the program and a model in Rust place them alike, and nothing else changes.
//! The kernel runs the program on frames of some 3,700 octets at most; longer ones come by a TAP
//! device.

use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::sync::mpsc::channel;

use rddp_ddp::{Stag, check_range};
use rddp_kernel_patch::kernel::Awaited;
use rddp_kernel_patch::segment::{self, Front, Kind};
use rddp_test_support::{Random, pattern, segment as ulpdus};

use super::awaited::{OWN, own};
use super::common::frame::{Frame, TCP, fpdu, last_fpdu, write_fpdu};
use super::common::net::{in_namespace, ip, set};
use super::common::rounds;
use super::common::tap::{DEVICE, Faults, RECEIVER, path};
use super::{BASE, CANARIES, LEN, STAG, Scene};

/// Receives by MSN, and a sink: places in the region.
const RECEIVES: [(u32, Range<u64>); 2] = [(u32::MAX, 0..700), (0, 650..655)];
const SINK: Range<u64> = 2000..2700;

/// Returns where in the region a payload belongs, if it is to be placed.
fn place(front: &Front) -> Option<u64> {
    let inside = |range: &Range<u64>, to: u64| {
        let offset = check_range(range.start, range.end - range.start, to, front.len as u64);
        offset.ok().map(|offset| range.start + offset)
    };
    let tagged = front.to.wrapping_sub(BASE);
    match front.kind {
        Kind::Write if front.stag == STAG && !front.last => inside(&(0..LEN as u64), tagged),
        Kind::Response if front.stag == OWN => inside(&SINK, tagged),
        Kind::Send => {
            let (msn, mo) = ((front.to >> 32) as u32, front.to & u64::from(u32::MAX));
            let (_, receive) = RECEIVES.into_iter().find(|(its, _)| *its == msn)?;
            inside(&receive, receive.start + mo)
        }
        _ => None,
    }
}

/// Opens the region, receives and sink.
fn opened(mut scene: Scene) -> Scene {
    assert!(scene.patch.stags().open(OWN, &own(&scene)));
    let awaited = |range: &Range<u64>| Awaited {
        stag: OWN.0,
        to: BASE + range.start,
        len: (range.end - range.start) as u32,
    };
    for (msn, range) in RECEIVES {
        scene.placing.open_receive(msn, &awaited(&range));
    }
    scene.placing.open_sink(1, &awaited(&SINK));
    scene
}

#[test]
fn random_segments_are_placed_as_the_model_says() {
    in_namespace(|| {
        let mut scene = opened(Scene::new(0));
        let run = |scene: &Scene, frame: &[u8]| scene.patch.run(frame).unwrap();
        compare(&mut scene, (23, 20_000, 3000), [0; 6], run);
    });
}

#[test]
fn random_segments_that_are_long_are_placed_as_the_model_says() {
    in_namespace(|| {
        // Of another host's connection, as that of a middle would be.
        let (tell, told) = channel();
        let (middle, _peer) = path(Faults::default(), 1, move || TcpStream::connect(told.recv().unwrap()));
        set("ipv4/tcp_timestamps", "0");
        ip(&format!("link set {DEVICE} address 02:00:00:00:00:02 mtu 65000"));
        let listener = TcpListener::bind((RECEIVER, 0)).unwrap();
        tell.send(listener.local_addr().unwrap()).unwrap();
        let mut scene = opened(Scene::of(listener.accept().unwrap().0, 0, LEN + 2 * CANARIES));
        let _attached = scene.patch.attach(DEVICE).unwrap();
        let to = [2, 0, 0, 0, 0, 2];
        compare(&mut scene, (24, 5_000, 64_000), to, |_, frame| middle.inject(frame));
    });
}

/// Has so many random segments, of at most so many octets, come, and compares: also what the
/// records have as CRCs, which are often wrong.
fn compare(
    scene: &mut Scene,
    (seed, segments, longest): (u64, usize, usize),
    to: [u8; 6],
    deliver: impl Fn(&Scene, &[u8]),
) {
    let mut random = Random::new(seed);
    let mut memory = scene.octets();
    let mut placed = [0; 3];
    for _ in 0..rounds(segments) {
        let mut payload = random_payload(&mut random, longest);
        payload.truncate(longest);
        let mut frame = Frame { to, ..scene.frame(100, payload.clone()) }.octets();
        let is_sound = random.below(8) > 0;
        if !is_sound {
            let at = TCP + random.below(frame.len() - TCP);
            frame[at] ^= 1 << random.below(8);
        }
        let mut wanted = Vec::new();
        for range in segment::fpdus(&payload).filter(|_| is_sound).unwrap_or_default() {
            let Some(front) = Front::parse(&payload[range.clone()]) else { continue };
            let Some(offset) = place(&front) else { continue };
            let octets = &payload[range.start + front.octets()..][..front.len];
            memory[CANARIES + offset as usize..][..front.len].copy_from_slice(octets);
            placed[front.kind as usize] += 1;
            wanted.push((true, *payload[range].last_chunk().unwrap()));
        }
        deliver(scene, &frame);
        assert!(scene.octets() == memory, "{payload:02x?}");
        let taken = std::iter::from_fn(|| scene.placing.take()).map(|(record, good)| (good, record.crc));
        assert_eq!(taken.collect::<Vec<_>>(), wanted, "{payload:02x?}");
    }
    for (kind, least) in
        [(Kind::Write, segments / 5), (Kind::Response, segments / 20), (Kind::Send, segments / 20)]
    {
        assert!(placed[kind as usize] > rounds(least), "{kind:?}: {placed:?}");
    }
}

/// Returns up to five FPDUs, or so many that they have about as many octets as said.
fn random_payload(random: &mut Random, longest: usize) -> Vec<u8> {
    let mut payload = Vec::new();
    for _ in 0..=random.below(4 + longest / 1000) {
        payload.extend(random_fpdu(random));
    }
    match random.below(10) {
        0 => payload.truncate(random.below(payload.len()) + 1),
        1 => payload.push(0),
        2 => {
            let most = [20, payload.len()][random.below(2)];
            let at = random.below(payload.len().min(most));
            payload[at] ^= 1 << random.below(8);
        }
        _ => {}
    }
    payload
}

fn random_fpdu(random: &mut Random) -> Vec<u8> {
    let len = [random.below(8), random.below(700), 0][random.below(3)];
    let octets = pattern(len, random.below(256) as u8);
    let to = match random.below(8) {
        0 => random.number(),
        1 => BASE.wrapping_sub(random.below(16) as u64),
        2 => BASE + (LEN - random.below(800)) as u64,
        _ => BASE + random.below(LEN - 700) as u64,
    };
    let changed = |random: &mut Random, stag: Stag| match random.below(10) {
        0 => Stag(stag.0 ^ 1 << random.below(32)),
        _ => stag,
    };
    let last = random.below(2) == 0;
    match random.below(12) {
        0 => last_fpdu(changed(random, STAG), to, &octets),
        1 => fpdu(&octets),
        2..=4 => {
            let msn = [u32::MAX, 0, 1][random.below(3)];
            let mo = [0, random.below(700) as u32, random.number() as u32][random.below(3)];
            fpdu(&ulpdus::send(msn, mo, last, &octets))
        }
        5..=7 => {
            let sink = BASE + SINK.start + random.below(700) as u64;
            let to = if random.below(8) == 0 { to } else { sink };
            fpdu(&ulpdus::response(changed(random, OWN), to, last, &octets))
        }
        _ => write_fpdu(changed(random, STAG), to, &octets),
    }
}
