//! Sends what it reads to a peer, and prints what the peer sends, over an ordinary TCP socket:
//!
//!     talk connect ADDR
//!     talk listen ADDR
//!
//! The peer may be any program in DDPMODE, as `rddp run --ddp -- nc -l 127.0.0.1 7500` is.

use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use rddp_octets::{Agreed, Duplex, End, Handshake, HandshakeOptions, Progress};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (mut duplex, tcp) = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["connect", addr] => start(TcpStream::connect(addr)?, true)?,
        ["listen", addr] => start(TcpListener::bind(addr)?.accept()?.0, false)?,
        _ => return Err("talk connect ADDR | talk listen ADDR".into()),
    };
    let mut input = Vec::new();
    io::stdin().read_to_end(&mut input)?;
    exchange(&mut duplex, &tcp, &input)?;
    match duplex.end() {
        Some(End::Finished) | None => Ok(()),
        Some(end) => Err(end.to_string().into()),
    }
}

/// Does the startup.
fn start(mut tcp: TcpStream, connects: bool) -> Result<(Duplex, TcpStream), Box<dyn Error>> {
    tcp.set_nodelay(true)?;
    let options = HandshakeOptions::default();
    let mut handshake =
        if connects { Handshake::initiator(options, b"")? } else { Handshake::responder(options) };
    tcp.write_all(handshake.request())?;
    let mut arrived = Vec::new();
    let (agreed, used) = loop {
        match handshake.step(&arrived) {
            Progress::Need { total } => {
                let have = arrived.len();
                arrived.resize(total, 0);
                let count = tcp.read(&mut arrived[have..])?;
                arrived.truncate(have + count);
                if count == 0 {
                    return Err(format!("no connection: {:?}", handshake.closed(&arrived)).into());
                }
            }
            Progress::Asked(asked) => {
                let (reply, agreed) = asked.accept(b"")?;
                tcp.write_all(&reply)?;
                break (agreed, asked.used);
            }
            Progress::Accepted { agreed, used, .. } => break (agreed, used),
            Progress::Refused(refused) => {
                tcp.write_all(&refused.fpdu())?;
                return Err(format!("{refused}: {}", refused.error).into());
            }
            other => return Err(format!("no connection: {other:?}").into()),
        }
    };
    Ok((begin(&agreed, &arrived[used..]), tcp))
}

/// Begins the stream; octets behind the startup may have come with it.
fn begin(agreed: &Agreed, rest: &[u8]) -> Duplex {
    let mut duplex = Duplex::new(agreed);
    if !rest.is_empty() {
        duplex.space()[..rest.len()].copy_from_slice(rest);
        duplex.filled(rest.len());
    }
    duplex
}

/// Moves octets in both directions until both have ended.
fn exchange(duplex: &mut Duplex, mut tcp: &TcpStream, mut input: &[u8]) -> io::Result<()> {
    tcp.set_nonblocking(true)?;
    let (mut shut, mut octets) = (false, [0; 4096]);
    while !shut || duplex.end().is_none() {
        input = &input[duplex.put(input)..];
        if input.is_empty() {
            duplex.finish();
        }
        let mut moved = 0;
        if !duplex.owed().is_empty() {
            let count = unless_blocked(tcp.write(duplex.owed()))?.unwrap_or(0);
            duplex.paid(count);
            moved += count;
        }
        if duplex.is_finished() && !shut {
            tcp.shutdown(std::net::Shutdown::Write)?;
            shut = true;
        }
        if !duplex.space().is_empty()
            && let Some(count) = unless_blocked(tcp.read(duplex.space()))?
        {
            duplex.filled(count);
            moved += count;
        }
        loop {
            let count = duplex.take(&mut octets);
            if count == 0 {
                break;
            }
            io::stdout().write_all(&octets[..count])?;
        }
        if moved == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    io::stdout().flush()
}

/// Returns `None` where TCP has no octets, or no room.
fn unless_blocked(moved: io::Result<usize>) -> io::Result<Option<usize>> {
    match moved {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        moved => moved.map(Some),
    }
}
