//! A server of files, and files at both ends.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use tempfile::TempDir;

use crate::program::{Ended, Server, command, run};

/// A served directory, and files beside it.
pub(crate) struct Site {
    pub(crate) tree: TempDir,
    pub(crate) server: Option<Server>,
}

impl Site {
    pub(crate) fn new(more: &[&str]) -> Self {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir_all(tree.path().join("served/sub")).unwrap();
        fs::create_dir(tree.path().join("here")).unwrap();
        let mut site = Site { tree, server: None };
        site.serve(more);
        site
    }

    pub(crate) fn serve(&mut self, more: &[&str]) {
        let served = self.served("");
        let args = ["serve", served.to_str().unwrap(), "--writable", "--port", "0", "--json"];
        self.server = Some(Server::start(&[&args[..], more].concat()));
    }

    pub(crate) fn served(&self, name: &str) -> PathBuf {
        self.tree.path().join("served").join(name)
    }

    pub(crate) fn here(&self, name: &str) -> PathBuf {
        self.tree.path().join("here").join(name)
    }

    pub(crate) fn remote(&self, path: &str) -> String {
        format!("{}/{path}", self.server.as_ref().unwrap().host())
    }

    pub(crate) fn put(&self, name: &str, path: &str) -> Ended {
        run(&["put", self.here(name).to_str().unwrap(), &self.remote(path), "--json"])
    }

    pub(crate) fn get(&self, path: &str, name: &str) -> Ended {
        run(&["get", &self.remote(path), self.here(name).to_str().unwrap(), "--json"])
    }

    /// Starts a slow transfer in the background.
    pub(crate) fn slowly(&self, op: &str, from: &str, to: &str) -> Child {
        let args = [op, from, to, "--limit", "4M"];
        command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }
}

pub(crate) fn len(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Length of a file that is nearly all holes.
const SPARSE: u64 = 3 << 30;

/// Makes a file of 3 GiB with a few octets at its begin and in its middle.
pub(crate) fn write_holes(path: &Path) {
    let file = File::create(path).unwrap();
    file.write_all_at(b"begin", 0).unwrap();
    file.write_all_at(b"middle", 1 << 30).unwrap();
    file.set_len(SPARSE).unwrap();
}

/// Checks that a file is one of [`write_holes`], and takes no room for its holes.
pub(crate) fn assert_holes(path: &Path) {
    let file = File::open(path).unwrap();
    let metadata = file.metadata().unwrap();
    assert_eq!(metadata.len(), SPARSE);
    assert!(metadata.blocks() * 512 < 1 << 20, "{} blocks", metadata.blocks());
    let mut octets = [0; 8];
    file.read_exact_at(&mut octets, (1 << 30) - 1).unwrap();
    assert_eq!(&octets, b"\0middle\0");
}
