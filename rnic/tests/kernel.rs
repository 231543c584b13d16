//! Placement in the kernel, as a program uses it: two devices in network namespaces of their own,
//! and between them a path that loses, repeats, reorders and corrupts segments.
//!
//! Needs root and the feature `kernel`: `tests/kernel-placement/run`.
#![cfg(feature = "kernel")]
#![allow(missing_docs)]

#[path = "kernel/awaited.rs"]
mod awaited;
mod common;
#[path = "kernel/forged.rs"]
mod forged;
#[path = "kernel/hostile.rs"]
mod hostile;
#[path = "kernel/limits.rs"]
mod limits;
#[path = "kernel/long.rs"]
mod long;
#[path = "../../kernel-patch/tests/common/mod.rs"]
mod path_test;
#[path = "kernel/slots.rs"]
mod slots;
#[path = "kernel/windows.rs"]
mod windows;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use common::{End, PATIENCE};
use path_test::net::in_namespace;
use path_test::tap::{BAD_PATH, DEVICE, Faults, Middle, RECEIVER, RECEIVER_V6, path};
use path_test::{is_quick, rounds};
use rddp_rnic::{
    Access, ConnectOptions, KernelCounts, KernelPlacement, MemError, MemoryRegion, Placement, QpConfig,
    RecvWr, RegionOptions, Remote, Rnic, RnicConfig, SendWr, SgeList, Status,
};
use rddp_test_support::pattern_from;

/// The place to connect to, and the memory there.
struct Invitation {
    addr: SocketAddr,
    target: Remote,
    crc: bool,
}

/// The receiving end of a connection over a bad path, and its memory.
struct Run {
    end: End,
    region: MemoryRegion,
    middle: Middle,
}

fn device() -> Rnic {
    let kernel = KernelPlacement { interfaces: vec![DEVICE.into()], trusted: false };
    Rnic::with_config(&RnicConfig { kernel: Some(kernel), ..Default::default() }).unwrap()
}

impl Run {
    /// Connects both ends, and posts receives without memory at this one. `send` is the sender's
    /// program, with the place that it may write to.
    fn start(
        faults: Faults,
        seed: u64,
        setting: (Placement, bool),
        len: usize,
        send: impl FnOnce(End, Remote) + Send + 'static,
    ) -> Self {
        let empty = |id| RecvWr::new(id, SgeList::default());
        let receives = |end: &End| (0..1024).for_each(|id| end.qp.post_recv(empty(id)).unwrap());
        Self::connect(faults, seed, setting, len, (|_| {}, receives), send)
    }

    /// Connects both ends, this one with a QP that was changed and got receives as said.
    fn connect(
        faults: Faults,
        seed: u64,
        (placement, crc): (Placement, bool),
        len: usize,
        (change, receives): (impl FnOnce(&mut QpConfig), impl FnOnce(&End)),
        send: impl FnOnce(End, Remote) + Send + 'static,
    ) -> Self {
        let (invite, invited) = channel();
        let (middle, _) = path(faults, seed, move || sender(&invited, send));
        let rnic = device();
        let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(4096).unwrap());
        let mut config = QpConfig { placement, max_recv: 1024, ..QpConfig::new(&cq) };
        change(&mut config);
        let qp = pd.create_qp(&config).unwrap();
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let options = RegionOptions { kernel: true, ..Default::default() };
        let region = pd.allocate_with(len, access, &options).unwrap();
        let end = End { rnic, pd, cq, qp };
        receives(&end);
        // By IPv4 and IPv6 in turn.
        let addr = if seed.is_multiple_of(2) { RECEIVER_V6 } else { RECEIVER };
        let invitation =
            Invitation { addr: SocketAddr::new(addr.parse().unwrap(), 0), target: region.remote(0), crc };
        accept(&end, &invite, &invitation);
        Self { end, region, middle }
    }

    fn counts(&self) -> KernelCounts {
        self.end.qp.kernel_counts().expect("the kernel places")
    }

    /// Waits for the last message, and says why it does not come.
    fn await_end(&self) {
        let completion = self.end.next();
        let ended = (self.end.qp.terminate_sent(), self.end.qp.terminate_received());
        let events: Vec<_> = self.end.rnic.async_events().collect();
        assert_eq!(completion.status, Status::Success, "{ended:?}, {events:?}, {:?}", self.middle.faults);
    }

    /// Says what happened, and checks that something was placed behind a hole.
    fn report(&self) -> KernelCounts {
        let counts = self.counts();
        eprintln!("{counts:?}, faults: {:?}", self.middle.faults);
        // Of few Writes that overlap, all may be void.
        assert!(counts.octets_behind > 0 || is_quick(), "{counts:?}");
        // The first FPDUs may come before the program knows the connection.
        assert!(counts.octets_unseen < 1000 && counts.interface > 1, "{counts:?}");
        counts
    }
}

fn accept(end: &End, invite: &Sender<Invitation>, invitation: &Invitation) {
    let options = ConnectOptions { crc: invitation.crc, ..Default::default() };
    let listener = end.rnic.listen(invitation.addr, &options).unwrap();
    invite.send(Invitation { addr: listener.local_addr().unwrap(), ..*invitation }).unwrap();
    let request = listener.accept(Some(PATIENCE)).unwrap().expect("nobody came");
    request.accept(&end.qp, b"").unwrap();
}

fn sender(invited: &Receiver<Invitation>, send: impl FnOnce(End, Remote)) {
    let Invitation { addr, target, crc } = invited.recv().unwrap();
    let end = End::with(|config| config.max_send = 1024);
    let options = ConnectOptions { crc, ..Default::default() };
    end.qp.connect(addr, &options).unwrap();
    send(end, target);
}

/// Octets of the region that is written once, and how often there is one: `RDDP_LONG` says how many
/// of 64 MiB.
fn amount() -> (usize, u64) {
    match std::env::var("RDDP_LONG") {
        Ok(rounds) => (1 << 26, rounds.parse().expect("RDDP_LONG is a number")),
        Err(_) if is_quick() => (1 << 20, 1),
        Err(_) => (8 << 20, 1),
    }
}

/// The setting, and whether CRCs are on.
const SETTINGS: [(Placement, bool); 4] = [
    (Placement::Auto, true),
    (Placement::Kernel, true),
    (Placement::Auto, false),
    (Placement::Kernel, false),
];

#[test]
fn a_region_written_once_is_right_after_a_bad_path() {
    in_namespace(|| {
        let (len, rounds) = amount();
        let octets = Arc::new(pattern_from(7, len));
        for (number, setting) in SETTINGS.into_iter().enumerate() {
            for round in 0..rounds {
                let sent = octets.clone();
                let seed = 1 + number as u64 + 1000 * round;
                let run = Run::start(BAD_PATH, seed, setting, len, move |end, target| {
                    send_once(&end, target, &sent);
                });
                run.await_end();
                assert!(is_at(&run.region, &octets), "wrong octets");
                assert_eq!(run.report().wrong, 0, "nothing overlaps");
            }
        }
    });
}

fn send_once(end: &End, target: Remote, octets: &[u8]) {
    let source = end.region(octets.len(), Access::empty());
    source.write(0, octets).unwrap();
    for start in (0..octets.len()).step_by(1 << 20) {
        let part = source.sge(start..start + (1 << 20));
        end.qp.post_send(&SendWr::write(0, part, target.at(start as u64)).unsignaled()).unwrap();
    }
    end.qp.post_send(&SendWr::send_inline(1, b"")).unwrap();
    end.success();
    end.event();
}

/// Returns whether these octets are in the region, and those alone.
fn is_at(region: &MemoryRegion, octets: &[u8]) -> bool {
    (0..)
        .step_by(1 << 20)
        .zip(octets.chunks(1 << 20))
        .all(|(at, part)| region.read(at, part.len()).unwrap() == part)
}

/// Octets of a ring into which Writes go one behind the other, and of each Write: they lie across
/// each other by parts of segments. Behind the ring is the number of the newest.
const RING: usize = 20_000;
const WRITE: usize = 5000;
const STEP: usize = 808;
/// Messages behind which the sender waits for the receiver, which has more receives than that.
const IN_FLIGHT: u64 = 256;

/// Returns where a Write goes.
fn place_of(number: u64) -> usize {
    (number as usize * STEP % (RING - WRITE)) & !7
}

/// Returns the octets of a Write: its number, and those that follow.
fn octets_of(number: u64) -> Vec<u8> {
    (number..).take(WRITE / 8).flat_map(u64::to_ne_bytes).collect()
}

fn send_ring(end: &End, target: Remote, messages: u64) {
    let source = end.region(WRITE, Access::LOCAL_WRITE);
    (0..messages / IN_FLIGHT).for_each(|id| end.qp.post_recv(RecvWr::new(id, SgeList::default())).unwrap());
    for number in 1..=messages {
        source.write(0, &octets_of(number)).unwrap();
        let to = target.at(place_of(number) as u64);
        end.qp.post_send(&SendWr::write(0, source.whole(), to).unsignaled()).unwrap();
        let newest = SendWr::write_inline(0, &number.to_ne_bytes(), target.at(RING as u64));
        end.qp.post_send(&newest.unsignaled()).unwrap();
        end.qp.post_send(&SendWr::send_inline(number, b"")).unwrap();
        end.success();
        if number % IN_FLIGHT == 0 {
            end.success();
        }
    }
    end.event();
}

/// RFC 5041 §5.3: of Writes to the same octets the last one stays, and what a Send announces is
/// there, or something newer.
#[test]
fn the_last_of_overlapping_writes_stays() {
    in_namespace(|| {
        for (seed, setting) in (5..).zip(SETTINGS) {
            let messages = rounds(3000) as u64;
            let send = move |end: End, target| send_ring(&end, target, messages);
            let run = Run::start(BAD_PATH, seed, setting, RING + 8, send);
            let mut wanted = vec![0; RING];
            for number in 1..=messages {
                run.end.success();
                run.end.qp.post_recv(RecvWr::new(0, SgeList::default())).unwrap();
                if number % IN_FLIGHT == 0 {
                    run.end.qp.post_send(&SendWr::send_inline(0, b"").unsignaled()).unwrap();
                }
                let newest = run.region.read_u64(RING).unwrap();
                assert!(newest >= number, "{newest} after {number}");
                wanted[place_of(number)..][..WRITE].copy_from_slice(&octets_of(number));
            }
            let octets = run.region.read(0, RING).unwrap();
            if let Some(first) = (0..RING).find(|at| octets[*at] != wanted[*at]) {
                panic!("octet {first} is not the last Write's");
            }
            run.report();
        }
    });
}

/// RFC 5042 §6.2.2: once an STag is invalid, no octet behind it changes any more.
#[test]
fn nothing_is_placed_through_an_stag_that_is_invalid() {
    in_namespace(|| {
        let run = Run::start(BAD_PATH, 9, (Placement::Kernel, true), 1 << 16, |end, target| {
            let source = end.region(1 << 20, Access::empty());
            for round in 0_u64.. {
                (0..1 << 16).step_by(4096).for_each(|at| source.write(at, &[round as u8; 4096]).unwrap());
                let part = source.sge(0..1 << 16);
                if end.qp.post_send(&SendWr::write(round, part, target)).is_err()
                    || end.next().status != Status::Success
                {
                    break;
                }
            }
        });
        while run.counts().placed < 200 {
            run.end.cq.poll_one();
        }
        run.end.qp.post_send(&SendWr::invalidate(1, run.region.stag())).unwrap();
        // What the reader still holds may have been placed before the request's turn.
        while run.region.is_valid() {
            run.end.cq.poll_one();
        }
        let then = run.region.read(0, 1 << 16).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        assert!(run.region.read(0, 1 << 16).unwrap() == then, "octets changed");
    });
}

#[test]
fn memory_that_the_kernel_does_not_reach_is_written_as_ever() {
    in_namespace(|| {
        let faults = Faults { drop: 100, ..Default::default() };
        let (tell, told) = channel::<Remote>();
        let run = Run::start(faults, 10, (Placement::Kernel, true), 1 << 20, move |end, target| {
            let source = end.region(1 << 20, Access::empty());
            source.write(0, &pattern_from(3, 1 << 20)).unwrap();
            for target in [target, told.recv().unwrap()] {
                end.qp.post_send(&SendWr::write(0, source.whole(), target).unsignaled()).unwrap();
            }
            end.qp.post_send(&SendWr::send_inline(1, b"")).unwrap();
            end.event();
        });
        let plain = run.end.region(1 << 20, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
        tell.send(plain.remote(0)).unwrap();
        run.end.success();
        for region in [&plain, &run.region] {
            assert!(region.read(0, 1 << 20).unwrap() == pattern_from(3, 1 << 20), "wrong octets");
        }
        assert!(run.report().octets <= 1 << 20);
    });
}

#[test]
fn a_device_without_the_kernel_has_no_such_memory() {
    let pd = Rnic::open().unwrap().alloc_pd();
    let options = RegionOptions { kernel: true, ..Default::default() };
    let refused = pd.allocate_with(64, Access::LOCAL_WRITE, &options).unwrap_err();
    assert!(matches!(refused, rddp_rnic::Error::Memory(MemError::NotForKernel)), "{refused}");
}
