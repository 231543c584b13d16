//! The library of fake devices, as the tests of several crates load it.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

use rddp_verbs_device::Library;

/// The device that another one is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Siw,
    Rxe,
    Adapter,
}

impl Kind {
    pub(crate) fn is_iwarp(self) -> bool {
        self == Kind::Siw
    }
}

/// Quirks of a device, which `tests/fake` describes.
pub(crate) mod quirk {
    pub(crate) const LATE: u32 = 1;
    pub(crate) const IDLE_EVENTS: u32 = 2;
    pub(crate) const LOCKED_MEMORY: u32 = 4;
    pub(crate) const CREDENTIALS: u32 = 8;
    pub(crate) const SLOW: u32 = 16;
    pub(crate) const FLUSHED: u32 = 32;
    pub(crate) const STRANGE: u32 = 64;
    pub(crate) const SHORT: u32 = 128;
    #[allow(dead_code, reason = "the tests of rnic use it")]
    pub(crate) const PORT_TAKEN: u32 = 256;
    #[allow(dead_code, reason = "the tests of the gateway use it")]
    pub(crate) const SLOW_LOOKS: u32 = 512;
    #[allow(dead_code, reason = "the tests of verbs-device use it")]
    pub(crate) const SIGNAL: u32 = 1024;
    #[allow(dead_code, reason = "the tests of verbs-device use it")]
    pub(crate) const NO_QUEUES: u32 = 2048;
    #[allow(dead_code, reason = "the tests of the gateway use it")]
    pub(crate) const UNTOLD: u32 = 4096;
    #[allow(dead_code, reason = "the tests of rnic use it")]
    pub(crate) const UNSHARED: u32 = 8192;
    #[allow(dead_code, reason = "the tests of rnic use it")]
    pub(crate) const NO_LAST: u32 = 16384;
    #[allow(dead_code, reason = "the tests of verbs-device use it")]
    pub(crate) const LOST: u32 = 32768;
    #[allow(dead_code, reason = "the tests of rnic use it")]
    pub(crate) const STALLED: u32 = 65536;
    #[allow(dead_code, reason = "the tests of rnic use it")]
    pub(crate) const BEHIND: u32 = 131_072;
    #[allow(dead_code, reason = "the tests of the gateway use the rest")]
    pub(crate) const NO_WORD: u32 = 262_144;
}

/// The fake library, and the functions by which a test directs it.
pub(crate) struct Fake {
    pub(crate) library: &'static Library,
    device: unsafe extern "C" fn(*const c_char, c_int, u32) -> c_int,
    pub(crate) cut: extern "C" fn(c_int),
    pub(crate) event: extern "C" fn(c_int, u32),
    pub(crate) stall: extern "C" fn(c_int, c_int),
    pub(crate) remove: extern "C" fn(c_int),
    pub(crate) end_silence: extern "C" fn(),
    pub(crate) objects: extern "C" fn(c_int) -> c_int,
    pub(crate) receives: extern "C" fn(c_int) -> c_int,
    #[allow(dead_code, reason = "the tests of the gateway use it")]
    pub(crate) sends: extern "C" fn(c_int) -> c_int,
    #[allow(dead_code, reason = "the tests of verbs-device use it")]
    pub(crate) lists: extern "C" fn() -> c_int,
    #[allow(dead_code, reason = "the tests of rnic use it")]
    pub(crate) looks: extern "C" fn(c_int) -> c_int,
    pub(crate) bare: extern "C" fn(c_int, u32) -> *const c_void,
    pub(crate) bare_send: extern "C" fn(*const c_void) -> c_int,
    pub(crate) bare_receive: extern "C" fn(*const c_void) -> c_int,
    pub(crate) bare_poll: extern "C" fn(*const c_void) -> c_int,
}

impl Fake {
    /// Makes a device. Returns its number.
    pub(crate) fn make(&self, name: &str, kind: Kind, quirks: u32) -> c_int {
        let name = CString::new(name).unwrap();
        // SAFETY: the name ends with a zero.
        unsafe { (self.device)(name.as_ptr(), kind as c_int, quirks) }
    }
}

#[allow(clippy::missing_transmute_annotations)] // the fields have the types
pub(crate) fn fake() -> &'static Fake {
    static FAKE: OnceLock<Fake> = OnceLock::new();
    FAKE.get_or_init(|| {
        let path = std::env::current_exe().unwrap().with_file_name("libfake_verbs.so");
        let library = Library::at(&path, &path).unwrap_or_else(|error| panic!("{error}"));
        let name = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the library is loaded already, and its functions have these types.
        unsafe {
            let handle = libc::dlopen(name.as_ptr(), libc::RTLD_NOW);
            let find = |name: &CStr| libc::dlsym(handle, name.as_ptr());
            Fake {
                library,
                device: std::mem::transmute(find(c"fake_device")),
                cut: std::mem::transmute(find(c"fake_cut")),
                event: std::mem::transmute(find(c"fake_event")),
                stall: std::mem::transmute(find(c"fake_stall")),
                remove: std::mem::transmute(find(c"fake_remove")),
                end_silence: std::mem::transmute(find(c"fake_end_silence")),
                objects: std::mem::transmute(find(c"fake_objects")),
                receives: std::mem::transmute(find(c"fake_receives")),
                sends: std::mem::transmute(find(c"fake_sends")),
                lists: std::mem::transmute(find(c"fake_lists")),
                looks: std::mem::transmute(find(c"fake_looks")),
                bare: std::mem::transmute(find(c"fake_bare")),
                bare_send: std::mem::transmute(find(c"fake_bare_send")),
                bare_receive: std::mem::transmute(find(c"fake_bare_receive")),
                bare_poll: std::mem::transmute(find(c"fake_bare_poll")),
            }
        }
    })
}
