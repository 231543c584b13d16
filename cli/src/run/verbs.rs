//! The setting up of `librddp_verbs.so` for one program.
//!
//! The library is preloaded, and found by the names of the real libraries in a folder of links at
//! the front of `LD_LIBRARY_PATH`. The links serve programs that are linked with the real ones or
//! load them at run time, on hosts without them too; preloading serves those that bring a copy of
//! their own. The dynamic linker knows one file by all its names, so that it is loaded once.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder};
use std::io::ErrorKind::{self, PermissionDenied, ReadOnlyFilesystem};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use rddp_command::failure::{Failure, FailureKind};

use super::dynamic::Dynamic;
use super::library::Library;

/// The names of the real libraries. The last two are those that programs load at run time, which
/// else belong to packages for building programs.
pub(crate) const NAMES: [&str; 4] = ["libibverbs.so.1", "librdmacm.so.1", "libibverbs.so", "librdmacm.so"];

/// The folder of links beside the library.
const LINKS: &str = "rddp-verbs";

/// A version that the library defines unless it was linked without any.
const VERSION: &str = "IBVERBS_1.1";

/// Returns the library. One that exports nothing would leave programs to the real ones, and is
/// refused.
pub(crate) fn library() -> Result<PathBuf, Failure> {
    let found = Library::Verbs.find()?;
    if Dynamic::read(&found).has(VERSION) {
        return Ok(found);
    }
    let what = format!("{} exports nothing: it was built by a Rust without lld", found.display());
    Err(Failure::failed(what).remedy("build it with a Rust of rustup: cargo build -p rddp-verbs-abi"))
}

/// Returns the folder in which the library has the real ones' names: its own, as `rddp install`
/// makes it; else one beside it, or where that cannot be written, one of the user's. Either is made
/// when it is needed first.
pub(crate) fn folder_of_links(library: &Path) -> Result<PathBuf, Failure> {
    let own = library.parent().unwrap_or(Path::new("/"));
    if NAMES.iter().all(|name| is_link_to(&own.join(name), library)) {
        return Ok(own.to_owned());
    }
    let folder = own.join(LINKS);
    let beside = Path::new("..").join(library.file_name().unwrap_or_default());
    let (folder, made) = match make_links(&folder, &beside, library) {
        Err(error) if matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem) => {
            let folder = folder_of_user(LINKS);
            let made = make_links(&folder, library, library);
            (folder, made)
        }
        made => (folder, made),
    };
    made.map_err(|error| failure(&folder, &error)).map(|()| folder)
}

fn failure(folder: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("making links in {}: {error}", folder.display()))
        .remedy("rddp install --prefix DIR makes a copy that has them; then run DIR/bin/rddp")
}

/// Returns a folder that is to be written by this user alone.
pub(super) fn folder_of_user(kind: &str) -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let folder = runtime.filter(|folder| folder.is_absolute() && folder.is_dir());
    let name = format!("{kind}-{}", geteuid());
    folder.unwrap_or_else(std::env::temp_dir).join(name)
}

/// Makes the links in a folder beside the library, or in one that nobody but this user may write:
/// in another's, they could be made to lead to another library.
fn make_links(folder: &Path, target: &Path, library: &Path) -> std::io::Result<()> {
    DirBuilder::new().mode(0o755).create(folder).or_else(unless_there)?;
    let about = folder.symlink_metadata()?;
    let is_ours = about.uid() == geteuid().as_raw() && about.mode() & 0o022 == 0;
    if !about.is_dir() || !is_ours && !is_beside(folder, library) {
        return Err(std::io::Error::other("others may write to it"));
    }
    for name in NAMES {
        let link = folder.join(name);
        // One in the user's folder may lead to where the library was.
        if is_link(&link) && !is_link_to(&link, library) && !is_beside(folder, library) {
            fs::remove_file(&link)?;
        }
        // Another process may make the same link at this moment.
        symlink(target, &link).or_else(unless_there)?;
        if !is_link_to(&link, library) {
            return Err(std::io::Error::other(format!("{name} is there, and is something else")));
        }
    }
    Ok(())
}

/// Returns whether a folder is in that of the library, whose owner decides what programs run.
fn is_beside(folder: &Path, library: &Path) -> bool {
    folder.parent() == library.parent()
}

fn is_link(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|about| about.is_symlink())
}

pub(super) fn unless_there(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == ErrorKind::AlreadyExists { Ok(()) } else { Err(error) }
}

fn is_link_to(link: &Path, library: &Path) -> bool {
    link.canonicalize().is_ok_and(|found| found == library)
}

/// Refuses a program into which one of the real libraries is linked itself (`libibverbs.a`): what
/// it calls is its own. The library's messages in the program tell, also where it is stripped.
pub(crate) fn refuse_own_copy(program: &Path) -> Result<(), Failure> {
    let (octets, dynamic) = (fs::read(program).unwrap_or_default(), Dynamic::read(program));
    let is_inside = |name: &str| {
        let message = format!("{name}: ");
        let is_needed = dynamic.needs().iter().any(|need| need.starts_with(name));
        !is_needed && octets.split(|octet| *octet == 0).any(|text| text.starts_with(message.as_bytes()))
    };
    match ["libibverbs", "librdmacm"].into_iter().find(|name| is_inside(name)) {
        None => Ok(()),
        Some(name) => {
            let what =
                format!("{} has {name} inside ({name}.a): it does not call another", program.display());
            Err(Failure::new(FailureKind::CannotRun, what)
                .remedy("link it with the shared library, or take your system's package of it"))
        }
    }
}

/// Returns the value of `LD_LIBRARY_PATH`: the links first, then what the environment had.
pub(super) fn search_path(links: &Path) -> OsString {
    let mut path = links.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_LIBRARY_PATH").filter(|others| !others.is_empty()) {
        path.push(OsStr::new(":"));
        path.push(others);
    }
    path
}

/// Returns the real library that a program finds by its RPATH, which comes before
/// `LD_LIBRARY_PATH` (ld.so(8)): what it calls by linking is preloaded all the same, and what it
/// looks up at run time is not.
pub(crate) fn by_rpath(program: &Path) -> Option<PathBuf> {
    let program = program.canonicalize().ok()?;
    let dynamic = Dynamic::read(&program);
    let origin = program.parent()?.to_str()?;
    let folders = dynamic
        .rpath()?
        .split(':')
        .map(|folder| PathBuf::from(folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)));
    let found = folders.flat_map(|folder| NAMES.map(|name| folder.join(name)));
    found.into_iter().find(|path| path.exists())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn links_are_made_beside_the_library_once() {
        let scratch = tempfile::tempdir().unwrap();
        let library = scratch.path().canonicalize().unwrap().join("librddp_verbs.so");
        fs::write(&library, "").unwrap();
        for _ in 0..2 {
            let folder = folder_of_links(&library).unwrap();
            assert_eq!(folder, library.with_file_name(LINKS));
            for name in NAMES {
                assert!(is_link_to(&folder.join(name), &library), "{name}");
            }
        }
    }

    #[test]
    fn links_in_a_folder_of_the_user_follow_the_library() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().canonicalize().unwrap().join("links");
        for at in ["old", "new"] {
            let library = folder.with_file_name(at).join("librddp_verbs.so");
            fs::create_dir(library.parent().unwrap()).unwrap();
            fs::write(&library, "").unwrap();
            make_links(&folder, &library, &library).unwrap();
            assert!(NAMES.iter().all(|name| is_link_to(&folder.join(name), &library)), "{at}");
        }
    }

    #[test]
    fn a_folder_beside_the_library_may_be_a_groups() {
        let scratch = tempfile::tempdir().unwrap();
        let library = scratch.path().canonicalize().unwrap().join("librddp_verbs.so");
        fs::write(&library, "").unwrap();
        let folder = folder_of_links(&library).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o775)).unwrap();
        assert_eq!(folder_of_links(&library).unwrap(), folder);
    }

    #[test]
    fn links_are_not_made_where_others_may_write() {
        let scratch = tempfile::tempdir().unwrap();
        let library = scratch.path().canonicalize().unwrap().join("lib/librddp_verbs.so");
        fs::create_dir(library.parent().unwrap()).unwrap();
        fs::write(&library, "").unwrap();
        let folder = scratch.path().canonicalize().unwrap().join("links");
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(make_links(&folder, &library, &library).is_err());
        let elsewhere = folder.with_file_name("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::remove_dir(&folder).unwrap();
        symlink(&elsewhere, &folder).unwrap();
        assert!(make_links(&folder, &library, &library).is_err(), "a link is no folder");
    }

    #[test]
    fn a_folder_that_has_the_links_is_taken_as_it_is() {
        let scratch = tempfile::tempdir().unwrap();
        let library = scratch.path().canonicalize().unwrap().join("librddp_verbs.so");
        fs::write(&library, "").unwrap();
        for name in NAMES {
            symlink("librddp_verbs.so", library.with_file_name(name)).unwrap();
        }
        assert_eq!(folder_of_links(&library).unwrap(), library.parent().unwrap());
        assert!(!library.with_file_name(LINKS).exists());
    }

    #[test]
    fn something_else_among_the_links_is_told() {
        let scratch = tempfile::tempdir().unwrap();
        let library = scratch.path().canonicalize().unwrap().join("librddp_verbs.so");
        fs::write(&library, "").unwrap();
        fs::create_dir(library.with_file_name(LINKS)).unwrap();
        fs::write(library.with_file_name(LINKS).join("librdmacm.so.1"), "").unwrap();
        let failure = folder_of_links(&library).unwrap_err();
        assert!(failure.to_string().contains("librdmacm.so.1 is there"), "{failure}");
        assert!(failure.how().unwrap().contains("rddp install"), "{failure:?}");
    }
}
