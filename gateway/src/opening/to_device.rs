//! The device's leg, for a plain host that has connected.

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rddp_mpa::{
    MAX_ENHANCED_PRIVATE_DATA, Request, Responder, ResponderStep, RtrSet, StartupConfig, ULP_NEGOTIATES,
};
use rddp_rdma::Access;
use rddp_verbs_device::{Agreed, ConnectFailed, Device, Endpoint, Offer};

use super::{Opened, Opening, Pool, REQUEST_TIME, initiator, nowhere, prepare, terms, told};
use crate::bridge::Bridge;
use crate::options::QUEUES;
use crate::reason::Reason;

/// Time in which a rejected plain host may close its end, so that it reads the reason.
const REJECT_TIME: Duration = Duration::from_secs(1);
/// Reads that a plain host has outstanding where the startup does not say.
const ASSUMED_READS: u16 = 32;

impl Opening<'_> {
    /// Opens the device's leg for a plain host that has connected.
    pub(crate) fn plain(&self, tcp: TcpStream, device: &Device, to: &str) -> Result<Opened, Reason> {
        prepare(&tcp)?;
        let request = self.request(&tcp)?;
        let ord = match request.peer_ord {
            Some(ULP_NEGOTIATES) | None => ASSUMED_READS,
            Some(ord) => ord,
        };
        let private_data = request.private_data.clone();
        let offer = Offer { private_data, ird: 0, ord, inbound: Access::empty(), ack_timeout: None };
        let (endpoint, agreed, memory) = match self.connect_device(device, to, &offer) {
            Ok(leg) => leg,
            Err(reason) => {
                self.reject_plain(&tcp, &request, &reason);
                return Err(reason);
            }
        };
        let (reply, negotiated) = request.accept(&responder(&request, agreed.ord), &agreed.private_data)?;
        self.write_all(&tcp, &reply)?;
        let bridge = Bridge::new(&terms(&tcp, &negotiated, None), memory.shape);
        Ok(Opened { tcp, endpoint, memory, bridge })
    }

    /// Reads the plain host's Request.
    fn request(&self, tcp: &TcpStream) -> Result<Request, Reason> {
        let until = Instant::now() + REQUEST_TIME;
        let mut octets = Vec::new();
        loop {
            match Responder::new().handle(&octets)? {
                ResponderStep::Request { request, .. } => return Ok(request),
                ResponderStep::Need { total } => {
                    if !self.read_more(tcp, &mut octets, total, until, "the plain host's Request")? {
                        return Err(Responder::new().closed(&octets).into());
                    }
                }
            }
        }
    }

    /// Connects to a program behind the device, by the first of its addresses at which one answers.
    fn connect_device(
        &self,
        device: &Device,
        to: &str,
        offer: &Offer,
    ) -> Result<(Endpoint, Agreed, Pool), Reason> {
        let until = Instant::now() + self.options.leg_time;
        let mut result = Err(nowhere(to));
        for address in self.addresses(to, until)? {
            result = self.connect_to(device, address, offer, until);
            if !is_of_one_address(&result) {
                break;
            }
        }
        result
    }

    fn connect_to(
        &self,
        device: &Device,
        address: SocketAddr,
        offer: &Offer,
        until: Instant,
    ) -> Result<(Endpoint, Agreed, Pool), Reason> {
        let mut endpoint = Endpoint::open(device, None, address, QUEUES, self.options.leg_time)?;
        self.next(&mut endpoint, until)?;
        let memory = Pool::new(&mut endpoint, self.options.max_message)?;
        endpoint.connect_holding(offer.clone(), Arc::clone(self.place))?;
        let agreed = self.established(&mut endpoint, until)?;
        Ok((endpoint, agreed, memory))
    }

    /// Rejects a plain host, and waits a moment for its end: what closes with octets unread resets.
    fn reject_plain(&self, tcp: &TcpStream, request: &Request, reason: &Reason) {
        let Ok(reply) = request.reject(&responder(request, 0), &told(reason, MAX_ENHANCED_PRIVATE_DATA))
        else {
            return;
        };
        let until = Instant::now() + REJECT_TIME;
        let mut sent = self.write_all(tcp, &reply).and_then(|()| Ok(tcp.shutdown(Shutdown::Write)?));
        while sent.is_ok() && self.read_more(tcp, &mut Vec::new(), 64, until, "its end").unwrap_or(false) {
            sent = if Instant::now() < until { Ok(()) } else { Err(Reason::Stopped) };
        }
    }
}

/// Returns whether another address may do better: a device may have a way to one of them alone.
fn is_of_one_address<T>(result: &Result<T, Reason>) -> bool {
    use ConnectFailed::{NoRoute, Refused, Unreachable};
    matches!(
        result,
        Err(Reason::Device(_) | Reason::Connect(NoRoute { .. } | Refused { .. } | Unreachable { .. }))
    )
}

/// Returns this end's part of the startup, as the end to which a plain host connects. Reads are
/// answered as many at a time as the device's host answers; this end has none.
fn responder(request: &Request, depth: u16) -> StartupConfig {
    let depth = if request.enhanced { depth } else { depth.max(ASSUMED_READS) };
    StartupConfig { rtr: RtrSet::SILENT.write_if_offered(request.rtr), ..initiator(depth) }
}
