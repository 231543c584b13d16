//! Memory windows of type 2, as rxe and adapters have them.

use std::ffi::c_int;

use rddp_verbs_layout::{access, ibv_mr, ibv_mw, ibv_mw_bind, ibv_pd, ibv_qp, ibv_send_wr, wr};

use crate::world::{Kind, World, null, world};

/// A window.
pub(crate) struct Window {
    pub(crate) device: usize,
    domain: usize,
    key: u32,
    bound: Option<Bound>,
}

#[derive(Clone, Copy)]
struct Bound {
    pair: usize,
    region: u32,
    addr: u64,
    len: u64,
    flags: u32,
}

/// A request to bind: the window's key and the next one, and where to.
#[derive(Clone, Copy)]
pub(crate) struct Bind {
    keys: (u32, u32),
    region: u32,
    addr: u64,
    len: u64,
    flags: u32,
}

pub(crate) extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: u32) -> *mut ibv_mw {
    let mut world = world();
    // SAFETY: a domain of ours.
    let context = unsafe { (*pd).context };
    let device = world.device_of(context.addr());
    if world.devices[device].is_iwarp() {
        return null(libc::EOPNOTSUPP);
    }
    let handle = world.number();
    let rkey = handle << 8 | 0xa5;
    world.windows.insert(handle, Window { device, domain: pd.addr(), key: rkey, bound: None });
    Box::into_raw(Box::new(ibv_mw { context, pd, rkey, handle, kind }))
}

pub(crate) extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: made by `alloc_mw`.
    let mw = unsafe { Box::from_raw(mw) };
    world().windows.remove(&mw.handle);
    0
}

/// Here because a table of a context has no places without a function.
pub(crate) unsafe extern "C" fn bind_mw(_: *mut ibv_qp, _: *mut ibv_mw, _: *const ibv_mw_bind) -> c_int {
    libc::EOPNOTSUPP
}

/// Returns what a request binds, if it does.
///
/// # Safety
/// Its window and its region are there.
pub(crate) unsafe fn bind_of(request: &ibv_send_wr) -> Option<Bind> {
    let info = &request.bind_info;
    // SAFETY: promised by the caller.
    (request.opcode == wr::BIND_MW).then(|| unsafe {
        let keys = ((*request.mw).rkey, request.mw_rkey);
        let region = (*info.mr.cast::<ibv_mr>()).lkey;
        Bind { keys, region, addr: info.addr, len: info.length, flags: info.mw_access_flags }
    })
}

impl World {
    /// Binds a window. Returns whether it could be.
    pub(crate) fn bind(&mut self, pair: usize, bind: &Bind) -> bool {
        let Bind { keys: (before, key), region, addr, len, flags } = *bind;
        let Some(domain) = self.pairs.get(&pair).map(|pair| pair.domain) else { return false };
        let writes = flags & (access::REMOTE_WRITE | access::REMOTE_ATOMIC) != 0;
        let needs = access::MW_BIND | if writes { access::LOCAL_WRITE } else { 0 };
        let fits = len > 0 && self.reaches(domain, region, addr, len, needs);
        let Some(window) = self.windows.get_mut(&(before >> 8)) else { return false };
        if !fits || window.key != before || window.domain != domain || window.bound.is_some() {
            return false;
        }
        window.key = before & !0xff | key & 0xff;
        window.bound = Some(Bound { pair, region, addr, len, flags });
        true
    }

    /// Unbinds the window that is bound under this key. Returns whether there was one.
    pub(crate) fn unbind(&mut self, key: u32) -> bool {
        let window = self.windows.get_mut(&(key >> 8)).filter(|window| window.key == key);
        window.is_some_and(|window| window.bound.take().is_some())
    }

    /// Returns whether the peer of a queue pair reaches a range by this key of a window.
    pub(crate) fn lends(&self, pair: usize, key: u32, (addr, len): (u64, u64), rights: u32) -> bool {
        let window = self.windows.get(&(key >> 8)).filter(|window| window.key == key);
        window.and_then(|window| window.bound).is_some_and(|bound| {
            bound.pair == pair && bound.flags & rights == rights && self.covers(pair, &bound, addr, len)
        })
    }

    /// Returns whether a window of the peer's covers a range: one of rxe covers all of its region.
    fn covers(&self, pair: usize, bound: &Bound, addr: u64, len: u64) -> bool {
        let pair = &self.pairs[&pair];
        match self.devices[pair.device].kind {
            Kind::Rxe => self.reaches(pair.domain, bound.region, addr, len, 0),
            _ => addr >= bound.addr && addr + len <= bound.addr + bound.len,
        }
    }

    pub(crate) fn is_lent(&self, region: u32) -> bool {
        self.bounds().any(|bound| bound.region == region)
    }

    pub(crate) fn lends_to_peer_of(&self, pair: usize) -> bool {
        self.bounds().any(|bound| bound.pair == pair)
    }

    fn bounds(&self) -> impl Iterator<Item = &Bound> {
        self.windows.values().filter_map(|window| window.bound.as_ref())
    }
}
