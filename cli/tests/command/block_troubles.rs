//! `rddp block serve`: what it tells of clients and disks, and of what it refuses.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rddp_test_support::pattern;
use tempfile::TempDir;

use crate::program::{Server, command, interrupt, run};

const SIZE: usize = 1 << 20;

/// A server of a disk that is full of a pattern.
struct Site {
    folder: TempDir,
    server: Server,
}

impl Site {
    fn new(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("disk").to_str().unwrap().to_owned();
        fs::write(&disk, pattern(SIZE, 1)).unwrap();
        let args = [&["block", "serve", &disk, "--port", "0", "--json"][..], more].concat();
        Site { folder, server: Server::start(&args) }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn nbd(&self, disk: &str) -> String {
        format!("nbd://{}/{disk}", self.server.addr)
    }

    fn nvme(&self, disk: &str) -> String {
        format!("nvme://{}/{disk}", self.server.listening["nvme"].as_str().unwrap())
    }

    /// Checks that the next complaint says all of that, of a client of this host.
    #[track_caller]
    fn complains(&mut self, says: &[&str]) {
        let said = self.server.complaint();
        for text in says.iter().chain(&["127.0.0.1:"]) {
            assert!(said.contains(text), "nothing of {text:?}: {said}");
        }
    }
}

const NQN: &str = "nqn.2026-11.rddp:disk";

/// Crowds of one kind are told once, and hide none of another.
#[test]
fn each_kind_of_refusal_has_a_line() {
    let mut site = Site::new(&["--allow-host", "nqn.x:friend"]);
    let ls = |uri: &str, host: &str| run(&["block", "ls", uri, "--host-nqn", host]);
    for _ in 0..3 {
        ls(&site.nbd("none"), "nqn.x:friend").failed(5, &["no such export"]);
    }
    site.complains(&["no disk is called none"]);
    for _ in 0..3 {
        ls(&site.nvme(NQN), "nqn.x:other").failed(5, &["does not allow this host"]);
    }
    site.complains(&["host nqn.x:other", NQN, "--allow-host"]);
    OpenOptions::new().write(true).open(site.path("disk")).unwrap().set_len(1000).unwrap();
    run(&["block", "copy", &site.nbd(""), &site.path("copy")]).failed(5, &["EIO"]);
    site.complains(&["disk disk: reading ", "EIO"]);
}

/// A host that may have nothing is shown nothing, which its user does not understand.
#[test]
fn a_host_that_is_not_allowed_and_only_looks_is_told() {
    let mut site = Site::new(&["--allow-host", "nqn.x:friend"]);
    let ls = |host: &str| run(&["block", "ls", "--json", &site.nvme(""), "--host-nqn", host]).ok().json();
    assert_eq!(ls("nqn.x:friend")["disks"].as_array().map(Vec::len), Some(1));
    assert_eq!(ls("nqn.x:other")["disks"].as_array().map(Vec::len), Some(0));
    site.complains(&["host nqn.x:other asks for all disks", "--allow-host"]);
}

#[test]
fn a_subsystem_that_there_is_not_is_told() {
    let mut site = Site::new(&[]);
    run(&["block", "ls", &site.nvme("nqn.x:none")]).failed(5, &["no such subsystem"]);
    site.complains(&["no subsystem is called nqn.x:none"]);
    OpenOptions::new().write(true).open(site.path("disk")).unwrap().set_len(512).unwrap();
    run(&["block", "copy", &site.nvme(NQN), &site.path("copy")]).failed(5, &["failed"]);
    site.complains(&["disk disk: reading ", "EIO"]);
}

/// The server may write no file so long.
#[test]
fn a_disk_that_is_full_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    File::create(path("disk")).unwrap().set_len(4 * SIZE as u64).unwrap();
    fs::write(path("from"), pattern(4 * SIZE, 1)).unwrap();
    let serve = format!(
        "trap '' XFSZ; ulimit -f 1024; exec {} block serve --writable --port 0 --json {}",
        env!("CARGO_BIN_EXE_rddp"),
        path("disk")
    );
    let server = Server::by(std::process::Command::new("sh").args(["-c", &serve]));
    let mut site = Site { folder, server };
    run(&["block", "copy", &site.path("from"), &site.nbd("disk")]).failed(5, &["ENOSPC"]);
    site.complains(&["disk disk: writing 262144 octets at ", "ENOSPC"]);
}

#[test]
fn octets_that_hosts_of_nvme_do_not_see_are_told() {
    let folder = tempfile::tempdir().unwrap();
    for (name, size, says) in [
        ("odd", 1030, "NVMe's hosts do not see the last 6 octets"),
        ("small", 511, "no disk for NVMe's hosts"),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, pattern(size, 1)).unwrap();
        let mut server = Server::start(&["block", "serve", path.to_str().unwrap(), "--port", "0", "--json"]);
        let said = server.complaint();
        assert!(said.contains(says) && said.contains(name), "{said}");
        let nqn = &server.listening["disks"][0]["nqn"];
        assert_eq!(nqn.is_string(), size >= 512, "{nqn}");
    }
}

#[test]
fn a_disk_of_less_than_a_block_is_no_matter_of_nvme() {
    let folder = tempfile::tempdir().unwrap();
    let [small, whole] = [("small", 511), ("whole", 512)].map(|(name, size)| {
        let path = folder.path().join(name);
        fs::write(&path, pattern(size, 1)).unwrap();
        path.to_str().unwrap().to_owned()
    });
    let args = ["block", "serve", &small, &whole, "--port", "0"];
    let mut site = Site { folder, server: Server::start(&[&args[..], &["--json"]].concat()) };
    let shown = run(&["block", "ls", "--json", &site.nvme("")]).ok().json();
    let names: Vec<_> = shown["disks"].as_array().unwrap().iter().map(|disk| &disk["name"]).collect();
    assert_eq!(names, ["nqn.2026-11.rddp:whole"]);
    run(&["block", "ls", &site.nvme("nqn.2026-11.rddp:small")]).failed(5, &["no such subsystem"]);
    run(&["block", "ls", &site.nvme("nqn.2026-11.rddp:whole")]).ok();
    assert!(site.server.complaint().contains("no disk for NVMe's hosts"));
    let mut serving = command(&args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(serving.stdout.take().unwrap()).lines();
    let told: Vec<String> = lines.take(3).map(Result::unwrap).collect();
    assert_eq!(interrupt(&mut serving), 0);
    let says = ["serving small (511 octets) on ", "serving whole (512 octets) on ", "  and to NVMe's hosts"];
    for (line, says) in told.iter().zip(says) {
        assert!(line.contains(says), "{told:?}");
    }
}

#[test]
fn who_comes_and_goes_is_told_with_v() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    fs::write(&disk, pattern(SIZE, 1)).unwrap();
    let args = ["-v", "block", "serve", disk.to_str().unwrap(), "--port", "0", "--json"];
    let mut site = Site { folder, server: Server::by(&mut command(&args)) };
    let (nbd, nvme) = (site.nbd("disk"), site.nvme(NQN));
    let mut until = |says: &str| loop {
        let said = site.server.complaint();
        assert!(!said.is_empty(), "nothing of {says}");
        assert!(!said.contains("completion queue") || !said.contains("requests"), "{said}");
        if said.contains(says) {
            return said;
        }
    };
    run(&["block", "ls", &nbd]).ok();
    until("a client connects");
    assert!(until("a client has a disk").contains("disk"));
    until("a client has gone");
    run(&["block", "ls", &nvme]).ok();
    assert!(until("a host has a queue").contains(NQN));
    until("a client has gone");
}
