//! The engine under test, connected to a peer that sends whatever a test asks for.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use rddp_ddp::Stag;
use rddp_mpa::StartupConfig;
use rddp_rdmap::{AtomicOp, AtomicRequestRepr, ReadRequestRepr};
use rddp_rnic::{ConnectOptions, Connected, MemoryRegion, Remote};
use rddp_test_support::{Peer, connect, plain, segment};

use super::device::needs_software;
use super::{End, PATIENCE};

/// The role of the engine under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The engine connects, the raw peer listens.
    Active,
    /// The engine listens, the raw peer connects.
    Passive,
}

pub const BOTH: [Role; 2] = [Role::Active, Role::Passive];

/// Returns the engine's settings towards a raw peer: no RTR and no nudge, so that the peer gets
/// nothing that it did not ask for.
pub fn client_server() -> ConnectOptions {
    ConnectOptions { peer_to_peer: false, nudge: false, ..Default::default() }
}

/// Returns the engine's end and a raw peer, connected.
pub fn with_raw(role: Role, options: &ConnectOptions, startup: &StartupConfig) -> (End, Peer) {
    let end = End::new();
    let raw = connect_raw(role, &end, options, startup);
    (end, raw)
}

/// Returns the engine's end and a raw peer with the plainest settings, ready to send from either
/// side.
pub fn with_plain_raw(role: Role) -> (End, Peer) {
    let (end, mut raw) = with_raw(role, &client_server(), &plain());
    open_for(&mut raw, &end);
    (end, raw)
}

/// Connects the QP of `end` to a raw peer.
pub fn connect_raw(role: Role, end: &End, options: &ConnectOptions, startup: &StartupConfig) -> Peer {
    needs_software("a raw peer of TCP");
    match role {
        Role::Active => listen_for(end, options, startup).0,
        Role::Passive => connect_to(end, options, startup),
    }
}

/// Has the engine listen.
fn connect_to(end: &End, options: &ConnectOptions, startup: &StartupConfig) -> Peer {
    let listener = end.rnic.listen("127.0.0.1:0".parse().unwrap(), options).unwrap();
    let mut socket = connect(listener.local_addr().unwrap());
    let initiator = Peer::request(&mut socket, startup);
    let request = listener.accept(Some(PATIENCE)).unwrap().expect("no Request came");
    request.accept(&end.qp, &options.private_data).unwrap();
    Peer::after_request(socket, initiator)
}

/// Has the engine connect.
pub fn listen_for(end: &End, options: &ConnectOptions, startup: &StartupConfig) -> (Peer, Connected) {
    listen_on(&TcpListener::bind("127.0.0.1:0").unwrap(), end, options, startup)
}

/// Has the engine connect to this socket.
pub fn listen_on(
    listener: &TcpListener,
    end: &End,
    options: &ConnectOptions,
    startup: &StartupConfig,
) -> (Peer, Connected) {
    needs_software("a raw peer of TCP");
    let addr = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| end.qp.connect(addr, options).unwrap());
        let raw = Peer::responder(listener.accept().unwrap().0, startup);
        (raw, connecting.join().unwrap())
    })
}

/// Sends the raw peer's first FPDU and waits until the engine has it.
pub fn open_for(raw: &mut Peer, end: &End) {
    raw.open();
    let deadline = Instant::now() + PATIENCE;
    while end.qp.counters().fpdus_received == 0 {
        assert!(Instant::now() < deadline, "the first FPDU is not taken");
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Returns a Write to `offset` of a region of the engine's.
pub fn write_to(region: &MemoryRegion, offset: usize, payload: &[u8]) -> Vec<u8> {
    let remote = region.remote(offset);
    segment::write(remote.stag, remote.to, true, payload)
}

/// Returns a Read of `size` octets of a region of the engine's, to a sink that does not matter.
pub fn read_from(msn: u32, region: &MemoryRegion, size: u32) -> Vec<u8> {
    let (sink_stag, sink_to) = (Stag(0x0a0b_0c0d), 0x2000);
    let Remote { stag: src_stag, to: src_to } = region.remote(0);
    segment::read(msn, &ReadRequestRepr { sink_stag, sink_to, size, src_stag, src_to })
}

/// Returns a FetchAdd on the first word of a region of the engine's.
pub fn fetch_add(msn: u32, region: &MemoryRegion, add: u64) -> Vec<u8> {
    let (op, target) = (AtomicOp::FetchAdd { add, mask: 0 }, region.remote(0));
    segment::atomic(msn, &AtomicRequestRepr { op, request_id: msn, stag: target.stag, to: target.to })
}
