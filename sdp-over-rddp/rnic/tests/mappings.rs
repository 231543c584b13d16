//! Kept registrations of memory whose mapping changes: the program tells nobody.

use std::io::{Read, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::c_void;
use rddp_sdp::socket::Config;
use rddp_sdp_rnic::{Scheme, SdpDevice, SdpStream};

const LEN: usize = 1 << 16;

/// Leaves a test alone in the process: others would map memory where it has unmapped some, and
/// their forks are its own.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Maps octets of this value, at this address if it is not null.
fn map(at: *mut c_void, len: usize, value: u8) -> *mut c_void {
    let (rights, fixed) =
        (libc::PROT_READ | libc::PROT_WRITE, if at.is_null() { 0 } else { libc::MAP_FIXED });
    // SAFETY: a new mapping; one at a fixed address replaces what the tests have there.
    let ptr = unsafe { libc::mmap(at, len, rights, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed, -1, 0) };
    assert_ne!(ptr, libc::MAP_FAILED);
    // SAFETY: the mapping has this length and may be written.
    unsafe { ptr.cast::<u8>().write_bytes(value, len) };
    ptr
}

fn unmap(ptr: *mut c_void, len: usize) {
    // SAFETY: a mapping of the test's own, which no call uses.
    assert_eq!(unsafe { libc::munmap(ptr, len) }, 0);
}

/// Changes the mapping of `LEN` octets, and maps others there if there are none then.
type Change = fn(*mut c_void);

fn is_unmapped_and_mapped(ptr: *mut c_void) {
    unmap(ptr, LEN);
    map(ptr, LEN, 2);
}

fn is_mapped_over(ptr: *mut c_void) {
    map(ptr, LEN, 2);
}

fn loses_its_last_page(ptr: *mut c_void) {
    let page = 4096;
    let last = ptr.wrapping_byte_add(LEN - page);
    unmap(last, page);
    map(last, page, 2);
}

fn is_moved(ptr: *mut c_void) {
    let elsewhere = map(std::ptr::null_mut(), LEN, 0);
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: both are mappings of the test's own, of this length.
    let moved = unsafe { libc::mremap(ptr, LEN, LEN, flags, elsewhere) };
    assert_eq!(moved, elsewhere);
    map(ptr, LEN, 2);
    unmap(elsewhere, LEN);
}

fn is_shrunk(ptr: *mut c_void) {
    // SAFETY: a mapping of the test's own, which stays where it is when it shrinks.
    assert_eq!(unsafe { libc::mremap(ptr, LEN, LEN / 2, 0) }, ptr);
    map(ptr.wrapping_byte_add(LEN / 2), LEN / 2, 2);
}

fn is_discarded(ptr: *mut c_void) {
    // SAFETY: a mapping of the test's own, which reads as zeros from now on.
    assert_eq!(unsafe { libc::madvise(ptr, LEN, libc::MADV_DONTNEED) }, 0);
}

fn may_be_freed(ptr: *mut c_void) {
    // SAFETY: as above; it may read as zeros until it is written to.
    assert_eq!(unsafe { libc::madvise(ptr, LEN, libc::MADV_FREE) }, 0);
    // SAFETY: the mapping has this length and may be written.
    unsafe { ptr.cast::<u8>().write_bytes(2, LEN) };
}

/// Forks a child that changes the mapping, too: that is no change here, and does not sleep.
fn is_forked(ptr: *mut c_void) {
    // SAFETY: the child makes two system calls.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the child's copy of the mapping, and its end.
        unsafe {
            let failed = libc::munmap(ptr, LEN);
            libc::_exit(failed);
        }
    }
    let mut status = -1;
    // SAFETY: a child of this process, for which nobody else waits.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

fn streams() -> (SdpDevice, SdpStream, SdpStream) {
    // The receiver registers nothing.
    let config = Config { source_threshold: Some(0), sink_threshold: None, ..Config::default() };
    let device = SdpDevice::open(config, Scheme::Cache { entries: 16, octets: 16 << 20 }).unwrap();
    let listener = device.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept().unwrap());
        let connected = device.connect(addr).unwrap();
        (device, connected, accepting.join().unwrap())
    })
}

/// Sends `LEN` octets from here, which arrive as they are. Returns whether a registration of them
/// was kept.
fn send(device: &SdpDevice, a: &mut SdpStream, b: &mut SdpStream, ptr: *mut c_void) -> bool {
    // SAFETY: the mapping has this length, and nobody writes to it meanwhile.
    let octets = unsafe { std::slice::from_raw_parts(ptr.cast::<u8>(), LEN) };
    let before = device.registry().counters();
    let mut got = vec![0; LEN];
    std::thread::scope(|scope| {
        scope.spawn(|| a.write_all(octets).unwrap());
        b.read_exact(&mut got).unwrap();
    });
    assert!(got == octets);
    let after = device.registry().counters();
    assert_eq!((after.hits + after.misses) - (before.hits + before.misses), 1);
    after.hits > before.hits
}

#[test]
fn a_mapping_that_changes_is_registered_anew() {
    let _alone = alone();
    let (device, mut a, mut b) = streams();
    if !device.registry().sees_changes() {
        eprintln!("this kernel reports no changes of mappings: nothing is kept");
        return;
    }
    let changes: [(&str, Change); 8] = [
        ("munmap", is_unmapped_and_mapped),
        ("MAP_FIXED", is_mapped_over),
        ("munmap of a part", loses_its_last_page),
        ("mremap", is_moved),
        ("mremap to less", is_shrunk),
        ("MADV_DONTNEED", is_discarded),
        ("MADV_FREE", may_be_freed),
        ("fork", is_forked),
    ];
    for (name, change) in changes {
        let ptr = map(std::ptr::null_mut(), LEN, 1);
        assert!(!send(&device, &mut a, &mut b, ptr), "{name}: nothing was kept yet");
        assert!(send(&device, &mut a, &mut b, ptr), "{name}: it was kept");
        let forgotten = device.registry().counters().forgotten;
        change(ptr);
        assert!(!send(&device, &mut a, &mut b, ptr), "{name}: it has changed");
        assert_eq!(device.registry().counters().forgotten, forgotten + 1, "{name}");
        assert!(send(&device, &mut a, &mut b, ptr), "{name}: it was kept again");
        unmap(ptr, LEN);
        assert_eq!(device.registry().size(), (0, 0), "{name}");
    }
}

#[test]
fn changes_beside_a_kept_range_leave_it() {
    let _alone = alone();
    let (device, mut a, mut b) = streams();
    if !device.registry().sees_changes() {
        return;
    }
    let ptr = map(std::ptr::null_mut(), 3 * LEN, 1);
    let kept = ptr.wrapping_byte_add(LEN);
    send(&device, &mut a, &mut b, kept);
    is_discarded(ptr);
    unmap(ptr.wrapping_byte_add(2 * LEN), LEN);
    assert!(send(&device, &mut a, &mut b, kept));
    unmap(ptr, 2 * LEN);
}

/// Memory of which a registration was kept can be unmapped when the registry has gone, too.
#[test]
fn memory_outlives_its_registry() {
    let _alone = alone();
    let ptr = map(std::ptr::null_mut(), LEN, 1);
    let (device, mut a, mut b) = streams();
    send(&device, &mut a, &mut b, ptr);
    drop((device, a, b));
    is_unmapped_and_mapped(ptr);
    unmap(ptr, LEN);
}

/// A mapping of a file may be cut short, which nobody reports.
#[test]
fn a_mapping_of_a_file_is_not_kept() {
    let _alone = alone();
    let (device, mut a, mut b) = streams();
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    // SAFETY: a new mapping of a file that is longer than this.
    let ptr = unsafe { libc::mmap(std::ptr::null_mut(), LEN, libc::PROT_READ, libc::MAP_PRIVATE, fd, 0) };
    assert_ne!(ptr, libc::MAP_FAILED);
    for _ in 0..2 {
        assert!(!send(&device, &mut a, &mut b, ptr));
    }
    unmap(ptr, LEN);
}
