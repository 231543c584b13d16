//! Names of disks far away: `nbd://HOST[:PORT]/EXPORT` (`doc/uri.md` of the project NBD), and in
//! the same way `nvme://HOST[:PORT]/NQN`.

use std::fmt;

use rddp_command::failure::Failure;

/// A disk of a server, or with an empty name the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Uri {
    scheme: &'static str,
    /// `HOST`, `HOST:PORT`, `[V6]` or `[V6]:PORT`.
    pub(super) host: String,
    pub(super) export: String,
}

impl Uri {
    /// Parses what is behind the scheme and `://`.
    pub(super) fn parse(scheme: &'static str, rest: &str) -> Result<Self, Failure> {
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let wrong = || {
            Failure::usage(format!("{scheme}://{rest}: no name of a disk"))
                .remedy(format!("write {scheme}://HOST[:PORT]/NAME"))
        };
        if host.is_empty() || host.contains(['@', '?', '#']) || path.contains(['?', '#']) {
            return Err(wrong());
        }
        Ok(Uri { scheme, host: host.to_owned(), export: decoded(path).ok_or_else(wrong)? })
    }

    /// Returns the URI of another export of this server.
    pub(super) fn with_export(&self, export: &str) -> Self {
        Uri { scheme: self.scheme, host: self.host.clone(), export: export.to_owned() }
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}/", self.scheme, self.host)?;
        self.export.bytes().try_for_each(|octet| match octet {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b':' => {
                write!(f, "{}", char::from(octet))
            }
            _ => write!(f, "%{octet:02X}"),
        })
    }
}

/// Returns a path with its octets in place of `%XX`.
fn decoded(path: &str) -> Option<String> {
    let mut octets = Vec::new();
    let mut rest = path.as_bytes();
    while let [octet, behind @ ..] = rest {
        rest = behind;
        if *octet != b'%' {
            octets.push(*octet);
            continue;
        }
        let (digits, behind) = rest.split_at_checked(2)?;
        let digits = str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
        octets.push(u8::from_str_radix(digits, 16).ok()?);
        rest = behind;
    }
    String::from_utf8(octets).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_has_a_host_and_an_export() {
        for (text, host, export, shown) in [
            ("a", "a", "", "nbd://a/"),
            ("a/", "a", "", "nbd://a/"),
            ("[::1]:99/disk.img", "[::1]:99", "disk.img", "nbd://[::1]:99/disk.img"),
            ("a//b", "a", "/b", "nbd://a//b"),
            ("a/nqn.x:b", "a", "nqn.x:b", "nbd://a/nqn.x:b"),
            ("a/b%20%2f%C3%A4", "a", "b /\u{e4}", "nbd://a/b%20/%C3%A4"),
        ] {
            let uri = Uri::parse("nbd", text).unwrap();
            assert_eq!((&uri.host[..], &uri.export[..]), (host, export), "{text}");
            assert_eq!(uri.to_string(), shown);
        }
        for text in ["", "/x", "u@a/x", "a/x?tls", "a/%", "a/%4", "a/%+1", "a/%ff"] {
            assert!(Uri::parse("nbd", text).is_err(), "{text}");
        }
    }
}
