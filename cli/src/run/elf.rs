//! The kind of program that a file contains, by its ELF headers.

use std::ops::Range;

/// The linking of a program, which decides whether a library can be loaded into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Linking {
    /// The program names a dynamic linker.
    Dynamic,
    /// The program names the dynamic linker of musl.
    Musl,
    /// The program names no dynamic linker.
    Static,
    /// The program was made by the Go toolchain.
    Go { is_dynamic: bool },
    /// The program is for another kind of processor.
    OtherMachine,
    /// The file is not a program.
    NoProgram,
}

/// Returns the linking of a program, given the first octets of its file.
pub(super) fn linking(head: &[u8]) -> Linking {
    if !head.starts_with(b"\x7fELF") {
        return Linking::NoProgram;
    }
    let of_this_host = head.get(field::CLASS) == Some(&CLASS_64)
        && head.get(field::DATA) == Some(&DATA_LITTLE)
        && number(head, field::MACHINE) == Some(MACHINE);
    if !of_this_host {
        return Linking::OtherMachine;
    }
    let segments = segments(head);
    let linker = segments.iter().find(|segment| segment.kind == PT_INTERP);
    let linker = linker.map(|segment| &head[clip(&segment.octets, head)]);
    let is_dynamic = linker.is_some();
    if segments.iter().any(|segment| segment.kind == PT_NOTE && is_go(&head[clip(&segment.octets, head)])) {
        Linking::Go { is_dynamic }
    } else if linker.is_some_and(|name| name.windows(MUSL.len()).any(|part| part == MUSL)) {
        Linking::Musl
    } else if is_dynamic {
        Linking::Dynamic
    } else {
        Linking::Static
    }
}

/// Octets at the start of a file within which a program's headers, and the notes behind them, lie.
pub(super) const HEAD: usize = 64 << 10;

pub(super) struct Segment {
    pub(super) kind: u64,
    /// The place in the file.
    pub(super) octets: Range<usize>,
    /// The address at which it is loaded.
    pub(super) address: usize,
}

/// Returns as many of the program headers as `head` holds.
pub(super) fn segments(head: &[u8]) -> Vec<Segment> {
    let table = (|| {
        let start = usize::try_from(number(head, field::PHOFF)?).ok()?;
        let entry = number(head, field::PHENTSIZE)? as usize;
        let count = number(head, field::PHNUM)? as usize;
        (entry >= ENTRY).then_some((start, entry, count))
    })();
    let Some((start, entry, count)) = table else { return Vec::new() };
    let headers = head.get(start..).unwrap_or_default().chunks_exact(entry).take(count);
    headers.filter_map(segment).collect()
}

fn segment(header: &[u8]) -> Option<Segment> {
    let start = usize::try_from(number(header, field::P_OFFSET)?).ok()?;
    let len = usize::try_from(number(header, field::P_FILESZ)?).ok()?;
    Some(Segment {
        kind: number(header, field::P_TYPE)?,
        octets: start..start.saturating_add(len),
        address: usize::try_from(number(header, field::P_VADDR)?).ok()?,
    })
}

/// Returns whether one of these notes has the Go toolchain's name.
fn is_go(mut notes: &[u8]) -> bool {
    while let (Some(name_len), Some(text_len)) = (number(notes, 0..4), number(notes, 4..8)) {
        let padded = |len: u64| (len as usize).next_multiple_of(4);
        let name = notes.get(12..).and_then(|rest| rest.get(..name_len as usize));
        if name == Some(b"Go\0\0") {
            return true;
        }
        let Some(rest) = notes.get(12 + padded(name_len) + padded(text_len)..) else { return false };
        notes = rest;
    }
    false
}

fn clip(range: &Range<usize>, head: &[u8]) -> Range<usize> {
    range.start.min(head.len())..range.end.min(head.len())
}

/// Returns the little-endian number in these octets.
fn number(octets: &[u8], field: Range<usize>) -> Option<u64> {
    let field = octets.get(field)?;
    Some(field.iter().rev().fold(0, |number, octet| number << 8 | u64::from(*octet)))
}

/// Offsets from the ELF-64 object file format, figures 2 and 6.
mod field {
    use std::ops::Range;

    pub(super) const CLASS: usize = 4;
    pub(super) const DATA: usize = 5;
    pub(super) const MACHINE: Range<usize> = 18..20;
    pub(super) const PHOFF: Range<usize> = 32..40;
    pub(super) const PHENTSIZE: Range<usize> = 54..56;
    pub(super) const PHNUM: Range<usize> = 56..58;
    pub(super) const P_TYPE: Range<usize> = 0..4;
    pub(super) const P_OFFSET: Range<usize> = 8..16;
    pub(super) const P_VADDR: Range<usize> = 16..24;
    pub(super) const P_FILESZ: Range<usize> = 32..40;
}

/// In the name of musl's dynamic linker, such as `/lib/ld-musl-x86_64.so.1`.
const MUSL: &[u8] = b"/ld-musl-";
const CLASS_64: u8 = 2;
const DATA_LITTLE: u8 = 1;
#[cfg(target_arch = "aarch64")]
const MACHINE: u64 = 183;
#[cfg(not(target_arch = "aarch64"))]
const MACHINE: u64 = 62;
const ENTRY: usize = 56;
pub(super) const PT_LOAD: u64 = 1;
pub(super) const PT_DYNAMIC: u64 = 2;
const PT_INTERP: u64 = 3;
const PT_NOTE: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a program with these segments: their kinds, and their contents.
    fn program(segments: &[(u64, &[u8])]) -> Vec<u8> {
        let mut file = vec![0; 64 + segments.len() * ENTRY];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[18..20].copy_from_slice(&(MACHINE as u16).to_le_bytes());
        file[32] = 64;
        file[54] = ENTRY as u8;
        file[56] = segments.len() as u8;
        for (number, (kind, octets)) in segments.iter().enumerate() {
            let at = 64 + number * ENTRY;
            let start = file.len() as u64;
            file[at..at + 4].copy_from_slice(&(*kind as u32).to_le_bytes());
            file[at + 8..at + 16].copy_from_slice(&start.to_le_bytes());
            file[at + 32..at + 40].copy_from_slice(&(octets.len() as u64).to_le_bytes());
            file.extend_from_slice(octets);
        }
        file
    }

    fn note(name: &[u8; 4], text: &[u8; 4]) -> Vec<u8> {
        [&4u32.to_le_bytes()[..], &4u32.to_le_bytes(), &[1, 0, 0, 0], name, text].concat()
    }

    #[test]
    fn a_program_with_an_interpreter_is_dynamic() {
        let gnu = note(b"GNU\0", b"text");
        assert_eq!(linking(&program(&[(PT_NOTE, &gnu), (PT_INTERP, b"/lib/ld.so\0")])), Linking::Dynamic);
        assert_eq!(linking(&program(&[(PT_INTERP, b"/lib/ld-musl-x86_64.so.1\0")])), Linking::Musl);
        assert_eq!(linking(&program(&[(PT_NOTE, &gnu)])), Linking::Static);
        assert_eq!(linking(&program(&[])), Linking::Static);
    }

    #[test]
    fn a_go_program_is_one_however_it_is_linked() {
        let go = |is_dynamic| Linking::Go { is_dynamic };
        let notes = [note(b"GNU\0", b"text"), note(b"Go\0\0", b"text")].concat();
        assert_eq!(linking(&program(&[(PT_NOTE, &notes)])), go(false));
        assert_eq!(linking(&program(&[(PT_INTERP, b"/lib/ld.so\0"), (PT_NOTE, &notes)])), go(true));
    }

    #[test]
    fn this_program_is_dynamic() {
        let head = std::fs::read("/proc/self/exe").unwrap();
        assert_eq!(linking(&head[..64 << 10]), Linking::Dynamic);
    }

    #[test]
    fn other_machines_and_other_files_are_told_apart() {
        let mut other = program(&[(PT_INTERP, b"/lib/ld.so\0")]);
        other[4] = 1;
        assert_eq!(linking(&other), Linking::OtherMachine);
        assert_eq!(linking(b""), Linking::NoProgram);
        assert_eq!(linking(b"hello"), Linking::NoProgram);
        assert_eq!(linking(b"\x7fELF"), Linking::OtherMachine);
    }

    #[test]
    fn broken_files_cause_no_panic() {
        let whole = program(&[(PT_NOTE, &note(b"Go\0\0", b"text")), (PT_INTERP, b"/lib/ld.so\0")]);
        for len in 0..whole.len() {
            linking(&whole[..len]);
        }
        for at in 0..whole.len() {
            for octet in [0, 1, 0x7f, 0xff] {
                let mut broken = whole.clone();
                broken[at] = octet;
                linking(&broken);
            }
        }
    }
}
