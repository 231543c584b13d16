//! The warnings of a server of disks: of each kind one in a while, so that crowds of one kind hide
//! none of another.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::mem::{Discriminant, discriminant};

use rddp_block::export::{Command, DiskError, Export};
use rddp_block::nbd::handshake::Refused;
use rddp_block::nvme::connect::{CONNECT_LEN, ConnectData, Wrong};
use rddp_block::nvme::status::Status;
use rddp_block::nvme::step::Outcome;
use rddp_block::nvme::target::Target;
use rddp_command::failure::printable_name;
use rddp_command::seldom::Seldom;

use super::client;
use super::nvme::queue::Fault;

/// The kind of a trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// A client that is not let in, or whose queue makes no sense.
    TurnedAway,
    /// A client that says what makes no sense.
    Nonsense,
    /// A client whose connection has failed.
    Connection,
    /// A client without a handshake, or of which nothing is heard any more.
    Silent,
    /// A client that keeps memory from others.
    Stalled,
    /// A name of a disk that there is not.
    Name,
    /// A host that may not have the disk that it wants.
    Host,
    /// A host that is shown no disks, and asks which there are.
    Curious,
    /// A request that its disk does not allow, or has no place for.
    Refused,
    /// A request that this disk did not do, for such a reason.
    Disk(usize, Discriminant<DiskError>),
}

impl Kind {
    pub(super) fn of_disk(disk: usize, error: DiskError) -> Self {
        Kind::Disk(disk, discriminant(&error))
    }

    /// Returns the kind of the error that ends a client.
    pub(super) fn of(cause: &(dyn Error + 'static)) -> Self {
        match (cause.downcast_ref::<client::Wrong>(), cause.downcast_ref::<Fault>()) {
            (Some(client::Wrong::Handshake(Refused::Unknown(_))), _) => Kind::Name,
            (Some(client::Wrong::Silent), _) | (_, Some(Fault::Silent)) => Kind::Silent,
            (Some(client::Wrong::Handshake(_) | client::Wrong::Request(_)), _)
            | (_, Some(Fault::Short(_))) => Kind::Nonsense,
            _ => Kind::Connection,
        }
    }
}

/// The warnings of a server.
#[derive(Debug, Default)]
pub(super) struct Troubles(HashMap<Kind, Seldom>);

impl Troubles {
    /// Warns of a trouble, unless one of its kind was told just now: then it is counted.
    pub(super) fn warn(&mut self, kind: Kind, text: fmt::Arguments<'_>) {
        self.0.entry(kind).or_default().warn(text);
    }

    /// Warns of what a disk, with its number, did not do for a client.
    pub(super) fn warn_of_disk(
        &mut self,
        peer: &str,
        (at, export): (usize, &Export),
        command: &Command,
        error: DiskError,
    ) {
        let name = printable_name(&export.name);
        self.warn(Kind::of_disk(at, error), format_args!("{peer}: disk {name}: {command}: {error}"));
    }

    /// Tells what came of a host's Connect with these data: by a warning if it is refused, or the
    /// host will be shown nothing.
    pub(super) fn tell_connect(
        &mut self,
        peer: &str,
        outcome: Outcome,
        octets: &[u8; CONNECT_LEN],
        target: &Target,
    ) {
        let Ok(data) = ConnectData::parse(octets) else { return };
        let (disk, host) = (printable_name(&data.subsystem), printable_name(&data.host));
        let status = outcome.status;
        if status.is_success() && !target.allows(&data.host) {
            let text = format_args!("{peer}: host {host} asks for all disks: no --allow-host names it");
            self.warn(Kind::Curious, text);
        } else if status.is_success() {
            tracing::info!(%peer, %host, %disk, "a host has a queue");
        } else if status == Status::INVALID_HOST {
            let text = format_args!("{peer}: host {host} wants {disk}: no --allow-host names it");
            self.warn(Kind::Host, text);
        } else if outcome.result == Wrong::SUBSYSTEM.result() {
            self.warn(Kind::Name, format_args!("{peer}: host {host}: no subsystem is called {disk}"));
        } else {
            self.warn(Kind::Nonsense, format_args!("{peer}: host {host} wants {disk}: {status}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_end_a_client_have_their_kinds() {
        let wrong = |refused: Refused| Kind::of(&client::Wrong::from(refused));
        assert_eq!(wrong(Refused::Unknown("x".into())), Kind::Name);
        assert_eq!(wrong(Refused::NoClient), Kind::Nonsense);
        assert_eq!(Kind::of(&client::Wrong::Silent), Kind::Silent);
        assert_eq!(Kind::of(&Fault::Silent), Kind::Silent);
        assert_eq!(Kind::of(&Fault::Short(3)), Kind::Nonsense);
        assert_eq!(Kind::of(&std::fmt::Error), Kind::Connection);
        assert_ne!(Kind::of_disk(0, DiskError::Io), Kind::of_disk(1, DiskError::Io));
        assert_ne!(Kind::of_disk(0, DiskError::Io), Kind::of_disk(0, DiskError::NoSpc));
    }
}
