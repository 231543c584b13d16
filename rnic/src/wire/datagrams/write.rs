//! Sending: one datagram by a call, or a bundle of neighbours that have one address and one size.

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use rddp_rdma::{AsyncEventKind, Gather, Operation, Status};
use rddp_rdmap::Fault;
use rddp_stat::Counter;
use smallvec::SmallVec;
use socket2::SockAddr;

use super::Datagrams;
use super::notices::{is_end, is_news};
use super::unreliable::Header;
use crate::mem::{MAX_PIECES, Piece, is_fault, send_datagrams};
use crate::queues::context::Context;
use crate::queues::memory::Grants;
use crate::queues::options::Transport;
use crate::wire::{Watch, WireEvent};

/// The datagrams of one bundle: more are refused by kernels before 6.9.
const SEGMENTS: usize = 64;

/// The octets of one bundle.
const OCTETS: u64 = 65_000;

/// Octets of a datagram that each path takes whole (RFC 8200 §5). Longer ones are not bundled where
/// IP may cut them, since it cuts no bundle.
const WHOLE: u64 = 1280 - 48;

/// Octets of the longest datagram, behind the headers of IPv4 and UDP. To send more is a fault of
/// the program's.
const LONGEST: u64 = 65_535 - 28;

/// Destinations that are remembered to take no bundles. With one more all are forgotten, so that
/// peers that name many cost a refused call each, and no memory.
const MOST_WITHOUT: usize = 256;

/// Calls in a row that may tell of earlier datagrams, before the one at hand is to blame.
const MOST_TOLD: u32 = 3;

/// The requests of one call: their memory, and how many they are.
struct Bundle {
    grants: Grants,
    /// Octets in front of each message; none for plain datagrams.
    headers: SmallVec<[[u8; Header::LEN]; 1]>,
    to: SocketAddr,
    requests: usize,
    /// Octets of each datagram but the last.
    len: u64,
}

/// A request's part of a datagram.
struct Part<'a> {
    gather: &'a Gather,
    to: SocketAddr,
    header: Option<[u8; Header::LEN]>,
    /// Octets with those in front.
    len: u64,
}

impl<'a> Part<'a> {
    /// Returns the datagram of the request with this number. `None` where there is none, or a
    /// number in it is none of a QP.
    #[inline(always)]
    fn of(cx: &'a Context<'_>, seq: u64) -> Option<Self> {
        let wqe = cx.sq.get(seq)?;
        match &wqe.wr.operation {
            Operation::Datagram { gather, to } => {
                Some(Part { gather, to: *to, header: None, len: wqe.total })
            }
            Operation::Unreliable { gather, to, immediate } => {
                let header = Header::of(cx.attrs, to, *immediate, wqe.wr.solicited)?.to_octets();
                let len = wqe.total + Header::LEN as u64;
                Some(Part { gather, to: to.socket_addr(), header: Some(header), len })
            }
            _ => None,
        }
    }
}

impl Datagrams {
    /// Sends what can be sent, and completes requests that this finished.
    pub(in crate::wire) fn send(&mut self, watch: &mut Watch, cx: &mut Context<'_>) -> Result<(), WireEvent> {
        let sent = loop {
            match self.write(watch, cx) {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(event) => break Err(event),
            }
        };
        cx.retire();
        sent
    }

    /// Hands the next requests to UDP by one call. Returns whether another may follow.
    fn write(&mut self, watch: &mut Watch, cx: &mut Context<'_>) -> Result<bool, WireEvent> {
        watch.blocked = false;
        if !cx.sq.has_unsent() {
            return Ok(false);
        }
        let Some(bundle) = self.bundle(cx) else {
            return Err(self.fail(cx, Status::LocalProtection));
        };
        cx.tally.add(Counter::SendCalls, 1);
        let segment = (bundle.requests > 1).then_some(bundle.len as u16);
        let sent = send_datagrams(watch.fd(), &self.name(bundle.to), &pieces(cx, &bundle), segment);
        match sent {
            Ok(octets) => {
                cx.tally.add(Counter::OctetsSent, octets as u64);
                self.told = 0;
                self.pass(cx, bundle.requests);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                watch.blocked = true;
                return Ok(false);
            }
            Err(error) => self.refused(watch, cx, &bundle, &error)?,
        }
        Ok(true)
    }

    /// Counts requests as sent.
    fn pass(&mut self, cx: &mut Context<'_>, requests: usize) {
        cx.sq.cursor.seq += requests as u64;
        cx.sq.handed_to_cursor();
        self.alone = self.alone.saturating_sub(requests);
    }

    /// Does what an error asks for: the requests are tried again, or the first has ended.
    #[cold]
    fn refused(
        &mut self,
        watch: &Watch,
        cx: &mut Context<'_>,
        bundle: &Bundle,
        error: &io::Error,
    ) -> Result<(), WireEvent> {
        if is_fault(error) {
            // What comes before the bad memory is still sent.
            self.one_by_one = true;
            if bundle.requests > 1 {
                return Ok(());
            }
            return Err(self.fail(cx, Status::LocalProtection));
        }
        if is_end(error) {
            return Err(WireEvent::Lost(AsyncEventKind::ConnectionLost));
        }
        self.take_notices(watch, cx);
        if is_news(error) && self.told < MOST_TOLD {
            self.told += 1;
            return Ok(());
        }
        if bundle.requests > 1 {
            self.alone = bundle.requests;
            // No checksums by the device, a tunnel: it will be so again. Other errors need not.
            if matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL)) {
                tracing::debug!(qp = cx.attrs.num.0, to = %bundle.to, %error, "datagrams go one by one");
                remember(&mut self.without_bundles, bundle.to);
            }
            return Ok(());
        }
        self.told = 0;
        tracing::debug!(qp = cx.attrs.num.0, to = %bundle.to, %error, "a datagram was refused");
        if is_lost(cx.attrs.transport, error, bundle.len) {
            cx.tally.add(Counter::Dropped, 1);
            self.pass(cx, 1);
            return Ok(());
        }
        if cx.attrs.transport == Transport::Unreliable {
            return Err(self.fail(cx, Status::LocalOperation));
        }
        cx.sq.finish_at_cursor(Status::LocalOperation);
        self.alone = self.alone.saturating_sub(1);
        Ok(())
    }

    /// Ends the next request, which cannot be sent. Verbs' datagrams go on without requests
    /// (InfiniBand Architecture §10.3.1, SQE); others have a state for that no more than TCP has.
    #[cold]
    fn fail(&mut self, cx: &mut Context<'_>, status: Status) -> WireEvent {
        cx.sq.finish_at_cursor(status);
        (self.alone, self.one_by_one) = (0, false);
        match cx.attrs.transport {
            Transport::Unreliable => WireEvent::SendsFailed,
            _ => Fault::local_catastrophic().into(),
        }
    }

    /// Returns the requests of the next call; `None` if the program may not send the memory of the
    /// first.
    fn bundle(&self, cx: &Context<'_>) -> Option<Bundle> {
        let seq = cx.sq.cursor.seq;
        let Part { to, len, .. } = Part::of(cx, seq)?;
        let most = self.most(to, len);
        let (grants, headers) = Default::default();
        let mut bundle = Bundle { grants, headers, to, requests: 0, len };
        let mut count = 0;
        while bundle.requests < most
            && let Some(part) = Part::of(cx, seq + bundle.requests as u64)
            && part.to == to
            && (part.len <= len && part.len > 0 || bundle.requests == 0)
        {
            let before = bundle.grants.len();
            let is_ready = match part.gather {
                Gather::Inline(_) => true,
                Gather::List(list) => {
                    let total = list.total() as usize;
                    cx.attrs.grants_of(list, 0, total, None, &mut bundle.grants).is_ok()
                }
            };
            count += (bundle.grants.len() - before).max(1) + usize::from(part.header.is_some());
            if !is_ready || (count > MAX_PIECES && bundle.requests > 0) {
                // What comes before it goes out first.
                bundle.grants.truncate(before);
                return (bundle.requests > 0).then_some(bundle);
            }
            if let Some(header) = part.header {
                bundle.headers.push(header);
            }
            bundle.requests += 1;
            if part.len < len {
                break;
            }
        }
        Some(bundle)
    }

    /// Returns the number of datagrams of this size that one call may send.
    fn most(&self, to: SocketAddr, len: u64) -> usize {
        let is_single =
            self.one_by_one || self.alone > 0 || len == 0 || (self.options.fragment && len > WHOLE);
        if is_single || (!self.without_bundles.is_empty() && self.without_bundles.contains(&to)) {
            return 1;
        }
        ((OCTETS / len) as usize).clamp(1, SEGMENTS)
    }

    /// Returns an address as the socket takes it.
    fn name(&self, to: SocketAddr) -> SockAddr {
        match to {
            SocketAddr::V4(to) if self.is_ipv6 => {
                SocketAddr::new(to.ip().to_ipv6_mapped().into(), to.port()).into()
            }
            to => to.into(),
        }
    }
}

/// Returns whether an error says that a datagram of so many octets is gone, as others are on their
/// way. Adapters know nothing of ways, and lose what has none; for programs of verbs, with one QP
/// for all peers, a state without requests would be worse.
fn is_lost(transport: Transport, error: &io::Error, len: u64) -> bool {
    match error.raw_os_error() {
        // The queue of the host's device is full.
        Some(libc::ENOBUFS) => true,
        _ if transport != Transport::Unreliable => false,
        // A firewall.
        Some(libc::EPERM) => true,
        Some(libc::EMSGSIZE) => len <= LONGEST,
        _ => is_news(error),
    }
}

/// Adds a destination to those that take no bundles.
fn remember(without: &mut HashSet<SocketAddr>, to: SocketAddr) {
    if without.len() >= MOST_WITHOUT {
        without.clear();
    }
    without.insert(to);
}

/// Returns the octets of a bundle, in order.
fn pieces<'a>(cx: &'a Context<'_>, bundle: &'a Bundle) -> SmallVec<[Piece<'a>; 8]> {
    let mut pieces = SmallVec::new();
    let mut grants = bundle.grants.iter();
    for at in 0..bundle.requests {
        let Some(wqe) = cx.sq.get(cx.sq.cursor.seq + at as u64) else { break };
        if let Some(header) = bundle.headers.get(at) {
            pieces.push(Piece::Own(header));
        }
        if let Operation::Datagram { gather: Gather::Inline(octets), .. }
        | Operation::Unreliable { gather: Gather::Inline(octets), .. } = &wqe.wr.operation
        {
            pieces.push(Piece::Own(octets));
            continue;
        }
        let mut left = wqe.total;
        while left > 0 {
            let Some(grant) = grants.next() else { break };
            pieces.push(Piece::Granted(grant, 0..grant.len()));
            left -= grant.len() as u64;
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_network_does_not_take_is_lost_by_datagrams_of_verbs_alone() {
        let is_lost_by =
            |transport, errno, len| is_lost(transport, &io::Error::from_raw_os_error(errno), len);
        for errno in [libc::EPERM, libc::EACCES, libc::ENETUNREACH, libc::EHOSTUNREACH, libc::EMSGSIZE] {
            assert!(is_lost_by(Transport::Unreliable, errno, LONGEST), "{errno}");
            assert!(!is_lost_by(Transport::Udp, errno, LONGEST), "{errno}");
        }
        assert!(is_lost_by(Transport::Udp, libc::ENOBUFS, 100));
        let by_caller = [(libc::EMSGSIZE, LONGEST + 1), (libc::EINVAL, 100), (libc::ENOMEM, 100)];
        assert!(!by_caller.into_iter().any(|(errno, len)| is_lost_by(Transport::Unreliable, errno, len)));
    }

    #[test]
    fn destinations_without_bundles_are_bounded_and_the_latest_is_among_them() {
        let mut without = HashSet::new();
        for port in 1..=3 * MOST_WITHOUT as u16 {
            let to = SocketAddr::from(([192, 0, 2, 1], port));
            remember(&mut without, to);
            assert!(without.contains(&to) && without.len() <= MOST_WITHOUT, "{}", without.len());
        }
    }
}
