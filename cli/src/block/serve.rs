//! `rddp block serve`: disks for clients of NBD, and for hosts of NVMe by RDMA.

use std::collections::HashSet;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

use clap::Args;
use rddp_block::export::Export;
use rddp_block::nvme::target::Target;
use rddp_block::nvme::{self, step::Subsystem};
use rddp_command::device::Choice;
use rddp_command::failure::{EXIT_CODES, Failure, printable_name};
use rddp_command::places::Places;
use rddp_command::units::{about, parse_octets};
use rddp_command::{addr, out, signals};
use rddp_rnic::Access;
use serde::Serialize;

use super::PORT;
use super::bell::Bell;
use super::buffers::Buffers;
use super::disk::{Disk, Remedies, Results};
use super::listen::Entrance;
use super::nvme::names;
use super::server::{Protocol, Server};
use super::session::Means;
use super::troubles::Troubles;

/// Octets of a block of NVMe's hosts.
const BLOCK: u64 = 1 << nvme::BLOCK_SHIFT;

const EXAMPLES: &str = "\
Examples:
  rddp block serve disk.img                     a disk to read, for this host only
  qemu-img convert nbd://127.0.0.1 copy.img     a copy of it
  rddp block serve --writable a.img b=/dev/sdb  two disks, a.img and b, to write
  qemu-system-x86_64 -drive file=nbd://127.0.0.1/b,format=raw
  rddp block serve disk.img --bind ::           for everybody who can reach this host
  nvme connect -t rdma -a HOST -n nqn.2026-11.rddp:disk.img

A disk's name is that of its file, unless one stands in front (NAME=FILE). Nothing is encrypted, and nobody has to prove
who he is: whoever can connect can read, and with --writable write. What was answered before a flush is on the disk once
that is answered, on all connections.";

/// Serve disks (files, block devices) by NBD (QEMU, libnbd, Linux) and by NVMe over RDMA (Linux)
#[derive(Debug, Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"), after_help = "--help shows examples")]
pub(super) struct ServeArgs {
    /// Disks to serve
    #[arg(required = true, value_name = "[NAME=]FILE")]
    disks: Vec<String>,

    /// Listen on this address of the host (::, or 0.0.0.0 where there is no IPv6: on all)
    #[arg(short, long, value_name = "ADDR", default_value = "127.0.0.1")]
    bind: IpAddr,

    /// Port to listen on (0: any)
    #[arg(short, long, default_value_t = PORT)]
    port: u16,

    /// Protocols to speak, one or both
    #[arg(long, value_enum, value_delimiter = ',', default_value = "nbd,nvme", value_name = "PROTOCOL")]
    protocols: Vec<Protocol>,

    /// Port to listen on for hosts of NVMe by RDMA (0: any) [default: 4420, or any if that is taken
    /// or with --port 0]
    #[arg(long, value_name = "PORT")]
    nvme_port: Option<u16>,

    /// Name of the NVMe subsystem of the disk; with several disks, what stands in front of ":NAME"
    #[arg(long, value_name = "NQN")]
    nqn: Option<String>,

    /// Allow this NVMe host alone to connect, by its name; may be given more than once. Clients of
    /// NBD have no names, and connect all the same: --protocols nvme has none
    #[arg(long, value_name = "NQN")]
    allow_host: Vec<String>,

    /// Allow clients to write as well
    #[arg(long)]
    writable: bool,

    /// Clients at a time; half of them (rounded up) from one address, or one IPv6 network
    #[arg(long, default_value = "64", value_name = "COUNT")]
    max_clients: NonZeroUsize,

    /// Memory for the payloads of all clients together
    #[arg(long, default_value = "256M", value_name = "OCTETS", value_parser = parse_memory)]
    memory: usize,

    /// Print the address as a line of JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Serialize)]
struct Listening<'a> {
    /// The address of NBD, or that of NVMe where NBD is not spoken.
    listening: Option<SocketAddr>,
    nvme: Option<SocketAddr>,
    disks: Vec<Shown<'a>>,
}

#[derive(Serialize)]
struct Shown<'a> {
    name: &'a str,
    size: u64,
    writable: bool,
    /// `None` if the disk is none for NVMe's hosts.
    nqn: Option<&'a str>,
}

/// Parses the octets of all buffers: no fewer than one client needs for its longest request.
fn parse_memory(text: &str) -> Result<usize, String> {
    let octets = parse_octets(text)?;
    let least = 64 << 20;
    if octets < least {
        return Err("at least 64M, for requests of 32M".into());
    }
    usize::try_from(octets).map_err(|_| "more than this machine can address".into())
}

impl ServeArgs {
    pub(super) fn run(&self) -> Result<(), Failure> {
        // These protocols are those of software alone, whatever RDDP_DEVICE says.
        let rnic = Choice::software().open()?;
        let cq = rnic.create_cq(super::client::COMPLETIONS)?;
        let bell = Bell::new(&cq);
        let (results, done) = Results::new(&bell);
        let (disks, subsystems) = self.open(&results)?;
        drop(results);
        let entrance = Entrance::open(&rnic, &self.protocols, self.bind, self.port, self.nvme_port)?;
        self.tell(&entrance, &subsystems);
        let pd = rnic.alloc_pd();
        let buffers = Buffers::new(pd.clone(), Access::LOCAL_WRITE, self.memory).shared_by(disks.len());
        let target = Target::new(subsystems, self.allow_host.clone(), env!("CARGO_PKG_VERSION"));
        let (troubles, began) = (Troubles::default(), Instant::now());
        let means = Means { disks, buffers, target, troubles, began };
        let (newcomers, welcomed) = channel();
        let server = Server::new(pd, (cq, bell.clone()), means, done, welcomed);
        let serving = thread::Builder::new()
            .name("rddp-block".into())
            .spawn(move || server.run())
            .map_err(|error| Failure::failed(format!("starting a thread: {error}")))?;
        let places = Arc::new(Places::new(self.max_clients.get(), None));
        entrance.admit(&places, &newcomers, &bell, &|| signals::stopped() || serving.is_finished())?;
        drop(newcomers);
        bell.ring();
        serving.join().unwrap_or_else(|_| Err(Failure::failed("the thread that serves has panicked")))
    }

    /// Opens all disks, and starts their threads.
    fn open(&self, results: &Results) -> Result<(Vec<Disk>, Vec<Subsystem>), Failure> {
        let (mut disks, mut subsystems) = (Vec::new(), Vec::<Subsystem>::new());
        let mut files = HashSet::new();
        let denied = if self.writable {
            "without --writable it has to be readable only"
        } else {
            "ls -l shows who may"
        };
        let remedies = Remedies { denied, missing: "truncate -s 1G FILE makes an empty disk" };
        for word in &self.disks {
            let (name, path) = named(word)?;
            if subsystems.iter().any(|other| other.export.name == name) {
                let name = printable_name(&name);
                return Err(Failure::usage(format!("two disks are called {name}"))
                    .remedy("name one of them otherwise: NAME=FILE"));
            }
            let nqn = names::nqn(self.nqn.as_deref(), &name, self.disks.len() == 1)?;
            if self.writable && identity(&path).is_some_and(|file| !files.insert(file)) {
                let shown = path.display();
                return Err(Failure::usage(format!("{shown} is two of the disks, and both could write it"))
                    .remedy("name it once: several clients may have one disk"));
            }
            let (file, export) = Disk::open(name, &path, self.writable, &remedies)?;
            if self.protocols.contains(&Protocol::Nvme) {
                tell_of_size(&export);
            }
            subsystems.push(Subsystem { nqn, nguid: names::nguid(&path), export: export.clone() });
            disks.push(Disk::start(file, export, results)?);
        }
        Ok((disks, subsystems))
    }

    fn tell(&self, entrance: &Entrance, subsystems: &[Subsystem]) {
        if self.json {
            let shown = subsystems.iter().map(|subsystem| Shown {
                name: &subsystem.export.name,
                size: subsystem.export.size,
                writable: subsystem.export.writable,
                nqn: subsystem.has_blocks().then_some(&subsystem.nqn),
            });
            let nvme = entrance.nvme();
            let listening = entrance.nbd().or(nvme);
            out::json_event(&Listening { listening, nvme, disks: shown.collect() });
            return;
        }
        let how = if self.writable { "to read and write" } else { "to read" };
        for subsystem in subsystems {
            let Subsystem { nqn, export, .. } = subsystem;
            let (name, size) = (printable_name(&export.name), about(export.size));
            let nqn = printable_name(nqn);
            match (entrance.nbd(), entrance.nvme().filter(|_| subsystem.has_blocks())) {
                (Some(at), nvme) => {
                    out::event(format_args!("serving {name} ({size}) on {}: {how}", addr::shown(at)));
                    if let Some(nvme) = nvme {
                        out::event(format_args!("  and to NVMe's hosts as {nqn}, on port {}", nvme.port()));
                    }
                }
                (None, Some(at)) => {
                    let at = addr::shown(at);
                    out::event(format_args!(
                        "serving {name} ({size}) to NVMe's hosts as {nqn} on {at}: {how}"
                    ));
                }
                (None, None) => {}
            }
        }
    }
}

/// Returns what two names of one file or device have in common.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = fs::metadata(path).ok()?;
    let is_device = found.file_type().is_block_device();
    Some(if is_device { (found.rdev(), 0) } else { (found.dev(), found.ino()) })
}

/// Warns of octets that NVMe's hosts do not have, as a disk of theirs is whole blocks.
fn tell_of_size(export: &Export) {
    let (name, behind) = (printable_name(&export.name), export.size % BLOCK);
    if export.size < BLOCK {
        out::warn(format_args!("{name} has {} octets: no disk for NVMe's hosts", export.size));
    } else if behind > 0 {
        out::warn(format_args!("{name}: NVMe's hosts do not see the last {behind} octets of it"));
    }
}

/// Splits the name of a disk from that of its file: the file's own name where there is none.
fn named(word: &str) -> Result<(String, PathBuf), Failure> {
    if let Some((name, path)) = word.split_once('=')
        && !name.contains('/')
    {
        if path.is_empty() {
            return Err(Failure::usage(format!("{word}: a name, and no file behind it"))
                .remedy("write NAME=FILE, or ./FILE if the file's name has a ="));
        }
        return Ok((name.to_owned(), path.into()));
    }
    let path = PathBuf::from(word);
    let name = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    let name =
        name.ok_or_else(|| Failure::usage(format!("{word}: no file")).remedy("NAME=FILE names a disk"))?;
    Ok((name, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_has_the_name_of_its_file_or_one_in_front() {
        for (word, name, path) in [
            ("disk.img", "disk.img", "disk.img"),
            ("/dev/sdb", "sdb", "/dev/sdb"),
            ("a=/dev/sdb", "a", "/dev/sdb"),
            ("=x", "", "x"),
            ("a=b=c", "a", "b=c"),
            ("./a=b", "a=b", "./a=b"),
        ] {
            assert_eq!(named(word).unwrap(), (name.to_owned(), path.into()), "{word}");
        }
        assert!(named("..").is_err() && named("a=").is_err());
    }
}
