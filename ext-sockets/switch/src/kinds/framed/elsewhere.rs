//! Other processes that have a connection of SDP without having said so yet.
//!
//! The last holder of such a connection ends it by a message, `DisConn`, where the kernel would end
//! a plain one with its last descriptor. A program that a child of `vfork` or `posix_spawn` runs
//! has its parent's descriptors before its library has been loaded, and a descriptor in a message
//! is nobody's. Neither may be ended by a `close` of the process that it comes from.

use std::ffi::c_int;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::{Framed, Protocol};
use crate::socket::{self, KindId};
use crate::{process, table};

/// Processes that this one has started lately, and that run programs of their own; 0: none. A child
/// of `vfork`, which enters itself, shares this memory.
static PROGRAMS: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Notes that the calling process is about to run another program. Only a child of `vfork` is
/// noted: one of `fork` holds the sockets already.
pub fn program_begins() {
    if table::any() && !process::owns_table() {
        program_runs(std::process::id());
    }
}

/// Notes that a child of this process runs a program (`posix_spawn`).
pub fn program_runs(process: u32) {
    if table::any() {
        let at = NEXT.fetch_add(1, Ordering::Relaxed) % PROGRAMS.len();
        PROGRAMS[at].store(process, Ordering::Relaxed);
    }
}

/// Notes that `fd` is about to be sent in a message.
pub fn passing(fd: c_int) {
    if table::entry(fd).is_some()
        && let Some(held) = socket::hold(fd)
        && held.kind() == KindId::Sdp
        && let Some(state) = held.state()
    {
        state.expect_receiver();
    }
}

impl<P: Protocol> Framed<P> {
    /// Notes a program that has the socket, before this process closes it.
    pub(super) fn expect_programs(&self) {
        if P::ENDS_BY_MESSAGE
            && let Some(state) = self.held.state()
            && is_had_by_programs(self.fd)
        {
            state.expect_holder();
        }
    }
}

fn is_had_by_programs(fd: c_int) -> bool {
    let mut own = None;
    PROGRAMS.iter().any(|place| {
        let process = place.load(Ordering::Relaxed);
        if process == 0 {
            return false;
        }
        let Ok(open) = std::fs::read_dir(format!("/proc/{process}/fd")) else {
            // It has ended.
            let _ = place.compare_exchange(process, 0, Ordering::Relaxed, Ordering::Relaxed);
            return false;
        };
        let own = *own.get_or_insert_with(|| file_of(format!("/proc/self/fd/{fd}")));
        own.is_some() && open.flatten().any(|entry| file_of(entry.path()) == own)
    })
}

/// Returns the number of the open file that a link of `/proc` leads to.
fn file_of(link: impl AsRef<std::path::Path>) -> Option<(u64, u64)> {
    std::fs::metadata(link).ok().map(|file| (file.dev(), file.ino()))
}
