//! Kept registrations of memory that was unmapped and mapped anew at the same address.

use std::io::{Read, Write};

use rddp_sdp::socket::Config;
use rddp_sdp_rnic::{Scheme, SdpDevice};

const LEN: usize = 1 << 16;

/// Maps `LEN` octets of this value, at this address if it is not null.
fn map(at: *mut libc::c_void, value: u8) -> *mut libc::c_void {
    let (rights, fixed) =
        (libc::PROT_READ | libc::PROT_WRITE, if at.is_null() { 0 } else { libc::MAP_FIXED });
    // SAFETY: a new mapping; one at a fixed address replaces nothing, as that range is unmapped.
    let ptr = unsafe { libc::mmap(at, LEN, rights, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed, -1, 0) };
    assert_ne!(ptr, libc::MAP_FAILED);
    // SAFETY: the mapping has this length and may be written.
    unsafe { ptr.cast::<u8>().write_bytes(value, LEN) };
    ptr
}

/// `munmap`, then `mmap` at the same address, is a miss where the cache was told, and the octets
/// are those of the new mapping.
#[test]
fn memory_that_was_mapped_anew_is_a_miss() {
    // The receiver registers nothing.
    let config = Config { source_threshold: Some(0), sink_threshold: None, ..Config::default() };
    let cache = Scheme::Cache { entries: 16, octets: 16 << 20 };
    let device = SdpDevice::open(config, cache).unwrap();
    let listener = device.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = listener.local_addr().unwrap();
    let (mut a, mut b) = std::thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept().unwrap());
        (device.connect(addr).unwrap(), accepting.join().unwrap())
    });
    let mut got = vec![0; LEN];
    let mut ptr = map(std::ptr::null_mut(), 1);
    for (value, is_new) in [(1, true), (1, false), (2, true), (2, false)] {
        if is_new && value == 2 {
            let start = ptr.addr();
            device.registry().forget(start..start + LEN);
            // SAFETY: the mapping is this test's, and no call uses it.
            assert_eq!(unsafe { libc::munmap(ptr, LEN) }, 0);
            ptr = map(ptr, value);
        }
        // SAFETY: the mapping has this length, and nobody writes to it meanwhile.
        let octets = unsafe { std::slice::from_raw_parts(ptr.cast::<u8>(), LEN) };
        let before = device.registry().counters();
        std::thread::scope(|scope| {
            scope.spawn(|| a.write_all(octets).unwrap());
            b.read_exact(&mut got).unwrap();
        });
        assert!(got.iter().all(|octet| *octet == value));
        let after = device.registry().counters();
        assert_eq!(after.misses > before.misses, is_new, "{value} {is_new} {before:?} {after:?}");
    }
}
