//! Both libraries, loaded: which are refused.

use std::collections::HashSet;
use std::ffi::CStr;
use std::path::Path;
use std::sync::{Mutex, OnceLock};

use rddp_verbs_layout::{MARKER, fork};

use super::table::{Both, Loaded, Table};
use crate::error::LoadError;

/// The libraries libibverbs and librdmacm, loaded into this process for as long as it lives.
#[derive(Debug)]
pub struct Library {
    pub(super) table: Table,
    /// Addresses of the contexts in lists of devices that are kept.
    pub(super) kept: Mutex<HashSet<usize>>,
}

impl Library {
    /// Loads the libraries of this host, once: each further call returns the same ones.
    ///
    /// # Errors
    /// A library is not there, is too old, or is rddp's own.
    pub fn of_host() -> Result<&'static Library, LoadError> {
        static HOST: OnceLock<&'static Library> = OnceLock::new();
        match HOST.get() {
            Some(library) => Ok(library),
            // Two threads that load at once load the same libraries.
            None => Self::at("libibverbs.so.1".as_ref(), "librdmacm.so.1".as_ref())
                .map(|library| *HOST.get_or_init(|| library)),
        }
    }

    /// Loads libraries from these files, or from the places of the dynamic linker if they are names
    /// without a folder.
    ///
    /// # Errors
    /// As those of [`of_host`](Self::of_host).
    pub fn at(verbs: &Path, manager: &Path) -> Result<&'static Library, LoadError> {
        let both = Both { verbs: Loaded::open(verbs)?, manager: Loaded::open(manager)? };
        for library in [&both.verbs, &both.manager] {
            refuse_own(library.name(), |symbol| !library.find(symbol).is_null())?;
        }
        // Where rddp's own is preloaded, the real librdmacm would call it.
        refuse_own("a preloaded library".to_owned(), is_in_process)?;
        let table = Table::look_up(&both)?;
        prepare_for_fork(&both, &table);
        Ok(Box::leak(Box::new(Library { table, kept: Mutex::default() })))
    }
}

fn is_in_process(symbol: &CStr) -> bool {
    // SAFETY: the name ends with a zero.
    !unsafe { libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()) }.is_null()
}

/// Refuses the library whose devices would be rddp itself.
fn refuse_own(library: String, has: impl Fn(&CStr) -> bool) -> Result<(), LoadError> {
    if has(MARKER) { Err(LoadError::Own { library }) } else { Ok(()) }
}

/// Has the library keep registered pages from a child of `fork`, where the kernel does not: those
/// since 5.12 copy them for the child. A library that cannot tell is older than such kernels.
fn prepare_for_fork(both: &Both, table: &Table) {
    let asked = both.verbs.find(c"ibv_is_fork_initialized");
    if !asked.is_null() {
        // SAFETY: the function has this type in all releases that have it.
        let status: extern "C" fn() -> i32 = unsafe { std::mem::transmute(asked) };
        if status() == fork::UNNEEDED {
            return;
        }
    }
    // SAFETY: nothing has been registered by this library yet. What it answers changes nothing: a
    // program that never forks needs none of it.
    unsafe { (table.ibv_fork_init)() };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_library_is_refused_by_its_marker() {
        let own = refuse_own("/x/libibverbs.so.1".to_owned(), |symbol| symbol == MARKER).unwrap_err();
        assert!(matches!(own, LoadError::Own { .. }), "{own}");
        assert!(own.to_string().contains("/x/libibverbs.so.1"), "{own}");
        assert!(refuse_own(String::new(), |symbol| symbol == c"ibv_open_device").is_ok());
    }

    #[test]
    fn a_library_that_is_not_there_is_named_with_what_helps() {
        let absent = Library::at("/no/libibverbs.so.1".as_ref(), "librdmacm.so.1".as_ref()).unwrap_err();
        let said = absent.to_string();
        assert!(matches!(absent, LoadError::Absent { .. }), "{said}");
        assert!(said.contains("/no/libibverbs.so.1") && said.contains("install"), "{said}");
    }

    #[test]
    fn a_library_without_a_function_is_too_old() {
        let old = Library::at("libc.so.6".as_ref(), "libc.so.6".as_ref()).unwrap_err();
        let LoadError::TooOld { symbol, .. } = &old else { panic!("{old}") };
        assert!(symbol.starts_with("ibv_") && old.to_string().contains(symbol), "{old}");
    }
}
