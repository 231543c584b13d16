//! `rddp install`: a folder with the command and its libraries, for images and containers.
//!
//! | file | what |
//! |---|---|
//! | `manifest` | the list of what was installed, by which later installs know their own files |
//!
//! Nothing is written before all is known to be rddp's own, and each file is replaced at once, so
//! that programs that run at the time keep theirs.

mod manifest;

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use clap::Args;
use rddp_command::failure::Failure;
use rddp_command::out::say;

use self::manifest::Manifest;
use crate::run::library::{Library, check_path};
use crate::run::verbs;

const EXAMPLES: &str = "\
Examples:
  rddp install --prefix /opt/rddp               DIR/bin/rddp, DIR/lib/librddp_verbs.so and others
  export LD_LIBRARY_PATH=/opt/rddp/lib          from then on, RDMA programs find rddp's device
  /opt/rddp/bin/rddp run --verbs -- rping -s    or one program alone

Exit codes:
  0    done
  1    this host could not do it: no library, or files that cannot be written or are not rddp's
  2    wrong arguments
  130  interrupted
  141  nobody reads the output any more";

/// Lay out a folder with rddp and its libraries, for images and containers
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, after_help = "--help shows examples and exit codes")]
pub(crate) struct InstallArgs {
    /// Folder that gets bin and lib; made if it is not there
    #[arg(long, value_name = "DIR")]
    prefix: PathBuf,
}

pub(crate) fn run(args: &InstallArgs) -> Result<(), Failure> {
    let items = items()?;
    let prefix = std::path::absolute(&args.prefix).map_err(told(&args.prefix))?;
    check_path(&prefix)?;
    let before = Manifest::read(&prefix).map_err(told(&prefix.join(manifest::PATH)))?;
    let wanted = missing(&items, &prefix, &before)?;
    put_all(&wanted, &items, &prefix, before)?;
    let lib = prefix.join("lib");
    say!("{}: {} files, {} of them new", prefix.display(), items.len(), wanted.len());
    say!("RDMA programs find rddp's device after");
    say!("  export LD_LIBRARY_PATH={}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}", lib.display());
    say!("or one by one, by");
    say!("  {} run --verbs -- PROGRAM", prefix.join("bin/rddp").display());
    Ok(())
}

/// A file to install: its path under the prefix, and what it is.
#[derive(Clone, Debug)]
struct Item {
    path: String,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    File(Vec<u8>),
    Link(String),
}

impl Item {
    fn checksum(&self) -> String {
        match &self.content {
            Content::File(octets) => manifest::sum_of_file(octets),
            Content::Link(target) => manifest::sum_of_link(target.as_bytes()),
        }
    }
}

fn items() -> Result<Vec<Item>, Failure> {
    let verbs = Library::Verbs.soname();
    let sockets = Library::Sockets.soname();
    let command = std::env::current_exe().map_err(told(Path::new("this command")))?;
    let file = |path: &str, from: &Path| -> Result<Item, Failure> {
        let content = Content::File(fs::read(from).map_err(told(from))?);
        Ok(Item { path: path.to_owned(), content })
    };
    let mut items = vec![
        file("bin/rddp", &command)?,
        file(&format!("lib/{sockets}"), &Library::Sockets.find()?)?,
        file(&format!("lib/{verbs}"), &verbs::library()?)?,
        file(&format!("lib/{}", Library::Paths.soname()), &Library::Paths.find()?)?,
    ];
    let link =
        |name: &str, to: &str| Item { path: format!("lib/{name}"), content: Content::Link(to.to_owned()) };
    items.push(link(Library::Sockets.file_name(), sockets));
    items.extend(verbs::NAMES.map(|name| link(name, verbs)));
    Ok(items)
}

/// Returns the items that are not there yet. Files in their places that are not rddp's own are an
/// error.
fn missing(items: &[Item], prefix: &Path, before: &Manifest) -> Result<Vec<Item>, Failure> {
    let mut wanted = Vec::new();
    for item in items {
        let path = prefix.join(&item.path);
        let there = manifest::checksum(&path).map_err(told(&path))?;
        match there {
            Some(sum) if sum == item.checksum() => {}
            Some(sum) if !before.has(&item.path, &sum) => return Err(foreign(&path)),
            _ => wanted.push(item.clone()),
        }
    }
    Ok(wanted)
}

fn foreign(path: &Path) -> Failure {
    Failure::failed(format!("{} is there, and is not rddp's: nothing was installed", path.display()))
        .remedy("name a folder of rddp's own, for example --prefix /opt/rddp, or move that file away")
}

fn put_all(wanted: &[Item], items: &[Item], prefix: &Path, before: Manifest) -> Result<(), Failure> {
    for folder in ["bin", "lib"] {
        let path = prefix.join(folder);
        fs::create_dir_all(&path).map_err(told(&path))?;
    }
    // If this is interrupted, the next install knows the files of both.
    let mut both = before;
    items.iter().for_each(|item| both.add(&item.path, item.checksum()));
    put_list(prefix, &both)?;
    for item in wanted {
        put(item, &prefix.join(&item.path))?;
    }
    let mut list = Manifest::default();
    items.iter().for_each(|item| list.add(&item.path, item.checksum()));
    put_list(prefix, &list)
}

fn put_list(prefix: &Path, list: &Manifest) -> Result<(), Failure> {
    let path = prefix.join(manifest::PATH);
    write(&path, list.text().as_bytes(), 0o644).map_err(told(&path))
}

fn put(item: &Item, path: &Path) -> Result<(), Failure> {
    let put = match &item.content {
        Content::File(octets) => write(path, octets, 0o755),
        Content::Link(target) => replace(path, |new| symlink(target, new)),
    };
    put.map_err(told(path))
}

fn write(path: &Path, octets: &[u8], mode: u32) -> io::Result<()> {
    replace(path, |new| {
        let mut file = OpenOptions::new().write(true).create_new(true).open(new)?;
        file.write_all(octets)?;
        file.set_permissions(Permissions::from_mode(mode))
    })
}

/// Makes a file beside `path`, which then takes its place.
fn replace(path: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let made = make(&new).and_then(|()| fs::rename(&new, path));
    made.inspect_err(|error| {
        if error.kind() != io::ErrorKind::AlreadyExists {
            let _ = fs::remove_file(&new);
        }
    })
}

fn told(path: &Path) -> impl FnOnce(io::Error) -> Failure + use<> {
    let path = path.to_owned();
    move |error| Failure::failed(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items() -> Vec<Item> {
        let file = Item { path: "lib/one".into(), content: Content::File(b"one".to_vec()) };
        vec![file, Item { path: "lib/link".into(), content: Content::Link("one".into()) }]
    }

    fn install(items: &[Item], prefix: &Path) -> Result<usize, Failure> {
        let before = Manifest::read(prefix).unwrap();
        let wanted = missing(items, prefix, &before)?;
        put_all(&wanted, items, prefix, before)?;
        Ok(wanted.len())
    }

    #[test]
    fn its_own_files_are_replaced_and_those_that_are_right_left_alone() {
        let scratch = tempfile::tempdir().unwrap();
        let mut items = items();
        assert_eq!(install(&items, scratch.path()).unwrap(), 2);
        assert_eq!(install(&items, scratch.path()).unwrap(), 0);
        items[0].content = Content::File(b"newer".to_vec());
        assert_eq!(install(&items, scratch.path()).unwrap(), 1);
        assert_eq!(fs::read(scratch.path().join("lib/link")).unwrap(), b"newer");
        let left: Vec<_> = fs::read_dir(scratch.path().join("lib")).unwrap().collect();
        assert_eq!(left.len(), 3, "{left:?}");
    }

    #[test]
    fn a_file_of_another_is_not_replaced_nor_is_anything_written() {
        for path in ["lib/one", "lib/link"] {
            let scratch = tempfile::tempdir().unwrap();
            fs::create_dir(scratch.path().join("lib")).unwrap();
            fs::write(scratch.path().join(path), "theirs").unwrap();
            let failure = install(&items(), scratch.path()).unwrap_err();
            assert!(failure.to_string().contains(path), "{failure}");
            assert_eq!(fs::read(scratch.path().join(path)).unwrap(), b"theirs");
            assert_eq!(fs::read_dir(scratch.path().join("lib")).unwrap().count(), 1);
        }
    }

    #[test]
    fn a_file_that_was_changed_since_is_not_its_own_any_more() {
        let scratch = tempfile::tempdir().unwrap();
        install(&items(), scratch.path()).unwrap();
        let link = scratch.path().join("lib/link");
        fs::remove_file(&link).unwrap();
        symlink("libibverbs.so.1.14", &link).unwrap();
        install(&items(), scratch.path()).unwrap_err();
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("libibverbs.so.1.14"));
    }

    #[test]
    fn a_folder_in_the_place_of_a_file_is_told() {
        let scratch = tempfile::tempdir().unwrap();
        fs::create_dir_all(scratch.path().join("lib/one")).unwrap();
        let failure = install(&items(), scratch.path()).unwrap_err();
        assert!(failure.to_string().contains("neither a file nor a link"), "{failure}");
    }
}
