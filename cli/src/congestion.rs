//! TCP's congestion control, which commands take as an option.

use std::io::{Error, ErrorKind};

use socket2::{Domain, Socket, Type};

/// Parses the name of a congestion control that this host has, and allows.
pub(crate) fn parse(name: &str) -> Result<String, String> {
    let tried = Socket::new(Domain::IPV4, Type::STREAM, None)
        .and_then(|socket| socket.set_tcp_congestion(name.as_bytes()));
    tried.map(|()| name.to_owned()).map_err(|error| refusal(name, &error))
}

fn refusal(name: &str, error: &Error) -> String {
    let (why, which) = match error.kind() {
        ErrorKind::NotFound | ErrorKind::InvalidInput => ("this host has none of that name", "available"),
        ErrorKind::PermissionDenied => ("this host allows it to root alone", "allowed"),
        _ => return format!("congestion control {name:?}: {error}"),
    };
    let names = sysctl(&format!("tcp_{which}_congestion_control"))
        .map_or(String::new(), |names| format!("; {which}: {names}"));
    format!("congestion control {name:?}: {why}{names}")
}

/// Returns the congestion control of sockets for which none is asked.
pub(crate) fn of_host() -> Option<String> {
    sysctl("tcp_congestion_control")
}

fn sysctl(name: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok()?;
    Some(text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_this_host_lacks_is_refused_with_those_that_it_has() {
        assert_eq!(parse("reno"), Ok("reno".into()));
        for name in ["", "none-of-that-name"] {
            let why = parse(name).unwrap_err();
            let begin = format!("congestion control {name:?}: this host has none of that name; available: ");
            assert!(why.starts_with(&begin) && why.contains("reno"), "{why}");
        }
        let forbidden = refusal("bbr", &ErrorKind::PermissionDenied.into());
        assert!(forbidden.contains("to root alone; allowed: "), "{forbidden}");
    }
}
