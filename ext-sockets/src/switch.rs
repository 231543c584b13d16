//! The socket switch: the policy that this process runs under, applied when it connects or listens.
//!
//! It is read once, when the library is loaded, from where the environment says: [`POLICY`] names a file, [`FAMILY`] is one word for
//! everything. `rddp run` sets them. A program that gains privileges by being run ignores both, as the dynamic linker ignores the
//! library. Without them nothing here costs more than one load.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use once_cell::race::OnceBox;

use crate::gate::{NO_STREAM, Way, is_tcp};
use crate::journal::{self, Level};
use crate::next;
use crate::policy::{Family, Policy, Side};
use crate::socket::{self, Kept, Mode, Settings};

/// The variable that names a policy file.
pub const POLICY: &str = "RDDP_POLICY";
/// The variable that names one family for everything.
pub const FAMILY: &str = "RDDP_FAMILY";

static SWITCH: OnceBox<Switch> = OnceBox::new();

struct Switch {
    policy: Policy,
    program: Vec<u8>,
}

/// Reads what the environment names.
pub fn load() {
    let policy = match (next::secure_variable(POLICY), next::secure_variable(FAMILY)) {
        (Some(path), _) => from_file(Path::new(&path)),
        (None, Some(word)) => word.to_str().and_then(Policy::family_of).map(Policy::always),
        (None, None) => None,
    };
    if let Some(policy) = policy {
        // Nobody else sets it.
        let _ = SWITCH.set(Box::new(Switch { policy, program: next::program_name().as_bytes().to_vec() }));
    }
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

/// What becomes of a socket that is about to connect to, or to listen at, `addr`.
pub(crate) fn apply(fd: c_int, side: Side, addr: SocketAddr) -> Way {
    let Some(switch) = SWITCH.get() else { return Way::Plain };
    if !is_fresh_tcp(fd) {
        return Way::Plain;
    }
    let family = switch.policy.family(side, &switch.program, addr);
    switch.tell(side, addr, family);
    match family {
        Family::Tcp | Family::Both => Way::Plain,
        Family::Ddp => ask(fd),
        Family::Sdp => Way::Refused(NO_STREAM),
    }
}

impl Switch {
    fn tell(&self, side: Side, addr: SocketAddr, family: Family) {
        let what = match side {
            Side::Server => "listen",
            Side::Client => "connect",
        };
        let (level, remark) = match family {
            Family::Sdp => (Level::Error, ": not in this build"),
            Family::Both => (Level::Warning, ": not in this build, plain TCP"),
            Family::Tcp | Family::Ddp => (Level::Call, ""),
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

/// As if the program had asked for DDPMODE.
fn ask(fd: c_int) -> Way {
    let held = socket::hold_checked(fd).or_else(|| socket::adopt(fd, Settings::default()));
    let Some(held) = held else { return Way::Refused(libc::ENOBUFS) };
    let mut settings = held.settings();
    settings.mode = Mode::Asked;
    settings.kept = Kept::of(fd);
    Way::Plain
}
