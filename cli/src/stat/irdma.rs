//! Names that Linux's `irdma` driver has for counters of its devices: tools that watch those read
//! the same from rddp.

use rddp_stat::{Connection, Counter};

use super::tcp_info::TcpInfo;

/// The counters of the engine.
const OF_RDDP: &[(&str, Counter)] = &[
    ("iwInRdmaReads", Counter::ReadsReceived),
    ("iwInRdmaSends", Counter::SendsReceived),
    ("iwInRdmaWrites", Counter::WritesReceived),
    ("iwOutRdmaReads", Counter::ReadsSent),
    ("iwOutRdmaSends", Counter::SendsSent),
    ("iwOutRdmaWrites", Counter::WritesSent),
    ("iwRdmaBnd", Counter::Binds),
    ("iwRdmaInv", Counter::Invalidations),
];

/// Returns the counters of a connection by irdma's names.
pub(super) fn aliases(rddp: &Connection, tcp: Option<&TcpInfo>) -> Vec<(&'static str, u64)> {
    let counted = OF_RDDP.iter().filter(|(_, counter)| rddp.identity.kind.counts(*counter));
    let engine = counted.map(|(name, counter)| (*name, rddp.counts.of(*counter)));
    let of_tcp = tcp.map(|tcp| {
        [("tcpInSegs", tcp.segs_in), ("tcpOutSegs", tcp.segs_out), ("tcpRetransSegs", tcp.retrans)]
    });
    let of_tcp = of_tcp.into_iter().flatten().map(|(name, count)| (name, u64::from(count)));
    engine.chain(of_tcp).collect()
}
