//! Memory that others may change while it is sent: a third peer by its Writes, or another process
//! that writes the file of which it is a mapping. The octets sent are a mixture of old and new
//! ones, but their CRC is right (RFC 5044 §4.4), so that the receiver's connection goes on.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use rddp_rnic::{
    Access, ConnectOptions, MemoryRegion, ProtectionDomain, QpConfig, RecvWr, RegionOptions, Remote, SendWr,
    Status,
};
use rddp_test_support::pattern;

use crate::common::device::{needs, needs_software, rights};
use crate::common::{ALL, End, connect_on};

const LEN: usize = 1 << 20;

/// Number of messages sent: enough for many of them to arrive with a wrong CRC if nothing were
/// copied.
const MESSAGES: u64 = 50;

/// One device with two connections: to the receiver, and to a third peer.
struct Three {
    end: End,
    receiver: End,
    inbox: MemoryRegion,
    /// The device's QP towards the third peer.
    second: End,
    third: End,
    octets: MemoryRegion,
}

impl Three {
    fn new() -> Self {
        Self::with(&ConnectOptions::default(), End::sibling)
    }

    fn with(options: &ConnectOptions, second: impl FnOnce(&End) -> End) -> Self {
        let (end, receiver, third) = (End::new(), End::new(), End::new());
        let second = second(&end);
        connect_on("127.0.0.1:0", &end, &receiver, options, options);
        connect_on("127.0.0.1:0", &second, &third, options, options);
        let inbox = receiver.region(2 * LEN, ALL);
        let octets = third.region(2 * LEN, Access::LOCAL_WRITE);
        octets.write(0, &pattern(LEN, 3)).unwrap();
        octets.write(LEN, &pattern(LEN, 4)).unwrap();
        Three { end, receiver, inbox, second, third, octets }
    }

    /// Has the third peer write to all of it, these octets and then those. The Response to a Read
    /// shows that they are there.
    fn write_to(&self, remote: Remote) {
        let [these, those] =
            [0..LEN, LEN..2 * LEN].map(|part| SendWr::write(7, self.octets.sge(part), remote).unsignaled());
        let read = SendWr::read(8, self.octets.sge(0..0), remote);
        self.third.qp.post_sends(&[these, those, read]).unwrap();
        self.third.success();
    }

    /// Sends the region by a Write and a Send, which the receiver gets.
    fn send(&self, region: &MemoryRegion) {
        self.receiver.qp.post_recv(RecvWr::one(1, self.inbox.sge(LEN..2 * LEN))).unwrap();
        let write = SendWr::write(2, region.whole(), self.inbox.remote(0)).unsignaled();
        self.end.qp.post_sends(&[write, SendWr::send(3, region.whole())]).unwrap();
        let received = self.receiver.next();
        assert_eq!(received.status, Status::Success, "{:?}", self.receiver.qp.terminate_sent());
        self.end.success();
    }

    /// Returns the payload octets that [`send`](Self::send) copies.
    fn copied_of(&self, region: &MemoryRegion) -> u64 {
        self.copied_by(|| self.send(region))
    }

    /// Returns the payload octets that are copied meanwhile. A short segment at the end of a
    /// message counts as if it were long.
    fn copied_by(&self, send: impl FnOnce()) -> u64 {
        needs_software("counts of what is copied");
        let before = self.end.qp.counters().octets_copied;
        send();
        (self.end.qp.counters().octets_copied - before).next_multiple_of(LEN as u64)
    }

    /// Sends the region many times, while another thread runs `disturb`.
    fn send_while(&self, region: &MemoryRegion, disturb: impl Fn() + Sync) {
        let done = Done::default();
        std::thread::scope(|scope| {
            let disturbing = scope.spawn(|| {
                while !done.0.load(Ordering::Relaxed) {
                    disturb();
                }
            });
            let _ends_also_when_this_panics = SetAtEnd(&done);
            for _ in 0..MESSAGES {
                assert!(!disturbing.is_finished(), "it came to nothing");
                self.send(region);
            }
        });
    }
}

#[derive(Default)]
struct Done(AtomicBool);

struct SetAtEnd<'a>(&'a Done);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// All octets of a Write and a Send.
const ALL_COPIED: u64 = 2 * LEN as u64;

/// Registers another region over the same octets.
fn again(pd: &ProtectionDomain, region: &MemoryRegion, access: Access) -> MemoryRegion {
    let start = NonNull::new(region.base() as usize as *mut u8).unwrap();
    // SAFETY: the octets are those of `region`, which the tests drop last, and are only read and
    // written by copying.
    unsafe { pd.register(start, region.len(), rights(access)) }.unwrap()
}

/// Maps and registers all of a file. Both last until the process ends.
fn mapped(pd: &ProtectionDomain, file: &impl AsRawFd, access: Access) -> MemoryRegion {
    mapped_as(libc::MAP_SHARED, pd, file, access)
}

fn mapped_as(flags: i32, pd: &ProtectionDomain, file: &impl AsRawFd, access: Access) -> MemoryRegion {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), LEN, protection, flags, file.as_raw_fd(), 0) };
    assert_ne!(start, libc::MAP_FAILED);
    // SAFETY: it stays mapped, the file is not cut short, and no reference to its octets is made.
    unsafe { pd.register(NonNull::new(start.cast()).unwrap(), LEN, rights(access)) }.unwrap()
}

fn file(name: &str) -> File {
    needs_software("memory that is a file's");
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
    file.set_len(LEN as u64).unwrap();
    file
}

#[test]
fn a_third_peer_writes_to_what_is_sent() {
    let three = Three::new();
    let region = three.end.region(LEN, ALL);
    three.send_while(&region, || three.write_to(region.remote(0)));
}

#[test]
fn a_third_peer_writes_through_another_region() {
    let three = Three::new();
    let region = three.end.region(LEN, Access::LOCAL_WRITE);
    let second = again(&three.end.pd, &region, ALL);
    three.send_while(&region, || three.write_to(second.remote(0)));
}

/// Addresses count, not STags: a third peer writes to the memory by an STag of another protection
/// domain.
#[test]
fn a_third_peer_writes_from_another_protection_domain() {
    let three = Three::with(&ConnectOptions::default(), |end| {
        let pd = end.rnic.alloc_pd();
        let cq = end.rnic.create_cq(64).unwrap();
        let qp = pd.create_qp(&QpConfig::new(&cq)).unwrap();
        End { rnic: end.rnic.clone(), pd, cq, qp }
    });
    let region = three.end.region(LEN, Access::LOCAL_WRITE);
    let second = again(&three.second.pd, &region, ALL);
    three.send_while(&region, || three.write_to(second.remote(0)));
}

/// Each Write goes through a window that was bound while messages were outstanding.
#[test]
fn a_third_peer_writes_through_windows_bound_meanwhile() {
    needs("memory windows", |device| device.windows);
    let three = Three::with(&ConnectOptions::default(), |end| {
        let cq = end.rnic.create_cq(64).unwrap();
        let qp = end.pd.create_qp(&QpConfig::new(&cq)).unwrap();
        End { rnic: end.rnic.clone(), pd: end.pd.clone(), cq, qp }
    });
    let region = three.end.region(LEN, Access::LOCAL_WRITE | Access::BIND);
    let window = three.end.pd.allocate_window().unwrap();
    let post = |wr: SendWr| {
        three.second.qp.post_send(&wr).unwrap();
        three.second.success();
    };
    three.send_while(&region, || {
        post(SendWr::bind(8, window.stag(), region.whole(), Access::REMOTE_WRITE));
        three.write_to(window.remote(0));
        post(SendWr::invalidate(9, window.stag()));
    });
}

#[test]
fn a_file_is_rewritten_whose_mapping_is_sent() {
    let three = Three::new();
    let file = file("rewritten");
    let region = mapped(&three.end.pd, &file, Access::empty());
    let octets = [pattern(LEN, 1), pattern(LEN, 2)];
    three.send_while(&region, || octets.iter().for_each(|octets| file.write_all_at(octets, 0).unwrap()));
}

/// Pages of a private mapping that the process has not written to show the file.
#[test]
fn a_file_is_rewritten_whose_private_mapping_is_sent() {
    let three = Three::new();
    let file = file("rewritten-private");
    let region = mapped_as(libc::MAP_PRIVATE, &three.end.pd, &file, Access::empty());
    let octets = [pattern(LEN, 1), pattern(LEN, 2)];
    three.send_while(&region, || octets.iter().for_each(|octets| file.write_all_at(octets, 0).unwrap()));
}

/// A call that fails leaves the QP's connection as it was.
#[test]
fn a_second_connection_that_a_qp_refuses_leaves_the_first_as_it_was() {
    let three = Three::new();
    let region = three.end.region(LEN, ALL);
    assert_eq!(three.copied_of(&region), ALL_COPIED);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let _peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let stream = listener.accept().unwrap().0;
    let negotiated = three.second.qp.negotiated().unwrap();
    assert!(three.second.qp.attach(stream, negotiated, &ConnectOptions::default(), true).is_err());
    assert_eq!(three.copied_of(&region), ALL_COPIED);
}

/// draft-hilland-rddp-verbs §7.6.3: the region's rights, its PD and its QP decide who may change
/// octets.
#[test]
fn what_no_third_peer_may_change_is_not_copied() {
    needs_software("counts of what is copied");
    let three = Three::new();
    let plain = three.end.region(LEN, Access::LOCAL_WRITE | Access::REMOTE_READ | Access::BIND);
    assert_eq!(three.copied_of(&plain), 0, "no right");
    let own = RegionOptions { qp: Some(three.end.qp.num()), ..RegionOptions::default() };
    let own = three.end.pd.allocate_with(LEN, ALL, &own).unwrap();
    assert_eq!(three.copied_of(&own), 0, "the receiver alone");
    let theirs = RegionOptions { qp: Some(three.second.qp.num()), ..RegionOptions::default() };
    let theirs = three.end.pd.allocate_with(LEN, ALL, &theirs).unwrap();
    assert_eq!(three.copied_of(&theirs), ALL_COPIED, "the third peer alone");
    let elsewhere = again(&three.end.rnic.alloc_pd(), &plain, ALL);
    assert_eq!(three.copied_of(&plain), 0, "no QP of that domain is connected");
    drop(elsewhere);
    let shared = three.end.region(LEN, ALL);
    assert_eq!(three.copied_of(&shared), ALL_COPIED);
    shared.reregister(Access::LOCAL_WRITE).unwrap();
    assert_eq!(three.copied_of(&shared), 0, "the right has been taken back");
    shared.reregister(ALL).unwrap();
    assert_eq!(three.copied_of(&shared), ALL_COPIED);
    three.second.qp.abort();
    assert_eq!(three.copied_of(&shared), 0, "the third peer is gone");
}

/// The owner says that nobody changes it: neither a file that others may write, nor memory that a
/// third peer may.
#[test]
fn stable_memory_is_not_copied() {
    let three = Three::new();
    let file = file("stable");
    assert_eq!(three.copied_of(&mapped(&three.end.pd, &file, Access::empty())), ALL_COPIED);
    assert_eq!(three.copied_of(&mapped(&three.end.pd, &file, Access::STABLE)), 0);
    let region = three.end.region(LEN, Access::STABLE);
    let _open = again(&three.end.pd, &region, ALL);
    assert_eq!(three.copied_of(&region), 0);
    region.reregister(Access::empty()).unwrap();
    assert_eq!(three.copied_of(&region), ALL_COPIED, "the owner no longer says so");
}

#[test]
fn only_what_overlaps_is_copied() {
    needs_software("counts of what is copied");
    let three = Three::new();
    let region = three.end.region(3 * LEN, Access::LOCAL_WRITE);
    let at = |offset: usize| NonNull::new((region.base() as usize + offset) as *mut u8).unwrap();
    // SAFETY: parts of `region`, which is dropped last, and only read and written by copying.
    let parts =
        [0, 2 * LEN + 1].map(|offset| unsafe { three.end.pd.register(at(offset), LEN - 1, ALL) }.unwrap());
    let copied_of = |start: usize| {
        three.copied_by(|| {
            three.receiver.qp.post_recv(RecvWr::one(1, three.inbox.whole())).unwrap();
            three.end.qp.post_send(&SendWr::send(3, region.sge(start..start + LEN))).unwrap();
            three.receiver.success();
            three.end.success();
        })
    };
    assert_eq!([copied_of(LEN - 1), copied_of(LEN), copied_of(LEN + 1)], [0; 3]);
    assert_eq!(copied_of(0), LEN as u64);
    assert!(copied_of(LEN - 2) > 0 && copied_of(LEN + 8192) > 0);
    drop(parts);
    assert_eq!(copied_of(0), 0);
}

/// A window can be used on its own QP alone.
#[test]
fn what_a_window_opens_is_copied_if_it_is_a_third_peers() {
    needs_software("counts of what is copied");
    for third in [false, true] {
        let three = Three::new();
        let region = three.end.region(LEN, Access::LOCAL_WRITE | Access::BIND);
        let window = three.end.pd.allocate_window().unwrap();
        let holder = if third { &three.second } else { &three.end };
        for access in [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
            holder.qp.post_send(&SendWr::bind(4, window.stag(), region.whole(), access)).unwrap();
            holder.success();
            let expected = if third && access != Access::REMOTE_READ { ALL_COPIED } else { 0 };
            assert_eq!(three.copied_of(&region), expected, "{third} {access:?}");
            holder.qp.post_send(&SendWr::invalidate(5, window.stag())).unwrap();
            holder.success();
            assert_eq!(three.copied_of(&region), 0);
        }
    }
}

#[test]
fn a_peer_that_its_qp_does_not_let_in_changes_nothing() {
    needs_software("counts of what is copied");
    for (read, write) in [(false, false), (true, false), (false, true)] {
        let three = Three::with(&ConnectOptions::default(), |end| {
            let mut config = QpConfig::new(&end.cq);
            (config.inbound_read, config.inbound_write) = (read, write);
            End { qp: end.pd.create_qp(&config).unwrap(), ..end.sibling() }
        });
        for (access, let_in) in [(Access::REMOTE_WRITE, write), (Access::REMOTE_ATOMIC, read)] {
            let region = three.end.region(LEN, Access::LOCAL_WRITE | access);
            let expected = if let_in { ALL_COPIED } else { 0 };
            assert_eq!(three.copied_of(&region), expected, "{access:?}, (read, write) {:?}", (read, write));
        }
    }
}

#[test]
fn without_a_crc_nothing_is_copied() {
    let options = ConnectOptions { crc: false, ..ConnectOptions::default() };
    let three = Three::with(&options, End::sibling);
    let region = three.end.region(LEN, ALL);
    assert_eq!(three.copied_of(&region), 0);
    assert_eq!(three.copied_of(&mapped(&three.end.pd, &file("unsummed"), ALL)), 0);
}

/// Shared memory belongs to processes that work together; a file may be written by anybody.
#[test]
fn mappings_of_files_are_copied_and_shared_memory_is_not() {
    let three = Three::new();
    let memory = nix::sys::memfd::memfd_create(c"shared", nix::sys::memfd::MFdFlags::empty()).unwrap();
    nix::unistd::ftruncate(&memory, LEN as i64).unwrap();
    assert_eq!(three.copied_of(&mapped(&three.end.pd, &memory, Access::LOCAL_WRITE)), 0);
    assert_eq!(three.copied_of(&mapped(&three.end.pd, &file("copied"), Access::empty())), ALL_COPIED);
}
