//! One end of a connection, and the plain TCP socket that is its peer.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use rddp_ddp::Msn;
use rddp_mpa::Framer;
use rddp_rnic::{
    Access, Completion, CompletionQueue, ConnectOptions, MemoryRegion, Negotiated, ProtectionDomain,
    QpConfig, QueuePair, RecvWr, Revision, Rnic, Status,
};
use socket2::{Domain, Socket, Type};

use crate::frozen::frozen_rnic;
use crate::{fpdus, send_segment};

/// A QP in Full Operation whose peer is a socket in the same thread: octets move only in the calls
/// that the bench makes.
#[derive(Debug)]
pub struct End {
    /// The protection domain.
    pub pd: ProtectionDomain,
    /// Registered memory, which the peer may Read and Write.
    pub region: MemoryRegion,
    /// The completion queue of both directions.
    pub cq: CompletionQueue,
    /// The QP, free to send.
    pub qp: QueuePair,
    /// A second handle to the QP's socket, to look whether octets have come.
    incoming: TcpStream,
    peer: TcpStream,
    framer: Framer,
    next_msn: Msn,
    /// Octets of the QP's that the peer has read.
    drained: Cell<u64>,
}

/// The parameters of an end's connection.
#[derive(Clone, Copy, Debug)]
pub struct Wire {
    /// True if FPDUs have a CRC.
    pub crc: bool,
    /// Limit of TCP's segment size, if not that of loopback. TCP's own options are part of it.
    pub mss: Option<u32>,
}

impl Wire {
    /// With CRC, over loopback as it is.
    pub const CRC: Self = Wire { crc: true, mss: None };
    /// Without CRC, over loopback as it is.
    pub const PLAIN: Self = Wire { crc: false, mss: None };
    /// Without CRC, in large segments of constant size: that of loopback doubles when
    /// TCP has found its window.
    pub const STEADY: Self = Wire { crc: false, mss: Some(32_000) };
    /// Without CRC, in segments as on Ethernet.
    pub const ETHERNET: Self = Wire { crc: false, mss: Some(1460) };
}

/// Number of requests that a queue of the QP holds.
const DEPTH: usize = 256;

/// Number of octets of the registered memory.
const REGION: usize = 1 << 20;

impl End {
    /// Makes the only QP of a device whose background thread does nothing.
    #[must_use]
    pub fn new(wire: Wire) -> Self {
        Self::of(&frozen_rnic(), wire)
    }

    pub(crate) fn of(rnic: &Rnic, wire: Wire) -> Self {
        let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(4 * DEPTH).expect("a completion queue"));
        let config = QpConfig { max_send: DEPTH, max_recv: DEPTH, ..QpConfig::new(&cq) };
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let region = pd.allocate(REGION, access).expect("a region");
        let qp = pd.create_qp(&config).expect("a QP");
        let (ours, peer) = tcp_pair(wire.mss).expect("a TCP connection over loopback");
        let incoming = ours.try_clone().expect("a second handle");
        let negotiated = negotiated(wire.crc);
        let framer = Framer::new(negotiated.rx());
        let options = ConnectOptions { nudge: false, ..Default::default() };
        qp.attach(ours, negotiated, &options, true).expect("an idle QP");
        End { pd, region, cq, qp, incoming, peer, framer, next_msn: Msn::FIRST, drained: Cell::new(0) }
    }

    pub(crate) fn peer(&self) -> &TcpStream {
        &self.peer
    }

    /// Posts `count` receives of `len` octets.
    pub fn post_receives(&self, count: usize, len: usize) {
        for id in 0..count as u64 {
            self.qp.post_recv(RecvWr::one(id, self.region.sge(0..len))).expect("room for a receive");
        }
    }

    /// Has the peer send `count` Sends at once. They have arrived when this returns,
    /// and nobody has read them.
    pub fn incoming_sends(&mut self, count: usize, payload_len: usize) {
        let segments: Vec<_> = (0..count).map(|_| send_segment(self.turn(), payload_len)).collect();
        self.incoming(segments.iter().map(Vec::as_slice));
    }

    fn turn(&mut self) -> Msn {
        let msn = self.next_msn;
        self.next_msn = msn.next();
        msn
    }

    /// Has the peer send these ULPDUs at once. They have arrived when this returns,
    /// and nobody has read them.
    pub fn incoming<'a>(&mut self, ulpdus: impl IntoIterator<Item = &'a [u8]>) {
        let mut stream = Vec::new();
        fpdus(&mut self.framer, ulpdus, &mut stream);
        self.peer.write_all(&stream).expect("the QP's end is open");
        self.await_octets(stream.len());
    }

    /// Waits until so many octets have arrived, without reading them, so that the
    /// bench finds all of them.
    fn await_octets(&self, count: usize) {
        let mut seen = vec![0; count];
        while !self.incoming.peek(&mut seen).is_ok_and(|there| there == count) {
            std::thread::yield_now();
        }
    }

    /// Has the peer read all that the QP has sent, and takes completions, so that the next
    /// operations find free queues.
    pub fn drain(&self) {
        self.peer_reads();
        while let Some(completion) = self.cq.poll_one() {
            assert_eq!(completion.status, Status::Success);
        }
    }

    /// Has the peer read all that the QP has sent.
    pub fn peer_reads(&self) {
        while self.qp.counters().octets_sent > self.drained.get() {
            let mut room = [0; 1 << 16];
            let count = (&self.peer).read(&mut room).expect("the QP's end is open");
            self.drained.set(self.drained.get() + count as u64);
        }
    }

    /// Returns the next completion, which is there or comes with octets that are.
    #[must_use]
    pub fn completion(&self) -> Completion {
        loop {
            if let Some(completion) = self.cq.poll_one() {
                assert_eq!(completion.status, Status::Success);
                return completion;
            }
        }
    }
}

/// Returns the QP's end of a new connection, and the peer's.
pub(crate) fn tcp_pair(mss: Option<u32>) -> std::io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let peer = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    if let Some(mss) = mss {
        peer.set_tcp_mss(mss)?;
    }
    peer.connect(&listener.local_addr()?.into())?;
    let (ours, _) = listener.accept()?;
    peer.set_tcp_nodelay(true)?;
    ours.set_nodelay(true)?;
    Ok((ours, peer.into()))
}

/// Returns the outcome of a startup without markers and RTR.
pub(crate) fn negotiated(crc: bool) -> Negotiated {
    Negotiated {
        revision: Revision::Two,
        enhanced: false,
        crc,
        markers_tx: false,
        markers_rx: false,
        ird: 32,
        ord: 32,
        rtr: None,
        large_fpdus: false,
        peer_ird: None,
        peer_ord: None,
    }
}
