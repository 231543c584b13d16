//! The checks of the demo: what each tries, and what it must result in.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rddp_command::endpoint::Agreed;
use rddp_command::failure::{Failure, FailureKind};
use rddp_rnic::{Atomics, Operation, QpState, Rnic, SendWr, TerminateCode};

use super::active::{Active, REQUEST, expect};
use super::script::{Answer, Ask, GUARD, MAX, READ_SEED, REGION, WORD_AT, Which, pattern};

/// Sizes of messages: none, one, a few octets; one FPDU and many.
const SIZES: [usize; 6] = [0, 1, 64, 4096, 65_536, MAX];

/// Time within which the end of a connection must be noticed.
const PATIENCE: Duration = Duration::from_secs(10);

type Check = fn(&mut Active) -> Result<(), Failure>;

/// Returns whether the device has what a check tries.
type Has = fn(&Active) -> bool;

/// The checks in the order in which they are made; the last one ends the connection.
const ALL: [(&str, Has, Check); 8] = [
    ("Send, and with Solicited Event: 0 octets to 1 MiB", |_| true, sends),
    ("Immediate Data in the completion", |active| active.limits.immediate_len > 0, immediate),
    ("RDMA Write: 0 octets to 1 MiB, and nothing beside it", |_| true, writes),
    ("RDMA Read: 0 octets to 1 MiB, and nothing beside it", |_| true, reads),
    ("FetchAdd, CmpSwap: originals, values, masks", |active| active.limits.atomics != Atomics::None, atomics),
    ("Send with Invalidate: the region is revoked", revokes, |active| invalidate(active, 0)),
    ("... with Solicited Event: another one is revoked", revokes, |active| invalidate(active, 1)),
    ("Write to a revoked region: refused by a Terminate", revokes, revoked),
];

/// Returns whether peers may revoke regions, which they may of software alone.
fn revokes(active: &Active) -> bool {
    !active.agreed.by.is_host()
}

/// The outcome of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    /// The device does not have what the check tries.
    Lacking,
    Failed(String),
}

/// The result of all checks on one connection.
pub(super) struct Checks {
    pub(super) agreed: Agreed,
    /// The name of each check, with its outcome.
    pub(super) list: Vec<(&'static str, Verdict)>,
    /// Octets that were compared.
    pub(super) compared: u64,
}

impl Checks {
    pub(super) fn passed(&self) -> bool {
        self.failure().is_none()
    }

    /// Returns the first check that has failed, and why.
    pub(super) fn failure(&self) -> Option<(&'static str, &str)> {
        self.list.iter().find_map(|(name, verdict)| match verdict {
            Verdict::Failed(why) => Some((*name, why.as_str())),
            Verdict::Passed | Verdict::Lacking => None,
        })
    }
}

/// Makes all checks on one connection.
pub(super) fn run(rnic: &Rnic, addr: SocketAddr, markers: bool) -> Result<Checks, Failure> {
    let mut active = Active::connect(rnic, addr, markers)?;
    let agreed = active.agreed.clone();
    // A device of the host has its own terms.
    let as_asked = agreed
        .mpa
        .as_ref()
        .is_none_or(|mpa| mpa.crc && (mpa.markers_sent, mpa.markers_received) == (markers, markers));
    let startup = if as_asked { Verdict::Passed } else { Verdict::Failed(format!("agreed on: {agreed}")) };
    let mut list = vec![("Connect: startup, as asked for", startup)];
    let mut over = None;
    for (name, has, check) in ALL {
        if !has(&active) {
            list.push((name, Verdict::Lacking));
            continue;
        }
        if over.is_none() {
            over = check(&mut active).err();
        }
        match &over {
            Some(failure) if failure.kind() == FailureKind::Interrupted => return Err(failure.clone()),
            Some(failure) => list.push((name, Verdict::Failed(failure.to_string()))),
            None => list.push((name, Verdict::Passed)),
        }
    }
    Ok(Checks { agreed, list, compared: active.compared() })
}

fn sends(active: &mut Active) -> Result<(), Failure> {
    for solicited in [false, true] {
        for len in SIZES {
            let seed = active.fresh(len)?;
            // The memory is sent in two pieces, as a gather list.
            let list = vec![active.source.sge(0..len / 3), active.source.sge(len / 3..len)];
            let mut wr = SendWr::send(REQUEST, list);
            wr.solicited = solicited;
            let arrived = active.deliver(&wr, len, seed)?;
            // A device of the host does not tell.
            arrived_as(&arrived, len, solicited && !active.agreed.by.is_host(), None)?;
        }
    }
    Ok(())
}

fn arrived_as(
    arrived: &Answer,
    len: usize,
    solicited: bool,
    invalidated: Option<u32>,
) -> Result<(), Failure> {
    match arrived {
        Answer::Arrived { len: l, solicited: s, invalidated: i, immediate: None }
            if (*l, *s, *i) == (len, solicited, invalidated) =>
        {
            Ok(())
        }
        other => Err(Failure::mismatch(format!("{len} octets arrived as {other:?}"))),
    }
}

fn immediate(active: &mut Active) -> Result<(), Failure> {
    let mut data = *b"8 octets";
    data[active.limits.immediate_len..].fill(0);
    let arrived = active.deliver(&SendWr::immediate(REQUEST, data), 8, 0)?;
    expect(arrived, |arrived| matches!(arrived, Answer::Arrived { immediate: Some(got), .. } if *got == data))
        .map(drop)
}

fn writes(active: &mut Active) -> Result<(), Failure> {
    SIZES.into_iter().enumerate().try_for_each(|(number, len)| active.write(Which::Target, number * 7, len))
}

fn reads(active: &mut Active) -> Result<(), Failure> {
    let source = pattern(READ_SEED, MAX);
    for (number, len) in SIZES.into_iter().enumerate() {
        let (at, from) = (number * 5, (MAX - len).min(number * 3));
        active.sink.write(0, &vec![GUARD; REGION])?;
        let wr = SendWr::read(REQUEST, active.sink.sge(at..at + len), active.memory.source.at(from));
        let done = active.complete(&wr)?;
        if done.byte_len as usize != len {
            return Err(Failure::mismatch(format!("a Read of {len} octets reports {}", done.byte_len)));
        }
        active.compare_sink(at, &source[from..from + len])?;
    }
    Ok(())
}

fn atomics(active: &mut Active) -> Result<(), Failure> {
    let (sink, remote) = (active.sink.sge(0..8), active.memory.word.at(WORD_AT));
    let masked = |compare, compare_mask, swap, swap_mask| {
        SendWr::new(REQUEST, Operation::CmpSwap { sink, remote, compare, compare_mask, swap, swap_mask })
    };
    let steps = [
        (SendWr::fetch_add(REQUEST, sink, remote, 1000), 0, 1000),
        (SendWr::fetch_add(REQUEST, sink, remote, u64::MAX), 1000, 999),
        (SendWr::cmp_swap(REQUEST, sink, remote, 999, 7), 999, 7),
        (SendWr::cmp_swap(REQUEST, sink, remote, 999, 8), 7, 7),
        (masked(0, 0, 0xff00, 0xff00), 7, 0xff07),
        (masked(0x0007, 0x00ff, 0x00ee, 0x00ff), 0xff07, 0xffee),
    ];
    let has_masks = active.limits.atomics == Atomics::Masked;
    for (wr, original, value) in steps.into_iter().take(if has_masks { 6 } else { 4 }) {
        active.sink.write(0, &vec![GUARD; REGION])?;
        active.complete(&wr)?;
        active.compare_sink(0, &u64::to_ne_bytes(original))?;
        let word = active.ask(&Ask::Word)?;
        expect(word, |word| matches!(word, Answer::Word { value: got } if *got == value))?;
    }
    Ok(())
}

fn invalidate(active: &mut Active, number: usize) -> Result<(), Failure> {
    let which = Which::Lent(number);
    let valid = |active: &Active, want: bool| {
        expect(
            active.ask(&Ask::IsValid { which })?,
            |answer| matches!(answer, Answer::Valid { valid } if *valid == want),
        )
    };
    valid(active, true)?;
    active.write(which, 32, 4096)?;
    let (stag, len) = (active.memory.lent[number].stag(), 100);
    let seed = active.fresh(len)?;
    let mut wr = SendWr::send_invalidate(REQUEST, active.source.sge(0..len), stag);
    wr.solicited = number == 1;
    let arrived = active.deliver(&wr, len, seed)?;
    arrived_as(&arrived, len, number == 1, Some(stag.0))?;
    valid(active, false).map(drop)
}

/// RFC 5041 §7.1: the peer names the fault in a Terminate. The passive process itself checks that
/// no octet was written.
fn revoked(active: &mut Active) -> Result<(), Failure> {
    active.fresh(64)?;
    let place = active.memory.lent[0].at(0);
    active.end.post(&SendWr::write(REQUEST, active.source.sge(0..64), place).unsignaled())?;
    let deadline = Instant::now() + PATIENCE;
    while active.end.qp.state() == QpState::ReadyToSend && Instant::now() < deadline {
        // The connection ends, so the receive for an answer is flushed.
        if let Err(failure) = active.end.try_next(Duration::from_millis(50))
            && failure.kind() == FailureKind::Interrupted
        {
            return Err(failure);
        }
    }
    match active.end.qp.terminate_received() {
        Some(terminate) if terminate.code == TerminateCode::TAGGED_INVALID_STAG => Ok(()),
        Some(terminate) => Err(Failure::mismatch(format!("it was refused with {}", terminate.code))),
        None => Err(Failure::mismatch("no Terminate came")),
    }
}
