//! Two QPs in one thread, each the other's peer, over any of the wires.

use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rddp_rnic::{
    Access, Completion, CompletionQueue, ConnectOptions, Datagram, DatagramOptions, MemoryRegion, QpConfig,
    QueuePair, RecvWr, Rnic, SendWr, Status, Transport,
};

use crate::Wire;
use crate::end::{negotiated, tcp_pair};
use crate::frozen::freeze;

/// Number of requests that a queue holds.
const DEPTH: usize = 256;

/// Time limit of a startup, and of octets on their way.
const PATIENCE: Duration = Duration::from_secs(10);

/// Place of messages in their memory. Some processors of AMD copy several times more slowly if the
/// source begins a page and the target is a few octets behind the begin of one, as what follows a
/// record's length.
const FROM: usize = 2048;

/// Two ends of a connection, or of two UDP sockets, of a device whose background thread does
/// nothing.
#[derive(Debug)]
pub struct Pair {
    near: Half,
    far: Half,
    source: MemoryRegion,
    target: MemoryRegion,
    transport: Transport,
    /// A second handle to the far socket, to look whether octets have come.
    incoming: Incoming,
    polled: Vec<Completion>,
}

#[derive(Debug)]
struct Half {
    cq: CompletionQueue,
    qp: QueuePair,
}

#[derive(Debug)]
enum Incoming {
    Tcp(TcpStream),
    Udp(std::net::UdpSocket),
}

impl Pair {
    /// Connects two ends, for messages of up to `len` octets, with a constant size of TCP's
    /// segments: that of loopback doubles when TCP has found its window. iWARP has its CRC.
    ///
    /// # Panics
    /// As for [`over`](Self::over).
    #[must_use]
    pub fn new(transport: Transport, len: usize) -> Self {
        Self::over(transport, len, Wire::STEADY.mss)
    }

    /// Connects two ends as [`new`](Self::new) does, with TCP's segments limited to `mss`.
    ///
    /// # Panics
    /// If the system refuses what it takes.
    #[must_use]
    pub fn over(transport: Transport, len: usize, mss: Option<u32>) -> Self {
        let rnic = Rnic::open().expect("a device");
        let pd = rnic.alloc_pd();
        let half = || {
            let cq = rnic.create_cq(4 * DEPTH).expect("a completion queue");
            let config = QpConfig { transport, max_send: DEPTH, max_recv: DEPTH, ..QpConfig::new(&cq) };
            Half { qp: pd.create_qp(&config).expect("a QP"), cq }
        };
        let (near, far) = (half(), half());
        let incoming = connect(transport, mss, &near.qp, &far.qp);
        let front = if transport == Transport::Udp { Datagram::LEN } else { 0 };
        let source = pd.allocate(FROM + len, Access::LOCAL_WRITE).expect("a region");
        let target = pd.allocate(front + len, Access::LOCAL_WRITE).expect("a region");
        source.write(FROM, &crate::pattern(len)).expect("its own memory");
        freeze(&rnic);
        let polled = Vec::with_capacity(DEPTH);
        Pair { near, far, source, target, transport, incoming, polled }
    }

    /// Returns requests for so many messages, of which the last is signaled.
    #[must_use]
    pub fn messages(&self, count: usize) -> Vec<SendWr> {
        let gather = vec![self.source.sge(FROM..self.source.len())];
        let message = match self.far.qp.local_addr() {
            Some(to) if self.transport == Transport::Udp => SendWr::datagram(1, gather, to),
            _ => SendWr::send(1, gather),
        };
        let mut list = vec![message.unsignaled(); count];
        if let Some(last) = list.last_mut() {
            last.signaled = true;
        }
        list
    }

    /// Posts a receive for each of the messages, and then these.
    ///
    /// # Panics
    /// If a queue is full.
    pub fn send(&self, list: &[SendWr]) {
        for _ in list {
            let receive = RecvWr::one(2, self.target.whole());
            let receive = if self.transport == Transport::Tcp { receive.until_full() } else { receive };
            self.far.qp.post_recv(receive).expect("room for a receive");
        }
        self.near.qp.post_sends(list).expect("room in the send queue");
    }

    /// Polls both ends until so many messages have arrived, and their requests are complete.
    ///
    /// # Panics
    /// If one has failed.
    pub fn receive(&mut self, count: usize) {
        let mut left = [(&self.far, count), (&self.near, 1)];
        // By turns: a long message leaves in parts, as it arrives.
        while left.iter().any(|(_, left)| *left > 0) {
            for (half, left) in left.iter_mut().filter(|(_, left)| *left > 0) {
                self.polled.clear();
                *left -= half.cq.poll(*left, &mut self.polled);
                assert!(self.polled.iter().all(|done| done.status == Status::Success));
            }
        }
    }

    /// Waits until so many octets have come to the far end, or a datagram, without reading them.
    ///
    /// # Panics
    /// If none comes.
    pub fn await_octets(&self, count: usize) {
        let fd: BorrowedFd<'_> = match &self.incoming {
            Incoming::Tcp(stream) => stream.as_fd(),
            Incoming::Udp(socket) => socket.as_fd(),
        };
        let patience = PollTimeout::try_from(PATIENCE).expect("some seconds");
        let found = poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], patience);
        assert_eq!(found, Ok(1), "nothing has come");
        if let Incoming::Tcp(stream) = &self.incoming {
            let mut seen = vec![0; count];
            while !stream.peek(&mut seen).is_ok_and(|there| there == count) {
                std::thread::yield_now();
            }
        }
    }

    /// Returns the system calls so far: those that sent, and those that received.
    #[must_use]
    pub fn calls(&self) -> (u64, u64) {
        (self.near.qp.counters().send_calls, self.far.qp.counters().receive_calls)
    }

    /// Returns the octets that the near end has handed to the system so far.
    #[must_use]
    pub fn octets_sent(&self) -> u64 {
        self.near.qp.counters().octets_sent
    }
}

fn connect(transport: Transport, mss: Option<u32>, near: &QueuePair, far: &QueuePair) -> Incoming {
    if transport == Transport::Udp {
        let sockets = [near, far].map(|qp| {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a UDP socket");
            let second = socket.try_clone().expect("a second handle");
            qp.bind_to(socket, &DatagramOptions::default()).expect("an idle QP");
            second
        });
        let [_, far] = sockets;
        return Incoming::Udp(far);
    }
    let options = ConnectOptions { nudge: false, ..Default::default() };
    let (ours, peer) = tcp_pair(mss).expect("a TCP connection over loopback");
    let incoming = peer.try_clone().expect("a second handle");
    for (qp, stream, active) in [(near, ours, true), (far, peer, false)] {
        if transport == Transport::Iwarp {
            qp.attach(stream, negotiated(true), &options, active).expect("an idle QP");
        } else {
            qp.begin(stream, &options, active).expect("an idle QP");
            assert!(qp.await_begun(PATIENCE) && qp.begun().is_some_and(|begun| begun.is_ok()));
        }
    }
    Incoming::Tcp(incoming)
}
