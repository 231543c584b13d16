//! The policy of this process, applied when a socket connects or listens, and when it accepts from
//! a listener that came by `exec` or in a message.
//!
//! The policy is read once, when the library is loaded. The environment says where it is:
//! [`POLICY`] names a file, [`FAMILY`] is one word that holds for all sockets. `rddp run` sets
//! them. Where neither is there, those of libsdp count, with libsdp's meaning. A program that gains
//! privileges when it is run (setuid) ignores them all, as the dynamic linker ignores the library.
//! Without a policy each question here costs one load.

use std::ffi::{OsStr, c_int};
use std::fmt::Arguments;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use once_cell::race::OnceBox;
use rddp_policy::{BadLine, Family, PlacementSettings, Policy, Side, Thresholds};
use rddp_real::{self as real, state_of_tcp};
use rddp_stream::Errno;

use crate::journal::{self, Level};
use crate::kinds::device;
use crate::plain_peers;
use crate::socket::{self, KindId, Mode, SavedOptions, Settings};
use crate::trace;

/// The variable that names a policy file.
pub const POLICY: &str = "RDDP_POLICY";
/// The variable that holds one family for all sockets.
pub const FAMILY: &str = "RDDP_FAMILY";

/// The variable that names a file of libsdp.
const LIBSDP_FILE: &str = "LIBSDP_CONFIG_FILE";
/// The variables that make libsdp use SDP for all sockets, whatever their value.
const LIBSDP_SIMPLE: [&str; 2] = ["SIMPLE_LIBSDP", "ALWAYS_USE_SDP"];

static SWITCH: OnceBox<Switch> = OnceBox::new();

struct Switch {
    policy: Policy,
    program: Vec<u8>,
    /// The policy has rules for servers that demand more than plain TCP.
    serves: bool,
}

/// Reads the policy that the environment names.
pub fn load() {
    if let Some(policy) = of_environment() {
        let program = real::program_name().as_bytes().to_vec();
        let serves = policy.concerns(Side::Server, &program);
        // This is the only place that sets the policy.
        let _ = SWITCH.set(Box::new(Switch { policy, program, serves }));
    }
}

/// Returns the policy that the environment names, and logs what is wrong with it.
pub fn of_environment() -> Option<Policy> {
    // A script that passes variables on may pass on an empty one for one that is not set.
    let variable = |name| real::secure_variable(name).filter(|value| !value.is_empty());
    match (variable(POLICY), variable(FAMILY)) {
        (Some(path), _) => from_file(Path::new(&path)),
        (None, Some(word)) => of_word(&word),
        (None, None) => of_libsdp(variable(LIBSDP_FILE).as_deref().map(Path::new)),
    }
}

fn of_word(word: &OsStr) -> Option<Policy> {
    let family = word.to_str().and_then(Policy::family_of);
    if family.is_none() {
        let told = format_args!(
            "{FAMILY}={}: not a family; all sockets stay plain TCP; try: ddp, sdp, both, sdp-or-tcp or tcp",
            word.display()
        );
        journal::without_policy(told);
    }
    family.map(Policy::always)
}

fn from_file(path: &Path) -> Option<Policy> {
    match std::fs::read(path) {
        Ok(octets) => Some(told(path, Policy::parse(&octets))),
        Err(error) => {
            journal::without_policy(format_args!("{}: {error}; all sockets stay plain TCP", path.display()));
            None
        }
    }
}

/// Returns the policy that libsdp would have: all sockets use SDP where its environment says so,
/// and where its file cannot be read or has no rules.
fn of_libsdp(file: Option<&Path>) -> Option<Policy> {
    if LIBSDP_SIMPLE.into_iter().any(|name| real::secure_variable(name).is_some()) {
        return Some(Policy::always(Family::Sdp));
    }
    let path = file?;
    match std::fs::read(path) {
        Ok(octets) => Some(told(path, Policy::parse_libsdp(&octets))),
        Err(error) => {
            journal::without_policy(format_args!(
                "{}: {error}; all sockets use SDP, as libsdp has it",
                path.display()
            ));
            Some(Policy::always(Family::Sdp))
        }
    }
}

/// Logs the errors in a file, and returns its policy.
fn told(path: &Path, (policy, faults): (Policy, Vec<BadLine>)) -> Policy {
    for fault in faults {
        let told = format_args!("{}: {fault}; try: {}", path.display(), fault.remedy());
        journal::tell(policy.log(), Level::Error, told);
    }
    policy
}

/// Returns the thresholds of SDP that the policy sets.
pub(crate) fn thresholds() -> Thresholds {
    SWITCH.get().map_or(Thresholds::default(), |switch| switch.policy.thresholds())
}

/// Returns the settings of placement in the kernel that the policy makes.
pub(crate) fn placement() -> PlacementSettings {
    SWITCH.get().map(|switch| switch.policy.placement().clone()).unwrap_or_default()
}

/// Logs why everything is placed at user level, though somebody has asked for the kernel.
pub(crate) fn tell_user_level(why: impl std::fmt::Display) {
    let what = format_args!("raw mode places at user level: {why}");
    match SWITCH.get() {
        Some(switch) => switch.say(Level::Error, what),
        None => journal::without_policy(what),
    }
}

/// Returns whether there is a policy.
#[inline]
pub fn is_on() -> bool {
    SWITCH.get().is_some()
}

/// Returns whether the policy has rules for servers that demand more than plain TCP.
#[inline]
pub(crate) fn has_rules_for_servers() -> bool {
    SWITCH.get().is_some_and(|switch| switch.serves)
}

/// Applies the policy to a socket that is about to connect to, or to listen at, `addr`; returns the
/// error if that is refused.
pub(crate) fn apply(fd: c_int, side: Side, addr: SocketAddr) -> Result<(), Errno> {
    match SWITCH.get() {
        Some(switch) if !is_programs_choice(fd) => switch.apply(fd, side, addr, real::TCP_CLOSE),
        _ => Ok(()),
    }
}

/// Applies the policy to a listener that has come by `exec` or in a message, when a connection to
/// it is accepted.
pub(crate) fn apply_to_listener(fd: c_int) -> Result<(), Errno> {
    let (Some(switch), Some(addr)) = (SWITCH.get(), real::local_address(fd)) else { return Ok(()) };
    // This is the common case of an accepted plain connection: it costs no call of the kernel, and
    // is not logged.
    if switch.family(Side::Server, addr) == Family::Tcp || is_programs_choice(fd) {
        return Ok(());
    }
    switch.apply(fd, Side::Server, addr, real::TCP_LISTEN)
}

/// Logs that a connection which came by `exec` or in a message, without a state, stays plain. This
/// is logged once for each process, and only where the policy allows no plain TCP.
pub(crate) fn tell_unknown(fd: c_int) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let Some(switch) = SWITCH.get() else { return };
    if matches!(state_of_tcp(fd), Err(_) | Ok(real::TCP_CLOSE | real::TCP_LISTEN)) {
        return;
    }
    // Which end accepted the connection is not known any more.
    let is_demanding = |family| matches!(family, Family::Ddp | Family::Sdp);
    let demands =
        |side, addr: Option<SocketAddr>| addr.is_some_and(|addr| is_demanding(switch.family(side, addr)));
    let (own, peer) = (real::local_address(fd), real::peer_address(fd));
    if (demands(Side::Server, own) || demands(Side::Client, peer)) && !TOLD.swap(true, Ordering::Relaxed) {
        let peer = peer.map_or(String::new(), |peer| format!(" with {peer}"));
        switch.say(
            Level::Error,
            format_args!(
                "the connection{peer} stays plain TCP: descriptor {fd} came by exec or in a \
                 message, without its state (reported once)"
            ),
        );
    }
}

/// Logs that a peer does not speak MPA, and that the socket is connected to it again in plain TCP;
/// or that it has rejected the startup, and both go on in plain TCP.
pub(crate) fn tell_plain(peer: SocketAddr, has_rejected: bool) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let what = if has_rejected {
        "rejected the MPA startup; goes on in plain TCP"
    } else {
        "does not speak MPA; connected again in plain TCP"
    };
    // One that rejects does so at each connection.
    let is_told = has_rejected && TOLD.swap(true, Ordering::Relaxed);
    say(if is_told { Level::Call } else { Level::Warning }, format_args!("connect {peer}: the peer {what}"));
}

/// Logs that a device cannot be used. As [`tell_plain_server`], a process logs it as an error once.
pub(crate) fn tell_device(name: &str, why: &impl std::fmt::Display) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    say(error_once(&TOLD), format_args!("SDP on device {name}: {why}; try: rddp doctor (reported once)"));
}

/// Logs that a connection goes by a device.
pub(crate) fn tell_on_device(call: &str, peer: SocketAddr, name: &str) {
    say(Level::Call, format_args!("{call} {peer}: SDP on device {name}"));
}

/// Logs that a device has not made a connection. What lies with this host, such as its limit of
/// locked memory, a process logs as an error once: the program has an errno alone.
pub(crate) fn tell_not_made(what: impl std::fmt::Display, name: &str, error: &std::io::Error) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    match error.kind() {
        std::io::ErrorKind::Other => {
            say(error_once(&TOLD), format_args!("{what}: device {name}: {error} (reported once)"));
        }
        _ => tell_failed(format_args!("{what}: device {name}: {error}")),
    }
}

/// Logs that a device does not listen. As [`tell_plain_server`], a process logs that as an error
/// once.
pub(crate) fn tell_not_listening(at: SocketAddr, name: &str, error: &std::io::Error) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    say(error_once(&TOLD), format_args!("listen {at}: device {name}: {error} (reported once)"));
}

/// Logs that a child of `fork` uses a socket of its parent's that a device has. As
/// [`tell_plain_server`], a process logs it as an error once.
pub(crate) fn tell_inherited() {
    static TOLD: AtomicBool = AtomicBool::new(false);
    say(
        error_once(&TOLD),
        format_args!(
            "a socket of SDP on a device is of no use to a child of the process that made it; try: a policy \
             that leaves this server in TCP (reported once)"
        ),
    );
}

/// Logs that a child of `fork` asks for the device that its parent has opened. As
/// [`tell_plain_server`], a process logs it as an error once.
pub(crate) fn tell_parents_device(name: &str) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    say(
        error_once(&TOLD),
        format_args!(
            "SDP on device {name}: it is of no use to a child of the process that has opened it; try: a policy \
             that leaves what children do in TCP (reported once)"
        ),
    );
}

/// Logs that a server is not reached by the device, and that the socket goes on in plain TCP.
pub(crate) fn tell_device_plain(peer: SocketAddr, name: &str) {
    say(Level::Warning, format_args!("connect {peer}: not by device {name}; connected in plain TCP"));
}

/// Logs why a startup has failed where plain TCP is not allowed.
pub(crate) fn tell_failed(why: impl std::fmt::Display) {
    say(Level::Warning, format_args!("{why}"));
}

/// Logs that a server does not answer the startup, and plain TCP is not allowed. A server that is a
/// plain one may be waiting for its client's first octets. As [`tell_plain_server`], a process logs
/// it as an error once.
pub(crate) fn tell_silent(peer: SocketAddr, kind: KindId) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    say(
        error_once(&TOLD),
        format_args!(
            "connect {peer}: no answer to the MPA startup; is it a plain server? try: rddp run --{} \
             (reported once)",
            with_plain(kind)
        ),
    );
}

/// Logs that a server does not speak MPA, as `why` says, and plain TCP is not allowed. A program
/// may try again for ever: a process logs it as an error once.
pub(crate) fn tell_plain_server(server: SocketAddr, kind: KindId, why: &str) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    say(
        error_once(&TOLD),
        format_args!(
            "connect {server}: {why}; is it a plain server? try: rddp run --{}, or a policy without this \
             server (reported once)",
            with_plain(kind)
        ),
    );
}

/// Logs that a client has sent something else than MPA, and plain TCP is not allowed. Clients may
/// be many: a process logs it as an error once.
pub(crate) fn tell_plain_client(kind: KindId) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    say(
        error_once(&TOLD),
        format_args!(
            "accept: what a client said is not MPA; is it a plain client? try: rddp run --{} here, or rddp \
             run at the client (reported once)",
            with_plain(kind)
        ),
    );
}

/// Returns the level of a line that a process logs as an error once.
fn error_once(told: &AtomicBool) -> Level {
    if told.swap(true, Ordering::Relaxed) { Level::Warning } else { Level::Error }
}

/// Returns the word for a family that allows plain TCP too.
fn with_plain(kind: KindId) -> &'static str {
    if kind == KindId::Sdp { "sdp-or-tcp" } else { "both" }
}

/// Logs that a peer, which is a program on an RNIC, has sent more in one Send than this end takes.
/// As [`tell_not_sdp`], a process logs it as an error once.
pub(crate) fn tell_too_long(peer: Option<SocketAddr>, largest: u32) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let peer = peer.map_or(String::new(), |peer| format!("{peer}: "));
    say(
        error_once(&TOLD),
        format_args!(
            "{peer}the peer sent a Send of more than {largest} octets, the largest that this end takes; \
             try: shorter Sends at the peer, or DDP_LARGEST_SEND here (reported once)"
        ),
    );
}

/// Logs that a connection of SDP has a peer in DDPMODE: this server, or a client. Clients may be
/// many, and what they say is theirs to choose: a process logs it as an error once.
pub(crate) fn tell_not_sdp(server: Option<SocketAddr>) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    match server {
        Some(server) => say(
            error_once(&TOLD),
            format_args!(
                "connect {server}: the server speaks MPA, and not SDP; is it in DDPMODE? try: rddp run \
                 --ddp, or --sdp at the server (reported once)"
            ),
        ),
        None => say(
            error_once(&TOLD),
            format_args!(
                "accept: the client speaks MPA, and not SDP; is it in DDPMODE? try: rddp run --ddp, or \
                 --sdp at the client (reported once)"
            ),
        ),
    }
}

/// Logs that a server has rejected the startup: one of SDP does in DDPMODE, for want of a Hello. As
/// [`tell_plain_server`], a process logs it as an error once.
pub(crate) fn tell_rejected(server: SocketAddr, kind: KindId, plain_allowed: bool) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let (speaks, other, own) = match (kind, plain_allowed) {
        (KindId::Sdp, false) => ("is in DDPMODE", "ddp", "sdp"),
        (KindId::Sdp, true) => ("is in DDPMODE", "both", "sdp"),
        (_, false) => ("speaks SDP", "sdp", "ddp"),
        (_, true) => ("speaks SDP", "sdp-or-tcp", "ddp"),
    };
    say(
        error_once(&TOLD),
        format_args!(
            "connect {server}: the server rejected the MPA startup. If it {speaks}, try: rddp run \
             --{other}, or --{own} at the server. rddp serve, ping and perf answer rddp's own clients \
             (reported once)"
        ),
    );
}

/// Logs a line about this program: where the policy says, if there is one, and as an event.
fn say(level: Level, what: Arguments<'_>) {
    match SWITCH.get() {
        Some(switch) => switch.say(level, what),
        None => drop(trace::told(level, what)),
    }
}

/// The decision of the policy on a socket.
enum Verdict {
    Plain,
    Switched { kind: KindId, plain_allowed: bool },
    Refused(Errno),
}

impl Verdict {
    fn word(&self) -> &'static str {
        match self {
            Verdict::Plain => "plain TCP",
            Verdict::Switched { kind: KindId::Device, plain_allowed: true } => {
                "SDP on a device, or else plain TCP"
            }
            Verdict::Switched { kind: KindId::Device, .. } => "SDP on a device",
            Verdict::Switched { kind: KindId::Sdp, plain_allowed: true } => "SDP, or else plain TCP",
            Verdict::Switched { kind: KindId::Sdp, .. } => "SDP",
            Verdict::Switched { plain_allowed: true, .. } => "DDPMODE, or else plain TCP",
            Verdict::Switched { .. } => "DDPMODE",
            Verdict::Refused(_) => "no connection",
        }
    }
}

impl Switch {
    /// Logs a line about this program where the policy says.
    fn say(&self, level: Level, what: Arguments<'_>) {
        self.say_unless(trace::told(level, what), level, what);
    }

    /// Logs a line where the policy says, unless standard error has it already.
    fn say_unless(&self, is_shown: bool, level: Level, what: Arguments<'_>) {
        let program = String::from_utf8_lossy(&self.program);
        journal::tell_unless(is_shown, self.policy.log(), level, format_args!("{program}: {what}"));
    }

    fn family(&self, side: Side, addr: SocketAddr) -> Family {
        self.policy.family(side, &self.program, addr)
    }

    /// Applies the policy to a socket in this state of TCP; a call in another state is for the
    /// kernel to refuse.
    fn apply(&self, fd: c_int, side: Side, addr: SocketAddr, state: u8) -> Result<(), Errno> {
        let seen = state_of_tcp(fd);
        let is_mptcp = seen.is_err();
        let is_concerned = seen.map_or_else(|_| real::is_mptcp(fd), |seen| seen == state);
        if !is_concerned {
            return Ok(());
        }
        match self.judge(side, addr, is_mptcp) {
            Verdict::Plain => Ok(()),
            Verdict::Refused(errno) => Err(errno),
            Verdict::Switched { kind, plain_allowed } => match ask(fd, kind, plain_allowed) {
                // Where the kernel supports no framing, all peers count as plain ones.
                Err(Errno(libc::ENOSYS)) if plain_allowed => Ok(()),
                asked => asked,
            },
        }
    }

    /// Decides what becomes of a socket, and logs the decision.
    fn judge(&self, side: Side, addr: SocketAddr, is_mptcp: bool) -> Verdict {
        let choice @ (family, _) = self.policy.choice(side, &self.program, addr);
        let is_known_plain = || side == Side::Client && plain_peers::is_known(addr);
        let (kind, plain_allowed) = match family {
            Family::Tcp => (KindId::Plain, true),
            Family::Ddp => (KindId::Framed, false),
            Family::Both => (KindId::Framed, true),
            Family::Sdp if device::is_asked() => (KindId::Device, false),
            Family::Sdp => (KindId::Sdp, false),
            // One number cannot stand for a listener of a device and one of TCP.
            Family::SdpOrTcp if device::is_asked() && side == Side::Client => (KindId::Device, true),
            Family::SdpOrTcp => (KindId::Sdp, true),
        };
        let (level, remark, verdict) = match (kind, plain_allowed) {
            (KindId::Plain, _) => (Level::Call, "", Verdict::Plain),
            (_, false) if is_mptcp => {
                (Level::Error, NO_MPTCP, Verdict::Refused(Errno(libc::EPROTONOSUPPORT)))
            }
            (_, true) if is_mptcp => {
                (Level::Warning, ": plain TCP, as an MPTCP socket cannot be framed", Verdict::Plain)
            }
            (_, true) if is_known_plain() => {
                (Level::Warning, ": plain TCP, as the peer did not speak MPA before", Verdict::Plain)
            }
            _ => (Level::Call, "", Verdict::Switched { kind, plain_allowed }),
        };
        let is_shown = trace::decided(side, addr, choice, verdict.word(), remark);
        let what = format_args!("{} {addr}: {}{remark}", trace::word(side), family.word());
        self.say_unless(is_shown, level, what);
        verdict
    }
}

const NO_MPTCP: &str = ": refused, as an MPTCP socket cannot be framed; try: both (plain), or a TCP socket";

/// Returns whether the program itself has decided for or against DDPMODE.
fn is_programs_choice(fd: c_int) -> bool {
    socket::hold_checked(fd).is_some_and(|held| held.is_in_ddpmode() || held.settings().stays_plain)
}

/// Makes a socket one of this kind as if the program had asked. If `plain_allowed`, peers that do
/// not speak MPA get plain TCP.
pub(crate) fn ask(fd: c_int, kind: KindId, plain_allowed: bool) -> Result<(), Errno> {
    let _no_signals = real::NoSignals::here();
    let held = match socket::hold_checked(fd) {
        Some(held) => held,
        None => socket::adopt(fd, Settings::default())?,
    };
    let mut settings = held.settings();
    settings.kind = kind;
    settings.mode = Mode::Asked;
    settings.plain_allowed = plain_allowed;
    settings.saved = SavedOptions::of(fd);
    Ok(())
}
