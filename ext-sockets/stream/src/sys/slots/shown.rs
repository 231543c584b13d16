//! Files of states, read by a program that has no socket in them: see [`Shown`].

use std::fs::{self, File};
use std::mem::offset_of;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::file::{is_own, user_of};
use super::layout::{Entry, HEADER, Header, MAX_SLABS, OF_SLOTS, SLAB, SLOT, SLOTS, slot_at};
use super::process::{Known, Process};
use crate::shown::Shown;

/// Returns the streams whose states lie in files in `folder`, those of this user; for root those of
/// all users. Streams of other builds are not among them.
#[must_use]
pub fn shown(folder: &Path, user: u32) -> Vec<Shown> {
    let mut known = Known::default();
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let of = entry.file_name().to_str().and_then(user_of);
        let Some(of) = of.filter(|of| *of == user || user == 0) else { continue };
        if let Some(file) = open(&entry.path(), of) {
            read(&file, &mut known, &mut all);
        }
    }
    all
}

/// Opens a file for reading, if it is one of this user's.
fn open(path: &Path, user: u32) -> Option<File> {
    let mut options = fs::OpenOptions::new();
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    // Looked at first: to open what another user has put there could have effects.
    if !is_own(&fs::symlink_metadata(path).ok()?, user) {
        return None;
    }
    let file = options.open(path).ok()?;
    let about = file.metadata().ok()?;
    (is_own(&about, user) && about.uid() == user).then_some(file)
}

fn read(file: &File, known: &mut Known, all: &mut Vec<Shown>) {
    let mut header = vec![0; HEADER];
    let mut slabs = 1;
    let mut slab = 0;
    while slab < slabs && file.read_exact_at(&mut header, (slab * SLAB) as u64).is_ok() {
        if slab == 0 {
            slabs = (long(&header, offset_of!(Header, slabs)) as u32 as usize).min(MAX_SLABS);
        }
        if long(&header, offset_of!(Header, kind)) == OF_SLOTS {
            let slots = (0..SLOTS).filter_map(|index| read_slot(file, slab, index, &header, known));
            all.extend(slots);
        }
        slab += 1;
    }
}

fn read_slot(file: &File, slab: usize, index: usize, header: &[u8], known: &mut Known) -> Option<Shown> {
    let entry = offset_of!(Header, entries) + index * size_of::<Entry>();
    let cookie = long(header, entry + offset_of!(Entry, cookie));
    if cookie == 0 {
        return None;
    }
    let places = (0..4).map(|nth| long(header, entry + offset_of!(Entry, holders) + nth * size_of::<u64>()));
    let holders: Vec<_> = places
        .filter_map(Process::of_word)
        .filter(|process| known.is_alive(*process))
        .map(Process::pid)
        .collect();
    if holders.is_empty() {
        return None;
    }
    let mut octets = [0; SLOT];
    file.read_exact_at(&mut octets, (slab * SLAB + slot_at(index)) as u64).ok()?;
    Shown::of(cookie, holders, &octets)
}

fn long(octets: &[u8], at: usize) -> u64 {
    octets.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |octets| u64::from_ne_bytes(*octets))
}
