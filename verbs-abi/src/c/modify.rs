//! States and attributes of queue pairs.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use rddp_rnic::{ConnectOptions, Patience, QpState};

use super::abi::{ibv_qp, ibv_qp_attr, ibv_qp_init_attr, qp_mask, qp_state};
use super::border::{given, number};
use super::handle::{Object, find};
use super::query::mtu;
use super::queue_pair::Qp;
use crate::device::Device;
use crate::errors::Outcome;
use crate::refusal::{Cause, because};
use crate::steps::{self, Bits};
use crate::words::rights;

/// Retries of a queue pair for which nobody says how many, the most that there are.
pub(super) const RETRIES: u8 = 7;

/// Returns the time for which a peer may leave octets unacknowledged, as the program's `timeout`
/// and `retry_cnt` have it: in it an InfiniBand device ends its tries, each of which may take four
/// times as long as it is set (InfiniBand Architecture §9.7.6.1.3). A timeout of zero leaves the
/// limit to the device.
fn user_timeout(timeout: u8, retries: u8) -> Option<Duration> {
    let tries = u32::from(retries.min(RETRIES)) + 1;
    (timeout > 0).then(|| 4 * Duration::from_nanos(4096) * (1 << timeout.min(31)) * tries)
}

/// Returns the time that a number of five bits stands for, 10 us to 655.36 ms (InfiniBand
/// Architecture, table of RNR NAK timers).
fn rnr_timer(code: u8) -> Duration {
    let tens = match code & 31 {
        0 => 1 << 16,
        1 => 1,
        even if even % 2 == 0 => 1 << (even / 2),
        odd => 3 << (odd / 2 - 1),
    };
    Duration::from_micros(10 * tens)
}

impl Qp {
    fn modify(self: &Arc<Self>, wanted: &ibv_qp_attr, mask: u32) -> Outcome<()> {
        self.check_step(wanted, mask)?;
        if mask & qp_mask::CAP != 0 {
            return Err(because(Errno::EOPNOTSUPP, "queues keep the lengths that they were made with"));
        }
        let inbound = mask & qp_mask::ACCESS_FLAGS;
        let inbound = (inbound != 0).then(|| rights(wanted.qp_access_flags)).transpose()?;
        if mask & qp_mask::QKEY != 0 && self.datagrams.is_some() {
            self.queues.set_qkey(wanted.qkey);
        }
        let before = self.state();
        if mask & qp_mask::STATE != 0 {
            let tells = mask & qp_mask::EN_SQD_NOTIFY != 0 && wanted.en_sqd_async_notify != 0;
            self.go(wanted.qp_state, tells)?;
        }
        if let Some(inbound) = inbound {
            // Once the queue pair is connected, its peer keeps the rights that it has.
            let _ = self.queues.set_inbound(inbound);
        }
        keep(&mut self.attributes.lock(), wanted, mask);
        if mask & qp_mask::MAX_QP_RD_ATOMIC != 0 {
            self.queues.set_max_requests(wanted.max_rd_atomic);
        }
        if mask & qp_mask::STATE != 0 && wanted.qp_state == qp_state::RTR && self.state() == qp_state::RTR {
            self.join(wanted, mask).inspect_err(|_| self.set_state(before))?;
        }
        if mask & qp_mask::STATE != 0 && wanted.qp_state == qp_state::RTS {
            self.ask().inspect_err(|_| self.set_state(before))?;
        }
        // A program that names the peer's number connects by numbers, and may send nothing itself.
        if self.is_connected_by_manager() && mask & qp_mask::DEST_QPN != 0 && self.state() == qp_state::RTR {
            Cause::Numbers.tell();
        }
        let limits = qp_mask::TIMEOUT | qp_mask::RETRY_CNT | qp_mask::MIN_RNR_TIMER | qp_mask::RNR_RETRY;
        if mask & limits != 0 {
            self.limit_silence();
        }
        Ok(())
    }

    /// Refuses steps and values that adapters refuse. The connection manager makes the steps of
    /// its queue pairs, and no iWARP adapter looks at attributes there.
    fn check_step(&self, wanted: &ibv_qp_attr, mask: u32) -> Outcome<()> {
        let device = &self.pd.context.device.device;
        if !device.strict {
            return Ok(());
        }
        if !self.is_managed() {
            let from = self.state_at_work();
            if mask & qp_mask::CUR_STATE != 0 && wanted.cur_qp_state != from {
                return Err(because(Errno::EINVAL, "the queue pair is in another state (IBV_QP_CUR_STATE)"));
            }
            let to = if mask & qp_mask::STATE == 0 { from } else { wanted.qp_state };
            steps::check(self.kind(), from, to, mask)?;
        }
        check_values(wanted, mask, device)
    }

    /// Returns whether the connection manager connects it, or has connected it.
    pub(super) fn is_managed(&self) -> bool {
        self.is_connected_by_manager() || self.id.lock().strong_count() > 0
    }

    /// Returns the state as it is, where the event that tells of its end may still be on its way.
    fn state_at_work(&self) -> u32 {
        match self.queues.state() {
            QpState::Error | QpState::Terminate if self.joint.is_some() => qp_state::ERR,
            QpState::SendsFailed => qp_state::SQE,
            _ => self.state(),
        }
    }

    /// Has the queue pair wait for answers and receives of its peer as the attributes say.
    pub(super) fn limit_silence(&self) {
        let ibv_qp_attr { timeout, retry_cnt, min_rnr_timer, rnr_retry, .. } = *self.attributes.lock();
        let rnr_retries = (rnr_retry & 7 != RETRIES).then_some(rnr_retry & 7);
        let answers = user_timeout(timeout, retry_cnt);
        let rnr_timer = rnr_timer(min_rnr_timer);
        self.queues.set_patience(Patience { answers, rnr_timer, rnr_retries });
        if let Some(limit) = answers.or(ConnectOptions::default().user_timeout_in_force()) {
            self.queues.set_user_timeout(limit);
        }
    }

    /// Goes to a state. The connection manager alone connects: states on the way there are only
    /// noted. `tells` asks for an event in SQD.
    fn go(self: &Arc<Self>, state: u32, tells: bool) -> Outcome<()> {
        match (self.state(), state) {
            (_, qp_state::ERR) => {
                self.part();
                self.queues.abort();
                self.end();
            }
            (qp_state::RTS, qp_state::SQD) if self.is_connected_by_manager() => self.queues.disconnect(),
            (_, qp_state::RESET) => {
                self.give_up_drain();
                self.part();
                self.queues.abort();
                if !self.queues.reset() {
                    return Err(because(Errno::EBUSY, "the connection is not over yet"));
                }
            }
            (qp_state::RTR | qp_state::RTS | qp_state::SQD, qp_state::RTS)
                if !self.is_connected_by_manager() =>
            {
                self.queues.resume_sends();
                return self.go_on();
            }
            (qp_state::RESET | qp_state::INIT, qp_state::INIT)
            | (qp_state::INIT | qp_state::RTR, qp_state::RTR)
            | (qp_state::RTS, qp_state::RTS) => {}
            // Connected meanwhile by the connection manager.
            (qp_state::RTS, qp_state::INIT | qp_state::RTR) => return Ok(()),
            (qp_state::RTS | qp_state::SQD, qp_state::SQD) if !self.is_connected_by_manager() => {
                return self.drain(tells);
            }
            (qp_state::RTR, qp_state::RTS) => return Err(Cause::Numbers.refuse(Errno::EINVAL)),
            _ => return Err(because(Errno::EINVAL, "there is no such step between these states")),
        }
        self.set_state(state);
        Ok(())
    }

    fn attributes(&self) -> ibv_qp_attr {
        let negotiated = self.is_managed().then(|| self.queues.negotiated()).flatten();
        // An iWARP queue pair is idle until it is connected, which is INIT for who asks (siw).
        let state = match self.state_at_work() {
            qp_state::RESET if self.is_connected_by_manager() => qp_state::INIT,
            state => state,
        };
        let attributes = self.attributes.lock();
        let depth = |negotiated: Option<u16>, kept| negotiated.map_or(kept, |depth| depth.min(255) as u8);
        ibv_qp_attr {
            qp_state: state,
            cur_qp_state: state,
            sq_draining: u8::from(self.is_draining()),
            cap: self.cap,
            max_rd_atomic: depth(negotiated.as_ref().map(|agreed| agreed.ord), attributes.max_rd_atomic),
            max_dest_rd_atomic: depth(
                negotiated.as_ref().map(|agreed| agreed.ird),
                attributes.max_dest_rd_atomic,
            ),
            ..*attributes
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
            qp_type: self.kind(),
            sq_sig_all: c_int::from(self.signals_all),
        }
    }
}

/// Refuses values that the device does not have.
fn check_values(wanted: &ibv_qp_attr, mask: u32, device: &Device) -> Outcome<()> {
    let wrong = [
        (qp_mask::PORT, wanted.port_num != 1),
        (qp_mask::AV, wanted.ah_attr.port_num != 1),
        (qp_mask::PKEY_INDEX, wanted.pkey_index != 0),
        (qp_mask::PATH_MTU, !(1..=mtu(device)).contains(&wanted.path_mtu)),
        (qp_mask::TIMEOUT, wanted.timeout > 31),
        (qp_mask::MAX_QP_RD_ATOMIC, wanted.max_rd_atomic > device.limits.depth),
        (qp_mask::MAX_DEST_RD_ATOMIC, wanted.max_dest_rd_atomic > device.limits.depth),
    ];
    let wrong = wrong.into_iter().filter(|(bit, is_wrong)| mask & bit != 0 && *is_wrong);
    match wrong.fold(0, |bits, (bit, _)| bits | bit) {
        0 => Ok(()),
        bits => Err(because(Errno::EINVAL, format_args!("a value that the device has not: {}", Bits(bits)))),
    }
}

/// Keeps the attributes that the program sets, besides the state.
fn keep(attributes: &mut ibv_qp_attr, from: &ibv_qp_attr, mask: u32) {
    macro_rules! keep {
        ($($bit:ident: $($field:ident),+;)*) => { $(
            if mask & qp_mask::$bit != 0 {
                $(attributes.$field = from.$field;)+
            }
        )* };
    }
    keep! {
        ACCESS_FLAGS: qp_access_flags;
        PKEY_INDEX: pkey_index;
        PORT: port_num;
        QKEY: qkey;
        AV: ah_attr;
        PATH_MTU: path_mtu;
        TIMEOUT: timeout;
        RETRY_CNT: retry_cnt;
        RNR_RETRY: rnr_retry;
        RQ_PSN: rq_psn;
        MAX_QP_RD_ATOMIC: max_rd_atomic;
        ALT_PATH: alt_ah_attr, alt_pkey_index, alt_port_num, alt_timeout;
        MIN_RNR_TIMER: min_rnr_timer;
        SQ_PSN: sq_psn;
        MAX_DEST_RD_ATOMIC: max_dest_rd_atomic;
        PATH_MIG_STATE: path_mig_state;
        DEST_QPN: dest_qp_num;
        RATE_LIMIT: rate_limit;
    }
}

pub(super) unsafe extern "C" fn ibv_modify_qp(
    handle: *mut ibv_qp,
    attr: *const ibv_qp_attr,
    mask: c_int,
) -> c_int {
    // SAFETY: NULL or the program's structure.
    let attr = unsafe { attr.as_ref() }.ok_or_else(|| because(Errno::EINVAL, "an argument is NULL"));
    number("ibv_modify_qp", find::<Qp>(handle).and_then(|qp| qp.modify(attr?, mask as u32)))
}

pub(super) unsafe extern "C" fn ibv_query_qp(
    handle: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    number(
        "ibv_query_qp",
        find::<Qp>(handle).and_then(|qp| {
            let (attr, init) = (given(attr)?, given(init)?);
            // SAFETY: the program has room for both structures.
            unsafe {
                attr.write(qp.attributes());
                init.write(qp.init_attributes());
            }
            Ok(())
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// InfiniBand Architecture, table of RNR NAK timers.
    #[test]
    fn each_timer_of_a_receiver_that_is_not_ready_has_its_time() {
        let of = |codes: &[u8]| codes.iter().map(|code| rnr_timer(*code).as_micros()).collect::<Vec<_>>();
        assert_eq!(of(&[0, 1, 2, 3, 4, 5, 12, 13]), [655_360, 10, 20, 30, 40, 60, 640, 960]);
        assert_eq!(of(&[30, 31, 32]), [327_680, 491_520, 655_360]);
    }

    #[test]
    fn timeout_and_retry_count_decide_how_long_a_silent_peer_is_waited_for() {
        assert_eq!(user_timeout(0, 7), None);
        // 67.1 ms, as many programs ask, once and with the most retries.
        assert_eq!(user_timeout(14, 0).unwrap().as_millis(), 268);
        assert_eq!(user_timeout(14, 7).unwrap().as_millis(), 2147);
        // Five bits and three.
        assert_eq!(user_timeout(255, 255), user_timeout(31, 7));
    }
}
