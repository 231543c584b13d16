//! Memory that a program lends and that goes bad: a file that is cut short (SIGBUS), a range that
//! is unmapped (SIGSEGV). Only the connection that uses it ends.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "a test")]
#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

#[path = "../common/mod.rs"]
mod common;
mod memory;
mod own;
mod peers;

use std::time::{Duration, Instant};

use common::raw::{Role, client_server, connect_raw, open_for};
use common::{ALL, End, PATIENCE, connect_on};
use memory::{LEN, Lent};
use rddp_mpa::StartupConfig;
use rddp_rdmap::TerminateCode;
use rddp_rnic::{Access, ConnectOptions, QpConfig, RecvWr, SendWr, Status};
use rddp_test_support::{Peer, plain};

/// An engine with memory of a file, its raw peer, and another connection of the same device.
pub struct Scene {
    pub end: End,
    pub raw: Peer,
    pub lent: Lent,
    bystander: (End, End),
}

/// The way in which a connection checks and places payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Crc,
    NoCrc,
    PlaceBeforeCrc,
    /// The engine sends markers.
    Markers,
    /// The memory is said to be stable.
    Stable,
}

impl Scene {
    pub fn new(style: Style) -> Self {
        let crc = style != Style::NoCrc;
        let markers = style == Style::Markers;
        let place_before_crc = style == Style::PlaceBeforeCrc;
        let options = ConnectOptions { crc, place_before_crc, ..client_server() };
        let end = End::new();
        let mut raw = connect_raw(Role::Passive, &end, &options, &StartupConfig { crc, markers, ..plain() });
        open_for(&mut raw, &end);
        let bystander = (sibling(&end), End::new());
        let options = ConnectOptions::default();
        connect_on("127.0.0.1:0", &bystander.0, &bystander.1, &options, &options);
        let stable = Access::REMOTE_READ | Access::STABLE;
        let lent = Lent::new(&end.pd, if style == Style::Stable { stable } else { ALL });
        Scene { end, raw, lent, bystander }
    }

    /// Checks that the other connection goes on, with memory of the same kind.
    pub fn others_go_on(&self) {
        let (here, there) = &self.bystander;
        let (from, to) = (Lent::new(&here.pd, ALL), there.region(LEN, ALL));
        from.region.write(0, &[9; LEN]).unwrap();
        there.qp.post_recv(RecvWr::one(1, to.whole())).unwrap();
        here.qp.post_send(&SendWr::send(2, from.region.whole())).unwrap();
        assert_eq!((there.success().wr_id, here.success().wr_id), (1, 2));
        assert_eq!(to.read(0, LEN).unwrap(), [9; LEN]);
    }

    /// Checks that the peer gets a Terminate with this code, and that the other connection goes on.
    pub fn terminates(&mut self, code: u16) {
        assert_eq!(self.raw.terminate_code(), TerminateCode(code));
        self.others_go_on();
    }

    /// Checks that the request of this number fails because of its memory, that the peer is told of
    /// a failure at this end, and that the other connection goes on.
    pub fn fails_locally(&mut self, wr_id: u64) {
        let completion = self.end.next();
        assert_eq!((completion.wr_id, completion.status), (wr_id, Status::LocalProtection));
        self.terminates(0x0000);
    }

    /// Sends an FPDU in parts; each is sent when the engine has the one before. All but the first
    /// `good` octets of the memory go bad while the payload is being received straight into place.
    pub fn send_while_it_goes_bad(&mut self, ulpdu: &[u8], good: u64) {
        let frame = self.raw.frame(ulpdu);
        let before = self.end.qp.counters();
        for part in [0..2000, 2000..3000] {
            self.raw.octets(&frame[part.clone()]);
            let wanted = before.octets_received + part.end as u64;
            until(|| self.end.qp.counters().octets_received >= wanted);
        }
        assert!(self.end.qp.counters().octets_placed_directly > before.octets_placed_directly);
        self.lent.cut(good);
        self.raw.octets(&frame[3000..]);
    }
}

/// Makes another QP of the device, with a queue of its own.
fn sibling(end: &End) -> End {
    let cq = end.rnic.create_cq(64).unwrap();
    let qp = end.pd.create_qp(&QpConfig::new(&cq)).unwrap();
    End { rnic: end.rnic.clone(), pd: end.pd.clone(), cq, qp }
}

/// Waits for an effect of the background thread.
fn until(done: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "it does not come");
        std::thread::sleep(Duration::from_micros(100));
    }
}
