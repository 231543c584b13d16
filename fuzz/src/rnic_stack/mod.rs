//! `rnic_stack`: a whole QP on one end of a TCP connection, and the input at the other.
//!
//! Whatever the peer sends, and whatever the program does meanwhile:
//! - an octet changes only where a peer or a receive was allowed to write, and no longer after that
//!   was revoked;
//! - no octet is sent that the peer may not read;
//! - every request completes at most once, and exactly once when the QP has been destroyed;
//! - at most one completion is neither a success nor flushed;
//! - what the QP sends is always well-formed, with at most one Terminate, at its end;
//! - the connection ends in time once the peer has finished.

mod arena;
pub mod input;
mod peer;

use std::collections::HashMap;
use std::io::{ErrorKind, Read};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use arbitrary::{Arbitrary, Unstructured};
use rddp_ddp::{Header, Stag};
use rddp_rnic::{
    Access, Completed, Completion, CompletionQueue, ConnectOptions, MemoryWindow, Negotiated, Operation,
    PostError, QpConfig, QpState, QueuePair, RecvWr, Remote, Revision, Rtr, SendWr, SharedReceiveQueue,
    SrqConfig, Status,
};
use socket2::Socket;

use self::arena::{Arena, BINDABLE, BOUND, RECEIVES, SINKS, SOURCE, SPECS};
use self::input::{Input, Step, What, Work, flag, more};
use self::peer::{Peer, Plan, Twist};

static ARENA: LazyLock<Mutex<Arena>> = LazyLock::new(|| Mutex::new(Arena::new()));

/// Runs one input; the module says what has to hold.
pub fn run(octets: &[u8]) {
    let Ok(input) = Input::arbitrary(&mut Unstructured::new(octets)) else { return };
    let mut arena = ARENA.lock().unwrap();
    arena.renew();
    let mut session = Session::new(&arena, &input);
    input.steps.0.iter().for_each(|step| session.step(step));
    session.finish();
}

/// Shorter than the five seconds after which a QP gives up a closing connection, so that a hang is
/// not hidden by that.
const IN_TIME: Duration = Duration::from_secs(4);

/// `MSG_NOSIGNAL`: the QP may have closed the socket.
const NO_SIGNAL: i32 = 0x4000;

/// Returns both ends of a TCP connection over loopback. The first resets it when it is closed, so
/// that no port stays behind: inputs come by thousands in a second.
fn tcp_pair() -> [Socket; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    let pair = [one, other].map(Socket::from);
    pair[0].set_linger(Some(Duration::ZERO)).unwrap();
    pair[0].set_tcp_nodelay(true).unwrap();
    pair
}

struct Posted {
    /// Octets of a receive.
    capacity: Option<u64>,
    signaled: bool,
    /// The STag that is invalid once the request has succeeded.
    invalidates: Option<Stag>,
    completions: usize,
}

struct Session<'a> {
    arena: &'a Arena,
    input: &'a Input,
    qp: Option<QueuePair>,
    cq: CompletionQueue,
    srq: Option<SharedReceiveQueue>,
    socket: Option<Socket>,
    peer: Peer,
    /// Octets from the peer that were not delivered yet.
    pending: Vec<u8>,
    /// A buffer for octets that the QP sends.
    room: Vec<u8>,
    posted: HashMap<u64, Posted>,
    next_id: u64,
    errors: usize,
    /// The octets that may change.
    allowed: Vec<Range<usize>>,
    /// Regions whose STag is certainly invalid.
    revoked: [bool; SPECS.len()],
    /// Places in revoked regions, with their octets at the moment of the revocation.
    kept: Vec<(Range<usize>, Vec<u8>)>,
    window: MemoryWindow,
    /// The ranges to which the window may be bound, as offsets in the bindable region, with the
    /// request that binds it.
    bound: Vec<(u64, Range<u64>)>,
}

impl<'a> Session<'a> {
    fn new(arena: &'a Arena, input: &'a Input) -> Self {
        let has = |bit: u8| input.flags & bit != 0;
        let capacity = if has(flag::SMALL_CQ) { 3 } else { 1024 };
        let cq = arena.rnic.create_cq(capacity).unwrap();
        let quota = (input.more & more::QUOTA != 0).then_some(2);
        let srq = has(flag::SRQ).then(|| arena.pd.create_srq(SrqConfig { max_recv: 64, quota }));
        let config = QpConfig {
            srq: srq.clone(),
            inbound_read: input.more & more::NO_READ == 0,
            inbound_write: input.more & more::NO_WRITE == 0,
            ..QpConfig::new(&cq)
        };
        let qp = arena.pd.create_qp(&config).unwrap();
        let [ours, theirs] = tcp_pair();
        ours.set_nonblocking(true).unwrap();
        let negotiated = negotiated(input);
        let options = ConnectOptions {
            place_before_crc: has(flag::PLACE_BEFORE_CRC),
            extensions: !has(flag::PLAIN),
            ..ConnectOptions::default()
        };
        let peer = Peer::new(negotiated.rx(), negotiated.tx());
        qp.attach(theirs, negotiated, &options, has(flag::ACTIVE)).unwrap();
        Session {
            arena,
            input,
            qp: Some(qp),
            cq,
            srq,
            socket: Some(ours),
            peer,
            pending: Vec::new(),
            posted: HashMap::new(),
            next_id: 1,
            errors: 0,
            allowed: Vec::new(),
            room: vec![0; 16 * 1024],
            revoked: [false; SPECS.len()],
            kept: Vec::new(),
            window: arena.pd.allocate_window().unwrap(),
            bound: Vec::new(),
        }
    }

    fn has(&self, bit: u8) -> bool {
        self.input.flags & bit != 0
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Segment { opcode, last, region, at, len, twist, value } => {
                if matches!(opcode & 0xf, 2 | 11) {
                    self.drain();
                }
                let plan = self.plan(*opcode, *last, *region, *at, *len, Twist::of(*twist), *value);
                let ulpdu = self.peer.segment(&plan);
                self.send(&ulpdu, plan.twist == Twist::Crc);
            }
            Step::Ulpdu { octets, region } => {
                let mut ulpdu = octets.0.clone();
                // Octets with the top bit set must not get where peers may read them.
                ulpdu.iter_mut().skip(14).for_each(|octet| *octet &= 0x7f);
                if let (Some(region), Some(stag)) = (region, ulpdu.get_mut(2..6)) {
                    stag.copy_from_slice(&self.stag(*region).0.to_be_bytes());
                }
                self.send(&ulpdu, false);
            }
            Step::Stream { octets } => self.pending.extend(&octets.0),
            Step::Deliver { octets } => self.deliver((*octets).into()),
            Step::Recv { at, len, pieces } => self.post_recv((*at).into(), (*len).into(), *pieces),
            Step::Post { work, fence } => self.post_send(work, *fence),
            Step::Local { what } => self.local(what),
        }
        if self.input.more & more::AT_ONCE != 0 {
            self.deliver(usize::MAX);
        }
    }

    /// Returns the STag of a region, or of the window.
    fn stag(&self, region: u8) -> Stag {
        let number = usize::from(region) % (SPECS.len() + 1);
        if number == SPECS.len() { self.window.stag() } else { self.arena.stag(number) }
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one step")]
    fn plan(&self, opcode: u8, last: bool, region: u8, at: u16, len: u16, twist: Twist, value: u32) -> Plan {
        let number = usize::from(region) % (SPECS.len() + 1);
        let (stag, base, room) = match number {
            SPECS_LEN => {
                let base = self.arena.remote(BINDABLE, BOUND.start as u64).to;
                (self.window.stag(), base, BOUND.len())
            }
            number => {
                let Remote { stag, to } = self.arena.remote(number, 0);
                (stag, to, SPECS[number].len)
            }
        };
        // A range that is mostly inside, now and then a little outside.
        let at = u64::from(at) % (room as u64 + 64);
        let at = if at >= room as u64 + 32 { at.wrapping_neg() % 32 } else { at };
        let to = base.wrapping_add(at);
        // A length that mostly fits.
        let left = room.saturating_sub(at as usize);
        let len = match usize::from(len) {
            len @ 0xff00.. => len - 0x400,
            len if matches!(opcode & 0xf, 0 | 1) && len & 0x4000 == 0 => len % (left + 1),
            len => len & 0x3fff,
        };
        Plan { opcode, last, twist, value, stag, to, len: len.min(64_000) }
    }

    /// Frames a ULPDU, and notes the octets that it may change.
    fn send(&mut self, ulpdu: &[u8], spoil_crc: bool) {
        let checked = self.has(flag::CRC) && !self.has(flag::PLACE_BEFORE_CRC);
        if !(spoil_crc && checked) {
            self.allow(ulpdu);
        }
        self.peer.frame(ulpdu, spoil_crc, &mut self.pending);
    }

    /// RFC 5041 §7.1, RFC 5042 §6: a segment may change only memory that its STag grants, and only
    /// if all of it is inside.
    fn allow(&mut self, ulpdu: &[u8]) {
        let Ok(header) = Header::parse(ulpdu) else { return };
        let payload = &ulpdu[header.len()..];
        match header {
            Header::Tagged(header) => {
                if self.input.more & more::NO_WRITE == 0 {
                    self.allow_access(header.stag, header.to, payload.len() as u64, Access::REMOTE_WRITE);
                }
            }
            Header::Untagged(header) => {
                if header.rsvd_ulp[0] & 0xf == 10
                    && self.input.more & more::NO_READ == 0
                    && let Ok(request) = rddp_rdmap::AtomicRequestRepr::parse(payload)
                {
                    self.allow_access(request.stag, request.to, 8, Access::REMOTE_ATOMIC);
                }
            }
        }
    }

    fn allow_access(&mut self, stag: Stag, to: u64, len: u64, want: Access) {
        let range = if stag == self.window.stag() {
            let from = to.wrapping_sub(self.arena.remote(BINDABLE, 0).to);
            let inside = |(_, bound): &&(u64, Range<u64>)| {
                from >= bound.start && from.checked_add(len).is_some_and(|end| end <= bound.end)
            };
            // The model does not follow which right a window had at which time, only its range.
            self.bound.iter().find(inside).and_then(|_| self.arena.range(BINDABLE, from, len))
        } else {
            match self.arena.reach(stag, to, len) {
                Some((number, Some(range)))
                    if SPECS[number].access.contains(want) && !self.revoked[number] =>
                {
                    // Memory of the other protection domain is never reached.
                    (number != FOREIGN).then_some(range)
                }
                _ => None,
            }
        };
        if let Some(range) = range {
            self.allowed.push(range);
        }
    }

    /// Delivers octets, and lets the program handle their results.
    fn deliver(&mut self, mut count: usize) {
        let started = Instant::now();
        while count > 0 && !self.pending.is_empty() {
            let Some(socket) = &self.socket else { return self.pending.clear() };
            let now = &self.pending[..count.min(self.pending.len())];
            match socket.send_with_flags(now, NO_SIGNAL) {
                Ok(taken) => {
                    self.pending.drain(..taken);
                    count -= taken;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    assert!(started.elapsed() < IN_TIME, "nobody reads what the peer sends");
                    self.drain();
                }
                Err(_) => self.pending.clear(),
            }
            self.poll();
        }
        self.poll();
    }

    /// The peer reads what the QP has sent.
    fn drain(&mut self) {
        self.poll();
        let Some(socket) = &mut self.socket else { return };
        loop {
            match socket.read(&mut self.room) {
                Ok(0) => break,
                Ok(count) => self.peer.hear(&self.room[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
    }

    fn poll(&mut self) {
        let mut completions = Vec::new();
        while self.cq.poll(16, &mut completions) > 0 {}
        completions.iter().for_each(|completion| self.completed(completion));
    }

    fn completed(&mut self, completion: &Completion) {
        let posted = self.posted.get_mut(&completion.wr_id).expect("only what was posted completes");
        posted.completions += 1;
        assert_eq!(posted.completions, 1, "{completion:?} completes again");
        assert!(posted.signaled || completion.status != Status::Success);
        let receive = matches!(completion.completed, Completed::Receive | Completed::ReceiveImmediate);
        assert_eq!(receive, posted.capacity.is_some());
        if let (Some(capacity), Status::Success, None) =
            (posted.capacity, completion.status, completion.immediate)
        {
            assert!(u64::from(completion.byte_len) <= capacity);
        }
        if !matches!(completion.status, Status::Success | Status::Flushed) {
            self.errors += 1;
            assert!(self.errors <= 1, "a second error: {completion:?}");
        }
        let invalidated = completion.invalidated.or(posted.invalidates);
        if let (Some(stag), Status::Success) = (invalidated, completion.status) {
            self.revoke_stag(stag, completion.wr_id);
        }
    }

    /// Notes that the STag is invalid: from now on no octet may change there by it, not even by a
    /// segment that was sent before.
    fn revoke_stag(&mut self, stag: Stag, by: u64) {
        if let Some((number, _)) = self.arena.reach(stag, 0, 0) {
            self.revoke(number);
        } else if stag == self.window.stag() {
            // The window may have been bound again meanwhile.
            let (gone, bound) = std::mem::take(&mut self.bound).into_iter().partition(|(id, _)| *id < by);
            self.bound = bound;
            if self.bound.is_empty() {
                let gone: Vec<(u64, Range<u64>)> = gone;
                gone.into_iter().for_each(|(_, part)| self.keep(BINDABLE, &part));
            }
        }
    }

    fn revoke(&mut self, number: usize) {
        self.revoked[number] = true;
        self.keep(number, &(0..SPECS[number].len as u64));
    }

    fn keep(&mut self, number: usize, part: &Range<u64>) {
        let range = self.arena.range(number, part.start, part.end - part.start).unwrap();
        self.kept.push((range.clone(), self.arena.octets()[range].to_vec()));
    }

    fn post_recv(&mut self, at: usize, len: usize, pieces: u8) {
        let room = SPECS[RECEIVES].len;
        let at = at % room;
        let len = len % (room - at + 1);
        let cut = at + len * usize::from(pieces) / 256;
        let mut scatter = vec![self.arena.sge(RECEIVES, at..cut), self.arena.sge(RECEIVES, cut..at + len)];
        if pieces == 0 {
            scatter.remove(0);
        }
        // Now and then the program's memory is wrong: the foreign region, or one that may not be
        // written.
        match pieces {
            255 => scatter[0].stag = self.arena.stag(FOREIGN),
            254 => scatter[1].stag = self.arena.stag(SOURCE),
            _ => {}
        }
        let wr = RecvWr::new(self.next_id, scatter);
        let capacity = Some(wr.capacity());
        let posted = match (&self.srq, &self.qp) {
            (Some(srq), _) => srq.post_recv(wr),
            (None, Some(qp)) => qp.post_recv(wr),
            (None, None) => return,
        };
        if posted.is_ok() {
            let range = self.arena.range(RECEIVES, at as u64, len as u64).unwrap();
            if !self.revoked[RECEIVES] {
                self.allowed.push(range);
            }
            self.note(capacity, true, None);
        }
    }

    fn note(&mut self, capacity: Option<u64>, signaled: bool, invalidates: Option<Stag>) {
        self.posted.insert(self.next_id, Posted { capacity, signaled, invalidates, completions: 0 });
        self.next_id += 1;
    }

    fn post_send(&mut self, work: &Work, fence: u8) {
        let id = self.next_id;
        let part = |number: usize, at: u16, len: u16| {
            let room = SPECS[number].len;
            let at = usize::from(at) % room;
            at..at + usize::from(len) % (room - at + 1)
        };
        let mut may_change = None;
        let mut wr = match *work {
            Work::Send { at, len, invalidate } => {
                let gather = self.arena.sge(SOURCE, part(SOURCE, at, len)).into();
                SendWr::new(id, Operation::Send { gather, invalidate: invalidate.map(Stag) })
            }
            Work::Write { at, len, to } => {
                let gather = self.arena.sge(SOURCE, part(SOURCE, at, len));
                // A Write that passes 2^64 would be a mistake of the program.
                SendWr::write(id, gather, Remote { stag: Stag(to as u32), to: to >> 1 })
            }
            Work::Inline { len } => SendWr::send_inline(id, &vec![0x81; usize::from(len % 600)]),
            Work::Read { at, len, to, invalidate } => {
                let sink = part(SINKS, at, len);
                may_change = Some(sink.clone());
                let mut read = SendWr::read(id, self.arena.sge(SINKS, sink), Remote { stag: Stag(7), to });
                if let Operation::Read { invalidate_sink, .. } = &mut read.operation {
                    *invalidate_sink = invalidate;
                }
                read
            }
            Work::Atomic { at, swap, value } => {
                let at = usize::from(at) % (SPECS[SINKS].len - 8);
                may_change = Some(at..at + 8);
                let (sink, remote) = (self.arena.sge(SINKS, at..at + 8), Remote { stag: Stag(7), to: value });
                if swap {
                    SendWr::cmp_swap(id, sink, remote, value, !value)
                } else {
                    SendWr::fetch_add(id, sink, remote, value)
                }
            }
            Work::Immediate { data, write } => {
                let data = data.to_be_bytes();
                let operation = match write {
                    None => Operation::Immediate { data },
                    Some(len) => Operation::WriteImmediate {
                        gather: self.arena.sge(SOURCE, part(SOURCE, 0, len)).into(),
                        remote: Remote { stag: Stag(9), to: 0 },
                        data,
                    },
                };
                SendWr::new(id, operation)
            }
            Work::Bind { at, len, access } => {
                let at = BOUND.start + usize::from(at) % BOUND.len();
                let len = usize::from(len) % (BOUND.end - at + 1);
                let atomics = self.input.depth & 8 != 0;
                // The sink is addressed by its address, so that the model knows where it begins.
                // Results of atomics may have the top bit set, so they are not read.
                let never = if atomics { Access::REMOTE_READ } else { Access::REMOTE_ATOMIC };
                let access = Access::from_bits_truncate(access) - Access::ZERO_BASED - never;
                self.bound.push((id, at as u64..(at + len) as u64));
                let region = self.arena.range(BINDABLE, 0, SPECS[BINDABLE].len as u64).unwrap();
                self.kept.retain(|(range, _)| self.revoked[BINDABLE] || !region.contains(&range.start));
                SendWr::bind(id, self.window.stag(), self.arena.sge(BINDABLE, at..at + len), access)
            }
            Work::Invalidate { region } => SendWr::invalidate(id, self.stag(region)),
        };
        wr.local_fence = fence & 1 != 0;
        wr.read_fence = fence & 2 != 0;
        wr.solicited = fence & 4 != 0;
        wr.signaled = fence & 8 == 0;
        let Some(qp) = &self.qp else { return };
        let invalidates = match wr.operation {
            Operation::Invalidate { stag } => Some(stag),
            Operation::Read { sink, invalidate_sink: true, .. } => Some(sink.stag),
            _ => None,
        };
        match qp.post_send(&wr) {
            Ok(()) => {
                if let Some(range) = may_change
                    && !self.revoked[SINKS]
                {
                    let range = self.arena.range(SINKS, range.start as u64, range.len() as u64).unwrap();
                    self.allowed.push(range);
                }
                self.note(None, wr.signaled, invalidates);
            }
            Err(error) => {
                let may_be = match error {
                    PostError::CqOverflow { .. } => self.cq.is_overflowed(),
                    PostError::QueueFull { .. }
                    | PostError::InlineTooLong { .. }
                    | PostError::Memory { .. } => true,
                    _ => false,
                };
                assert!(may_be, "{error}");
            }
        }
    }

    fn local(&mut self, what: &What) {
        match what {
            What::Deregister { region } => {
                let number = usize::from(*region) % SPECS.len();
                if self.arena.region(number).deregister().is_ok() {
                    self.revoke(number);
                }
            }
            What::Drain {} => self.drain(),
            What::Poll {} => self.poll(),
            What::Finish {} => {
                self.deliver(usize::MAX);
                if let Some(socket) = &self.socket {
                    let _ = socket.shutdown(Shutdown::Write);
                }
            }
            What::Disconnect {} => self.qp().disconnect(),
            What::Terminate {} => self.qp().terminate(),
            What::Abort {} => self.qp().abort(),
        }
    }

    fn qp(&self) -> &QueuePair {
        self.qp.as_ref().expect("it goes at the end only")
    }

    /// Lets the peer finish, the connection end and the QP be destroyed, and checks all octets.
    fn finish(mut self) {
        self.deliver(usize::MAX);
        if self.input.more & more::CLOSE != 0 {
            self.socket = None;
        } else if let Some(socket) = &self.socket {
            let _ = socket.shutdown(Shutdown::Write);
        }
        let started = Instant::now();
        while !matches!(self.qp().state(), QpState::Idle | QpState::Error) {
            assert!(started.elapsed() < IN_TIME, "the connection does not end: {:?}", self.qp);
            self.drain();
            std::thread::yield_now();
        }
        self.drain();
        let cut_off = self.qp().state() == QpState::Error && self.peer.terminates == 0;
        assert!(
            cut_off || self.socket.is_none() || !self.peer.has_rest(),
            "the QP has closed within an FPDU"
        );
        self.qp = None;
        self.poll();
        self.check_completions();
        self.check_octets();
        while self.arena.rnic.async_event().is_some() {}
    }

    fn check_completions(&self) {
        if self.cq.is_overflowed() {
            return;
        }
        let waiting = |posted: &&Posted| posted.signaled && posted.completions == 0;
        let left = self.posted.values().filter(waiting).count();
        // A shared queue keeps the receives that no message has taken.
        assert_eq!(left, self.srq.as_ref().map_or(0, SharedReceiveQueue::len), "requests without completion");
    }

    fn check_octets(&self) {
        let (mut octets, image) = (self.arena.octets(), self.arena.image());
        for (range, before) in &self.kept {
            assert_eq!(&octets[range.clone()], before, "octets changed that nobody had any more");
        }
        for range in &self.allowed {
            octets[range.clone()].copy_from_slice(&image[range.clone()]);
        }
        if octets != image {
            let changed = octets.iter().zip(image).position(|(now, before)| now != before);
            panic!("octet {changed:?} has changed");
        }
    }
}

/// The number of regions, as a pattern.
const SPECS_LEN: usize = SPECS.len();

/// The region of another protection domain.
const FOREIGN: usize = 3;

fn negotiated(input: &Input) -> Negotiated {
    let has = |bit: u8| input.flags & bit != 0;
    let (ird, ord) = (u16::from(input.depth & 7), u16::from(input.depth >> 4 & 7));
    let rtr = [Rtr::Write, Rtr::Read, Rtr::Send][usize::from(input.more >> 4 & 3) % 3];
    // A Read as RTR needs an entry in the Read queue, which MPA's negotiation ensures.
    let rtr = (input.more & more::RTR != 0 && (rtr != Rtr::Read || ord > 0)).then_some(rtr);
    Negotiated {
        revision: Revision::Two,
        enhanced: true,
        crc: has(flag::CRC),
        markers_tx: has(flag::MARKERS_TX),
        markers_rx: has(flag::MARKERS_RX),
        ird,
        ord,
        rtr,
        large_fpdus: false,
        peer_ird: None,
        peer_ord: None,
    }
}
