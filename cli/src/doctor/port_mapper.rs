//! A query to a host's iWARP port mapper (UDP port 3935): which TCP port leads to a service?

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

/// The UDP port of port mappers.
const PORT: u16 = 3935;

/// Octets of a message.
const LEN: usize = 48;

const TRIES: u32 = 3;
const PATIENCE: Duration = Duration::from_millis(300);

/// The answer of a port mapper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The service is at this port.
    Mapped(u16),
    /// The port mapper does not know the service.
    Unknown,
    /// No port mapper answers: the service is at the port that was named.
    None,
}

pub(super) fn ask(service: SocketAddr) -> io::Result<Answer> {
    ask_at(SocketAddr::new(service.ip(), PORT), service)
}

fn ask_at(mapper: SocketAddr, service: SocketAddr) -> io::Result<Answer> {
    let any: IpAddr =
        if mapper.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(mapper)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let request = request(service, socket.local_addr()?);
    for _ in 0..TRIES {
        // "Connection refused" is reported by the next call: there is no port mapper.
        if socket.send(&request).is_err() {
            return Ok(Answer::None);
        }
        let mut answer = [0; LEN];
        match socket.recv(&mut answer) {
            Ok(LEN) => {
                if let Some(answer) = parse(&answer, &request) {
                    return Ok(answer);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(Answer::None),
            _ => {}
        }
    }
    Ok(Answer::None)
}

/// Makes a request: version 0, type 0, the address family; ports, a handle, and the addresses of
/// this end and of the service.
fn request(service: SocketAddr, own: SocketAddr) -> [u8; LEN] {
    let mut octets = [0; LEN];
    octets[0] = if service.is_ipv4() { 4 } else { 6 };
    octets[4..6].copy_from_slice(&service.port().to_be_bytes());
    octets[6..8].copy_from_slice(&own.port().to_be_bytes());
    octets[8..16].copy_from_slice(&u64::from(std::process::id()).to_be_bytes());
    put(&mut octets[16..32], own.ip());
    put(&mut octets[32..48], service.ip());
    octets
}

/// Writes an address. An IPv4 address stands in the first four octets.
fn put(out: &mut [u8], ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => out[..4].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => out.copy_from_slice(&ip.octets()),
    }
}

/// Reads the answer to a request, which has the same handle: type 1 for success, type 3 for a
/// refusal.
fn parse(octets: &[u8; LEN], request: &[u8; LEN]) -> Option<Answer> {
    if octets[8..16] != request[8..16] {
        return None;
    }
    match octets[0] >> 4 {
        1 => Some(Answer::Mapped(u16::from_be_bytes([octets[4], octets[5]]))),
        3 => Some(Answer::Unknown),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts a mapper that answers one request with this type and port.
    fn mapper(kind: u8, port: u16) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let addr = socket.local_addr().unwrap();
        std::thread::spawn(move || {
            let mut octets = [0; LEN];
            let (_, peer) = socket.recv_from(&mut octets).unwrap();
            octets[0] |= kind << 4;
            octets[4..6].copy_from_slice(&port.to_be_bytes());
            socket.send_to(&octets, peer).unwrap();
        });
        addr
    }

    #[test]
    fn answers_are_understood() {
        let service = "127.0.0.1:7174".parse().unwrap();
        assert_eq!(ask_at(mapper(1, 40_000), service).unwrap(), Answer::Mapped(40_000));
        assert_eq!(ask_at(mapper(3, 0), service).unwrap(), Answer::Unknown);
        let nobody = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(ask_at(nobody, service).unwrap(), Answer::None);
    }

    #[test]
    fn an_ipv4_address_stands_in_the_first_four_octets() {
        let octets = request("10.0.0.1:7174".parse().unwrap(), "10.0.0.2:5".parse().unwrap());
        assert_eq!(octets[..8], [4, 0, 0, 0, 0x1c, 0x06, 0, 5]);
        assert_eq!(octets[32..48], [10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}
