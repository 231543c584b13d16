//! Requests that have come to a listener, for the program to accept or reject (RFC 5044 §7.1.2).

use std::net::SocketAddr;
use std::sync::Arc;

use rddp_mpa::Negotiated;
use rddp_rdma::ConnectOptions;
use rddp_verbs_device as verbs;

use super::peer_count::Counted;
use super::socket::{DeviceSocket, control_congestion};
use crate::device::DeviceInner;
use crate::error::ConnectError;
use crate::home::Home;
use crate::qp::QueuePair;
use crate::trace;
use crate::wire::opening::Asked;

/// A peer's request to be connected. The program [accepts](Self::accept) it,
/// [rejects](Self::reject) it, or drops it, which closes the connection without an answer, or
/// rejects by a device of the host. There is no time limit for that, but one for the number of
/// Requests without an answer ([`RnicConfig::max_waiting`](crate::RnicConfig::max_waiting)).
///
/// ```
/// use std::time::Duration;
/// use rddp_rnic::{ConnectError, ConnectOptions, QpConfig, Rnic};
/// let rnic = Rnic::open()?;
/// let (pd, cq, options) = (rnic.alloc_pd(), rnic.create_cq(16)?, ConnectOptions::default());
/// let listener = rnic.listen("127.0.0.1:0".parse()?, &options)?;
/// let active = pd.create_qp(&QpConfig::new(&cq))?;
/// active.begin_to(listener.local_addr()?, &options)?;
///
/// let request = listener.accept(Some(Duration::from_secs(5)))?.ok_or("nobody came")?;
/// if request.private_data() != b"a token" {
///     request.reject(b"who are you?")?;
/// }
/// # active.await_begun(Duration::from_secs(5));
/// let refused = active.begun().ok_or("not in time")?;
/// let Err(ConnectError::Rejected { private_data }) = refused else { panic!("{refused:?}") };
/// assert_eq!(private_data, b"who are you?");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ConnectRequest(pub(super) Home<Pending>);

/// The parts of a [`ConnectRequest`].
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) device: Arc<DeviceInner>,
    pub(super) options: ConnectOptions,
    pub(super) wish: Wish,
    pub(super) counted: Counted,
}

/// The wish of a peer, and where it is answered.
#[derive(Debug)]
pub(super) enum Wish {
    Tcp { socket: DeviceSocket, asked: Asked },
    Device(verbs::Request),
}

impl Wish {
    pub(super) fn peer_addr(&self) -> Option<SocketAddr> {
        match self {
            Wish::Tcp { socket, .. } => socket.peer_addr().ok()?.as_socket(),
            Wish::Device(request) => request.asked().peer,
        }
    }

    pub(super) fn private_data(&self) -> &[u8] {
        match self {
            Wish::Tcp { asked, .. } => asked.private_data(),
            Wish::Device(request) => &request.asked().private_data,
        }
    }
}

impl ConnectRequest {
    /// Returns the address of the peer, unless the peer has left.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.0.here().ok()?.wish.peer_addr()
    }

    /// Returns the private data of the peer's program. They are not authenticated (RFC 5042 §5.4).
    /// By an InfiniBand or RoCE device they have zeros behind them, up to the longest there may be.
    pub fn private_data(&self) -> &[u8] {
        self.0.anywhere().wish.private_data()
    }

    /// Returns the peer's wish on a connection of TCP.
    pub(crate) fn asked(&self) -> Option<&Asked> {
        match &self.0.anywhere().wish {
            Wish::Tcp { asked, .. } => Some(asked),
            Wish::Device(_) => None,
        }
    }

    /// Accepts: connects `qp`, which must be idle, with the listener's settings and this private
    /// data. Requests that `qp` posts are sent once the peer's first FPDU has come, or, by a device
    /// of the host, once that says that the peer has taken up the connection
    /// ([`Established`](crate::AsyncEventKind::Established)). Returns what MPA has agreed on, and
    /// `None` where the wire is another.
    pub fn accept(self, qp: &QueuePair, data: &[u8]) -> Result<Option<Negotiated>, ConnectError> {
        let options = ConnectOptions { private_data: data.to_vec(), ..self.0.anywhere().options.clone() };
        self.accept_with(qp, &options)
    }

    /// Accepts as [`accept`](Self::accept) does, with settings of its own.
    pub fn accept_with(
        self,
        qp: &QueuePair,
        options: &ConnectOptions,
    ) -> Result<Option<Negotiated>, ConnectError> {
        let inner = qp.inner.here()?;
        let _place = inner.claim()?;
        let options = &inner.attrs.options(options);
        let Pending { wish, counted, .. } = self.0.into_inner()?;
        let (socket, terms) = match wish {
            Wish::Tcp { socket, asked } => {
                control_congestion(&socket, options)?;
                let terms = asked.accept(options, &options.private_data)?.send(&socket)?;
                (socket, terms.ok_or(ConnectError::Declined)?)
            }
            Wish::Device(request) => inner.accept_by_device(request, options)?,
        };
        let negotiated = terms.negotiated();
        inner.attach(socket, terms, options, false, || ())?;
        drop(counted);
        Ok(negotiated)
    }

    /// Rejects, with private data that tell the peer's program why.
    ///
    /// The connection is kept until the peer has closed it, for two seconds at most: some peers
    /// (siw) overlook a Reply with a FIN right behind it. A process that ends at once waits for
    /// that by [`Rnic::linger`](crate::Rnic::linger), or by dropping the [`Rnic`](crate::Rnic).
    pub fn reject(self, private_data: &[u8]) -> Result<(), ConnectError> {
        let Pending { device, options, wish, .. } = self.0.into_inner()?;
        match wish {
            Wish::Tcp { socket, asked } => {
                asked.reject(&options, private_data)?.send(&socket)?;
                device.rejected.add_rejected(&device.driver, socket);
            }
            Wish::Device(request) => request.reject(private_data)?,
        }
        trace::rejected();
        Ok(())
    }
}
