//! The options of level `SOL_DDP`, as `include/rddp/ddp.h` names them: conversion between their
//! octets and [`Settings`].

use std::ffi::c_int;
use std::time::Duration;

use rddp_es_api::progress::Progress;
use rddp_real::Value;
use rddp_rnic::{KernelCounts, Placement};
use rddp_stream::{Errno, Gather, Role, SdpInfo, SdpMode};

use super::settings::{KindId, Mode, Settings};
use crate::placement;

/// The level of our options; the kernel uses none of this number.
pub const SOL_DDP: c_int = 0x4444;

/// int: 0 off, 1 on, 2 on for RDMA instead of a byte stream, 3 SDP; when read, a [`Mode`].
pub const DDPMODE: c_int = 1;
/// int: 1 the initiator, 2 the responder of the startup, which the program chooses on a connection
/// that exists already (RFC 5044 §7.1); 0: the end that connects is the initiator.
pub const DDP_ROLE: c_int = 2;
/// int: whether CRCs are asked for.
pub const DDP_CRC: c_int = 3;
/// int: whether markers are asked for.
pub const DDP_MARKERS: c_int = 4;
/// int: the number of RDMA Reads that the peer may have outstanding.
pub const DDP_IRD: c_int = 5;
/// int: the number of own RDMA Reads that may be outstanding.
pub const DDP_ORD: c_int = 6;
/// int: a set of ready-to-receive messages (`DDP_RTR_*`); 0: client-server mode.
pub const DDP_RTR: c_int = 7;
/// Up to 508 octets of private data for our startup frame.
pub const DDP_PRIVATE_DATA: c_int = 8;
/// int: the largest Send of either end, in octets.
pub const DDP_LARGEST_SEND: c_int = 9;
/// int: how the pieces of an FPDU reach TCP: 0 by one vectored write, 1 copied together first, 2
/// piece by piece into a corked socket.
pub const DDP_GATHER: c_int = 10;
/// `struct ddp_mode_info`, read only.
pub const DDP_MODE_INFO: c_int = 11;

/// The private data of the peer's startup frame, read only.
pub const DDP_PEER_PRIVATE_DATA: c_int = 12;
/// int: a [`Progress`]; can be set at any time.
pub const DDP_PROGRESS: c_int = 16;
/// int: the milliseconds that the startup may take; 0: the process's default.
pub const DDP_STARTUP_TIMEOUT: c_int = 17;

/// int: the least call to send that SDP advertises, in octets; -1: none. Can be set at any time.
pub const DDP_SDP_SOURCE_THRESHOLD: c_int = 18;
/// int: the least call to receive that SDP advertises, or fills by an RDMA Read; -1: none. Can be
/// set at any time.
pub const DDP_SDP_SINK_THRESHOLD: c_int = 19;
/// int: whether SDP copies octets through private buffers at both ends.
pub const DDP_SDP_BCOPY: c_int = 20;
/// int: the number of private receive buffers that the peer is told of; 0: the process's default.
pub const DDP_SDP_BUFS: c_int = 21;
/// `struct ddp_sdp_info`, read only.
pub const DDP_SDP_INFO: c_int = 22;
/// int: the mode that SDP asks for where this end sends, an `enum ddp_sdp_mode`; -1: none. Can be
/// set at any time.
pub const DDP_SDP_MODE: c_int = 23;
/// int: the level at which raw mode places what the peer sends, an `enum ddp_placement`.
pub const DDP_PLACEMENT: c_int = 24;
/// `struct ddp_placement_info`, read only.
pub const DDP_PLACEMENT_INFO: c_int = 25;

/// RFC 6581 §9: a Send, a Write or a Read may be the message that tells a peer-to-peer responder
/// that it may send.
const RTR_ALL: c_int = 0b111;
/// RFC 5044 §7.1.1 allows 512 octets of private data, of which RFC 6581 §9 takes four.
const MAX_PRIVATE_DATA: usize = 508;
/// RFC 6581 §9: IRD and ORD have 14 bits each; the value of all ones means "not negotiated".
const MAX_DEPTH: c_int = 0x3ffe;
/// The roles, by their numbers in the option.
const ROLES: [Option<Role>; 3] = [None, Some(Role::Initiator), Some(Role::Responder)];
/// The ways to gather, by their numbers in the option.
const GATHERS: [Gather; 3] = [Gather::Vectored, Gather::Copy, Gather::Cork];
/// The modes of SDP, by their numbers in the option.
const SDP_MODES: [SdpMode; 3] = [SdpMode::Buffered, SdpMode::Combined, SdpMode::Pipelined];
const LARGEST_SEND: std::ops::RangeInclusive<c_int> = 1..=1 << 30;

/// Sets any of our options but `DDPMODE`, for which `gate` asks the kernel for the socket's state.
pub fn set(settings: &mut Settings, name: c_int, octets: &[u8]) -> Result<(), Errno> {
    if name == DDP_PROGRESS {
        settings.progress = Some(Progress::numbered(int(octets)?).ok_or(Errno::INVALID)?);
        return Ok(());
    }
    if name == DDP_SDP_MODE {
        settings.sdp.mode = Some(match int(octets)? {
            -1 => None,
            mode => Some(numbered(&SDP_MODES, mode)?),
        });
        return Ok(());
    }
    if let Some(place) = threshold_of(settings, name) {
        *place = Some(threshold(int(octets)?)?);
        return Ok(());
    }
    let begins_later = settings.kind.begins_by_call() && settings.mode == Mode::Starting;
    if settings.attached || !(begins_later || matches!(settings.mode, Mode::Off | Mode::Asked)) {
        return Err(Errno::INVALID);
    }
    if name == DDP_PRIVATE_DATA {
        if settings.kind == KindId::Sdp && settings.mode != Mode::Off {
            return Err(Errno::INVALID);
        }
        return set_private_data(settings, octets);
    }
    let value = int(octets)?;
    match name {
        DDP_ROLE => settings.role = numbered(&ROLES, value)?,
        DDP_CRC => settings.crc = flag(value)?,
        DDP_MARKERS => settings.markers = flag(value)?,
        DDP_IRD => settings.ird = depth(value)?,
        DDP_ORD => settings.ord = depth(value)?,
        DDP_RTR if value & !RTR_ALL == 0 => settings.rtr = value as u8,
        DDP_LARGEST_SEND if LARGEST_SEND.contains(&value) => settings.largest_send = value as u32,
        DDP_GATHER => settings.gather = numbered(&GATHERS, value)?,
        DDP_SDP_BCOPY => settings.sdp.bcopy = Some(flag(value)?),
        DDP_SDP_BUFS => settings.sdp.bufs = Some(u16::try_from(value).map_err(|_| Errno::INVALID)?),
        DDP_PLACEMENT => settings.placement = Some(level(value)?),
        DDP_STARTUP_TIMEOUT if value >= 0 => settings.startup = milliseconds(value),
        DDP_RTR | DDP_LARGEST_SEND | DDP_STARTUP_TIMEOUT => return Err(Errno::INVALID),
        _ => return Err(Errno(libc::ENOPROTOOPT)),
    }
    Ok(())
}

/// Returns the value of one of our options.
pub fn get(settings: &Settings, name: c_int) -> Result<Value, Errno> {
    Ok(match name {
        DDPMODE => Value::int(settings.mode as c_int),
        DDP_ROLE => Value::int(number(&ROLES, settings.role)),
        DDP_CRC => Value::int(settings.crc.into()),
        DDP_MARKERS => Value::int(settings.markers.into()),
        DDP_IRD => Value::int(settings.ird.into()),
        DDP_ORD => Value::int(settings.ord.into()),
        DDP_RTR => Value::int(settings.rtr.into()),
        DDP_PRIVATE_DATA => Value::octets(settings.private_data.as_deref().unwrap_or_default()),
        DDP_LARGEST_SEND => Value::int(settings.largest_send as c_int),
        DDP_GATHER => Value::int(number(&GATHERS, settings.gather)),
        DDP_MODE_INFO => mode_info(settings),
        DDP_STARTUP_TIMEOUT => {
            Value::int(c_int::try_from(settings.startup_time().as_millis()).unwrap_or(c_int::MAX))
        }
        DDP_SDP_SOURCE_THRESHOLD => Value::int(settings.sdp.source().cast_signed()),
        DDP_SDP_SINK_THRESHOLD => Value::int(settings.sdp.sink().cast_signed()),
        DDP_SDP_BCOPY => Value::int(settings.sdp.is_bcopy().into()),
        DDP_SDP_MODE => Value::int(settings.sdp.mode().map_or(-1, |mode| mode as c_int)),
        DDP_SDP_BUFS => Value::int(settings.sdp.bufs().unwrap_or(0).into()),
        DDP_PLACEMENT => Value::int(number(&placement::LEVELS, settings.placement())),
        DDP_PROGRESS => Value::int(settings.progress.unwrap_or_else(Progress::of_process) as c_int),
        _ => return Err(Errno(libc::ENOPROTOOPT)),
    })
}

/// Returns the place of a threshold, if this option is one.
fn threshold_of(settings: &mut Settings, name: c_int) -> Option<&mut Option<u32>> {
    match name {
        DDP_SDP_SOURCE_THRESHOLD => Some(&mut settings.sdp.source),
        DDP_SDP_SINK_THRESHOLD => Some(&mut settings.sdp.sink),
        _ => None,
    }
}

/// Converts the option's octets to a threshold; -1 is the one that no length reaches.
fn threshold(value: c_int) -> Result<u32, Errno> {
    if value >= -1 { Ok(value.cast_unsigned()) } else { Err(Errno::INVALID) }
}

/// Returns a `struct ddp_mode_info`: mode, role, errno of the failure, whether the socket is in raw
/// mode, the Terminate's code.
fn mode_info(settings: &Settings) -> Value {
    let role = number(&ROLES, settings.role);
    let code = settings.terminate.into();
    let is_raw = c_int::from(settings.kind == KindId::Raw);
    let fields = [settings.mode as c_int, role, settings.failure.0, is_raw, code];
    Value::octets(fields.map(c_int::to_ne_bytes).as_flattened())
}

/// Returns a `struct ddp_sdp_info`: whether the socket speaks SDP, and what its connection tells.
pub fn sdp_info(is_sdp: bool, info: Option<SdpInfo>) -> Value {
    let of_connection = info.map_or([0; 7], |info| {
        [
            info.send_mode as u32,
            info.receive_mode as u32,
            info.credits,
            info.bufs,
            info.buf_size,
            info.peer_buf_size,
            0,
        ]
    });
    let mut octets = [0; 8 * 4 + 8 * 8];
    octets[..4].copy_from_slice(&u32::from(is_sdp).to_ne_bytes());
    octets[4..32].copy_from_slice(of_connection.map(u32::to_ne_bytes).as_flattened());
    let counters = info.map_or([0; 8], |info| info.counters);
    octets[32..].copy_from_slice(counters.map(u64::to_ne_bytes).as_flattened());
    Value::octets(&octets)
}

/// Converts the option's number to a level. Nobody is to believe that the kernel places where it
/// never will, so that is refused.
fn level(value: c_int) -> Result<Placement, Errno> {
    match numbered(&placement::LEVELS, value)? {
        Placement::User => Ok(Placement::User),
        level if placement::may_be_asked_for() => Ok(level),
        _ => Err(Errno::UNSUPPORTED),
    }
}

/// Returns a `struct ddp_placement_info`: the level at which the connection is placed,
/// and what was counted where the kernel places.
pub fn placement_info(settings: &Settings, counts: Option<KernelCounts>) -> Value {
    let level = if counts.is_some() { settings.placement() } else { Placement::User };
    let counts = counts.unwrap_or_default();
    let mut info = [0; 8 + 8 * 8];
    info[..4].copy_from_slice(&number(&placement::LEVELS, level).to_ne_bytes());
    info[4..8].copy_from_slice(&counts.interface.to_ne_bytes());
    let fields = [
        counts.segments,
        counts.placed,
        counts.confirmed,
        counts.wrong,
        counts.octets,
        counts.octets_behind,
        counts.octets_unseen,
        counts.unaligned,
    ];
    info[8..].copy_from_slice(fields.map(u64::to_ne_bytes).as_flattened());
    Value::octets(&info)
}

fn set_private_data(settings: &mut Settings, octets: &[u8]) -> Result<(), Errno> {
    if octets.len() > MAX_PRIVATE_DATA {
        return Err(Errno::INVALID);
    }
    settings.private_data = (!octets.is_empty()).then(|| octets.into());
    Ok(())
}

/// Converts the option's milliseconds to a time; 0, the default, to `None`.
fn milliseconds(value: c_int) -> Option<Duration> {
    (value > 0).then(|| Duration::from_millis(u64::from(value.unsigned_abs())))
}

fn int(octets: &[u8]) -> Result<c_int, Errno> {
    octets.first_chunk().map(|octets| c_int::from_ne_bytes(*octets)).ok_or(Errno::INVALID)
}

fn numbered<T: Copy>(values: &[T], number: c_int) -> Result<T, Errno> {
    usize::try_from(number).ok().and_then(|at| values.get(at)).copied().ok_or(Errno::INVALID)
}

fn number<T: Copy + PartialEq>(values: &[T], value: T) -> c_int {
    values.iter().position(|one| *one == value).map_or(0, |at| at as c_int)
}

fn flag(value: c_int) -> Result<bool, Errno> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Errno::INVALID),
    }
}

fn depth(value: c_int) -> Result<u16, Errno> {
    if (0..=MAX_DEPTH).contains(&value) { Ok(value as u16) } else { Err(Errno::INVALID) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_are_set_are_read_back() {
        let mut settings = Settings::default();
        let options = [
            (DDP_ROLE, 2),
            (DDP_CRC, 0),
            (DDP_MARKERS, 1),
            (DDP_IRD, 0x3ffe),
            (DDP_ORD, 0),
            (DDP_RTR, 4),
            (DDP_LARGEST_SEND, 4096),
            (DDP_GATHER, 2),
            (DDP_PROGRESS, 1),
            (DDP_STARTUP_TIMEOUT, 500),
            (DDP_SDP_SOURCE_THRESHOLD, 0),
            (DDP_SDP_SINK_THRESHOLD, -1),
            (DDP_SDP_BCOPY, 1),
            (DDP_SDP_BUFS, 300),
            (DDP_SDP_MODE, 0),
        ];
        // Nobody has named an interface, so that the only level is the default.
        set(&mut settings, DDP_PLACEMENT, &0i32.to_ne_bytes()).unwrap();
        assert_eq!(get(&settings, DDP_PLACEMENT), Ok(Value::int(0)));
        for (name, value) in options {
            assert_ne!(
                get(&settings, name),
                Ok(Value::int(value)),
                "option {name} has the value that is to be set"
            );
            set(&mut settings, name, &value.to_ne_bytes()).unwrap();
        }
        for (name, value) in options {
            assert_eq!(get(&settings, name), Ok(Value::int(value)), "option {name}");
        }
        set(&mut settings, DDP_PRIVATE_DATA, b"hello").unwrap();
        assert_eq!(&*get(&settings, DDP_PRIVATE_DATA).unwrap(), b"hello");
        set(&mut settings, DDP_PRIVATE_DATA, b"").unwrap();
        assert_eq!(settings.private_data, None);
    }

    #[test]
    fn a_socket_that_speaks_sdp_has_no_private_data_of_the_program() {
        let mut settings = Settings { kind: KindId::Sdp, mode: Mode::Asked, ..Settings::default() };
        assert_eq!(set(&mut settings, DDP_PRIVATE_DATA, b"hello"), Err(Errno::INVALID));
        settings.kind = KindId::Framed;
        set(&mut settings, DDP_PRIVATE_DATA, b"hello").unwrap();
    }

    #[test]
    fn invalid_values_are_refused_and_change_nothing() {
        let mut settings = Settings::default();
        for (name, value) in [
            (DDP_ROLE, 3i32),
            (DDP_CRC, 2),
            (DDP_MARKERS, -1),
            (DDP_IRD, 0x3fff),
            (DDP_ORD, -1),
            (DDP_RTR, 8),
            (DDP_LARGEST_SEND, 0),
            (DDP_GATHER, 3),
            (DDP_PROGRESS, 2),
            (DDP_STARTUP_TIMEOUT, -1),
            (DDP_SDP_SOURCE_THRESHOLD, -2),
            (DDP_SDP_SINK_THRESHOLD, c_int::MIN),
            (DDP_SDP_BCOPY, 2),
            (DDP_SDP_BUFS, 65536),
            (DDP_SDP_MODE, 3),
            (DDP_SDP_MODE, -2),
            (DDP_PLACEMENT, 3),
            (DDP_PLACEMENT, -1),
        ] {
            assert_eq!(set(&mut settings, name, &value.to_ne_bytes()), Err(Errno::INVALID), "option {name}");
        }
        assert_eq!(set(&mut settings, DDP_CRC, &[1, 0, 0]), Err(Errno::INVALID));
        assert_eq!(set(&mut settings, DDP_PRIVATE_DATA, &[0; 509]), Err(Errno::INVALID));
        assert_eq!(set(&mut settings, DDP_MODE_INFO, &[0; 16]), Err(Errno(libc::ENOPROTOOPT)));
        for level in [1i32, 2] {
            let refused = set(&mut settings, DDP_PLACEMENT, &level.to_ne_bytes());
            assert_eq!(refused, Err(Errno::UNSUPPORTED), "no interface is named");
        }
        assert_eq!(set(&mut settings, DDP_PLACEMENT_INFO, &[0; 64]), Err(Errno(libc::ENOPROTOOPT)));
        assert_eq!(set(&mut settings, 99, &[0; 4]), Err(Errno(libc::ENOPROTOOPT)));
        assert_eq!(settings, Settings::default());
    }

    #[test]
    fn options_are_refused_once_the_startup_has_begun() {
        for mode in [Mode::Starting, Mode::On, Mode::Failed] {
            let mut settings = Settings { mode, ..Settings::default() };
            assert_eq!(set(&mut settings, DDP_CRC, &1i32.to_ne_bytes()), Err(Errno::INVALID));
        }
    }

    #[test]
    fn the_way_of_progress_and_the_thresholds_can_change_at_any_time() {
        let mut settings = Settings { mode: Mode::On, ..Settings::default() };
        set(&mut settings, DDP_SDP_SOURCE_THRESHOLD, &4096i32.to_ne_bytes()).unwrap();
        assert_eq!(get(&settings, DDP_SDP_SOURCE_THRESHOLD), Ok(Value::int(4096)));
        set(&mut settings, DDP_PROGRESS, &1i32.to_ne_bytes()).unwrap();
        assert_eq!(get(&settings, DDP_PROGRESS), Ok(Value::int(1)));
        set(&mut settings, DDP_PROGRESS, &0i32.to_ne_bytes()).unwrap();
        assert_eq!(get(&settings, DDP_PROGRESS), Ok(Value::int(0)));
    }

    #[test]
    fn roles_and_ways_to_gather_have_the_numbers_of_the_header() {
        let mut settings = Settings::default();
        let roles = [None, Some(Role::Initiator), Some(Role::Responder)];
        let gathers = [Gather::Vectored, Gather::Copy, Gather::Cork];
        for (number, (role, gather)) in (0i32..).zip(roles.into_iter().zip(gathers)) {
            set(&mut settings, DDP_ROLE, &number.to_ne_bytes()).unwrap();
            set(&mut settings, DDP_GATHER, &number.to_ne_bytes()).unwrap();
            assert_eq!((settings.role, settings.gather), (role, gather));
            assert_eq!(get(&settings, DDP_ROLE), Ok(Value::int(number)));
            assert_eq!(get(&settings, DDP_GATHER), Ok(Value::int(number)));
        }
    }

    #[test]
    fn placement_info_has_the_level_and_the_counts() {
        let settings = Settings { placement: Some(Placement::Kernel), ..Settings::default() };
        let counts = KernelCounts {
            segments: 1,
            placed: 2,
            confirmed: 3,
            looked_at: 0,
            wrong: 4,
            octets: 5,
            octets_behind: 6,
            octets_unseen: 7,
            unaligned: 8,
            summed_ahead: 0,
            interface: 9,
        };
        let fields = |counts| {
            let value = placement_info(&settings, counts);
            let [level, interface] = [0, 4].map(|at| u32::from_ne_bytes(*value[at..].first_chunk().unwrap()));
            let rest = value[8..].chunks(8).map(|field| u64::from_ne_bytes(field.try_into().unwrap()));
            (level, interface, rest.collect::<Vec<_>>())
        };
        assert_eq!(fields(Some(counts)), (2, 9, (1..=8).collect()));
        assert_eq!(fields(None), (0, 0, vec![0; 8]), "placed at user level all the same");
    }

    #[test]
    fn mode_info_says_why_it_failed() {
        let mut settings = Settings { role: Some(Role::Responder), ..Settings::default() };
        settings.fail(Errno::TIMED_OUT);
        let info = get(&settings, DDP_MODE_INFO).unwrap();
        assert_eq!(&*info, [4, 2, libc::ETIMEDOUT, 0, 0].map(c_int::to_ne_bytes).as_flattened());
    }
}
