//! Shared receive queues.

use std::collections::VecDeque;
use std::ffi::c_int;

use rddp_verbs_layout::{Plain, access, event, ibv_pd, ibv_recv_wr, ibv_srq, ibv_srq_init_attr};

use crate::quirk;
use crate::wire::{Receive, each_receive};
use crate::world::{World, null, world};

pub(crate) struct Shared {
    pub(crate) device: usize,
    pub(crate) receives: VecDeque<Receive>,
    capacity: usize,
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    // SAFETY: the caller passes a domain and attributes.
    let (context, attr) = unsafe { ((*pd).context, (*attr).attr) };
    let mut world = world();
    let device = world.device_of(context.addr());
    let limits = &world.devices[device];
    if limits.has(quirk::UNSHARED) || attr.max_sge > limits.max_pieces() || attr.max_wr == 0 {
        return null(libc::EINVAL);
    }
    let mut c = ibv_srq::zeroed();
    (c.context, c.pd) = (context, pd);
    let queue = Box::into_raw(Box::new(c));
    let (receives, capacity) = (VecDeque::new(), attr.max_wr as usize);
    world.shared.insert(queue.expose_provenance(), Shared { device, receives, capacity });
    queue
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_srq(queue: *mut ibv_srq) -> c_int {
    let mut world = world();
    if world.pairs.values().any(|pair| pair.shared == Some(queue.addr())) {
        return libc::EBUSY;
    }
    world.shared.remove(&queue.addr());
    // SAFETY: made by `ibv_create_srq`.
    drop(unsafe { Box::from_raw(queue) });
    0
}

pub(crate) unsafe extern "C" fn post_srq_recv(
    queue: *mut ibv_srq,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let mut world = world();
    // SAFETY: the caller passes requests with their pieces, and has room for a pointer.
    unsafe { each_receive(first, bad, |receive| world.post_shared(queue.addr(), receive)) }
}

impl World {
    fn post_shared(&mut self, queue: usize, receive: Receive) -> Result<(), c_int> {
        let found = self.shared.get_mut(&queue).ok_or(libc::EINVAL)?;
        if receive.pieces.is_empty() && self.devices[found.device].is_iwarp() {
            return Err(-libc::EINVAL);
        }
        if found.receives.len() >= found.capacity {
            return Err(libc::ENOMEM);
        }
        found.receives.push_back(receive);
        self.pump_peers(|pair| pair.shared == Some(queue) && pair.rnr_timer != 0);
        Ok(())
    }

    fn pump_peers(&mut self, of: impl Fn(&crate::wire::Pair) -> bool) {
        let peers: Vec<usize> =
            self.pairs.values().filter(|pair| of(pair)).filter_map(|pair| pair.peer).collect();
        peers.into_iter().for_each(|peer| self.pump(peer));
    }

    /// Takes the oldest receive for a message to a queue pair.
    pub(crate) fn take_receive(&mut self, pair: usize) -> Option<Receive> {
        let found = self.pairs.get_mut(&pair)?;
        match found.shared {
            None => found.receives.pop_front(),
            Some(_) if found.under_way.is_some() => found.under_way.take(),
            Some(queue) => self.shared.get_mut(&queue)?.receives.pop_front(),
        }
    }

    /// Returns whether a message has stopped in a receive, and does not go on.
    pub(crate) fn is_under_way(&self, pair: usize) -> bool {
        let found = self.pairs.get(&pair);
        found.is_some_and(|pair| pair.under_way.is_some() && self.devices[pair.device].stalls)
    }

    /// Keeps a shared receive that a message stops in, if it does.
    pub(crate) fn keep_stalled(&mut self, pair: usize, receive: Receive) -> Option<Receive> {
        match self.pairs.get_mut(&pair) {
            Some(found) if found.shared.is_some() && self.devices[found.device].stalls => {
                found.under_way = Some(receive);
                None
            }
            _ => Some(receive),
        }
    }

    /// Has messages stop half-way, or go on.
    pub(crate) fn stall(&mut self, device: usize, stalls: bool) {
        self.devices[device].stalls = stalls;
        if !stalls {
            self.pump_peers(|pair| pair.device == device && pair.under_way.is_some());
        }
    }

    /// Returns whether the octets of a message may be placed, as far as it is looked at here.
    pub(crate) fn may_receive(&self, pair: usize, receive: &Receive) -> bool {
        let Some(found) = self.pairs.get(&pair).filter(|pair| pair.shared.is_some()) else { return true };
        let mut pieces = receive.pieces.iter().filter(|piece| piece.length > 0);
        pieces.all(|piece| {
            let len = piece.length.into();
            self.reaches(found.domain, piece.lkey, piece.addr, len, access::LOCAL_WRITE)
        })
    }

    /// Tells that a queue pair which has ended has taken its last shared receive. siw does not.
    pub(crate) fn tell_of_last(&mut self, pair: usize) {
        let Some(found) = self.pairs.get(&pair).filter(|pair| pair.shared.is_some()) else { return };
        let device = &mut self.devices[found.device];
        if !device.is_iwarp() && !device.has(quirk::NO_LAST) {
            device.events.push((event::QP_LAST_WQE_REACHED, pair));
        }
    }
}
