//! Regions over a range of a file that is not mapped: peers Read it, and this end's own messages
//! may be of it.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "a test")]

#[path = "../common/mod.rs"]
mod common;
mod ends;
mod mapped;
mod own;
mod reads;
mod registering;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{End, connect_on};
use rddp_rnic::{Access, Completion, ConnectOptions, MemoryRegion, Remote, SendWr, Status};
use rddp_test_support::pattern_from;

/// Offset in the file of the first octet that is registered.
const START: usize = 1000;

/// Number of octets that are registered.
const LEN: usize = 1 << 20;

/// A file with a name of its own, in which each octet is of the pattern.
struct Named {
    path: PathBuf,
    file: File,
}

impl Named {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("registered-file-{}-{number}", std::process::id()));
        fs::write(&path, pattern_from(0, START + LEN + 500)).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        Named { path, file }
    }

    /// Registers the octets from [`START`] on.
    fn register(&self, end: &End, access: Access) -> MemoryRegion {
        end.pd.register_file(self.file.try_clone().unwrap(), range(), access).unwrap()
    }

    fn write(&self, offset: usize, octets: &[u8]) {
        self.file.write_all_at(octets, (START + offset) as u64).unwrap();
    }

    fn cut(&self, offset: usize) {
        self.file.set_len((START + offset) as u64).unwrap();
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn range() -> std::ops::Range<u64> {
    START as u64..(START + LEN) as u64
}

/// Returns octets of the registered range.
fn octets(range: std::ops::Range<usize>) -> Vec<u8> {
    pattern_from(START + range.start, range.len())
}

/// A connection from a client to a server that has the file registered.
struct Scene {
    named: Named,
    region: MemoryRegion,
    server: End,
    client: End,
    inbox: MemoryRegion,
    bystander: (End, End),
}

impl Scene {
    fn new(options: &ConnectOptions) -> Self {
        Self::with(options, Access::REMOTE_READ | Access::BIND | Access::REMOTE_INVALIDATE)
    }

    fn with(options: &ConnectOptions, access: Access) -> Self {
        let (server, client, named) = (End::new(), End::new(), Named::new());
        connect_on("127.0.0.1:0", &client, &server, options, options);
        let cq = server.rnic.create_cq(64).unwrap();
        let qp = server.pd.create_qp(&rddp_rnic::QpConfig::new(&cq)).unwrap();
        let second = End { rnic: server.rnic.clone(), pd: server.pd.clone(), cq, qp };
        let bystander = (End::new(), second);
        connect_on("127.0.0.1:0", &bystander.0, &bystander.1, options, options);
        let region = named.register(&server, access);
        let inbox = client.region(2 * LEN, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
        Scene { named, region, server, client, inbox, bystander }
    }

    /// Has the client Read.
    fn read(&self, remote: Remote, len: usize) -> Completion {
        self.client.qp.post_send(&SendWr::read(1, self.inbox.sge(0..len), remote)).unwrap();
        self.client.next()
    }

    /// Has the client Read octets of the range.
    fn read_octets(&self, offset: usize, len: usize) -> Vec<u8> {
        let completion = self.read(self.region.remote(offset), len);
        assert_eq!(completion.status, Status::Success);
        self.inbox.read(0, len).unwrap()
    }

    /// Checks that a Read is refused with this Terminate, and that the other connection of the
    /// device goes on.
    fn refuses(&self, remote: Remote, len: usize, code: u16) {
        assert_eq!(self.read(remote, len).status, Status::RemoteAccess);
        let sent = self.server.qp.terminate_sent().map(|terminate| terminate.code.0);
        assert_eq!(sent, Some(code));
        self.others_go_on();
    }

    /// Checks that the other connection of the device reads a file of the same kind.
    fn others_go_on(&self) {
        let (client, server) = &self.bystander;
        let named = Named::new();
        let region = named.register(server, Access::REMOTE_READ);
        let sink = client.region(LEN, Access::LOCAL_WRITE);
        client.qp.post_send(&SendWr::read(1, sink.whole(), region.remote(0))).unwrap();
        client.success();
        assert_eq!(sink.read(0, LEN).unwrap(), octets(0..LEN));
    }
}

/// Connections with segments of 64 KiB and of an Ethernet's size, with CRC and without.
fn all_options() -> [ConnectOptions; 4] {
    let options = |mss, crc| ConnectOptions { mss, crc, ..ConnectOptions::default() };
    [options(None, true), options(Some(1460), true), options(None, false), options(Some(1460), false)]
}
