//! Lines of `rddp ss`: a connection each, in the manner of `ss -tie`.

use std::fmt::Write;
use std::net::SocketAddr;

use rddp_command::out::say;
use rddp_rnic::TerminateCode;
use rddp_stat::{ConnectionKind, Counter, Identity};

use super::process::Process;
use super::sample::Joined;
use super::tcp_info::TcpInfo;

pub(super) fn print(process: &Process, joined: &Joined) {
    say!("{}", text(process, joined));
}

/// Returns the line. Pairs of counts are of what was sent, and what was received.
pub(super) fn text(process: &Process, joined: &Joined) -> String {
    let (rddp, identity) = (&joined.rddp, &joined.rddp.identity);
    let one = |of| if identity.kind.counts(of) { rddp.counts.of(of).to_string() } else { "-".to_owned() };
    let pair = |sent, received| format!("{}/{}", one(sent), one(received));
    let mut text = format!(
        "{:<9} {:<7} {:<21} {:<21} {},pid={} sk:{:x}",
        rddp.phase,
        name(identity),
        address(identity.local),
        address(identity.peer),
        process.command,
        process.pid,
        identity.cookie,
    );
    // Writing to a string does not fail.
    let _ = write!(
        text,
        " octets:{} fpdus:{} sends:{} writes:{} reads:{}",
        pair(Counter::OctetsSent, Counter::OctetsReceived),
        pair(Counter::FpdusSent, Counter::FpdusReceived),
        pair(Counter::SendsSent, Counter::SendsReceived),
        pair(Counter::WritesSent, Counter::WritesReceived),
        pair(Counter::ReadsSent, Counter::ReadsReceived),
    );
    for (name, code) in [("sent", rddp.terminate_sent), ("received", rddp.terminate_received)] {
        if let Some(code) = code {
            let _ = write!(text, " terminate_{name}:{}", TerminateCode(code));
        }
    }
    match &joined.tcp {
        Some(tcp) => text + &of_tcp(tcp),
        None => text + " tcp:-",
    }
}

fn of_tcp(tcp: &TcpInfo) -> String {
    format!(
        " rtt:{:.3}/{:.3} mss:{} cwnd:{} bytes_acked:{} bytes_received:{} segs_out:{} segs_in:{} retrans:{} recv-q:{} send-q:{}",
        f64::from(tcp.rtt_us) / 1e3,
        f64::from(tcp.rttvar_us) / 1e3,
        tcp.snd_mss,
        tcp.cwnd,
        tcp.bytes_acked,
        tcp.bytes_received,
        tcp.segs_out,
        tcp.segs_in,
        tcp.retrans,
        tcp.recv_queue,
        tcp.send_queue,
    )
}

/// Returns the name of a connection within its process: streams have no number.
pub(super) fn name(identity: &Identity) -> String {
    match identity.kind {
        ConnectionKind::Qp => format!("qp:{}", identity.number),
        kind => kind.name().to_owned(),
    }
}

pub(super) fn address(address: Option<SocketAddr>) -> String {
    address.map_or_else(|| "-".to_owned(), |address| address.to_string())
}
