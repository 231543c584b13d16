//! The server: one UDP socket, and the answers of [`rddp_iwarp::port_mapper::Server`].

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use rddp_command::addr;
use rddp_command::failure::Failure;
use rddp_command::out;
use rddp_command::signals;
use rddp_iwarp::port_mapper::{Frame, Kind, Server, TRIES};
use serde::Serialize;

use super::{Mapping, PortmapArgs};

#[derive(Serialize)]
struct Listening {
    listening: SocketAddr,
}

/// A question that was answered, as JSON.
#[derive(Serialize)]
struct Answered {
    client: SocketAddr,
    service: SocketAddr,
    port: Option<u16>,
}

/// Serves until a signal comes.
pub(super) fn run(args: &PortmapArgs) -> Result<(), Failure> {
    let socket = addr::listen_on(args.bind, args.port, UdpSocket::bind)?;
    let failed = |error: io::Error| Failure::failed(format!("the port mapper's socket: {error}"));
    let listening = socket.local_addr().map_err(failed)?;
    if args.json {
        out::json_event(&Listening { listening });
    } else {
        out::event(format_args!("answering RNICs on UDP {}", addr::shown(listening)));
    }
    let (mut server, begun) = (Server::new(&TRIES), Instant::now());
    let mut octets = [0; Frame::EXTENDED_LEN];
    while !signals::stopped() {
        let now = begun.elapsed();
        while let Some((client, frame)) = server.repeat(now) {
            send(&socket, client, &frame);
        }
        socket.set_read_timeout(Some(patience(&server, now))).map_err(failed)?;
        match socket.recv_from(&mut octets) {
            Ok((len, client)) => {
                answer(args, &socket, &mut server, begun.elapsed(), client, &octets[..len]);
            }
            // ICMP about a client that is gone comes as an error of the socket.
            Err(error) => tracing::debug!(%error, "nothing received"),
        }
    }
    Ok(())
}

/// Returns the time to wait for the next datagram, which is never none.
fn patience(server: &Server, now: Duration) -> Duration {
    let due = server.due().map_or(Duration::MAX, |due| due.saturating_sub(now));
    due.clamp(Duration::from_millis(1), signals::CHECK_INTERVAL)
}

fn answer(
    args: &PortmapArgs,
    socket: &UdpSocket,
    server: &mut Server,
    now: Duration,
    client: SocketAddr,
    datagram: &[u8],
) {
    let Some(frame) =
        server.receive(now, client, datagram, |service| look_up(&args.mappings, service.port()))
    else {
        return;
    };
    send(socket, client, &frame);
    let Ok(answer) = Frame::parse(&frame) else { return };
    let port = (answer.kind == Kind::Accept).then_some(answer.ap.port());
    let service = Frame::parse(datagram).map_or(answer.ap, |request| request.ap);
    let client = addr::plain(client);
    if args.json {
        out::json_event(&Answered { client, service, port });
    } else {
        let told = port.map_or("unknown".to_owned(), |port| format!("port {port}"));
        out::event(format_args!("{client} asked for {service}: {told}"));
    }
}

/// Returns the port that stands for a service's; without mappings (`--all`), each port stands for
/// itself.
fn look_up(mappings: &[Mapping], service: u16) -> Option<u16> {
    match mappings.iter().find(|mapping| mapping.service == service) {
        Some(mapping) => Some(mapping.port),
        None => mappings.is_empty().then_some(service),
    }
}

fn send(socket: &UdpSocket, client: SocketAddr, frame: &[u8]) {
    // A client that hears nothing asks again.
    if let Err(error) = socket.send_to(frame, client)
        && error.kind() != ErrorKind::WouldBlock
    {
        tracing::info!(%client, %error, "an answer was not sent");
    }
}
