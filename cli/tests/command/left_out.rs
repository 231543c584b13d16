//! Entries of a tree that are left out: they are named, counted by kind, and have a status.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;

use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use crate::program::{Ended, run};
use crate::site::Site;

/// The status of a transfer that has left something out.
const LEFT_OUT: i32 = 6;

/// Plants one of each kind of special file, and a file.
fn plant(top: &Path) {
    fs::create_dir_all(top).unwrap();
    fs::write(top.join("file"), "octets").unwrap();
    fs::write(top.join("half.rddp.part"), "half").unwrap();
    symlink("../..", top.join("link")).unwrap();
    mknod(&top.join("pipe"), SFlag::S_IFIFO, Mode::S_IRWXU, 0).unwrap();
    drop(UnixListener::bind(top.join("socket")).unwrap());
    if nix::unistd::geteuid().is_root() {
        // A device that is not there: nobody opens it.
        mknod(&top.join("device"), SFlag::S_IFCHR, Mode::S_IRWXU, makedev(0, 0)).unwrap();
    }
}

const NAMED: [&str; 4] = [
    "tree/link: left out: symbolic link that leads out",
    "tree/pipe: left out: pipe",
    "tree/socket: left out: socket",
    "tree/half.rddp.part: left out: file that is not complete",
];

fn put(site: &Site, more: &[&str]) -> Ended {
    run(&[&["put", "-r", site.here("tree").to_str().unwrap(), &site.remote("")], more].concat())
}

fn get(site: &Site, more: &[&str]) -> Ended {
    run(&[&["get", "-r", &site.remote("tree"), site.here("back").to_str().unwrap()], more].concat())
}

#[test]
fn special_files_are_named_and_fail_unless_they_are_to_be_left_out() {
    let site = Site::new(&[]);
    plant(&site.here("tree"));
    plant(&site.served("tree"));
    let ls = |more: &[&str]| run(&[&["ls", "-r", &site.remote("tree")], more].concat());
    // A list has links, whatever they lead to.
    let names = NAMED[1..].iter().map(|name| name.trim_start_matches("tree/").to_owned());
    type Case<'a> = (&'a dyn Fn(&[&str]) -> Ended, Vec<String>);
    let all: [Case<'_>; 4] = [
        (&|more| put(&site, more), NAMED.map(str::to_owned).to_vec()),
        (&|more| put(&site, &[&["-P", "3"], more].concat()), NAMED.map(str::to_owned).to_vec()),
        (&|more| get(&site, more), NAMED.map(str::to_owned).to_vec()),
        (&ls, names.collect()),
    ];
    for (command, names) in all {
        let ended = command(&[]).failed(LEFT_OUT, &["1 pipe", "--skip-special"]);
        names.iter().for_each(|name| assert_eq!(ended.stderr.matches(name).count(), 1, "{name} {ended:?}"));
        let sums = [&ended.stdout, &ended.stderr].map(|text| text.matches("left out: 1 ").count());
        assert_eq!(sums, [0, 1], "{ended:?}");
        let ended = command(&["--skip-special"]).ok();
        assert!(ended.stderr.is_empty(), "{ended:?}");
    }
    assert_eq!(fs::read(site.served("tree/file")).unwrap(), b"octets");
    assert_eq!(fs::read(site.here("back/tree/file")).unwrap(), b"octets");
    for command in [put, get] {
        let ended = command(&site, &["--json"]).failed(
            LEFT_OUT,
            &[r#""left_out":"tree/link","kind":"link_out""#, r#""kind":"left_out","exit_code":6"#],
        );
        let counts = &ended.json()["left_out"];
        assert_eq!(
            (&counts["link_out"], &counts["pipe"], &counts["incomplete"]),
            (&1.into(), &1.into(), &1.into())
        );
    }
}

#[test]
fn the_first_of_many_are_named_and_all_of_them_if_asked_for() {
    let site = Site::new(&[]);
    fs::create_dir(site.here("tree")).unwrap();
    for number in 0..30 {
        symlink("/file", site.here("tree").join(format!("link{number}"))).unwrap();
    }
    let named = |ended: &Ended| ended.stderr.matches("left out: symbolic link that leads out").count();
    let some = put(&site, &[]).failed(LEFT_OUT, &["30 symbolic links that lead out", "-v"]);
    let all = put(&site, &["-v"]).failed(LEFT_OUT, &["30 symbolic links that lead out"]);
    assert_eq!((named(&some), named(&all)), (20, 30), "{some:?}");
}

/// Makes a file so deep below `top` that `len` octets lead to it from there.
fn plant_deep(top: &Path, len: usize) {
    fs::create_dir_all(top).unwrap();
    let (mut dir, mut left) = (File::open(top).unwrap(), len - 1);
    while left > 0 {
        let name = "q".repeat(if left > 201 { 199 } else { left - 1 });
        left -= name.len() + 1;
        // Another deep file may be below it already.
        let _ = nix::sys::stat::mkdirat(&dir, &*name, Mode::S_IRWXU);
        let flags = nix::fcntl::OFlag::O_DIRECTORY;
        dir = File::from(nix::fcntl::openat(&dir, &*name, flags, Mode::empty()).unwrap());
    }
    let flags = nix::fcntl::OFlag::O_CREAT | nix::fcntl::OFlag::O_WRONLY;
    let file = File::from(nix::fcntl::openat(&dir, "f", flags, Mode::S_IRUSR | Mode::S_IWUSR).unwrap());
    std::io::Write::write_all(&mut { file }, b"octets").unwrap();
}

/// Returns the regular files below a directory, whatever their paths' lengths.
fn files(top: &Path) -> usize {
    let found = std::process::Command::new("find").args(["-type", "f"]).current_dir(top).output().unwrap();
    found.stdout.iter().filter(|octet| **octet == b'\n').count()
}

/// The longest path has 4095 octets: `tree/`, and 4090 below it.
#[test]
fn paths_of_any_length_that_the_system_takes_go_both_ways() {
    let site = Site::new(&[]);
    for len in [1100, 4090] {
        plant_deep(&site.here("tree"), len);
    }
    put(&site, &[]).ok();
    assert_eq!(files(&site.served("tree")), 2);
    get(&site, &[]).ok();
    assert_eq!(files(&site.here("back/tree")), 2);
    let listed = run(&["ls", "-r", &site.remote("tree")]).ok();
    assert_eq!(listed.stdout.lines().filter(|line| line.ends_with("/f")).count(), 2);
}

#[test]
fn a_path_that_is_too_long_is_named_and_fails_whatever_was_asked_for() {
    let site = Site::new(&[]);
    plant_deep(&site.here("tree"), 4091);
    plant_deep(&site.served("tree"), 4500);
    for more in [&[][..], &["--skip-special"]] {
        put(&site, more).failed(LEFT_OUT, &["left out: path that is too long", "of their own"]);
        get(&site, more).failed(LEFT_OUT, &["left out: path that is too long"]);
    }
}
