//! `rddp block ls`, `bench` and `copy` of NVMe targets: of our own, and of those that break the
//! protocol or say nothing. Linux's is in `tests/siw-lab`.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::thread;
use std::time::Duration;

use rddp_block::nvme::capsule::{CQE_LEN, Cqe, SQE_LEN, Sqe};
use rddp_block::nvme::private_data::{Refusal, Reply};
use rddp_block::nvme::status::Status;
use rddp_rnic::{Access, Completed, ConnectOptions, QpConfig, RecvWr, Rnic, SendWr};
use rddp_test_support::pattern;

use crate::program::{Ended, Server, command, run};

const SIZE: usize = 40 << 20;

/// A server of a disk with a hole that is zeroed in several parts, and of one that is longer.
struct Site {
    folder: tempfile::TempDir,
    server: Server,
}

impl Site {
    fn new(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let disk = File::create(path("disk")).unwrap();
        disk.set_len(SIZE as u64).unwrap();
        disk.write_all_at(&pattern(1_000_001, 1), 0).unwrap();
        disk.write_all_at(&pattern(500_000, 2), 36 << 20).unwrap();
        fs::write(path("other"), vec![0xee; SIZE + 4096]).unwrap();
        let args = ["block", "serve", &path("disk"), &path("other"), "--port", "0", "--json"];
        let server = Server::start(&[&args[..], more].concat());
        Site { folder, server }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    fn uri(&self, disk: &str) -> String {
        let name = if disk.is_empty() { String::new() } else { format!("nqn.2026-11.rddp:{disk}") };
        format!("nvme://{}/{name}", self.server.listening["nvme"].as_str().unwrap())
    }
}

#[test]
fn a_target_lists_its_subsystems_and_their_disks() {
    let site = Site::new(&[]);
    let list = run(&["block", "ls", "--json", &site.uri("")]).ok().json();
    let names: Vec<_> = list["disks"].as_array().unwrap().iter().map(|disk| &disk["name"]).collect();
    assert_eq!(names, ["nqn.2026-11.rddp:disk", "nqn.2026-11.rddp:other"]);
    let disk = run(&["block", "ls", "--json", &site.uri("disk")]).ok().json();
    let disk = &disk["disks"][0];
    assert_eq!((&disk["size"], &disk["block"]), (&SIZE.into(), &512.into()));
    assert_eq!(disk["flags"], serde_json::json!(["read-only", "flush", "zero"]));
}

#[test]
fn a_copy_from_a_target_and_back_is_the_same() {
    let site = Site::new(&["--writable"]);
    let disk = site.path("disk");
    run(&["block", "copy", &site.uri("disk"), &site.path("copy")]).ok();
    assert!(site.read("copy") == site.read("disk"));
    // By several queues, to a disk of other octets: holes are zeroes there.
    run(&["block", "copy", "-P", "3", &disk, &site.uri("other")]).ok();
    let other = site.read("other");
    assert!(other[..SIZE] == site.read("disk") && other[SIZE..] == [0xee; 4096]);
    // From target to target, and from one protocol to the other.
    run(&["block", "copy", &site.uri("other"), &site.path("longer")]).ok();
    assert!(site.read("longer") == other);
    let nbd = format!("nbd://{}/disk", site.server.addr);
    run(&["block", "copy", &nbd, &site.uri("other")]).ok();
    assert!(site.read("other") == other);
    assert_eq!(site.server.stop(), 0);
}

#[test]
fn a_disk_is_measured_by_several_queues() {
    let site = Site::new(&["--writable"]);
    let disk = site.uri("disk");
    let bench = |more: &[&str]| run(&[&["block", "bench", "--json", "-t", "0.3", &disk], more].concat());
    let read = bench(&["-P", "2", "--depth", "32"]).ok().json();
    assert_eq!((&read["op"], &read["connections"]), (&"read".into(), &2.into()));
    assert!(read["requests"].as_u64().unwrap() > 0, "{read}");
    let before = site.read("disk");
    bench(&["-s", "128K", "--write", "--destroy-data"]).ok();
    assert!(site.read("disk") != before);
    bench(&["-s", "1000"]).failed(2, &["multiples of 512"]);
    bench(&["--depth", "128"]).failed(2, &["127 requests at a time"]);
}

/// A target does not tell holes: zeroes are taken for some, and give their room back where the disk
/// that gets them had other octets.
#[test]
fn zeroes_of_a_target_are_holes_of_the_copy() {
    let site = Site::new(&["--writable"]);
    let room = |name: &str| fs::metadata(site.path(name)).unwrap().blocks() * 512;
    for to in [site.path("copy"), site.uri("other"), site.path("old")] {
        fs::write(site.path("old"), vec![0xee; SIZE]).unwrap();
        let said = run(&["block", "copy", "--json", &site.uri("disk"), &to]).ok().json();
        assert_eq!(said["octets"], SIZE);
        // Pieces are of 256 KiB.
        assert_eq!(said["holes"], SIZE - (6 << 18), "{said}");
    }
    for name in ["copy", "other", "old"] {
        assert!(site.read(name)[..SIZE] == site.read("disk"), "{name}");
        assert!(room(name) <= room("disk") + (6 << 18), "{name}: {} octets", room(name));
    }
}

/// The target need not read what its capsules have room for.
#[test]
fn short_writes_go_in_the_capsule() {
    let site = Site::new(&["--writable"]);
    let disk = site.uri("disk");
    for (size, is_read) in [("512", false), ("4K", false), ("4608", true)] {
        let capture = site.path("capture");
        let write = ["block", "bench", "--json", "-t", "0.1", "--write", "--destroy-data", "-s", size, &disk];
        let output = command(&write).env("RDDP_CAPTURE", &capture).output().unwrap();
        let written = Ended::from(output).ok().json()["requests"].as_u64().unwrap() as usize;
        // Those of the handshake, of which there are few, are Reads in any case.
        let reads = run(&["decode", &capture]).ok().stdout.matches("Read Request").count();
        assert_eq!(reads >= written, is_read, "{reads} for {written} of {size}");
    }
    // The copy of a part of a capsule's octets, and of more than one.
    for len in [512, 4096, 4608] {
        fs::write(site.path("short"), pattern(len, 3)).unwrap();
        run(&["block", "copy", &site.path("short"), &site.uri("other")]).ok();
        assert!(site.read("other")[..len] == pattern(len, 3));
    }
}

#[test]
fn what_a_target_refuses_is_named() {
    let site = Site::new(&["--allow-host", "nqn.x:friend"]);
    let ls = |host: &str, disk: &str| run(&["block", "ls", "--host-nqn", host, &site.uri(disk)]);
    ls("nqn.x:friend", "disk").ok();
    ls("nqn.x:friend", "none").failed(5, &["no such subsystem", "rddp block ls nvme://"]);
    ls("nqn.x:other", "disk").failed(5, &["does not allow this host", "--host-nqn"]);
    let copy = ["block", "copy", "--host-nqn", "nqn.x:friend", &site.path("disk"), &site.uri("other")];
    run(&copy).failed(5, &["read only", "--writable"]);
    ls(&"x".repeat(300), "disk").failed(2, &["no name of a host"]);
}

/// Starts a target that accepts with these private data, or rejects, and has each command by this
/// function: it is told the number of the command, and returns what is sent.
fn target(
    accepts: Result<Vec<u8>, Vec<u8>>,
    answer: impl Fn(usize, &Sqe) -> Vec<Vec<u8>> + Send + 'static,
) -> SocketAddr {
    let rnic = Rnic::open().unwrap();
    let listener = rnic.listen("127.0.0.1:0".parse().unwrap(), &ConnectOptions::default()).unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(64).unwrap());
        let Some(request) = listener.accept(Some(Duration::from_secs(30))).unwrap() else { return };
        let qp = pd.create_qp(&QpConfig::new(&cq)).unwrap();
        let inbox = pd.allocate(SQE_LEN, Access::LOCAL_WRITE).unwrap();
        qp.post_recv(RecvWr::one(0, inbox.whole())).unwrap();
        match accepts {
            Ok(private_data) => request.accept(&qp, &private_data).map(drop).unwrap(),
            Err(private_data) => return request.reject(&private_data).unwrap(),
        }
        let mut count = 0;
        while cq.wait(Some(Duration::from_secs(30))).is_ok() {
            for completion in cq.completions() {
                if completion.completed != Completed::Receive {
                    continue;
                }
                if completion.ok().is_err() {
                    return;
                }
                let sqe = Sqe::parse(&inbox.read(0, SQE_LEN).unwrap().try_into().unwrap());
                qp.post_recv(RecvWr::one(0, inbox.whole())).unwrap();
                for octets in answer(count, &sqe) {
                    qp.post_send(&SendWr::send_inline(1, &octets)).unwrap();
                }
                count += 1;
            }
        }
    });
    addr
}

/// Asks such a target for a disk.
fn asked(
    accepts: Result<Vec<u8>, Vec<u8>>,
    answer: impl Fn(usize, &Sqe) -> Vec<Vec<u8>> + Send + 'static,
) -> Ended {
    let uri = format!("nvme://{}/nqn.x:disk", target(accepts, answer));
    let ended = run(&["block", "ls", "--timeout", "0.5", &uri]);
    assert!(ended.stderr.contains(&uri), "{ended:?}");
    ended
}

fn accepts() -> Result<Vec<u8>, Vec<u8>> {
    Ok(Reply { commands: 32 }.emit().to_vec())
}

fn answer(cid: u16, result: u64, status: Status) -> Vec<Vec<u8>> {
    vec![Cqe { result, head: 0, cid, status }.emit().to_vec()]
}

#[test]
fn a_target_that_makes_no_sense_or_says_nothing_is_named() {
    let nothing = |_: usize, _: &Sqe| Vec::new();
    asked(Ok(b"hello".to_vec()), nothing).failed(3, &["no NVMe target"]);
    asked(Err(b"away!".to_vec()), nothing).failed(3, &["no NVMe target"]);
    asked(Err(Refusal::NoResources.emit().to_vec()), nothing).failed(5, &["rejects the connection"]);
    asked(accepts(), nothing).failed(3, &["handshake", "0.5 s"]);
    asked(accepts(), |_, _| vec![vec![0; 3]]).failed(3, &["an answer of 3 octets"]);
    // Longer than the place for it: that is the end of the connection.
    asked(accepts(), |_, _| vec![vec![0; CQE_LEN + 1]]).failed(3, &["ended the connection"]);
    asked(accepts(), |_, _| answer(9, 0, Status::SUCCESS)).failed(3, &["breaks the protocol"]);
    asked(accepts(), |_, sqe| answer(sqe.cid, 0, Status::INTERNAL)).failed(5, &["refuses to connect"]);
    // Enabled, and never ready; or failed.
    asked(accepts(), |_, sqe| answer(sqe.cid, 0, Status::SUCCESS)).failed(3, &["handshake"]);
    asked(accepts(), |_, sqe| answer(sqe.cid, 3, Status::SUCCESS)).failed(3, &["fails as it is enabled"]);
    // All that it says of itself is nothing.
    asked(accepts(), |_, sqe| answer(sqe.cid, 1, Status::SUCCESS)).failed(5, &["has no disk"]);
}
