//! One connection and all that it needs: device, protection domain, completion queue, QP.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rddp_rnic::{
    AsyncEventKind, Completion, CompletionQueue, ConnectOptions, ConnectRequest, Connected, Fault,
    Negotiated, ProtectionDomain, QpConfig, QpState, QueuePair, Revision, Rnic, SendWr, Status,
};
use serde::Serialize;

use crate::device::By;
use crate::failure::Failure;
use crate::signals;

/// Time within which a graceful close must be done.
pub const CLOSE: Duration = Duration::from_secs(2);

/// The shortest and the longest time between two looks of [`looks`].
const LOOKS: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(5)];

/// Default numbers of requests and of receives that an endpoint can hold.
const DEPTH: usize = 64;

/// One end of a connection.
pub struct Endpoint {
    /// The device.
    pub rnic: Rnic,
    /// The protection domain of this connection alone.
    pub pd: ProtectionDomain,
    /// The queue in which requests and receives complete.
    pub cq: CompletionQueue,
    /// The queue pair.
    pub qp: QueuePair,
}

impl Endpoint {
    /// An endpoint that is not connected. It has a protection domain of its own, so no other peer
    /// reaches its memory.
    pub fn new(rnic: &Rnic) -> Result<Self, Failure> {
        Self::on(rnic, rnic.create_cq(4 * DEPTH)?)
    }

    /// An endpoint as [`Endpoint::new`] makes it, which completes into a queue that others use.
    pub fn on(rnic: &Rnic, cq: CompletionQueue) -> Result<Self, Failure> {
        let pd = rnic.alloc_pd();
        let qp = pd.create_qp(&QpConfig { max_send: DEPTH, max_recv: DEPTH, ..QpConfig::new(&cq) })?;
        Ok(Endpoint { rnic: rnic.clone(), pd, cq, qp })
    }

    /// Connects to `addr`. `what` names, for messages, what should be listening there.
    pub fn connect(
        &self,
        addr: SocketAddr,
        options: &ConnectOptions,
        what: &str,
    ) -> Result<Connected, Failure> {
        tracing::info!(%addr, "connecting");
        let failed = |error| Failure::connecting_by(&self.rnic, addr, &error, what);
        let connected = self.qp.connect(addr, options).map_err(failed)?;
        tracing::info!(%addr, negotiated = ?connected.negotiated, "connected");
        Ok(connected)
    }

    /// Accepts the connection of a peer that asked for one.
    pub fn accept(
        &self,
        request: ConnectRequest,
        options: &ConnectOptions,
    ) -> Result<Option<Negotiated>, Failure> {
        request.accept_with(&self.qp, options).map_err(|error| Failure::peer(format!("accepting: {error}")))
    }

    /// Posts a work request to the send queue.
    pub fn post(&self, wr: &SendWr) -> Result<(), Failure> {
        Ok(self.qp.post_send(wr)?)
    }

    /// Returns the next completion that is a success.
    pub fn next(&self, patience: Duration) -> Result<Completion, Failure> {
        match self.try_next(patience)? {
            Some(completion) => Ok(completion),
            None => Err(silent(patience)),
        }
    }

    /// Returns the next completion that is a success; `None` when nothing arrived in that time.
    pub fn try_next(&self, patience: Duration) -> Result<Option<Completion>, Failure> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(completion) = self.cq.poll_one() {
                return self.succeeded(completion).map(Some);
            }
            signals::check()?;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            wait(&self.cq, left.min(signals::CHECK_INTERVAL))?;
        }
    }

    /// Turns a completion that is not a success into a failure.
    pub fn succeeded(&self, completion: Completion) -> Result<Completion, Failure> {
        completion.ok().map_err(|error| ended(&self.rnic, &self.qp, error.status))
    }

    /// Returns whether the peer has closed gracefully (or is about to), as far as this end knows.
    pub fn is_closed_gracefully(&self) -> bool {
        matches!(self.qp.state(), QpState::Idle | QpState::Closing)
    }

    /// Closes gracefully and waits until that is done.
    pub fn close(&self) {
        close(&[&self.qp], &self.cq);
    }
}

/// The failure for a peer that has not answered for so long.
pub fn silent(patience: Duration) -> Failure {
    Failure::peer(format!("the peer has not answered for {} s", patience.as_secs_f32()))
        .remedy("is it still running? -v shows what the connection does")
}

/// Sleeps until there is a completion, or until that time has passed.
pub fn wait(cq: &CompletionQueue, time: Duration) -> Result<bool, Failure> {
    cq.wait(Some(time)).map_err(|error| cannot_wait(&error))
}

/// The failure for a wait that cannot be made.
pub fn cannot_wait(error: &io::Error) -> Failure {
    Failure::failed(format!("waiting for completions: {error}"))
}

/// Closes QPs gracefully and waits until that is done, or until the peers take too long.
pub fn close(qps: &[&QueuePair], cq: &CompletionQueue) {
    qps.iter().for_each(|qp| qp.disconnect());
    let deadline = Instant::now() + CLOSE;
    for time in looks() {
        while cq.poll_one().is_some() {}
        if qps.iter().all(|qp| qp.state() != QpState::Closing) || Instant::now() >= deadline {
            break;
        }
        // A QP that cannot be waited for is closed when it is dropped.
        let _ = cq.wait(Some(time));
    }
}

/// Times between looks at what tells nobody that it is done: most of it is done soon.
pub fn looks() -> impl Iterator<Item = Duration> {
    let [shortest, longest] = LOOKS;
    std::iter::successors(Some(shortest), move |&last| Some(longest.min(last * 2)))
}

/// Returns the reason why a connection ended, as far as it can be found out.
pub fn ended(rnic: &Rnic, qp: &QueuePair, status: Status) -> Failure {
    if let Some(terminate) = qp.terminate_received() {
        return Failure::peer(format!("the peer ended the connection with Terminate {}", terminate.code))
            .remedy("its log, or its own message, may say more");
    }
    let mut events = rnic.async_events().filter(|event| event.qp == qp.num()).map(|event| event.kind);
    let fault = match events
        .find(|kind| matches!(kind, AsyncEventKind::Fault(_) | AsyncEventKind::DeviceFailed))
    {
        Some(AsyncEventKind::Fault(fault)) => Some(fault),
        Some(_) => {
            return Failure::failed(format!("{} has failed, or was removed from this host", By::of(rnic)))
                .remedy("dmesg may say why");
        }
        None => None,
    };
    let failure = |cause| match fault {
        // RFC 5044 §8: octets with a wrong CRC, and markers out of place.
        Some(Fault::Mpa(error)) if matches!(error.code(), 2 | 3) => Failure::peer(cause).remedy(
            "is the other end a program of RDMA over TCP? If it is, something changes octets on the way",
        ),
        _ => Failure::peer(cause),
    };
    if let Some(terminate) = qp.terminate_sent() {
        let cause = fault.map(|fault| format!(": {fault}")).unwrap_or_default();
        return failure(format!("the connection was ended with Terminate {}{cause}", terminate.code));
    }
    if let Some(fault) = fault {
        return failure(format!("the connection was ended: {fault}"));
    }
    match status {
        Status::Flushed => Failure::peer("the peer closed the connection, or it was lost"),
        Status::LocalOperation => not_carried_out(By::of(rnic).is_host()),
        Status::Credentials => Failure::failed(status.to_string()),
        status => Failure::peer(status.to_string()),
    }
}

/// Returns the failure of a request that this end's device, or one of the host, did not carry out.
fn not_carried_out(by_host: bool) -> Failure {
    if by_host {
        // siw says so of the request that it is sending when the connection ends. What helps then
        // depends on the command: most can be repeated.
        return Failure::peer("the device did not send a request, or lost the connection: see dmesg, too");
    }
    Failure::peer("this connection cannot carry out the request")
        .remedy("a Read needs ORD of at least 1, which the peer has to offer as IRD (MPA revision 2)")
}

/// The parameters of a connection, to print as text and as JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Agreed {
    /// The device of this end.
    #[serde(skip)]
    pub by: By,
    /// The terms of MPA, where this program speaks it and no device of the host.
    #[serde(flatten)]
    pub mpa: Option<Mpa>,
    /// Reads of the other end that this end answers at a time.
    pub ird: u16,
    /// Reads of this end at a time.
    pub ord: u16,
}

/// The terms of MPA.
#[derive(Clone, Debug, Serialize)]
pub struct Mpa {
    /// The revision.
    pub revision: u8,
    /// FPDUs have a CRC.
    pub crc: bool,
    /// This end sends markers.
    pub markers_sent: bool,
    /// The other end sends markers.
    pub markers_received: bool,
}

impl Agreed {
    /// Returns the parameters of a connection that this end has made by a device.
    pub fn of(rnic: &Rnic, connected: &Connected) -> Self {
        let Connected { ird, ord, negotiated, .. } = connected;
        Agreed { by: By::of(rnic), mpa: negotiated.as_ref().map(Mpa::from), ird: *ird, ord: *ord }
    }
}

/// Returns the words for the parameters of a connection that this end has accepted by a device.
pub fn accepted(rnic: &Rnic, negotiated: Option<&Negotiated>) -> String {
    let by = By::of(rnic);
    let Some(negotiated) = negotiated else { return format!("by {by}") };
    let Negotiated { ird, ord, .. } = *negotiated;
    Agreed { by, mpa: Some(Mpa::from(negotiated)), ird, ord }.to_string()
}

impl From<&Negotiated> for Mpa {
    fn from(negotiated: &Negotiated) -> Self {
        Mpa {
            revision: match negotiated.revision {
                Revision::One => 1,
                Revision::Two => 2,
            },
            crc: negotiated.crc,
            markers_sent: negotiated.markers_tx,
            markers_received: negotiated.markers_rx,
        }
    }
}

impl std::fmt::Display for Agreed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let on = |on: bool| if on { "on" } else { "off" };
        let Agreed { by, mpa, ird, ord } = self;
        let Some(mpa) = mpa else { return write!(f, "by {by}, IRD {ird}, ORD {ord}") };
        write!(f, "MPA revision {}, CRC {}, IRD {ird}, ORD {ord}", mpa.revision, on(mpa.crc))?;
        match (mpa.markers_sent, mpa.markers_received) {
            (false, false) => Ok(()),
            (true, true) => f.write_str(", markers both ways"),
            (true, false) => f.write_str(", markers sent"),
            (false, true) => f.write_str(", markers received"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::not_carried_out;

    /// A remedy of its own would keep commands from telling theirs.
    #[test]
    fn a_devices_trouble_is_not_taken_for_a_lack_of_reads() {
        assert_eq!(not_carried_out(true).how(), None);
        assert!(not_carried_out(false).how().unwrap().contains("ORD"));
    }
}
