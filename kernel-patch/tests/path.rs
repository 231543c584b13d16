//! A stream of Writes over a path that loses, reorders, repeats, delays and corrupts segments,
//! placed by the program and by a small engine that stands for `rnic`'s. Root, or it is skipped.

mod common;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use common::frame::{last_fpdu, write_fpdu};
use common::net::{in_namespace, tuple};
use common::tap::{BAD_PATH, Faults, Middle, RECEIVER, RECEIVER_V6, Way, has_vlans, path_by};
use common::{is_quick, rounds};
use rddp_ddp::{Stag, check_range};
use rddp_kernel_patch::kernel::{Attached, Guide, Memory, Opening, Patch, PatchError, Scope};
use rddp_kernel_patch::layout::{Outcome, PLACE_ALL, PLACE_LAST};
use rddp_kernel_patch::segment::{Front, TAGGED_FRONT};
use rddp_mpa::{CRC_LEN, crc32c, crc32c_append, fpdu_len, pad_len};
use rddp_test_support::pattern_from;

const STAG: Stag = Stag(0x0077_1234);
const BASE: u64 = 0x7000_0000;
const CANARIES: usize = 4096;
const CANARY: u8 = 0xee;
/// Octets of an FPDU around the payload of a Write that needs no pad.
const AROUND: usize = TAGGED_FRONT + CRC_LEN;

/// A segment of a Write.
struct Segment {
    /// Tagged Offset, from the base on.
    offset: u64,
    octets: Vec<u8>,
    last: bool,
}

type Writes = Vec<Segment>;

/// The receiving end.
struct Engine {
    socket: TcpStream,
    way: Way,
    patch: Patch,
    attached: Option<Attached>,
    guide: Option<Guide>,
    memory: Memory,
    len: usize,
    position: u64,
    flags: u32,
    crc: bool,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// FPDUs whose placed payload was confirmed, and those that were placed here.
    confirmed: u64,
    placed_here: u64,
    /// Placed payloads that did not make the CRC.
    wrong: u64,
    behind: u64,
    bad_checksums: u64,
    /// Segments that the program has seen.
    segments: u64,
}

impl Engine {
    fn new(socket: TcpStream, way: Way, len: usize, flags: u32, crc: bool) -> Self {
        let patch = Patch::load().unwrap();
        let memory = patch.pieces().allocate(len + 2 * CANARIES).unwrap();
        // SAFETY: no STag is open yet.
        unsafe { memory.ptr().write_bytes(CANARY, memory.len()) };
        let start = memory.start() + CANARIES as u64;
        let scope = Scope { base: BASE, len: len as u64, start, pd: 1, qp: 0, writes: true, own: false };
        assert!(patch.stags().open(STAG, &scope));
        let counts = Counts::default();
        let mut engine = Self {
            socket,
            way,
            patch,
            attached: None,
            guide: None,
            memory,
            len,
            position: 0,
            flags,
            crc,
            counts,
        };
        engine.attach();
        engine
    }

    fn attach(&mut self) {
        self.attached = Some(self.patch.attach(self.way.device()).unwrap());
        let opening = Opening { tuple: tuple(&self.socket), pd: 1, qp: 1, flags: self.flags };
        self.guide = match self.patch.place(&opening) {
            Ok(placing) => Some(Guide::new(placing, self.position)),
            // The peer has sent everything.
            Err(PatchError::NoConnection) => None,
            Err(error) => panic!("{error}"),
        };
    }

    fn detach(&mut self) {
        self.attached = None;
        let Some(guide) = self.guide.take() else { return };
        self.counts.behind += guide.placing().counts().octets_behind;
        self.counts.segments += guide.placing().counts().segments;
        self.counts.bad_checksums += guide.placing().left(Outcome::BadChecksum);
    }

    /// Takes one FPDU from the stream and delivers it. Returns the Tagged Offset, or `None` at the
    /// end.
    fn take(&mut self) -> Option<u64> {
        let mut front = [0; TAGGED_FRONT];
        match self.socket.read(&mut front[..1]).unwrap() {
            0 => return None,
            _ => self.socket.read_exact(&mut front[1..]).unwrap(),
        }
        let write = Front::parse(&front).unwrap();
        let offset = check_range(BASE, self.len as u64, write.to, write.len as u64).unwrap();
        let at = self.memory.start() + CANARIES as u64 + offset;
        let end = self.position + fpdu_len(TAGGED_FRONT - 2 + write.len) as u64;
        let rest = self.look((end - self.position) as usize - TAGGED_FRONT);
        let claim = self.guide.as_mut().and_then(|guide| {
            guide.enter(self.position, end);
            guide.claim(self.position, &front)
        });
        match claim {
            Some(claim) if claim == (at..at + write.len as u64) && self.is_right(&front, &claim, &rest) => {
                self.discard(rest.len());
                self.counts.confirmed += 1;
            }
            claim => {
                self.counts.wrong += u64::from(claim.is_some());
                self.place(&front, write.len, at);
            }
        }
        self.position = end;
        Some(write.to)
    }

    /// Waits for so many octets of the stream, and returns them; they can still be taken.
    fn look(&self, len: usize) -> Vec<u8> {
        let mut octets = vec![0; len];
        while self.socket.peek(&mut octets).unwrap() < len {
            std::thread::sleep(Duration::from_micros(100));
        }
        octets
    }

    /// Returns whether the octets that were placed are those of the stream, whose rest of the FPDU
    /// this is: by the CRC where there is one.
    fn is_right(&self, front: &[u8], claim: &Range<u64>, rest: &[u8]) -> bool {
        let len = (claim.end - claim.start) as usize;
        // SAFETY: inside the memory; the program may change octets under this, and then they are
        // wrong, or of a later FPDU that it has put there.
        let octets = unsafe {
            std::slice::from_raw_parts(
                self.memory.ptr().add((claim.start - self.memory.start()) as usize).as_ptr(),
                len,
            )
        };
        let (covered, field) = rest.split_at(rest.len() - CRC_LEN);
        let crc = crc32c_append(crc32c_append(crc32c(front), octets), &covered[len..]);
        if self.crc { crc.to_le_bytes() == field } else { octets == &covered[..len] }
    }

    fn discard(&mut self, mut len: usize) {
        while len > 0 {
            // SAFETY: with MSG_TRUNC, TCP drops octets and copies none.
            let dropped =
                unsafe { libc::recv(self.socket.as_raw_fd(), std::ptr::null_mut(), len, libc::MSG_TRUNC) };
            assert!(dropped > 0, "recv: {}", io::Error::last_os_error());
            len -= dropped as usize;
        }
    }

    /// Places a payload from the stream.
    fn place(&mut self, front: &[u8], len: usize, at: u64) {
        let mut rest = vec![0; len + pad_len(TAGGED_FRONT - 2 + len) + CRC_LEN];
        self.socket.read_exact(&mut rest).unwrap();
        let (covered, crc) = rest.split_at(rest.len() - CRC_LEN);
        assert_eq!(crc32c_append(crc32c(front), covered).to_le_bytes(), crc);
        let range = at..at + len as u64;
        // SAFETY: `take` has found the range inside the region.
        unsafe {
            let to = self.memory.ptr().add((at - self.memory.start()) as usize);
            to.as_ptr().copy_from_nonoverlapping(rest.as_ptr(), len);
        }
        if let Some(guide) = &mut self.guide {
            guide.placed_by_user(&range);
        }
        self.counts.placed_here += 1;
    }

    fn octets(&self) -> &[u8] {
        // SAFETY: of what the tests compare, nothing changes any more.
        unsafe { std::slice::from_raw_parts(self.memory.ptr().as_ptr(), self.memory.len()) }
    }

    /// The number of eight octets at an offset of the region.
    fn number(&self, offset: usize) -> u64 {
        // SAFETY: inside the memory, and aligned, since pages are.
        unsafe { self.memory.ptr().add(CANARIES + offset).cast::<u64>().as_ptr().read_volatile() }
    }

    /// Compares all of the memory with what Writes in order leave.
    fn check(&self, writes: &Writes) {
        let mut wanted = vec![CANARY; self.memory.len()];
        for Segment { offset, octets, .. } in writes {
            wanted[CANARIES + *offset as usize..][..octets.len()].copy_from_slice(octets);
        }
        let octets = self.octets();
        if let Some(first) = (0..wanted.len()).find(|at| octets[*at] != wanted[*at]) {
            let wrong = (0..wanted.len()).filter(|at| octets[*at] != wanted[*at]).count();
            panic!("{wrong} octets are wrong, the first at {first}");
        }
    }
}

/// A path, a sender of what `writes` returns for the largest payload, and the receiving end.
struct Run {
    engine: Engine,
    writes: Receiver<Writes>,
    middle: Middle,
}

impl Run {
    fn start(
        faults: Faults,
        setting: (u64, u32, bool),
        len: usize,
        writes: impl Fn(usize) -> Writes + Send + 'static,
    ) -> Self {
        Self::start_by(Way::Plain, faults, setting, len, writes)
    }

    fn start_by(
        way: Way,
        faults: Faults,
        (seed, flags, crc): (u64, u32, bool),
        len: usize,
        writes: impl Fn(usize) -> Writes + Send + 'static,
    ) -> Self {
        // By IPv4 and IPv6 in turn.
        let receiver = if seed % 2 == 0 { RECEIVER_V6 } else { RECEIVER };
        let (addr, its) = channel();
        let (give, given) = channel();
        let (middle, _) = path_by(way, faults, seed, move || send(&its, &give, &writes));
        let listener = TcpListener::bind((receiver, 0)).unwrap();
        addr.send(listener.local_addr().unwrap()).unwrap();
        let mut socket = listener.accept().unwrap().0;
        // The sender waits until everything is ready.
        socket.write_all(b"?").unwrap();
        let engine = Engine::new(socket, way, len, flags, crc);
        (&engine.socket).write_all(b"!").unwrap();
        Self { engine, writes: given, middle }
    }

    /// Takes all, and compares.
    fn finish(mut self) -> Counts {
        while self.engine.take().is_some() {}
        self.end()
    }

    fn end(mut self) -> Counts {
        self.engine.detach();
        self.engine.check(&self.writes.recv().unwrap());
        eprintln!("{:?}, faults: {:?}", self.engine.counts, self.middle.faults);
        self.engine.counts
    }
}

fn send(addr: &Receiver<SocketAddr>, give: &Sender<Writes>, writes: &impl Fn(usize) -> Writes) {
    let mut socket = TcpStream::connect(addr.recv().unwrap()).unwrap();
    socket.read_exact(&mut [0; 2]).unwrap();
    let writes = writes(mss(&socket) - AROUND);
    for Segment { offset, octets, last } in &writes {
        let make = if *last { last_fpdu } else { write_fpdu };
        socket.write_all(&make(STAG, BASE + offset, octets)).unwrap();
    }
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    give.send(writes).unwrap();
    let _ = socket.read(&mut [0]);
}

/// The largest segment. FPDUs of that size stay aligned, however TCP cuts.
fn mss(socket: &TcpStream) -> usize {
    let (mut mss, mut len) = (0_i32, size_of::<i32>() as libc::socklen_t);
    // SAFETY: a number of four octets, as said.
    let got = unsafe {
        let value = (&raw mut mss).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_MAXSEG, value, &raw mut len)
    };
    assert_eq!(got, 0);
    assert!(mss % 4 == 0, "an MSS of {mss}");
    mss as usize
}

/// Returns a plan of a single Write of about `len` octets, in segments.
fn one_write(len: usize) -> impl Fn(usize) -> Writes + Send {
    move |largest| {
        let count = len / largest;
        let segment = |number| Segment {
            offset: (number * largest) as u64,
            octets: pattern_from(number * largest, largest),
            last: number + 1 == count,
        };
        (0..count).map(segment).collect()
    }
}

#[test]
fn a_write_with_one_lost_segment_is_placed_behind_the_hole() {
    in_namespace(|| {
        let faults = Faults { lose: &[5], ..Default::default() };
        let counts = Run::start(faults, (1, 0, true), 1 << 20, one_write(1 << 20)).finish();
        assert!(counts.behind > 0 && counts.confirmed > 0, "{counts:?}");
        assert_eq!(counts.wrong, 0);
    });
}

/// Octets of the region that is written once.
fn len() -> usize {
    if is_quick() { 1 << 20 } else { 8 << 20 }
}

#[test]
fn a_region_written_once_is_right_after_a_bad_path() {
    in_namespace(|| {
        for (seed, flags, crc) in [(1, 0, true), (2, PLACE_ALL, true), (3, 0, false), (4, PLACE_ALL, false)] {
            let counts = Run::start(BAD_PATH, (seed, flags, crc), len(), one_write(len())).finish();
            assert!(counts.behind > 0 && counts.confirmed > 0, "{counts:?}");
            assert!(counts.bad_checksums > 0 || is_quick(), "{counts:?}");
            assert_eq!(counts.wrong, 0, "nothing overlaps");
        }
    });
}

/// Slots of a ring, and behind them a flag.
const SLOTS: usize = 4;
const FLAG: usize = 1 << 15;

/// For each message a slot of the ring, and then the flag with its number: one segment each, so
/// that all stay aligned.
fn ring(largest: usize) -> Writes {
    (1..=rounds(3000) as u64)
        .flat_map(|number| {
            let slot = (number as usize % SLOTS * largest) as u64;
            let octets = pattern_from(number as usize, largest);
            let mut flag = number.to_ne_bytes().to_vec();
            flag.resize(largest, 0);
            [
                Segment { offset: slot, octets, last: false },
                Segment { offset: FLAG as u64, octets: flag, last: true },
            ]
        })
        .collect()
}

/// RFC 5041 §5.3: of Writes to the same octets the last one stays. A flag that is polled never goes
/// back, nor is it seen before it is delivered; where last segments are placed, too, it is not
/// behind what is delivered.
#[test]
fn the_last_of_overlapping_writes_stays() {
    in_namespace(|| {
        for (seed, flags, crc) in
            [(5, 0, true), (6, PLACE_ALL | PLACE_LAST, true), (7, PLACE_LAST, false), (8, PLACE_ALL, false)]
        {
            let mut run = Run::start(BAD_PATH, (seed, flags, crc), 1 << 16, ring);
            let mut delivered = 0;
            while let Some(to) = run.engine.take() {
                delivered += u64::from(to == BASE + FLAG as u64);
                let flag = run.engine.number(FLAG);
                if delivered > 0 {
                    let is_right =
                        if flags & PLACE_LAST == 0 { flag == delivered } else { flag >= delivered };
                    assert!(is_right, "a flag of {flag} after {delivered}");
                }
            }
            let counts = run.end();
            assert!(counts.behind > 0, "{counts:?}");
        }
    });
}

#[test]
fn the_program_comes_and_goes_in_the_midst_of_a_stream() {
    in_namespace(|| {
        let faults = Faults { drop: 100, reorder: 100, ..Default::default() };
        let mut run = Run::start(faults, (9, PLACE_ALL, true), len(), one_write(len()));
        let mut taken = 0;
        while run.engine.take().is_some() {
            taken += 1;
            match taken % 200 {
                100 => run.engine.detach(),
                0 => run.engine.attach(),
                _ => {}
            }
        }
        let counts = run.end();
        assert!(counts.confirmed > 0 && counts.placed_here > 0, "{counts:?}");
    });
}

/// Segments that the receiver's kernel has joined (GRO) have several FPDUs each; their checksums
/// were right.
#[test]
fn joined_segments_are_placed() {
    in_namespace(|| {
        for (seed, flags, crc) in [(11, 0, true), (12, PLACE_ALL, false)] {
            let setting = (seed, flags, crc);
            let counts = Run::start_by(Way::Joined, BAD_PATH, setting, len(), one_write(len())).finish();
            assert!(counts.behind > 0 && counts.confirmed > 0, "{counts:?}");
            assert_eq!(counts.wrong, 0, "nothing overlaps");
            let fpdus = counts.confirmed + counts.placed_here;
            assert!(counts.segments < fpdus, "{counts:?}");
            // A wrong checksum is not joined.
            assert!(counts.bad_checksums < 100, "{counts:?}");
        }
    });
}

/// The program on a VLAN's own device sees segments without their tag.
#[test]
fn segments_of_a_vlan_are_placed() {
    in_namespace(|| {
        for (seed, flags, crc) in [(13, 0, true), (14, PLACE_ALL, false)] {
            if !has_vlans() {
                return;
            }
            let setting = (seed, flags, crc);
            let counts = Run::start_by(Way::Tagged, BAD_PATH, setting, len(), one_write(len())).finish();
            assert!(counts.behind > 0 && counts.confirmed > 0, "{counts:?}");
            assert_eq!(counts.wrong, 0, "nothing overlaps");
        }
    });
}
