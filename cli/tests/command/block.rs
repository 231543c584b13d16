//! `rddp block serve`, by a client made by hand: what is asked of a disk, and what must not be.
//! Clients of others are in `tests/block`.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use rddp_test_support::{pattern, random_octets};
use tempfile::TempDir;

use crate::disk::{Disk, LEN, SHORT};
use crate::program::{Server, free_port, run, until};

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const ZEROES: u16 = 6;

const FUA: u16 = 1;

const PERM: u32 = 1;
const IO: u32 = 5;
const INVAL: u32 = 22;
const NO_SPACE: u32 = 28;

const DISK: usize = 4 << 20;

/// Octets of the longest payload.
const LONGEST: u32 = 32 << 20;

/// A client behind its handshake, without structured replies.
struct Client(TcpStream);

impl Client {
    fn raw(addr: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    /// Asks for a disk by the old way, which has one reply.
    fn of(addr: SocketAddr, disk: &str) -> Self {
        let mut stream = Self::raw(addr);
        let mut hello = [0; 18];
        stream.read_exact(&mut hello).unwrap();
        assert_eq!(hello[..16], *b"NBDMAGICIHAVEOPT");
        let name = [&[0, 0, 0, 3], &b"IHAVEOPT\0\0\0\x01"[..], &(disk.len() as u32).to_be_bytes()].concat();
        stream.write_all(&[&name, disk.as_bytes()].concat()).unwrap();
        let mut size = [0; 10];
        stream.read_exact(&mut size).unwrap();
        Client(stream)
    }

    fn ask(&mut self, kind: u16, flags: u16, cookie: u64, offset: u64, len: u32) {
        let mut octets = 0x2560_9513u32.to_be_bytes().to_vec();
        octets.extend([flags.to_be_bytes(), kind.to_be_bytes()].concat());
        octets.extend([cookie.to_be_bytes(), offset.to_be_bytes()].concat());
        octets.extend(len.to_be_bytes());
        self.0.write_all(&octets).unwrap();
    }

    /// Returns the cookie and the error of the next reply.
    fn reply(&mut self) -> (u64, u32) {
        let mut octets = [0; 16];
        self.0.read_exact(&mut octets).unwrap();
        assert_eq!(octets[..4], 0x6744_6698u32.to_be_bytes());
        let error = u32::from_be_bytes(octets[4..8].try_into().unwrap());
        (u64::from_be_bytes(octets[8..].try_into().unwrap()), error)
    }

    fn does(&mut self, kind: u16, flags: u16, offset: u64, len: u32) -> u32 {
        self.ask(kind, flags, 7, offset, len);
        let (cookie, error) = self.reply();
        assert_eq!(cookie, 7);
        error
    }

    fn reads(&mut self, offset: u64, len: u32) -> Result<Vec<u8>, u32> {
        let error = self.does(READ, 0, offset, len);
        if error != 0 {
            return Err(error);
        }
        let mut octets = vec![0; len as usize];
        self.0.read_exact(&mut octets).unwrap();
        Ok(octets)
    }

    fn writes(&mut self, flags: u16, offset: u64, octets: &[u8]) -> u32 {
        self.ask(WRITE, flags, 9, offset, octets.len() as u32);
        self.0.write_all(octets).unwrap();
        let (cookie, error) = self.reply();
        assert_eq!(cookie, 9);
        error
    }

    /// Waits for the server to end the connection.
    fn gone(mut self) {
        let end = self.0.read(&mut [0; 64]);
        assert!(
            matches!(&end, Ok(0)) || end.as_ref().is_err_and(|e| e.kind() == ErrorKind::ConnectionReset),
            "{end:?}"
        );
    }
}

/// A disk full of a pattern, and another, empty one.
struct Site {
    folder: TempDir,
    server: Server,
}

impl Site {
    fn new(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        fs::write(path("disk"), pattern(DISK, 1)).unwrap();
        File::create(path("empty")).unwrap().set_len(DISK as u64).unwrap();
        let disks = [path("disk"), format!("other={}", path("empty"))];
        let args = ["block", "serve", &disks[0], &disks[1], "--port", "0", "--json"];
        let server = Server::start(&[&args[..], more].concat());
        Site { folder, server }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn client(&self) -> Client {
        Client::of(self.server.addr, "disk")
    }
}

#[test]
fn a_disk_is_read_and_written() {
    let site = Site::new(&["--writable"]);
    assert_eq!(site.server.listening["disks"][1]["name"], "other");
    let mut client = site.client();
    assert!(client.reads(5, 100_000).unwrap() == pattern(DISK, 1)[5..100_005]);
    assert_eq!(client.writes(FUA, 1000, &pattern(300_000, 2)), 0);
    assert!(client.reads(1000, 300_000).unwrap() == pattern(300_000, 2));
    assert_eq!(client.does(FLUSH, 0, 0, 0), 0);
    assert_eq!(client.does(ZEROES, 0, 2000, 5000), 0);
    assert_eq!(client.does(TRIM, 0, 0, 1000), 0);
    let mut wanted = [vec![0; 1000], pattern(300_000, 2), pattern(DISK, 1)[301_000..].to_vec()].concat();
    wanted[2000..7000].fill(0);
    assert!(fs::read(site.path("disk")).unwrap() == wanted);
    // The other disk is another; no name is that of the first.
    assert_eq!(Client::of(site.server.addr, "other").reads(0, 4), Ok(vec![0; 4]));
    assert_eq!(Client::of(site.server.addr, "").reads(2000, 4), Ok(vec![0; 4]));
    client.ask(DISCONNECT, 0, 0, 0, 0);
    client.gone();
    assert_eq!(site.server.stop(), 0);
}

#[test]
fn a_disk_to_read_is_not_written_and_the_client_goes_on() {
    let site = Site::new(&[]);
    let mut client = site.client();
    assert_eq!(client.writes(0, 0, &[7; 5000]), PERM);
    assert_eq!((client.does(TRIM, 0, 0, 10), client.does(ZEROES, 0, 0, 10)), (PERM, PERM));
    assert_eq!(client.reads(0, 4), Ok(pattern(4, 1)));
    assert!(fs::read(site.path("disk")).unwrap() == pattern(DISK, 1));
}

#[test]
fn requests_beyond_the_end_are_refused_and_the_client_goes_on() {
    let mut site = Site::new(&["--writable"]);
    let mut client = site.client();
    let end = DISK as u64;
    assert_eq!(client.reads(end - 10, 11), Err(INVAL));
    let told = site.server.complaint();
    assert!(told.contains(&format!("disk disk: 11 octets at {}", end - 10)), "{told}");
    assert_eq!(client.reads(u64::MAX - 2, 10), Err(INVAL));
    assert_eq!(client.writes(0, end - 10, &[1; 11]), NO_SPACE);
    assert_eq!(client.writes(0, u64::MAX - 2, &[1; 10]), NO_SPACE);
    assert_eq!((client.does(ZEROES, 0, end, 1), client.does(TRIM, 0, end, 1)), (NO_SPACE, INVAL));
    assert_eq!(client.does(99, 0, 0, 0), INVAL);
    assert_eq!(client.reads(end - 10, 10).map(|octets| octets.len()), Ok(10));
    assert!(fs::metadata(site.path("disk")).unwrap().len() == end);
}

#[test]
fn requests_of_no_octets_succeed() {
    let site = Site::new(&["--writable"]);
    let (mut client, end) = (site.client(), DISK as u64);
    assert_eq!((client.reads(0, 0), client.reads(end, 0)), (Ok(Vec::new()), Ok(Vec::new())));
    assert_eq!((client.writes(0, 0, &[]), client.writes(FUA, end, &[])), (0, 0));
    assert_eq!((client.does(TRIM, 0, 5, 0), client.does(ZEROES, 0, 5, 0)), (0, 0));
    assert_eq!((client.reads(end + 1, 0), client.writes(0, end + 1, &[])), (Err(INVAL), NO_SPACE));
    assert_eq!(client.reads(0, 4), Ok(pattern(4, 1)));
}

#[test]
fn whoever_makes_no_sense_goes_and_others_are_served() {
    let site = Site::new(&["--writable"]);
    let mut other = site.client();
    let noise: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\0\0\0\x03IHAVEOPT\0\0\0\x07\xff\xff\xff\xff",
        b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\x05third",
        b"\0\0\0\x03IHAVEOPX\0\0\0\x01\0\0\0\0",
    ];
    for octets in noise {
        let mut stream = Client::raw(site.server.addr);
        stream.read_exact(&mut [0; 18]).unwrap();
        stream.write_all(octets).unwrap();
        Client(stream).gone();
    }
    // A write that is longer than any, and octets that are no request.
    let mut client = site.client();
    client.ask(WRITE, 0, 1, 0, u32::MAX);
    client.gone();
    let mut client = site.client();
    client.0.write_all(&[0x25; 28]).unwrap();
    client.gone();
    assert_eq!(other.reads(0, 4), Ok(pattern(4, 1)));
}

/// A payload that does not come whole is not written.
#[test]
fn a_client_that_goes_in_the_middle_has_written_nothing() {
    let site = Site::new(&["--writable"]);
    for way in [Shutdown::Write, Shutdown::Both] {
        let mut client = site.client();
        client.ask(WRITE, 0, 1, 0, 100_000);
        client.0.write_all(&[9; 50_000]).unwrap();
        client.0.shutdown(way).unwrap();
    }
    assert_eq!(site.client().reads(0, 4), Ok(pattern(4, 1)));
    assert!(fs::read(site.path("disk")).unwrap() == pattern(DISK, 1));
}

#[test]
fn a_file_that_is_cut_short_fails_alone() {
    let site = Site::new(&[]);
    let mut client = site.client();
    OpenOptions::new().write(true).open(site.path("disk")).unwrap().set_len(1000).unwrap();
    assert_eq!(client.reads(500, 1000), Err(IO));
    assert_eq!(client.reads(500, 500).map(|octets| octets.len()), Ok(500));
    assert_eq!(Client::of(site.server.addr, "other").reads(0, 1000), Ok(vec![0; 1000]));
}

/// More requests than are served at a time, sent before any reply is read.
#[test]
fn requests_that_come_in_crowds_are_all_answered() {
    let site = Site::new(&["--writable"]);
    let mut client = site.client();
    for at in 0..1000 {
        client.ask(WRITE, 0, at, at * 512, 512);
        client.0.write_all(&[at as u8; 512]).unwrap();
    }
    let mut cookies: Vec<u64> = (0..1000).map(|_| client.reply()).map(|(cookie, _)| cookie).collect();
    cookies.sort_unstable();
    assert!(cookies == (0..1000).collect::<Vec<_>>());
    let disk = File::open(site.path("disk")).unwrap();
    for at in 0..1000 {
        let mut sector = [0; 512];
        disk.read_exact_at(&mut sector, at * 512).unwrap();
        assert_eq!(sector, [at as u8; 512]);
    }
}

/// Two servers of disks on one host differ by NBD's port alone.
#[test]
fn where_the_port_of_nvme_is_taken_it_is_another() {
    let folder = TempDir::new().unwrap();
    let disk = folder.path().join("disk");
    fs::write(&disk, [0; 512]).unwrap();
    let _taken = TcpListener::bind("127.0.0.1:4420");
    let serve =
        ["block", "serve", disk.to_str().unwrap(), "--json", "--port", &free_port().port().to_string()];
    let server = Server::start(&serve);
    let nvme: SocketAddr = server.listening["nvme"].as_str().unwrap().parse().unwrap();
    assert_ne!(nvme.port(), 4420);
    drop(server);
    run(&[&serve[..], &["--nvme-port", "4420"]].concat()).failed(1, &["4420", "--nvme-port"]);
}

/// Writes that were answered are there, whenever the server is killed.
#[test]
fn what_was_answered_outlives_a_server_that_is_killed() {
    for round in 0..10u64 {
        let mut site = Site::new(&["--writable"]);
        let mut client = site.client();
        let killed = std::thread::spawn({
            let mut stream = client.0.try_clone().unwrap();
            move || {
                let sector = [0xa5; 4096];
                for at in 0..1000u64 {
                    let mut octets = 0x2560_9513u32.to_be_bytes().to_vec();
                    octets.extend([[0, u8::from(at % 3 == 0)], [0, 1]].concat());
                    octets.extend([at.to_be_bytes(), (at * 4096).to_be_bytes()].concat());
                    octets.extend(4096u32.to_be_bytes());
                    if stream.write_all(&[&octets[..], &sector].concat()).is_err() {
                        break;
                    }
                }
            }
        });
        let mut answered = Vec::new();
        let mut reply = [0; 16];
        while client.0.read_exact(&mut reply).is_ok() {
            assert_eq!(reply[4..8], [0; 4]);
            answered.push(u64::from_be_bytes(reply[8..].try_into().unwrap()));
            if answered.len() as u64 == 5 + round * 11 {
                site.server.child().kill().unwrap();
            }
        }
        killed.join().unwrap();
        assert!(answered.len() as u64 >= 5 + round * 11);
        let disk = File::open(site.path("disk")).unwrap();
        for at in answered {
            let mut sector = [0; 4096];
            disk.read_exact_at(&mut sector, at * 4096).unwrap();
            assert!(sector == [0xa5; 4096], "{at} in round {round}");
        }
    }
}

/// A client that stays and asks for nothing more keeps none of the memory that it needed.
#[test]
fn memory_of_a_burst_is_given_back() {
    let site = Site::new(&[]);
    let resident = || {
        let status = fs::read_to_string(format!("/proc/{}/status", site.server.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
    };
    let before = resident();
    let mut client = site.client();
    (0..40).for_each(|at| client.ask(READ, 0, at, 0, 1 << 20));
    until("the replies are in its memory", || resident() > before + (30 << 20));
    for _ in 0..40 {
        client.reply();
        client.0.read_exact(&mut vec![0; 1 << 20]).unwrap();
    }
    until("the memory is given back", || resident() < before + (10 << 20));
    assert!(client.reads(0, 4 << 20).unwrap() == pattern(DISK, 1));
}

/// Two clients that take no replies have all memory, until another wants some.
#[test]
fn clients_that_take_nothing_do_not_keep_memory_from_others() {
    let site = Site::new(&["--memory", "64M"]);
    let _greedy: Vec<Client> = (0..2)
        .map(|_| {
            let mut client = site.client();
            (0..100).for_each(|at| client.ask(READ, 0, at, 0, 1 << 20));
            client
        })
        .collect();
    let mut other = site.client();
    assert!(other.reads(0, 4 << 20).unwrap() == pattern(DISK, 1));
}

/// Two clients that begin writes have all memory. Others come in meanwhile, and are served once the
/// two have given nothing for a while.
#[test]
fn clients_that_owe_a_payload_do_not_keep_memory_from_others() {
    let site = Site::new(&["--memory", "64M"]);
    let _greedy = ["disk", "other"].map(|disk| {
        let mut client = Client::of(site.server.addr, disk);
        client.ask(WRITE, 0, 1, 0, LONGEST);
        client.0.write_all(&[1; 1000]).unwrap();
        client
    });
    sleep(Duration::from_millis(200));
    let mut other = site.client();
    assert!(other.reads(0, 4 << 20).unwrap() == pattern(DISK, 1));
}

/// Many clients want more than all memory, and read their replies: each gets all of them.
#[test]
fn clients_that_wait_for_memory_are_all_served() {
    let site = Site::new(&["--memory", "64M"]);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            let mut client = site.client();
            scope.spawn(move || {
                let wanted = pattern(DISK, 1);
                (0..20).for_each(|at| client.ask(READ, 0, at, 0, 4 << 20));
                for _ in 0..20 {
                    assert_eq!(client.reply().1, 0);
                    let mut octets = vec![0; 4 << 20];
                    client.0.read_exact(&mut octets).unwrap();
                    assert!(octets == wanted);
                }
            });
        }
    });
}

/// Slow clients have all memory for longer than a client may stall, and another waits.
#[test]
fn clients_that_give_a_payload_slowly_are_waited_for() {
    let site = Site::new(&["--memory", "64M"]);
    let mut slow = ["disk", "other"].map(|disk| Client::of(site.server.addr, disk));
    slow.iter_mut().for_each(|client| client.ask(WRITE, 0, 1, 0, LONGEST));
    sleep(Duration::from_millis(200));
    let mut other = site.client();
    other.ask(READ, 0, 2, 0, 512);
    for _ in 0..8 {
        slow.iter_mut().for_each(|client| client.0.write_all(&vec![1; 1 << 20]).unwrap());
        sleep(Duration::from_secs(1));
    }
    for client in &mut slow {
        client.0.write_all(&vec![1; LONGEST as usize - (8 << 20)]).unwrap();
        assert_eq!(client.reply(), (1, PERM));
    }
    assert_eq!(other.reply(), (2, 0));
}

#[test]
fn disks_that_cannot_be_served_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let missing = format!("{path}/missing");
    run(&["block", "serve", &missing]).failed(1, &[&missing, "truncate -s"]);
    run(&["block", "serve", path]).failed(1, &["neither a file nor a block device"]);
    let twice = format!("{path}/disk");
    fs::write(&twice, "x").unwrap();
    run(&["block", "serve", &twice, &twice]).failed(2, &["two disks are called disk", "NAME=FILE"]);
}

/// A file system of which one file hangs until the test ends, well or not: a server that reads it
/// cannot end before.
struct Hanging(Disk);

impl Drop for Hanging {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// Serves files of a file system of which one hangs, by the program with those arguments more.
fn hanging(dir: &Path, files: &[&str], more: &[&str]) -> Option<(Server, Hanging)> {
    let paths: Vec<String> = files.iter().map(|name| dir.join(name).to_str().unwrap().to_owned()).collect();
    let paths = paths.iter().map(String::as_str);
    let args: Vec<&str> = ["block", "serve", "--port", "0", "--json"].into_iter().chain(paths).collect();
    let served = Disk::mount(dir, || Server::start(&[&args, more].concat()));
    let skipped = |error| writeln!(std::io::stderr(), "SKIPPED: no file system by FUSE: {error}");
    served.map(|(disk, server)| (server, Hanging(disk))).map_err(skipped).ok()
}

/// A client has as much under way on a disk that hangs as there is memory. Others get some of it.
#[test]
fn a_disk_that_hangs_leaves_memory_to_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let served = hanging(dir.path(), &["slow", "quick"], &["--memory", "64M"]);
    let Some((server, disk)) = served else { return };
    let mut hanging = Client::of(server.addr, "slow");
    (0..60).for_each(|at| hanging.ask(READ, 0, at, 0, 1 << 20));
    disk.0.until_reads_wait();
    // The server may not have read the last of them.
    sleep(Duration::from_millis(300));
    assert_eq!(Client::of(server.addr, "quick").writes(0, 0, &vec![7; LONGEST as usize]), PERM);
}

/// Two disks that hang do not have all memory either.
#[test]
fn disks_that_hang_leave_memory_to_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let again = format!("again={}", dir.path().join("slow").to_str().unwrap());
    let served = hanging(dir.path(), &["slow", "quick"], &["--memory", "64M", &again]);
    let Some((server, disk)) = served else { return };
    let mut hanging = ["slow", "again"].map(|name| Client::of(server.addr, name));
    for client in &mut hanging {
        (0..60).for_each(|at| client.ask(READ, 0, at, 0, 1 << 20));
    }
    disk.0.until_reads_wait();
    sleep(Duration::from_millis(300));
    assert_eq!(Client::of(server.addr, "quick").writes(0, 0, &vec![7; 4 << 20]), PERM);
}

/// A client that goes leaves a disk that hangs with much to do, and the next one has its memory.
#[test]
fn a_disk_that_hangs_keeps_no_memory_of_clients_that_have_gone() {
    let dir = tempfile::tempdir().unwrap();
    let served = hanging(dir.path(), &["slow"], &["--memory", "64M"]);
    let Some((server, disk)) = served else { return };
    let mut hanging = Client::of(server.addr, "slow");
    (0..60).for_each(|at| hanging.ask(READ, 0, at, 0, 1 << 20));
    disk.0.until_reads_wait();
    hanging.0.write_all(&[0x25; 28]).unwrap();
    hanging.gone();
    assert_eq!(Client::of(server.addr, "slow").writes(0, 0, &vec![7; LONGEST as usize]), PERM);
}

/// More reads than the disk has threads wait for it, and then another client has its own disk.
#[test]
fn a_disk_that_hangs_or_fails_is_no_matter_of_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let served = hanging(dir.path(), &["slow", "quick", "broken"], &[]);
    let Some((server, disk)) = served else { return };
    let mut hanging = Client::of(server.addr, "slow");
    (0..20).for_each(|at| hanging.ask(READ, 0, at, at * 4096, 4096));
    disk.0.until_reads_wait();
    let mut other = Client::of(server.addr, "quick");
    for _ in 0..10 {
        assert!(other.reads(0, SHORT as u32).unwrap() == random_octets(2, SHORT));
    }
    let mut broken = Client::of(server.addr, "broken");
    assert_eq!(broken.reads((LEN - 4096) as u64, 4096), Err(IO));
    assert!(broken.reads(0, 4096).unwrap() == random_octets(3, LEN)[..4096]);
    disk.0.release();
    let mut octets = vec![0; 4096];
    for _ in 0..20 {
        let (at, error) = hanging.reply();
        hanging.0.read_exact(&mut octets).unwrap();
        assert_eq!(error, 0);
        assert!(octets == random_octets(1, LEN)[at as usize * 4096..][..4096]);
    }
}
