//! Capabilities that the device reports are true: each limit can be used, one more is refused.

use rddp_rnic::{
    Access, Atomics, Capabilities, Completed, ConnectError, ConnectOptions, ConnectRequest, Connected,
    DeviceError, Error, MemoryRegion, Operation, PostError, QpConfig, RecvWr, Remote, SendWr, Sge, SrqConfig,
};

use crate::common::device::{is_on_device, local, needs, needs_software, open};
use crate::common::{ALL, End, PATIENCE, connect_on};

const REMOTE: Remote = Remote { stag: rddp_rnic::Stag(0x100), to: 0 };

fn end_and_capabilities() -> (End, Capabilities) {
    let end = End::new();
    let capabilities = end.rnic.capabilities();
    (end, capabilities)
}

fn list(region: &MemoryRegion, count: usize) -> Vec<Sge> {
    vec![region.sge(0..1); count]
}

#[test]
fn requests_have_as_many_elements_as_the_device_says() {
    let (end, Capabilities { max_sge: max, .. }) = end_and_capabilities();
    let region = end.region(8, Access::LOCAL_WRITE);
    let srq = end.pd.create_srq(SrqConfig::default());
    let refused = Err(PostError::TooManySges { count: max + 1, max });
    for (count, expected) in [(max, Ok(())), (max + 1, refused)] {
        let list = || list(&region, count);
        // For a device, Writes go in parts, and short Sends are copied.
        let sent = if is_on_device() { Ok(()) } else { expected };
        assert_eq!(end.qp.post_send(&SendWr::send(1, list())), sent);
        assert_eq!(end.qp.post_send(&SendWr::write(2, list(), REMOTE)), sent);
        assert_eq!(end.qp.post_recv(RecvWr::new(3, list())), expected);
        assert_eq!(srq.post_recv(RecvWr::new(4, list())), expected);
    }
}

#[test]
fn requests_carry_as_much_inline_as_the_device_says() {
    let (end, Capabilities { max_inline: max, .. }) = end_and_capabilities();
    let refused = Err(PostError::InlineTooLong { len: max + 1, max });
    for (len, expected) in [(max, Ok(())), (max + 1, refused)] {
        assert_eq!(end.qp.post_send(&SendWr::send_inline(1, &vec![0; len])), expected);
        assert_eq!(end.qp.post_send(&SendWr::write_inline(2, &vec![0; len], REMOTE)), expected);
    }
}

/// RFC 5041 §5.2
#[test]
fn messages_are_as_long_as_the_device_says() {
    needs_software("memory that is registered and not present");
    let (end, Capabilities { max_message: max, max_sge, .. }) = end_and_capabilities();
    // Mapped and never touched: nothing is sent before the QP is connected.
    let region = end.region(1 << 28, Access::LOCAL_WRITE);
    let pieces = |mut len: u64| {
        let mut list = Vec::new();
        while len > 0 {
            list.push(region.sge(0..region.len().min(len as usize)));
            len -= list[list.len() - 1].len;
        }
        assert!(list.len() <= max_sge);
        list
    };
    let refused = Err(PostError::MessageTooLong { len: max + 1 });
    for (len, expected) in [(max, Ok(())), (max + 1, refused)] {
        assert_eq!(end.qp.post_send(&SendWr::send(1, pieces(len))), expected);
        assert_eq!(end.qp.post_send(&SendWr::write(2, pieces(len), REMOTE)), expected);
    }
}

#[test]
fn a_completion_queue_holds_as_many_as_the_device_says() {
    let rnic = open();
    let max = rnic.capabilities().max_cqes;
    rnic.create_cq(max).unwrap();
    let refused = rnic.create_cq(max + 1).unwrap_err();
    assert!(matches!(refused, Error::OutOfRange { value, max: told, .. } if (value, told) == (max + 1, max)));
}

#[test]
fn connections_have_the_depths_that_the_device_says() {
    let (active, Capabilities { max_ird, max_ord, .. }) = end_and_capabilities();
    let passive = End::new();
    let more = ConnectOptions { ird: max_ird + 1, ord: max_ord + 1, ..Default::default() };
    connect_on("127.0.0.1:0", &active, &passive, &more, &more);
    assert_eq!(active.qp.depths(), Some((max_ird, max_ord)));
}

/// Connects with that much private data; returns the outcome at either end.
fn attempt(
    len: usize,
    decide: impl FnOnce(ConnectRequest, &End) -> bool,
) -> (bool, Result<Connected, ConnectError>) {
    let (active, passive) = (End::new(), End::new());
    let options = ConnectOptions { private_data: vec![7; len], fall_back: false, ..Default::default() };
    let listener = passive.rnic.listen(local("127.0.0.1:0"), &ConnectOptions::default()).unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| active.qp.connect(addr, &options));
        let decided =
            listener.accept(Some(PATIENCE)).unwrap().is_some_and(|request| decide(request, &passive));
        (decided, connecting.join().unwrap())
    })
}

#[test]
fn frames_carry_as_much_private_data_as_the_device_says() {
    let (end, capabilities) = end_and_capabilities();
    let Capabilities { max_request_data, max_reply_data, max_reject_data, .. } = capabilities;
    let accept =
        |len: usize| move |request: ConnectRequest, end: &End| request.accept(&end.qp, &vec![1; len]).is_ok();
    let reject = |len: usize| move |request: ConnectRequest, _: &End| request.reject(&vec![1; len]).is_ok();
    assert!(attempt(max_request_data, accept(max_reply_data)).1.is_ok());
    let (rejected, refused) = attempt(0, reject(max_reject_data));
    assert!(
        rejected
            && matches!(refused, Err(ConnectError::Rejected { private_data }) if private_data.len() == max_reject_data)
    );

    let options = ConnectOptions { private_data: vec![7; max_request_data + 1], ..Default::default() };
    let refused = end.qp.connect(local("127.0.0.1:9"), &options).unwrap_err();
    let is_named = match refused {
        ConnectError::Misuse(_) => !is_on_device(),
        ConnectError::Device(DeviceError::PrivateData { .. }) => is_on_device(),
        _ => false,
    };
    assert!(is_named, "{refused}");
    assert!(!attempt(0, accept(max_reply_data + 1)).0);
    assert!(!attempt(0, reject(max_reject_data + 1)).0);
}

/// Uses each ability that is only a yes or no once. (The order in which a Write's octets are seen
/// is tested with registered memory.)
#[test]
fn the_device_can_do_what_it_says() {
    needs("atomics with masks", |device| device.atomics == Atomics::Masked);
    let (active, capabilities) = end_and_capabilities();
    let srq = active.pd.create_srq(SrqConfig::default());
    let config = QpConfig { srq: Some(srq.clone()), ..QpConfig::new(&active.cq) };
    let passive = End { qp: active.pd.create_qp(&config).unwrap(), ..active.sibling() };
    connect_on("127.0.0.1:0", &active, &passive, &ConnectOptions::default(), &ConnectOptions::default());

    assert!(capabilities.shared_receives && capabilities.send_invalidate && capabilities.zero_based);
    let target = passive.region(8, ALL.difference(Access::BIND) | Access::ZERO_BASED);
    assert_eq!(target.base(), 0);
    srq.post_recv(RecvWr::new(1, [])).unwrap();
    srq.post_recv(RecvWr::new(2, [])).unwrap();

    // A sum of two fields: no carry leaves the lower half.
    assert_eq!(capabilities.atomics, Atomics::Masked);
    target.write(0, &0xffff_ffff_u64.to_ne_bytes()).unwrap();
    let sink = active.region(8, capabilities.read_sink);
    let add = Operation::FetchAdd { sink: sink.whole(), remote: target.remote(0), add: 1, mask: 1 << 31 };
    active.qp.post_send(&SendWr::new(3, add)).unwrap();
    assert_eq!(active.success().completed, Completed::FetchAdd);
    assert_eq!(target.read(0, 8).unwrap(), [0; 8]);
    active.qp.post_send(&SendWr::read(4, sink.whole(), target.remote(0))).unwrap();
    assert_eq!(active.success().completed, Completed::Read);
    assert_eq!(sink.read(0, 8).unwrap(), [0; 8]);

    active.qp.post_send(&SendWr::immediate(5, [9; 8]).solicited()).unwrap();
    active.qp.post_send(&SendWr::send_invalidate(6, Vec::new(), target.stag())).unwrap();
    let received = [active.success(), active.success(), active.success(), active.success()];
    assert_eq!(received.iter().find_map(|done| done.immediate).unwrap().len(), capabilities.immediate_len);
    assert!(received.iter().any(|done| done.invalidated == Some(target.stag())));

    assert!(capabilities.windows);
    let region = active.region(8, Access::LOCAL_WRITE | Access::BIND);
    let window = active.pd.allocate_window().unwrap();
    active.qp.post_send(&SendWr::bind(7, window.stag(), region.whole(), Access::REMOTE_WRITE)).unwrap();
    assert_eq!(active.success().completed, Completed::Bind);
}
