//! The program's environment.

use std::ffi::{CStr, CString, OsString, c_char};
use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;

use rddp_policy::{RoceDevice, RoceFault};

use crate::refusal::complain;
use crate::settings::Settings;

unsafe extern "C" {
    static program_invocation_short_name: *const c_char;
    fn secure_getenv(name: *const c_char) -> *const c_char;
}

/// Returns the settings of this program. The first time this reads them, begins the log that its
/// environment asks for, and tells what is wrong.
pub(super) fn settings() -> Option<&'static Settings> {
    static SETTINGS: OnceLock<Option<Settings>> = OnceLock::new();
    let read = || {
        rddp_log::begin(|name| variable(name).map(OsString::from_vec));
        let settings = Settings::read(&program(), variable);
        settings.inspect_err(Settings::tell).ok()
    };
    SETTINGS.get_or_init(read).as_ref()
}

/// Returns the devices that look like RoCE, where the environment asks for them in place of the
/// iWARP device. A list that makes no sense is told, and is no device.
pub(super) fn roce_devices() -> Option<Vec<RoceDevice>> {
    let list = variable(RoceDevice::VARIABLE)?;
    let list = String::from_utf8_lossy(&list).into_owned();
    Some(RoceDevice::list(&list).unwrap_or_else(|fault| {
        let variable = RoceDevice::VARIABLE;
        complain(&format!("rddp: {variable}={list}: {fault}; try: {}\n", RoceFault::REMEDY));
        Vec::new()
    }))
}

/// Returns the program's name without its folder.
fn program() -> Vec<u8> {
    // SAFETY: the C library set the pointer, to text that ends with a nul, before it ran anything
    // of the program's.
    unsafe { CStr::from_ptr(program_invocation_short_name) }.to_bytes().to_vec()
}

/// Returns a variable; `None` in a program with privileges that its user does not have.
fn variable(name: &str) -> Option<Vec<u8>> {
    let name = CString::new(name).ok()?;
    // SAFETY: a name that ends with a nul. As with `getenv`, a program does not change its
    // environment in one thread while another one opens a device.
    let value = unsafe { secure_getenv(name.as_ptr()) };
    // SAFETY: NULL, or text that ends with a nul, which is copied at once.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_bytes().to_vec())
}
