//! A netcat over SDP, on any device: sends standard input to the peer, and prints what the peer
//! sends.
//!
//!     cargo build --release -p rddp-sdp-rnic --example netcat
//!     netcat listen 192.0.2.1:7471 [--device siw0] [--by copy|read|write] <file >other
//!     netcat connect 192.0.2.1:7471 [--device siw0] [--by copy|read|write] <file >other
//!
//! It is `target/release/examples/netcat`. `--by` says how octets travel that this end sends or
//! receives: copied at both ends; by RDMA Reads out of memory that the sender advertises (the
//! default); or by RDMA Writes into memory that the receiver advertises.

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use rddp_rnic::{Rnic, RnicConfig};
use rddp_sdp::socket::{Config, Times};
use rddp_sdp_rnic::{Octets, Scheme, SdpDevice, SdpStream};

const USAGE: &str = "netcat listen|connect ADDRESS [--device NAME] [--by copy|read|write]";

/// Octets of a call.
const CHUNK: usize = 1 << 20;

/// Time for the peer to answer, to take what it is told of, and to close.
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(([role, addr], options)) = words.split_first_chunk() else {
        return Err(USAGE.into());
    };
    let (mut settings, mut config) = (RnicConfig::default(), way("read")?);
    for option in options.chunks(2) {
        match option {
            [name, value] if name == "--device" => settings.device = Some(value.clone()),
            [name, value] if name == "--by" => config = way(value)?,
            other => return Err(format!("no such option: {other:?}").into()),
        }
    }
    let mut device = SdpDevice::on(Rnic::with_config(&settings)?, config, Scheme::PerCall)?;
    device.options.timeout = PATIENCE;
    let addr: SocketAddr = addr.parse()?;
    let stream = match role.as_str() {
        "listen" => {
            let listener = device.listen(addr)?;
            eprintln!("listening on {}", listener.local_addr()?);
            listener.accept()?
        }
        "connect" => device.connect(addr)?,
        _ => return Err(USAGE.into()),
    };
    stream.set_linger(Some(PATIENCE));
    let (sent, received) = std::thread::scope(|scope| {
        let sending = scope.spawn(|| send(&stream));
        let received = receive(&stream);
        (sending.join(), received)
    });
    let sent = sent.map_err(|_| "the sender panicked")??;
    let Octets { copied, read, written } = stream.octets();
    eprintln!("sent {sent}, received {}: copied {copied}, read {read}, written {written}", received?);
    Ok(())
}

/// Returns the settings for a way of octets.
fn way(name: &str) -> Result<Config, String> {
    let (threshold, writes) = match name {
        "copy" => (None, false),
        "read" => (Some(0), false),
        "write" => (Some(0), true),
        other => return Err(format!("no such way: {other}")),
    };
    Ok(Config {
        source_threshold: threshold,
        sink_threshold: threshold,
        sink_adverts: writes,
        pipelined: writes,
        // Two to a call, so that the sender changes to the mode in which receives have adverts.
        // Each receive has one, into which nearly all of a send is written.
        longest_advert: CHUNK as u32 - 1,
        times: Times { read_ahead: PATIENCE, advert: PATIENCE, ..Times::default() },
        ..Config::default()
    })
}

fn send(mut stream: &SdpStream) -> io::Result<u64> {
    let (mut octets, mut sum) = (Vec::with_capacity(CHUNK), 0);
    while io::stdin().lock().take(CHUNK as u64).read_to_end(&mut octets)? > 0 {
        stream.write_all(&octets)?;
        sum += octets.len() as u64;
        octets.clear();
    }
    stream.shutdown_send();
    Ok(sum)
}

fn receive(mut stream: &SdpStream) -> io::Result<u64> {
    let (mut octets, mut sum) = (vec![0; CHUNK], 0);
    loop {
        let count = stream.read(&mut octets)?;
        if count == 0 {
            io::stdout().flush()?;
            return Ok(sum);
        }
        io::stdout().write_all(&octets[..count])?;
        sum += count as u64;
    }
}
