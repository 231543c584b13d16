//! Binding a queue pair over UDP to an address.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::socket::{DeviceSocket, check_udp};
use crate::error::ConnectError;
use crate::qp::QueuePair;
use crate::queues::options::DatagramOptions;
use crate::sys::stay_plain;

impl QueuePair {
    /// Binds an idle QP over UDP to a local address (port 0: any), which makes it ready to send. A
    /// QP that is bound to an address of IPv6 sends to addresses of IPv4, too, where the system
    /// maps those.
    ///
    /// # Errors
    /// The QP is not idle or not one over UDP, or the system refuses the address.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rddp_rnic::{Access, Datagram, DatagramOptions, QpConfig, RecvWr, Rnic, SendWr, Transport};
    /// let rnic = Rnic::open()?;
    /// let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(16)?);
    /// let qp = pd.create_qp(&QpConfig { transport: Transport::Udp, ..QpConfig::new(&cq) })?;
    /// qp.bind("127.0.0.1:0".parse()?, &DatagramOptions::default())?;
    /// let addr = qp.local_addr().ok_or("not bound")?;
    ///
    /// let inbox = pd.allocate(Datagram::LEN + 64, Access::LOCAL_WRITE)?;
    /// qp.post_recv(RecvWr::one(1, inbox.whole()))?;
    /// let peer = std::net::UdpSocket::bind("127.0.0.1:0")?;
    /// peer.send_to(b"hello", addr)?;
    /// assert!(cq.wait(Some(Duration::from_secs(5)))?);
    /// let received = cq.poll_one().ok_or("no completion")?;
    /// let octets = inbox.read(0, received.byte_len as usize)?;
    /// assert_eq!(&octets[Datagram::LEN..], b"hello");
    /// let source = Datagram::source(&octets).ok_or("no source")?;
    /// qp.post_send(&SendWr::datagram(2, vec![inbox.sge(Datagram::LEN..octets.len())], source))?;
    /// assert_eq!(peer.recv(&mut [0; 64])?, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bind(&self, addr: SocketAddr, options: &DatagramOptions) -> Result<(), ConnectError> {
        let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
        socket.bind(&SockAddr::from(addr))?;
        self.bind_as(socket, options)
    }

    /// Makes an idle QP ready to send on a UDP socket that the program has made and bound, as
    /// [`bind`](Self::bind) does. Some of the socket's options change: it becomes non-blocking,
    /// reports errors, and takes bundles.
    ///
    /// # Errors
    /// The QP is not idle or not one over UDP, or this is no UDP socket.
    pub fn bind_to(&self, socket: impl Into<OwnedFd>, options: &DatagramOptions) -> Result<(), ConnectError> {
        self.bind_as(socket.into().into(), options)
    }

    fn bind_as(&self, socket: Socket, options: &DatagramOptions) -> Result<(), ConnectError> {
        check_udp(&socket)?;
        stay_plain(socket.as_fd());
        let inner = self.inner.here()?;
        let _place = inner.claim()?;
        inner.bind(DeviceSocket::new(socket), options)
    }
}
