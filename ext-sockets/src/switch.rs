//! The socket switch: the policy that this process runs under, applied when it connects or listens.
//!
//! It is read once, when the library is loaded, from where the environment says: [`POLICY`] names a file, [`FAMILY`] is one word for
//! everything. `rddp run` sets them. A program that gains privileges by being run ignores both, as the dynamic linker ignores the
//! library. Without them nothing here costs more than one load.

use std::ffi::{OsStr, c_int};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use once_cell::race::OnceBox;

use crate::framed;
use crate::gate::is_tcp;
use crate::journal::{self, Level};
use crate::next;
use crate::policy::{Family, Policy, Side};
use crate::socket::{self, Kept, Mode, Settings};

/// The variable that names a policy file.
pub const POLICY: &str = "RDDP_POLICY";
/// The variable that names one family for everything.
pub const FAMILY: &str = "RDDP_FAMILY";

/// What a connection gets that the policy gives to a family that this build does not have.
const NO_SDP: c_int = libc::EPROTONOSUPPORT;

static SWITCH: OnceBox<Switch> = OnceBox::new();

struct Switch {
    policy: Policy,
    program: Vec<u8>,
}

/// Reads what the environment names.
pub fn load() {
    let policy = match (next::secure_variable(POLICY), next::secure_variable(FAMILY)) {
        (Some(path), _) => from_file(Path::new(&path)),
        (None, Some(word)) => of_word(&word),
        (None, None) => None,
    };
    if let Some(policy) = policy {
        // Nobody else sets it.
        let _ = SWITCH.set(Box::new(Switch { policy, program: next::program_name().as_bytes().to_vec() }));
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

/// Applies the policy to a socket that is about to connect to, or to listen at, `addr`. The errno if it may not.
pub(crate) fn apply(fd: c_int, side: Side, addr: SocketAddr) -> Result<(), c_int> {
    let Some(switch) = SWITCH.get() else { return Ok(()) };
    if !is_fresh_tcp(fd) {
        return Ok(());
    }
    let family = switch.policy.family(side, &switch.program, addr);
    let known_plain = family == Family::Both && side == Side::Client && framed::is_known_plain(addr);
    switch.tell(side, addr, family, known_plain);
    match family {
        Family::Tcp => Ok(()),
        Family::Both if known_plain => Ok(()),
        // Where nothing can be framed, everybody is a plain peer.
        Family::Both => {
            ask(fd, true).or_else(|errno| if errno == libc::ENOSYS { Ok(()) } else { Err(errno) })
        }
        Family::Ddp => ask(fd, false),
        Family::Sdp => Err(NO_SDP),
    }
}

/// A peer has turned out to be a plain one, and is connected to in plain TCP.
pub(crate) fn tell_plain(peer: SocketAddr) {
    if let Some(switch) = SWITCH.get() {
        let program = String::from_utf8_lossy(&switch.program);
        let told = format_args!("{program}: connect {peer}: no MPA there, connected again in plain TCP");
        journal::tell(switch.policy.log(), Level::Warning, told);
    }
}

/// A startup has failed, and there is no plain TCP to fall back to.
pub(crate) fn tell_failed(why: impl std::fmt::Display) {
    if let Some(switch) = SWITCH.get() {
        let program = String::from_utf8_lossy(&switch.program);
        journal::tell(switch.policy.log(), Level::Warning, format_args!("{program}: {why}"));
    }
}

/// A server says nothing to a startup, and there is no plain TCP to fall back to: it may wait for its client's first words.
pub(crate) fn tell_silent(peer: SocketAddr) {
    if let Some(switch) = SWITCH.get() {
        let program = String::from_utf8_lossy(&switch.program);
        let told = format_args!(
            "{program}: connect {peer}: no answer to the MPA startup; is it a plain server? try: rddp run --both"
        );
        journal::tell(switch.policy.log(), Level::Error, told);
    }
}

impl Switch {
    fn tell(&self, side: Side, addr: SocketAddr, family: Family, known_plain: bool) {
        let what = match side {
            Side::Server => "listen",
            Side::Client => "connect",
        };
        let (level, remark) = match family {
            Family::Sdp => (Level::Error, ": not in this build"),
            Family::Both if known_plain => (Level::Warning, ": a plain peer, as was seen, so plain TCP"),
            Family::Both | Family::Tcp | Family::Ddp => (Level::Call, ""),
        };
        let program = String::from_utf8_lossy(&self.program);
        let told = format_args!("{program}: {what} {addr}: {}{remark}", family.word());
        journal::tell(self.policy.log(), level, told);
    }
}

/// Not one of ours by the program's own wish, and not connected or listening already: that is the kernel's to refuse.
fn is_fresh_tcp(fd: c_int) -> bool {
    let ours = socket::hold_checked(fd).is_some_and(|held| held.is_in_ddpmode());
    !ours && is_tcp(fd).is_ok() && next::tcp_state(fd) == Some(next::TCP_CLOSE)
}

/// As if the program had asked for DDPMODE, with plain TCP for peers that do not speak MPA if that is allowed.
fn ask(fd: c_int, plain_allowed: bool) -> Result<(), c_int> {
    let held = match socket::hold_checked(fd) {
        Some(held) => held,
        None => socket::adopt(fd, Settings::default())?,
    };
    let mut settings = held.settings();
    settings.mode = Mode::Asked;
    settings.plain_allowed = plain_allowed;
    settings.kept = Kept::of(fd);
    Ok(())
}
