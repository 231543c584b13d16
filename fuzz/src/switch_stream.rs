//! `switch_stream`: a peer of a byte stream in DDPMODE, which knows the protocols and breaks them
//! where the input says so.
//!
//! The program reads the octets that correct Sends have carried, in order, up to the end of the
//! stream. No call waits, no octet is read twice, and nothing is read after an end.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::LazyLock;

use arbitrary::{Arbitrary, Unstructured};
use rddp_ddp::{Header, Msn, Stag};
use rddp_mpa::{Framing, Initiator, Negotiated, Responder, ResponderStep, StartupConfig};
use rddp_rdmap::{Opcode, tagged_header, untagged_header};
use rddp_stream::{Calls, Options, Phase, Role, SharedState, Stream};
use rddp_test_support::{Fpdus, segment};
use socket2::SockRef;

use crate::input::{Octets, Tail, inputs};

inputs! {
    /// The two ends, and the events.
    pub struct Input {
        /// The crates' end is the responder; else it is the initiator.
        responder: bool,
        /// The configurations; see [`wish`].
        wishes: u8,
        /// The longest Send that the crates' end accepts.
        max_send: u16,
        /// The events, in order.
        steps: Tail<Move, 64>,
    }
}

inputs! {
    /// An action of one end.
    pub struct Move {
        /// The kind of the action; see [`play`].
        what: u8,
        /// A number of octets for it.
        size: u16,
        /// The octets that are sent.
        octets: Octets,
    }
}

/// Bits of [`Input::wishes`].
mod wish {
    pub(super) const CRC: u8 = 1;
    pub(super) const MARKERS: u8 = 2;
    pub(super) const PEER_CRC: u8 = 4;
    pub(super) const PEER_MARKERS: u8 = 8;
    /// The input replaces the peer's startup frame.
    pub(super) const NO_FRAME: u8 = 16;
}

static LISTENER: LazyLock<TcpListener> = LazyLock::new(|| TcpListener::bind("127.0.0.1:0").unwrap());
static CALLS: Calls = Calls::libc();

/// Runs one input; the module says what has to hold.
pub fn run(octets: &[u8]) {
    let Ok(input) = Input::arbitrary(&mut Unstructured::new(octets)) else { return };
    let mut story = Story::begin(&input);
    for step in &input.steps.0 {
        story.play(step);
        story.look();
    }
    story.end();
}

struct Story {
    peer: TcpStream,
    own: TcpStream,
    state: SharedState,
    fpdus: Fpdus,
    msn: Msn,
    /// Octets that correct Sends have carried.
    said: Vec<u8>,
    heard: usize,
    /// The peer has done nothing yet that ends a stream.
    proper: bool,
    over: bool,
}

impl Story {
    fn begin(input: &Input) -> Self {
        let to: SocketAddr = LISTENER.local_addr().unwrap();
        let active = TcpStream::connect(to).unwrap();
        let (passive, _) = LISTENER.accept().unwrap();
        let (own, peer) = if input.responder { (passive, active) } else { (active, passive) };
        own.set_nonblocking(true).unwrap();
        peer.set_nonblocking(true).unwrap();
        peer.set_nodelay(true).unwrap();
        let has = |bit| input.wishes & bit != 0;
        let role = if input.responder { Role::Responder } else { Role::Initiator };
        let options = Options {
            crc: has(wish::CRC),
            markers: has(wish::MARKERS),
            max_send: u32::from(input.max_send).max(1),
            ..Options::new(role)
        };
        let state = SharedState::anonymous(&options).unwrap();
        let framing = Framing { crc: false, markers: false };
        let mut story = Story {
            peer,
            own,
            state,
            fpdus: Fpdus::new(framing, framing),
            msn: Msn::FIRST,
            said: Vec::new(),
            heard: 0,
            proper: true,
            over: false,
        };
        if has(wish::NO_FRAME) {
            story.proper = false;
            return story;
        }
        let config = StartupConfig {
            crc: has(wish::PEER_CRC),
            markers: has(wish::PEER_MARKERS),
            ..StartupConfig::default()
        };
        let negotiated =
            if input.responder { story.as_initiator(&config) } else { story.as_responder(&config) };
        story.fpdus = Fpdus::negotiated(&negotiated);
        if input.responder {
            // This is the RTR.
            story.fpdu(&tagged_header(Opcode::Write, Stag(0), 0, true), b"", &[]);
        }
        story
    }

    fn stream(&self) -> Stream<'_> {
        Stream::new(self.own.as_raw_fd(), &self.state, &CALLS).unwrap()
    }

    fn as_initiator(&mut self, config: &StartupConfig) -> Negotiated {
        let mut initiator = Initiator::new(config, b"").unwrap();
        self.peer.write_all(initiator.request()).unwrap();
        assert_eq!(self.stream().greet(), Ok(true));
        let mut reply = vec![0; 600];
        let count = self.peer.read(&mut reply).unwrap();
        match initiator.handle(&reply[..count]).unwrap() {
            rddp_mpa::InitiatorStep::Accepted { negotiated, .. } => negotiated,
            other => panic!("{other:?}"),
        }
    }

    fn as_responder(&mut self, config: &StartupConfig) -> Negotiated {
        assert_eq!(self.stream().greet(), Ok(false));
        let mut request = vec![0; 600];
        let count = self.peer.read(&mut request).unwrap();
        match Responder::new().handle(&request[..count]).unwrap() {
            ResponderStep::Request { request, .. } => {
                let (reply, negotiated) = request.accept(config, b"").unwrap();
                self.peer.write_all(&reply).unwrap();
                assert_eq!(self.stream().greet(), Ok(true));
                negotiated
            }
            other @ ResponderStep::Need { .. } => panic!("{other:?}"),
        }
    }

    /// Writes an FPDU, with `spoiled` octets of it changed.
    fn fpdu(&mut self, header: &Header, payload: &[u8], spoiled: &[u8]) {
        let mut out = self.fpdus.frame(&segment::ulpdu(header, payload));
        for at in spoiled {
            let at = usize::from(*at) % out.len();
            out[at] ^= 0x40;
        }
        self.write(&out);
    }

    fn write(&mut self, octets: &[u8]) {
        if self.peer.write_all(octets).is_err() {
            self.proper = false;
        }
    }

    fn play(&mut self, step: &Move) {
        let (octets, size) = (&step.octets.0, usize::from(step.size));
        match step.what % 12 {
            0..=2 => self.proper_send(octets, size),
            3 => {
                self.proper = false;
                self.write(octets);
            }
            4 => {
                self.proper = false;
                let header = untagged_header(Opcode::Send, Stag(0), self.msn, 0, size & 1 != 0);
                self.fpdu(&header, octets, &[step.what, size as u8]);
            }
            5 => self.odd_fpdu(step),
            6 => self.read(size % 70_000, 0),
            7 => self.read(size % 300, libc::MSG_PEEK),
            8 => {
                let pieces = [IoSlice::new(octets), IoSlice::new(octets)];
                let _ = self.stream().send(&pieces, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT);
            }
            9 => {
                let mut nowhere = [0; 4096];
                let _ = self.peer.read(&mut nowhere);
            }
            10 => {
                let how = [libc::SHUT_RD, libc::SHUT_WR, libc::SHUT_RDWR][size % 3];
                // Behind this a read may report the end.
                self.over |= how != libc::SHUT_WR;
                let _ = self.stream().shutdown(how);
            }
            _ => {
                self.proper = false;
                if size & 1 != 0 {
                    let _ = SockRef::from(&self.peer).set_linger(Some(std::time::Duration::ZERO));
                }
                let _ = self.peer.shutdown(Shutdown::Write);
            }
        }
    }

    /// Sends a message in segments of this size.
    fn proper_send(&mut self, octets: &[u8], size: usize) {
        if octets.len() > self.state.options().max_send as usize || octets.len() / (size % 999 + 1) > 64 {
            return;
        }
        let mut at = 0;
        loop {
            let to = octets.len().min(at + size % 999 + 1);
            let header = untagged_header(Opcode::Send, Stag(0), self.msn, at as u32, to == octets.len());
            self.fpdu(&header, &octets[at..to], &[]);
            at = to;
            if at == octets.len() {
                break;
            }
        }
        self.msn = self.msn.next();
        if self.proper {
            self.said.extend(octets);
        }
    }

    /// Sends a correct FPDU of any kind.
    fn odd_fpdu(&mut self, step: &Move) {
        self.proper = false;
        let size = u32::from(step.size);
        let opcode = match step.what / 12 {
            0..=3 => Opcode::ReadRequest,
            4..=7 => Opcode::SendSolicited,
            8..=11 => Opcode::SendInvalidate,
            12..=15 => Opcode::Immediate,
            _ => Opcode::Terminate,
        };
        let header = match size % 3 {
            0 => tagged_header(Opcode::Write, Stag(size), u64::from(size), true),
            1 => untagged_header(opcode, Stag(size), self.msn, size, true),
            _ => untagged_header(opcode, Stag(0), Msn::FIRST, 0, true),
        };
        self.fpdu(&header, &step.octets.0, &[]);
    }

    fn read(&mut self, room: usize, flags: i32) {
        let mut octets = vec![0; room];
        let got = self.stream().recv(&mut [IoSliceMut::new(&mut octets)], flags | libc::MSG_DONTWAIT);
        let Ok(count) = got else { return };
        let peeks = flags & libc::MSG_PEEK != 0;
        let heard = &self.said[self.heard..];
        // Octets that the fuzzer made may happen to be correct Sends: only the octets before them
        // are known.
        let known = count.min(heard.len());
        assert_eq!(octets[..known], heard[..known], "other octets than were sent");
        assert!(known == count || !self.proper, "more octets than were sent");
        assert!(!self.over || count == 0 || known > 0 || !self.proper, "octets after the end");
        if !peeks {
            self.heard += known;
        }
    }

    /// Does what a wait would do.
    fn look(&self) {
        let stream = self.stream();
        let want = libc::POLLIN | libc::POLLOUT;
        let asked = stream.interest(want);
        assert_ne!(asked, 0, "nothing to wait for");
        let told = stream.revents(asked, want);
        if told & libc::POLLIN != 0 && self.state.phase() == Phase::Framed {
            let mut octet = [0];
            let got = stream.recv(&mut [IoSliceMut::new(&mut octet)], libc::MSG_DONTWAIT | libc::MSG_PEEK);
            assert_ne!(got.err().map(|error| error.0), Some(libc::EAGAIN), "readable, and nothing to read");
        }
        let _ = stream.available();
    }

    /// Checks that all octets that were sent are read, unless something ended the stream.
    fn end(&mut self) {
        for _ in 0..200 {
            let before = self.heard;
            self.read(60_000, 0);
            if self.heard == before {
                break;
            }
        }
        if self.proper && !self.over {
            assert_eq!(self.heard, self.said.len(), "octets that did not come");
        }
        let _ = self.stream().finish(std::time::Duration::ZERO);
    }
}
