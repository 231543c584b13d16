//! Connections between ids of this process, by the functions that programs call.

use std::ffi::c_void;
use std::net::SocketAddr;
use std::ptr::{null, null_mut};

use nix::errno::Errno;

use super::super::abi::*;
use super::super::handle::find;
use super::super::modify::{ibv_modify_qp, ibv_query_qp};
use super::super::queue_pair::Qp;
use super::super::tests::TURN;
use super::address::{rdma_bind_addr, rdma_get_src_port, rdma_resolve_addr, rdma_resolve_route, store};
use super::channel::*;
use super::connect::*;
use super::endpoint::rdma_get_request;
use super::id::*;
use super::info::{rdma_freeaddrinfo, rdma_getaddrinfo};
use super::listen::rdma_listen;
use super::option::rdma_set_option;
use super::queue_pair::{rdma_create_qp, rdma_destroy_qp};

/// An id, and the channel that it reports to.
struct End {
    channel: *mut rdma_event_channel,
    id: *mut rdma_cm_id,
}

/// An event, which has been acknowledged.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    kind: u32,
    status: i32,
    data: Vec<u8>,
    id: *mut rdma_cm_id,
    /// `responder_resources` and `initiator_depth`
    depths: (u8, u8),
}

/// Returns an address of this host, which stays.
fn address(port: u16) -> *const libc::sockaddr {
    let room = Box::leak(Box::new(libc::sockaddr_storage::zeroed()));
    // SAFETY: room for the address.
    unsafe { store(SocketAddr::from(([127, 0, 0, 1], port)), room) };
    (&raw const *room).cast()
}

fn param(data: &[u8], ird: u8, ord: u8) -> rdma_conn_param {
    rdma_conn_param {
        private_data: data.as_ptr().cast::<c_void>(),
        private_data_len: data.len() as u8,
        responder_resources: ird,
        initiator_depth: ord,
        flow_control: 0,
        retry_count: 0,
        rnr_retry_count: 0,
        srq: 0,
        qp_num: 0,
    }
}

/// Takes the next event of a channel.
fn next(channel: *mut rdma_event_channel) -> Seen {
    let mut event = null_mut();
    // SAFETY: room for a pointer; what is behind it stays until it is acknowledged.
    unsafe {
        assert_eq!(rdma_get_cm_event(channel, &raw mut event), 0);
        let rdma_cm_event { id, event: kind, status, param, .. } = &*event;
        let data = match param.private_data_len {
            0 => Vec::new(),
            len => std::slice::from_raw_parts(param.private_data.cast::<u8>(), usize::from(len)).to_vec(),
        };
        let depths = (param.responder_resources, param.initiator_depth);
        let seen = Seen { kind: *kind, status: *status, data, id: *id, depths };
        assert_eq!(rdma_ack_cm_event(event), 0);
        seen
    }
}

impl End {
    fn new() -> End {
        let (channel, mut id) = (rdma_create_event_channel(), null_mut());
        // SAFETY: room for a pointer.
        assert_eq!(unsafe { rdma_create_id(channel, &raw mut id, null_mut(), port_space::TCP) }, 0);
        End { channel, id }
    }

    /// Makes an end that listens. Returns it with its port.
    fn listening() -> (End, u16) {
        let end = End::new();
        // SAFETY: the address is there.
        assert_eq!(unsafe { rdma_bind_addr(end.id, address(0)) }, 0);
        assert_eq!(rdma_listen(end.id, 4), 0);
        let port = u16::from_be(rdma_get_src_port(end.id));
        (end, port)
    }

    /// Makes an end that begins to connect.
    fn connecting(port: u16, param: &rdma_conn_param) -> End {
        let end = End::new();
        // SAFETY: the addresses and parameters are there.
        unsafe {
            assert_eq!(rdma_resolve_addr(end.id, null(), address(port), 1000), 0);
            assert_eq!(next(end.channel).kind, cm::ADDR_RESOLVED);
            assert_eq!(rdma_resolve_route(end.id, 1000), 0);
            assert_eq!(next(end.channel).kind, cm::ROUTE_RESOLVED);
            create_qp(end.id);
            assert_eq!(rdma_connect(end.id, param), 0);
        }
        end
    }
}

impl Drop for End {
    fn drop(&mut self) {
        rdma_destroy_qp(self.id);
        assert_eq!(rdma_destroy_id(self.id), 0);
        rdma_destroy_event_channel(self.channel);
    }
}

fn create_qp(id: *mut rdma_cm_id) {
    let mut attr = ibv_qp_init_attr {
        qp_context: null_mut(),
        send_cq: null_mut(),
        recv_cq: null_mut(),
        srq: null_mut(),
        cap: ibv_qp_cap { max_send_wr: 4, max_recv_wr: 4, ..ibv_qp_cap::default() },
        qp_type: qp_type::RC,
        sq_sig_all: 1,
    };
    // SAFETY: the structure is there.
    assert_eq!(unsafe { rdma_create_qp(id, null_mut(), &raw mut attr) }, 0, "{}", Errno::last());
}

#[test]
fn connections_are_made_and_end_once_at_either_end() {
    let _turn = TURN.lock();
    let (server, port) = End::listening();
    let client = End::connecting(port, &param(b"from here", 3, 5));
    let request = next(server.channel);
    assert_eq!(
        (request.kind, &request.data[..], request.depths),
        (cm::CONNECT_REQUEST, &b"from here"[..], (3, 5))
    );
    let accepted = End { channel: rdma_create_event_channel(), id: request.id };
    assert_eq!(rdma_migrate_id(accepted.id, accepted.channel), 0);
    create_qp(accepted.id);
    // SAFETY: the parameters are there.
    assert_eq!(unsafe { rdma_accept(accepted.id, &param(b"from there", 2, 2)) }, 0);
    assert_eq!(next(accepted.channel).kind, cm::ESTABLISHED);
    let reply = next(client.channel);
    assert_eq!((reply.kind, reply.status, &reply.data[..]), (cm::ESTABLISHED, 0, &b"from there"[..]));
    assert_eq!(rdma_disconnect(client.id), 0);
    assert_eq!([next(accepted.channel).kind, next(client.channel).kind], [cm::DISCONNECTED; 2]);
    for id in [accepted.id, client.id] {
        // SAFETY: the id is there.
        let qp = find::<Qp>(unsafe { (*id).qp }).unwrap();
        assert_eq!((qp.state(), rdma_disconnect(id)), (qp_state::ERR, 0));
        assert!(find::<Id>(id).unwrap().state.lock().channel.events.is_empty(), "told once");
    }
}

#[test]
fn a_queue_pair_in_error_ends_its_connection() {
    let _turn = TURN.lock();
    let (server, port) = End::listening();
    let client = End::connecting(port, &param(b"", 1, 1));
    let accepted = End { channel: rdma_create_event_channel(), id: next(server.channel).id };
    assert_eq!(rdma_migrate_id(accepted.id, accepted.channel), 0);
    create_qp(accepted.id);
    // SAFETY: the structures are there.
    unsafe {
        assert_eq!(rdma_accept(accepted.id, null()), 0);
        assert_eq!([next(accepted.channel).kind, next(client.channel).kind], [cm::ESTABLISHED; 2]);
        let wanted = ibv_qp_attr { qp_state: qp_state::ERR, ..ibv_qp_attr::default() };
        assert_eq!(ibv_modify_qp((*client.id).qp, &raw const wanted, qp_mask::STATE as i32), 0);
    }
    assert_eq!([next(client.channel).kind, next(accepted.channel).kind], [cm::DISCONNECTED; 2]);
}

#[test]
fn a_rejection_says_why() {
    let _turn = TURN.lock();
    let (server, port) = End::listening();
    let client = End::connecting(port, &param(b"", 1, 1));
    let request = next(server.channel);
    // SAFETY: the data are there.
    assert_eq!(unsafe { rdma_reject(request.id, b"no".as_ptr().cast(), 2) }, 0);
    assert_eq!(rdma_destroy_id(request.id), 0);
    let answer = next(client.channel);
    assert_eq!(
        (answer.kind, answer.status, &answer.data[..]),
        (cm::REJECTED, -libc::ECONNREFUSED, &b"no"[..])
    );
}

#[test]
fn a_port_where_nobody_listens_refuses() {
    let _turn = TURN.lock();
    let (server, port) = End::listening();
    drop(server);
    let client = End::connecting(port, &param(b"", 1, 1));
    let answer = next(client.channel);
    assert_eq!((answer.kind, answer.status), (cm::REJECTED, -libc::ECONNREFUSED));
}

#[test]
fn a_request_that_the_program_never_saw_is_rejected() {
    let _turn = TURN.lock();
    let (server, port) = End::listening();
    let client = End::connecting(port, &param(b"", 1, 1));
    let channel = find::<Channel>(server.channel).unwrap();
    while channel.events.is_empty() {
        std::thread::yield_now();
    }
    drop(channel);
    drop(server);
    assert_eq!(next(client.channel).kind, cm::REJECTED);
}

#[test]
fn an_id_takes_its_events_along_to_another_channel() {
    let _turn = TURN.lock();
    let (end, other) = (End::new(), rdma_create_event_channel());
    // SAFETY: the address is there.
    assert_eq!(unsafe { rdma_resolve_addr(end.id, null(), address(9), 1000) }, 0);
    assert_eq!(rdma_migrate_id(end.id, other), 0);
    assert_eq!(next(other).kind, cm::ADDR_RESOLVED);
    rdma_destroy_event_channel(other);
}

#[test]
fn an_id_without_a_channel_waits_for_its_steps() {
    let _turn = TURN.lock();
    let (mut listening, mut id, mut accepted) = (null_mut(), null_mut(), null_mut());
    // SAFETY: rooms and addresses are there.
    unsafe {
        assert_eq!(rdma_create_id(null_mut(), &raw mut listening, null_mut(), port_space::TCP), 0);
        assert_eq!(rdma_bind_addr(listening, address(0)), 0);
        assert_eq!(rdma_listen(listening, 0), 0);
        let port = u16::from_be(rdma_get_src_port(listening));
        assert_eq!(rdma_create_id(null_mut(), &raw mut id, null_mut(), port_space::TCP), 0);
        assert_eq!(rdma_resolve_addr(id, null(), address(port), 1000), 0);
        assert_eq!(rdma_resolve_route(id, 1000), 0);
        create_qp(id);
        let shown = id.expose_provenance();
        let connecting =
            std::thread::spawn(move || rdma_connect(std::ptr::with_exposed_provenance_mut(shown), null()));
        assert_eq!(rdma_get_request(listening, &raw mut accepted), 0);
        create_qp(accepted);
        assert_eq!(rdma_accept(accepted, null()), 0);
        assert_eq!(connecting.join().unwrap(), 0);
        assert_eq!((*(*id).event).event, cm::ESTABLISHED);
        assert_eq!([rdma_disconnect(id), rdma_disconnect(accepted)], [0, 0]);
        for id in [id, accepted, listening] {
            rdma_destroy_qp(id);
            assert_eq!(rdma_destroy_id(id), 0);
        }
    }
}

#[test]
fn addresses_without_a_name_are_those_of_the_hints() {
    let mut found = null_mut();
    let mut hints = rdma_addrinfo::zeroed();
    hints.ai_family = libc::AF_INET;
    (hints.ai_dst_addr, hints.ai_dst_len) = (address(7471).cast_mut(), size_of::<libc::sockaddr_in>() as u32);
    (hints.ai_src_addr, hints.ai_src_len) = (address(0).cast_mut(), hints.ai_dst_len);
    // SAFETY: addresses and rooms are there.
    unsafe {
        assert_eq!(rdma_getaddrinfo(null(), null(), &raw const hints, &raw mut found), 0);
        let (source, destination) = ((*found).ai_src_addr, (*found).ai_dst_addr);
        assert_eq!([(*found).ai_src_len, (*found).ai_dst_len], [hints.ai_dst_len; 2]);
        assert_eq!((*found).ai_family, libc::AF_INET);
        assert_eq!((*source.cast::<libc::sockaddr_in>()).sin_port, 0);
        assert_eq!((*destination.cast::<libc::sockaddr_in>()).sin_port, 7471u16.to_be());
        rdma_freeaddrinfo(found);
        assert_eq!(rdma_getaddrinfo(null(), null(), null(), &raw mut found), -1);
    }
    assert_eq!(Errno::last(), Errno::EINVAL);
}

#[test]
fn an_id_that_is_bound_has_a_domain_and_gives_its_queue_pair_its_time_limit() {
    let _turn = TURN.lock();
    let (mut id, limit) = (null_mut(), 21u8);
    let (mut attr, mut init) = (ibv_qp_attr::default(), ibv_qp_init_attr::zeroed());
    // SAFETY: rooms and addresses are there.
    unsafe {
        assert_eq!(rdma_create_id(null_mut(), &raw mut id, null_mut(), port_space::TCP), 0);
        assert!((*id).pd.is_null());
        assert_eq!(rdma_bind_addr(id, address(0)), 0);
        assert!(!(*id).pd.is_null());
        create_qp(id);
        let (level, name) = (option::LEVEL_ID, option::ACK_TIMEOUT);
        assert_eq!(rdma_set_option(id, level, name, (&raw const limit).cast(), 1), 0);
        assert_eq!(ibv_query_qp((*id).qp, &raw mut attr, 0, &raw mut init), 0);
        assert_eq!((attr.timeout, attr.qp_state), (limit, qp_state::INIT));
        rdma_destroy_qp(id);
        assert_eq!(rdma_destroy_id(id), 0);
    }
}
