//! Names of peers, and addresses to listen on.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use nix::errno::Errno;
use rddp_rnic::{ConnectOptions, ConnectRequest, Listener, Rnic};

use crate::failure::{Failure, FailureKind, MORE_FILES};

/// Resolves `HOST`, `HOST:PORT`, `[V6]` or `[V6]:PORT` to at least one address. A bare IPv6 address
/// is taken as a host without a port.
pub fn resolve(text: &str, default_port: u16) -> Result<Vec<SocketAddr>, Failure> {
    let (host, port) = split(text)?;
    let port = port.unwrap_or(default_port);
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let unknown = |why: &str| {
        Failure::peer(format!("looking up {host:?}: {why}"))
            .remedy("check the name: `getent hosts NAME` shows whether this host knows it")
    };
    let found = (host, port).to_socket_addrs().map_err(|error| unknown(&error.to_string()))?;
    let mut addrs: Vec<SocketAddr> = found.collect();
    addrs.dedup();
    if addrs.is_empty() { Err(unknown("it has no address")) } else { Ok(addrs) }
}

/// Connects to the first of several addresses at which something answers. Tries the next one only
/// when `connect` fails with exit code 3 (the peer is not there).
pub fn first<T>(
    addrs: &[SocketAddr],
    mut connect: impl FnMut(SocketAddr) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut result = Err(Failure::peer("no address to connect to"));
    for &addr in addrs {
        result = connect(addr);
        if !result.as_ref().is_err_and(|failure| failure.kind() == FailureKind::Peer) {
            break;
        }
    }
    result
}

/// Splits a host from the port, if one is named.
fn split(text: &str) -> Result<(&str, Option<u16>), Failure> {
    let bad = || Failure::usage(format!("{text:?} is no HOST, HOST:PORT or [IPV6]:PORT"));
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or_else(bad)?;
        (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':').ok_or_else(bad)?) })
    } else if text.parse::<Ipv6Addr>().is_ok() {
        (text, None)
    } else {
        match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    if host.is_empty() {
        return Err(bad());
    }
    let number = |port: &str| match port.parse::<u16>() {
        Ok(port) => Ok(port),
        Err(_) if !port.is_empty() && port.bytes().all(|octet| octet.is_ascii_digit()) => {
            Err(Failure::usage(format!("{text:?}: a port is at most {}", u16::MAX)))
        }
        Err(_) => Err(bad()),
    };
    Ok((host, port.map(number).transpose()?))
}

/// The addresses to listen on when none is named: all addresses, of either family.
const ANYWHERE: [IpAddr; 2] = [IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)];

/// Calls `listen` for the address; for "anywhere", for one family after the other until one works.
pub fn listen_on<T, E: std::error::Error + 'static>(
    bind: Option<IpAddr>,
    port: u16,
    mut listen: impl FnMut(SocketAddr) -> Result<T, E>,
) -> Result<T, Failure> {
    let candidates = bind.map_or(ANYWHERE.to_vec(), |ip| vec![ip]);
    let mut last = None;
    for ip in candidates {
        let addr = SocketAddr::new(ip, port);
        match listen(addr) {
            Ok(listener) => return Ok(listener),
            Err(error) => {
                last = Some(not_listening(addr, &error));
            }
        }
    }
    Err(last.unwrap_or_else(|| Failure::failed("no address to listen on").remedy(NAME_ANOTHER)))
}

const NAME_ANOTHER: &str =
    "name an address of this host with --bind, and a port that nothing else has with --port";

const PORT_RIGHT: &str = "name a port from 1024 on with --port; for this one, the process needs \
     CAP_NET_BIND_SERVICE, or the host a lower net.ipv4.ip_unprivileged_port_start (sysctl)";

const IN_USE: &str =
    "something listens there already: end it, or name a port that nothing else has with --port";

/// Returns the failure to listen on an address.
fn not_listening(addr: SocketAddr, error: &(dyn std::error::Error + 'static)) -> Failure {
    if let Some(rddp_rnic::Error::Device(error)) = error.downcast_ref() {
        let failure = Failure::of_device(&format!("listening on {addr}: "), error);
        return if failure.how().is_some() { failure } else { failure.remedy(NAME_ANOTHER) };
    }
    let cause: &dyn std::error::Error = match error.downcast_ref() {
        // The failure says itself what was tried.
        Some(rddp_rnic::Error::Host { what: "listening", error }) => error,
        _ => error,
    };
    let code = match error.downcast_ref() {
        Some(rddp_rnic::Error::Host { error, .. }) => Some(error),
        _ => error.downcast_ref::<io::Error>(),
    };
    let needs_right = (1..1024).contains(&addr.port());
    let remedy = match code.map(|code| (code.kind(), code.raw_os_error().map(Errno::from_raw))) {
        Some((ErrorKind::PermissionDenied, _)) if needs_right => PORT_RIGHT,
        Some((ErrorKind::AddrInUse, _)) => IN_USE,
        Some((_, Some(Errno::EMFILE | Errno::ENFILE))) => MORE_FILES,
        _ => NAME_ANOTHER,
    };
    Failure::failed(format!("listening on {addr}: {cause}")).remedy(remedy)
}

/// Listens for iWARP connections.
pub fn rdma_listener(
    rnic: &Rnic,
    bind: Option<IpAddr>,
    port: u16,
    options: &ConnectOptions,
) -> Result<(Listener, SocketAddr), Failure> {
    let listener = listen_on(bind, port, |addr| rnic.listen(addr, options))?;
    let addr = listener.local_addr().map_err(|error| Failure::failed(format!("listening: {error}")))?;
    Ok((listener, addr))
}

/// Returns the words for where a server listens: of "anywhere" what that means, and what would
/// change it.
pub fn shown(addr: SocketAddr) -> String {
    let addr = plain(addr);
    if addr.ip().is_unspecified() {
        format!("{addr} (every address of this host; --bind ADDR: one of them)")
    } else {
        addr.to_string()
    }
}

/// Returns a client's address, as lines about it begin with it.
pub fn of_client(request: &ConnectRequest) -> String {
    let peer = request.peer_addr();
    peer.map_or_else(|| "a client".to_owned(), |peer| plain(peer).to_string())
}

/// Returns an IPv4-mapped address, as a dual-stack socket reports it, as the IPv4 address.
pub fn plain(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_all_addresses_says_so() {
        let all = "(every address of this host; --bind ADDR: one of them)";
        assert_eq!(shown("[::]:7174".parse().unwrap()), format!("[::]:7174 {all}"));
        assert_eq!(shown("0.0.0.0:7174".parse().unwrap()), format!("0.0.0.0:7174 {all}"));
        assert_eq!(shown("[::ffff:192.0.2.1]:80".parse().unwrap()), "192.0.2.1:80");
    }

    #[test]
    fn ports_are_optional_and_ipv6_has_brackets_when_there_is_one() {
        for (text, addr) in [
            ("10.0.0.1", "10.0.0.1:7174"),
            ("10.0.0.1:99", "10.0.0.1:99"),
            ("fd77::2", "[fd77::2]:7174"),
            ("[fd77::2]", "[fd77::2]:7174"),
            ("[fd77::2]:99", "[fd77::2]:99"),
        ] {
            assert_eq!(resolve(text, 7174).unwrap(), [addr.parse().unwrap()], "{text}");
        }
    }

    #[test]
    fn addresses_are_tried_until_something_is_there() {
        let addrs: Vec<SocketAddr> =
            ["[::1]:1", "127.0.0.1:1", "127.0.0.2:1"].map(|addr| addr.parse().unwrap()).into();
        let there = |there: usize, kind| {
            first(&addrs, |addr| if addr == addrs[there] { Ok(addr) } else { Err(Failure::new(kind, "no")) })
        };
        assert_eq!(there(1, FailureKind::Peer).unwrap(), addrs[1]);
        assert_eq!(there(1, FailureKind::Refused).unwrap_err().kind(), FailureKind::Refused);
        assert!(first::<()>(&addrs, |_| Err(Failure::peer("no"))).is_err());
    }

    #[test]
    fn the_remedy_says_why_a_server_cannot_listen() {
        let failure = |error: io::Error, port| {
            let mut error = Some(error);
            let listen = |_| Err::<(), _>(error.take().unwrap());
            listen_on(Some(Ipv4Addr::LOCALHOST.into()), port, listen).unwrap_err()
        };
        let remedy = |kind: ErrorKind, port| failure(kind.into(), port).how().unwrap().to_owned();
        let denied = remedy(ErrorKind::PermissionDenied, 80);
        for right in ["CAP_NET_BIND_SERVICE", "net.ipv4.ip_unprivileged_port_start"] {
            assert!(denied.contains(right) && !denied.contains("nothing else has"), "{denied}");
        }
        assert!(remedy(ErrorKind::AddrInUse, 80).contains("something listens there already"));
        assert!(remedy(ErrorKind::PermissionDenied, 7177).contains("nothing else has"));
        assert_eq!(failure(Errno::EMFILE.into(), 7177).how(), Some(MORE_FILES));
        let of_device = |error| rddp_rnic::Error::Host { what: "listening", error: io::Error::from(error) };
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 80));
        assert_eq!(not_listening(addr, &of_device(ErrorKind::PermissionDenied)).how(), Some(PORT_RIGHT));
        let in_use = not_listening(addr, &of_device(ErrorKind::AddrInUse)).to_string();
        assert_eq!(in_use.matches("listening").count(), 1, "{in_use}");
    }

    #[test]
    fn malformed_addresses_are_usage_errors() {
        for text in ["", ":99", "[::1", "[::1]99", "host:", "host:x", "host:99999"] {
            assert_eq!(resolve(text, 7174).unwrap_err().kind(), FailureKind::Usage, "{text}");
        }
    }

    #[test]
    fn a_name_that_is_not_known_is_refused_with_what_helps() {
        let unknown = resolve("nowhere.invalid", 7174).unwrap_err();
        assert_eq!(unknown.kind(), FailureKind::Peer);
        assert!(unknown.how().is_some_and(|remedy| remedy.contains("getent hosts")), "{unknown}");
    }
}
