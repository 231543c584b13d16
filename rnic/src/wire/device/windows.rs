//! Memory windows: the table has them bound and unbound when the request for it is handed over, and
//! the device when it has carried that out.

use std::sync::Arc;

use rddp_ddp::Stag;
use rddp_rdma::{Operation, SendWr, Status};

use super::Device;
use super::completing::carried_out;
use super::posting::{Held, held};
use crate::adapter::Adapter;
use crate::mem::{BindWindow, PdId, QpNum};
use crate::queues::context::Context;
use crate::queues::sq::Cursor;

/// A bind that the device has and has not carried out. Dropped before, it is undone in the table:
/// the device has not bound the window, or has ended it with the connection.
pub(super) struct Binding {
    seq: u64,
    stag: Stag,
    qp: (PdId, QpNum),
    adapter: Option<Arc<Adapter>>,
}

impl Device {
    /// Hands over the request at the cursor, to bind or to invalidate, once all before it are done.
    pub(super) fn post_local(&mut self, cx: &mut Context<'_>) -> Result<(), Held> {
        let Cursor { seq, .. } = cx.sq.cursor;
        if seq > cx.sq.oldest() {
            return Err(Held::Later);
        }
        let attrs = cx.attrs;
        let (Some(host), Some(wqe)) = (&attrs.device.host, cx.sq.get(seq)) else { return Err(Held::Later) };
        let refused = |_| Held::Ended(Status::MemoryBind);
        match wqe.wr.operation {
            Operation::Bind { window, range, access, key } => {
                // A window or region that goes meanwhile is gone in both places.
                let _turn = host.turn();
                let (region, addr, len, pd, qp) = (range.stag, range.addr, range.len, attrs.pd, attrs.num);
                let request = BindWindow { window, region, addr, len, access, pd, qp, key };
                let stag = attrs.device.mem.bind(&request).map_err(|_| Held::Ended(Status::MemoryBind))?;
                let adapter = Some(attrs.device.clone());
                self.binding = Some(Binding { seq, stag, qp: (pd, qp), adapter });
                let endpoint = &mut self.endpoint;
                let posted = host.bind((window, stag), range, |window, place| {
                    endpoint.post_bind((window, stag.0 as u8), place, access, (seq, true))
                });
                if let Err(error) = posted {
                    self.binding = None;
                    return Err(held(error));
                }
            }
            Operation::Invalidate { stag } => {
                let is_bound = attrs.device.mem.is_bound(stag);
                let key = host.window_remote(stag, 0).filter(|_| is_bound);
                attrs.device.mem.invalidate_local(stag, attrs.pd, attrs.num).map_err(refused)?;
                if let Some(key) = key {
                    let request = SendWr::invalidate(seq, key.stag);
                    self.endpoint.post_send_as(&request, (seq, true), Some).map_err(held)?;
                } else {
                    // It was not bound, or is not any more.
                    cx.sq.cursor = Cursor { seq: seq + 1, offset: 0 };
                    carried_out(cx, seq, Status::Success);
                    return Ok(());
                }
            }
            _ => return Err(Held::Ended(Status::LocalOperation)),
        }
        cx.sq.cursor = Cursor { seq: seq + 1, offset: 0 };
        Ok(())
    }

    /// Notes the end of a request: of a bind that has failed, the window is unbound again.
    pub(super) fn end_binding(&mut self, seq: u64, status: Status) {
        if let Some(mut binding) = self.binding.take_if(|binding| binding.seq == seq)
            && status == Status::Success
        {
            binding.adapter = None;
        }
    }
}

impl Drop for Binding {
    fn drop(&mut self) {
        if let Some(adapter) = self.adapter.take() {
            // The program may have ended the window already.
            let _ = adapter.mem.invalidate_local(self.stag, self.qp.0, self.qp.1);
        }
    }
}

impl std::fmt::Debug for Binding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Binding").field("seq", &self.seq).field("stag", &self.stag).finish_non_exhaustive()
    }
}
