//! `sdp_machine`: any octets as the state of SDP's machine, then any calls and messages.

use rddp_sdp::machine::{Config, Core, Half, Machine, SinkId, SourceId, Tables};
use rddp_sdp::wire::{Message, Mode};

/// Runs one input: a configuration, octets that are laid over the state if the input says so, and
/// steps.
pub fn run(octets: &[u8]) {
    let mut input = Input(octets);
    let config = config(&mut input);
    let Ok(mut core) = Core::new(&config) else { return };
    let mut tables = Tables::default();
    let is_own = input.octet() & 1 == 0;
    if !is_own {
        core = spoilt(&core, &mut input);
        tables = spoilt(&tables, &mut input);
        if !core.is_sound() || !tables.is_sound() {
            return;
        }
    }
    let has_tables = input.octet() & 1 == 0;
    for _ in 0..400 {
        if input.0.is_empty() {
            break;
        }
        step(&mut Machine::new(&mut core, has_tables.then_some(&mut tables)), &mut input);
        // State that this machine alone has written stays sound.
        assert!(!is_own || core.is_sound() && tables.is_sound(), "{core:?} {tables:?}");
    }
}

fn config(input: &mut Input<'_>) -> Config {
    let size = |input: &mut Input<'_>| 36 + u32::from(input.octet()) * 4;
    Config {
        bufs: 3 + u16::from(input.octet()),
        buf_size: size(input),
        send_size: size(input),
        max_adverts: input.octet() % 9,
        peer_bufs: u16::from(input.octet()),
        peer_buf_size: size(input),
        peer_max_adverts: input.octet(),
    }
}

fn step(machine: &mut Machine<'_>, input: &mut Input<'_>) {
    match input.octet() % 16 {
        0..=4 => message(machine, input),
        5 => while machine.next_control().is_some() {},
        6 => {
            let _ = machine.data(input.number() as usize, input.octet() & 1 != 0);
        }
        7 => {
            let inline = usize::from(input.octet() & 3);
            let _ = machine.advertise_source(input.number(), inline, input.number(), input.long());
        }
        8 => {
            let _ = machine.advertise_sink(input.number(), input.number(), input.long());
        }
        9 => {
            let _ = (machine.cancel_sources(), machine.cancel_sinks());
        }
        10 => reads(machine, input),
        11 => writes(machine, input),
        12 => releases(machine, input),
        13 => modes(machine, input),
        14 => {
            for _ in 0..=input.octet() & 7 {
                machine.buffer_freed();
            }
            machine.wait_for_credits();
            machine.octets_taken(input.number().into());
            let _ = (machine.urgent(), machine.update_due(), machine.credits(), machine.control_due());
        }
        _ => match input.octet() % 6 {
            0 => machine.close_sending(),
            1 => drop(machine.abort()),
            2 => machine.announce_urgent(),
            3 => drop(machine.request_buffer_size(input.number())),
            4 => machine.answer_buffer_size(Some(input.number())),
            _ => machine.update_now(),
        },
    }
}

/// Hands in a message; half of them have the numbers that are due.
fn message(machine: &mut Machine<'_>, input: &mut Input<'_>) {
    let numbered = input.octet();
    let mut front = [0; 36];
    front.iter_mut().for_each(|octet| *octet = input.octet());
    // A part of the identifiers is assigned; the others are the parser's to refuse.
    const MIDS: [u8; 16] = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 0xfd, 0xfe, 0xff, 13];
    front[0] = MIDS[usize::from(front[0] & 15)];
    let extension = match front[0] {
        5..=7 | 11 | 12 => 4,
        13 => 8,
        0xfd => 20,
        0xfe => 16,
        _ => 0,
    };
    let payload = if front[0] >= 0xfd { usize::from(input.octet() & 63) } else { 0 };
    front[4..8].copy_from_slice(&(16 + extension as u32 + payload as u32).to_be_bytes());
    let Ok(mut message) = Message::parse(&front[..36.min(16 + extension + payload)]) else { return };
    if numbered & 1 == 0 {
        message.header.mseq = number(machine.core(), RECEIVED).wrapping_add(1);
    }
    if numbered & 2 == 0 {
        message.header.mseq_ack = number(machine.core(), NEXT).wrapping_sub(1);
    }
    let _ = machine.receive(&message);
}

/// Offsets of the numbers of messages in [`Core`].
const NEXT: usize = 32;
const RECEIVED: usize = 36;

/// Returns one of the numbers that the machine keeps to itself.
fn number(core: &Core, offset: usize) -> u32 {
    assert!(offset + 4 <= size_of::<Core>());
    // SAFETY: the range lies in the structure, which is `repr(C)` and has integers alone there.
    unsafe { (&raw const *core).cast::<u8>().add(offset).cast::<u32>().read_unaligned() }
}

/// The offsets are those of the fields: a message with the numbers that are due is taken.
#[test]
fn the_offsets_are_right() {
    let config = config(&mut Input(&[8; 9]));
    let mut core = Core::new(&config).unwrap();
    assert_eq!((number(&core, NEXT), number(&core, RECEIVED)), (1, 0));
    Machine::new(&mut core, None).update_now();
    assert!(Machine::new(&mut core, None).next_control().is_some());
    assert_eq!((number(&core, NEXT), number(&core, RECEIVED)), (2, 0));
}

fn reads(machine: &mut Machine<'_>, input: &mut Input<'_>) {
    if let Some(source) = machine.next_read() {
        assert!(source.to.checked_add(source.left.into()).is_some() && source.left > 0);
        let _ = machine.reading(source.left.min(input.number()));
    }
    let _ = (machine.read_done(input.number()), machine.peer_sources_pending(), machine.reads_open());
    if input.octet() & 3 == 0 {
        let _ = machine.refuse_source();
    }
}

fn writes(machine: &mut Machine<'_>, input: &mut Input<'_>) {
    if let Some(sink) = machine.peer_sink() {
        assert!(sink.to.checked_add(sink.left.into()).is_some());
        let _ = machine.written(input.number());
    }
    if let Some(id) = machine.returned() {
        let _ = (machine.resend(id, input.number() as usize), machine.resend_written(id, input.number()));
    }
    if input.octet() & 1 != 0 {
        machine.complete_peer_sink();
    }
}

fn releases(machine: &mut Machine<'_>, input: &mut Input<'_>) {
    let place = usize::from(input.octet() % 9);
    let source = machine.source(SourceId::at(place));
    assert!(source.done <= source.len);
    let _ = (machine.sink(SinkId::at(place)), machine.oldest_sink(), machine.tables_idle());
    let _ = (machine.release_source(SourceId::at(place)), machine.release_sink(SinkId::at(place)));
}

fn modes(machine: &mut Machine<'_>, input: &mut Input<'_>) {
    let chosen = input.octet();
    let half = if chosen & 1 == 0 { Half::Out } else { Half::In };
    let mode = [Mode::Buffered, Mode::Combined, Mode::Pipelined][usize::from(chosen >> 1) % 3];
    machine.prefer_pipelined(chosen & 0x80 != 0);
    let _ = machine.change_mode(half, mode);
}

/// Lays octets of the input over a value of plain integers.
fn spoilt<T: Copy>(value: &T, input: &mut Input<'_>) -> T {
    let mut value = *value;
    // SAFETY: `Core` and `Tables`, the types this is called with, are `repr(C)` structures of
    // integers, without padding that is read as anything else: any octets are valid in them.
    let octets = unsafe { std::slice::from_raw_parts_mut((&raw mut value).cast::<u8>(), size_of::<T>()) };
    octets.iter_mut().for_each(|octet| *octet ^= input.octet());
    value
}

/// The octets of an input that are left; zeros behind them.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn octet(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Returns a number: small ones are frequent, and so are those near the greatest.
    fn number(&mut self) -> u32 {
        let first = self.octet();
        match first {
            0..0xf0 => first.into(),
            0xf0..0xf8 => u32::MAX - u32::from(self.octet()),
            _ => u32::from_le_bytes([self.octet(), self.octet(), self.octet(), self.octet()]),
        }
    }

    fn long(&mut self) -> u64 {
        let (high, low) = (self.number(), self.number());
        if high < 0x80 { low.into() } else { u64::from(high) << 32 | u64::from(low) }
    }
}
