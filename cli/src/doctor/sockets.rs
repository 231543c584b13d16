//! The needs of `rddp run`: the preloaded library, socket cookies, and space in `/dev/shm` for the
//! states of streams, which processes share.

use std::path::Path;

use nix::errno::Errno;
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{AccessFlags, access};
use rddp_command::units::about;
use rddp_stream::shm;
use socket2::{Domain, Socket, Type};

use super::finding::{Finding, Level, Topic};
use crate::run::library::Library;

/// The folder of the shared states.
const SHARED: &str = "dev/shm";

/// The number of streams for which there should be space, all of which hold octets.
const STREAMS: u64 = 1000;

pub(super) fn inspect(root: &Path) -> Vec<Finding> {
    vec![preloaded(), cookies(), shared(&root.join(SHARED))]
}

fn preloaded() -> Finding {
    let found = |value: String| Finding::ok(Topic::Sockets, "library (rddp run)", value);
    match Library::Sockets.find() {
        Ok(path) => found(path.display().to_string()),
        Err(why) => found(why.to_string()).but(Level::Warn, why.how().unwrap_or("install it")),
    }
}

/// Looks for socket cookies, by which a process finds the state of a stream that it shares.
fn cookies() -> Finding {
    let found = |value: &str| Finding::ok(Topic::Sockets, "cookies of sockets (SO_COOKIE)", value);
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None);
    match socket.and_then(|socket| socket.cookie()) {
        Ok(_) => found("known to the kernel"),
        Err(error) => found(&error.to_string()).but(Level::Warn, "rddp run --ddp needs Linux 4.12 or later"),
    }
}

fn shared(folder: &Path) -> Finding {
    let found = |value: String| Finding::ok(Topic::Sockets, "shared memory (/dev/shm)", value);
    let advice =
        "streams work, but a program that gets one by exec or over a UNIX socket cannot go on with it";
    if let Err(error) = may_be_written(folder) {
        return found(error.desc().to_owned()).but(Level::Warn, advice);
    }
    match statvfs(folder) {
        Ok(of) => {
            let free = of.blocks_available() * of.fragment_size();
            let small = shm::for_states(free) < STREAMS * (shm::STATE + shm::BLOCK);
            found(streams(free)).but_if(small, Level::Note, format!("for more of them than fit, {advice}"))
        }
        Err(error) => found(error.desc().to_owned()).but(Level::Warn, advice),
    }
}

/// Returns for how many streams there is space, in words.
fn streams(free: u64) -> String {
    let room = shm::for_states(free);
    let (idle, busy) = (room / shm::STATE, room / (shm::STATE + shm::BLOCK));
    format!(
        "{} free, {} of it for streams: some {idle} idle ones, or {busy} that hold octets",
        about(free),
        about(room)
    )
}

fn may_be_written(folder: &Path) -> Result<(), Errno> {
    access(folder, AccessFlags::W_OK | AccessFlags::X_OK)?;
    // For the superuser, `access` grants writing even to a read-only file system.
    let read_only = statvfs(folder)?.flags().contains(FsFlags::ST_RDONLY);
    if read_only { Err(Errno::EROFS) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_folder_is_told_with_what_it_means() {
        let root = tempfile::tempdir().unwrap();
        let found = &inspect(root.path())[2];
        assert_eq!(found.level, Level::Warn);
        assert!(found.advice.as_ref().unwrap().contains("exec"));
    }

    #[test]
    fn half_of_the_space_is_counted_in_streams() {
        let told = "64.0 MiB free, 32.0 MiB of it for streams: some 10922 idle ones, or 436 that hold octets";
        assert_eq!(streams(64 << 20), told);
    }

    #[test]
    fn free_space_is_told_in_streams() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join(SHARED)).unwrap();
        let found = &inspect(root.path())[2];
        assert!(found.value.contains("streams"), "{found:?}");
    }
}
