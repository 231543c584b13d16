use std::process::Command;

use crate::support::{library, succeeded};

const GOLDEN: &str = include_str!("../exports.txt");

/// Returns the names of what the library exports.
pub(crate) fn golden() -> impl Iterator<Item = &'static str> {
    GOLDEN.lines().filter(|line| !line.starts_with('#'))
}

#[test]
fn exports_are_the_golden_list_and_nothing_else() {
    let output =
        Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output().expect("nm of binutils");
    let listing = succeeded(&output);
    let mut names: Vec<_> = listing.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
    names.sort_unstable();
    let golden: Vec<_> = golden().collect();
    assert_eq!(names, golden, "tests/exports.txt lists what programs may find");
}

#[test]
fn programs_need_it_by_its_name_wherever_it_lay_when_they_were_linked() {
    let output = Command::new("readelf").arg("-d").arg(library()).output().expect("readelf of binutils");
    assert!(succeeded(&output).contains("Library soname: [librddp_sockets.so.0]"));
}

/// A program may have functions of the same names (Erlang has a `sigaction`): what binds to a name
/// of ours by the dynamic linker comes to those.
#[test]
fn nothing_in_it_is_bound_to_its_own_exports_by_name() {
    let output = Command::new("readelf").arg("-rW").arg(library()).output().expect("readelf of binutils");
    let relocations = succeeded(&output);
    // Offset, info, type, value of the symbol, name.
    let names = relocations.lines().filter_map(|line| line.split_whitespace().nth(4));
    let names: Vec<_> = names.filter_map(|name| name.split('@').next()).collect();
    assert!(names.contains(&"dlsym"), "{relocations}");
    let own: Vec<_> = names.into_iter().filter(|name| golden().any(|own| own == *name)).collect();
    assert!(own.is_empty(), "{own:?}");
}
