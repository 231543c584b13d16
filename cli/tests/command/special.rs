//! Targets that are not regular files: pipes, devices, sockets, symbolic links. All of them belong
//! to the tests.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::mkfifo;
use rddp_test_support::random_octets;

use crate::program::{Ended, command, interrupt, nobody, run, until, wait};
use crate::site::Site;

fn fifo(path: &Path) {
    mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
}

/// Reads a pipe until `write` has ended. Returns the result of `write`, and the octets.
fn read_while<T: Send>(pipe: &Path, write: impl FnOnce() -> T + Send) -> (T, Vec<u8>) {
    let mut pipe = File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(pipe).unwrap();
    let mut read = Vec::new();
    std::thread::scope(|scope| {
        let writing = scope.spawn(write);
        loop {
            let is_over = writing.is_finished();
            // The pipe is at its end while it has no writer, and empty otherwise: in both cases
            // more octets may follow later.
            let _ = pipe.read_to_end(&mut read);
            if is_over {
                return (writing.join().unwrap(), read);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    })
}

/// Makes a device node with minor number 3 (`/dev/null`) or 7 (`/dev/full`). Returns `false` if
/// that needs more rights.
fn device(path: &Path, minor: u64) -> bool {
    if !nix::unistd::geteuid().is_root() {
        // Not by a macro such as `eprintln!`, whose output is hidden in a test that passes.
        let _ = writeln!(std::io::stderr(), "NOT TESTED: device nodes, which only root can make");
        return false;
    }
    mknod(path, SFlag::S_IFCHR, Mode::S_IRUSR | Mode::S_IWUSR, makedev(1, minor)).unwrap();
    true
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).unwrap().is_symlink()
}

fn names(path: &Path) -> usize {
    fs::read_dir(path).unwrap().count()
}

#[test]
fn a_get_into_a_pipe_is_read_there() {
    let site = Site::new(&[]);
    fs::write(site.served("file"), random_octets(1, 1 << 20)).unwrap();
    fifo(&site.here("pipe"));
    symlink("pipe", site.here("link")).unwrap();
    for name in ["pipe", "link"] {
        let (ended, read) = read_while(&site.here("pipe"), || site.get("file", name));
        let got = ended.ok().json();
        assert_eq!((&got["octets"], &got["resumed_from"]), (&(1 << 20).into(), &0.into()));
        assert!(read == random_octets(1, 1 << 20));
    }
    assert!(fs::symlink_metadata(site.here("pipe")).unwrap().file_type().is_fifo());
    assert!(is_link(&site.here("link")));
    assert_eq!(names(&site.here("")), 2);
}

#[test]
fn a_get_into_a_device_is_written_to_it() {
    let site = Site::new(&[]);
    fs::write(site.served("file"), random_octets(1, 1 << 20)).unwrap();
    let [null, full] = ["null", "full"].map(|name| site.here(name));
    if !device(&null, 3) || !device(&full, 7) {
        return;
    }
    site.get("file", "null").ok();
    site.get("file", "full").failed(1, &["full: no space left"]);
    for (path, minor) in [(null, 3), (full, 7)] {
        let there = fs::symlink_metadata(path).unwrap();
        assert!(there.file_type().is_char_device() && there.rdev() == makedev(1, minor), "{there:?}");
    }
    assert_eq!(names(&site.here("")), 2);
}

/// For a pipe or a device there is no file that could be replaced.
#[test]
fn no_clobber_keeps_nobody_from_a_pipe_or_a_device() {
    let site = Site::new(&[]);
    fs::write(site.served("file"), "octets").unwrap();
    let get = |name| {
        run(&["get", &site.remote("file"), site.here(name).to_str().unwrap(), "--json", "--no-clobber"])
    };
    fifo(&site.here("pipe"));
    let (ended, read) = read_while(&site.here("pipe"), || get("pipe"));
    assert_eq!((&ended.ok().json()["replaced"], &read[..]), (&false.into(), &b"octets"[..]));
    if device(&site.here("null"), 3) {
        get("null").ok();
    }
    let _listener = UnixListener::bind(site.here("socket")).unwrap();
    get("socket").failed(1, &["socket: it is there already"]);
}

#[test]
fn a_get_to_a_dash_is_standard_output() {
    let site = Site::new(&[]);
    fs::write(site.served("file"), random_octets(1, 1_000_001)).unwrap();
    let args = ["get", &site.remote("file"), "-", "--checksum", "sha256"];
    let ended = command(&args).current_dir(site.here("")).output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(ended.stdout == random_octets(1, 1_000_001));
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(said.contains("sha256 ") && said.contains("file: "), "{said}");
    assert_eq!(names(&site.here("")), 0);
}

#[test]
fn a_get_whose_output_nobody_reads_ends_as_by_sigpipe() {
    let site = Site::new(&[]);
    fs::write(site.served("file"), random_octets(1, 1_000_001)).unwrap();
    let args = ["get", &site.remote("file"), "-"];
    let mut get = command(&args);
    let get = get.current_dir(site.here("")).stdout(nobody()).stderr(Stdio::piped());
    let mut get = get.spawn().unwrap();
    assert_eq!(wait(&mut get), 141);
    assert_eq!(std::io::read_to_string(get.stderr.take().unwrap()).unwrap(), "");
    assert_eq!(names(&site.here("")), 0);
}

/// A client that has had enough says so before it goes: its server has one quiet line about it.
#[test]
fn a_client_that_leaves_is_no_failure_of_the_servers() {
    let mut site = Site::new(&[]);
    fs::write(site.served("file"), random_octets(1, 8 << 20)).unwrap();
    fs::create_dir(site.served("tree")).unwrap();
    fs::write(site.served("tree/file"), random_octets(1, 8 << 20)).unwrap();
    let (file, tree) = (site.remote("file"), site.remote("tree"));
    let here = site.here("tree");
    let mut get = command(&["get", &file, "-"]);
    let mut get = get.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    get.stdout.take().unwrap().read_exact(&mut [0; 1000]).unwrap();
    assert_eq!(wait(&mut get), 141);
    let args = ["get", "-r", &tree, here.to_str().unwrap(), "--limit", "1M"];
    let mut get = command(&args).stderr(Stdio::null()).spawn().unwrap();
    until("part of it is here", || here.exists() && names(&here) > 0);
    assert_eq!(interrupt(&mut get), 130);
    let mut server = site.server.take().unwrap();
    for _ in 0..2 {
        let line = server.line();
        assert!(line.contains("\"left\":\"the client has left before the end\""), "{line}");
    }
    // Nothing was complained of before this.
    fs::write(site.here("bad"), "octets").unwrap();
    run(&["put", site.here("bad").to_str().unwrap(), &format!("{}/none/x", server.host())]).failed(5, &[]);
    let complaint = server.complaint();
    assert!(complaint.contains("none/x"), "{complaint}");
}

/// Octets that were written cannot be taken back, so the transfer cannot be resumed either.
#[test]
fn a_get_into_a_pipe_that_fails_says_so() {
    let site = Site::new(&[]);
    fifo(&site.here("pipe"));
    let (ended, read) = read_while(&site.here("pipe"), || site.get("none", "pipe"));
    let ended = ended.failed(5, &["none: no such file"]);
    assert!(!ended.stderr.contains("goes on where it ended"), "{ended:?}");
    assert_eq!(read, b"");
    assert_eq!(names(&site.here("")), 1);
}

#[test]
fn a_get_does_not_replace_a_socket() {
    let site = Site::new(&[]);
    fs::write(site.served("file"), "octets").unwrap();
    let _listener = UnixListener::bind(site.here("socket")).unwrap();
    site.get("file", "socket").failed(1, &["socket: not a regular file"]);
    assert!(fs::symlink_metadata(site.here("socket")).unwrap().file_type().is_socket());
    assert_eq!(names(&site.here("")), 1);
}

#[test]
fn a_get_to_a_link_replaces_what_it_leads_to() {
    let site = Site::new(&[]);
    fs::write(site.served("file"), "new").unwrap();
    let elsewhere = site.tree.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("stored"), "old").unwrap();
    symlink(elsewhere.join("stored"), site.here("far")).unwrap();
    symlink("far", site.here("link")).unwrap();
    site.get("file", "link").ok();
    assert!(is_link(&site.here("link")) && is_link(&site.here("far")));
    assert_eq!(fs::read(elsewhere.join("stored")).unwrap(), b"new");
    assert_eq!((names(&elsewhere), names(&site.here(""))), (1, 2));
}

#[test]
fn a_get_to_a_link_that_leads_nowhere_is_refused() {
    let site = Site::new(&[]);
    fs::write(site.served("file"), "new").unwrap();
    symlink("none", site.here("link")).unwrap();
    symlink("loop", site.here("loop")).unwrap();
    site.get("file", "link").failed(1, &["link: a symbolic link that leads nowhere", "\"remedy\":\""]);
    site.get("file", "loop").failed(1, &["loop: a symbolic link that leads nowhere", "\"remedy\":\""]);
    assert!(is_link(&site.here("link")) && is_link(&site.here("loop")));
    assert_eq!(names(&site.here("")), 2);
}

/// The link of a process to its standard output leads to an open file, not to a path: its file
/// cannot be replaced under its name.
#[test]
fn a_get_to_the_file_behind_standard_output_is_refused() {
    let site = Site::new(&[]);
    fs::write(site.served("file"), "new").unwrap();
    let out = File::create(site.here("out")).unwrap();
    let get = command(&["get", &site.remote("file"), "/proc/self/fd/1"]).stdout(out).output().unwrap();
    Ended::from(get).failed(1, &["/proc/self/fd/1: ", "try: name - for standard output"]);
    assert_eq!((fs::read(site.here("out")).unwrap().len(), names(&site.here(""))), (0, 1));
}

#[test]
fn a_put_replaces_nothing_but_files() {
    let site = Site::new(&[]);
    fs::write(site.here("file"), "octets").unwrap();
    fifo(&site.served("pipe"));
    let _listener = UnixListener::bind(site.served("socket")).unwrap();
    let mut there = vec!["pipe", "socket"];
    if device(&site.served("null"), 3) {
        there.push("null");
    }
    let kinds = |names: &[&str]| -> Vec<u32> {
        names.iter().map(|name| fs::symlink_metadata(site.served(name)).unwrap().mode()).collect()
    };
    let before = kinds(&there);
    for name in &there {
        site.put("file", name).failed(5, &[&format!("{name}: not a regular file")]);
        site.get(name, "got").failed(5, &[&format!("{name}: not a regular file")]);
    }
    assert_eq!(before, kinds(&there));
    assert_eq!(names(&site.served("")), there.len() + 1);
}

#[test]
fn a_put_to_a_link_replaces_what_it_leads_to_within_the_directory() {
    let site = Site::new(&[]);
    fs::write(site.here("file"), "new").unwrap();
    fs::write(site.served("sub/stored"), "old").unwrap();
    symlink("../sub/stored", site.served("sub/link")).unwrap();
    symlink("sub/link", site.served("link")).unwrap();
    site.put("file", "link").ok();
    assert!(is_link(&site.served("link")) && is_link(&site.served("sub/link")));
    assert_eq!(fs::read(site.served("sub/stored")).unwrap(), b"new");
    assert_eq!((names(&site.served("sub")), names(&site.served(""))), (2, 2));
}

#[test]
fn a_put_to_a_link_that_leads_out_or_nowhere_is_refused() {
    let site = Site::new(&[]);
    fs::write(site.here("file"), "new").unwrap();
    fs::write(site.tree.path().join("secret"), "secret").unwrap();
    let [out, dir, absolute] = ["out", "dir", "absolute"].map(|name| site.served(name));
    symlink("../secret", &out).unwrap();
    symlink("..", &dir).unwrap();
    symlink(site.tree.path().join("secret"), &absolute).unwrap();
    for name in ["out", "absolute"] {
        site.put("file", name).failed(5, &[&format!("{name}: outside the served directory")]);
    }
    site.put("file", "dir").failed(5, &["dir: "]);
    let [loose, endless] = ["loose", "endless"].map(|name| site.served(name));
    symlink("none", &loose).unwrap();
    symlink("endless", &endless).unwrap();
    for name in ["loose", "endless"] {
        site.put("file", name)
            .failed(5, &[&format!("{name}: a symbolic link that leads nowhere"), "\"remedy\":\""]);
    }
    assert!([out, dir, absolute, loose, endless].iter().all(|path| is_link(path)));
    assert_eq!(fs::read(site.tree.path().join("secret")).unwrap(), b"secret");
    assert_eq!((names(&site.served("")), names(site.tree.path())), (6, 3));
}

#[test]
fn only_files_are_put() {
    let site = Site::new(&[]);
    fifo(&site.here("pipe"));
    let pipe = site.here("pipe");
    run(&["put", pipe.to_str().unwrap(), &site.remote("file")]).failed(1, &["pipe: not a regular file"]);
}
