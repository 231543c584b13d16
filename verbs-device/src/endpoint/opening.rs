//! From an address to a connection, and its end.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rddp_rdma::Access;
use rddp_verbs_layout::{Plain, cm, ibv_qp_attr, qp_mask};

use super::{Agreed, Endpoint, Event, GRACE, Offer, Queues, Stage};
use crate::device::Device;
use crate::error::{ConnectFailed, DeviceError};
use crate::shared::SharedReceives;
use crate::sys::{CmEvent, Id, Parameters};
use crate::words::{inbound, is_failure};

/// Attempts after which a device gives an unacknowledged request up. 7 is for ever on some.
const RETRIES: u8 = 6;
/// Attempts for a message that found no receive: 7 is for ever, which a pause of a peer may take.
const RNR_RETRIES: u8 = 7;
/// Time that a peer is told to wait before such an attempt: 0.64 ms. The connection manager leaves
/// it at 0, which is 655 ms.
const RNR_TIMER: u8 = 12;
/// Reason of a Reject on InfiniBand by which a program says no.
const BY_PROGRAM: i32 = 28;

impl Endpoint {
    /// Begins to look for the way to a peer, from an address of the device. That it takes no longer
    /// than `time` the connection manager sees to; the rest has the owner's own deadline.
    ///
    /// # Errors
    /// The device has no such address, or there is no way.
    pub fn open(
        device: &Device,
        from: Option<SocketAddr>,
        to: SocketAddr,
        queues: Queues,
        time: Duration,
    ) -> Result<Self, DeviceError> {
        let id = Id::new(device.library).map_err(|error| device.failed("rdma_create_id", error))?;
        let milliseconds = i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
        id.resolve_address(from, to, milliseconds)
            .map_err(|error| device.failed("rdma_resolve_addr", error))?;
        let mut endpoint = Endpoint::new(device, id, true, queues)?;
        endpoint.resolving = milliseconds;
        Ok(endpoint)
    }

    /// Makes the end that answers the request of a peer, to which a listener has an id.
    pub(crate) fn asked(
        device: &Device,
        id: Id,
        agreed: Agreed,
        queues: Queues,
        shared: Option<SharedReceives>,
    ) -> Result<Self, DeviceError> {
        let mut endpoint = Endpoint::new(device, id, false, queues)?.sharing(shared);
        endpoint.agreed = agreed;
        endpoint.make_pair()?;
        Ok(endpoint)
    }

    /// Asks the peer for a connection, once its address is [resolved](Event::Resolved). The call
    /// returns at once.
    ///
    /// # Errors
    /// The terms are beyond the device, or it is not the time.
    pub fn connect(&mut self, offer: Offer) -> Result<(), DeviceError> {
        self.connect_holding(offer, ())
    }

    /// [Connects](Self::connect), and holds something for as long as the attempt has a thread and a
    /// queue pair: on an RNIC, both stay for minutes where the peer is silent, though the endpoint
    /// was dropped.
    ///
    /// # Errors
    /// As `connect`.
    pub fn connect_holding(&mut self, offer: Offer, held: impl Send + 'static) -> Result<(), DeviceError> {
        if self.stage != Stage::Resolved {
            return Err(DeviceError::Stage("a connection begins when the peer's address is resolved"));
        }
        let max = self.device.capabilities().max_request_data;
        let parameters = self.parameters(&offer, max)?;
        if let Some(exponent) = offer.ack_timeout {
            let set = self.link.id.set_ack_timeout(exponent);
            set.map_err(|error| self.device.failed("rdma_set_option", error))?;
        }
        self.link.connect(parameters, held).map_err(|error| self.device.failed("rdma_connect", error))?;
        (self.offer, self.stage) = (offer, Stage::Opening);
        Ok(())
    }

    /// Agrees to a peer's request. Requests may be posted when [`Event::Connected`] has come.
    ///
    /// # Errors
    /// The terms are beyond the device, or the peer has gone.
    pub fn accept(&mut self, mut offer: Offer) -> Result<(), DeviceError> {
        if self.stage != Stage::Asked {
            return Err(DeviceError::Stage("there is no request of a peer to accept"));
        }
        (offer.ird, offer.ord) = (offer.ird.min(self.agreed.ird), offer.ord.min(self.agreed.ord));
        let parameters = self.parameters(&offer, self.device.capabilities().max_reply_data)?;
        self.link.id.accept(&parameters).map_err(|error| self.device.failed("rdma_accept", error))?;
        self.agreed = Agreed { private_data: Vec::new(), ird: offer.ird, ord: offer.ord };
        (self.offer, self.stage) = (offer, Stage::Opening);
        self.confine()
    }

    /// Rejects a peer's request. So does who drops it, without private data.
    ///
    /// # Errors
    /// The private data is too long, or the peer has gone.
    pub fn reject(self, private_data: &[u8]) -> Result<(), DeviceError> {
        self.device.reject(&self.link.id, private_data)
    }

    fn parameters(&self, offer: &Offer, max: usize) -> Result<Parameters, DeviceError> {
        self.device.refuse_long(&offer.private_data, max)?;
        let limits = self.device.capabilities();
        Ok(Parameters {
            private_data: offer.private_data.clone(),
            ird: offer.ird.min(limits.max_ird) as u8,
            ord: offer.ord.min(limits.max_ord) as u8,
            retry_count: RETRIES,
            rnr_retry_count: RNR_RETRIES,
        })
    }

    /// Lowers the rights of peers from all, which the connection manager grants, to those of the
    /// offer. Keys in private data leave before that: see [`Offer::inbound`]. On InfiniBand, sets
    /// how long peers wait for a receive.
    fn confine(&self) -> Result<(), DeviceError> {
        let Some(pair) = self.link.id.pair() else { return Ok(()) };
        let mut mask = 0;
        if !self.offer.inbound.contains(Access::REMOTE) {
            mask |= qp_mask::ACCESS_FLAGS;
        }
        if !self.is_iwarp() {
            mask |= qp_mask::MIN_RNR_TIMER;
        }
        let qp_access_flags = inbound(self.offer.inbound);
        let attributes = ibv_qp_attr { qp_access_flags, min_rnr_timer: RNR_TIMER, ..ibv_qp_attr::zeroed() };
        if mask == 0 {
            return Ok(());
        }
        pair.modify(attributes, mask).map_err(|error| self.device.failed("ibv_modify_qp", error))
    }

    /// Takes the next change of the connection, if there is one.
    ///
    /// # Errors
    /// The device has refused a step, or has another way to the peer. There will be no connection.
    pub fn event(&mut self) -> Result<Option<Event>, DeviceError> {
        if let Some(error) = self.link.take_refusal() {
            self.stage = Stage::Refused;
            return Ok(Some(Event::Failed(refusal(error))));
        }
        if std::mem::take(&mut self.has_untold_start) {
            return Ok(Some(Event::Connected(self.agreed.clone())));
        }
        if self.has_untold_end() {
            self.stage = Stage::Over;
            return Ok(Some(Event::Disconnected));
        }
        loop {
            let event = self.link.id.events.event();
            match event.map_err(|error| self.device.failed("rdma_get_cm_event", error))? {
                None => return Ok(None),
                Some(event) => {
                    if event.kind == cm::DISCONNECTED {
                        self.has_left = true;
                        self.link.id.set_parting(false);
                    }
                    if let Some(told) = self.advance(event)? {
                        return Ok(Some(told));
                    }
                }
            }
        }
    }

    fn advance(&mut self, event: CmEvent) -> Result<Option<Event>, DeviceError> {
        match (event.kind, self.stage) {
            (cm::ADDR_RESOLVED, Stage::Address) => self.address_resolved().map(|()| None),
            (cm::ROUTE_RESOLVED, Stage::Route) => {
                self.make_pair()?;
                self.stage = Stage::Resolved;
                Ok(Some(Event::Resolved))
            }
            (cm::ESTABLISHED, Stage::Opening) => self.established(event).map(Some),
            (cm::DISCONNECTED, Stage::Connected | Stage::Closing(_)) if self.has_unacknowledged() => {
                self.stage = Stage::Closing(Instant::now() + GRACE);
                Ok(None)
            }
            (cm::DISCONNECTED, Stage::Opening | Stage::Connected | Stage::Closing(_) | Stage::Ended) => {
                // Until this end has said so, too, its queue pair goes on and flushes nothing.
                self.end();
                self.stage = Stage::Over;
                Ok(Some(Event::Disconnected))
            }
            (cm::DEVICE_REMOVAL, _) => {
                self.stage = Stage::Over;
                Ok(Some(Event::Removed))
            }
            (kind, stage) if is_failure(kind) && !matches!(stage, Stage::Over | Stage::Refused) => {
                // An end that has accepted may have a message, though it misses the peer's answer.
                self.stage = if kind == cm::REJECTED && self.active { Stage::Refused } else { Stage::Over };
                Ok(Some(Event::Failed(failure(event, self.is_iwarp()))))
            }
            // The end of the time in which stray packets may come, and what is too late.
            _ => Ok(None),
        }
    }

    fn address_resolved(&mut self) -> Result<(), DeviceError> {
        let id = &self.link.id;
        if !self.device.is_used_by(id) {
            let (_, peer) = id.addresses();
            let peer = peer.unwrap_or_else(|| SocketAddr::from(([0; 4], 0)));
            return Err(self.device.elsewhere(peer, id));
        }
        id.resolve_route(self.resolving).map_err(|error| self.device.failed("rdma_resolve_route", error))?;
        self.stage = Stage::Route;
        Ok(())
    }

    /// Notes a message of the peer. One that sends has taken up the connection, and the connection
    /// manager's word of that, which goes another way on InfiniBand, may come behind it.
    pub(super) fn heard(&mut self) {
        if self.stage == Stage::Opening && !self.active {
            (self.stage, self.has_untold_start) = (Stage::Connected, true);
        }
    }

    fn established(&mut self, event: CmEvent) -> Result<Event, DeviceError> {
        let (ird, ord) = match (self.active, self.is_iwarp()) {
            // The event of the other end has no depths: those that it has agreed to stand.
            (false, _) => (u16::MAX, u16::MAX),
            // RNICs tell the active end its own depths, and all others tell the peer's.
            (true, true) => (event.ord.into(), event.ird.into()),
            (true, false) => (event.ird.into(), event.ord.into()),
        };
        let private_data = event.private_data;
        self.agreed = Agreed { private_data, ird: ird.min(self.offer.ird), ord: ord.min(self.offer.ord) };
        self.stage = Stage::Connected;
        if self.active {
            self.confine()?;
            // RFC 5044 §7.1.2: the other end of an RNIC may not send before it has got something.
            if self.is_iwarp() {
                self.post_own();
            }
        }
        Ok(Event::Connected(self.agreed.clone()))
    }
}

/// Returns why a connection did not come about, as `rdma_connect` has said.
fn refusal(error: io::Error) -> ConnectFailed {
    match error.raw_os_error() {
        Some(number @ libc::ECONNREFUSED) => ConnectFailed::Refused { status: -number },
        Some(number @ (libc::ETIMEDOUT | libc::EHOSTUNREACH | libc::ENETUNREACH)) => {
            ConnectFailed::Unreachable { status: -number }
        }
        _ => ConnectFailed::Failed(error),
    }
}

/// Returns why a connection did not come about, as an event says.
fn failure(event: CmEvent, is_iwarp: bool) -> ConnectFailed {
    let (status, private_data) = (event.status, event.private_data);
    let is_by_program = if is_iwarp { status != -libc::ECONNREFUSED } else { status == BY_PROGRAM };
    match event.kind {
        cm::ADDR_ERROR | cm::ROUTE_ERROR => ConnectFailed::NoRoute { status },
        cm::REJECTED if is_by_program => ConnectFailed::Rejected { private_data },
        cm::REJECTED => ConnectFailed::Refused { status },
        cm::UNREACHABLE => ConnectFailed::Unreachable { status },
        _ => ConnectFailed::Failed(io::Error::from_raw_os_error(status.saturating_abs())),
    }
}
