//! What the library costs sockets that are not in DDPMODE, in nanoseconds a call. `cargo bench --package rddp-preload`
//!
//! The program runs itself by turns with and without `LD_PRELOAD` and takes the best of each, so that what the host does besides
//! hits both alike. `benches/compare/run --sockets` plays the turns itself (and measures what becomes of latency and bandwidth).

use std::collections::BTreeMap;
use std::ffi::{c_int, c_short, c_void};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::Instant;

/// Turns of each kind.
const TURNS: usize = 9;
const CALLS: u32 = 50_000;
const BATCHES: usize = 8;

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
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    calls(near.as_raw_fd());
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
    println!("{what} {}", best.as_nanos() as f64 / f64::from(CALLS));
}
