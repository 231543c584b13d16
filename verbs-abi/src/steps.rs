//! Steps of a queue pair between its states, with the attributes that each needs and those that it
//! may have besides (InfiniBand Architecture §11.2.5.2, table of the states).

use std::fmt;

use nix::errno::Errno;

use crate::c::abi::qp_mask::{
    ACCESS_FLAGS, ALT_PATH, AV, CAP, CUR_STATE, DEST_QPN, EN_SQD_NOTIFY, MAX_DEST_RD_ATOMIC,
    MAX_QP_RD_ATOMIC, MIN_RNR_TIMER, PATH_MIG_STATE, PATH_MTU, PKEY_INDEX, PORT, QKEY, RATE_LIMIT, RETRY_CNT,
    RNR_RETRY, RQ_PSN, SQ_PSN, STATE, TIMEOUT,
};
use crate::c::abi::qp_state::{ERR, INIT, RESET, RTR, RTS, SQD, SQE};
use crate::c::abi::qp_type::{RC, UD};
use crate::errors::Outcome;
use crate::refusal::because;

/// The attributes of a step: those without which it is none, and those that it may have.
type Masks = (u32, u32);

/// Refuses what is no step of a queue pair of this type, one without the attributes that it needs,
/// and one with some that it may not have. To stay in a state is a step, too.
pub(crate) fn check(kind: u32, from: u32, to: u32, mask: u32) -> Outcome<()> {
    let masks = if kind == UD { of_datagrams(from, to) } else { of_connections(kind == RC, from, to) };
    let (needed, allowed) =
        masks.ok_or_else(|| because(Errno::EINVAL, "there is no such step between these states"))?;
    let (missing, foreign) = (Bits(needed & !mask), Bits(mask & !(STATE | needed | allowed)));
    if missing.0 != 0 {
        return Err(because(Errno::EINVAL, format_args!("the mask lacks what this step needs: {missing}")));
    }
    if foreign.0 != 0 {
        return Err(because(Errno::EINVAL, format_args!("the mask names what this step has not: {foreign}")));
    }
    Ok(())
}

/// Bits of a mask of attributes, which are shown by their names in C.
pub(crate) struct Bits(pub(crate) u32);

impl fmt::Display for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut named = NAMES.iter().filter(|(bit, _)| self.0 & bit != 0);
        named.try_for_each(|(_, name)| write!(f, "IBV_QP_{name} "))?;
        write!(f, "({:#x})", self.0)
    }
}

macro_rules! names {
    ($($bit:ident)+) => { &[$(($bit, stringify!($bit))),+] };
}

const NAMES: &[(u32, &str)] = names! {
    CUR_STATE EN_SQD_NOTIFY ACCESS_FLAGS PKEY_INDEX PORT QKEY AV PATH_MTU TIMEOUT RETRY_CNT RNR_RETRY
    RQ_PSN MAX_QP_RD_ATOMIC ALT_PATH MIN_RNR_TIMER SQ_PSN MAX_DEST_RD_ATOMIC PATH_MIG_STATE CAP DEST_QPN
    RATE_LIMIT
};

fn of_datagrams(from: u32, to: u32) -> Option<Masks> {
    Some(match (from, to) {
        (_, RESET | ERR) => (0, 0),
        (RESET, INIT) => (PKEY_INDEX | PORT | QKEY, 0),
        (INIT, INIT) => (0, PKEY_INDEX | PORT | QKEY),
        (INIT, RTR) | (SQD, SQD) => (0, PKEY_INDEX | QKEY),
        (RTR, RTS) => (SQ_PSN, CUR_STATE | QKEY),
        (RTS | SQD | SQE, RTS) => (0, CUR_STATE | QKEY),
        (RTS, SQD) => (0, EN_SQD_NOTIFY),
        _ => return None,
    })
}

fn of_connections(reliable: bool, from: u32, to: u32) -> Option<Masks> {
    // Reliable ones alone have Reads, atomics, and answers to wait for.
    let only_reliable = |mask| if reliable { mask } else { 0 };
    let path = ALT_PATH | ACCESS_FLAGS;
    let at_work = path | PATH_MIG_STATE | only_reliable(MIN_RNR_TIMER);
    let requests = TIMEOUT | RETRY_CNT | RNR_RETRY | MAX_QP_RD_ATOMIC;
    let inbound = MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER;
    Some(match (from, to) {
        (_, RESET | ERR) => (0, 0),
        (RESET, INIT) => (PKEY_INDEX | PORT | ACCESS_FLAGS, 0),
        (INIT, INIT) => (0, PKEY_INDEX | PORT | ACCESS_FLAGS),
        (INIT, RTR) => (AV | PATH_MTU | DEST_QPN | RQ_PSN | only_reliable(inbound), path | PKEY_INDEX),
        (RTR, RTS) => (SQ_PSN | only_reliable(requests), CUR_STATE | at_work),
        (RTS | SQD, RTS) => (0, CUR_STATE | at_work),
        (RTS, SQD) => (0, EN_SQD_NOTIFY),
        (SQE, RTS) if !reliable => (0, CUR_STATE | ACCESS_FLAGS),
        (SQD, SQD) => (0, AV | PKEY_INDEX | at_work | only_reliable(PORT | requests | MAX_DEST_RD_ATOMIC)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::c::abi::qp_type::UC;

    const FULL: [(u32, u32, u32, u32); 5] = [
        (RC, RESET, INIT, PKEY_INDEX | PORT | ACCESS_FLAGS),
        (RC, INIT, RTR, AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER),
        (RC, RTR, RTS, SQ_PSN | TIMEOUT | RETRY_CNT | RNR_RETRY | MAX_QP_RD_ATOMIC),
        (UC, INIT, RTR, AV | PATH_MTU | DEST_QPN | RQ_PSN),
        (UD, RESET, INIT, PKEY_INDEX | PORT | QKEY),
    ];

    #[test]
    fn a_step_needs_each_of_its_attributes() {
        for (kind, from, to, mask) in FULL {
            assert_eq!(check(kind, from, to, STATE | mask), Ok(()));
            for bit in (0..32).map(|bit| 1 << bit).filter(|bit| mask & bit != 0) {
                assert_eq!(check(kind, from, to, STATE | mask & !bit), Err(Errno::EINVAL), "{bit:#x}");
            }
        }
    }

    #[test]
    fn attributes_are_told_by_name() {
        assert_eq!(Bits(AV | QKEY).to_string(), "IBV_QP_QKEY IBV_QP_AV (0xc0)");
        assert_eq!(Bits(1 << 30).to_string(), "(0x40000000)");
    }

    #[test]
    fn a_step_takes_no_attributes_of_others() {
        let takes = |kind, from, to, mask| check(kind, from, to, STATE | mask).is_ok();
        assert!(takes(RC, INIT, INIT, PORT) && !takes(RC, INIT, INIT, QKEY));
        assert!(takes(RC, RTS, RTS, MIN_RNR_TIMER) && !takes(UC, RTS, RTS, MIN_RNR_TIMER));
        assert!(!takes(RC, RTS, RTS, TIMEOUT) && takes(RC, SQD, SQD, TIMEOUT));
        assert!(!takes(UC, SQD, SQD, TIMEOUT) && takes(UC, SQD, SQD, AV));
        assert!(takes(UC, RTR, RTS, SQ_PSN) && !takes(UC, RTR, RTS, SQ_PSN | TIMEOUT));
        assert!(takes(UD, RTS, RTS, QKEY) && !takes(UD, RTS, RTS, ACCESS_FLAGS));
        assert!(takes(UD, RTR, RTS, SQ_PSN) && !takes(UD, RTR, RTS, 0) && !takes(UD, INIT, RTR, AV));
        assert!(takes(RC, RTS, SQD, EN_SQD_NOTIFY) && !takes(RC, SQD, RTS, EN_SQD_NOTIFY));
        assert!(!takes(RC, RTS, ERR, ACCESS_FLAGS) && !takes(RC, RTS, RESET, CUR_STATE));
    }

    #[test]
    fn states_follow_each_other() {
        let steps =
            [(RESET, INIT), (INIT, INIT), (INIT, RTR), (RTR, RTS), (RTS, RTS), (RTS, SQD), (SQD, SQD)];
        let states = [RESET, INIT, RTR, RTS, SQD, SQE, ERR];
        for (from, to) in states.iter().flat_map(|from| states.map(|to| (*from, to))) {
            let is_step =
                steps.contains(&(from, to)) || (from, to) == (SQD, RTS) || [RESET, ERR].contains(&to);
            // What is reliable has no SQE.
            let is_other_step = is_step || (from, to) == (SQE, RTS);
            assert_eq!(of_connections(true, from, to).is_some(), is_step, "{from} to {to}");
            assert_eq!(of_connections(false, from, to).is_some(), is_other_step, "{from} to {to}");
            assert_eq!(of_datagrams(from, to).is_some(), is_other_step, "{from} to {to}");
        }
    }
}
