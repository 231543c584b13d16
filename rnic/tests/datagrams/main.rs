//! Queue pairs over UDP: datagrams to and from any program.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

#[path = "../common/mod.rs"]
mod common;

mod bundles;
mod drops;
mod exchange;
mod strangers;
mod unreliable;

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use common::{End, PATIENCE};
use rddp_rnic::{Access, Datagram, DatagramOptions, MemoryRegion, RecvWr, Transport};

/// Makes a queue pair over UDP that is bound to an address.
fn bound_to(addr: &str, options: DatagramOptions) -> End {
    let end = idle();
    end.qp.bind(addr.parse().unwrap(), &options).unwrap();
    end
}

fn bound() -> End {
    bound_to("127.0.0.1:0", DatagramOptions::default())
}

fn idle() -> End {
    End::with(|config| {
        config.transport = Transport::Udp;
        (config.max_send, config.max_recv) = (1024, 1024);
    })
}

fn addr_of(end: &End) -> SocketAddr {
    end.qp.local_addr().unwrap()
}

/// Makes a program's socket of the same family as that of an address.
fn program(like: SocketAddr) -> UdpSocket {
    let any = if like.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
    let socket = UdpSocket::bind(any).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Memory for datagrams of up to so many octets.
struct Inbox {
    region: MemoryRegion,
    room: usize,
}

impl Inbox {
    fn new(end: &End, receives: usize, longest: usize) -> Self {
        let room = Datagram::LEN + longest;
        Inbox { region: end.region(receives * room, Access::LOCAL_WRITE), room }
    }

    fn receive(&self, slot: usize) -> RecvWr {
        RecvWr::one(slot as u64, self.region.sge(slot * self.room..(slot + 1) * self.room))
    }

    fn post(&self, end: &End, slots: std::ops::Range<usize>) {
        slots.for_each(|slot| end.qp.post_recv(self.receive(slot)).unwrap());
    }

    /// Returns what a receive has got: the source, and the message.
    fn message(&self, slot: u64, len: u32) -> (Datagram, Vec<u8>) {
        let octets = self.region.read(slot as usize * self.room, len as usize).unwrap();
        let (front, message) = octets.split_first_chunk().unwrap();
        let datagram = Datagram::parse(front).unwrap();
        assert_eq!(Datagram::source(&octets), Some(datagram.source));
        (datagram, message.to_vec())
    }

    /// Returns the next message, which is to be in this receive.
    fn next(&self, end: &End, slot: usize) -> (Datagram, Vec<u8>) {
        let done = end.success();
        assert_eq!(done.wr_id, slot as u64);
        self.message(done.wr_id, done.byte_len)
    }
}

/// Time in which whoever would do something wrong has done it.
const MOMENT: Duration = Duration::from_millis(50);
