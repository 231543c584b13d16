//! `rddp block serve` to a host of NVMe made by hand: what Linux's does not do, or must not.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rddp_block::export::Command;
use rddp_block::nvme::capsule::{CQE_LEN, Cqe, Place, Sqe};
use rddp_block::nvme::connect::{ANY_CONTROLLER, CONNECT_LEN, Connect, ConnectData, Fabrics, property};
use rddp_block::nvme::identify::{Asked, IDENTIFY_LEN, Namespace};
use rddp_block::nvme::io;
use rddp_block::nvme::private_data::{Refusal, Request};
use rddp_block::nvme::status::Status;
use rddp_rnic::{
    Access, Completed, Completion, CompletionQueue, ConnectError, ConnectOptions, MemoryRegion,
    ProtectionDomain, QpConfig, QueuePair, RecvWr, Rnic, SendWr, Status as Completes,
};
use rddp_test_support::pattern;
use tempfile::TempDir;

use crate::program::{Server, until};

const DISK: usize = 4 << 20;
const MEMORY: usize = 1 << 20;
const NQN: &str = "nqn.2026-11.rddp:disk";

/// A queue of a host, and memory that the target may use.
struct Queue {
    qp: QueuePair,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    answers: MemoryRegion,
    memory: MemoryRegion,
    next: u16,
    qid: u16,
    /// The key that the last answer has invalidated.
    invalidated: Option<u32>,
}

const REMOTE: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_INVALIDATE);

impl Queue {
    fn open(addr: SocketAddr, private_data: &[u8], qid: u16) -> Result<Self, ConnectError> {
        let rnic = Rnic::open().unwrap();
        let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(256).unwrap());
        let qp = pd.create_qp(&QpConfig::new(&cq)).unwrap();
        let answers = pd.allocate(32 * CQE_LEN, Access::LOCAL_WRITE).unwrap();
        for at in 0..32 {
            qp.post_recv(RecvWr::one(at, answers.sge(at as usize * CQE_LEN..(at as usize + 1) * CQE_LEN)))
                .unwrap();
        }
        let options = ConnectOptions { private_data: private_data.to_vec(), ..Default::default() };
        qp.connect(addr, &options)?;
        let memory = pd.allocate(MEMORY, REMOTE).unwrap();
        Ok(Queue { qp, cq, pd, answers, memory, next: 0, qid, invalidated: None })
    }

    fn of(addr: SocketAddr, qid: u16) -> Self {
        let asked = Request { qid, answers: 32, commands: 31, cntlid: 0 };
        Self::open(addr, &asked.emit(), qid).unwrap()
    }

    fn keyed(&self, len: usize) -> Place {
        let (address, key) = (self.memory.base(), self.memory.stag().0);
        Place::Keyed { address, len: len as u32, key, invalidate: false }
    }

    fn send(&mut self, sqe: &Sqe, data: &[u8]) {
        let octets = [&sqe.emit()[..], data].concat();
        let outbox = self.pd.allocate(octets.len(), Access::LOCAL_WRITE).unwrap();
        outbox.write(0, &octets).unwrap();
        self.qp.post_send(&SendWr::send(99, outbox.whole())).unwrap();
        assert_eq!(self.completes().map(|completion| completion.completed), Some(Completed::Send));
    }

    /// Waits for a completion; `None` if the connection has ended.
    fn completes(&mut self) -> Option<Completion> {
        let mut completion = None;
        until("something has completed", || {
            completion = completion.or_else(|| self.cq.poll_one());
            completion.is_some()
        });
        completion.filter(|completion| completion.status == Completes::Success)
    }

    fn answer(&mut self) -> Option<Cqe> {
        let completion = self.completes()?;
        assert_eq!((completion.completed, completion.byte_len), (Completed::Receive, CQE_LEN as u32));
        self.invalidated = completion.invalidated.map(|stag| stag.0);
        let at = completion.wr_id as usize * CQE_LEN;
        let cqe = Cqe::parse(&self.answers.read(at, CQE_LEN).unwrap().try_into().unwrap());
        self.qp.post_recv(RecvWr::one(completion.wr_id, self.answers.sge(at..at + CQE_LEN))).unwrap();
        Some(cqe)
    }

    fn does(&mut self, make: impl FnOnce(u16) -> Sqe, data: &[u8]) -> Result<u64, Status> {
        self.next += 1;
        let sqe = make(self.next);
        self.send(&sqe, data);
        let cqe = self.answer().expect("the connection has ended");
        assert_eq!(cqe.cid, sqe.cid);
        if cqe.status.is_success() { Ok(cqe.result) } else { Err(cqe.status) }
    }

    fn connects(&mut self, cntlid: u16, host: &str, keep_alive: u32) -> Result<u64, Status> {
        let data = ConnectData { host_id: [7; 16], cntlid, subsystem: NQN.into(), host: host.into() };
        let connect = Connect { format: 0, qid: self.qid, size: 31, keep_alive };
        if self.qid > 0 {
            // As Linux does: in the capsule.
            let place = Place::InCapsule { offset: 0, len: CONNECT_LEN as u32 };
            return self.does(|cid| Fabrics::Connect(connect).command(cid, place), &data.emit());
        }
        self.memory.write(0, &data.emit()).unwrap();
        let place = self.keyed(CONNECT_LEN);
        self.does(|cid| Fabrics::Connect(connect).command(cid, place), b"")
    }

    fn enables(&mut self) {
        let set = Fabrics::Set { offset: property::CC, is_wide: false, value: 0x0046_0001 };
        self.does(|cid| set.command(cid, Place::NONE), b"").unwrap();
    }

    fn works(&mut self, command: &Command, place: Place, data: &[u8]) -> Result<u64, Status> {
        self.does(|cid| io::command(cid, command, 9, place).unwrap(), data)
    }

    fn reads(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, Status> {
        let place = self.keyed(len);
        self.works(&Command::Read { offset, len: len as u32 }, place, b"")?;
        Ok(self.memory.read(0, len).unwrap())
    }

    fn writes(&mut self, offset: u64, octets: &[u8], fua: bool) -> Result<u64, Status> {
        self.memory.write(0, octets).unwrap();
        let place = self.keyed(octets.len());
        self.works(&Command::Write { offset, len: octets.len() as u32, fua }, place, b"")
    }

    /// Waits for the target to end the connection.
    fn ends(&mut self) {
        assert_eq!(self.completes(), None);
    }
}

struct Site {
    folder: TempDir,
    server: Server,
    nvme: SocketAddr,
}

impl Site {
    fn new(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        fs::write(&path, pattern(DISK, 1)).unwrap();
        let args = ["block", "serve", path.to_str().unwrap(), "--port", "0", "--json"];
        let server = Server::start(&[&args[..], more].concat());
        let nvme = server.listening["nvme"].as_str().unwrap().parse().unwrap();
        assert_eq!(server.listening["disks"][0]["nqn"], NQN);
        Site { folder, server, nvme }
    }

    fn disk(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    /// A host with its admin queue and one I/O queue.
    fn host(&self) -> (Queue, Queue) {
        self.host_for(0)
    }

    fn host_for(&self, keep_alive: u32) -> (Queue, Queue) {
        let mut admin = Queue::of(self.nvme, 0);
        let cntlid = admin.connects(ANY_CONTROLLER, "nqn.x:host", keep_alive).unwrap();
        admin.enables();
        let mut io = Queue::of(self.nvme, 1);
        assert_eq!(io.connects(cntlid as u16, "nqn.x:host", 0), Ok(cntlid));
        (admin, io)
    }
}

#[test]
fn a_disk_is_read_and_written() {
    let site = Site::new(&["--writable"]);
    let (mut admin, mut io) = site.host();
    let place = admin.keyed(IDENTIFY_LEN);
    admin.does(|cid| Asked::Namespace.command(cid, 1, place), b"").unwrap();
    let octets = admin.memory.read(0, IDENTIFY_LEN).unwrap();
    let namespace = Namespace::parse(octets[..].try_into().unwrap()).unwrap();
    assert_eq!((namespace.blocks, namespace.writable), (DISK as u64 >> 9, true));

    assert!(io.reads(512, MEMORY).unwrap() == pattern(DISK, 1)[512..512 + MEMORY]);
    io.writes(1024, &pattern(300 << 9, 2), true).unwrap();
    assert!(io.reads(1024, 300 << 9).unwrap() == pattern(300 << 9, 2));
    // In the capsule, as far as it goes.
    let write = Command::Write { offset: 0, len: 4096, fua: false };
    io.works(&write, Place::InCapsule { offset: 0, len: 4096 }, &pattern(4096, 3)).unwrap();
    io.works(&Command::Zero { offset: 2048, len: 512, fua: false, may_trim: false }, Place::NONE, b"")
        .unwrap();
    io.works(&Command::Flush, Place::NONE, b"").unwrap();
    // A range to forget, in the capsule as well.
    let range = [&[0; 4][..], &1u32.to_le_bytes(), &2u64.to_le_bytes()].concat();
    let place = Place::InCapsule { offset: 0, len: 16 };
    io.does(|cid| Sqe::new(9, cid, 1, place, [0, 4, 0, 0, 0, 0]), &range).unwrap();
    let mut wanted = pattern(DISK, 1);
    wanted[1024..1024 + (300 << 9)].copy_from_slice(&pattern(300 << 9, 2));
    wanted[..4096].copy_from_slice(&pattern(4096, 3));
    wanted[2048..2560].fill(0);
    wanted[1024..1536].fill(0);
    assert!(fs::read(site.disk()).unwrap() == wanted);
}

#[test]
fn memory_is_given_back_with_the_answer_where_the_host_asks_for_it() {
    let site = Site::new(&["--writable"]);
    let (_admin, mut io) = site.host();
    let region = io.pd.allocate(4096, REMOTE).unwrap();
    let key = region.stag().0;
    let place = Place::Keyed { address: region.base(), len: 4096, key, invalidate: true };
    io.works(&Command::Read { offset: 4096, len: 4096 }, place, b"").unwrap();
    assert_eq!((io.invalidated, region.is_valid()), (Some(key), false));
    assert!(region.read(0, 4096).unwrap() == pattern(DISK, 1)[4096..8192]);
}

#[test]
fn what_cannot_be_is_refused_and_the_host_goes_on() {
    let mut site = Site::new(&[]);
    let (_admin, mut io) = site.host();
    assert_eq!(io.writes(0, &[7; 512], false), Err(Status::WRITE_PROTECTED));
    let told = site.server.complaint();
    assert!(told.contains("127.0.0.1:") && told.contains("a command for a disk: "), "{told}");
    assert_eq!(io.reads(DISK as u64 - 512, 1024), Err(Status::LBA_RANGE));
    let place = io.keyed(1024);
    let read = Command::Read { offset: 0, len: 512 };
    assert_eq!(io.works(&read, place, b""), Err(Status::DATA_LENGTH));
    assert_eq!(io.does(|cid| Sqe::new(0x55, cid, 1, Place::NONE, [0; 6]), b""), Err(Status::INVALID_OPCODE));
    assert!(io.reads(0, 512).unwrap() == pattern(DISK, 1)[..512]);
    fs::OpenOptions::new().write(true).open(site.disk()).unwrap().set_len(1000).unwrap();
    assert_eq!(io.reads(0, 1024), Err(Status::READ_ERROR));
    assert!(io.reads(0, 512).unwrap() == pattern(DISK, 1)[..512]);
}

#[test]
fn hosts_that_are_not_named_or_make_no_sense_are_turned_away() {
    let site = Site::new(&["--allow-host", "nqn.x:host"]);
    let mut admin = Queue::of(site.nvme, 0);
    assert_eq!(admin.connects(ANY_CONTROLLER, "nqn.x:other", 0), Err(Status::INVALID_HOST));
    assert_eq!(admin.connects(ANY_CONTROLLER, "nqn.x:host", 0), Ok(1));
    let refused = |private_data: &[u8], wanted: Refusal| {
        let Err(ConnectError::Rejected { private_data }) = Queue::open(site.nvme, private_data, 0) else {
            panic!("connected");
        };
        assert_eq!(Refusal::parse(&private_data), Some(wanted));
    };
    refused(b"hello", Refusal::Length);
    let asked = Request { qid: 1, answers: 128, commands: 128, cntlid: 0 };
    refused(&asked.emit(), Refusal::CommandQueueSize);
    // An I/O queue of nobody's controller, and one before it is enabled.
    let mut io = Queue::of(site.nvme, 1);
    assert_eq!(io.connects(77, "nqn.x:host", 0), Err(Status::CONNECT_PARAMETERS));
    assert_eq!(io.connects(1, "nqn.x:host", 0), Err(Status::SEQUENCE_ERROR));
    // A capsule without a whole command.
    let octets = io.pd.allocate(63, Access::LOCAL_WRITE).unwrap();
    io.qp.post_send(&SendWr::send(99, octets.whole())).unwrap();
    assert!(io.completes().is_some());
    io.ends();
    admin.enables();
}

/// Base, "Keep Alive": a host of which nothing is heard loses its controller, and one that speaks
/// keeps it.
#[test]
fn a_host_that_is_silent_loses_its_controller() {
    let mut site = Site::new(&[]);
    let (_silent, mut of_silent) = site.host_for(1000);
    let (_lively, mut lively) = site.host_for(3000);
    let end = Instant::now() + Duration::from_secs(4);
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(100));
        lively.reads(0, 512).unwrap();
    }
    of_silent.ends();
    let said = site.server.complaint();
    assert!(said.contains("nqn.x:host: nothing was heard"), "{said}");
    lively.reads(0, 512).unwrap();
}

/// The end of an admin queue's connection is that of its controller.
#[test]
fn a_host_that_goes_leaves_nothing() {
    let site = Site::new(&[]);
    for _ in 0..3 {
        let (admin, mut io) = site.host();
        drop(admin);
        io.ends();
    }
    let mut io = Queue::of(site.nvme, 1);
    assert_eq!(io.connects(1, "nqn.x:host", 0), Err(Status::CONNECT_PARAMETERS));
}

/// Memory of nobody: the connection ends, as it does with any RNIC; other hosts go on.
#[test]
fn a_host_that_names_memory_of_nobody_goes_alone() {
    let site = Site::new(&["--writable"]);
    let (_admin, mut other) = site.host();
    for invalidate in [false, true] {
        for write in [false, true] {
            let (_admin, mut io) = site.host();
            let place = Place::Keyed { address: 1 << 40, len: 512, key: 0x1234_5678, invalidate };
            let (offset, len) = (0, 512);
            let command = if write {
                Command::Write { offset, len, fua: false }
            } else {
                Command::Read { offset, len }
            };
            io.send(&io::command(1, &command, 9, place).unwrap(), b"");
            io.ends();
        }
    }
    assert!(other.reads(0, 512).unwrap() == pattern(DISK, 1)[..512]);
    assert!(fs::read(site.disk()).unwrap() == pattern(DISK, 1));
}

/// Forwards a host's connections, until it forwards nothing more to the host.
fn relay(to: SocketAddr, is_frozen: &Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let is_frozen = is_frozen.clone();
    std::thread::spawn(move || {
        for host in listener.incoming().map_while(Result::ok) {
            let target = TcpStream::connect(to).unwrap();
            let (mut from_host, mut to_target) = (host.try_clone().unwrap(), target.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from_host, &mut to_target));
            let (mut from_target, mut to_host, is_frozen) = (target, host, is_frozen.clone());
            std::thread::spawn(move || {
                let mut octets = [0; 4096];
                while let Ok(len @ 1..) = from_target.read(&mut octets) {
                    if !is_frozen.load(Ordering::SeqCst) && to_host.write_all(&octets[..len]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    at
}

/// A host whose memory cannot be read has all of the server's, until another client wants some.
#[test]
fn hosts_that_give_nothing_do_not_keep_memory_from_others() {
    let site = Site::new(&["--writable", "--memory", "64M"]);
    let is_frozen = Arc::default();
    let relayed = relay(site.nvme, &is_frozen);
    let mut admin = Queue::of(relayed, 0);
    let cntlid = admin.connects(ANY_CONTROLLER, "nqn.x:host", 0).unwrap() as u16;
    admin.enables();
    let mut greedy: Vec<Queue> = (1..=3).map(|qid| Queue::of(relayed, qid)).collect();
    for queue in &mut greedy {
        queue.connects(cntlid, "nqn.x:host", 0).unwrap();
    }
    let (_admin, mut other) = site.host();
    is_frozen.store(true, Ordering::SeqCst);
    for queue in &mut greedy {
        let place = queue.keyed(MEMORY);
        for cid in 0..31 {
            let write = Command::Write { offset: 0, len: MEMORY as u32, fua: false };
            queue.send(&io::command(cid, &write, 9, place).unwrap(), b"");
        }
    }
    assert!(other.reads(0, MEMORY).unwrap() == pattern(DISK, 1)[..MEMORY]);
    assert!(fs::read(site.disk()).unwrap() == pattern(DISK, 1));
}
