//! The settings of SDP that hold for the process: from the environment, else from the policy.

use std::ffi::{OsString, c_int};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rddp_policy::{NO_THRESHOLD, Thresholds};
use rddp_real as real;
use rddp_stream::{Copies, SdpMode, SdpOptions, State};

use crate::kinds::device;
use crate::{journal, switch};

/// The variable that holds the least call to send that is advertised: octets, `all` or `none`.
pub const SOURCE_THRESHOLD: &str = "RDDP_SDP_SOURCE_THRESHOLD";
/// The variable that holds the least call to receive that is advertised, or takes what the peer
/// advertises without a buffer.
pub const SINK_THRESHOLD: &str = "RDDP_SDP_SINK_THRESHOLD";
/// The variable that selects private buffers at both ends, with copies through them, if it is `1`:
/// the `BCopy` of the papers.
pub const BCOPY: &str = "RDDP_SDP_BCOPY";
/// The variable that holds the number of private receive buffers that the peer is told of.
pub const BUFS: &str = "RDDP_SDP_BUFS";
/// The variable that holds the mode that is asked for where this end sends: `buffered`, `combined`,
/// `pipelined` or `auto`.
pub const MODE: &str = "RDDP_SDP_MODE";
/// The variable that has sends without credits wait, if it is `0`, in place of leaving their octets
/// where short messages are joined.
pub const JOINS: &str = "RDDP_SDP_JOINS";
/// The variable that names the RDMA device for sockets that a policy gives SDP.
pub const DEVICE: &str = "RDDP_SDP_DEVICE";
/// The variable that turns the families 27 and 28 of `socket` off, if it is `0`.
pub const FAMILIES: &str = "RDDP_SDP_FAMILIES";

/// The family of SDP over IPv4 in programs that were written for it (`AF_INET_SDP`).
pub const AF_INET_SDP: c_int = 27;
/// The family of SDP over IPv6 (`AF_INET6_SDP`).
pub const AF_INET6_SDP: c_int = 28;

/// Over TCP an advert saves no copy at the source: the kernel copies what is sent either way, and
/// the peer's RDMA Read costs a round trip before the first octet. So none is sent by default.
const SOURCE: u32 = NO_THRESHOLD;
/// A Read into a program's memory saves a copy at the sink; below this length its round trip costs
/// more.
const SINK: u32 = 16 << 10;

static OF_SOURCE: AtomicU32 = AtomicU32::new(SOURCE);
static OF_SINK: AtomicU32 = AtomicU32::new(SINK);
static IS_BCOPY: AtomicBool = AtomicBool::new(false);
/// 0: the stream's own number.
static OF_BUFS: AtomicU32 = AtomicU32::new(0);
/// A place in [`MODES`].
static OF_MODE: AtomicU32 = AtomicU32::new(0);
static JOINS_MESSAGES: AtomicBool = AtomicBool::new(true);
static HAS_FAMILIES: AtomicBool = AtomicBool::new(true);

/// Settings of one socket; `None` where it has the process's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SdpSettings {
    /// The threshold of the source.
    pub source: Option<u32>,
    /// The threshold of the sink.
    pub sink: Option<u32>,
    /// Private buffers at both ends.
    pub bcopy: Option<bool>,
    /// The number of private receive buffers.
    pub bufs: Option<u16>,
    /// The mode that is asked for where this end sends; `Some(None)`: none.
    pub mode: Option<Option<SdpMode>>,
}

impl SdpSettings {
    /// The settings of a socket of which nothing was asked.
    pub const DEFAULT: SdpSettings =
        SdpSettings { source: None, sink: None, bcopy: None, bufs: None, mode: None };

    /// Returns the threshold of the source.
    pub fn source(self) -> u32 {
        self.source.unwrap_or_else(|| OF_SOURCE.load(Ordering::Relaxed))
    }

    /// Returns the threshold of the sink.
    pub fn sink(self) -> u32 {
        self.sink.unwrap_or_else(|| OF_SINK.load(Ordering::Relaxed))
    }

    /// Returns the options of a stream with these settings.
    pub(crate) fn options(self) -> SdpOptions {
        let copies = if self.is_bcopy() { Copies::Private } else { Copies::Direct };
        let (threshold, sink_threshold) = self.thresholds();
        SdpOptions {
            bufs: self.bufs().unwrap_or(0),
            threshold,
            sink_threshold,
            copies,
            mode: self.mode(),
            // The papers' baseline has no such queue.
            joins: !self.is_bcopy() && JOINS_MESSAGES.load(Ordering::Relaxed),
            ..SdpOptions::DEFAULT
        }
    }

    /// Returns the thresholds of source and sink as a stream has them.
    pub(crate) fn thresholds(self) -> (u64, u64) {
        let octets = |threshold: u32| if threshold == NO_THRESHOLD { u64::MAX } else { threshold.into() };
        (octets(self.source()), octets(self.sink()))
    }

    /// Returns the thresholds that were set for the socket of a stream, maybe by another program.
    pub(crate) fn of_stream(state: &State) -> Self {
        let octets = |threshold: u64| u32::try_from(threshold).unwrap_or(NO_THRESHOLD);
        let (source, sink) = state.own_thresholds();
        Self { source: source.map(octets), sink: sink.map(octets), ..Self::DEFAULT }
    }

    /// Sets the thresholds of a stream.
    pub(crate) fn set_thresholds(self, state: &State) {
        let (source, sink) = self.thresholds();
        state.set_threshold(source);
        state.set_sink_threshold(sink);
        state.note_own_thresholds(self.source.is_some(), self.sink.is_some());
    }

    /// Returns whether octets go through private buffers at both ends.
    pub fn is_bcopy(self) -> bool {
        self.bcopy.unwrap_or_else(|| IS_BCOPY.load(Ordering::Relaxed))
    }

    /// Returns the mode that is asked for where this end sends.
    pub fn mode(self) -> Option<SdpMode> {
        let of_process = || MODES.get(OF_MODE.load(Ordering::Relaxed) as usize).copied().flatten();
        self.mode.unwrap_or_else(of_process)
    }

    /// Returns the number of private receive buffers, if one was asked for.
    pub fn bufs(self) -> Option<u16> {
        let of_process = || u16::try_from(OF_BUFS.load(Ordering::Relaxed)).ok();
        self.bufs.or_else(of_process).filter(|bufs| *bufs != 0)
    }
}

/// A variable of SDP: its name, how it is read, and what it takes.
struct Variable {
    name: &'static str,
    parse: fn(&str) -> Option<u32>,
    takes: &'static str,
}

const VARIABLES: [Variable; 7] = [
    Variable { name: SOURCE_THRESHOLD, parse: Thresholds::of_word, takes: OCTETS },
    Variable { name: SINK_THRESHOLD, parse: Thresholds::of_word, takes: OCTETS },
    Variable { name: BUFS, parse: bufs, takes: "a number from 1 to 65535" },
    Variable { name: BCOPY, parse: switched, takes: "0 or 1" },
    Variable { name: FAMILIES, parse: switched, takes: "0 or 1" },
    Variable { name: JOINS, parse: switched, takes: "0 or 1" },
    Variable { name: MODE, parse: mode, takes: "buffered, combined, pipelined or auto" },
];
const OCTETS: &str = "a number of octets, all or none";

/// A variable of SDP with a value that it does not take. The library ignores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableFault {
    name: &'static str,
    value: OsString,
    takes: &'static str,
}

impl VariableFault {
    /// Returns what the variable takes.
    pub fn remedy(&self) -> &'static str {
        self.takes
    }
}

impl fmt::Display for VariableFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}: not a value of this variable", self.name, self.value.display())
    }
}

impl Variable {
    /// Returns the value in the environment, if there is one that is not empty.
    fn read(&self) -> Result<Option<u32>, VariableFault> {
        let Some(value) = real::secure_variable(self.name).filter(|value| !value.is_empty()) else {
            return Ok(None);
        };
        let number = value.to_str().and_then(self.parse);
        number.map(Some).ok_or(VariableFault { name: self.name, value, takes: self.takes })
    }
}

/// Returns the variables of SDP in the environment that have a value which they do not take.
pub fn faults() -> impl Iterator<Item = VariableFault> {
    VARIABLES.iter().filter_map(|variable| variable.read().err())
}

/// Reads the settings, when the library is loaded; the policy has been read.
pub fn load() {
    let of_policy = switch::thresholds();
    let [source, sink, bufs, bcopy, families, joins, mode] = VARIABLES.each_ref().map(|variable| {
        variable.read().unwrap_or_else(|fault| {
            journal::without_policy(format_args!("{fault}: ignored; try: {}", fault.remedy()));
            None
        })
    });
    let set = |place: &AtomicU32, value: Option<u32>| {
        value.into_iter().for_each(|value| place.store(value, Ordering::Relaxed));
    };
    set(&OF_SOURCE, source.or(of_policy.source));
    set(&OF_SINK, sink.or(of_policy.sink));
    set(&OF_BUFS, bufs);
    set(&OF_MODE, mode);
    IS_BCOPY.store(bcopy == Some(1), Ordering::Relaxed);
    JOINS_MESSAGES.store(joins != Some(0), Ordering::Relaxed);
    HAS_FAMILIES.store(families != Some(0), Ordering::Relaxed);
    device::load();
}

fn bufs(word: &str) -> Option<u32> {
    word.parse().ok().filter(|bufs| (1..=u32::from(u16::MAX)).contains(bufs))
}

/// Returns the place of a mode in [`MODES`].
fn mode(word: &str) -> Option<u32> {
    let words = ["auto", "buffered", "combined", "pipelined"];
    words.iter().position(|one| *one == word).map(|number| number as u32)
}

const MODES: [Option<SdpMode>; 4] =
    [None, Some(SdpMode::Buffered), Some(SdpMode::Combined), Some(SdpMode::Pipelined)];

fn switched(word: &str) -> Option<u32> {
    ["0", "1"].iter().position(|one| *one == word).map(|number| number as u32)
}

/// Returns the kernel's family for a `socket` of these arguments that the kernel has refused with
/// `EAFNOSUPPORT`, if it is one of SDP's.
pub fn kernel_family(domain: c_int, kind: c_int, protocol: c_int) -> Option<c_int> {
    let family = kernels(domain)?;
    let is_stream = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) == libc::SOCK_STREAM;
    let is_tcp = protocol == 0 || protocol == libc::IPPROTO_TCP;
    (is_stream && is_tcp && HAS_FAMILIES.load(Ordering::Relaxed)).then_some(family)
}

/// Returns the kernel's family for one of SDP's.
pub fn kernels(family: c_int) -> Option<c_int> {
    match family {
        AF_INET_SDP => Some(libc::AF_INET),
        AF_INET6_SDP => Some(libc::AF_INET6),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_of_sdp_are_taken_for_streams_over_tcp_alone() {
        let (stream, flags) = (libc::SOCK_STREAM, libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
        assert_eq!(kernel_family(27, stream, 0), Some(libc::AF_INET));
        assert_eq!(kernel_family(28, stream | flags, libc::IPPROTO_TCP), Some(libc::AF_INET6));
        for (domain, kind, protocol) in [
            (27, libc::SOCK_DGRAM, 0),
            (27, stream, libc::IPPROTO_SCTP),
            (libc::AF_INET, stream, 0),
            (29, stream, 0),
        ] {
            assert_eq!(kernel_family(domain, kind, protocol), None, "{domain} {kind} {protocol}");
        }
    }

    #[test]
    fn a_socket_has_the_process_s_thresholds_unless_it_sets_its_own() {
        assert_eq!((SdpSettings::DEFAULT.source(), SdpSettings::DEFAULT.sink()), (NO_THRESHOLD, 16384));
        let own = SdpSettings {
            source: Some(0),
            sink: Some(1),
            bcopy: Some(true),
            bufs: Some(7),
            mode: Some(None),
        };
        assert_eq!((own.source(), own.sink(), own.is_bcopy(), own.bufs()), (0, 1, true, Some(7)));
        assert_eq!(SdpSettings::DEFAULT.bufs(), None);
    }
}
