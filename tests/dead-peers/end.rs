//! `dead-peers`: both ends of tests/dead-peers/run.
//!
//! `dead-peers server ADDRESS` accepts all that come, and has memory that they may read and write.
//! `dead-peers client ADDRESS DEAF` connects a QP for each thing that a connection may be about: to
//! be idle, to send, to read once, and to read on and on; and one that has its user timeout only
//! once it is connected. One more has a server of its own, DEAF, which takes nothing while its
//! process is stopped. The client does what standard input says (`fill`, `ask`), and tells which
//! connections it has lost.
#![allow(missing_docs, reason = "a program of its own")]

use std::io::BufRead;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rddp_rnic::{
    Access, CompletionQueue, ConnectOptions, Keepalive, MemoryRegion, PortMapper, QpConfig, QpState,
    QueuePair, RecvWr, Remote, Rnic, SendWr, Stag, Status,
};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Octets of each Write and Read, and of the memory.
const SIZE: usize = 1 << 20;

/// Writes to the peer that takes nothing: more than the kernels keep for it.
const WRITES: u64 = 64;

/// Time without an octet sent after which TCP is full.
const STANDSTILL: Duration = Duration::from_secs(1);

/// The time after which a connection that is cut is noticed.
const LIMIT: Duration = Duration::from_secs(4);

/// Options of connections with that limit.
fn options() -> ConnectOptions {
    let second = Duration::from_secs(1);
    ConnectOptions {
        keepalive: Some(Keepalive { idle: second, interval: second, probes: 3 }),
        port_mapper: PortMapper::Off,
        ..Default::default()
    }
}

fn main() -> Outcome<()> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server", addr] => serve(addr.parse()?),
        ["client", addr, deaf] => ask(addr.parse()?, deaf.parse()?),
        _ => Err("usage: dead-peers server ADDRESS | client ADDRESS DEAF".into()),
    }
}

fn serve(addr: SocketAddr) -> Outcome<()> {
    let (rnic, mut ends) = (Rnic::open()?, Vec::new());
    let listener = rnic.listen(addr, &options())?;
    println!("listening");
    loop {
        if let Some(request) = listener.accept(Some(Duration::from_millis(50)))? {
            let end = End::new(&rnic, "one")?;
            end.qp.post_recv(RecvWr::one(0, end.memory.whole()))?;
            let Remote { stag, to } = end.memory.remote(0);
            let advert = [&stag.0.to_be_bytes()[..], &to.to_be_bytes()].concat();
            request.accept(&end.qp, &advert)?;
            ends.push(end);
        }
        ends.iter_mut().for_each(End::tell);
    }
}

fn ask(addr: SocketAddr, deaf: SocketAddr) -> Outcome<()> {
    let rnic = Rnic::open()?;
    let connect = |name, addr| {
        let end = End::new(&rnic, name)?;
        let late = name == "late";
        let user_timeout = late.then_some(Duration::from_secs(3600));
        let advert = end.qp.connect(addr, &ConnectOptions { user_timeout, ..options() })?.private_data;
        if late && !end.qp.set_user_timeout(LIMIT) {
            return Err("it is connected".into());
        }
        let (stag, to) = advert.split_first_chunk().ok_or("no advertisement")?;
        Ok((end, Remote { stag: Stag(u32::from_be_bytes(*stag)), to: u64::from_be_bytes(to.try_into()?) }))
    };
    let all: Outcome<Vec<_>> =
        ["idle", "send", "read", "get", "late"].map(|name| connect(name, addr)).into_iter().collect();
    let [(mut idle, _), (mut send, _), (mut read, from), (mut get, file), (mut late, _)] =
        <[_; 5]>::try_from(all?).map_err(|_| "five are five")?;
    let (mut full, to) = connect("full", deaf)?;
    let (mut gets, mut writes) = (0, 0);
    let orders = orders();
    get.qp.post_send(&SendWr::read(0, get.memory.whole(), file))?;
    loop {
        if get.succeeded()? {
            get.qp.post_send(&SendWr::read(0, get.memory.whole(), file))?;
            gets += 1;
            if gets == 10 {
                println!("ready");
            }
        }
        if full.succeeded()? {
            writes += 1;
            if writes == WRITES {
                println!("written");
            }
        }
        match orders.try_recv() {
            Ok(order) if order == "fill" => {
                for id in 0..WRITES {
                    full.qp.post_send(&SendWr::write(id, full.memory.whole(), to))?;
                }
                full.await_standstill();
                println!("full");
            }
            Ok(_) => {
                for end in [&send, &late] {
                    end.qp.post_send(&SendWr::send_inline(0, b"are you there?"))?;
                }
                read.qp.post_send(&SendWr::read(0, read.memory.sge(0..64), from))?;
            }
            Err(mpsc::TryRecvError::Empty) => std::thread::sleep(Duration::from_millis(1)),
            Err(mpsc::TryRecvError::Disconnected) => return Ok(()),
        }
        [&mut idle, &mut send, &mut read, &mut get, &mut late, &mut full].into_iter().for_each(End::tell);
    }
}

/// Returns the lines of standard input.
fn orders() -> mpsc::Receiver<String> {
    let (tell, orders) = mpsc::channel();
    std::thread::spawn(move || {
        std::io::stdin().lock().lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
    });
    orders
}

/// A queue pair and all that it needs.
struct End {
    name: &'static str,
    cq: CompletionQueue,
    memory: MemoryRegion,
    qp: QueuePair,
    told: bool,
}

impl End {
    fn new(rnic: &Rnic, name: &'static str) -> Outcome<Self> {
        let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(256)?);
        let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let (memory, qp) = (pd.allocate(SIZE, rights)?, pd.create_qp(&QpConfig::new(&cq))?);
        Ok(End { name, cq, memory, qp, told: false })
    }

    /// Returns whether a request has completed. One of a lost connection is none that has.
    fn succeeded(&self) -> Outcome<bool> {
        match self.cq.poll_one().map(|completion| completion.status) {
            Some(Status::Success) => Ok(true),
            None | Some(Status::Flushed) => Ok(false),
            Some(status) => Err(format!("{}: {status}", self.name).into()),
        }
    }

    /// Tells, once, that the connection is lost.
    fn tell(&mut self) {
        if self.qp.state() != QpState::ReadyToSend && !std::mem::replace(&mut self.told, true) {
            println!("lost {}", self.name);
        }
    }

    /// Waits until TCP takes no more.
    fn await_standstill(&self) {
        let (mut sent, mut since) = (0, Instant::now());
        while since.elapsed() < STANDSTILL {
            let now = self.qp.counters().octets_sent;
            if std::mem::replace(&mut sent, now) != now {
                since = Instant::now();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
