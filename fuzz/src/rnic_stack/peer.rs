//! The QP's peer: makes correct and faulty segments, and checks what the QP sends.

use std::collections::VecDeque;

use rddp_ddp::{Header, Msn, Qn, Stag, TaggedRepr, TaggedRx, UntaggedRepr};
use rddp_mpa::Framing;
use rddp_rdmap::{
    AtomicOp, AtomicRequestRepr, AtomicResponseRepr, Opcode, ReadRequestRepr, TerminateRepr, parse_header,
};
use rddp_test_support::{Fpdus, segment};

/// The fault that a segment shall have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Twist {
    None,
    Model,
    Qn,
    Msn,
    Mo,
    RdmapVersion,
    Crc,
    DdpVersion,
    Far,
    Length,
    Key,
}

impl Twist {
    /// Mostly none: otherwise a fuzzer's segments would end every stream at once.
    pub(super) fn of(octet: u8) -> Self {
        use Twist::{Crc, DdpVersion, Far, Key, Length, Mo, Model, Msn, Qn, RdmapVersion};
        let wrong = [Model, Qn, Msn, Mo, RdmapVersion, Crc, DdpVersion, Far, Length, Key];
        octet.checked_sub(200).map_or(Twist::None, |number| wrong[usize::from(number) % wrong.len()])
    }
}

/// A segment to make.
pub(super) struct Plan {
    pub(super) opcode: u8,
    pub(super) last: bool,
    pub(super) twist: Twist,
    pub(super) value: u32,
    pub(super) stag: Stag,
    pub(super) to: u64,
    pub(super) len: usize,
}

/// A Read or atomic of the QP.
enum Asked {
    Read { request: ReadRequestRepr, done: u32 },
    Atomic { request_id: u32 },
}

pub(super) struct Peer {
    fpdus: Fpdus,
    crc: bool,
    /// The MSN that is due on each queue towards the QP.
    msn: [Msn; 4],
    mo: [u32; 4],
    /// The Write that is open.
    open: Option<(Stag, u64)>,
    asked: VecDeque<Asked>,
    /// The tagged message that the QP has begun.
    tagged: TaggedRx,
    /// The MSN that is due on each queue from the QP.
    theirs: [(Msn, u32); 4],
    pub(super) terminates: usize,
}

impl Peer {
    pub(super) fn new(to_qp: Framing, from_qp: Framing) -> Self {
        Peer {
            fpdus: Fpdus::new(to_qp, from_qp),
            crc: to_qp.crc,
            msn: [Msn::FIRST; 4],
            mo: [0; 4],
            open: None,
            asked: VecDeque::new(),
            tagged: TaggedRx::new(),
            theirs: [(Msn::FIRST, 0); 4],
            terminates: 0,
        }
    }

    /// Returns the ULPDU for a plan.
    pub(super) fn segment(&mut self, plan: &Plan) -> Vec<u8> {
        let opcode = plan.opcode & 0xf;
        let mut ulpdu = match (opcode, plan.twist) {
            (0 | 2, Twist::Model) | (1 | 3.., _) => self.untagged(opcode, plan),
            (0 | 2, _) => self.tagged(opcode, plan),
        };
        match plan.twist {
            Twist::Model if !matches!(opcode, 0 | 2) => ulpdu[0] ^= 0x80,
            Twist::RdmapVersion => ulpdu[1] ^= 0xc0,
            Twist::DdpVersion => ulpdu[0] ^= (plan.value % 3 + 1) as u8,
            _ => {}
        }
        ulpdu
    }

    fn tagged(&mut self, opcode: u8, plan: &Plan) -> Vec<u8> {
        let (mut stag, mut to, mut last, mut len) = (plan.stag, plan.to, plan.last, plan.len);
        if opcode == 2
            && let Some(Asked::Read { request, done }) = self.asked.front_mut()
        {
            (stag, to) = (request.sink_stag, request.sink_to.wrapping_add((*done).into()));
            let left = request.size - *done;
            if plan.twist != Twist::Length {
                len = if last { left as usize } else { len.min(left as usize) };
                last = len == left as usize;
            }
            // No request asks for more than this.
            len = len.min(60_000);
            *done = done.saturating_add(len as u32).min(request.size);
            if last {
                self.asked.pop_front();
            }
        } else if opcode == 0
            && let (Some((open_stag, open_to)), true) = (self.open, plan.twist != Twist::Far)
        {
            (stag, to) = (open_stag, open_to);
        }
        match plan.twist {
            Twist::Key => stag.0 ^= plan.value | 1,
            Twist::Mo => to = to.wrapping_add(plan.value.into()),
            Twist::Far => to = u64::MAX - u64::from(plan.value),
            _ => {}
        }
        if opcode == 0 {
            self.open = (!last).then(|| (stag, to.wrapping_add(len as u64)));
        }
        let header = TaggedRepr { last, rsvd_ulp: 0x40 | opcode, stag, to };
        segment::ulpdu(&header.into(), &fill(len, plan.value))
    }

    fn untagged(&mut self, opcode: u8, plan: &Plan) -> Vec<u8> {
        let payload = self.payload(opcode, plan);
        let right = match opcode {
            1 | 10 => 1,
            7 => 2,
            11 => 3,
            _ => 0,
        };
        let qn = if plan.twist == Twist::Qn { plan.value % 6 } else { right };
        let at = qn as usize % 4;
        let mut header = UntaggedRepr {
            last: plan.last || !matches!(opcode, 3..=6),
            rsvd_ulp: [0x40 | opcode, 0, 0, 0, 0],
            qn: Qn(qn),
            msn: self.msn[at],
            mo: self.mo[at],
        };
        if matches!(opcode, 4 | 6) {
            header.rsvd_ulp[1..].copy_from_slice(&plan.stag.0.to_be_bytes());
        }
        match plan.twist {
            Twist::Msn => header.msn.0 = header.msn.0.wrapping_add(plan.value | 1),
            Twist::Mo => header.mo = header.mo.wrapping_add(plan.value | 1),
            Twist::Length if !matches!(opcode, 3..=6) => header.last = plan.last,
            _ => {}
        }
        self.mo[at] = if header.last { 0 } else { self.mo[at].wrapping_add(payload.len() as u32) };
        if header.last {
            self.msn[at] = self.msn[at].next();
        }
        segment::ulpdu(&header.into(), &payload)
    }

    fn payload(&mut self, opcode: u8, plan: &Plan) -> Vec<u8> {
        let mut payload = match opcode {
            1 => {
                let (src_stag, src_to, size) = (plan.stag, plan.to, plan.len as u32);
                let (sink_stag, sink_to) = (Stag(plan.value), u64::from(plan.value) << 20);
                let (src_stag, src_to) = match plan.twist {
                    Twist::Key => (Stag(src_stag.0 ^ (plan.value | 1)), src_to),
                    Twist::Far => (src_stag, u64::MAX - u64::from(plan.value)),
                    _ => (src_stag, src_to),
                };
                ReadRequestRepr { sink_stag, sink_to, size, src_stag, src_to }.octets().to_vec()
            }
            7 => TerminateRepr::bare(rddp_rdmap::TerminateCode(plan.value as u16)).octets().to_vec(),
            8 | 9 => fill(8, plan.value),
            10 => {
                let (add, mask) = (plan.value.into(), plan.len as u64);
                let op = if plan.value.is_multiple_of(2) {
                    AtomicOp::FetchAdd { add, mask }
                } else {
                    AtomicOp::CmpSwap { swap: add, swap_mask: u64::MAX, compare: 0, compare_mask: mask }
                };
                AtomicRequestRepr { op, request_id: plan.value, stag: plan.stag, to: plan.to }
                    .octets()
                    .to_vec()
            }
            11 => {
                let request_id = match self.asked.front() {
                    Some(Asked::Atomic { request_id }) => *request_id,
                    _ => plan.value,
                };
                if matches!(self.asked.front(), Some(Asked::Atomic { .. })) {
                    self.asked.pop_front();
                }
                AtomicResponseRepr { request_id, original: plan.to }.octets().to_vec()
            }
            _ => return fill(plan.len, plan.value),
        };
        if plan.twist == Twist::Length {
            payload.resize(plan.len % 200, 0);
        }
        payload
    }

    /// Frames a ULPDU as an FPDU.
    pub(super) fn frame(&mut self, ulpdu: &[u8], spoil_crc: bool, out: &mut Vec<u8>) {
        out.extend(self.fpdus.frame(ulpdu));
        if spoil_crc
            && self.crc
            && let Some(octet) = out.last_mut()
        {
            *octet ^= 0x55;
        }
    }

    /// Parses octets from the QP.
    pub(super) fn hear(&mut self, octets: &[u8]) {
        self.fpdus.take(octets);
        while let Some(segment) = self.fpdus.next_ulpdu() {
            self.understand(&segment);
        }
    }

    /// Returns whether the QP has stopped within an FPDU.
    pub(super) fn has_rest(&self) -> bool {
        !self.fpdus.is_empty()
    }

    fn understand(&mut self, segment: &[u8]) {
        assert_eq!(self.terminates, 0, "a segment behind the Terminate");
        let header = parse_header(segment).expect("the QP makes good headers");
        let payload = &segment[header.len()..];
        assert_eq!(header.control() >> 6, 1);
        let opcode = Opcode::from_number(header.control() & 0xf).expect("an opcode");
        if let Header::Tagged(header) = header {
            self.tagged.check(&header, payload.len()).expect("no tagged message inside another");
            self.tagged.commit(&header, payload.len());
        }
        match header {
            Header::Tagged(_) if opcode == Opcode::ReadResponse => {
                // RFC 5042 §6.3: a peer gets only octets that it was allowed to read.
                assert!(payload.iter().all(|octet| *octet < 0x80), "an octet that nobody may read");
            }
            Header::Tagged(_) => assert_eq!(opcode, Opcode::Write),
            Header::Untagged(header) => self.count(opcode, &header, payload),
        }
    }

    fn count(&mut self, opcode: Opcode, header: &UntaggedRepr, payload: &[u8]) {
        assert_eq!(Some(header.qn), opcode.queue());
        let due = &mut self.theirs[header.qn.0 as usize];
        assert_eq!((header.msn, header.mo), *due);
        *due =
            if header.last { (header.msn.next(), 0) } else { (header.msn, header.mo + payload.len() as u32) };
        match opcode {
            Opcode::ReadRequest => {
                let request = ReadRequestRepr::parse(payload).expect("a Read Request");
                self.asked.push_back(Asked::Read { request, done: 0 });
            }
            Opcode::AtomicRequest => {
                let request = AtomicRequestRepr::parse(payload).expect("an Atomic Request");
                self.asked.push_back(Asked::Atomic { request_id: request.request_id });
            }
            Opcode::Terminate => {
                let terminate = TerminateRepr::parse(payload).expect("a Terminate");
                assert!(terminate.code.name().is_some());
                self.terminates += 1;
            }
            _ => {}
        }
    }
}

/// Returns octets that may be read again.
fn fill(len: usize, seed: u32) -> Vec<u8> {
    (0..len).map(|at| (at as u32).wrapping_add(seed) as u8 & 0x7f).collect()
}
