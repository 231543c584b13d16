//! The settings of placement in the kernel (`docs/kernel-placement.md`) that hold for the process:
//! from the environment, else from the policy. They are for sockets in raw mode: a byte stream has
//! no memory to place into.

use std::error::Error as _;
use std::io;
use std::os::unix::ffi::OsStringExt;

use once_cell::race::OnceBox;
use rddp_policy::{PlacementLevel, PlacementSettings, VariableFault};
use rddp_real as real;
use rddp_rnic::{Error, KernelPlacement, Placement};
use rddp_stream::Errno;

use crate::{journal, switch};

/// The levels, by their numbers in the option `DDP_PLACEMENT`.
pub(crate) const LEVELS: [Placement; 3] = [Placement::User, Placement::Auto, Placement::Kernel];

static OF_PROCESS: OnceBox<PlacementSettings> = OnceBox::new();

/// Returns the variables of placement in the environment that have a value which they do not take.
pub fn faults() -> Vec<VariableFault> {
    of_environment().1
}

fn of_environment() -> (PlacementSettings, Vec<VariableFault>) {
    PlacementSettings::of_variables(|name| real::secure_variable(name).map(OsStringExt::into_vec))
}

/// Reads the settings, when the library is loaded; the policy has been read.
pub fn load() {
    let (settings, faults) = of_environment();
    for fault in faults {
        journal::without_policy(format_args!("{fault}: ignored; try: {}", fault.remedy()));
    }
    let settings = settings.or(switch::placement());
    if settings != PlacementSettings::default() {
        // This is the only place that sets them.
        let _ = OF_PROCESS.set(Box::new(settings));
    }
}

/// Returns the level of sockets that choose none.
pub(crate) fn of_process() -> Placement {
    match OF_PROCESS.get().and_then(|settings| settings.level) {
        None | Some(PlacementLevel::User) => Placement::User,
        Some(PlacementLevel::Auto) => Placement::Auto,
        Some(PlacementLevel::Kernel) => Placement::Kernel,
    }
}

/// Returns whether a socket may ask for the kernel: this build has the program, and interfaces are
/// named. Whether the process has the rights is seen when the device opens.
pub(crate) fn may_be_asked_for() -> bool {
    cfg!(feature = "kernel") && OF_PROCESS.get().is_some_and(|settings| settings.interfaces.is_some())
}

/// Returns the settings of the device; `None` where it places at user level alone.
pub(crate) fn of_device() -> Option<KernelPlacement> {
    let settings = OF_PROCESS.get()?;
    match &settings.interfaces {
        Some(interfaces) => Some(KernelPlacement {
            interfaces: interfaces.clone(),
            trusted: settings.trusted.unwrap_or(false),
        }),
        None => {
            if of_process() != Placement::User {
                switch::tell_user_level("no interface is named; try: RDDP_PLACEMENT_INTERFACES=eth0");
            }
            None
        }
    }
}

/// Logs why a device has opened without placement in the kernel, and returns the errno.
pub(crate) fn refused(error: &Error) -> Errno {
    switch::tell_user_level(error);
    let Error::Host { error, .. } = error else { return Errno::UNSUPPORTED };
    error.raw_os_error().or_else(|| cause(error)).map_or(Errno::UNSUPPORTED, Errno)
}

/// Returns the number of the system call's error that is behind this one.
fn cause(error: &io::Error) -> Option<i32> {
    let mut causes = std::iter::successors(error.source(), |&error| error.source());
    causes.find_map(|error| error.downcast_ref::<io::Error>()?.raw_os_error())
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct Outer(io::Error);

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("outer")
        }
    }

    impl std::error::Error for Outer {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn the_errno_of_a_device_is_that_of_the_system_call_behind() {
        let refused = |error| refused(&Error::Host { what: "preparing placement", error });
        assert_eq!(refused(io::Error::from_raw_os_error(libc::EPERM)), Errno(libc::EPERM));
        let behind = io::Error::other(Outer(io::Error::from_raw_os_error(libc::EACCES)));
        assert_eq!(refused(behind), Errno(libc::EACCES));
        assert_eq!(refused(io::Error::other("no such program")), Errno::UNSUPPORTED);
    }

    #[test]
    fn nothing_is_placed_by_the_kernel_unless_somebody_asks() {
        assert_eq!(of_process(), Placement::User);
        assert_eq!(of_device(), None);
        assert!(!may_be_asked_for(), "no interface is named");
    }
}
