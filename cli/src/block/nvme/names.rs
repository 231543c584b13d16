//! The names of a server's subsystems, and numbers by which hosts tell disks apart.

use std::fs;
use std::path::Path;

use rddp_block::nvme::{DISCOVERY_NQN, MAX_NQN};
use rddp_command::failure::{Failure, printable_name};
use sha2::{Digest, Sha256};

/// The name in front of a disk's own, where none is chosen.
pub(in crate::block) const PREFIX: &str = "nqn.2026-11.rddp";

/// Returns the name of the subsystem of a disk: the one that was chosen, if it is the only disk.
pub(in crate::block) fn nqn(chosen: Option<&str>, disk: &str, is_only: bool) -> Result<String, Failure> {
    let name = match chosen {
        Some(chosen) if is_only => chosen.to_owned(),
        _ => format!("{}:{disk}", chosen.unwrap_or(PREFIX)),
    };
    // Base, "NVMe Qualified Names".
    if !name.starts_with("nqn.") {
        return Err(Failure::usage(format!("{}: no name of a subsystem", printable_name(&name)))
            .remedy("it begins with nqn., as nqn.2026-01.org.example:NAME does"));
    }
    let is_allowed = (1..=MAX_NQN).contains(&name.len()) && !name.contains('\0') && name != DISCOVERY_NQN;
    if is_allowed {
        return Ok(name);
    }
    let cause = format!("no subsystem can be called {}", printable_name(&name));
    Err(Failure::usage(cause).remedy("--nqn names another, of up to 223 octets with that of the disk"))
}

/// Returns the number of a disk: the same whenever it is served by this host, and another for each
/// other disk. Linux refuses two disks of one number.
pub(in crate::block) fn nguid(path: &Path) -> [u8; 16] {
    let host = fs::read("/etc/machine-id").unwrap_or_default();
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut hash = Sha256::new();
    hash.update(host);
    hash.update(path.as_os_str().as_encoded_bytes());
    let mut number = [0; 16];
    number.copy_from_slice(&hash.finalize()[..16]);
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subsystem_has_the_name_of_its_disk_or_the_one_that_was_chosen() {
        for (chosen, is_only, name) in [
            (None, true, "nqn.2026-11.rddp:a"),
            (None, false, "nqn.2026-11.rddp:a"),
            (Some("nqn.lab"), true, "nqn.lab"),
            (Some("nqn.lab"), false, "nqn.lab:a"),
        ] {
            assert_eq!(nqn(chosen, "a", is_only).unwrap(), name);
        }
        assert_eq!(nqn(None, &"a".repeat(206), true).unwrap().len(), MAX_NQN);
        assert!(nqn(None, &"a".repeat(207), true).is_err());
        assert!(nqn(Some(""), "a", true).is_err() && nqn(Some("lab"), "a", true).is_err());
        assert!(nqn(Some(DISCOVERY_NQN), "a", true).is_err());
    }

    #[test]
    fn a_disk_keeps_its_number_and_shares_it_with_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("a"), "").unwrap();
        fs::write(path("b"), "").unwrap();
        assert_eq!(nguid(&path("a")), nguid(&folder.path().join(".").join("a")));
        assert_ne!(nguid(&path("a")), nguid(&path("b")));
    }
}
