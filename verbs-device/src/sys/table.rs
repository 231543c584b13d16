//! The functions of libibverbs and librdmacm that this crate calls, found by name.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;

use rddp_verbs_layout::{
    ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_device_attr, ibv_mr, ibv_pd,
    ibv_port_attr, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_srq, ibv_srq_init_attr, rdma_cm_event,
    rdma_cm_id, rdma_conn_param, rdma_event_channel,
};

use crate::error::LoadError;

/// A library that has been loaded. It is never unloaded: it has threads and handlers of its own.
#[derive(Clone, Debug)]
pub(super) struct Loaded {
    handle: *mut c_void,
    name: String,
}

impl Loaded {
    pub(super) fn open(path: &Path) -> Result<Self, LoadError> {
        let name = path.display().to_string();
        let absent =
            |why: &CStr| LoadError::Absent { library: name.clone(), why: why.to_string_lossy().into_owned() };
        let c_name = CString::new(name.as_str()).map_err(|_| absent(c"its name has a zero in it"))?;
        // SAFETY: the name ends with a zero. Constructors of the library run, as they do in every
        // program of RDMA.
        let handle = unsafe { libc::dlopen(c_name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // SAFETY: a string of this thread's, which stays until the next call of its kind.
            return Err(absent(unsafe { CStr::from_ptr(libc::dlerror()) }));
        }
        Ok(Loaded { handle, name })
    }

    pub(super) fn name(&self) -> String {
        self.name.clone()
    }

    /// Returns the address of a function, or null.
    pub(super) fn find(&self, symbol: &CStr) -> *mut c_void {
        // SAFETY: the library stays loaded; the name ends with a zero.
        unsafe { libc::dlsym(self.handle, symbol.as_ptr()) }
    }

    fn require(&self, symbol: &CStr) -> Result<*mut c_void, LoadError> {
        let found = self.find(symbol);
        let name = || symbol.to_string_lossy().into_owned();
        if found.is_null() {
            return Err(LoadError::TooOld { library: self.name(), symbol: name() });
        }
        Ok(found)
    }
}

/// Both libraries.
pub(super) struct Both {
    pub(super) verbs: Loaded,
    pub(super) manager: Loaded,
}

/// Defines the table, and how it is filled.
macro_rules! table {
    ($($library:ident: $name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions, by the types that the manual pages say.
        #[derive(Debug)]
        pub(super) struct Table {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Table {
            pub(super) fn look_up(both: &Both) -> Result<Self, LoadError> {
                Ok(Table { $($name: {
                    let symbol = concat!(stringify!($name), "\0").as_bytes();
                    let symbol = CStr::from_bytes_with_nul(symbol).unwrap_or_default();
                    let found = both.$library.require(symbol)?;
                    // SAFETY: a function of this name has this type in all releases.
                    unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(found)
                    }
                },)* })
            }
        }
    };
}

table! {
    verbs: ibv_get_device_name(*mut ibv_device) -> *const c_char;
    verbs: ibv_fork_init() -> c_int;
    verbs: ibv_query_device(*mut ibv_context, *mut ibv_device_attr) -> c_int;
    verbs: ibv_query_port(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
    verbs: ibv_get_async_event(*mut ibv_context, *mut ibv_async_event) -> c_int;
    verbs: ibv_ack_async_event(*mut ibv_async_event);
    verbs: ibv_alloc_pd(*mut ibv_context) -> *mut ibv_pd;
    verbs: ibv_dealloc_pd(*mut ibv_pd) -> c_int;
    verbs: ibv_reg_mr(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    verbs: ibv_dereg_mr(*mut ibv_mr) -> c_int;
    verbs: ibv_create_comp_channel(*mut ibv_context) -> *mut ibv_comp_channel;
    verbs: ibv_destroy_comp_channel(*mut ibv_comp_channel) -> c_int;
    verbs: ibv_create_cq(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
    verbs: ibv_destroy_cq(*mut ibv_cq) -> c_int;
    verbs: ibv_get_cq_event(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
    verbs: ibv_ack_cq_events(*mut ibv_cq, u32);
    verbs: ibv_modify_qp(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    verbs: ibv_create_srq(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
    verbs: ibv_destroy_srq(*mut ibv_srq) -> c_int;
    manager: rdma_get_devices(*mut c_int) -> *mut *mut ibv_context;
    manager: rdma_free_devices(*mut *mut ibv_context);
    manager: rdma_create_event_channel() -> *mut rdma_event_channel;
    manager: rdma_destroy_event_channel(*mut rdma_event_channel);
    manager: rdma_get_cm_event(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int;
    manager: rdma_ack_cm_event(*mut rdma_cm_event) -> c_int;
    manager: rdma_create_id(*mut rdma_event_channel, *mut *mut rdma_cm_id, *mut c_void, u32) -> c_int;
    manager: rdma_destroy_id(*mut rdma_cm_id) -> c_int;
    manager: rdma_migrate_id(*mut rdma_cm_id, *mut rdma_event_channel) -> c_int;
    manager: rdma_set_option(*mut rdma_cm_id, c_int, c_int, *mut c_void, usize) -> c_int;
    manager: rdma_bind_addr(*mut rdma_cm_id, *mut libc::sockaddr) -> c_int;
    manager: rdma_resolve_addr(*mut rdma_cm_id, *mut libc::sockaddr, *mut libc::sockaddr, c_int) -> c_int;
    manager: rdma_resolve_route(*mut rdma_cm_id, c_int) -> c_int;
    manager: rdma_create_qp(*mut rdma_cm_id, *mut ibv_pd, *mut ibv_qp_init_attr) -> c_int;
    manager: rdma_destroy_qp(*mut rdma_cm_id);
    manager: rdma_connect(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
    manager: rdma_listen(*mut rdma_cm_id, c_int) -> c_int;
    manager: rdma_accept(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
    manager: rdma_reject(*mut rdma_cm_id, *const c_void, u8) -> c_int;
    manager: rdma_disconnect(*mut rdma_cm_id) -> c_int;
}
