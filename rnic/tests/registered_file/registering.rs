//! The files, ranges and rights that are registered, and calls of the program on the region.

use std::env;
use std::fs::{self, File, OpenOptions};
use std::os::fd::OwnedFd;
use std::path::Path;

use rddp_rnic::{Access, ConnectOptions, Error, MemError, RecvWr, Rnic, SendWr};

use crate::common::End;
use crate::{LEN, Named, START, Scene, octets, range};

#[test]
fn rights_that_change_octets_or_lend_them_are_refused() {
    let (end, named) = (End::new(), Named::new());
    let region = named.register(&end, Access::REMOTE_READ);
    let writes = Access::LOCAL_WRITE;
    for (bad, named_bad) in [
        (writes, writes),
        (writes | Access::REMOTE_WRITE, writes | Access::REMOTE_WRITE),
        (writes | Access::REMOTE_ATOMIC | Access::REMOTE_READ, writes | Access::REMOTE_ATOMIC),
        (Access::REMOTE_READ | Access::STABLE, Access::STABLE),
    ] {
        let refused = end.pd.register_file(named.file.try_clone().unwrap(), range(), bad);
        let is_named =
            |error: &MemError| matches!(error, MemError::NotForFile(rights) if *rights == named_bad);
        assert!(matches!(&refused, Err(Error::Memory(error)) if is_named(error)), "{bad:?}");
        assert!(region.reregister(bad).is_err(), "{bad:?}");
    }
    let both = Access::BIND | Access::ZERO_BASED;
    assert!(end.pd.register_file(named.file.try_clone().unwrap(), range(), both).is_err());
    assert!(region.is_valid());
}

#[test]
fn what_cannot_be_read_at_an_offset_is_refused() {
    let (end, named) = (End::new(), Named::new());
    let refusal = |file: OwnedFd, range| match end.pd.register_file(file, range, Access::REMOTE_READ) {
        Err(Error::Memory(error)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let (pipe, _writes) = std::io::pipe().unwrap();
    for file in [pipe.into(), File::open("/").unwrap().into(), File::open("/dev/zero").unwrap().into()] {
        assert_eq!(refusal(file, 0..0), "cannot register the file: it is no regular file");
    }
    let writes_only = OpenOptions::new().write(true).open(&named.path).unwrap();
    assert!(
        refusal(writes_only.into(), range()).starts_with("cannot register the file: Bad file descriptor")
    );
    let len = (START + LEN + 500) as u64;
    #[expect(clippy::reversed_empty_ranges, reason = "that is the case")]
    for range in [0..len + 1, len + 1..len + 1, 5..4, 0..u64::MAX, u64::MAX..0] {
        let refused = refusal(named.file.try_clone().unwrap().into(), range.clone());
        let wanted =
            format!("octets {} to {} are not inside the file, which has {len}", range.start, range.end);
        assert_eq!(refused, wanted);
    }
}

#[test]
fn the_whole_file_and_none_of_it_are_ranges() {
    let (end, named) = (End::new(), Named::new());
    let len = (START + LEN + 500) as u64;
    for range in [0..len, len..len, 0..0] {
        let file = named.file.try_clone().unwrap();
        let region = end.pd.register_file(file, range.clone(), Access::REMOTE_READ).unwrap();
        assert_eq!(region.len() as u64, range.end - range.start);
    }
}

#[test]
fn the_program_reads_the_region_and_does_not_write_it() {
    let (end, named) = (End::new(), Named::new());
    let region = named.register(&end, Access::REMOTE_READ);
    assert!(region.read(0, LEN).unwrap() == octets(0..LEN));
    assert!(matches!(region.read(LEN - 1, 2), Err(MemError::OutOfBounds { .. })));
    assert!(matches!(region.write(0, b"x"), Err(MemError::ReadOnly)));
    assert!(matches!(region.write_u64(0, 1), Err(MemError::ReadOnly)));
    // Nothing is mapped there: other code finds no octets, and never wrong ones.
    assert!(matches!(region.read_u64(0), Err(MemError::Faulted(_))));
    assert_eq!(named.file.metadata().unwrap().len(), (START + LEN + 500) as u64);
}

/// Receives and Read sinks need a region that may be written.
#[test]
fn nothing_is_received_into_a_file() {
    let scene = Scene::new(&ConnectOptions::default());
    let refused = scene.server.qp.post_recv(RecvWr::one(1, scene.region.sge(0..100)));
    assert!(refused.is_err());
    let refused = SendWr::read(2, scene.region.sge(0..100), scene.inbox.remote(0));
    assert!(scene.server.qp.post_send(&refused).is_err());
    assert!(fs::read(&scene.named.path).unwrap()[START..][..LEN] == octets(0..LEN)[..]);
}

/// The descriptor ends with the registration, whether or not peers still know the STag.
#[test]
fn the_file_is_closed_when_the_region_is() {
    let is_named = |path: &Path| {
        let mut fds = fs::read_dir("/proc/self/fd").unwrap();
        fds.any(|fd| fs::read_link(fd.unwrap().path()).is_ok_and(|open| open == path))
    };
    let pd = Rnic::open().unwrap().alloc_pd();
    for deregisters in [false, true] {
        let path = env::temp_dir().join(format!("rddp-closed-{}", std::process::id()));
        fs::write(&path, [0; 10]).unwrap();
        let region = pd.register_file(File::open(&path).unwrap(), 0..10, Access::REMOTE_READ).unwrap();
        assert!(is_named(&path));
        if deregisters {
            region.deregister().unwrap();
            assert!(!is_named(&path));
        }
        drop(region);
        assert!(!is_named(&path));
        fs::remove_file(&path).unwrap();
    }
}
