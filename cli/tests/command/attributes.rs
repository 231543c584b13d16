//! Permissions, names and conflicts of what arrives: kept as they are, or told.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::program::{Ended, Server, command, run};
use crate::site::Site;
use crate::unread::without_overrides;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn set(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Runs a command with a umask, and without root's right to write everywhere.
fn masked(args: &[&str]) -> Command {
    let plain = without_overrides(args);
    let mut masked = Command::new("sh");
    masked.args(["-c", r#"umask 077; exec "$@""#, "sh"]).arg(plain.get_program()).args(plain.get_args());
    masked
}

const DIRS: [(&str, u32); 5] =
    [("open", 0o777), ("closed", 0o555), ("shared", 0o2775), ("dark", 0o600), ("black", 0)];

/// A tree with permissions of all kinds; each directory has a file and one below it.
fn plant(top: &Path) {
    for (dir, permissions) in DIRS {
        fs::create_dir_all(top.join(dir).join("below")).unwrap();
        for (name, mode) in [("short", 0o664), ("below/read", 0o444), ("below/all", 0o777)] {
            fs::write(top.join(dir).join(name), "octets").unwrap();
            set(&top.join(dir).join(name), mode);
        }
        fs::write(top.join(dir).join("long"), vec![7; 1 << 20]).unwrap();
        set(&top.join(dir).join("long"), 0o640);
        set(&top.join(dir).join("below"), permissions);
        set(&top.join(dir), permissions);
    }
}

fn assert_as_planted(top: &Path) {
    for (dir, permissions) in DIRS {
        let dir = top.join(dir);
        assert_eq!((mode(&dir), mode(&dir.join("below"))), (permissions, permissions), "{dir:?}");
        for (name, mode_of) in
            [("short", 0o664), ("long", 0o640), ("below/read", 0o444), ("below/all", 0o777)]
        {
            assert_eq!(mode(&dir.join(name)), mode_of, "{dir:?} {name}");
        }
    }
}

/// The receiver may not write to some of the directories by their permissions, and its umask
/// forbids most.
#[test]
fn permissions_arrive_whatever_the_umask() {
    let mut site = Site::new(&[]);
    plant(&site.here("tree"));
    let served = site.served("").display().to_string();
    let serve = ["serve", &served, "--writable", "--port", "0", "--json"];
    site.server = Some(Server::by(&mut masked(&serve)));
    let (tree, to) = (site.here("tree").display().to_string(), site.remote(""));
    for connections in ["1", "3"] {
        run(&["put", "-r", "-P", connections, &tree, &to]).ok();
        assert_as_planted(&site.served("tree"));
        // Files more, in directories that are there and closed.
        for dir in ["closed", "dark/below", "dark", "black"] {
            for number in 0..30 {
                let name = format!("{connections}-{number}");
                fs::write(site.here("tree").join(dir).join(name), "more").unwrap();
            }
        }
        run(&["put", "-r", "-P", connections, &tree, &to]).ok();
        assert_as_planted(&site.served("tree"));
        let last = format!("{connections}-29");
        assert_eq!(fs::read(site.served("tree/dark/below").join(last)).unwrap(), b"more");
    }
    let back = site.here("back").display().to_string();
    site.serve(&[]);
    for connections in ["1", "3"] {
        let get = ["get", "-r", "-P", connections, &site.remote("tree"), &back];
        Ended::from(masked(&get).output().unwrap()).ok();
        assert_as_planted(&site.here("back/tree"));
        fs::remove_file(site.here("back/tree/closed/short")).unwrap();
    }
    let one = site.here("one").display().to_string();
    Ended::from(masked(&["get", &site.remote("tree/open/below/all"), &one]).output().unwrap()).ok();
    assert_eq!(mode(Path::new(&one)), 0o777);
}

/// Files of directories with the set-group-ID bit belong to the group of the directory, and so do
/// those of directories that are made in it.
#[test]
fn a_directory_keeps_the_bit_that_it_has_from_the_one_it_is_in() {
    let site = Site::new(&[]);
    fs::create_dir_all(site.here("tree/below")).unwrap();
    set(&site.served(""), 0o2775);
    set(&site.here("tree/below"), 0o750);
    run(&["put", "-r", site.here("tree").to_str().unwrap(), &site.remote("")]).ok();
    assert_eq!(mode(&site.served("tree/below")), 0o2750);
}

/// A file from standard input gets what a file of the sending process would get.
#[test]
fn standard_input_has_the_umask_of_its_sender() {
    let site = Site::new(&[]);
    let script = format!("umask 027; echo x | {} put - {}", env!("CARGO_BIN_EXE_rddp"), site.remote("file"));
    Ended::from(Command::new("sh").args(["-c", &script]).output().unwrap()).ok();
    assert_eq!(mode(&site.served("file")), 0o640);
}

/// A tree that meets something of another kind in each place.
fn plant_conflicts(sent: &Path, there: &Path) {
    fs::create_dir_all(sent.join("dir/below")).unwrap();
    fs::create_dir_all(there.join("file")).unwrap();
    for name in ["file", "link", "pipe", "dir/in", "dir/below/in", "good"] {
        fs::write(sent.join(name), "octets").unwrap();
    }
    fs::write(there.join("dir"), "precious").unwrap();
    symlink("dir", there.join("link")).unwrap();
    nix::unistd::mkfifo(&there.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
}

const CONFLICTS: [&str; 4] = [
    "tree/file: a regular file is sent, and a directory is there",
    "tree/link: a regular file is sent, and a symbolic link is there",
    "tree/pipe: a regular file is sent, and a pipe is there",
    "tree/dir: a directory is sent, and a regular file is there",
];

#[test]
fn conflicts_are_named_with_both_kinds_and_the_rest_goes_on() {
    let site = Site::new(&[]);
    plant_conflicts(&site.here("tree"), &site.served("tree"));
    plant_conflicts(&site.served("other/tree"), &site.here("tree2/tree"));
    let [tree, back] = ["tree", "tree2"].map(|name| site.here(name).display().to_string());
    let (to, from) = (site.remote(""), site.remote("other/tree"));
    let (put, get) = (["put", "-r", &tree, &to], ["get", "-r", &from, &back]);
    for (args, there) in [(put, site.served("tree")), (get, site.here("tree2/tree"))] {
        for more in [&[][..], &["-P", "3"], &["--json"]] {
            let ended = run(&[&args[..], more].concat()).failed(1, &["4 are in conflict"]);
            for text in CONFLICTS {
                let count = ended.stderr.matches(text).count();
                assert_eq!(count, 1, "{text} {ended:?}");
            }
            if more == ["--json"] {
                let sum = ended.json();
                assert_eq!((&sum["conflicts"], &sum["unchanged"]), (&4.into(), &1.into()), "{sum}");
            }
        }
        assert_eq!(fs::read(there.join("good")).unwrap(), b"octets");
        assert_eq!(fs::read(there.join("dir")).unwrap(), b"precious");
    }
}

#[test]
fn no_clobber_leaves_files_of_a_tree_and_goes_on() {
    let site = Site::new(&[]);
    for (top, text) in [(site.here("tree"), "new"), (site.served("tree"), "old")] {
        fs::create_dir(&top).unwrap();
        fs::write(top.join("both"), text).unwrap();
        fs::write(top.join(text), text).unwrap();
    }
    let (tree, here) = (site.here("tree").display().to_string(), site.here("").display().to_string());
    let put = ["put", "-r", &tree, &site.remote(""), "--no-clobber"];
    let sum = run(&[&put[..], &["--json"]].concat()).ok().json();
    assert_eq!((&sum["files"], &sum["kept"]), (&1.into(), &1.into()), "{sum}");
    assert_eq!(fs::read(site.served("tree/both")).unwrap(), b"old");
    assert_eq!(fs::read(site.served("tree/new")).unwrap(), b"new");
    let got = run(&["get", "-r", &site.remote("tree"), &here, "--no-clobber"]).ok();
    assert!(got.stdout.contains("2 kept"), "{got:?}");
    assert_eq!(fs::read(site.here("tree/both")).unwrap(), b"new");
    assert_eq!(fs::read(site.here("tree/old")).unwrap(), b"old");
}

/// The name of what is not complete has no room behind such names.
#[test]
fn the_longest_names_go_alone_and_in_trees() {
    let site = Site::new(&[]);
    fs::create_dir(site.here("tree")).unwrap();
    for len in [245, 246, 247, 255] {
        let name = "n".repeat(len);
        fs::write(site.here("tree").join(&name), vec![7; 2 << 20]).unwrap();
        site.put(&format!("tree/{name}"), &name).ok();
        site.get(&name, &name).ok();
        assert_eq!(fs::metadata(site.here(&name)).unwrap().len(), 2 << 20);
    }
    run(&["put", "-r", site.here("tree").to_str().unwrap(), &site.remote("")]).ok();
    assert_eq!(fs::read_dir(site.served("tree")).unwrap().count(), 4);
    assert_eq!(fs::read_dir(site.served("")).unwrap().count(), 6, "no part is left");
}

#[test]
fn holes_of_a_tree_do_not_count_in_its_rate() {
    let site = Site::new(&[]);
    fs::create_dir(site.here("tree")).unwrap();
    fs::File::create(site.here("tree/hole")).unwrap().set_len(8 << 30).unwrap();
    fs::write(site.here("tree/file"), "octets").unwrap();
    let tree = site.here("tree").display().to_string();
    let put = run(&["put", "-r", &tree, &site.remote(""), "--json"]).ok().json();
    let got = run(&["get", "-r", &site.remote("tree"), &site.here("back").display().to_string(), "--json"])
        .ok()
        .json();
    for sum in [put, got] {
        let moved = sum["bytes_per_s"].as_f64().unwrap() * sum["seconds"].as_f64().unwrap();
        assert!(sum["octets"] == (8u64 << 30) + 6 && moved < 1000.0, "{sum}");
    }
}

/// The permissions of an entry are those of ls(1), with all bits.
#[test]
fn ls_shows_the_bits_above_the_permissions() {
    let site = Site::new(&[]);
    for (dir, mode) in [("shared", 0o2775), ("sub", 0o750), ("tmp", 0o1777)] {
        fs::create_dir_all(site.served(dir)).unwrap();
        set(&site.served(dir), mode);
    }
    fs::write(site.served("shared/program"), "octets").unwrap();
    set(&site.served("shared/program"), 0o4755);
    for more in [&[][..], &["-r"]] {
        let listed = run(&[&["ls", &site.remote("")], more].concat()).ok().stdout;
        let modes: Vec<_> = listed.lines().map(|line| &line[..4]).collect();
        let all =
            if more.is_empty() { &["2775", "0750", "1777"][..] } else { &["2775", "4755", "0750", "1777"] };
        assert_eq!(modes, all, "{listed}");
    }
    // None of them arrives but the one that a directory may give on.
    run(&["get", "-r", &site.remote(""), site.here("back").to_str().unwrap()]).ok();
    let modes = ["shared", "tmp", "shared/program"].map(|name| mode(&site.here("back").join(name)));
    assert_eq!(modes, [0o2775, 0o777, 0o755]);
}

#[test]
fn ls_is_sorted_and_shows_times_and_backslashes() {
    let site = Site::new(&[]);
    for name in ["b", "a\\n", "a-b", "sub/c", "sub/a"] {
        fs::write(site.served(name), "octets").unwrap();
        let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_709_251_199);
        fs::File::options().write(true).open(site.served(name)).unwrap().set_modified(time).unwrap();
    }
    let listed = run(&["ls", "-r", &site.remote("")]).ok().stdout;
    let names: Vec<_> = listed.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
    assert_eq!(names, ["a-b", r"a\\n", "b", "sub/", "sub/a", "sub/c"], "{listed}");
    assert!(listed.contains("              6 2024-02-29 23:59:59 b\n"), "{listed}");
    let listed = run(&["ls", "-r", &site.remote(""), "--json"]).ok().stdout;
    assert!(listed.contains(r#""name":"a\\n""#) && listed.contains(r#""modified":1709251199"#), "{listed}");
    assert_eq!(command(&["ls"]).output().unwrap().status.code(), Some(2));
}
