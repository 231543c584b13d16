//! Events and spans of the engine (`tracing`): one function for each, which its place calls in one
//! line.
//!
//! The target says the subject, so that filters can choose: `rddp_rnic::startup`, `request` (a
//! peer's Request for a connection), `connection`, `work` (what programs post), `train`,
//! `placement`, `terminate` and `lease`. What happens for each message has the level TRACE, for
//! each connection DEBUG; what ends one by a fault, or looks like a program's mistake, INFO; who
//! comes to a listener without speaking MPA, WARN. An event that nobody wants costs a load and a
//! comparison.

use std::net::SocketAddr;

use rddp_iwarp::Segment;
use rddp_mpa::{Negotiated, StartupError};
use rddp_rdma::{AsyncEventKind, CqNum, SendWr, Status};
use rddp_rdmap::{Fault, TerminateRepr};
use tracing::level_filters::LevelFilter;
use tracing::span::EnteredSpan;
use tracing::{debug, debug_span, info, trace, warn};

use crate::error::ConnectError;
use crate::mem::QpNum;
use crate::queues::state::QpState;

/// The span of the background thread's work on a startup.
pub(crate) fn startup(qp: Option<QpNum>) -> EnteredSpan {
    debug_span!(target: "rddp_rnic::startup", "startup", qp = qp.map(|qp| qp.0)).entered()
}

/// The span of the background thread's work on a connection.
pub(crate) fn connection(qp: QpNum) -> EnteredSpan {
    debug_span!(target: "rddp_rnic::connection", "connection", qp = qp.0).entered()
}

/// A startup begins, to this address if this end makes the TCP connection.
#[cold]
pub(crate) fn startup_begins(qp: QpNum, to: Option<SocketAddr>) {
    let to = to.map(tracing::field::display);
    debug!(target: "rddp_rnic::startup", qp = qp.0, to, "startup begins");
}

/// A startup has failed.
#[cold]
pub(crate) fn startup_failed(qp: Option<QpNum>, error: &ConnectError) {
    info!(target: "rddp_rnic::startup", qp = qp.map(|qp| qp.0), %error, "startup failed");
}

/// A connection to a listener has ended before its Request was whole and right. Who closes it
/// without a word (a probe of the port) is no reason to warn.
#[cold]
pub(crate) fn no_request(peer: Option<SocketAddr>, reason: &ConnectError) {
    let peer = peer.map(tracing::field::display);
    match reason {
        ConnectError::Startup(fault) if !matches!(fault, StartupError::Closed { .. }) => warn!(
            target: "rddp_rnic::startup", peer, %reason,
            "a client is disconnected: what came from it is no RDMA over TCP; this port serves RDMA clients alone"
        ),
        _ => info!(target: "rddp_rnic::startup", peer, %reason, "connection closed during startup"),
    }
}

/// A peer has connected to a listener, and has sent no whole Request in time; or it is the oldest
/// of too many.
#[cold]
pub(crate) fn silent(peer: Option<SocketAddr>, reason: &'static str) {
    let peer = peer.map(tracing::field::display);
    warn!(
        target: "rddp_rnic::startup", peer, reason = tracing::field::display(reason),
        "a client is disconnected: it has connected, and asked for nothing"
    );
}

/// A peer's Request waits for the program's answer.
#[cold]
pub(crate) fn requested(peer: Option<SocketAddr>, private_data: usize) {
    let peer = peer.map(tracing::field::display);
    debug!(target: "rddp_rnic::request", peer, private_data, "Request received");
}

/// The program has rejected a Request.
#[cold]
pub(crate) fn rejected() {
    debug!(target: "rddp_rnic::request", "Request rejected");
}

/// A QP has a connection.
#[cold]
pub(crate) fn connected(qp: QpNum, agreed: &Negotiated, active: bool) {
    let Negotiated { ird, ord, .. } = agreed;
    debug!(target: "rddp_rnic::connection", qp = qp.0, active, transport = "iwarp", ird, ord, "connected");
}

/// A QP has a connection of plain TCP, with messages or without.
#[cold]
pub(crate) fn connected_plain(qp: QpNum, transport: &'static str, active: bool) {
    debug!(target: "rddp_rnic::connection", qp = qp.0, active, transport, "connected");
}

/// A QP was made that may have more requests than a completion queue of its has room for
/// completions. Requests that make none, and a program that polls in time, bear that.
#[cold]
pub(crate) fn may_overflow(qp: QpNum, cq: CqNum, requests: usize, capacity: usize) {
    info!(
        target: "rddp_rnic::work",
        qp = qp.0, cq = cq.0, requests, capacity,
        "the completion queue has room for fewer completions than the QP for requests"
    );
}

/// Both FINs have been seen.
#[cold]
pub(crate) fn closed(qp: QpNum, state: QpState) {
    debug!(target: "rddp_rnic::connection", qp = qp.0, %state, "closed");
}

/// TCP is lost or is reset; `event` is none where the program has asked for it.
#[cold]
pub(crate) fn lost(qp: QpNum, state: QpState, event: Option<&AsyncEventKind>) {
    match event {
        Some(event) => info!(target: "rddp_rnic::connection", qp = qp.0, %state, ?event, "connection lost"),
        None => debug!(target: "rddp_rnic::connection", qp = qp.0, %state, "connection reset"),
    }
}

/// The program has dropped the QP, whose connection closes behind its back.
#[cold]
pub(crate) fn left(qp: QpNum, state: QpState) {
    debug!(target: "rddp_rnic::connection", qp = qp.0, %state, "dropped by the program");
}

/// A fault ends the connection, with a Terminate if one may be sent.
#[cold]
pub(crate) fn terminating(qp: QpNum, fault: &Fault, sent: Option<&TerminateRepr>) {
    match sent {
        Some(TerminateRepr { code, .. }) => {
            info!(target: "rddp_rnic::terminate", qp = qp.0, %code, %fault, "Terminate sent");
        }
        None => info!(target: "rddp_rnic::terminate", qp = qp.0, %fault, "ended without a Terminate"),
    }
}

/// The peer ends the connection with a Terminate.
#[cold]
pub(crate) fn terminated(qp: QpNum, terminate: &TerminateRepr) {
    info!(target: "rddp_rnic::terminate", qp = qp.0, code = %terminate.code, "Terminate received");
}

/// The program has posted requests to a send queue.
#[inline]
pub(crate) fn posted(qp: QpNum, list: &[SendWr]) {
    #[cold]
    fn event(qp: QpNum, list: &[SendWr]) {
        let (requests, wr_id) = (list.len(), list.first().map(|wr| wr.wr_id));
        trace!(target: "rddp_rnic::work", qp = qp.0, requests, wr_id, "posted");
    }
    if is_traced() {
        event(qp, list);
    }
}

/// A request has failed.
#[cold]
pub(crate) fn request_failed(qp: QpNum, status: Status) {
    debug!(target: "rddp_rnic::work", qp = qp.0, ?status, "request failed");
}

/// TCP was given a train behind what it had been promised, and has taken so many octets of both.
#[inline]
pub(crate) fn train(qp: QpNum, octets: usize, taken: usize) {
    #[cold]
    fn event(qp: QpNum, octets: usize, taken: usize) {
        trace!(target: "rddp_rnic::train", qp = qp.0, octets, taken, "train");
    }
    if is_traced() {
        event(qp, octets, taken);
    }
}

/// A segment has been placed: so many octets.
#[inline]
pub(crate) fn placed(qp: QpNum, segment: &Segment) {
    #[cold]
    fn event(qp: QpNum, segment: &Segment) {
        let Segment { place, payload_len: octets, .. } = segment;
        trace!(target: "rddp_rnic::placement", qp = qp.0, octets, ?place, "placed");
    }
    if is_traced() {
        event(qp, segment);
    }
}

/// Returns whether anybody may want events about each message. They are made out of line: code that
/// fills in their fields costs the hot paths registers and stack, even if it never runs.
#[inline]
pub(crate) fn is_traced() -> bool {
    LevelFilter::current() >= LevelFilter::TRACE
}

/// A segment has no place: the peer may not write there, or this end's memory is no good.
#[cold]
pub(crate) fn unplaceable(qp: QpNum, why: &dyn std::fmt::Debug) {
    debug!(target: "rddp_rnic::placement", qp = qp.0, ?why, "refused");
}

/// The background thread leaves a queue's sockets to the program, which reads them itself.
#[cold]
pub(crate) fn lease_begins() {
    trace!(target: "rddp_rnic::lease", "lease begins");
}

/// The program no longer reads its sockets: the background thread takes them back.
#[cold]
pub(crate) fn lease_ends(sockets: usize) {
    trace!(target: "rddp_rnic::lease", sockets, "lease lost");
}
