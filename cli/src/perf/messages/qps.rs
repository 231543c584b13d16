//! Queue pairs over plain TCP and UDP, and beside them one over plain TCP for numbers: all complete
//! into one queue.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::Duration;

use rddp_command::device::Choice;
use rddp_command::endpoint::{cannot_wait, close, ended};
use rddp_command::failure::Failure;
use rddp_command::signals;
use rddp_load::rdma::fill;
use rddp_rnic::{
    Access, Completed, Completion, CompletionQueue, ConnectError, Datagram, DatagramOptions, Gather,
    MemoryRegion, Operation, ProtectionDomain, QpConfig, QueuePair, RecordOptions, RecvWr, Rnic, SendWr,
    Status, Transport,
};

use super::{Link, PATIENCE, exchange_ports, local};
use crate::perf::control::{Phase, Setup};
use crate::perf::op::{Op, Wait};
use crate::perf::spin::{Spin, Wish};

/// Number of completions taken at once.
const POLLED: usize = 64;

/// Octets of a number that is told.
const NUMBER: usize = 8;

/// One end of one connection.
struct Lane {
    qp: QueuePair,
    receive: RecvWr,
    /// The requests of one call, of which the last is signaled.
    batch: Vec<SendWr>,
    outstanding: usize,
}

pub(super) struct Qps {
    setup: Setup,
    rnic: Rnic,
    cq: CompletionQueue,
    list: Vec<Lane>,
    beside: QueuePair,
    /// The number that arrives.
    number: MemoryRegion,
    told: Option<u64>,
    polled: Vec<Completion>,
    spin: Spin,
    arrived: u64,
    /// Memory that the requests name.
    _memory: [MemoryRegion; 2],
}

impl Qps {
    pub(super) fn new(
        setup: &Setup,
        list: Vec<TcpStream>,
        beside: TcpStream,
        wish: Wish,
    ) -> Result<Self, Failure> {
        let rnic = Choice::software().open()?;
        let (sends, receives) = (setup.depth() + 8, setup.window());
        let cq = rnic.create_cq((usize::from(setup.qps) + 1) * (sends + receives))?;
        let pd = rnic.alloc_pd();
        let transport = transport(setup.op);
        let records = RecordOptions { max_record: setup.size, ..RecordOptions::default() };
        let config =
            QpConfig { transport, records, max_send: sends, max_recv: receives, ..QpConfig::new(&cq) };
        let qps: Vec<_> = (0..setup.qps).map(|_| pd.create_qp(&config)).collect::<Result<_, _>>()?;
        let front = if transport == Transport::Udp { Datagram::LEN } else { 0 };
        let source = pd.allocate(setup.size(), Access::LOCAL_WRITE)?;
        let target = pd.allocate(front + setup.size(), Access::LOCAL_WRITE)?;
        fill(&source)?;
        fill(&target)?;
        let gather = match setup.size() {
            size if size <= rnic.capabilities().max_inline => Gather::Inline(vec![rddp_load::FILL; size]),
            _ => source.whole().into(),
        };
        let (beside, operations) = start(setup, &qps, list, beside, gather)?;
        let lane = |((qp, operation), at)| Lane {
            qp,
            receive: receive(transport, at, &target),
            batch: batch(at, &operation, setup.batch()),
            outstanding: 0,
        };
        let list: Vec<_> = qps.into_iter().zip(operations).zip(0..).map(lane).collect();
        let (beside, number) = start_beside(setup, &pd, &cq, beside)?;
        for lane in &list {
            (0..receives).try_for_each(|_| lane.qp.post_recv(lane.receive.clone()))?;
        }
        let setup = setup.clone();
        let (polled, spin) = (Vec::with_capacity(POLLED), Spin::new(wish));
        let _memory = [source, target];
        let (told, arrived) = Default::default();
        Ok(Qps { setup, rnic, cq, list, beside, number, told, polled, spin, arrived, _memory })
    }

    fn post_number(&self) -> Result<(), Failure> {
        Ok(self.beside.post_recv(number_receive(self.list.len(), &self.number))?)
    }

    /// Notes a completion.
    fn note(&mut self, completion: &Completion) -> Result<(), Failure> {
        let at = (completion.wr_id & 0xffff_ffff) as usize;
        let receives = completion.completed == Completed::Receive;
        let is_foreign = completion.status == Status::MessageTooLong && self.setup.op == Op::QpUdp;
        let qp = self.list.get(at).map_or(&self.beside, |lane| &lane.qp);
        if completion.status != Status::Success && !(receives && is_foreign) {
            signals::check()?;
            return Err(ended(&self.rnic, qp, completion.status));
        }
        match self.list.get_mut(at) {
            None if receives => {
                let mut octets = [0; NUMBER];
                self.number.read_into(0, &mut octets)?;
                self.told = Some(u64::from_be_bytes(octets));
                self.post_number()
            }
            None => Ok(()),
            Some(lane) if receives => {
                self.arrived += u64::from(!is_foreign);
                Ok(lane.qp.post_recv(lane.receive.clone())?)
            }
            Some(lane) => {
                lane.outstanding -= (completion.wr_id >> 32) as usize;
                Ok(())
            }
        }
    }
}

impl Link for Qps {
    fn begin(&mut self, _phase: Phase) {}

    fn send(&mut self, most: u64) -> Result<u64, Failure> {
        let mut sent = 0;
        for lane in &mut self.list {
            let count = lane.batch.len().min(usize::try_from(most - sent).unwrap_or(usize::MAX));
            if count > 0 && lane.outstanding + count <= self.setup.depth() {
                lane.post(count)?;
                sent += count as u64;
            }
        }
        Ok(sent)
    }

    fn send_one(&mut self) -> Result<(), Failure> {
        self.list[0].post(1)
    }

    fn poll(&mut self) -> Result<bool, Failure> {
        let mut polled = std::mem::take(&mut self.polled);
        polled.clear();
        let count = self.cq.poll(POLLED, &mut polled);
        if count > 0 {
            self.spin.reset();
        }
        let noted = polled.iter().try_for_each(|completion| self.note(completion));
        self.polled = polled;
        noted.map(|()| count > 0)
    }

    fn arrived(&self) -> u64 {
        self.arrived
    }

    fn has_sent(&self) -> bool {
        self.list.iter().all(|lane| lane.outstanding == 0)
    }

    fn tell(&mut self, number: u64) -> Result<(), Failure> {
        let id = self.list.len() as u64;
        Ok(self.beside.post_send(&SendWr::send_inline(id, &number.to_be_bytes()).unsignaled())?)
    }

    fn told(&mut self) -> Result<Option<u64>, Failure> {
        Ok(self.told.take())
    }

    fn idle(&mut self, most: Duration) -> Result<(), Failure> {
        signals::check()?;
        let spins = match self.setup.wait {
            Wait::Poll => self.spin.turn()?,
            Wait::Event => self.spin.check().map(|()| false)?,
        };
        if spins {
            return Ok(());
        }
        match self.cq.wait_or(Some(most), || false) {
            Err(error) if error.kind() != ErrorKind::Interrupted => Err(cannot_wait(&error)),
            _ => Ok(()),
        }
    }

    fn spin(&mut self) -> &mut Spin {
        &mut self.spin
    }

    fn close(&self) {
        let qps: Vec<_> = self.list.iter().map(|lane| &lane.qp).chain([&self.beside]).collect();
        close(&qps, &self.cq);
    }
}

impl Lane {
    /// Posts the first requests of a batch.
    fn post(&mut self, count: usize) -> Result<(), Failure> {
        if count == self.batch.len() {
            self.qp.post_sends(&self.batch).map_err(|refused| refused.error)?;
        } else {
            let last = &self.batch[self.batch.len() - 1];
            let at = last.wr_id & 0xffff_ffff;
            let part = batch(at as usize, &last.operation, count);
            self.qp.post_sends(&part).map_err(|refused| refused.error)?;
        }
        self.outstanding += count;
        Ok(())
    }
}

fn transport(op: Op) -> Transport {
    match op {
        Op::QpUdp => Transport::Udp,
        Op::QpRecord => Transport::Record,
        _ => Transport::Tcp,
    }
}

/// Has the QPs begin; returns the connection beside them, and the message of each.
fn start(
    setup: &Setup,
    qps: &[QueuePair],
    list: Vec<TcpStream>,
    beside: TcpStream,
    gather: Gather,
) -> Result<(TcpStream, Vec<Operation>), Failure> {
    if transport(setup.op) == Transport::Udp {
        let addr = local(&beside)?;
        // Messages that the path does not take whole are cut, as those of a plain socket are.
        let options = DatagramOptions { fragment: true, ..DatagramOptions::default() };
        for qp in qps {
            let bound = qp.bind(addr, &options);
            bound.map_err(|error| Failure::failed(format!("a UDP queue pair: {error}")))?;
        }
        let ports: Vec<_> = qps.iter().map(|qp| qp.local_addr().map_or(0, |addr| addr.port())).collect();
        let (beside, peers) = exchange_ports(beside, &ports)?;
        let datagram = |to| Operation::Datagram { gather: gather.clone(), to };
        return Ok((beside, peers.into_iter().map(datagram).collect()));
    }
    for (qp, stream) in qps.iter().zip(list) {
        begin(setup, qp, stream)?;
    }
    let send = Operation::Send { gather, invalidate: None };
    Ok((beside, vec![send; qps.len()]))
}

/// Makes the QP for numbers.
fn start_beside(
    setup: &Setup,
    pd: &ProtectionDomain,
    cq: &CompletionQueue,
    stream: TcpStream,
) -> Result<(QueuePair, MemoryRegion), Failure> {
    let qp = pd.create_qp(&QpConfig { transport: Transport::Tcp, ..QpConfig::new(cq) })?;
    let number = pd.allocate(NUMBER, Access::LOCAL_WRITE)?;
    begin(setup, &qp, stream)?;
    qp.post_recv(number_receive(usize::from(setup.qps), &number))?;
    Ok((qp, number))
}

/// Has a QP take over a connection.
fn begin(setup: &Setup, qp: &QueuePair, stream: TcpStream) -> Result<(), Failure> {
    let failed = |error: ConnectError| Failure::peer(format!("a data connection: {error}"));
    qp.begin(stream, &setup.options(), true).map_err(failed)?;
    qp.await_begun(PATIENCE);
    match qp.begun() {
        Some(begun) => begun.map(drop).map_err(failed),
        None => Err(Failure::peer("a data connection has not begun in time")),
    }
}

fn number_receive(at: usize, number: &MemoryRegion) -> RecvWr {
    RecvWr::one(at as u64, number.whole()).until_full()
}

fn receive(transport: Transport, at: usize, target: &MemoryRegion) -> RecvWr {
    let receive = RecvWr::one(at as u64, target.whole());
    if transport == Transport::Tcp { receive.until_full() } else { receive }
}

/// Returns the requests of a call. The id of the last, which is signaled, has their number in its
/// upper half.
fn batch(at: usize, operation: &Operation, count: usize) -> Vec<SendWr> {
    let id = at as u64 | (count as u64) << 32;
    let mut list = vec![SendWr::new(id, operation.clone()).unsignaled(); count];
    if let Some(last) = list.last_mut() {
        last.signaled = true;
    }
    list
}
