//! `nvme-host ADDRESS NQN`: a host of NVMe that does what `tests/block/kill` says.
//!
//! Each line of standard input is a command, in a slot that the caller knows to be free:
//! `write SLOT OFFSET FUA NUMBER` (a sector of that number, again and again), `read SLOT OFFSET`,
//! `flush SLOT`. A line of standard output is an answer: the slot, and for a read the octets in
//! hexadecimal. Ends with the connection, or with standard input.
#![allow(missing_docs, reason = "a program of its own")]

use std::fmt::Write as _;
use std::io::{self, BufRead, Write as _};
use std::net::SocketAddr;
use std::thread;

use rddp_block::export::Command;
use rddp_block::nvme::ADMIN_COMMANDS;
use rddp_block::nvme::capsule::{CQE_LEN, Cqe, Place};
use rddp_block::nvme::host::{Ask, Disk, Host, MEMORY_LEN, Memory, Next, Opening, private_data};
use rddp_rnic::{
    Access, Completed, CompletionQueue, ConnectOptions, MemoryRegion, QpConfig, QueuePair, RecvWr, Rnic,
    SendWr, Status,
};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Commands at a time.
const SLOTS: usize = 16;

/// Part of the number of a command that reads, beside twice its slot.
const READS: u64 = 1;

/// Octets of a sector, and of the memory of a slot.
const SECTOR: usize = 4096;

fn main() -> Outcome<()> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let [addr, nqn] = &args[..] else { return Err("usage: nvme-host ADDRESS NQN".into()) };
    let (addr, rnic) = (addr.parse()?, Rnic::open()?);
    let host = Host { nqn: "nqn.2026-11.rddp:test".into(), id: [7; 16] };
    let admin = Queue::connect(&rnic, addr, 0, ADMIN_COMMANDS, 0)?;
    let Next::Disk(disk) = admin.open(Opening::for_disk(host.clone(), nqn, 1, admin.memory()))? else {
        return Err("no disk".into());
    };
    let queue = Queue::connect(&rnic, addr, 1, disk.entries, disk.cntlid)?;
    queue.open(Opening::for_queue(host, nqn, disk, 1, queue.memory()))?;
    println!("connected");
    thread::scope(|scope| {
        scope.spawn(|| {
            let obeyed = queue.obey(&disk);
            queue.qp.disconnect();
            obeyed.unwrap_or_else(|error| eprintln!("nvme-host: {error}"));
        });
        let told = queue.tell();
        if let Err(error) = &told {
            eprintln!("nvme-host: {error}");
        }
        // The other thread may wait for a line that nobody writes any more.
        std::process::exit(told.is_err().into())
    })
}

/// A connection, and memory for its commands.
struct Queue {
    qp: QueuePair,
    cq: CompletionQueue,
    /// A place for each answer.
    inbox: MemoryRegion,
    /// A sector for each slot.
    sectors: MemoryRegion,
}

impl Queue {
    fn connect(rnic: &Rnic, addr: SocketAddr, qid: u16, entries: u16, cntlid: u16) -> Outcome<Self> {
        let (pd, entries_here) = (rnic.alloc_pd(), usize::from(entries));
        let cq = rnic.create_cq(2 * entries_here + 2)?;
        let mut config = QpConfig::new(&cq);
        (config.max_send, config.max_recv) = (entries_here + 1, entries_here);
        let qp = pd.create_qp(&config)?;
        let inbox = pd.allocate(entries_here * CQE_LEN, Access::LOCAL_WRITE)?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let sectors = pd.allocate(SLOTS * SECTOR, access)?;
        let queue = Queue { qp, cq, inbox, sectors };
        (0..entries_here).try_for_each(|place| queue.receive(place))?;
        let private_data = private_data(qid, entries, cntlid).emit().to_vec();
        queue.qp.connect(addr, &ConnectOptions { private_data, ..Default::default() })?;
        Ok(queue)
    }

    fn receive(&self, place: usize) -> Outcome<()> {
        let at = place * CQE_LEN;
        Ok(self.qp.post_recv(RecvWr::one(place as u64, self.inbox.sge(at..at + CQE_LEN)))?)
    }

    fn memory(&self) -> Memory {
        let remote = self.sectors.remote(0);
        Memory { address: remote.to, key: remote.stag.0 }
    }

    /// Waits for an answer; `None` if the connection has ended.
    fn answer(&self) -> Outcome<Option<Cqe>> {
        loop {
            let Some(completion) = self.cq.poll_one() else {
                self.cq.wait(None)?;
                continue;
            };
            match (completion.completed, completion.status) {
                (Completed::Receive, Status::Success) => {
                    let place = completion.wr_id as usize;
                    let mut octets = [0; CQE_LEN];
                    self.inbox.read_into(place * CQE_LEN, &mut octets)?;
                    self.receive(place)?;
                    return Ok(Some(Cqe::parse(&octets)));
                }
                (_, Status::Success) => {}
                _ => return Ok(None),
            }
        }
    }

    /// Has the commands behind a connection to their end.
    fn open(&self, mut opening: Opening) -> Outcome<Next> {
        let mut next = Next::Ask(opening.begin());
        while let Next::Ask(Ask { sqe, octets }) = next {
            self.sectors.write(0, &octets)?;
            self.qp.post_send(&SendWr::send_inline(0, &sqe.emit()))?;
            let cqe = self.answer()?.ok_or("the connection has ended")?;
            let mut found = [0; MEMORY_LEN];
            self.sectors.read_into(0, &mut found)?;
            next = opening.take(&cqe, &found)?;
        }
        Ok(next)
    }

    /// Sends the commands of standard input.
    fn obey(&self, disk: &Disk) -> Outcome<()> {
        for line in io::stdin().lock().lines() {
            let line = line?;
            let (word, numbers) = line.split_once(' ').ok_or("a command has a slot")?;
            let numbers = numbers.split(' ').map(str::parse).collect::<Result<Vec<u64>, _>>()?;
            let (len, offset) = (SECTOR as u32, numbers.get(1).copied().unwrap_or(0));
            let command = match (word, &numbers[..]) {
                ("write", [slot, _, fua, number]) => {
                    let octets = number.to_be_bytes().repeat(SECTOR / 8);
                    self.sectors.write(*slot as usize * SECTOR, &octets)?;
                    Command::Write { offset, len, fua: *fua != 0 }
                }
                ("read", [_, _]) => Command::Read { offset, len },
                ("flush", [_]) => Command::Flush,
                _ => return Err(format!("no command: {line}").into()),
            };
            let slot = numbers[0];
            let (place, cid) = match command {
                Command::Flush => (Place::NONE, slot * 2),
                Command::Read { .. } => (self.place(slot), slot * 2 + READS),
                _ => (self.place(slot), slot * 2),
            };
            let sqe = disk.command(cid as u16, &command, place).ok_or("no command for that")?;
            if self.qp.post_send(&SendWr::send_inline(0, &sqe.emit())).is_err() {
                break;
            }
        }
        Ok(())
    }

    fn place(&self, slot: u64) -> Place {
        let remote = self.sectors.remote(slot as usize * SECTOR);
        Place::Keyed { address: remote.to, len: SECTOR as u32, key: remote.stag.0, invalidate: false }
    }

    /// Prints answers until the connection has ended.
    fn tell(&self) -> Outcome<()> {
        while let Some(cqe) = self.answer()? {
            if !cqe.status.is_success() {
                return Err(format!("a command failed: {}", cqe.status).into());
            }
            let slot = usize::from(cqe.cid / 2);
            let mut line = slot.to_string();
            if u64::from(cqe.cid) % 2 == READS {
                line.push(' ');
                let octets = self.sectors.read(slot * SECTOR, SECTOR)?;
                octets.iter().try_for_each(|octet| write!(line, "{octet:02x}"))?;
            }
            writeln!(io::stdout(), "{line}")?;
        }
        Ok(())
    }
}
