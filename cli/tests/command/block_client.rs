//! `rddp block ls`, `bench` and `copy` of NBD servers: of our own, and of those that break the
//! protocol or say nothing. Servers of others are in `tests/block`.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rddp_test_support::pattern;

use crate::program::{Ended, Server, free_port, run};

const SIZE: usize = 5 << 20;

/// Flush, FUA, TRIM and `WRITE_ZEROES`, and no second connection.
const FLAGS: [u8; 2] = [0, 0x6d];

/// A server of two disks: one with a pattern, and one that is empty.
struct Site {
    folder: tempfile::TempDir,
    server: Server,
}

impl Site {
    fn new(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        fs::write(path("disk"), pattern(SIZE, 1)).unwrap();
        File::create(path("empty")).unwrap().set_len(SIZE as u64).unwrap();
        let args = ["block", "serve", &path("disk"), &path("empty"), "--port", "0", "--json"];
        let server = Server::start(&[&args[..], more].concat());
        Site { folder, server }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn uri(&self, disk: &str) -> String {
        format!("nbd://{}/{disk}", self.server.addr)
    }
}

#[test]
fn a_server_lists_its_disks() {
    let site = Site::new(&[]);
    let list = run(&["block", "ls", "--json", &site.uri("")]).ok().json();
    let disks = list["disks"].as_array().unwrap();
    assert_eq!([&disks[0]["name"], &disks[1]["name"]], ["disk", "empty"]);
    assert_eq!(disks[1]["size"], SIZE);
    assert_eq!(disks[0]["flags"], serde_json::json!(["read-only", "flush", "fua", "multi-conn"]));
    let one = run(&["block", "ls", &site.uri("empty")]).ok();
    assert_eq!(one.stdout, "empty  5.0 MiB  read-only,flush,fua,multi-conn\n");
    run(&["block", "ls", &site.uri("none")]).failed(5, &["no such export", "rddp block ls nbd://"]);
    run(&["block", "ls", "disk.img"]).failed(2, &["no server"]);
    let nowhere = format!("nbd://{}", free_port());
    run(&["block", "ls", &nowhere]).failed(3, &["nothing listens"]);
}

#[test]
fn a_disk_is_measured_and_not_written_unless_that_is_agreed_to() {
    let site = Site::new(&["--writable"]);
    let disk = site.uri("disk");
    let bench = |more: &[&str]| run(&[&["block", "bench", "--json", "-t", "0.3", &disk], more].concat());
    let read = bench(&["-P", "2", "--depth", "8"]).ok().json();
    assert_eq!((&read["op"], &read["connections"], &read["size"]), (&"read".into(), &2.into(), &4096.into()));
    assert!(
        read["requests"].as_u64().unwrap() > 0 && read["lat_us"]["p50"].as_f64().unwrap() > 0.0,
        "{read}"
    );
    bench(&["--write"]).failed(2, &["--destroy-data"]);
    assert!(fs::read(site.path("disk")).unwrap() == pattern(SIZE, 1));
    let written = bench(&["--write", "--destroy-data", "-s", "512K", "--depth", "2"]).ok().json();
    assert_eq!(written["op"], "write");
    assert!(fs::read(site.path("disk")).unwrap() != pattern(SIZE, 1));
    assert_eq!(fs::read(site.path("disk")).unwrap().len(), SIZE);

    run(&["block", "bench", "-t", "0", &disk]).failed(2, &["0 seconds measure nothing"]);
    bench(&["-s", "6M"]).failed(2, &["fewer than a request", "--size"]);
    bench(&["--depth", "1000"]).failed(2, &["128 requests at a time"]);
    let shown = run(&["block", "bench", "-t", "0.1", &site.path("disk")]).ok().stdout;
    assert!(shown.contains("requests/s") && shown.contains("p99.9"), "{shown}");
}

#[test]
fn a_copy_from_a_server_and_back_is_the_same() {
    let site = Site::new(&["--writable"]);
    let copy = site.path("copy");
    run(&["block", "copy", &site.uri("disk"), &copy]).ok();
    assert!(fs::read(&copy).unwrap() == pattern(SIZE, 1));
    run(&["block", "copy", "-P", "1", &copy, &site.uri("empty")]).ok();
    assert!(fs::read(site.path("empty")).unwrap() == pattern(SIZE, 1));
    assert_eq!(fs::read_dir(site.folder.path()).unwrap().count(), 3);
}

/// Starts a server that has each connection by this function.
fn server(serve: impl Fn(TcpStream) -> Option<()> + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            // It ends where the client does.
            let _ = serve(stream.unwrap());
        }
    });
    addr
}

/// Greets a client in the oldest way, and is told the name of an export. Returns whatever it says
/// next to the replies of a whole server up to there: requests.
fn greet(stream: &mut TcpStream, size: u64) -> Option<()> {
    stream.write_all(b"NBDMAGICIHAVEOPT\0\x02").ok()?;
    stream.read_exact(&mut [0; 20]).ok()?;
    stream.write_all(&[&size.to_be_bytes()[..], &FLAGS].concat()).ok()
}

/// Returns a request's cookie and length.
fn request(stream: &mut TcpStream) -> Option<([u8; 8], u32)> {
    let mut octets = [0; 28];
    stream.read_exact(&mut octets).ok()?;
    Some((octets[8..16].try_into().ok()?, u32::from_be_bytes(octets[24..].try_into().ok()?)))
}

fn reply(magic: u32, error: u32, cookie: [u8; 8]) -> Vec<u8> {
    [&magic.to_be_bytes()[..], &error.to_be_bytes(), &cookie].concat()
}

const SIMPLE: u32 = 0x6744_6698;

/// Copies what such a server has to a file, of which nothing is to stay.
fn fails(serve: impl Fn(TcpStream) -> Option<()> + Send + Sync + 'static) -> Ended {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("copy").to_str().unwrap().to_owned();
    let uri = format!("nbd://{}", server(serve));
    let ended = run(&["block", "copy", "--timeout", "0.5", &uri, &to]);
    assert!(ended.stderr.contains(&uri), "{ended:?}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{ended:?}");
    ended
}

#[test]
fn a_server_that_says_nothing_is_named_after_the_time_that_was_given() {
    let silent = |mut stream: TcpStream| stream.read_to_end(&mut Vec::new()).map(drop).ok();
    fails(silent).failed(3, &["handshake", "0.5 s"]);
    fails(move |mut stream| {
        greet(&mut stream, 1 << 20)?;
        silent(stream)
    })
    .failed(
        3,
        &["said nothing for 0.5 s, with 4 requests under way: reading 262144 octets at 0", "--timeout"],
    );
    // One that answers one, and no other.
    fails(move |mut stream| {
        greet(&mut stream, 1 << 20)?;
        let (cookie, len) = request(&mut stream)?;
        stream.write_all(&reply(SIMPLE, 0, cookie)).ok()?;
        stream.write_all(&vec![0; len as usize]).ok()?;
        silent(stream)
    })
    .failed(3, &["3 requests under way: reading 262144 octets at 262144"]);
}

/// Longer than the limit, but no silence is.
#[test]
fn a_slow_server_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("copy").to_str().unwrap().to_owned();
    let slow = server(|mut stream| {
        greet(&mut stream, 2 << 20)?;
        while let Some((cookie, len)) = request(&mut stream) {
            thread::sleep(Duration::from_millis(150));
            stream.write_all(&reply(SIMPLE, 0, cookie)).ok()?;
            stream.write_all(&vec![7; len as usize]).ok()?;
        }
        Some(())
    });
    run(&["block", "copy", "--timeout", "0.6", &format!("nbd://{slow}"), &to]).ok();
    assert!(fs::read(to).unwrap() == vec![7; 2 << 20]);
}

/// Replies that come by one segment are all taken before requests are sent, which go by one too.
#[test]
fn requests_go_together_where_replies_have_come_together() {
    const DEPTH: usize = 16;
    let counts: [Arc<AtomicU64>; 2] = Default::default();
    let [rounds, reads] = counts.clone();
    let addr = server(move |mut stream| {
        greet(&mut stream, 1 << 20)?;
        loop {
            let (mut requests, mut filled) = ([[0; 28]; DEPTH], 0);
            while filled < 28 * DEPTH {
                let count = stream.read(&mut requests.as_flattened_mut()[filled..]).ok()?;
                // It disconnects, or has gone.
                if count == 0 || requests[0][7] == 2 {
                    return None;
                }
                filled += count;
                reads.fetch_add(1, Ordering::SeqCst);
            }
            rounds.fetch_add(1, Ordering::SeqCst);
            let replies = requests
                .map(|request| [reply(SIMPLE, 0, request[8..16].try_into().unwrap()), vec![7; 512]].concat());
            stream.write_all(&replies.concat()).ok()?;
        }
    });
    let depth = DEPTH.to_string();
    let bench = ["block", "bench", "-t", "0.2", "-s", "512", "--timeout", "5", "--depth", &depth];
    run(&[&bench[..], &[&format!("nbd://{addr}")]].concat()).ok();
    let [rounds, reads] = counts.map(|count| count.load(Ordering::SeqCst));
    assert!(rounds > 0 && reads == rounds, "{reads} reads for {rounds} rounds");
}

/// The end that is missing is no hole: a copy with zeroes would pass for the disk.
#[test]
fn a_disk_that_was_cut_short_is_not_copied() {
    let site = Site::new(&[]);
    for disk in ["disk", "empty"] {
        File::options().write(true).open(site.path(disk)).unwrap().set_len(1 << 20).unwrap();
        let to = site.path("copy");
        run(&["block", "copy", &site.uri(disk), &to]).failed(5, &["EIO"]);
        assert!(!fs::exists(to).unwrap());
    }
}

/// Holes are written, as zeroes, and zeroes that were no holes as well.
#[test]
fn zeroes_are_written_to_a_server_that_takes_none_though_it_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let [hole, data] = ["hole", "data"].map(|name| folder.path().join(name).to_str().unwrap().to_owned());
    File::create(&hole).unwrap().set_len(3 << 20).unwrap();
    fs::write(&data, vec![0; 3 << 20]).unwrap();
    let written = Arc::new(AtomicU64::new(0));
    let count = written.clone();
    let addr = server(move |mut stream| {
        greet(&mut stream, 3 << 20)?;
        loop {
            let mut octets = [0; 28];
            stream.read_exact(&mut octets).ok()?;
            let (kind, len) = (octets[7], u32::from_be_bytes(octets[24..].try_into().ok()?));
            if kind == 1 {
                let mut payload = vec![0; len as usize];
                stream.read_exact(&mut payload).ok()?;
                assert!(payload.iter().all(|octet| *octet == 0));
                count.fetch_add(len.into(), Ordering::SeqCst);
            }
            // ENOTSUP for WRITE_ZEROES.
            let error = if kind == 6 { 95 } else { 0 };
            stream.write_all(&reply(SIMPLE, error, octets[8..16].try_into().ok()?)).ok()?;
        }
    });
    for from in [hole, data] {
        run(&["block", "copy", &from, &format!("nbd://{addr}")]).ok();
        assert_eq!(written.swap(0, Ordering::SeqCst), 3 << 20);
    }
}

#[test]
fn replies_that_make_no_sense_end_the_copy() {
    let answers = |answer: fn([u8; 8]) -> Vec<u8>| {
        fails(move |mut stream| {
            greet(&mut stream, 1 << 20)?;
            let (cookie, _) = request(&mut stream)?;
            stream.write_all(&answer(cookie)).ok()?;
            stream.read_to_end(&mut Vec::new()).map(drop).ok()
        })
    };
    answers(|cookie| reply(0x1234_5678, 0, cookie))
        .failed(3, &["breaks the protocol: what came is no reply"]);
    answers(|_| reply(SIMPLE, 0, [0xee; 8])).failed(3, &["no request has the cookie 0xeeee"]);
    answers(|cookie| reply(0x668e_33ef, 0, cookie)).failed(3, &["breaks the protocol: a chunk"]);
    answers(|cookie| reply(SIMPLE, 5, cookie)).failed(5, &["reading 262144 octets at 0", "EIO"]);
    fails(|mut stream| greet(&mut stream, u64::MAX)).failed(3, &["more octets than there can be"]);
    fails(|mut stream| stream.write_all(b"SSH-2.0-OpenSSH_9.9p1 x\r\n").ok()).failed(3, &["no NBD server"]);
}

/// Wherever it is: in a handshake, between replies, in a header, in the octets of a read.
#[test]
fn a_server_that_goes_is_named() {
    for count in [0, 5, 18, 20, 27, 28, 29, 40, 44, 45, 1000] {
        let ended = fails(move |mut stream| {
            let mut whole = b"NBDMAGICIHAVEOPT\0\x02".to_vec();
            whole.extend([&(1u64 << 20).to_be_bytes()[..], &FLAGS].concat());
            let (greeting, open) = whole.split_at(18);
            stream.write_all(&greeting[..count.min(18)]).ok()?;
            if count >= 18 {
                stream.read_exact(&mut [0; 20]).ok()?;
                stream.write_all(&open[..(count - 18).min(10)]).ok()?;
                if count >= 28 {
                    let (cookie, _) = request(&mut stream)?;
                    let answer = [reply(SIMPLE, 0, cookie), vec![0; 10_000]].concat();
                    stream.write_all(&answer[..count - 28]).ok()?;
                }
            }
            stream.shutdown(std::net::Shutdown::Write).ok()?;
            stream.read_to_end(&mut Vec::new()).map(drop).ok()
        });
        ended.failed(3, &[if count < 28 { "ended the connection" } else { "the server has gone" }]);
    }
}
