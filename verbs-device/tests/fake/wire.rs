//! Requests: what is done, and how it completes.

use std::collections::VecDeque;
use std::ffi::c_int;

use rddp_verbs_layout::{
    access, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_wc, send, status, wc, wc_flags, wr,
};

use crate::octets::{atomic, octets_of, pieces, scatter, store};
use crate::quirk;
use crate::windows::{Bind, bind_of};
use crate::world::{Kind, World, world};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Unconnected,
    Ready,
    Error,
}

pub(crate) struct Pair {
    pub(crate) device: usize,
    pub(crate) domain: usize,
    pub(crate) queue: usize,
    pub(crate) number: u32,
    pub(crate) state: State,
    pub(crate) access: u32,
    pub(crate) rnr_timer: u8,
    pub(crate) retries: u8,
    pub(crate) ord: u8,
    pub(crate) inline: u32,
    pub(crate) depth: u64,
    pub(crate) peer: Option<usize>,
    pub(crate) is_active: bool,
    /// Something has come from the peer.
    pub(crate) has_heard: bool,
    pub(crate) receives: VecDeque<Receive>,
    /// The shared queue that receives are taken from instead, and the one that a message stops in.
    pub(crate) shared: Option<usize>,
    pub(crate) under_way: Option<Receive>,
    /// Requests that are not carried out yet, and those that the peer has not acknowledged.
    pub(crate) outgoing: VecDeque<Request>,
    pub(crate) pending: VecDeque<Request>,
    /// Reads on siw whose Response has not come.
    pub(crate) reads: VecDeque<Request>,
    /// Writes whose octets TCP still takes from the program's pages: where to, and where from.
    pub(crate) late: Vec<(u64, Vec<ibv_sge>)>,
    pub(crate) posted: u64,
    pub(crate) freed: u64,
}

pub(crate) struct Receive {
    pub(crate) wr_id: u64,
    pub(crate) pieces: Vec<ibv_sge>,
}

pub(crate) struct Request {
    pub(crate) wr_id: u64,
    pub(crate) sequence: u64,
    pub(crate) opcode: u32,
    pub(crate) is_signaled: bool,
    pub(crate) octets: Vec<u8>,
    pub(crate) pieces: Vec<ibv_sge>,
    /// All pieces are registered as they have to be.
    is_sound: bool,
    /// The octets are in the program's memory until they are sent.
    is_source: bool,
    /// Waits for the Responses of all Reads before it.
    is_fenced: bool,
    imm: u32,
    pub(crate) to: u64,
    key: u32,
    pub(crate) operands: (u64, u64),
    bind: Option<Bind>,
}

impl Request {
    /// Places what a Read brings.
    pub(crate) fn read(&self) {
        let length = self.pieces.iter().map(|piece| piece.length).sum();
        scatter(&octets_of(&[ibv_sge { addr: self.to, length, lkey: 0 }]), &self.pieces);
    }
}

/// The outcome of an attempt to carry a request out.
enum Outcome {
    Done,
    /// The Request of a Read has left, and what is behind it goes on.
    Asked,
    NotYet,
    /// A fault of this end.
    Local(u32),
    /// The peer refuses: the number is what InfiniBand tells this end.
    Refused(u32),
    /// The peer has nothing to receive into.
    NoReceive,
}

pub(crate) unsafe extern "C" fn post_send(
    pair: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    let (mut world, mut next) = (world(), first);
    while !next.is_null() {
        // SAFETY: the caller passes requests.
        let request = unsafe { &*next };
        // SAFETY: as above, with their pieces.
        if let Err(number) = unsafe { world.post(pair.addr(), request) } {
            // SAFETY: the caller has room for a pointer.
            unsafe { bad.write(next) };
            let is_iwarp =
                world.pairs.get(&pair.addr()).is_some_and(|pair| world.devices[pair.device].is_iwarp());
            return if is_iwarp { -number } else { number };
        }
        next = request.next;
    }
    world.pump(pair.addr());
    0
}

pub(crate) unsafe extern "C" fn post_recv(
    pair: *mut ibv_qp,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let mut world = world();
    // SAFETY: the caller passes requests with their pieces, and has room for a pointer.
    unsafe { each_receive(first, bad, |receive| world.post_receive(pair.addr(), receive)) }
}

/// Posts each receive of a list, up to one that is refused, which is named.
///
/// # Safety
/// The requests are there with their pieces, and there is room for a pointer.
pub(crate) unsafe fn each_receive(
    mut next: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    mut post: impl FnMut(Receive) -> Result<(), c_int>,
) -> c_int {
    while !next.is_null() {
        // SAFETY: promised by the caller.
        let (request, pieces) = unsafe { (&*next, pieces((*next).sg_list, (*next).num_sge)) };
        if let Err(number) = post(Receive { wr_id: request.wr_id, pieces }) {
            // SAFETY: as above.
            unsafe { bad.write(next) };
            return number;
        }
        next = request.next;
    }
    0
}

impl World {
    fn post_receive(&mut self, pair: usize, receive: Receive) -> Result<(), c_int> {
        let found = self.pairs.get_mut(&pair).ok_or(libc::EINVAL)?;
        let device = &self.devices[found.device];
        if device.has(quirk::CREDENTIALS) {
            return Err(if device.is_iwarp() { -libc::EACCES } else { libc::EACCES });
        }
        if receive.pieces.is_empty() && device.is_iwarp() {
            return Err(-libc::EINVAL);
        }
        found.receives.push_back(receive);
        let (is_over, peer, waits) = (found.state == State::Error, found.peer, found.rnr_timer == 0);
        if is_over {
            self.flush(pair);
        } else if let Some(peer) = peer
            && !waits
        {
            // Where peers wait for 655 ms, that is longer than a test.
            self.pump(peer);
        }
        Ok(())
    }

    /// # Safety
    /// The request's pieces are there, and the window that it binds.
    unsafe fn post(&mut self, pair: usize, request: &ibv_send_wr) -> Result<(), c_int> {
        // SAFETY: promised by the caller.
        let pieces = unsafe { pieces(request.sg_list, request.num_sge) };
        // SAFETY: as above.
        let bind = unsafe { bind_of(request) };
        let found = self.pairs.get(&pair).ok_or(libc::EINVAL)?;
        let device = &self.devices[found.device];
        let is_inline = request.send_flags & send::INLINE != 0;
        let len: u64 = pieces.iter().map(|piece| u64::from(piece.length)).sum();
        let lacks = matches!(
            request.opcode,
            wr::ATOMIC_CMP_AND_SWP
                | wr::ATOMIC_FETCH_AND_ADD
                | wr::SEND_WITH_IMM
                | wr::RDMA_WRITE_WITH_IMM
                | wr::BIND_MW
                | wr::LOCAL_INV
        );
        if device.has(quirk::CREDENTIALS) {
            return Err(libc::EACCES);
        }
        if found.state == State::Unconnected
            || (device.is_iwarp() && lacks)
            || (is_inline && len > u64::from(found.inline))
            || pieces.len() > device.max_pieces() as usize
        {
            return Err(libc::EINVAL);
        }
        if found.posted - found.freed >= found.depth {
            return Err(libc::ENOMEM);
        }
        let is_sink =
            matches!(request.opcode, wr::RDMA_READ | wr::ATOMIC_CMP_AND_SWP | wr::ATOMIC_FETCH_AND_ADD);
        // RNICs write a Response to the sink by the peer's right.
        let needs = match is_sink {
            true if device.is_iwarp() => access::LOCAL_WRITE | access::REMOTE_WRITE,
            true => access::LOCAL_WRITE,
            false => 0,
        };
        let domain = found.domain;
        let is_sound = is_inline
            || pieces
                .iter()
                // Nobody looks at the key of what has no octets.
                .filter(|piece| piece.length > 0)
                .all(|piece| self.reaches(domain, piece.lkey, piece.addr, piece.length.into(), needs));
        let octets = if is_inline { octets_of(&pieces) } else { Vec::new() };
        let found = self.pairs.get_mut(&pair).ok_or(libc::EINVAL)?;
        found.posted += 1;
        let is_atomic = is_sink && request.opcode != wr::RDMA_READ;
        found.outgoing.push_back(Request {
            wr_id: request.wr_id,
            sequence: found.posted,
            opcode: request.opcode,
            is_signaled: request.send_flags & send::SIGNALED != 0,
            octets,
            pieces,
            is_sound,
            is_source: !is_inline && !is_sink,
            is_fenced: request.send_flags & send::FENCE != 0,
            imm: request.imm_data,
            to: request.remote_addr,
            key: if is_atomic { request.atomic_rkey } else { request.rkey },
            operands: (request.compare_add(), request.swap),
            bind,
        });
        if found.state == State::Error {
            self.flush(pair);
        }
        Ok(())
    }

    /// Returns whether a key of this domain reaches a range with these rights.
    pub(crate) fn reaches(&self, domain: usize, key: u32, addr: u64, len: u64, rights: u32) -> bool {
        self.regions.get(&key).is_some_and(|region| {
            region.domain == domain
                && addr >= region.addr
                && addr + len <= region.addr + region.len
                && region.flags & rights == rights
        })
    }

    /// Carries out what a queue pair has to send, as far as that goes.
    pub(crate) fn pump(&mut self, pair: usize) {
        while let Some(found) = self.pairs.get_mut(&pair)
            && found.state == State::Ready
        {
            let device = &self.devices[found.device];
            let (is_iwarp, is_cut, retries) = (device.is_iwarp(), device.is_cut, found.retries);
            let is_stalled = device.has(quirk::STALLED);
            // RFC 5044 §7.1.2, and what a device does that keeps to it.
            if is_iwarp && !found.is_active && !found.has_heard {
                return;
            }
            // With 7 retries a device tries for ever.
            if is_cut && !is_iwarp && retries == 7 || is_stalled {
                return;
            }
            if found.outgoing.front().is_some_and(|next| next.is_fenced) && !found.reads.is_empty() {
                return;
            }
            let domain = found.domain;
            let (Some(mut request), Some(peer)) = (found.outgoing.pop_front(), found.peer) else { return };
            self.gather(domain, &mut request);
            let outcome = match is_cut {
                true if is_iwarp && request.opcode == wr::RDMA_READ => Outcome::Asked,
                true if is_iwarp => Outcome::Done,
                true => Outcome::Local(status::RETRY_EXC_ERR),
                false => self.carry_out(pair, peer, &request),
            };
            if !is_cut && let Some(peer) = self.pairs.get_mut(&peer) {
                peer.has_heard = true;
            }
            match outcome {
                Outcome::Done => self.done(pair, request),
                Outcome::Asked => self.ask(pair, request),
                Outcome::Local(number) => {
                    self.completed(pair, &request, number);
                    self.end(pair);
                }
                Outcome::Refused(_) | Outcome::NoReceive if is_iwarp => {
                    // The sender has given it to TCP, and a Terminate comes back.
                    let is_read = request.opcode == wr::RDMA_READ;
                    let number = if is_read { status::WR_FLUSH_ERR } else { status::SUCCESS };
                    self.completed(pair, &request, number);
                    self.end(pair);
                    self.end(peer);
                    self.tell_of_end(pair);
                    self.tell_of_end(peer);
                }
                Outcome::Refused(number) => {
                    self.completed(pair, &request, number);
                    self.end(pair);
                    self.end(peer);
                }
                Outcome::NotYet | Outcome::NoReceive => {
                    if let Some(found) = self.pairs.get_mut(&pair) {
                        found.outgoing.push_front(request);
                    }
                    return;
                }
            }
            if is_iwarp {
                self.pump(peer);
            }
        }
    }

    /// Takes the octets of a request from the program's memory, as they are when it is sent.
    fn gather(&self, domain: usize, request: &mut Request) {
        let mut pieces = request.pieces.iter();
        if !request.is_source || !request.is_sound {
            return;
        }
        request.is_sound =
            pieces.all(|piece| self.reaches(domain, piece.lkey, piece.addr, piece.length.into(), 0));
        if request.is_sound {
            request.octets = octets_of(&request.pieces);
        }
    }

    fn carry_out(&mut self, pair: usize, peer: usize, request: &Request) -> Outcome {
        if !request.is_sound {
            return Outcome::Local(self.pairs.get(&pair).map_or(status::LOC_PROT_ERR, |own| {
                let device = &self.devices[own.device];
                match device.kind {
                    _ if device.has(quirk::FLUSHED) => status::WR_FLUSH_ERR,
                    _ if device.has(quirk::STRANGE) => status::GENERAL_ERR,
                    Kind::Adapter => status::LOC_PROT_ERR,
                    _ => status::LOC_QP_OP_ERR,
                }
            }));
        }
        if let Some(bind) = &request.bind {
            let is_bound = self.bind(pair, bind);
            return if is_bound { Outcome::Done } else { Outcome::Local(status::MW_BIND_ERR) };
        }
        if request.opcode == wr::LOCAL_INV {
            let is_unbound = self.unbind(request.imm);
            return if is_unbound { Outcome::Done } else { Outcome::Local(status::LOC_QP_OP_ERR) };
        }
        let (Some(own), Some(other)) = (self.pairs.get(&pair), self.pairs.get(&peer)) else {
            return Outcome::NotYet;
        };
        // One that has ended answers nothing, and takes no receive.
        if other.state == State::Error {
            return Outcome::NotYet;
        }
        let is_iwarp = self.devices[own.device].is_iwarp();
        let len = request.pieces.iter().map(|piece| u64::from(piece.length)).sum::<u64>();
        let is_read = !matches!(
            request.opcode,
            wr::SEND | wr::SEND_WITH_INV | wr::SEND_WITH_IMM | wr::RDMA_WRITE | wr::RDMA_WRITE_WITH_IMM
        );
        if is_read && own.ord == 0 {
            return Outcome::NotYet;
        }
        let needs = match request.opcode {
            // Of the source, siw looks at no right.
            wr::RDMA_READ if is_iwarp => 0,
            wr::RDMA_READ => access::REMOTE_READ,
            wr::RDMA_WRITE | wr::RDMA_WRITE_WITH_IMM => access::REMOTE_WRITE,
            wr::ATOMIC_CMP_AND_SWP | wr::ATOMIC_FETCH_AND_ADD => access::REMOTE_ATOMIC,
            _ => 0,
        };
        let is_tagged = is_read || matches!(request.opcode, wr::RDMA_WRITE | wr::RDMA_WRITE_WITH_IMM);
        // Of a queue pair's rights, siw looks at none.
        let is_open = is_iwarp || other.access & needs == needs;
        let may = is_open
            && (self.reaches(other.domain, request.key, request.to, len, needs)
                || self.lends(peer, request.key, (request.to, len), needs));
        if is_tagged && len > 0 && !may {
            return Outcome::Refused(status::REM_ACCESS_ERR);
        }
        match request.opcode {
            wr::RDMA_WRITE => {
                store(request.to, &request.octets);
                self.leave_late(pair, request);
            }
            wr::RDMA_READ if is_iwarp => return Outcome::Asked,
            wr::RDMA_READ => request.read(),
            wr::ATOMIC_CMP_AND_SWP | wr::ATOMIC_FETCH_AND_ADD => atomic(request),
            wr::RDMA_WRITE_WITH_IMM => {
                store(request.to, &request.octets);
                return self.deliver(peer, request, is_iwarp);
            }
            _ => return self.deliver(peer, request, is_iwarp),
        }
        Outcome::Done
    }

    /// Places octets in the receives of a queue pair that has not ended: its connection comes late.
    pub(crate) fn receive_late(&mut self, pair: Option<usize>) {
        let found = pair.and_then(|pair| self.pairs.get(&pair));
        let is_open = |pair: &&Pair| pair.state == State::Unconnected;
        for receive in found.filter(is_open).iter().flat_map(|pair| &pair.receives) {
            let len = receive.pieces.iter().map(|piece| piece.length as usize).sum();
            scatter(&vec![0xff; len], &receive.pieces);
        }
    }

    /// Completes the peer's oldest receive by a message.
    fn deliver(&mut self, peer: usize, request: &Request, is_iwarp: bool) -> Outcome {
        if self.is_under_way(peer) {
            return Outcome::NotYet;
        }
        let Some(receive) = self.take_receive(peer) else { return Outcome::NoReceive };
        let Some(receive) = self.keep_stalled(peer, receive) else { return Outcome::NotYet };
        let is_write = request.opcode == wr::RDMA_WRITE_WITH_IMM;
        let room: u64 = receive.pieces.iter().map(|piece| u64::from(piece.length)).sum();
        let mut entry = ibv_wc {
            wr_id: receive.wr_id,
            opcode: if is_write { wc::RECV_RDMA_WITH_IMM } else { wc::RECV },
            byte_len: request.octets.len() as u32,
            ..ibv_wc::default()
        };
        if !is_write && request.octets.len() as u64 > room {
            entry.status = if is_iwarp { status::LOC_LEN_ERR } else { status::LOC_QP_OP_ERR };
            self.undefined(&mut entry);
            self.enter(peer, entry, None);
            return Outcome::Refused(status::REM_OP_ERR);
        }
        if !self.may_receive(peer, &receive) {
            entry.status = status::LOC_PROT_ERR;
            self.undefined(&mut entry);
            self.enter(peer, entry, None);
            return Outcome::Refused(status::REM_OP_ERR);
        }
        match request.opcode {
            wr::SEND_WITH_INV => {
                // siw's library takes the STag from another field, and tells nothing of it.
                if is_iwarp {
                    self.regions.remove(&request.key);
                } else {
                    if !self.unbind(request.imm) {
                        self.regions.remove(&request.imm);
                    }
                    (entry.wc_flags, entry.imm_data) = (wc_flags::WITH_INV, request.imm);
                }
            }
            wr::SEND_WITH_IMM | wr::RDMA_WRITE_WITH_IMM => {
                (entry.wc_flags, entry.imm_data) = (wc_flags::WITH_IMM, request.imm);
            }
            _ => {}
        }
        if !is_write {
            scatter(&request.octets, &receive.pieces);
        }
        self.enter(peer, entry, None);
        Outcome::Done
    }
}
