//! Checks that a range of memory is mapped with the rights it needs. The answer comes from the
//! kernel's list of mappings, so no page is touched, and the cost depends on the number of mappings
//! and not of pages (RFC 5042 §7.3).
//!
//! Linux 6.11 and newer return one mapping at a time by an `ioctl` on `/proc/self/maps`; elsewhere
//! the file is read as text. Where there is no `/proc` see [`unlisted`](super::unlisted).

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use super::filesystem::Device;
use super::{MemError, unlisted};

/// One mapping of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mapped {
    range: Range<u64>,
    read: bool,
    write: bool,
    /// The file system of a mapped file. A private mapping, too, shows what others write to the
    /// file, as far as the process has not written to its pages.
    file: Option<Device>,
}

/// Demands that all of the range is mapped readable, and writable as well when `write`. Returns
/// whether a part of it is a mapping of a file, which others may write.
pub(super) fn require(ptr: NonNull<u8>, len: usize, write: bool) -> Result<bool, MemError> {
    let (start, len) = (ptr.as_ptr().addr() as u64, len as u64);
    let end = start.checked_add(len).ok_or(MemError::Wrap { addr: start, len })?;
    if len == 0 {
        return Ok(false);
    }
    match File::open("/proc/self/maps") {
        Ok(maps) => require_listed(maps, start..end, write),
        Err(reason) => unlisted::require(start..end, reason),
    }
}

/// Looks the range up in the list of mappings.
fn require_listed(maps: File, range: Range<u64>, write: bool) -> Result<bool, MemError> {
    let files = match cover(range.clone(), write, |addr| query(&maps, addr)) {
        // An older kernel, or a filter on system calls: read the text.
        Err(MemError::Maps(_)) => {
            let mut text = Lines::new(maps);
            cover(range, write, |addr| text.ending_after(addr))
        }
        answer => answer,
    }?;
    Ok(files.into_iter().any(|device| !device.is_shared_memory()))
}

/// Walks through mappings in rising order until they cover the range, or fails at the first gap.
/// `ending_after` returns the first mapping whose end is above an address. Returns the file systems
/// of the files that are mapped there.
fn cover(
    range: Range<u64>,
    write: bool,
    mut ending_after: impl FnMut(u64) -> io::Result<Option<Mapped>>,
) -> Result<Vec<Device>, MemError> {
    let mut files = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let next = ending_after(at).map_err(MemError::Maps)?;
        let Some(mapped) = next.filter(|mapped| mapped.range.contains(&at)) else {
            return Err(MemError::NotMapped { at, start: range.start, end: range.end });
        };
        if !mapped.read || (write && !mapped.write) {
            return Err(MemError::NotPermitted { at, write: mapped.read });
        }
        if let Some(device) = mapped.file.filter(|device| !files.contains(device)) {
            files.push(device);
        }
        at = mapped.range.end;
    }
    Ok(files)
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

impl ProcmapQuery {
    /// Returns the file system of a mapped file, as in [`Mapped::file`]. Huge pages count as shared
    /// memory: only who maps them can write to them.
    fn file(&self) -> Option<Device> {
        // SAFETY: asks for a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
        let is_file = self.inode != 0 && self.vma_page_size <= page;
        is_file.then_some(Device { major: self.dev_major, minor: self.dev_minor })
    }
}

/// Asks the kernel for one mapping.
fn query(maps: &File, addr: u64) -> io::Result<Option<Mapped>> {
    let mut query = ProcmapQuery {
        size: size_of::<ProcmapQuery>() as u64,
        query_flags: COVERING_OR_NEXT,
        query_addr: addr,
        ..ProcmapQuery::default()
    };
    // SAFETY: the request reads and writes one `procmap_query`, whose size it is told, and follows
    // no pointer in it because the name and build id are not asked for.
    if unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY, &raw mut query) } == 0 {
        return Ok(Some(Mapped {
            range: query.vma_start..query.vma_end,
            read: query.vma_flags & READABLE != 0,
            write: query.vma_flags & WRITABLE != 0,
            file: query.file(),
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

    /// Returns the first mapping whose end is above `addr`. Calls must have rising addresses,
    /// because the text is read once.
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

/// Parses a line such as `55d0c8a00000-55d0c8a02000 r--p 00000000 fe:00 1234   /usr/bin/cat`.
fn parse(line: &[u8]) -> Option<Mapped> {
    let mut words = line.split(|octet| *octet == b' ');
    let range = std::str::from_utf8(words.next()?).ok()?;
    let rights = words.next()?;
    let (start, end) = range.split_once('-')?;
    let mut file = words.skip(1).map(|word| std::str::from_utf8(word).unwrap_or_default());
    let (device, inode) = (file.next().unwrap_or_default(), file.next().unwrap_or_default());
    let is_file = !matches!(inode, "" | "0");
    Some(Mapped {
        range: u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?,
        read: *rights.first()? == b'r',
        write: *rights.get(1)? == b'w',
        // Such a line does not tell of huge pages:
        // they count as files unless their file system is mounted.
        file: if is_file { Some(Device::parse_hex(device)?) } else { None },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::RegionOptions;
    use crate::mem::alloc::Mapping;

    fn mapped(range: Range<u64>, rights: &str) -> Mapped {
        Mapped { range, read: rights.contains('r'), write: rights.contains('w'), file: None }
    }

    /// Two mappings side by side, a gap, and one more.
    fn some() -> Vec<Mapped> {
        vec![mapped(100..200, "rw"), mapped(200..300, "r"), mapped(400..500, "rw"), mapped(500..600, "w")]
    }

    fn covered(range: Range<u64>, write: bool) -> Result<(), MemError> {
        let mappings = some();
        cover(range, write, |addr| Ok(mappings.iter().find(|mapped| mapped.range.end > addr).cloned()))
            .map(drop)
    }

    #[test]
    fn a_range_inside_mappings_side_by_side_is_covered() {
        for range in [100..300, 100..101, 199..201, 299..300, 400..500] {
            covered(range.clone(), false).unwrap_or_else(|fault| panic!("{range:?}: {fault}"));
        }
        covered(100..200, true).unwrap();
    }

    #[test]
    fn the_first_octet_that_is_not_mapped_is_named() {
        for (range, first) in
            [(99..101, 99), (0..50, 0), (100..301, 300), (250..450, 300), (350..360, 350), (700..800, 700)]
        {
            let fault = covered(range.clone(), false).unwrap_err();
            assert!(matches!(fault, MemError::NotMapped { at, .. } if at == first), "{range:?}: {fault}");
        }
    }

    #[test]
    fn missing_rights_are_named() {
        let fault = covered(150..250, true).unwrap_err();
        assert!(matches!(fault, MemError::NotPermitted { at: 200, write: true }), "{fault}");
        let fault = covered(450..550, false).unwrap_err();
        assert!(matches!(fault, MemError::NotPermitted { at: 500, write: false }), "{fault}");
    }

    #[test]
    fn lines_of_the_kernels_list_are_understood() {
        let range = 0x7f0a_1b2c_3000..0x7f0a_1b2c_5000;
        let line = b"7f0a1b2c3000-7f0a1b2c5000 rw-p 00000000 00:00 0 \n";
        assert_eq!(parse(line), Some(mapped(range.clone(), "rw")));
        // Private or shared: others may write the file.
        for line in [
            &b"7f0a1b2c3000-7f0a1b2c5000 rw-p 00001000 fe:01 1234    /tmp/a file\n"[..],
            b"7f0a1b2c3000-7f0a1b2c5000 rw-s 00001000 fe:01 1234    /tmp/a file\n",
        ] {
            let file = Some(Device { major: 0xfe, minor: 1 });
            assert_eq!(parse(line), Some(Mapped { file, ..mapped(range.clone(), "rw") }));
        }
        let line = b"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0    [vsyscall]\n";
        assert_eq!(parse(line), Some(mapped(0xffff_ffff_ff60_0000..0xffff_ffff_ff60_1000, "")));
        for rubbish in [&b""[..], b"\n", b"12 rw-p\n", b"12-zz rw-p\n", b"12-34\n", b"12-34 \n"] {
            assert_eq!(parse(rubbish), None, "{}", String::from_utf8_lossy(rubbish));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the list of mappings")]
    fn the_text_and_the_query_agree() {
        let memory = Mapping::new(5 * 4096, &RegionOptions::default()).unwrap();
        let start = memory.ptr().addr().get() as u64;
        for (page, rights) in [(1, libc::PROT_READ), (3, libc::PROT_NONE)] {
            // SAFETY: part of a mapping of the test's own, of which no reference exists.
            assert_eq!(0, unsafe {
                libc::mprotect(memory.ptr().add(page * 4096).as_ptr().cast(), 4096, rights)
            });
        }
        let maps = File::open("/proc/self/maps").unwrap();
        let mut text = Lines::new(File::open("/proc/self/maps").unwrap());
        for (page, rights) in [(1, "r"), (2, "rw"), (3, "")] {
            let range = start + page * 4096..start + (page + 1) * 4096;
            assert_eq!(text.ending_after(range.start).unwrap(), Some(mapped(range.clone(), rights)));
            match query(&maps, range.start + 5) {
                Ok(answer) => assert_eq!(answer, Some(mapped(range, rights))),
                Err(fault) => println!("no PROCMAP_QUERY here: {fault}"),
            }
        }
        assert_eq!(text.ending_after(u64::MAX).unwrap(), None);
    }
}
