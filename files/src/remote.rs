//! A file at a server: `HOST[:PORT]/PATH`.

use std::net::{Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use rddp_command::addr;
use rddp_command::device::{By, Choice};
use rddp_command::failure::Failure;
use rddp_rnic::ConnectOptions;

use super::greeting::Hello;
use super::protocol::MAX_PATH;
use super::talk::Talk;
use super::tasks::Hub;
use super::token::Token;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RemoteFile<'a> {
    pub(super) host: &'a str,
    /// The path, relative to the served directory. If it is empty or ends with a slash, it names a
    /// directory.
    pub(super) path: &'a str,
}

impl<'a> RemoteFile<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Self, Failure> {
        let wrong = || Failure::usage(format!("{text:?} is no HOST[:PORT]/PATH"));
        if let Some((_, rest)) = text.split_once("://") {
            return Err(wrong().remedy(format!("leave out what is before //: {rest}")));
        }
        if let Some((user, rest)) = text.split_once('@')
            && !user.contains(['/', ':'])
        {
            let right = Self::parse(rest).err().and_then(|failure| failure.how().map(str::to_owned));
            let right = right.unwrap_or_else(|| format!("write {rest}"));
            return Err(wrong().remedy(format!("there are no user names: {right}")));
        }
        if let Some((host, path)) = scp_form(text).or_else(|| with_port(text)) {
            return Err(wrong().remedy(format!("write {host}/{}", path.trim_start_matches('/'))));
        }
        let Some((host, path)) = text.split_once('/') else {
            let host = if text.is_empty() { "192.0.2.1" } else { text };
            return Err(wrong().remedy(format!("{host}/PATH, or {host}/ for the served directory itself")));
        };
        if host.is_empty() {
            return Err(wrong().remedy("name the host first, as in 192.0.2.1/big.iso"));
        }
        Ok(RemoteFile { host, path })
    }

    /// Returns the path, with `name` added where it names a directory.
    pub(super) fn path_with(&self, name: &str) -> Result<String, Failure> {
        let path = match self.path.rsplit('/').next() {
            // "a/." is "a/": rsync's users write it.
            None | Some("" | ".") => format!("{}{name}", self.path.trim_end_matches('.')),
            Some(_) => self.path.to_owned(),
        };
        if path.len() > MAX_PATH {
            return Err(Failure::usage(format!("the path has {} octets, at most {MAX_PATH}", path.len())));
        }
        Ok(path)
    }

    /// Returns the last part of the path, which is the file's name.
    pub(super) fn name(&self) -> Result<&'a str, Failure> {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        if name.is_empty() || name == "." || name == ".." {
            return Err(Failure::usage(format!(
                "{:?} names no file",
                format!("{}/{}", self.host, self.path)
            ))
            .remedy("name it behind the host, as in 192.0.2.1/big.iso"));
        }
        Ok(name)
    }

    /// Returns the device by which the server is reached.
    pub(super) fn device(&self, choice: &Choice) -> Result<Choice, Failure> {
        choice.towards(|| addr::resolve(self.host, super::PORT))
    }

    pub(super) fn connect(&self, asks: Asks<'_>, hub: &Rc<Hub>) -> Result<Server, Failure> {
        addr::first(&addr::resolve(self.host, super::PORT)?, |addr| connect(addr, asks, hub))
    }
}

/// Properties of a connection that the user asks for.
#[derive(Clone, Copy)]
pub(super) struct Asks<'a> {
    pub(super) token: Option<&'a Token>,
    /// FPDUs longer than TCP's segments.
    pub(super) large: bool,
    /// TCP's congestion control; the host's without one.
    pub(super) congestion: Option<&'a str>,
    /// Time limit for each answer of the server, that of the startup included.
    pub(super) timeout: Duration,
}

/// A server to which this end is connected.
pub(super) struct Server {
    pub(super) talk: Talk,
    pub(super) addr: SocketAddr,
    pub(super) by: By,
}

/// Splits `HOST:PORT:PATH` at its second colon, and `HOST::MODULE/PATH`, as rsync names what a
/// daemon has, at both.
fn with_port(text: &str) -> Option<(&str, &str)> {
    let host_len = text.strip_prefix('[').and_then(|rest| rest.find(']')).map_or(0, |end| end + 2);
    let colon = host_len.min(text.len()) + text.get(host_len..)?.find([':', '/'])?;
    let rest = text[colon..].strip_prefix(':')?;
    let port = rest.find(|c: char| !c.is_ascii_digit())?;
    let path = rest[port..].strip_prefix(':')?;
    let is_address = text.split('/').next()?.parse::<Ipv6Addr>().is_ok();
    let host = if port == 0 { &text[..colon] } else { &text[..colon + 1 + port] };
    (colon > 0 && !is_address).then_some((host, path))
}

/// Splits `HOST:PATH`, as scp names a file, at its colon. A number behind the colon is a port.
fn scp_form(text: &str) -> Option<(&str, &str)> {
    let end = text.strip_prefix('[').and_then(|rest| rest.find(']')).map_or(0, |end| end + 1);
    let (host, path) = text.split_at(end + text[end..].find([':', '/'])?);
    let path = path.strip_prefix(':')?;
    let port = path.split('/').next().unwrap_or_default();
    let is_port = !port.is_empty() && port.bytes().all(|octet| octet.is_ascii_digit());
    // An IPv6 address without brackets has colons of its own.
    (!host.is_empty() && !is_port && !port.contains(':')).then_some((host, path))
}

fn connect(addr: SocketAddr, asks: Asks<'_>, hub: &Rc<Hub>) -> Result<Server, Failure> {
    let mut talk = Talk::new(hub)?;
    let by = By::of(&hub.rnic);
    if asks.large && by.is_host() {
        return Err(by.lacks("FPDUs longer than TCP's segments"));
    }
    let hello = Hello { token: asks.token.is_some(), large: asks.large };
    let usual = ConnectOptions::default();
    let options = ConnectOptions {
        private_data: hello.emit(),
        congestion: asks.congestion.map(str::to_owned),
        timeout: usual.timeout.min(asks.timeout),
        ..usual
    };
    let what =
        if addr.ip().is_loopback() { "rddp serve" } else { "rddp serve (with --bind, for other hosts)" };
    let connected = talk.end.connect(addr, &options, what)?;
    let agreed = hello.agreed(&connected.private_data)?;
    if agreed.large {
        talk.end.qp.send_large_fpdus();
    }
    if let (Some(token), Some(nonce)) = (asks.token, agreed.nonce) {
        talk.sign_with(token.clone(), nonce);
    }
    Ok(Server { talk, addr, by })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_path_are_told_apart() {
        for (text, host, path) in [
            ("h/f", "h", "f"),
            ("h:9/a/b", "h:9", "a/b"),
            ("[::1]:9/f", "[::1]:9", "f"),
            ("h/", "h", ""),
            ("h//etc/passwd", "h", "/etc/passwd"),
        ] {
            assert_eq!(RemoteFile::parse(text).unwrap(), RemoteFile { host, path }, "{text}");
        }
        for text in ["", "h", "/f", "h:9"] {
            assert!(RemoteFile::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_form_of_other_programs_is_answered_with_the_right_one() {
        for (text, right) in [
            ("h:/a/b", "h/a/b"),
            ("h:f", "h/f"),
            ("h:", "h/"),
            ("[::1]:/f", "[::1]/f"),
            ("h:9a/f", "h/9a/f"),
            ("h:9:f", "h:9/f"),
            ("h:9:/a/b", "h:9/a/b"),
            ("h:9:", "h:9/"),
            ("[::1]:9:a/b", "[::1]:9/a/b"),
            ("h::m/f", "h/m/f"),
        ] {
            let failure = RemoteFile::parse(text).unwrap_err();
            assert_eq!(failure.how(), Some(&*format!("write {right}")), "{text}");
        }
        let how = |text| RemoteFile::parse(text).unwrap_err().how().unwrap().to_owned();
        for (text, right) in [("u@h:/f", "h/f"), ("u@[::1]:9:f", "[::1]:9/f"), ("u@h:9/a/b", "h:9/a/b")] {
            assert_eq!(how(text), format!("there are no user names: write {right}"), "{text}");
        }
        assert!(how("u@h").contains("names: h/PATH, or"));
        assert!(how("http://h:9/f").ends_with(": h:9/f"));
        assert!(how("h:9").contains("h:9/ for the served directory"));
        for text in
            ["h:9/f", "h/u@v", "h/a:b", "h/a:9:b", "fd77::2/f", "1:2:3:4:5:6:7:8/f", "[fd77::2]:9/a:9:b"]
        {
            assert!(RemoteFile::parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_directory_gets_the_files_own_name() {
        let path = |text| RemoteFile::parse(text).unwrap().path_with("name").unwrap();
        assert_eq!(path("h/"), "name");
        assert_eq!(path("h/sub/"), "sub/name");
        assert_eq!((path("h/."), path("h/sub/.")), ("name".to_owned(), "sub/name".to_owned()));
        assert_eq!(path("h/sub.d/a."), "sub.d/a.");
        assert_eq!(path("h/other"), "other");
        assert!(
            RemoteFile::parse(&format!("h/{}", "x".repeat(MAX_PATH + 1))).unwrap().path_with("n").is_err()
        );
        assert!(RemoteFile::parse("h/sub/..").unwrap().name().is_err());
    }
}
