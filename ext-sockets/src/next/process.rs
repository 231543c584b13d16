//! What the C library knows of the process.

use std::ffi::{CStr, CString, OsStr, OsString, c_char};
use std::os::unix::ffi::OsStrExt;

// GNU's own; musl has both too.
unsafe extern "C" {
    static program_invocation_short_name: *const c_char;
    fn secure_getenv(name: *const c_char) -> *const c_char;
}

/// Has these called around every `fork`: before it and after it in the parent, and in the child.
pub fn around_fork(before: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
    // SAFETY: they take nothing and return nothing.
    unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
}

/// Has this called in the child of every `fork`.
pub fn after_fork(child: extern "C" fn()) {
    // SAFETY: it takes nothing and returns nothing.
    unsafe { libc::pthread_atfork(None, None, Some(child)) };
}

/// Has this called when the process exits.
pub fn at_exit(last: extern "C" fn()) {
    // SAFETY: it takes nothing and returns nothing.
    unsafe { libc::atexit(last) };
}

/// The program's name without its folder.
pub fn program_name() -> OsString {
    // SAFETY: the C library set it, to text that ends with a nul, before it ran any constructor; nobody has changed it yet.
    let name = unsafe { CStr::from_ptr(program_invocation_short_name) };
    OsStr::from_bytes(name.to_bytes()).to_owned()
}

/// A variable of the environment, unless the program has privileges that its user has not.
pub fn secure_variable(name: &str) -> Option<OsString> {
    let name = CString::new(name).ok()?;
    // SAFETY: `name` ends with a nul. This runs when the library is loaded, before any thread can change the environment.
    let value = unsafe { secure_getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: not null, so text that ends with a nul; copied at once.
    Some(OsStr::from_bytes(unsafe { CStr::from_ptr(value) }.to_bytes()).to_owned())
}

/// The user whose rights the process has.
pub fn user_id() -> u32 {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// A line for the system's log.
pub fn to_syslog(line: &str) {
    let Ok(line) = CString::new(line) else { return };
    // SAFETY: both end with a nul, and the format takes one string.
    unsafe { libc::syslog(libc::LOG_NOTICE, c"%s".as_ptr(), line.as_ptr()) };
}

/// Whether there is a process of this number, be it only the rest of one.
pub fn is_alive(pid: u32) -> bool {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return false };
    let before = super::errno();
    // SAFETY: signal 0 is sent to nobody.
    let alive = unsafe { libc::kill(pid, 0) } == 0 || super::errno() == libc::EPERM;
    super::set_errno(before);
    alive
}
