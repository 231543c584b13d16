//! The data connections of an RDMA session, under the loops of `rddp_load::rdma`.

mod active;
mod passive;

pub(super) use self::active::Active;
pub(super) use self::passive::Passive;

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::ops::Add;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;
use rddp_command::device::Choice;
use rddp_command::endpoint::{Agreed, cannot_wait, close, ended};
use rddp_command::failure::Failure;
use rddp_command::signals;
use rddp_load::FILL;
use rddp_load::rdma::{self, End, receive_id, single_id};
use rddp_rnic::{
    Access, Atomics, Completion, CompletionQueue, ConnectRequest, Gather, KernelCounts, KernelPlacement,
    MemoryRegion, Operation, QpConfig, QueuePair, RecvWr, RegionOptions, Rnic, RnicConfig, SendWr, Status,
};

use super::control::{Buffers, Placed, Setup};
use super::op::{Level, Wait};
use super::spin::{CHECK_EVERY, Spin, Wish};

/// Number of completions taken at once.
const POLLED: usize = 64;

/// The end of the private data of both ends where FPDUs may be longer than TCP segments. An older
/// server refuses a Request with it.
const LARGE_FPDUS: &[u8] = b"large FPDUs";

/// One end of one connection.
struct Lane {
    qp: QueuePair,
    /// Octets of the longest message that is sent inline.
    max_inline: usize,
    /// The memory that data is sent from.
    source: MemoryRegion,
    /// The memory that data arrives in: of a message, or more where the kernel places.
    target: MemoryRegion,
    /// Number of the lane, and of receives that have been posted.
    number: u16,
    receives: AtomicUsize,
}

impl Lane {
    fn buffers(&self) -> Buffers {
        Buffers { source: self.source.remote(0).into(), target: self.target.remote(0).into() }
    }

    /// Returns the next receive. Where the kernel places, each has a place of its own as long as
    /// there are any: of Sends into the same one, all but the last would be placed again.
    fn receive(&self, setup: &Setup) -> RecvWr {
        let places = match setup.placement {
            Level::User => 1,
            Level::Auto | Level::Kernel => self.target.len() / setup.size(),
        };
        let from = self.receives.fetch_add(1, Ordering::Relaxed) % places * setup.size();
        RecvWr::one(receive_id(self.number.into()), self.target.sge(from..from + setup.size()))
    }

    /// Returns the octets of a message, the last of them `mark`.
    fn marked(&self, mark: u8, setup: &Setup) -> Result<Gather, Failure> {
        if setup.size() <= self.max_inline {
            let mut octets = vec![FILL; setup.size()];
            octets[setup.size() - 1] = mark;
            return Ok(Gather::Inline(octets));
        }
        self.source.write(setup.size() - 1, &[mark])?;
        Ok(self.source.sge(0..setup.size()).into())
    }

    /// Returns whether the last octet of the target is `mark`.
    fn has_mark(&self, mark: u8, setup: &Setup) -> Result<bool, Failure> {
        let mut last = [0];
        self.target.read_into(setup.size() - 1, &mut last)?;
        Ok(last == [mark])
    }

    /// Returns a message of the bandwidth phase.
    fn message(&self, setup: &Setup) -> Gather {
        match setup.size() {
            size if size <= self.max_inline => Gather::Inline(vec![FILL; size]),
            size => self.source.sge(0..size).into(),
        }
    }
}

/// Opens a device; one whose kernel places, on the interface of the session's address, where the
/// session asks for that.
pub(super) fn open(setup: &Setup, device: &Choice) -> Result<Rnic, Failure> {
    if setup.placement == Level::User {
        return device.open();
    }
    setup.check_device(&device.open()?)?;
    let interface = setup.local.and_then(interface_of);
    let (name, is_loopback) = interface.ok_or_else(|| {
        Failure::usage("--placement: no interface has this end's address")
            .remedy("name the server by an address that is routed to an interface of this host")
    })?;
    // What comes by the loopback has been made here, and nobody has summed it.
    let kernel = KernelPlacement { interfaces: vec![name], trusted: is_loopback };
    let device = Some(RnicConfig::SOFTWARE.to_owned());
    let opened = Rnic::with_config(&RnicConfig { kernel: Some(kernel), device, ..Default::default() });
    opened.map_err(|error| Failure::failed(error.to_string()).remedy("rddp doctor says what is missing"))
}

/// Returns the interface that has an address, and whether it is the loopback.
fn interface_of(addr: IpAddr) -> Option<(String, bool)> {
    let has = |found: &InterfaceAddress| {
        let address = found.address?;
        Some(match addr {
            IpAddr::V4(addr) => address.as_sockaddr_in()?.ip() == addr,
            IpAddr::V6(addr) => address.as_sockaddr_in6()?.ip() == addr,
        })
    };
    let found = getifaddrs().ok()?.find(|found| has(found) == Some(true))?;
    Some((found.interface_name, found.flags.contains(InterfaceFlags::IFF_LOOPBACK)))
}

/// Returns whether a device cannot do what messages about a slice, and looks at memory, rely on.
pub(super) fn needs_sends(rnic: &Rnic) -> bool {
    let limits = rnic.capabilities();
    limits.immediate_len < 8 || !limits.data_in_order
}

/// One end of all connections.
struct Lanes {
    setup: Setup,
    rnic: Rnic,
    cq: CompletionQueue,
    list: Vec<Lane>,
    polled: Vec<Completion>,
    spin: Spin,
    /// Number of FPDUs received at the last look.
    received: u64,
    /// Number of turns of a passive end.
    turns: u64,
    /// The mark of a Write that this end waits for, which only memory shows.
    awaited: Option<u8>,
}

impl Lanes {
    /// Makes idle connections that hold `sends` requests, each with `receives` posted.
    fn new(setup: &Setup, rnic: &Rnic, sends: usize, receives: usize, wish: Wish) -> Result<Self, Failure> {
        setup.check_device(rnic)?;
        let (rnic, limits) = (rnic.clone(), rnic.capabilities());
        let cq = rnic.create_cq(usize::from(setup.qps) * (sends + receives))?;
        let pd = rnic.alloc_pd();
        let placement = setup.placement.into();
        let config = QpConfig { max_send: sends, max_recv: receives, placement, ..QpConfig::new(&cq) };
        let kernel = setup.placement != Level::User;
        let mut list = Vec::new();
        for number in 0..setup.qps {
            let own = if setup.stable { Access::STABLE } else { Access::LOCAL_WRITE };
            let source = pd.allocate(setup.size(), own | Access::REMOTE_READ)?;
            let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
            let options = RegionOptions { kernel, ..Default::default() };
            let target = pd.allocate_with(setup.target_len(), rights, &options)?;
            for region in [&source, &target] {
                rdma::fill(region)?;
            }
            let qp = pd.create_qp(&config)?;
            let max_inline = limits.max_inline;
            list.push(Lane { qp, max_inline, source, target, number, receives: AtomicUsize::new(0) });
        }
        let (polled, spin) = (Vec::with_capacity(POLLED), Spin::new(wish));
        let setup = setup.clone();
        let lanes = Lanes { setup, rnic, cq, list, polled, spin, received: 0, turns: 0, awaited: None };
        for at in 0..lanes.list.len() {
            (0..receives).try_for_each(|_| lanes.post_receive(at))?;
        }
        Ok(lanes)
    }

    fn has_masks(&self) -> bool {
        self.rnic.capabilities().atomics == Atomics::Masked
    }

    fn buffers(&self) -> Vec<Buffers> {
        self.list.iter().map(Lane::buffers).collect()
    }

    /// Connects all connections, and returns the outcome of the startup.
    fn connect(&self, addr: SocketAddr, session: u64) -> Result<Agreed, Failure> {
        let mut agreed = None;
        for (number, lane) in (0u16..).zip(&self.list) {
            let mut options = self.setup.options();
            let consent = if self.setup.large_fpdus { LARGE_FPDUS } else { b"" };
            options.private_data = [&session.to_be_bytes()[..], &number.to_be_bytes(), consent].concat();
            let connected = lane.qp.connect(addr, &options);
            let what = "the RDMA port of rddp perf server";
            let connected =
                connected.map_err(|error| Failure::connecting_by(&self.rnic, addr, &error, what))?;
            if self.setup.large_fpdus && connected.private_data == LARGE_FPDUS {
                lane.qp.send_large_fpdus();
            }
            agreed = Some(Agreed::of(&self.rnic, &connected));
        }
        agreed.ok_or_else(|| Failure::usage("no connections"))
    }

    /// Accepts one of the connections.
    fn accept(&self, number: u16, request: ConnectRequest) -> Result<(), Failure> {
        let failed = |why: String| Failure::peer(format!("a data connection: {why}"));
        let lane = self.list.get(usize::from(number)).ok_or_else(|| failed("no such number".into()))?;
        let mut options = self.setup.options();
        let agrees = self.setup.large_fpdus && request.private_data().ends_with(LARGE_FPDUS);
        if agrees {
            options.private_data = LARGE_FPDUS.to_vec();
        }
        request.accept_with(&lane.qp, &options).map_err(|error| failed(error.to_string()))?;
        if agrees {
            lane.qp.send_large_fpdus();
        }
        Ok(())
    }

    /// Returns whether octets of the peers have arrived since the last look: Reads and Writes
    /// complete nothing at the passive end.
    fn has_received(&mut self) -> bool {
        let received = self.list.iter().map(|lane| lane.qp.counters().fpdus_received).sum();
        let before = std::mem::replace(&mut self.received, received);
        if received != before {
            self.spin.reset();
        }
        received != before
    }

    /// Sleeps until there is a completion or the awaited mark, for a time after which signals are
    /// looked at. A Write completes nothing here, but this thread is woken to place it.
    fn sleep(&self) -> Result<(), Failure> {
        let has_mark = |mark| self.list[0].has_mark(mark, &self.setup).unwrap_or(true);
        match self.cq.wait_or(Some(signals::CHECK_INTERVAL), || self.awaited.is_some_and(has_mark)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => Err(cannot_wait(&error)),
            _ => Ok(()),
        }
    }

    /// Returns what the kernel has placed.
    fn placed(&self) -> Placed {
        let of = |counts: KernelCounts| Placed {
            octets: counts.octets,
            behind: counts.octets_behind,
            unseen: counts.octets_unseen,
            unaligned: counts.unaligned,
        };
        let all = self.list.iter().filter_map(|lane| lane.qp.kernel_counts());
        all.map(of).fold(Placed::default(), Add::add)
    }

    fn close(&self) {
        let qps: Vec<&QueuePair> = self.list.iter().map(|lane| &lane.qp).collect();
        close(&qps, &self.cq);
    }
}

impl End for Lanes {
    type Failure = Failure;

    fn qp(&self, at: usize) -> &QueuePair {
        &self.list[at].qp
    }

    fn post_receive(&self, at: usize) -> Result<(), Failure> {
        let lane = &self.list[at];
        Ok(lane.qp.post_recv(lane.receive(&self.setup))?)
    }

    fn poll(&mut self) -> Result<usize, Failure> {
        self.polled.clear();
        let count = self.cq.poll(POLLED, &mut self.polled);
        if count > 0 {
            self.spin.reset();
        }
        match self.polled.iter().find(|completion| completion.status != Status::Success) {
            None => Ok(count),
            Some(failed) => {
                signals::check()?;
                let lane = self.list.iter().find(|lane| lane.qp.num() == failed.qp).unwrap_or(&self.list[0]);
                Err(ended(&self.rnic, &lane.qp, failed.status))
            }
        }
    }

    fn polled(&self) -> &[Completion] {
        &self.polled
    }

    fn idle(&mut self) -> Result<(), Failure> {
        signals::check()?;
        let spins = match self.setup.wait {
            Wait::Poll => self.spin.turn()? || self.has_received(),
            Wait::Event => self.spin.check().map(|()| false)?,
        };
        if spins { Ok(()) } else { self.sleep() }
    }

    fn progressed(&mut self) {
        self.spin.reset();
    }

    fn turn(&mut self) -> Result<(), Failure> {
        self.turns += 1;
        if self.turns.is_multiple_of(CHECK_EVERY) { self.spin.check() } else { Ok(()) }
    }
}

/// Returns the mark of the next message. It is never the octet that buffers hold at the beginning.
fn next_mark(mark: u8) -> u8 {
    match mark.wrapping_add(1) {
        FILL => FILL + 1,
        next => next,
    }
}

/// Returns the requests of a marked message: a Write, and for ends that do not look at memory a
/// Send of one octet behind it, which wakes them.
fn marked_write(gather: Gather, remote: rddp_rnic::Remote, mark: u8, setup: &Setup) -> Vec<SendWr> {
    let write = SendWr::new(single_id(0), Operation::Write { gather, remote }).unsignaled();
    match setup.looks_at_memory() {
        true => vec![write],
        false => vec![write, SendWr::send_inline(single_id(0), &[mark]).unsignaled()],
    }
}

#[cfg(test)]
mod tests {
    use rddp_rnic::ConnectOptions;

    use super::*;

    /// A passive end completes nothing while it is Read from, and must not give up nevertheless.
    #[test]
    fn an_end_that_is_read_from_notices() {
        let setup = Setup::default();
        let [mut passive, mut active] = [Wish::Clients, Wish::Own]
            .map(|wish| Lanes::new(&setup, &Rnic::open().unwrap(), 8, 8, wish).unwrap());
        let options = ConnectOptions::default();
        let listener = passive.rnic.listen("127.0.0.1:0".parse().unwrap(), &options).unwrap();
        let addr = listener.local_addr().unwrap();
        std::thread::scope(|scope| {
            let connecting = scope.spawn(|| active.list[0].qp.connect(addr, &options).map(drop));
            let request = listener.accept(None).unwrap().unwrap();
            request.accept_with(&passive.list[0].qp, &options).unwrap();
            connecting.join().unwrap().unwrap();
        });
        let remote = passive.list[0].source.remote(0);
        let mut read = || {
            active.list[0]
                .qp
                .post_send(&SendWr::read(single_id(0), active.list[0].target.whole(), remote))
                .unwrap();
            while active.poll().unwrap() == 0 {}
        };
        read();
        assert!(passive.has_received());
        read();
        assert!(passive.has_received());
        while passive.has_received() {}
    }
}
