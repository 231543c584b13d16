//! Files read into registered memory, and written from it.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::ptr::null_mut;

use nix::sys::memfd::{MFdFlags, memfd_create};

use super::*;
use crate::mem::MemError;

const LEN: usize = 4096;

fn file(octets: &[u8]) -> File {
    let file = File::from(memfd_create(c"octets", MFdFlags::MFD_CLOEXEC).unwrap());
    file.write_all_at(octets, 0).unwrap();
    file
}

/// Returns what kept a call from the memory.
fn refused<T: std::fmt::Debug>(result: std::io::Result<T>) -> MemError {
    result.unwrap_err().downcast::<MemError>().unwrap()
}

#[test]
fn octets_of_a_file_fill_the_range_and_no_more() {
    let (table, file) = (table(), file(b"0123456789"));
    let region = allocate(&table, 8, ALL);
    assert_eq!(region.read_file(file.as_fd(), 3, 2..6).unwrap(), 4);
    assert_eq!(octets(&region), b"\0\x003456\0\0");
    assert_eq!(region.read_file(file.as_fd(), 8, 0..8).unwrap(), 2);
    assert_eq!(octets(&region), b"893456\0\0");
    for (at, range) in [(10, 0..8), (1 << 40, 0..8), (0, 8..8)] {
        assert_eq!(region.read_file(file.as_fd(), at, range).unwrap(), 0);
    }
    assert_eq!(octets(&region), b"893456\0\0");
}

#[test]
fn octets_of_the_range_go_to_their_place_in_the_file() {
    let (table, file) = (table(), file(b"0123456789"));
    let region = allocate(&table, 8, Access::empty());
    region.write_at(0, b"abcdefgh").unwrap();
    region.write_file(file.as_fd(), 2, 1..4).unwrap();
    region.write_file(file.as_fd(), 10, 6..8).unwrap();
    region.write_file(file.as_fd(), 0, 3..3).unwrap();
    let mut all = [0; 12];
    file.read_exact_at(&mut all, 0).unwrap();
    assert_eq!(&all, b"01bcd56789gh");
}

#[test]
fn nothing_outside_of_the_region_and_the_file_is_touched() {
    let (table, file) = (table(), file(b"0123456789"));
    let region = allocate(&table, 8, ALL);
    for range in [0..9, 8..9, 9..10, 7..usize::MAX] {
        let outside = |error| assert!(matches!(error, MemError::OutOfBounds { .. }), "{range:?}: {error}");
        outside(refused(region.read_file(file.as_fd(), 0, range.clone())));
        outside(refused(region.write_file(file.as_fd(), 0, range.clone())));
    }
    let beyond =
        |result: std::io::Result<()>| assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidInput);
    beyond(region.read_file(file.as_fd(), u64::MAX, 0..8).map(drop));
    beyond(region.write_file(file.as_fd(), 1 << 63, 0..8));
    assert_eq!(octets(&region), [0; 8]);
    assert_eq!(file.metadata().unwrap().len(), 10);
    assert!(region.read_file(File::open("/").unwrap().as_fd(), 0, 0..8).is_err());
}

#[test]
fn memory_lent_for_reading_is_not_read_into_and_none_after_deregistration() {
    let (table, file) = (table(), file(b"0123456789"));
    let memory = Guarded::new(64);
    let region = memory.register(&table, Access::REMOTE_READ);
    assert!(matches!(refused(region.read_file(file.as_fd(), 0, 0..8)), MemError::ReadOnly));
    region.write_file(file.as_fd(), 0, 0..2).unwrap();
    table.deregister(region.stag()).unwrap();
    assert!(matches!(refused(region.write_file(file.as_fd(), 0, 0..8)), MemError::Deregistered));
    let region = memory.register(&table, ALL);
    assert_eq!(region.read_file(file.as_fd(), 0, 0..8).unwrap(), 8);
    assert_eq!(octets(&region)[..8], *b"\0\x00234567");
}

/// The file of a mapping is cut short: that ends the call, not the process.
#[test]
fn lent_memory_that_has_gone_bad_is_an_error() {
    let (table, behind, file) = (table(), file(&[7; 2 * LEN]), file(&[1; 2 * LEN]));
    let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping, of a file that is open.
    let start = unsafe { libc::mmap(null_mut(), 2 * LEN, rights, kind, behind.as_raw_fd(), 0) };
    assert_ne!(start, libc::MAP_FAILED);
    let start = NonNull::new(start.cast::<u8>()).unwrap();
    let options = RegionOptions::default();
    // SAFETY: no reference covers the mapping, which is never unmapped.
    let region = unsafe { table.register(PD, start, 2 * LEN, ALL, &options) }.unwrap();
    behind.set_len(LEN as u64).unwrap();
    let faulted = |result: std::io::Result<()>| {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EFAULT));
    };
    faulted(region.read_file(file.as_fd(), 0, LEN..2 * LEN).map(drop));
    faulted(region.write_file(file.as_fd(), 0, LEN..2 * LEN));
    // Good octets before bad ones move, and are no success.
    faulted(region.read_file(file.as_fd(), 0, 0..2 * LEN).map(drop));
    let mut sum = [0; LEN];
    region.read_at(0, &mut sum).unwrap();
    assert_eq!(sum, [1; LEN]);
    assert!(region.crc(LEN..2 * LEN).is_err());
}

#[test]
fn the_crc_is_that_of_the_range() {
    let table = table();
    let region = allocate(&table, 16, Access::empty());
    region.write_at(4, b"123456789").unwrap();
    // The check value of CRC-32C.
    assert_eq!(region.crc(4..13).unwrap(), 0xe306_9283);
    assert_eq!(region.crc(4..4).unwrap(), 0);
    assert!(matches!(region.crc(4..17), Err(MemError::OutOfBounds { .. })));
}
