//! The plain host's leg, for a program behind the device that has connected.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rddp_iwarp::{OwnMessage, Refusal};
use rddp_mpa::{Framer, Initiator, InitiatorStep, Negotiated, Revision, StartupConfig};
use rddp_rdma::Access;
use rddp_verbs_device::{Asked, Device, Offer, Request};

use super::{Opened, Opening, Pool, initiator, nowhere, prepare, terms, told};
use crate::bridge::Bridge;
use crate::options::QUEUES;
use crate::reason::Reason;

impl Opening<'_> {
    /// Opens the plain leg for a program that has connected by the device.
    pub(crate) fn device(&self, request: Request, device: &Device, to: &str) -> Result<Opened, Reason> {
        let asked = request.asked().clone();
        let mut endpoint = request.endpoint(device, QUEUES)?;
        let opened = self.connect_plain(device, &asked, to).and_then(|(tcp, negotiated, private_data)| {
            let memory = Pool::new(&mut endpoint, self.options.max_message)?;
            let offer = Offer {
                private_data,
                ird: 0,
                ord: negotiated.ird,
                inbound: Access::empty(),
                ack_timeout: None,
            };
            endpoint.accept(offer)?;
            Ok((tcp, negotiated, memory))
        });
        let (tcp, negotiated, memory) = match opened {
            Ok(opened) => opened,
            Err(reason) => {
                let max = device.capabilities().max_reject_data;
                let _ = endpoint.reject(&told(&reason, max));
                return Err(reason);
            }
        };
        let until = Instant::now() + self.options.leg_time;
        self.established(&mut endpoint, until)?;
        let first = negotiated.rtr.map_or_else(OwnMessage::empty_write, OwnMessage::ready_to_receive);
        let bridge = Bridge::new(&terms(&tcp, &negotiated, Some(first)), memory.shape);
        Ok(Opened { tcp, endpoint, memory, bridge })
    }

    /// Connects to the plain host, by the first of its addresses at which something answers.
    fn connect_plain(
        &self,
        device: &Device,
        asked: &Asked,
        to: &str,
    ) -> Result<(TcpStream, Negotiated, Vec<u8>), Reason> {
        let until = Instant::now() + self.options.leg_time;
        let config = initiator(asked.ord.min(device.capabilities().max_ord));
        let mut result = Err(nowhere(to));
        for address in self.addresses(to, until)? {
            result = self.ask(address, &config, &asked.private_data, until);
            // RFC 6581 §10: a peer that knows only revision 1 closes, or answers in it.
            if matches!(&result, Err(Reason::Startup(error)) if error.retry_with_revision_one()) {
                let config = StartupConfig { revision: Revision::One, peer_to_peer: false, ..config.clone() };
                result = self.ask(address, &config, &asked.private_data, until);
            }
            if !matches!(result, Err(Reason::Tcp(_))) {
                break;
            }
        }
        result
    }

    fn ask(
        &self,
        address: SocketAddr,
        config: &StartupConfig,
        private_data: &[u8],
        until: Instant,
    ) -> Result<(TcpStream, Negotiated, Vec<u8>), Reason> {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let tcp = TcpStream::connect_timeout(&address, left)?;
        prepare(&tcp)?;
        let mut initiator = Initiator::new(config, private_data)?;
        self.write_all(&tcp, initiator.request())?;
        let mut octets = Vec::new();
        loop {
            match initiator.handle(&octets) {
                Ok(InitiatorStep::Accepted { negotiated, private_data, .. }) => {
                    return Ok((tcp, negotiated, private_data));
                }
                Ok(InitiatorStep::Rejected { private_data, .. }) => {
                    return Err(Reason::PlainRejected { private_data });
                }
                Ok(InitiatorStep::Need { total }) => {
                    if !self.read_more(&tcp, &mut octets, total, until, "the plain host's Reply")? {
                        return Err(initiator.closed(&octets).into());
                    }
                }
                Err(error) => {
                    self.refuse_reply(&tcp, Refusal::of(&error, initiator.tx(), false));
                    return Err(error.into());
                }
            }
        }
    }

    /// Tells a plain host whose Reply cannot be met (RFC 6581 §9).
    fn refuse_reply(&self, tcp: &TcpStream, refusal: Refusal) {
        if let Refusal::Terminate { terminate, framing } = refusal {
            let (message, mut framer) = (OwnMessage::terminate(&terminate), Framer::new(framing));
            let mut fpdu = vec![0; message.fpdu_len(&framer)];
            message.emit(&mut framer, &mut fpdu);
            let _ = self.write_all(tcp, &fpdu);
        }
    }
}
