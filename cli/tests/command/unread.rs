//! Files of a tree that cannot be read, or that change meanwhile; and what has to be said of them.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::program::{Ended, Server, command, run, until};
use crate::site::Site;

/// The program without root's right to read everything, which tests may have.
pub(crate) fn without_overrides(args: &[&str]) -> Command {
    let program = command(args);
    if !nix::unistd::geteuid().is_root() {
        return program;
    }
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-dac_override,-dac_read_search"]);
    command.arg(program.get_program()).args(program.get_args()).stdin(Stdio::null());
    command
}

/// A file that can be read, and a file and a directory that cannot.
fn plant(top: &Path) {
    fs::create_dir_all(top.join("closed/in")).unwrap();
    fs::write(top.join("open"), "octets").unwrap();
    fs::write(top.join("secret"), "octets").unwrap();
    for name in ["secret", "closed"] {
        fs::set_permissions(top.join(name), Permissions::from_mode(0o000)).unwrap();
    }
}

const WHAT: [&str; 2] = ["tree/secret: permission denied", "tree/closed: permission denied"];

/// Connections of which each walks the tree name what they all see once.
#[test]
fn what_cannot_be_put_is_named() {
    let site = Site::new(&[]);
    plant(&site.here("tree"));
    let (tree, to) = (site.here("tree").display().to_string(), site.remote(""));
    for connections in ["1", "4"] {
        let put = |more: &[&str]| -> Ended {
            let args = [&["put", "-r", "-P", connections, &tree, &to], more].concat();
            without_overrides(&args).output().unwrap().into()
        };
        let ended = put(&[]).failed(1, &["2 could not be read", "names above"]);
        WHAT.iter().for_each(|what| assert_eq!(ended.stderr.matches(*what).count(), 1, "{ended:?}"));
        let ended = put(&["--json"])
            .failed(1, &[r#""unread":"tree/secret","cause":"tree/secret: permission denied""#]);
        let sum: serde_json::Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
        assert_eq!(sum["failed"], 2);
    }
    assert_eq!(fs::read(site.served("tree/open")).unwrap(), b"octets");
}

/// A name among several that is not there, or cannot be read, keeps no other from its way; and
/// what the other end has of it stays.
#[test]
fn what_is_not_there_beside_others_is_named() {
    for connections in ["1", "4"] {
        let site = Site::new(&[]);
        plant(&site.here("tree"));
        plant(&site.served("back"));
        fs::write(site.served("none"), "octets").unwrap();
        let paths = ["tree/", "none", "tree/secret"].map(|name| site.here(name).display().to_string());
        let [tree, none, secret] = &paths;
        let there = site.remote("");
        let fixed = ["-r", "-P", connections, "--delete"];
        let put = [&["put"], &fixed[..], &[tree, none, secret, &there]].concat();
        let ended = Ended::from(without_overrides(&put).output().unwrap());
        let ended = ended.failed(1, &["4 could not be read", "names above"]);
        assert_eq!(ended.stderr.matches(&format!("{none}: no such file")).count(), 1, "{ended:?}");
        assert_eq!(ended.stderr.matches("tree/secret: permission denied").count(), 1, "{ended:?}");
        assert_eq!(fs::read(site.served("open")).unwrap(), b"octets");
        assert!(site.served("none").exists() && site.served("back").exists());

        let names = ["nowhere", "back"].map(|name| site.remote(name));
        let here = site.here("here").display().to_string();
        let ended = run(&[&["get"], &fixed[..3], &[&names[0], &names[1], &here]].concat());
        let ended = ended.failed(1, &["could not be read"]);
        assert_eq!(ended.stderr.matches("nowhere: no such file").count(), 1, "{ended:?}");
        assert_eq!(fs::read(site.here("here/back/open")).unwrap(), b"octets");
    }
}

#[test]
fn what_a_server_cannot_read_is_named_by_the_client() {
    let mut site = Site::new(&[]);
    plant(&site.served("tree"));
    let served = site.served("").display().to_string();
    site.server = Some(Server::by(&mut without_overrides(&["serve", &served, "--port", "0", "--json"])));
    for connections in ["1", "4"] {
        let here = site.here(connections).display().to_string();
        let ended = run(&["get", "-r", "-P", connections, &site.remote("tree"), &here]);
        let ended = ended.failed(1, &["2 could not be read"]);
        WHAT.iter().for_each(|what| assert_eq!(ended.stderr.matches(*what).count(), 1, "{ended:?}"));
        assert_eq!(fs::read(site.here(connections).join("tree/open")).unwrap(), b"octets");
    }
    let listed = run(&["ls", "-r", &site.remote("tree")]).failed(1, &["closed: permission denied"]);
    assert!(listed.stdout.contains("open") && !listed.stderr.contains("arrived"), "{listed:?}");
    // One that was asked for itself has no names above the line.
    run(&["ls", &site.remote("tree/closed")]).failed(5, &["tree/closed: permission denied"]);
}

/// A file that has its name is one version of it.
#[test]
fn a_file_of_a_tree_that_changes_while_it_is_sent_does_not_arrive() {
    let site = Site::new(&[]);
    fs::create_dir(site.here("tree")).unwrap();
    fs::write(site.here("tree/log"), vec![7; 3 << 20]).unwrap();
    let tree = site.here("tree").display().to_string();
    let put = command(&["put", "-r", &tree, &site.remote(""), "--limit", "2M"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("part of it is there", || site.served("tree/log.rddp.part").exists());
    File::options().append(true).open(site.here("tree/log")).unwrap().write_all(b"more").unwrap();
    let ended = Ended::from(put.wait_with_output().unwrap());
    ended.failed(1, &["tree/log: it changed while it was being read", "1 could not be read"]);
    assert!(!site.served("tree/log").exists());
    // One that has ended is sent as it is then.
    run(&["put", "-r", &tree, &site.remote("")]).ok();
    assert_eq!(fs::metadata(site.served("tree/log")).unwrap().len(), (3 << 20) + 4);
}

#[test]
fn a_hole_at_the_end_is_filled_where_holes_cannot_be() {
    let site = Site::new(&[]);
    let file = File::create(site.served("file")).unwrap();
    file.write_all_at(b"octets", 0).unwrap();
    file.set_len(3 << 20).unwrap();
    let output = command(&["get", &site.remote("file"), "-", "--checksum", "sha256"]).output().unwrap();
    assert!(output.status.success() && output.stdout.len() == 3 << 20, "{}", output.stdout.len());
    assert!(output.stdout.starts_with(b"octets\0") && output.stdout.ends_with(b"\0"));
}

#[test]
fn mistakes_have_remedies() {
    let site = Site::new(&[]);
    for dir in ["x", "y"] {
        fs::create_dir(site.here(dir)).unwrap();
        fs::write(site.here(dir).join("file"), dir).unwrap();
    }
    let here = |name: &str| site.here(name).display().to_string();
    run(&["put", &here("x"), &site.remote("")]).failed(1, &["a directory", "--recursive"]);
    run(&["get", &site.remote("sub"), &here("z")]).failed(5, &["a directory", "--recursive"]);
    run(&["get", "-r", &site.remote("sub"), &here("x/file")]).failed(1, &["x/file: not a directory"]);
    run(&["put", &here("x/file"), &here("y/file"), &site.remote("sub")])
        .failed(2, &[r#"called "file""#, "a command for each"]);
    assert!(!site.served("sub/file").exists());
    run(&["get", &site.remote("x/file"), &site.remote("y/file"), &here("z")])
        .failed(2, &[r#"called "file""#]);
    // A directory that was made for nothing is removed.
    run(&["get", "-r", &site.remote("none"), &here("z")]).failed(5, &["no such file"]);
    assert!(!site.here("z").exists());
    run(&["get", "-r", &site.remote("none"), &here("x")]).failed(5, &["no such file"]);
    assert!(site.here("x/file").exists());
    run(&["get", &site.remote("")]).failed(2, &["names no file", "behind the host"]);
    run(&["get", "127.0.0.1:99999/file"]).failed(2, &["a port is at most 65535"]);
    run(&["serve", &here("x"), "--max-clients", "0"]).failed(2, &["--max-clients"]);
}
