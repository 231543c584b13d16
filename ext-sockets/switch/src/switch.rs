//! The socket switch: the policy that this process runs under, applied when it connects or listens,
//! and when it accepts from a listener that it got from elsewhere.
//!
//! It is read once, when the library is loaded, from where the environment says: [`POLICY`] names a file, [`FAMILY`] is one word for
//! everything. `rddp run` sets them. A program that gains privileges by being run ignores both, as the dynamic linker ignores the
//! library. Without them nothing here costs more than one load.

use std::ffi::{OsStr, c_int};
use std::fmt::Arguments;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use once_cell::race::OnceBox;
use rddp_policy::{Family, Policy, Side};
use rddp_real::{self as real, state_of_tcp};
use rddp_stream::Errno;

use crate::journal::{self, Level};
use crate::plain_peers;
use crate::socket::{self, KindId, Mode, SavedOptions, Settings};

/// The variable that names a policy file.
pub const POLICY: &str = "RDDP_POLICY";
/// The variable that names one family for everything.
pub const FAMILY: &str = "RDDP_FAMILY";

static SWITCH: OnceBox<Switch> = OnceBox::new();

struct Switch {
    policy: Policy,
    program: Vec<u8>,
    /// There are rules for servers that do not say plain TCP.
    serves: bool,
}

/// Reads what the environment names.
pub fn load() {
    // Who passes variables on may pass one empty that is not set.
    let variable = |name| real::secure_variable(name).filter(|value| !value.is_empty());
    let policy = match (variable(POLICY), variable(FAMILY)) {
        (Some(path), _) => from_file(Path::new(&path)),
        (None, Some(word)) => of_word(&word),
        (None, None) => None,
    };
    if let Some(policy) = policy {
        let program = real::program_name().as_bytes().to_vec();
        let serves = policy.concerns(Side::Server, &program);
        // Nobody else sets it.
        let _ = SWITCH.set(Box::new(Switch { policy, program, serves }));
    }
}

fn of_word(word: &OsStr) -> Option<Policy> {
    let family = word.to_str().and_then(Policy::family_of);
    if family.is_none() {
        let told = format_args!(
            "{FAMILY}={}: no family; everything is plain TCP; try: ddp, both or tcp",
            word.display()
        );
        journal::without_policy(told);
    }
    family.map(Policy::always)
}

fn from_file(path: &Path) -> Option<Policy> {
    let octets = match std::fs::read(path) {
        Ok(octets) => octets,
        Err(error) => {
            journal::without_policy(format_args!("{}: {error}; everything is plain TCP", path.display()));
            return None;
        }
    };
    let (policy, faults) = Policy::parse(&octets);
    for fault in faults {
        let told = format_args!("{}: {fault}; try: {}", path.display(), fault.remedy());
        journal::tell(policy.log(), Level::Error, told);
    }
    Some(policy)
}

/// Whether there is a policy at all.
#[inline]
pub fn is_on() -> bool {
    SWITCH.get().is_some()
}

/// Returns whether the policy has this program serve in any other way than plain TCP.
#[inline]
pub(crate) fn has_rules_for_servers() -> bool {
    SWITCH.get().is_some_and(|switch| switch.serves)
}

/// Applies the policy to a socket that is about to connect to, or to listen at, `addr`. The errno if it may not.
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
    // As often as a plain connection is accepted: nothing more is asked of the kernel, and nothing
    // is told.
    if switch.family(Side::Server, addr) == Family::Tcp || is_programs_choice(fd) {
        return Ok(());
    }
    switch.apply(fd, Side::Server, addr, real::TCP_LISTEN)
}

/// A connection has come by `exec` or in a message, and nothing is known of it. It stays plain, and
/// that is told once where the policy says `ddp`.
pub(crate) fn tell_unknown(fd: c_int) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let Some(switch) = SWITCH.get() else { return };
    if matches!(state_of_tcp(fd), Err(_) | Ok(real::TCP_CLOSE | real::TCP_LISTEN)) {
        return;
    }
    // Which end it is nobody knows any more.
    let says_ddp =
        |side, addr: Option<SocketAddr>| addr.is_some_and(|addr| switch.family(side, addr) == Family::Ddp);
    let (own, peer) = (real::local_address(fd), real::peer_address(fd));
    if (says_ddp(Side::Server, own) || says_ddp(Side::Client, peer)) && !TOLD.swap(true, Ordering::Relaxed) {
        let peer = peer.map_or(String::new(), |peer| format!(" with {peer}"));
        switch.say(
            Level::Error,
            format_args!(
                "the connection{peer} is plain: nothing is known of it (descriptor {fd}, by exec or in a message; told once)"
            ),
        );
    }
}

/// A peer has turned out to be a plain one, and is connected to in plain TCP.
pub(crate) fn tell_plain(peer: SocketAddr) {
    say(Level::Warning, format_args!("connect {peer}: no MPA there, connected again in plain TCP"));
}

/// A startup has failed, and there is no plain TCP to fall back to.
pub(crate) fn tell_failed(why: impl std::fmt::Display) {
    say(Level::Warning, format_args!("{why}"));
}

/// A server says nothing to a startup, and there is no plain TCP to fall back to: it may wait for
/// its client's first words.
pub(crate) fn tell_silent(peer: SocketAddr) {
    say(
        Level::Error,
        format_args!(
            "connect {peer}: no answer to the MPA startup; is it a plain server? try: rddp run --both"
        ),
    );
}

/// Tells something of this program, if there is a policy, where that says.
fn say(level: Level, what: Arguments<'_>) {
    if let Some(switch) = SWITCH.get() {
        switch.say(level, what);
    }
}

/// Decision of the policy on a socket.
enum Verdict {
    Plain,
    Framed { plain_allowed: bool },
    Refused(Errno),
}

impl Switch {
    /// Tells something of this program where the policy says.
    fn say(&self, level: Level, what: Arguments<'_>) {
        let program = String::from_utf8_lossy(&self.program);
        journal::tell(self.policy.log(), level, format_args!("{program}: {what}"));
    }

    fn family(&self, side: Side, addr: SocketAddr) -> Family {
        self.policy.family(side, &self.program, addr)
    }

    /// Applies the policy to a socket in that state of TCP; one in another is the kernel's to
    /// refuse.
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
            Verdict::Framed { plain_allowed } => match ask(fd, plain_allowed) {
                // Where nothing can be framed, everybody is a plain peer.
                Err(Errno(libc::ENOSYS)) if plain_allowed => Ok(()),
                asked => asked,
            },
        }
    }

    /// Says what a socket is to be, to the log too.
    fn judge(&self, side: Side, addr: SocketAddr, is_mptcp: bool) -> Verdict {
        let family = self.family(side, addr);
        let is_known_plain = || side == Side::Client && plain_peers::is_known(addr);
        let (level, remark, verdict) = match family {
            Family::Tcp => (Level::Call, "", Verdict::Plain),
            Family::Sdp => {
                (Level::Error, ": not in this build", Verdict::Refused(Errno(libc::EPROTONOSUPPORT)))
            }
            Family::Ddp if is_mptcp => {
                (Level::Error, NO_MPTCP, Verdict::Refused(Errno(libc::EPROTONOSUPPORT)))
            }
            Family::Both if is_mptcp => (Level::Warning, ": an MPTCP socket, so plain", Verdict::Plain),
            Family::Both if is_known_plain() => {
                (Level::Warning, ": a plain peer, as was seen, so plain TCP", Verdict::Plain)
            }
            Family::Ddp => (Level::Call, "", Verdict::Framed { plain_allowed: false }),
            Family::Both => (Level::Call, "", Verdict::Framed { plain_allowed: true }),
        };
        let what = match side {
            Side::Server => "listen",
            Side::Client => "connect",
        };
        self.say(level, format_args!("{what} {addr}: {}{remark}", family.word()));
        verdict
    }
}

const NO_MPTCP: &str = ": refused, as an MPTCP socket cannot be framed; try: both (plain), or a TCP socket";

/// Returns whether the program itself has said what the socket is to be.
fn is_programs_choice(fd: c_int) -> bool {
    socket::hold_checked(fd).is_some_and(|held| held.is_in_ddpmode() || held.settings().stays_plain)
}

/// As if the program had asked for DDPMODE, with plain TCP for peers that do not speak MPA if that is allowed.
fn ask(fd: c_int, plain_allowed: bool) -> Result<(), Errno> {
    let _no_signals = real::NoSignals::here();
    let held = match socket::hold_checked(fd) {
        Some(held) => held,
        None => socket::adopt(fd, Settings::default())?,
    };
    let mut settings = held.settings();
    settings.kind = KindId::Framed;
    settings.mode = Mode::Asked;
    settings.plain_allowed = plain_allowed;
    settings.saved = SavedOptions::of(fd);
    Ok(())
}
