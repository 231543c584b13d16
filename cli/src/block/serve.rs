//! `rddp block serve`: disks for clients of NBD.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use clap::Args;
use rddp_command::failure::{EXIT_CODES, Failure, printable_name};
use rddp_command::places::{Places, TOO_MANY};
use rddp_command::seldom::Seldom;
use rddp_command::units::{about, parse_octets};
use rddp_command::{addr, out, signals};
use rddp_rnic::{ConnectOptions, Rnic, Transport};
use serde::Serialize;

use super::PORT;
use super::bell::Bell;
use super::disk::{Disk, Results};
use super::server::{Newcomer, Server};

const EXAMPLES: &str = "\
Examples:
  rddp block serve disk.img                     a disk to read, for this host only
  qemu-img convert nbd://127.0.0.1 copy.img     a copy of it
  rddp block serve --writable a.img b=/dev/sdb  two disks, a.img and b, to write
  qemu-system-x86_64 -drive file=nbd://127.0.0.1/b,format=raw
  rddp block serve disk.img --bind ::           for everybody who can reach this host

A disk's name is that of its file, unless one stands in front (NAME=FILE). Nothing is encrypted, and nobody has to prove
who he is: whoever can connect can read, and with --writable write. What was answered before a flush is on the disk once
that is answered, on all connections.";

/// Serve disks, which are files or block devices, to clients of NBD: QEMU, libnbd, Linux
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
    listening: SocketAddr,
    disks: Vec<Shown<'a>>,
}

#[derive(Serialize)]
struct Shown<'a> {
    name: &'a str,
    size: u64,
    writable: bool,
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
        let rnic = Rnic::open()?;
        let cq = rnic.create_cq(super::client::COMPLETIONS)?;
        let bell = Bell::new(&cq);
        let (results, done) = Results::new(&bell);
        let disks = self.open(&results)?;
        drop(results);
        let options = ConnectOptions::default();
        let listener = addr::listen_on(Some(self.bind), self.port, |addr| {
            rnic.listen_by(Transport::Tcp, addr, &options)
        })?;
        let addr = listener.local_addr().map_err(|error| Failure::failed(format!("listening: {error}")))?;
        self.tell(addr, &disks);
        let (entrance, newcomers) = channel();
        let server = Server::new(&rnic, (cq, bell.clone()), disks, done, newcomers, self.memory);
        let serving = thread::Builder::new()
            .name("rddp-block".into())
            .spawn(move || server.run())
            .map_err(|error| Failure::failed(format!("starting a thread: {error}")))?;
        let places = Arc::new(Places::new(self.max_clients.get(), None));
        let mut away = Seldom::default();
        while !signals::stopped() && !serving.is_finished() {
            let request = listener.accept(Some(signals::CHECK_INTERVAL));
            let Some(request) = request.map_err(|error| Failure::failed(format!("accepting: {error}")))?
            else {
                continue;
            };
            let host = request.peer_addr().map(|peer| addr::plain(peer).ip());
            let Some(place) = places.take(host) else {
                away.warn(format_args!("a client is turned away: {TOO_MANY}"));
                // One that does not hear of it is gone.
                let _ = request.reject(b"");
                continue;
            };
            // Where the thread has ended, the loop ends.
            let _ = entrance.send(Newcomer { request, place });
            bell.ring();
        }
        drop(entrance);
        bell.ring();
        serving.join().unwrap_or_else(|_| Err(Failure::failed("the thread that serves has panicked")))
    }

    /// Opens all disks, and starts their threads.
    fn open(&self, results: &Results) -> Result<Vec<Disk>, Failure> {
        let mut disks: Vec<Disk> = Vec::new();
        for word in &self.disks {
            let (name, path) = named(word)?;
            if disks.iter().any(|disk| disk.export.name == name) {
                let name = printable_name(&name);
                return Err(Failure::usage(format!("two disks are called {name}"))
                    .remedy("name one of them otherwise: NAME=FILE"));
            }
            let (file, export) = Disk::open(name, &path, self.writable)?;
            disks.push(Disk::start(file, export, results)?);
        }
        Ok(disks)
    }

    fn tell(&self, addr: SocketAddr, disks: &[Disk]) {
        let exports = disks.iter().map(|disk| &disk.export);
        if self.json {
            let shown = exports.map(|export| Shown {
                name: &export.name,
                size: export.size,
                writable: export.writable,
            });
            out::json_event(&Listening { listening: addr, disks: shown.collect() });
            return;
        }
        let how = if self.writable { "to read and write" } else { "to read" };
        for export in exports {
            let (name, size) = (printable_name(&export.name), about(export.size));
            out::event(format_args!("serving {name} ({size}) on {}: {how}", addr::shown(addr)));
        }
    }
}

/// Splits the name of a disk from that of its file: the file's own name where there is none.
fn named(word: &str) -> Result<(String, PathBuf), Failure> {
    if let Some((name, path)) = word.split_once('=')
        && !name.contains('/')
    {
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
        assert!(named("..").is_err());
    }
}
