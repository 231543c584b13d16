//! States and attributes of queue pairs.

use std::ffi::c_int;

use nix::errno::Errno;

use super::abi::{device, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, qp_mask, qp_state, qp_type};
use super::border::{given, number};
use super::handle::{Object, find};
use super::queue_pair::Qp;
use crate::errors::Outcome;
use crate::words::rights;

impl Qp {
    fn modify(&self, wanted: &ibv_qp_attr, mask: u32) -> Outcome<()> {
        if mask & qp_mask::CAP != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let mut attributes = self.attributes.lock();
        if mask & qp_mask::ACCESS_FLAGS != 0 {
            attributes.access = wanted.qp_access_flags;
            // Once the queue pair is connected, its peer keeps the rights that it has.
            let _ = self.queues.set_inbound(rights(wanted.qp_access_flags)?);
        }
        if mask & qp_mask::TIMEOUT != 0 {
            attributes.timeout = wanted.timeout;
        }
        drop(attributes);
        if mask & qp_mask::STATE == 0 { Ok(()) } else { self.go(wanted.qp_state) }
    }

    /// Goes to a state. The connection manager alone connects: states on the way there are only
    /// noted.
    fn go(&self, state: u32) -> Outcome<()> {
        match (self.state(), state) {
            (_, qp_state::ERR) => {
                self.queues.abort();
                self.end();
            }
            (qp_state::RTS, qp_state::SQD) => self.queues.disconnect(),
            (_, qp_state::RESET) => {
                self.queues.abort();
                if !self.queues.reset() {
                    return Err(Errno::EBUSY);
                }
            }
            (qp_state::RESET | qp_state::INIT, qp_state::INIT)
            | (qp_state::INIT | qp_state::RTR, qp_state::RTR)
            | (qp_state::RTR | qp_state::RTS, qp_state::RTS) => {}
            // Connected meanwhile by the connection manager.
            (qp_state::RTS, qp_state::INIT | qp_state::RTR) => return Ok(()),
            _ => return Err(Errno::EINVAL),
        }
        self.set_state(state);
        Ok(())
    }

    fn attributes(&self) -> ibv_qp_attr {
        let negotiated = self.queues.negotiated();
        let depth = |depth: Option<u16>| depth.unwrap_or(0).min(255) as u8;
        // An iWARP queue pair is idle until it is connected, which is INIT for who asks (siw).
        let state = match self.state() {
            qp_state::RESET => qp_state::INIT,
            state => state,
        };
        let attributes = self.attributes.lock();
        ibv_qp_attr {
            qp_state: state,
            cur_qp_state: state,
            path_mtu: device::MTU_1024,
            qp_access_flags: attributes.access,
            timeout: attributes.timeout,
            cap: self.cap,
            max_rd_atomic: depth(negotiated.as_ref().map(|negotiated| negotiated.ord)),
            max_dest_rd_atomic: depth(negotiated.as_ref().map(|negotiated| negotiated.ird)),
            port_num: 1,
            ..ibv_qp_attr::default()
        }
    }

    fn init_attributes(&self) -> ibv_qp_init_attr {
        // SAFETY: a field of our own object.
        let qp_context = unsafe { (*self.handle()).qp_context };
        ibv_qp_init_attr {
            qp_context,
            send_cq: self.send_cq.handle(),
            recv_cq: self.recv_cq.handle(),
            srq: self.srq.as_ref().map_or(std::ptr::null_mut(), |srq| srq.handle()),
            cap: self.cap,
            qp_type: qp_type::RC,
            sq_sig_all: c_int::from(self.signals_all),
        }
    }
}

pub(super) unsafe extern "C" fn ibv_modify_qp(
    handle: *mut ibv_qp,
    attr: *const ibv_qp_attr,
    mask: c_int,
) -> c_int {
    // SAFETY: NULL or the program's structure.
    let attr = unsafe { attr.as_ref() }.ok_or(Errno::EINVAL);
    number(find::<Qp>(handle).and_then(|qp| qp.modify(attr?, mask as u32)))
}

pub(super) unsafe extern "C" fn ibv_query_qp(
    handle: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    number(find::<Qp>(handle).and_then(|qp| {
        let (attr, init) = (given(attr)?, given(init)?);
        // SAFETY: the program has room for both structures.
        unsafe {
            attr.write(qp.attributes());
            init.write(qp.init_attributes());
        }
        Ok(())
    }))
}
