//! The engine and a raw peer, in the state that a vector's context describes.

use std::time::{Duration, Instant};

use rddp_ddp::{Header, Stag};
use rddp_mpa::Framer;
use rddp_rdmap::{AtomicRequestRepr, Opcode};
use rddp_rnic::{
    Access, AsyncEvent, AsyncEventKind, Completed, Completion, CompletionQueue, ProtectionDomain, QpConfig,
    QpState, QueuePair, RecvWr, Remote, Rnic, SendWr,
};
use rddp_test_support::{Peer, pattern, segment};
use serde_json::Value;

use crate::common::guarded::Guarded;
use crate::common::raw::{self, Role};
use crate::common::{End, PATIENCE};
use crate::vector::{Vector, number, stag};

/// A region that takes the place of one of the vector's.
pub struct Standin {
    pub stag: Stag,
    pub base: u64,
    pub guarded: Guarded,
}

/// The engine as the vector's context describes it, and the peer.
pub struct Bench<'a> {
    pub vector: &'a Vector,
    pub rnic: &'a Rnic,
    pub qp: QueuePair,
    pub cq: CompletionQueue,
    pub raw: Peer,
    pub regions: Vec<Standin>,
    pub inbox: Guarded,
    /// Events that were received and not asked for yet.
    events: Vec<AsyncEventKind>,
    /// Request Identifier of the engine's Atomic Request.
    request_id: u32,
}

fn access_of(entry: &Value) -> Access {
    let right = |right: &str| entry["remote"].as_array().unwrap().contains(&right.into());
    let mut access = Access::LOCAL_WRITE;
    access.set(Access::REMOTE_READ, right("read"));
    access.set(Access::REMOTE_WRITE, right("write"));
    access.set(Access::REMOTE_ATOMIC | Access::REMOTE_INVALIDATE, right("read") && right("write"));
    access
}

fn field(ulpdu: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(ulpdu[at..at + 4].try_into().unwrap())
}

impl<'a> Bench<'a> {
    pub fn new(
        vector: &'a Vector,
        rnic: &'a Rnic,
        pds: &[ProtectionDomain; 2],
        role: Role,
        open: bool,
    ) -> Self {
        let (pd, cq) = (&pds[0], rnic.create_cq(64).unwrap());
        let qp = pd.create_qp(&QpConfig::new(&cq)).unwrap();
        let pd_of = |entry: &Value| &pds[usize::from(entry["pd"] != vector.rx["stream_pd"])];
        let standin = |entry: &Value| Standin {
            stag: stag(&entry["stag"]),
            base: number(&entry["base_to"]),
            guarded: Guarded::new(pd_of(entry), number(&entry["length"]) as usize, access_of(entry)),
        };
        let mut regions: Vec<_> = vector.rx["stags"].as_array().unwrap().iter().map(standin).collect();
        for read in vector.rx["outstanding_reads"].as_array().unwrap() {
            let guarded = Guarded::new(pd, number(&read["length"]) as usize + 8, Access::LOCAL_WRITE);
            regions.push(Standin { stag: stag(&read["sink_stag"]), base: number(&read["sink_to"]), guarded });
        }
        let inbox = Guarded::new(pd, 3 * 4096, Access::LOCAL_WRITE);
        let end = End { rnic: rnic.clone(), pd: pd.clone(), cq, qp };
        let raw = raw::connect_raw(role, &end, &vector.options(), &vector.startup());
        let End { cq, qp, .. } = end;
        let (events, request_id) = (Vec::new(), 0);
        for (seed, region) in regions.iter_mut().enumerate() {
            let len = region.guarded.region.len();
            region.guarded.fill(&pattern(len, seed as u8));
        }
        let mut bench = Bench { vector, rnic, qp, cq, raw, regions, inbox, events, request_id };
        if open {
            bench.raw.open();
        }
        bench.bring_to_context();
        bench
    }

    /// Brings the stream to the state that the vector begins in.
    fn bring_to_context(&mut self) {
        let rx = &self.vector.rx;
        for (index, region) in self.regions.iter().enumerate() {
            if rx["stags"].get(index).is_some_and(|entry| entry["state"] == "invalid")
                && self.needs(region.stag)
            {
                let wr = SendWr::invalidate(90, region.guarded.region.stag());
                self.qp.post_send(&wr).unwrap();
                assert_eq!(self.completion().completed, Completed::Invalidate);
            }
        }
        self.earlier_sends(number(&rx["q0"]["next_msn"]));
        for (i, len) in rx["q0"]["posted_buffer_lengths"].as_array().unwrap().iter().enumerate() {
            let sge = self.inbox.region.sge(i * 4096..i * 4096 + number(len) as usize);
            self.qp.post_recv(RecvWr::one(i as u64, sge)).unwrap();
        }
        let placed = number(&rx["q0"]["placed"]) as usize;
        if placed > 0 {
            self.raw.send(&segment::send(1, 0, false, &vec![0; placed]));
        }
        self.earlier_reads();
        self.outstanding();
    }

    fn needs(&self, stag: Stag) -> bool {
        let octets = stag.0.to_be_bytes();
        self.vector.ulpdu.as_ref().is_some_and(|ulpdu| ulpdu.windows(4).any(|window| window == octets))
    }

    /// Sends messages that bring the stream to the MSN and the position of the vector.
    fn earlier_sends(&mut self, next: u64) {
        for msn in 1..next {
            let left =
                (self.vector.position - self.raw.fpdus.framer.position().min(self.vector.position)) as usize;
            let last = msn + 1 == next && left > 0;
            let fits = |len: &usize| self.raw.fpdus.framer.fpdu_len(18 + len) == left;
            let len = if last { (0..2048).find(fits).expect("no FPDU ends there") } else { 0 };
            self.qp.post_recv(RecvWr::one(91, self.inbox.region.sge(0..len))).unwrap();
            self.raw.send(&segment::send(msn as u32, 0, true, &vec![0; len]));
            assert_eq!(self.completion().byte_len as usize, len);
        }
        if self.vector.framing.markers {
            assert_eq!(self.raw.fpdus.framer.position(), self.vector.position, "{}", self.vector.name);
        }
    }

    /// Sends Reads before the vector's: answered ones, or ones that wait with it.
    fn earlier_reads(&mut self) {
        let q1 = &self.vector.rx["q1"];
        let (next, waiting) = (number(&q1["next_msn"]), number(&q1["reads_in_progress"]));
        for msn in 1..next - waiting {
            self.raw.send(&raw::read_from(msn as u32, &self.inbox.region, 0));
            self.raw.expect(Opcode::ReadResponse);
        }
    }

    /// Posts Reads and atomics of this end that wait for the vector.
    fn outstanding(&mut self) {
        let reads = self.vector.rx["outstanding_reads"].as_array().unwrap();
        let remote = Remote { stag: Stag(5), to: 6 };
        for read in reads {
            let sink = self.regions.last().unwrap();
            let (len, placed) = (number(&read["length"]) as usize, number(&read["placed"]) as usize);
            let sge = sink.guarded.region.sge(0..len);
            self.qp.post_send(&SendWr::read(80, sge, remote)).unwrap();
            let request = self.raw.read_request();
            let size = u64::from(request.size);
            assert_eq!((request.sink_stag, request.sink_to, size), (sge.stag, sge.addr, sge.len));
            if placed > 0 {
                self.raw.send(&segment::response(
                    sge.stag,
                    sge.addr,
                    false,
                    &sink.guarded.filled()[..placed],
                ));
            }
        }
        if self.vector.name == "atomic_fetchadd_rsp" {
            let sink = self.inbox.region.sge(8192..8200);
            self.qp.post_send(&SendWr::fetch_add(80, sink, remote, 5)).unwrap();
            let (_, payload) = self.raw.expect(Opcode::AtomicRequest);
            self.request_id = AtomicRequestRepr::parse(&payload).unwrap().request_id;
        }
    }

    /// Returns the region's own STag, TO and offset for the vector's `stag` and `to`.
    fn translate(&self, stag: Stag, to: u64, len: u64) -> (Stag, u64) {
        let Some(region) = self.regions.iter().rev().find(|region| region.stag.0 >> 8 == stag.0 >> 8) else {
            return (stag, to);
        };
        let own = &region.guarded.region;
        let key = (stag.0 ^ region.stag.0) & 0xff;
        let wraps = to.checked_add(len).is_none() && to.wrapping_add(len) != 0;
        let moved = if wraps { to } else { to.wrapping_sub(region.base).wrapping_add(own.base()) };
        (Stag(own.stag().0 ^ key), moved)
    }

    /// Translates the STag and the TO at `at`.
    fn patch(&self, ulpdu: &mut [u8], at: usize, len: u64) {
        let to = u64::from_be_bytes(ulpdu[at + 4..at + 12].try_into().unwrap());
        let (stag, to) = self.translate(Stag(field(ulpdu, at)), to, len);
        ulpdu[at..at + 4].copy_from_slice(&stag.0.to_be_bytes());
        ulpdu[at + 4..at + 12].copy_from_slice(&to.to_be_bytes());
    }

    /// Returns the vector's ULPDU with the STags and TOs of the regions.
    fn patched(&self) -> Option<Vec<u8>> {
        let mut ulpdu = self.vector.ulpdu.clone()?;
        let header = Header::parse(&ulpdu).ok();
        let len = ulpdu.len() as u64;
        match header.map(|header| (header, Opcode::from_number(header.control() & 0xf)))? {
            (Header::Tagged(_), _) if len > 14 => self.patch(&mut ulpdu, 2, len - 14),
            (Header::Tagged(_), _) => {}
            (_, Some(Opcode::ReadRequest)) if len >= 46 && ulpdu[30..34] != [0; 4] => {
                let size = u64::from(field(&ulpdu, 30));
                self.patch(&mut ulpdu, 34, size);
            }
            (_, Some(Opcode::AtomicRequest)) => self.patch(&mut ulpdu, 26, 8),
            (_, Some(Opcode::AtomicResponse)) => {
                ulpdu[18..22].copy_from_slice(&self.request_id.to_be_bytes());
            }
            (_, Some(Opcode::SendInvalidate | Opcode::SendSolicitedInvalidate)) => {
                let (stag, _) = self.translate(Stag(field(&ulpdu, 2)), 0, 0);
                ulpdu[2..6].copy_from_slice(&stag.0.to_be_bytes());
            }
            _ => {}
        }
        Some(ulpdu)
    }

    /// Sends the vector; returns its ULPDU as it was sent.
    pub fn play(&mut self) -> Option<Vec<u8>> {
        let waiting = number(&self.vector.rx["q1"]["reads_in_progress"]) as u32;
        let mut burst = Vec::new();
        for msn in 1..=waiting {
            burst.extend(self.raw.frame(&raw::read_from(msn, &self.inbox.region, 0)));
        }
        let patched = self.patched();
        match &patched {
            Some(ulpdu) if Some(ulpdu) != self.vector.ulpdu.as_ref() || self.vector.octets.is_empty() => {
                let framed = self.raw.frame(ulpdu);
                self.assert_only_patched(ulpdu, &framed);
                burst.extend(framed);
            }
            _ => burst.extend(&self.vector.octets),
        }
        if let (Some(ulpdu), "accept") = (&patched, self.vector.verdict()) {
            // The present position of the stream, whatever the vector's reserved bits are.
            let (mut framer, mut octets) =
                (Framer::at(self.vector.framing, self.vector.position), Vec::new());
            framer.emit(b"", ulpdu.len(), |_, _| {}, &mut octets);
            self.raw.fpdus.framer = framer;
        }
        self.raw.try_octets(&burst);
        patched
    }

    /// Checks that the vector framed here differs from the vector only where it was
    /// patched, and in the CRC.
    fn assert_only_patched(&self, ulpdu: &[u8], framed: &[u8]) {
        let original = self.vector.ulpdu.as_ref().unwrap();
        let mut octets = Vec::new();
        let mut framer = Framer::at(self.vector.framing, self.vector.position);
        let fill = |at: usize, out: &mut [u8]| out.copy_from_slice(&original[at..at + out.len()]);
        framer.emit(b"", original.len(), fill, &mut octets);
        assert_eq!((framed.len(), ulpdu.len()), (octets.len(), original.len()));
        if !self.vector.octets.is_empty() {
            assert_eq!(octets, self.vector.octets, "{}", self.vector.name);
        }
    }

    pub fn completion(&self) -> Completion {
        assert!(self.cq.wait(Some(PATIENCE)).unwrap(), "{}: no completion", self.vector.name);
        self.cq.poll_one().unwrap()
    }

    pub fn await_state(&self, state: QpState) {
        let deadline = Instant::now() + PATIENCE;
        while self.qp.state() != state {
            assert!(Instant::now() < deadline, "{}: still {}", self.vector.name, self.qp.state());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn event(&mut self, wanted: impl Fn(&AsyncEventKind) -> bool) -> AsyncEventKind {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.events.iter().position(&wanted) {
                return self.events.remove(at);
            }
            assert!(Instant::now() < deadline, "{}: no event among {:?}", self.vector.name, self.events);
            let event = self.rnic.wait_async_event(Some(Duration::from_millis(20))).unwrap();
            let of_this = |event: &AsyncEvent| event.qp == self.qp.num();
            self.events.extend(event.filter(of_this).map(|event| event.kind));
        }
    }
}
