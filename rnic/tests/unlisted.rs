//! Registered memory where there is no `/proc`, as in a small container.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "a test")]

mod common;

use std::ptr::{NonNull, null_mut};

use common::{ALL, alone, connected, exchange};
use rddp_rnic::{Access, AsyncEventKind, ConnectOptions, Error, MemError, SendWr};
use rddp_test_support::pattern;

const LEN: usize = 1 << 16;

fn map(rights: i32) -> NonNull<u8> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, at an address of the kernel's choice.
    let ptr = unsafe { libc::mmap(null_mut(), LEN, rights, flags, -1, 0) };
    assert_ne!(ptr, libc::MAP_FAILED);
    NonNull::new(ptr.cast()).unwrap()
}

/// RFC 5042 §7.3: what is not mapped is refused; what is mapped without the rights ends the
/// connection that touches it, and not the process.
#[test]
fn memory_is_registered_without_a_list_of_mappings() {
    if !alone("memory_is_registered_without_a_list_of_mappings") {
        return;
    }
    let empty = std::env::temp_dir().join(format!("rddp-no-proc-{}", std::process::id()));
    std::fs::create_dir(&empty).unwrap();
    let hidden = nix::unistd::chroot(&empty);
    let _ = std::fs::remove_dir(&empty);
    if let Err(error) = hidden {
        return println!("not shown, since /proc cannot be hidden: {error}");
    }
    assert!(!std::path::Path::new("/proc/self/maps").exists());

    let (active, passive) = connected(&ConnectOptions::default());
    let (both, none) = (map(libc::PROT_READ | libc::PROT_WRITE), map(libc::PROT_READ));
    // SAFETY: mappings of the test's own, to which no reference exists.
    let register = |ptr| unsafe { passive.pd.register(ptr, LEN, ALL) };
    let [good, bad] = [both, none].map(|ptr| register(ptr).unwrap());
    let source = active.region(LEN, Access::empty());
    source.write(0, &pattern(LEN, 3)).unwrap();
    active.qp.post_send(&SendWr::write(1, source.whole(), good.remote(0))).unwrap();
    active.success();
    exchange(&active, &passive);
    assert_eq!(good.read(0, LEN).unwrap(), pattern(LEN, 3));
    // The memory may be a file, so it is copied before it is summed and sent.
    let sink = active.region(LEN, ALL);
    passive.qp.post_send(&SendWr::write(2, good.whole(), sink.remote(0))).unwrap();
    passive.success();
    exchange(&passive, &active);
    assert_eq!(sink.read(0, LEN).unwrap(), pattern(LEN, 3));
    assert!(bad.write(0, b"x").is_err());
    active.qp.post_send(&SendWr::write(3, source.whole(), bad.remote(0))).unwrap();
    passive.event_like(|event| matches!(event, AsyncEventKind::Fault(_) | AsyncEventKind::ConnectionLost));

    let gone = map(libc::PROT_READ);
    // SAFETY: a page of a mapping of the test's own that is not registered; in this process nothing
    // else is mapped meanwhile.
    assert_eq!(0, unsafe { libc::munmap(gone.as_ptr().add(3 * 4096).cast(), 4096) });
    let refused = register(gone).unwrap_err();
    let first = gone.addr().get() as u64 + 3 * 4096;
    assert!(matches!(refused, Error::Memory(MemError::NotMapped { at, .. }) if at == first), "{refused}");
}
