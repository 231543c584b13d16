/*
 * Queue pairs and the ids that connect them, both ends in this process: states without a
 * connection, attributes, queue pairs that come to an id by other ways than rdma_create_qp, ids
 * that go before their queue pairs, ports, and the kinds of asynchronous events. Ends with 1 at the
 * first answer that is not the manual page's, or that of Linux's iWARP devices.
 */
#include "calls.h"
#include <net/if.h>

static char octets[2][64];

static struct rdma_event_channel *channels[2];

/* Makes an id that listens and one whose route to it is resolved, with channels. */
static void resolved(void)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	for (int end = 0; end < 2; end++)
		channels[end] = rdma_create_event_channel();
	IS(rdma_create_id(channels[0], &listener, NULL, RDMA_PS_TCP), 0);
	IS(rdma_bind_addr(listener, (struct sockaddr *)&addr), 0);
	IS(rdma_get_src_port(listener) != 0, 1);
	IS(rdma_listen(listener, 1), 0);
	addr.sin_port = rdma_get_src_port(listener);
	IS(rdma_create_id(channels[1], &client, NULL, RDMA_PS_TCP), 0);
	IS(rdma_resolve_addr(client, NULL, (struct sockaddr *)&addr, 1000), 0);
	IS(expect_event(channels[1], RDMA_CM_EVENT_ADDR_RESOLVED), client);
	IS(rdma_resolve_route(client, 1000), 0);
	IS(expect_event(channels[1], RDMA_CM_EVENT_ROUTE_RESOLVED), client);
}

static struct ibv_qp_init_attr wanted(struct ibv_cq *cq)
{
	return (struct ibv_qp_init_attr) { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { 8, 8, 1, 1, 64 } };
}

/* As with siw: without a connection, whatever its state, a queue pair takes receives alone, and
   flushes requests once it has failed. */
static void requests_need_a_connection(struct ibv_qp *qp, int failed)
{
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad = NULL;
	struct ibv_recv_wr receive = { 0 }, *unposted;

	IS(ibv_post_send(qp, &send, &bad), failed ? 0 : ENOTCONN);
	IS(bad, failed ? NULL : &send);
	IS(ibv_post_recv(qp, &receive, &unposted), 0);
	for (int n = 0; n < 2 * failed; n++)
		IS(next(qp->send_cq).status, IBV_WC_WR_FLUSH_ERR);
}

/* As with siw: RTR is noted, and RTS needs a connection. */
static void states_without_a_connection(void)
{
	int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	int rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	int rts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		IBV_QP_MAX_QP_RD_ATOMIC;
	struct ibv_qp_attr attr = { .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
		.path_mtu = IBV_MTU_512, .dest_qp_num = 77777, .rq_psn = 3, .max_dest_rd_atomic = 5,
		.min_rnr_timer = 12, .timeout = 14, .retry_cnt = 5, .rnr_retry = 6, .sq_psn = 4,
		.max_rd_atomic = 2, .ah_attr = { .is_global = 1, .port_num = 1, .sl = 3 } };
	struct ibv_qp_init_attr made;
	struct ibv_qp_attr told;
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	resolved();
	cq = ibv_create_cq(client->verbs, 16, NULL, NULL, 0);
	made = wanted(cq);
	qp = ibv_create_qp(client->pd, &made);
	requests_need_a_connection(qp, 0);
	attr.qp_state = IBV_QPS_INIT;
	IS(ibv_modify_qp(qp, &attr, init), 0);
	requests_need_a_connection(qp, 0);
	attr.qp_state = IBV_QPS_RTR;
	IS(ibv_modify_qp(qp, &attr, rtr), 0);
	requests_need_a_connection(qp, 0);
	attr.qp_state = IBV_QPS_RTS;
	IS(ibv_modify_qp(qp, &attr, rts), EINVAL);
	requests_need_a_connection(qp, 0);
	IS(ibv_query_qp(qp, &told, rtr, &made), 0);
	IS(told.qp_state, IBV_QPS_RTR);
	/* What a step that is refused sets is not kept; what others set is. */
	IS(told.timeout | told.sq_psn | told.max_rd_atomic, 0);
	/* As many retries as count where nobody sets them. */
	IS(told.retry_cnt, 7);
	IS(ibv_modify_qp(qp, &attr, rts & ~IBV_QP_STATE), 0);
	IS(ibv_query_qp(qp, &told, rts, &made), 0);
	IS(told.qp_access_flags, IBV_ACCESS_REMOTE_WRITE);
	IS(told.path_mtu, IBV_MTU_512);
	IS(told.dest_qp_num, 77777);
	IS(told.rq_psn == 3 && told.sq_psn == 4, 1);
	IS(told.max_dest_rd_atomic == 5 && told.max_rd_atomic == 2, 1);
	IS(told.min_rnr_timer == 12 && told.timeout == 14, 1);
	IS(told.retry_cnt == 5 && told.rnr_retry == 6, 1);
	IS(told.ah_attr.sl, 3);
	attr.qp_state = IBV_QPS_ERR;
	IS(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	for (int n = 0; n < 4; n++)
		IS(next(cq).status, IBV_WC_WR_FLUSH_ERR);
	requests_need_a_connection(qp, 1);
	attr.qp_state = IBV_QPS_RESET;
	IS(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	requests_need_a_connection(qp, 0);
	IS(ibv_destroy_qp(qp), 0);
	made = wanted(cq);
	IS(rdma_create_qp(client, NULL, &made), 0);
	requests_need_a_connection(client->qp, 0);
	IS(ibv_query_qp(client->qp, &told, 0, &made), 0);
	IS(told.qp_access_flags, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	rdma_destroy_qp(client);
	IS(ibv_destroy_cq(cq), 0);
	IS(rdma_destroy_id(client) | rdma_destroy_id(listener), 0);
	rdma_destroy_event_channel(channels[0]);
	rdma_destroy_event_channel(channels[1]);
}

enum way { CREATED, MOVED, PLACED, NAMED };

/* Gives an id a queue pair. Returns the id by which it was made, if that is another. */
static struct rdma_cm_id *equip(struct rdma_cm_id *id, enum way way, struct ibv_cq *cq,
	struct rdma_conn_param *param, struct ibv_qp **qp)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct ibv_qp_init_attr attr = wanted(cq);
	struct rdma_cm_id *other = NULL;

	if (way == CREATED) {
		IS(rdma_create_qp(id, id->pd, &attr), 0);
	} else if (way == MOVED) {
		/* As uDAPL does. */
		IS(rdma_create_id(id->channel, &other, NULL, RDMA_PS_TCP), 0);
		IS(rdma_bind_addr(other, (struct sockaddr *)&addr), 0);
		IS(rdma_create_qp(other, id->pd, &attr), 0);
		id->qp = other->qp;
		other->qp = NULL;
	} else {
		*qp = ibv_create_qp(id->pd, &attr);
		if (way == PLACED)
			id->qp = *qp;
		param->qp_num = (*qp)->qp_num;
		return NULL;
	}
	*qp = id->qp;
	return other;
}

/* Whichever way its queue pair came, an id connects it, from the port that it had before. The id
   that made it goes, and that changes nothing. Then the id of one end goes, whose queue pair lives
   on: its requests are flushed, and the other end is told. */
static void queue_pairs_of_any_origin(enum way here, enum way there, int client_goes)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1, .retry_count = 3 };
	struct rdma_cm_id *others[2], *staying;
	struct ibv_qp_init_attr made;
	struct ibv_qp_attr told;
	struct ibv_recv_wr wr = { 0 }, *bad;
	struct ibv_qp *qps[2];
	struct ibv_cq *cq;
	int port;

	resolved();
	port = rdma_get_src_port(client);
	IS(port != 0, 1);
	cq = ibv_create_cq(client->verbs, 16, NULL, NULL, 0);
	others[0] = equip(client, here, cq, &param, &qps[0]);
	IS(rdma_connect(client, &param), 0);
	server = expect_event(channels[0], RDMA_CM_EVENT_CONNECT_REQUEST);
	IS(rdma_get_dst_port(server), port);
	others[1] = equip(server, there, cq, &param, &qps[1]);
	IS(rdma_accept(server, &param), 0);
	IS(expect_event(channels[0], RDMA_CM_EVENT_ESTABLISHED), server);
	IS(expect_event(channels[1], RDMA_CM_EVENT_ESTABLISHED), client);
	IS(rdma_get_src_port(client), port);
	for (int end = 0; end < 2; end++) {
		if (others[end])
			IS(rdma_destroy_id(others[end]), 0);
		IS(qps[end]->state, IBV_QPS_RTS);
		IS(ibv_query_qp(qps[end], &told, IBV_QP_RETRY_CNT, &made), 0);
		IS(told.retry_cnt, end ? 7 : 3);
		IS(ibv_post_recv(qps[end], &wr, &bad), 0);
	}
	IS(rdma_destroy_id(client_goes ? client : server), 0);
	staying = client_goes ? server : client;
	IS(expect_event(staying->channel, RDMA_CM_EVENT_DISCONNECTED), staying);
	for (int end = 0; end < 2; end++)
		IS(next(cq).status, IBV_WC_WR_FLUSH_ERR);
	IS(rdma_destroy_id(staying), 0);
	IS(rdma_destroy_id(listener), 0);
	for (int end = 0; end < 2; end++) {
		rdma_destroy_event_channel(channels[end]);
		IS(ibv_destroy_qp(qps[end]), 0);
	}
	IS(ibv_destroy_cq(cq), 0);
}

/* ibv_wr_post(3) limits the sum of inline data, and ibv_create_qp_ex(3) lets a program ask for more
   operations than it will use. */
static void extended_pairs(void)
{
	struct ibv_data_buf bufs[3] = { { "ab", 2 }, { "cd", 2 }, { "e", 2 } };
	struct ibv_qp_init_attr_ex attr = { .qp_type = IBV_QPT_RC, .cap = { 8, 8, 1, 1, 64 } };
	struct ibv_mr *mr;
	struct ibv_qp_ex *qp;
	struct ibv_cq *cq;

	unconnected();
	rdma_destroy_qp(client);
	cq = ibv_create_cq(client->verbs, 16, NULL, NULL, 0);
	attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	attr.pd = client->pd;
	attr.send_cq = attr.recv_cq = cq;
	attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
		IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_TSO;
	IS(rdma_create_qp_ex(client, &attr), 0);
	qp = ibv_qp_to_qp_ex(client->qp);
	connect_both();
	mr = ibv_reg_mr(server->pd, octets[0], sizeof octets[0], IBV_ACCESS_LOCAL_WRITE);
	IS(rdma_post_recv(server, NULL, octets[0], 8, mr), 0);
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_start(qp);
	ibv_wr_rdma_write_imm(qp, 1, 2, 3);
	IS(ibv_wr_complete(qp), EOPNOTSUPP);
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	ibv_wr_set_inline_data_list(qp, 3, bufs);
	IS(ibv_wr_complete(qp), 0);
	IS(next(cq).status, IBV_WC_SUCCESS);
	IS(next(server->recv_cq).byte_len, 6);
	IS(strcmp(octets[0], "abcde"), 0);
	rdma_disconnect(client);
	rdma_destroy_qp(client);
	IS(ibv_destroy_cq(cq), 0);
	IS(ibv_dereg_mr(mr), 0);
	rdma_destroy_ep(client);
	rdma_destroy_ep(server);
	rdma_destroy_ep(listener);
}

/* The responder's event, by what the peer did (ibv_get_async_event(3)). */
static void kinds_of_events(void)
{
	enum ibv_event_type kinds[] = { IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_FATAL };
	struct ibv_recv_wr none = { 0 }, *bad;
	struct ibv_async_event seen;
	struct ibv_mr *mr;
	struct ibv_qp *qp;

	for (int n = 0; n < 3; n++) {
		join();
		mr = ibv_reg_mr(client->pd, octets[1], sizeof octets[1], IBV_ACCESS_LOCAL_WRITE);
		qp = server->qp;
		if (n == 0)
			IS(rdma_post_write(client, NULL, octets[1], 8, mr, 0, 4096, 77), 0);
		else if (n == 1)
			IS(rdma_post_read(client, NULL, octets[1], 8, mr, 0, 4096, 77), 0);
		else
			IS(ibv_post_recv(qp, &none, &bad) | rdma_post_send(client, NULL, octets[1], 8, mr, 0), 0);
		IS(ibv_get_async_event(server->verbs, &seen), 0);
		IS(seen.event_type, kinds[n]);
		IS(seen.element.qp, qp);
		ibv_ack_async_event(&seen);
		IS(ibv_dereg_mr(mr), 0);
		part();
	}
}

/* Programs look for the network interface by it. */
static void the_interface_is_told(void)
{
	struct ibv_context *context = ibv_open_device(ibv_get_device_list(NULL)[0]);
	struct ibv_gid_entry entry;
	char name[IF_NAMESIZE];

	IS(ibv_query_gid_ex(context, 1, 0, &entry, 0), 0);
	IS(if_indextoname(entry.ndev_ifindex, name) != NULL, 1);
}

int main(void)
{
	states_without_a_connection();
	for (int way = CREATED; way <= NAMED; way++) {
		queue_pairs_of_any_origin(way, CREATED, way & 1);
		queue_pairs_of_any_origin(CREATED, way, way & 1);
	}
	extended_pairs();
	kinds_of_events();
	the_interface_is_told();
	return 0;
}
