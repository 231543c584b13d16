//! A server of files, and files at both ends.

use std::fs;
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
