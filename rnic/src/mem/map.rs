//! Is a range of memory mapped, and with which rights? Answered by the kernel's list of mappings, so that no page
//! is touched and the cost goes with the mappings, not with the pages (RFC 5042 §7.3).
//!
//! Linux 6.11 and newer tell of one mapping at a time by an `ioctl` on `/proc/self/maps`; else the file is read as text.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use super::MemError;

/// One mapping of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mapped {
    range: Range<u64>,
    read: bool,
    write: bool,
}

/// Demands that all of the range is mapped readable, and writable as well when `write`.
pub(super) fn require(ptr: NonNull<u8>, len: usize, write: bool) -> Result<(), MemError> {
    let (start, len) = (ptr.as_ptr().addr() as u64, len as u64);
    let end = start.checked_add(len).ok_or(MemError::Wrap { addr: start, len })?;
    if len == 0 {
        return Ok(());
    }
    let file = File::open("/proc/self/maps").map_err(MemError::Maps)?;
    match cover(start..end, write, |addr| query(&file, addr)) {
        // An older kernel, or a filter on system calls: read the text.
        Err(MemError::Maps(_)) => {
            let mut text = Lines::new(file);
            cover(start..end, write, |addr| text.ending_after(addr))
        }
        answer => answer,
    }
}

/// Walks through mappings in rising order until they cover the range or fail to. `ending_after` gives the first mapping
/// whose end is above an address.
fn cover(
    range: Range<u64>,
    write: bool,
    mut ending_after: impl FnMut(u64) -> io::Result<Option<Mapped>>,
) -> Result<(), MemError> {
    let mut at = range.start;
    while at < range.end {
        let next = ending_after(at).map_err(MemError::Maps)?;
        let Some(mapped) = next.filter(|mapped| mapped.range.contains(&at)) else {
            return Err(MemError::NotMapped { at, start: range.start, end: range.end });
        };
        if !mapped.read || (write && !mapped.write) {
            return Err(MemError::NotPermitted { at, write: mapped.read });
        }
        at = mapped.range.end;
    }
    Ok(())
}

/// `struct procmap_query` of `linux/fs.h`.
#[repr(C)]
#[derive(Default)]
struct ProcmapQuery {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

const PROCMAP_QUERY: libc::Ioctl = libc::_IOWR::<ProcmapQuery>(b'f' as u32, 17);
const COVERING_OR_NEXT: u64 = 0x10;
const READABLE: u64 = 0x01;
const WRITABLE: u64 = 0x02;

/// Asks the kernel for one mapping.
fn query(maps: &File, addr: u64) -> io::Result<Option<Mapped>> {
    let mut query = ProcmapQuery {
        size: size_of::<ProcmapQuery>() as u64,
        query_flags: COVERING_OR_NEXT,
        query_addr: addr,
        ..ProcmapQuery::default()
    };
    // SAFETY: the request reads and writes one `procmap_query`, whose size it is told, and follows no pointer in it
    // because the name and build id are not asked for.
    if unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY, &raw mut query) } == 0 {
        return Ok(Some(Mapped {
            range: query.vma_start..query.vma_end,
            read: query.vma_flags & READABLE != 0,
            write: query.vma_flags & WRITABLE != 0,
        }));
    }
    match io::Error::last_os_error() {
        none if none.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        fault => Err(fault),
    }
}

/// The text of `/proc/self/maps`, read once.
struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
}

impl<R: Read> Lines<R> {
    fn new(source: R) -> Self {
        Self { reader: BufReader::with_capacity(1 << 14, source), line: Vec::new() }
    }

    /// Asked for rising addresses only.
    fn ending_after(&mut self, addr: u64) -> io::Result<Option<Mapped>> {
        loop {
            self.line.clear();
            if self.reader.read_until(b'\n', &mut self.line)? == 0 {
                return Ok(None);
            }
            let mapped = parse(&self.line).ok_or(io::ErrorKind::InvalidData)?;
            if mapped.range.end > addr {
                return Ok(Some(mapped));
            }
        }
    }
}

/// `55d0c8a00000-55d0c8a02000 r--p 00000000 fe:00 1234   /usr/bin/cat`
fn parse(line: &[u8]) -> Option<Mapped> {
    let mut words = line.split(|octet| *octet == b' ');
    let range = std::str::from_utf8(words.next()?).ok()?;
    let rights = words.next()?;
    let (start, end) = range.split_once('-')?;
    Some(Mapped {
        range: u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?,
        read: *rights.first()? == b'r',
        write: *rights.get(1)? == b'w',
    })
}
