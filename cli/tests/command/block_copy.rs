//! `rddp block copy` between files.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};
use rddp_test_support::pattern;
use tempfile::TempDir;

use crate::program::{Ended, run};

const SIZE: usize = 9 << 20;

/// A folder with an image that is data, a hole, data and a hole.
fn image() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let file = File::create(&path).unwrap();
    file.set_len(SIZE as u64).unwrap();
    file.write_all_at(&pattern(1_000_001, 1), 0).unwrap();
    file.write_all_at(&pattern(500_000, 2), 6 << 20).unwrap();
    (folder, path.to_str().unwrap().to_owned())
}

fn same(one: impl AsRef<Path>, other: impl AsRef<Path>) -> bool {
    fs::read(one).unwrap() == fs::read(other).unwrap()
}

#[test]
fn a_copy_to_a_new_file_is_the_same_and_keeps_its_holes() {
    let (folder, from) = image();
    let to = folder.path().join("copy").to_str().unwrap().to_owned();
    let said = run(&["block", "copy", "--json", &from, &to]).ok().json();
    assert!(same(&from, &to));
    assert_eq!(said["octets"], SIZE);
    let room = |path: &str| fs::metadata(path).unwrap().blocks() * 512;
    assert!(room(&to) <= room(&from), "{} of {}", room(&to), room(&from));
    assert!(said["holes"].as_u64().unwrap() >= SIZE as u64 - room(&from), "{said}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

/// Old octets are gone, where holes are as well; those behind the copy stay.
#[test]
fn a_copy_to_a_disk_that_exists_replaces_what_it_has() {
    let (folder, from) = image();
    let to = folder.path().join("disk").to_str().unwrap().to_owned();
    fs::write(&to, vec![0xee; SIZE + 100]).unwrap();
    let shown = run(&["block", "copy", &from, &to]).ok();
    assert!(shown.stdout.contains("9.0 MiB"), "{shown:?}");
    let found = fs::read(&to).unwrap();
    assert!(found[..SIZE] == fs::read(&from).unwrap());
    assert_eq!(found[SIZE..], [0xee; 100]);
}

#[test]
fn a_disk_that_is_too_small_is_not_written() {
    let (folder, from) = image();
    let to = folder.path().join("disk").to_str().unwrap().to_owned();
    fs::write(&to, vec![0xee; SIZE - 1]).unwrap();
    run(&["block", "copy", &from, &to]).failed(1, &["nothing was written", "try: "]);
    assert!(fs::read(&to).unwrap().iter().all(|octet| *octet == 0xee));
}

#[test]
fn what_cannot_be_copied_is_named_and_leaves_nothing() {
    let (folder, from) = image();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    run(&["block", "copy", &path("none"), &path("copy")]).failed(1, &["none: "]);
    run(&["block", "copy", &from, &path("no/folder")]).failed(1, &["no/folder: ", "make its directory"]);
    run(&["block", "copy", &from, &from]).failed(2, &["the same file"]);
    run(&["block", "copy", &from, "ftp://host/x"]).failed(2, &["ftp://"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// A file that is being made belongs to one copy: another leaves it alone. What a copy that was
/// killed has left belongs to none.
#[test]
fn a_file_is_made_by_one_copy() {
    let (folder, from) = image();
    let to = folder.path().join("copy").to_str().unwrap().to_owned();
    let part = format!("{to}.rddp.part");
    fs::write(&part, [7; 1000]).unwrap();
    let making = Flock::lock(File::open(&part).unwrap(), FlockArg::LockExclusiveNonblock).unwrap();
    let says = [&part[..], "another program is about to write it", "lslocks"];
    run(&["block", "copy", &from, &to]).failed(1, &says);
    assert_eq!(fs::read(&part).unwrap(), [7; 1000]);
    drop(making);
    run(&["block", "copy", &from, &to]).ok();
    assert!(same(&from, &to) && !fs::exists(&part).unwrap());
}

/// The process may write no file that long.
#[test]
fn a_file_for_which_there_is_no_room_does_not_stay() {
    let (folder, from) = image();
    let to = folder.path().join("copy").to_str().unwrap().to_owned();
    let limited =
        format!("trap '' XFSZ; ulimit -f 4096; exec {} block copy {from} {to}", env!("CARGO_BIN_EXE_rddp"));
    let output = std::process::Command::new("sh").args(["-c", &limited]).output().unwrap();
    Ended::from(output).failed(1, &["copy: File too large", "no file there can be so long"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
