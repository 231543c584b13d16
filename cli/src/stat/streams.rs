//! Byte streams of programs under `rddp run`: they lie in memory that processes share, by the
//! cookies of their sockets.

use std::path::Path;

use rddp_stat::{Connection, ConnectionKind, Counter, Identity, Phase};
use rddp_stream::{Shown, Why, shown_streams};

/// A stream, and the processes that hold its socket.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    holders: Vec<u32>,
    connection: Connection,
}

/// Returns the streams of this user's programs; for root of all users'.
pub(super) fn all() -> Vec<Stream> {
    let user = nix::unistd::geteuid().as_raw();
    shown_streams(Path::new(FOLDER), user).into_iter().map(Stream::from).collect()
}

/// Returns the streams whose first holder is this process: each is listed once.
pub(super) fn of(pid: u32, streams: &[Stream]) -> Vec<Connection> {
    let own = streams.iter().filter(|stream| stream.holders.first() == Some(&pid));
    own.map(|stream| stream.connection).collect()
}

/// Returns all streams that this process holds, with others or alone.
pub(super) fn with(pid: u32, streams: &[Stream]) -> Vec<Connection> {
    let own = streams.iter().filter(|stream| stream.holders.contains(&pid));
    own.map(|stream| stream.connection).collect()
}

impl From<Shown> for Stream {
    fn from(shown: Shown) -> Self {
        let kind = if shown.sdp { ConnectionKind::Sdp } else { ConnectionKind::Stream };
        let identity = Identity { kind, active: shown.active, cookie: shown.cookie, ..Identity::default() };
        let mut connection = Connection { identity, phase: phase_of(shown.phase), ..Connection::default() };
        let code_of = |why| shown.ended.filter(|ended| ended.why == why).map(|ended| ended.code.0);
        connection.terminate_sent = code_of(Why::Fault);
        connection.terminate_received = code_of(Why::Terminated);
        for (counter, count) in [
            (Counter::OctetsSent, shown.octets.sent),
            (Counter::OctetsReceived, shown.octets.received),
            (Counter::FpdusSent, shown.fpdus_sent),
            (Counter::SendsSent, shown.sends.sent),
            (Counter::SendsReceived, shown.sends.received),
            (Counter::TerminatesSent, connection.terminate_sent.is_some().into()),
            (Counter::TerminatesReceived, connection.terminate_received.is_some().into()),
        ] {
            connection.counts.set(counter, count);
        }
        Stream { holders: shown.holders, connection }
    }
}

fn phase_of(phase: rddp_stream::Phase) -> Phase {
    match phase {
        rddp_stream::Phase::Starting => Phase::Starting,
        rddp_stream::Phase::Framed => Phase::Framed,
        rddp_stream::Phase::Plain => Phase::Plain,
        rddp_stream::Phase::Ended => Phase::Ended,
    }
}

/// The folder of their files.
const FOLDER: &str = "/dev/shm";
