//! State that another process may have written: whatever is sound is safe to work with.

use proptest::prelude::*;

use crate::machine::conn::{due, flag};
use crate::machine::tables::{OwnSink, OwnSource, ReadFrom, WriteTo};
use crate::machine::{Core, Half, Machine, SinkId, SourceId, Tables};
use crate::wire::{Flags, Message, Mode};

/// Numbers of which the small and the extreme are the interesting ones.
fn any_u32() -> impl Strategy<Value = u32> {
    prop_oneof![0..9_u32, any::<u32>(), (u32::MAX - 9)..=u32::MAX, 30..100_u32]
}

fn any_u64() -> impl Strategy<Value = u64> {
    prop_oneof![0..9_u64, any::<u64>(), (u64::MAX - 99)..=u64::MAX]
}

prop_compose! {
    fn any_core()(n in proptest::collection::vec(any_u32(), 24), long in proptest::array::uniform3(any_u64()),
        flags in any::<u32>(), due in any::<u32>()) -> Core {
        Core {
            in_octets: long[0], taken_octets: long[1], mark: long[2],
            flags: flags & flag::ALL & !flag::ABORTED | flag::IN_USE, due: due & due::ALL,
            next_mseq: n[0], received: n[1], acked: n[0].wrapping_sub(1 + n[2] % 9), peer_bufs: n[3] & 0xffff,
            bufs: n[4] & 0xffff, taken_bufs: n[5] % ((n[4] & 0xffff) + 1), shown: n[6], held_ack: n[7],
            buf_size: n[8].max(36), send_size: n[9].max(36), peer_buf_size: n[10].max(36),
            max_adverts: n[11] % 8 + 1, peer_max_adverts: n[12] % 255 + 1, out_mode: n[13] % 3,
            in_mode: n[14] % 3, sent_non_discards: n[15], non_discards_at_change: n[16],
            received_non_discards: n[17], change_mseq: n[18], disconn_mseq: n[19],
            source_cancel_mseq: n[20], sink_cancel_mseq: n[21], wanted_size: n[22],
            resizes_asked: n[23], resizes_due: n[22],
        }
    }
}

prop_compose! {
    fn any_tables()(n in proptest::collection::vec(any_u32(), 8 * 12), to in proptest::collection::vec(any_u64(), 16))
        -> Tables {
        let mut tables = Tables::default();
        for at in 0..8 {
            let n = &n[at * 12..];
            let mut counts = [n[0], n[1], n[2], n[3]];
            counts.sort_unstable();
            let [a, b, c, d] = counts;
            tables.sources[at] =
                OwnSource { state: n[4] % 4, mseq: n[5], len: c, inline: a, done: b, queued: n[4] >> 2 & 1 };
            tables.sinks[at] = OwnSink { state: n[6] % 5, mseq: n[7], len: d, done: b };
            let room = |to: u64, len: u32| to.min(u64::MAX - u64::from(len));
            tables.peer_sources[at] = ReadFrom {
                to: room(to[at], d), state: n[8] % 2, mseq: n[9], stag: n[0], len: d, asked: c, read: b,
                reported: a, reserved: 0,
            };
            tables.peer_sinks[at] = WriteTo {
                to: room(to[at + 8], c), state: n[10] % 3, mseq: n[11], stag: n[1], len: c, written: b,
                reserved: 0,
            };
        }
        tables
    }
}

/// Calls all that a machine has, with numbers as wild as its state.
fn all_calls(core: &Core, tables: &Tables, message: &[u8; 36], n: u32, payload: usize) {
    let with = |calls: &mut dyn FnMut(&mut Machine<'_>)| {
        let (mut core, mut tables) = (*core, *tables);
        calls(&mut Machine::new(&mut core, Some(&mut tables)));
    };
    with(&mut |machine| {
        if let Ok(mut message) = Message::parse(message) {
            message.payload_len = payload;
            message.header.mseq = machine.core.received.wrapping_add(1);
            message.header.mseq_ack = machine.core.acked;
            message.header.len = 36;
            let _ = machine.receive(&message);
        }
    });
    with(&mut |machine| {
        let _ = (machine.reading(n), machine.next_read(), machine.read_done(n), machine.refuse_source());
        let _ = (machine.peer_sink(), machine.written(n));
        machine.complete_peer_sink();
        let _ = (0..20).filter_map(|_| machine.next_control()).count();
    });
    with(&mut |machine| {
        let _ = machine.data(payload, n & 1 != 0);
        let _ = (machine.advertise_source(n, payload, n, n.into()), machine.advertise_sink(n, n, n.into()));
        if let Some(id) = machine.returned() {
            let _ = (machine.resend(id, payload), machine.resend_written(id, n));
        }
    });
    with(&mut |machine| {
        let id = n as usize % 9;
        let _ = (machine.release_source(SourceId::at(id)), machine.release_sink(SinkId::at(id)));
        let _ = (machine.source(SourceId::at(id)), machine.sink(SinkId::at(id)), machine.oldest_sink());
        let _ = (machine.cancel_sources(), machine.cancel_sinks(), machine.tables_idle());
        let _ =
            (machine.change_mode(Half::Out, Mode::Pipelined), machine.change_mode(Half::In, Mode::Combined));
        let _ = machine.request_buffer_size(n);
        machine.answer_buffer_size(Some(n));
        machine.octets_taken(n.into());
        machine.buffer_freed();
        machine.wait_for_credits();
        machine.update_now();
        machine.close_sending();
        let _ = (machine.urgent(), machine.update_due(), machine.abort(), machine.control_due());
        let _ = (0..20).filter_map(|_| machine.next_control()).count();
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// No call panics, wraps by accident or goes out of bounds on state that is sound.
    #[test]
    fn sound_state_is_safe(
        core in any_core(), tables in any_tables(), mut message in any::<[u8; 36]>(), mid in 0..16_usize,
        n in any_u32(), payload in 0..60_usize,
    ) {
        const MIDS: [u8; 16] = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 0xfd, 0xfe, 0xff, 13];
        message[0] = MIDS[mid];
        message[1] &= !Flags::OOB_PRES.0;
        message[4..8].copy_from_slice(&36_u32.to_be_bytes());
        prop_assert!(core.is_sound(), "{core:?}");
        prop_assert!(tables.is_sound(), "{tables:?}");
        all_calls(&core, &tables, &message, n, payload);
        all_calls(&core, &Tables::default(), &message, n, payload);
    }
}

/// Unused state is sound; what no machine writes is not.
#[test]
fn unsound_state_is_seen() {
    assert!(Core::default().is_sound() && Tables::default().is_sound());
    let core = super::core();
    assert!(core.is_sound());
    for spoil in [
        |core: &mut Core| core.out_mode = 3,
        |core: &mut Core| core.in_mode = 3,
        |core: &mut Core| core.taken_bufs = core.bufs + 1,
        |core: &mut Core| core.max_adverts = 9,
        |core: &mut Core| core.buf_size = 35,
        |core: &mut Core| core.flags = 0,
        |core: &mut Core| core.flags |= 1 << 31,
        |core: &mut Core| core.due = 1 << 31,
        |core: &mut Core| core.next_mseq = core.acked,
    ] {
        let mut spoilt = core;
        spoil(&mut spoilt);
        assert!(!spoilt.is_sound(), "{spoilt:?}");
    }
    for spoil in [
        |tables: &mut Tables| tables.sources[7].state = 4,
        |tables: &mut Tables| tables.sources[7].done = 1,
        |tables: &mut Tables| tables.sinks[7].state = 5,
        |tables: &mut Tables| tables.peer_sources[7].read = 1,
        |tables: &mut Tables| (tables.peer_sources[7].to, tables.peer_sources[7].len) = (u64::MAX, 1),
        |tables: &mut Tables| tables.peer_sinks[7].written = 1,
    ] {
        let mut spoilt = Tables::default();
        spoil(&mut spoilt);
        assert!(!spoilt.is_sound(), "{spoilt:?}");
    }
}
