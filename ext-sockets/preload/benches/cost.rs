//! Cost of the library for sockets that are not in DDPMODE, in nanoseconds a call.
//! `cargo bench --package rddp-preload`
//!
//! The program starts itself twice, with `LD_PRELOAD` and without, and has both make short batches
//! of calls in turns, so that other load of the host hits both alike; and it starts both anew some
//! times. `benches/compare/run --sockets` puts the output into the docs, beside latency and
//! bandwidth.

use std::ffi::{OsStr, c_int, c_short, c_void};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

const STARTS: usize = 9;
const TURNS: usize = 150;
/// Calls of one kind in a turn.
const BATCH: u32 = 2000;

const CHILD: &str = "RDDP_BENCH_CHILD";

fn main() {
    if std::env::var_os(CHILD).is_some() {
        return obey();
    }
    let library = std::env::current_exe().unwrap().with_file_name("librddp_sockets.so");
    let starts: Vec<_> = (0..STARTS).map(|start| compare(library.as_os_str(), start)).collect();
    println!("{:<28}{:>9}{:>9}    more, at each start", "ns, medians", "without", "with");
    for (at, (what, _)) in CALLS.iter().enumerate() {
        let of_starts = |figure: fn(&Compared) -> f64| starts.iter().map(move |start| figure(&start[at]));
        let (without, with) = (median(of_starts(|one| one.without)), median(of_starts(|one| one.with)));
        let more: String = of_starts(|one| one.more).map(|more| format!("{more:>7.1}")).collect();
        println!("{what:<28}{without:>9.1}{with:>9.1} {more}");
    }
}

/// Medians of one kind of call over the turns of two processes.
struct Compared {
    without: f64,
    with: f64,
    more: f64,
}

fn compare(library: &OsStr, start: usize) -> Vec<Compared> {
    let mut bare = Process::start(None);
    let mut preloaded = Process::start(Some(library));
    let turn = |number: usize| {
        if (start + number).is_multiple_of(2) {
            let without = bare.turn();
            (without, preloaded.turn())
        } else {
            let with = preloaded.turn();
            (bare.turn(), with)
        }
    };
    let turns: Vec<_> = (0..TURNS).map(turn).collect();
    let of_call = |at: usize| Compared {
        without: median(turns.iter().map(|(without, _)| without[at])),
        with: median(turns.iter().map(|(_, with)| with[at])),
        more: median(turns.iter().map(|(without, with)| with[at] - without[at])),
    };
    (0..CALLS.len()).map(of_call).collect()
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A process that makes its calls when it is told to.
struct Process {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Process {
    fn start(library: Option<&OsStr>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(CHILD, "1").env_remove("LD_PRELOAD").envs(library.map(|library| ("LD_PRELOAD", library)));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (orders, answers) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Process { child, orders, answers }
    }

    /// Returns the nanoseconds of each of [`CALLS`].
    fn turn(&mut self) -> Vec<f64> {
        self.orders.as_mut().unwrap().write_all(b"\n").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.split_whitespace().map(|nanoseconds| nanoseconds.parse().unwrap()).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.orders = None;
        let ended = self.child.wait().unwrap();
        assert!(ended.success(), "{ended}");
    }
}

fn obey() {
    on_one_processor();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    // SAFETY: takes no pointer.
    let fixture = Fixture { fd: near.as_raw_fd(), set: unsafe { libc::epoll_create1(0) } };
    for order in std::io::stdin().lock().lines() {
        order.unwrap();
        let answer: String = CALLS.iter().map(|(_, call)| format!("{} ", batch(&fixture, *call))).collect();
        println!("{answer}");
    }
}

/// Binds the process to one processor: where threads wake each other is the scheduler's choice, and
/// differs more from run to run than anything here.
fn on_one_processor() {
    // SAFETY: a set of processors is plain octets, of which all zero is valid; the call only reads
    // it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

fn batch(fixture: &Fixture, call: Call) -> f64 {
    let start = Instant::now();
    for _ in 0..BATCH {
        std::hint::black_box(call(fixture));
    }
    start.elapsed().as_nanos() as f64 / f64::from(BATCH)
}

/// A connected socket that nothing arrives on, and an epoll set without sockets.
struct Fixture {
    fd: c_int,
    set: c_int,
}

type Call = fn(&Fixture) -> isize;

/// Calls that have nothing to do and return at once.
const CALLS: [(&str, Call); 8] = [
    ("recv, nothing there", |fixture| {
        let mut octet = 0u8;
        // SAFETY: there is room for one octet.
        unsafe { libc::recv(fixture.fd, (&raw mut octet).cast::<c_void>(), 1, libc::MSG_DONTWAIT) }
    }),
    ("write of 0 octets", |fixture| {
        let octet = 0u8;
        // SAFETY: no octet is read.
        unsafe { libc::write(fixture.fd, (&raw const octet).cast::<c_void>(), 0) }
    }),
    ("writev of no pieces", |fixture| {
        // SAFETY: no piece is read.
        unsafe { libc::writev(fixture.fd, std::ptr::null(), 0) }
    }),
    ("fcntl(F_GETFL)", |fixture| {
        // SAFETY: takes no pointer.
        unsafe { libc::fcntl(fixture.fd, libc::F_GETFL) as isize }
    }),
    ("getsockopt(SO_ERROR)", |fixture| {
        let (mut error, mut len) = (0, 4);
        let at: *mut c_int = &raw mut error;
        // SAFETY: there is room for an int, and for its length.
        unsafe {
            libc::getsockopt(fixture.fd, libc::SOL_SOCKET, libc::SO_ERROR, at.cast(), &raw mut len) as isize
        }
    }),
    ("close(-1)", |_| {
        // SAFETY: takes no pointer, and no descriptor is -1.
        unsafe { libc::close(-1) as isize }
    }),
    ("poll of one", |fixture| {
        let mut one = libc::pollfd { fd: fixture.fd, events: libc::POLLIN as c_short, revents: 0 };
        // SAFETY: one entry, which lives until the call returns.
        unsafe { libc::poll(&raw mut one, 1, 0) as isize }
    }),
    ("epoll_wait of none", |fixture| {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: there is room for one event.
        unsafe { libc::epoll_wait(fixture.set, &raw mut event, 1, 0) as isize }
    }),
];
