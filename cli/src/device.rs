//! The option `--device` of the commands that connect, and of those that listen.

use clap::Args;
use rddp_command::device::Choice;
use rddp_command::failure::Failure;

const ONE: &str = "Device that moves the octets: soft, a name, or auto (what leads to the peer) \
     [default: RDDP_DEVICE or soft]";

const SEVERAL: &str = "Devices to listen on: soft and names; an RNIC takes the TCP port itself \
     [default: RDDP_DEVICE or soft]";

/// The help of a command that connects or listens.
pub(crate) const EITHER: &str = "Device: soft, a name, or auto (what leads to the peer); of a server, \
     several [default: RDDP_DEVICE or soft]";

/// The device of a command that connects.
#[derive(Debug, Args)]
pub(crate) struct Device {
    #[arg(long, value_name = "DEVICE", value_parser = Choice::parse, help = ONE)]
    device: Option<Choice>,
}

impl Device {
    pub(crate) fn choice(&self) -> Choice {
        self.device.clone().unwrap_or_default()
    }
}

/// The devices of a command that listens.
#[derive(Debug, Args)]
pub(crate) struct Devices {
    #[arg(long = "device", value_name = "DEVICE,...", value_delimiter = ',', value_parser = Choice::parse)]
    #[arg(help = SEVERAL)]
    devices: Vec<Choice>,
}

impl Devices {
    /// Returns the devices of a server.
    pub(crate) fn all(&self) -> Result<Vec<Choice>, Failure> {
        if self.devices.contains(&Choice::Auto) {
            return Err(Failure::usage("--device auto: there is no peer yet that a device could lead to")
                .remedy("name the devices, as in --device soft,rxe0"));
        }
        if self.devices.is_empty() {
            return Ok(vec![Choice::Unsaid]);
        }
        let mut all = self.devices.clone();
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    /// Returns the device of a client.
    pub(crate) fn one(&self) -> Result<Choice, Failure> {
        match &self.devices[..] {
            [] => Ok(Choice::Unsaid),
            [one] => Ok(one.clone()),
            _ => Err(Failure::usage("--device: a client has one device")),
        }
    }
}

/// Whole commands, both ends of them in one process, whose devices are fake ones: those of a
/// library that stands where libibverbs and librdmacm would. Device `n` has the addresses
/// 127.(100 + n).0.0 to 127.(100 + n).255.255.
#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::process::Command;
    use std::time::{Duration, Instant};
    use std::{env, fs, thread};

    use clap::FromArgMatches;
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use rddp_command::failure::FailureKind;

    use super::*;
    use crate::Cli;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Runs a test in a process of its own, on a host with an RNIC and a RoCE adapter.
    fn with_devices(test: &str) {
        let itself = env::current_exe().unwrap();
        let (fake, folder) = (itself.with_file_name("libfake_verbs.so"), tempfile::tempdir().unwrap());
        for name in ["libibverbs.so.1", "librdmacm.so.1"] {
            symlink(&fake, folder.path().join(name)).unwrap();
        }
        let mut child = Command::new(itself);
        let removals = folder.path().join("removals");
        mkfifo(&removals, Mode::S_IRWXU).unwrap();
        child.env("LD_LIBRARY_PATH", folder.path()).env("FAKE_DEVICES", "siw0=0,rxe0=1");
        child.env("FAKE_REMOVALS", removals);
        child.args(["--exact", "--ignored", "--nocapture", &format!("device::tests::{test}")]);
        let ended = child.output().unwrap();
        let said = [ended.stdout, ended.stderr].map(|octets| String::from_utf8_lossy(&octets).into_owned());
        assert!(ended.status.success() && said[0].contains("1 passed"), "{}\n{}", said[0], said[1]);
    }

    fn command(args: &str) -> Result<(), Failure> {
        let matches = crate::parser().try_get_matches_from(["rddp"].into_iter().chain(args.split(' ')));
        let cli = Cli::from_arg_matches(&matches.unwrap()).unwrap();
        crate::run(&cli.command, 0)
    }

    /// Begins a server, which ends with this process.
    fn serve(args: &str) {
        let args = args.to_owned();
        thread::spawn(move || command(&args).unwrap());
    }

    /// Runs a client, as soon as its server listens.
    fn client(args: &str) {
        let until = Instant::now() + PATIENCE;
        loop {
            match command(args) {
                Err(failure) if failure.to_string().contains("nothing listens") && Instant::now() < until => {
                    thread::sleep(Duration::from_millis(5));
                }
                ended => return ended.unwrap_or_else(|failure| panic!("{args}: {failure}")),
            }
        }
    }

    /// Returns a port that is free, and so is the next.
    fn port() -> u16 {
        loop {
            let one = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            if one < u16::MAX && TcpListener::bind(("127.0.0.1", one + 1)).is_ok() {
                return one;
            }
        }
    }

    /// Devices of a server, its address, and the devices by which clients come.
    const SERVERS: [(&str, &str, &[&str]); 3] = [
        ("siw0", "127.100.0.1", &["siw0"]),
        ("rxe0", "127.101.0.1", &["rxe0"]),
        ("soft,rxe0", "127.101.0.2", &["rxe0", "soft", "rxe0"]),
    ];

    #[test]
    fn files_go_by_each_device() {
        with_devices("files");
    }

    #[test]
    #[ignore = "a process of the test above"]
    fn files() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let octets: Vec<u8> = (0..3_000_001_u32).map(|at| (at.wrapping_mul(at) >> 5) as u8).collect();
        fs::write(path("sent"), &octets).unwrap();
        fs::create_dir(path("served")).unwrap();
        let (sent, got, served) = (path("sent"), path("got"), path("served"));
        for (devices, address, clients) in SERVERS {
            for strategy in ["slots", "pipelined"] {
                let at = format!("{address}:{}", port());
                let (bind, listens) = at.split_once(':').unwrap();
                serve(&format!(
                    "serve {served} --writable --bind {bind} --port {listens} --strategy {strategy} --device {devices}"
                ));
                for device in clients {
                    client(&format!("put {sent} {at}/file --device {device}"));
                    assert!(
                        fs::read(Path::new(&served).join("file")).unwrap() == octets,
                        "{devices} {device}"
                    );
                    client(&format!("get {at}/file {got} --device {device}"));
                    assert!(fs::read(&got).unwrap() == octets, "{devices} {device}");
                    client(&format!("ls {at}/ --device {device}"));
                    for gone in [&got, &format!("{served}/file")] {
                        fs::remove_file(gone).unwrap();
                    }
                }
            }
        }
        let refused =
            command(&format!("serve {served} --bind 127.101.0.3 --port 0 --strategy region --device rxe0"));
        assert!(refused.unwrap_err().to_string().contains("rxe0 (roce) does not have regions over files"));
    }

    #[test]
    fn pings_and_measurements_go_by_each_device() {
        with_devices("pings_and_measurements");
    }

    #[test]
    #[ignore = "a process of the test above"]
    fn pings_and_measurements() {
        for (devices, address, clients) in SERVERS {
            let (pings, measures) = (port(), port());
            serve(&format!("ping --server --bind {address} --port {pings} --device {devices}"));
            serve(&format!("perf server --bind {address} --port {measures} --device {devices}"));
            for device in clients {
                client(&format!("ping {address}:{pings} --count 3 --size 65535 --device {device}"));
                let measure = format!("perf client {address}:{measures} --device {device} -n 700 --json");
                for wait in ["poll", "event"] {
                    client(&format!("{measure} --op tcp,write,send,read --size 1,8,100000 --wait {wait}"));
                }
                for way in ["-R", "-b", "-P 3"] {
                    client(&format!("{measure} --op write,send --size 1,8 {way}"));
                }
                let atomics = command(&format!("{measure} --op fetch-add,cmp-swap"));
                match *device {
                    "siw0" => assert!(atomics.unwrap_err().to_string().contains("atomic operations")),
                    _ => atomics.unwrap(),
                }
            }
        }
    }

    /// Status 3 would have its user look at the peer.
    #[test]
    fn a_client_whose_device_is_removed_fails_by_this_host() {
        with_devices("removal");
    }

    #[test]
    #[ignore = "a process of the test above"]
    fn removal() {
        // The longer the device stays, the surer the client has got its connection by then.
        let failure = (1..).find_map(|attempt| {
            let pings = port();
            let server = format!("ping --server --bind 127.101.0.1 --port {pings} --device rxe0");
            thread::spawn(move || command(&server));
            let ping = format!("ping 127.101.0.1:{pings} --device rxe0 --count");
            client(&format!("{ping} 1"));
            let endless = thread::spawn(move || command(&format!("{ping} 1000000")));
            thread::sleep(Duration::from_millis(50 * attempt));
            fs::write(env::var_os("FAKE_REMOVALS").unwrap(), "1").unwrap();
            let failure = endless.join().unwrap().unwrap_err();
            (!failure.to_string().contains("nothing listens")).then_some(failure)
        });
        let failure = failure.unwrap();
        assert_eq!(failure.kind(), FailureKind::Failed, "{failure}");
        assert!(failure.to_string().contains("removed from this host"), "{failure}");
    }
}
