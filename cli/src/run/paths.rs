//! The setting up of `librddp_paths.so` for one program: the files of its devices.
//!
//! A tree is rendered where the user alone may write, under a name made of what is in it: runs with
//! the same devices share one, and none is changed under a program.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use rddp_command::failure::Failure;
use rddp_policy::RoceDevice;
use rddp_roce::tree::{self, Shown};
use sha2::{Digest, Sha256};

use super::verbs::{folder_of_user, unless_there};

/// The folder of trees.
const TREES: &str = "rddp-roce";

/// Returns the folder with the files of these devices.
pub(super) fn tree(devices: &[RoceDevice]) -> Result<PathBuf, Failure> {
    let trees = folder_of_user(TREES);
    let made = private(&trees).and_then(|()| tree_in(&trees, &Shown::all(devices)));
    made.map_err(|error| {
        Failure::failed(format!("making the files of the devices in {}: {error}", trees.display()))
            .remedy("set TMPDIR to a folder that can be written, and unset XDG_RUNTIME_DIR")
    })
}

/// Makes a folder that nobody but this user may write: another would decide what programs see.
fn private(folder: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o755).create(folder).or_else(unless_there)?;
    let about = folder.symlink_metadata()?;
    let is_ours = about.uid() == geteuid().as_raw() && about.mode() & 0o022 == 0;
    if about.is_dir() && is_ours { Ok(()) } else { Err(io::Error::other("others may write to it")) }
}

fn tree_in(trees: &Path, devices: &[Shown]) -> io::Result<PathBuf> {
    let trees = trees.canonicalize()?;
    let sum = Sha256::digest(format!("{:?}", tree::entries(devices)));
    let name: String = sum.iter().take(8).map(|octet| format!("{octet:02x}")).collect();
    let folder = trees.join(&name);
    if tree::is_whole(devices, &folder) {
        return Ok(folder);
    }
    // What cleans folders of old files may have left a part.
    let new = trees.join(format!("{name}.{}", std::process::id()));
    for old in [&new, &folder] {
        fs::remove_dir_all(old).or_else(unless_missing)?;
    }
    tree::render(devices, &new)?;
    match fs::rename(&new, &folder) {
        // Another run has made it at this moment.
        Err(_) if tree::is_whole(devices, &folder) => fs::remove_dir_all(&new)?,
        renamed => renamed?,
    }
    Ok(folder)
}

fn unless_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn devices(name: &str) -> Vec<Shown> {
        Shown::all(&RoceDevice::list(&format!("{name}=127.0.0.1")).unwrap())
    }

    #[test]
    fn a_tree_is_shared_by_runs_with_the_same_devices_and_mended() {
        let scratch = tempfile::tempdir().unwrap();
        let first = tree_in(scratch.path(), &devices("a")).unwrap();
        assert_eq!(tree_in(scratch.path(), &devices("a")).unwrap(), first);
        assert_ne!(tree_in(scratch.path(), &devices("b")).unwrap(), first);
        fs::remove_dir_all(first.join("sys/class/infiniband/a/ports")).unwrap();
        assert_eq!(tree_in(scratch.path(), &devices("a")).unwrap(), first);
        assert!(tree::is_whole(&devices("a"), &first));
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 2);
    }

    #[test]
    fn trees_are_not_made_where_others_may_write() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("trees");
        private(&folder).unwrap();
        private(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(private(&folder).is_err());
    }
}
