//! Messages as RDMA Writes, each with a Send behind it.

use std::net::SocketAddr;

use rddp_rnic::{
    Access, Completed, CompletionQueue, ConnectOptions, KernelCounts, KernelPlacement, MemoryRegion,
    Placement, ProtectionDomain, QpConfig, QueuePair, RecvWr, RegionOptions, Remote, Rnic, RnicConfig,
    SendWr, Status,
};

use super::{LISTEN, PATIENCE, Times, stamp};
use crate::cell::now_ns;
use crate::path_test::tap::DEVICE;
use crate::spec::{Cell, Mode, Received};

/// Octets into which the messages go, one behind the other.
const TARGET: usize = 8 << 20;
/// Receives at each end.
const RECEIVES: u64 = 64;

struct End {
    rnic: Rnic,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair,
    /// Places for what the peer sends.
    received: MemoryRegion,
}

impl End {
    fn open(config: &RnicConfig, placement: Placement) -> Self {
        let rnic = Rnic::with_config(config).unwrap();
        let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(1024).unwrap());
        let qp = pd.create_qp(&QpConfig { placement, ..QpConfig::new(&cq) }).unwrap();
        let received = pd.allocate(8 * RECEIVES as usize, Access::LOCAL_WRITE).unwrap();
        let end = Self { rnic, pd, cq, qp, received };
        (0..RECEIVES).for_each(|id| end.post(id));
        end
    }

    fn post(&self, id: u64) {
        let place = 8 * id as usize;
        self.qp.post_recv(RecvWr::new(id, self.received.sge(place..place + 8))).unwrap();
    }

    /// Waits for the peer's next message, and returns its number.
    fn receive(&self) -> u64 {
        loop {
            assert!(self.cq.wait(Some(PATIENCE)).unwrap(), "nothing came");
            let Some(completion) = self.cq.poll_one() else { continue };
            assert_eq!(completion.status, Status::Success, "{completion:?}");
            if completion.completed == Completed::Receive {
                let number = self.received.read_u64(8 * completion.wr_id as usize).unwrap();
                self.post(completion.wr_id);
                return number;
            }
        }
    }

    fn say(&self, number: u64) {
        self.qp.post_send(&SendWr::send_inline(0, &number.to_ne_bytes()).unsignaled()).unwrap();
    }
}

pub(crate) fn receive(cell: &Cell) -> Received {
    let placement = match cell.mode {
        Mode::Auto => Placement::Auto,
        Mode::Kernel => Placement::Kernel,
        Mode::User | Mode::Tcp => Placement::User,
    };
    let kernel = KernelPlacement { interfaces: vec![DEVICE.into()], trusted: false };
    let kernel = (placement != Placement::User).then_some(kernel);
    let end = End::open(&RnicConfig { kernel, ..Default::default() }, placement);
    let options = RegionOptions { kernel: placement != Placement::User, ..Default::default() };
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let target = end.pd.allocate_with(TARGET, access, &options).unwrap();
    (0..TARGET).step_by(4096).for_each(|at| target.write(at, &[1]).unwrap());

    let listener = end.rnic.listen(LISTEN.parse().unwrap(), &ConnectOptions::default()).unwrap();
    println!("{}", listener.local_addr().unwrap());
    let request = listener.accept(Some(PATIENCE)).unwrap().expect("nobody came");
    request.accept(&end.qp, &target.remote(0).to_octets()).unwrap();
    let mut times = Times::begin();
    loop {
        match end.receive() {
            0 => break,
            sent => times.note(sent),
        }
        end.say(1);
    }
    let counts: KernelCounts = end.qp.kernel_counts().unwrap_or_default();
    Received {
        kernel_segments: counts.segments,
        kernel_placed: counts.placed,
        kernel_confirmed: counts.confirmed,
        kernel_octets_behind: counts.octets_behind,
        ..times.result()
    }
}

pub(crate) fn send(cell: &Cell, addr: SocketAddr) {
    let end = End::open(&RnicConfig::default(), Placement::User);
    let reply = end.qp.connect(addr, &ConnectOptions::default()).unwrap();
    let target = Remote::from_octets(reply.private_data.first_chunk().unwrap());
    let source = end.pd.allocate(cell.message, Access::LOCAL_WRITE).unwrap();
    source.write(0, &vec![7; cell.message]).unwrap();
    let (began, mut sent) = (now_ns(), 0);
    loop {
        if sent >= cell.depth as u64 {
            end.receive();
        }
        let time = stamp(cell, began, sent);
        if time != 0 {
            let place = (sent as usize % 8) << 20;
            let write = SendWr::write(0, source.whole(), target.at(place as u64));
            end.qp.post_send(&write.unsignaled()).unwrap();
        }
        end.say(time);
        if time == 0 {
            break;
        }
        sent += 1;
    }
    // The receiver ends the connection.
    while end.cq.wait(Some(PATIENCE)).unwrap() {
        if end.cq.poll_one().is_some_and(|completion| completion.status != Status::Success) {
            break;
        }
    }
}
