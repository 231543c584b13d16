//! Places of the command line: an address, with the name of a device in front or without.

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU16;

/// An address, and the device that reaches it; TCP where there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place<A> {
    pub(super) device: Option<String>,
    pub(super) address: A,
}

impl<A: fmt::Display> fmt::Display for Place<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.device {
            Some(device) => write!(f, "{device}/{}", self.address),
            None => self.address.fmt(f),
        }
    }
}

fn parse<A>(text: &str, address: impl Fn(&str) -> Option<A>, form: &str) -> Result<Place<A>, String> {
    let (device, rest) = match text.split_once('/') {
        Some((device, rest)) => (Some(device.to_owned()), rest),
        None => (None, text),
    };
    if let Some(word @ ("soft" | "auto")) = device.as_deref() {
        return Err(format!(
            "{word} names no RDMA device: for TCP, leave out {word}/ (`rdma link` shows the names of devices)"
        ));
    }
    let is_named = device.as_ref().is_none_or(|name| !name.is_empty());
    let address = address(rest).filter(|_| is_named);
    address.map(|address| Place { device, address }).ok_or_else(|| format!("not {form}"))
}

pub(super) fn parse_listen(text: &str) -> Result<Place<SocketAddr>, String> {
    parse(text, |rest| rest.parse().ok(), "ADDR:PORT, [IPV6]:PORT or DEV/ADDR:PORT")
}

pub(super) fn parse_to(text: &str) -> Result<Place<String>, String> {
    let with_port = |rest: &str| {
        let (host, port) = rest.rsplit_once(':')?;
        let is_whole =
            !host.is_empty() && (!host.contains(':') || host.starts_with('[') && host.ends_with(']'));
        (is_whole && port.parse::<NonZeroU16>().is_ok()).then(|| rest.to_owned())
    };
    parse(text, with_port, "HOST:PORT, [IPV6]:PORT or DEV/HOST:PORT")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_stands_in_front_of_an_address() {
        let named = parse_listen("mlx5_0/192.0.2.1:7174").unwrap();
        assert_eq!((named.device.as_deref(), named.address.port()), (Some("mlx5_0"), 7174));
        assert_eq!(named.to_string(), "mlx5_0/192.0.2.1:7174");
        assert_eq!(parse_to("[::1]:80").unwrap().to_string(), "[::1]:80");
        assert_eq!(parse_to("siw0/host:80").unwrap().device.as_deref(), Some("siw0"));
    }

    #[test]
    fn words_of_other_commands_for_a_device_are_refused_with_what_is_meant() {
        for text in ["soft/127.0.0.1:7", "auto/127.0.0.1:7"] {
            for refused in [parse_listen(text).unwrap_err(), parse_to(text).unwrap_err()] {
                assert!(refused.contains(&format!("for TCP, leave out {}/", &text[..4])), "{refused}");
            }
        }
    }

    #[test]
    fn an_address_has_a_port_and_a_device_a_name() {
        for text in ["192.0.2.1", "mlx5_0/", "/192.0.2.1:1", "host:80", "::1:80"] {
            assert!(parse_listen(text).is_err(), "{text}");
        }
        for text in ["host", "host:", "host:x", "host:0", ":80", "a/b/c:x", "::1:80", "/host:80"] {
            assert!(parse_to(text).is_err(), "{text}");
        }
    }
}
