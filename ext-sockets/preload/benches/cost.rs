//! What the library costs sockets that are not in DDPMODE: nanoseconds a call, and plain TCP with it and without.
//!
//! The program runs itself by turns with and without `LD_PRELOAD` and takes the best of each, so that what the host does besides
//! hits both alike. `cargo bench --package rddp-preload`

use std::collections::BTreeMap;
use std::ffi::{c_int, c_short, c_void};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::{Duration, Instant};

/// Turns of each kind.
const TURNS: usize = 9;
const CALLS: u32 = 50_000;
const BATCHES: usize = 8;
const ROUNDS: u32 = 200;
const CHUNK: usize = 64 << 10;
const CHUNKS: u32 = 250;
/// Of rounds and of chunks: many short ones, since the scheduler has a hand in them.
const PASSES: u32 = 30;

const CHILD: &str = "RDDP_BENCH_CHILD";

fn main() {
    if std::env::var_os(CHILD).is_some() {
        return measure();
    }
    let library = std::env::current_exe().unwrap().with_file_name("librddp_sockets.so");
    let (mut bare, mut preloaded) = (BTreeMap::new(), BTreeMap::new());
    for _ in 0..TURNS {
        best(&mut bare, &run(None));
        best(&mut preloaded, &run(Some(library.as_os_str())));
    }
    println!("{:<28}{:>12}{:>12}{:>12}{:>9}", "ns", "without", "with", "more", "ratio");
    for (what, without) in &bare {
        let with = preloaded[what];
        let more = with - without;
        println!("{what:<28}{without:>12.1}{with:>12.1}{more:>12.1}{:>9.4}", with / without);
    }
}

fn run(library: Option<&std::ffi::OsStr>) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(CHILD, "1").env_remove("LD_PRELOAD").envs(library.map(|library| ("LD_PRELOAD", library)));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn best(so_far: &mut BTreeMap<String, f64>, lines: &str) {
    for line in lines.lines() {
        let (what, nanoseconds) = line.rsplit_once(' ').unwrap();
        let nanoseconds: f64 = nanoseconds.parse().unwrap();
        let entry = so_far.entry(what.to_owned()).or_insert(f64::MAX);
        *entry = entry.min(nanoseconds);
    }
}

fn measure() {
    on_one_processor();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    calls(near.as_raw_fd());
    near.set_nodelay(true).unwrap();
    far.set_nodelay(true).unwrap();
    round_trips(&mut near, &mut far);
    bulk(&mut near, &mut far);
}

/// Where threads wake each other is the scheduler's choice, and differs more from run to run than anything here.
fn on_one_processor() {
    // SAFETY: a set of processors is octets; the call reads it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

/// A buffer that begins a page: how fast the kernel copies depends on that, and where the heap is on the library.
fn buffer(room: &mut Vec<u8>) -> &mut [u8] {
    room.resize(CHUNK + 4096, 7);
    let start = room.as_ptr().align_offset(4096);
    &mut room[start..start + CHUNK]
}

/// Calls that have nothing to do and come straight back.
fn calls(fd: c_int) {
    let mut octet = 0u8;
    let at: *mut c_void = (&raw mut octet).cast();
    // SAFETY: nothing is there to be read.
    each("read, nothing there", || unsafe { libc::recv(fd, at, 1, libc::MSG_DONTWAIT) });
    // SAFETY: no octet is written.
    each("write of 0 octets", || unsafe { libc::write(fd, at, 0) });
    // SAFETY: it takes no pointer.
    each("fcntl(F_GETFL)", || unsafe { libc::fcntl(fd, libc::F_GETFL) as isize });
    // SAFETY: as above.
    each("close(-1)", || unsafe { libc::close(-1) as isize });
    let mut one = libc::pollfd { fd, events: libc::POLLIN as c_short, revents: 0 };
    // SAFETY: one entry.
    each("poll of one", || unsafe { libc::poll(&raw mut one, 1, 0) as isize });
    // SAFETY: it takes no pointer.
    let set = unsafe { libc::epoll_create1(0) };
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: room for one event.
    each("epoll_wait of none", || unsafe { libc::epoll_wait(set, &raw mut event, 1, 0) as isize });
}

fn each(what: &str, mut call: impl FnMut() -> isize) {
    let mut batch = || {
        let start = Instant::now();
        for _ in 0..CALLS {
            std::hint::black_box(call());
        }
        start.elapsed()
    };
    let best = std::iter::repeat_with(&mut batch).take(BATCHES).min().unwrap();
    report(what, best, CALLS);
}

fn round_trips(near: &mut TcpStream, far: &mut TcpStream) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut octet = [0];
            for _ in 0..PASSES * ROUNDS {
                far.read_exact(&mut octet).unwrap();
                far.write_all(&octet).unwrap();
            }
        });
        let mut octet = [0];
        passes("round trip of 1 octet", ROUNDS, || {
            near.write_all(&octet).unwrap();
            near.read_exact(&mut octet).unwrap();
        });
    });
}

fn bulk(near: &mut TcpStream, far: &mut TcpStream) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut room = Vec::new();
            let chunk = buffer(&mut room);
            for _ in 0..PASSES * CHUNKS {
                near.write_all(chunk).unwrap();
            }
        });
        let mut room = Vec::new();
        let chunk = buffer(&mut room);
        passes("64 KiB one way", CHUNKS, || far.read_exact(chunk).unwrap());
    });
}

fn passes(what: &str, times: u32, mut once: impl FnMut()) {
    let pass = || {
        let start = Instant::now();
        (0..times).for_each(|_| once());
        start.elapsed()
    };
    let best = std::iter::repeat_with(pass).take(PASSES as usize).min().unwrap();
    report(what, best, times);
}

fn report(what: &str, took: Duration, times: u32) {
    println!("{what} {}", took.as_nanos() as f64 / f64::from(times));
}
