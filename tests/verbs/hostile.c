/*
 * Clumsy and hostile use: objects that are destroyed twice, or while they are used, handles of
 * objects that are gone, or of others, and queues that are too small. Ends with 1 at the first
 * answer that is not the manual page's.
 */
#include "calls.h"
#include <fcntl.h>
#include <poll.h>

#define ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)
/* A pointer that is refused, with errno. */
#define NONE(what, error) do { errno = 0; IS(what, NULL); IS(errno, error); } while (0)
/* A call that answers -1, with errno. */
#define MINUS(what, error) do { errno = 0; IS(what, -1); IS(errno, error); } while (0)

static char octets[2][1 << 20];

static struct ibv_qp_init_attr plain(struct ibv_cq *cq)
{
	return (struct ibv_qp_init_attr) {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 8, 8, 1, 1, 0 },
	};
}

static int to_error(struct ibv_qp *qp)
{
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };

	return ibv_modify_qp(qp, &error, IBV_QP_STATE);
}

static int receive(struct ibv_qp *qp, int count)
{
	struct ibv_recv_wr wr = { .wr_id = 1 }, *bad;
	int error = 0;

	while (count-- && !error)
		error = ibv_post_recv(qp, &wr, &bad);
	return error;
}

/* Each object while others use it, twice, and by handles of others. */
static void destroyed_twice(void)
{
	struct ibv_srq_init_attr receives = { .attr = { 4, 1, 0 } };
	struct ibv_qp_init_attr attr, init;
	struct ibv_qp_attr has;
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq, *other;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	void *cq_context;

	unconnected();
	context = client->verbs;
	channel = ibv_create_comp_channel(context);
	cq = ibv_create_cq(context, 8, NULL, channel, 0);
	pd = ibv_alloc_pd(context);
	srq = ibv_create_srq(pd, &receives);
	attr = plain(cq);
	attr.srq = srq;
	qp = ibv_create_qp(pd, &attr);
	mr = ibv_reg_mr(pd, octets[0], 4096, ALL);
	mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	IS(channel && cq && pd && srq && qp && mr && mw, 1);

	IS(ibv_destroy_comp_channel(channel), EBUSY);
	IS(ibv_destroy_cq(cq), EBUSY);
	IS(ibv_destroy_srq(srq), EBUSY);
	IS(ibv_dealloc_pd(pd), EBUSY);
	IS(ibv_destroy_qp((struct ibv_qp *)cq), EINVAL);
	IS(ibv_destroy_cq((struct ibv_cq *)qp), EINVAL);
	IS(ibv_dereg_mr((struct ibv_mr *)mw), EINVAL);
	IS(ibv_dealloc_pd((struct ibv_pd *)context), EINVAL);

	IS(ibv_destroy_qp(qp), 0);
	IS(ibv_destroy_qp(qp), EINVAL);
	IS(to_error(qp), EINVAL);
	IS(ibv_query_qp(qp, &has, IBV_QP_STATE, &init), EINVAL);
	IS(ibv_destroy_srq(srq), 0);
	IS(ibv_destroy_srq(srq), EINVAL);
	IS(ibv_modify_srq(srq, &receives.attr, IBV_SRQ_LIMIT), EINVAL);
	IS(ibv_query_srq(srq, &receives.attr), EINVAL);
	NONE(ibv_create_qp(pd, &attr), EINVAL);
	attr.srq = NULL;
	IS(context->ops.dealloc_mw(mw), 0);
	IS(context->ops.dealloc_mw(mw), EINVAL);
	IS(ibv_dereg_mr(mr), 0);
	IS(ibv_dereg_mr(mr), EINVAL);
	IS(ibv_dealloc_pd(pd), 0);
	IS(ibv_dealloc_pd(pd), EINVAL);
	NONE(ibv_create_qp(pd, &attr), EINVAL);
	NONE(ibv_create_srq(pd, &receives), EINVAL);
	NONE((ibv_reg_mr)(pd, octets[0], 4096, ALL), EINVAL);
	NONE(context->ops.alloc_mw(pd, IBV_MW_TYPE_1), EINVAL);
	IS(ibv_destroy_cq(cq), 0);
	IS(ibv_destroy_cq(cq), EINVAL);
	IS(ibv_resize_cq(cq, 16), EINVAL);
	NONE(ibv_create_qp(client->pd, &attr), EINVAL);
	IS(ibv_destroy_comp_channel(channel), 0);
	IS(ibv_destroy_comp_channel(channel), EINVAL);
	MINUS(ibv_get_cq_event(channel, &other, &cq_context), EINVAL);
	NONE(ibv_create_cq(context, 8, NULL, channel, 0), EINVAL);
	rdma_destroy_ep(client);
	rdma_destroy_ep(listener);
}

/* Calls on a device that is closed. */
static void closed(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = ibv_open_device(list[0]);
	struct ibv_device_attr attr;
	struct ibv_async_event event;

	IS(ibv_close_device(context), 0);
	IS(ibv_close_device(context) != 0, 1);
	NONE(ibv_alloc_pd(context), EINVAL);
	NONE(ibv_create_comp_channel(context), EINVAL);
	NONE(ibv_create_cq(context, 1, NULL, NULL, 0), EINVAL);
	IS(ibv_query_device(context, &attr), EINVAL);
	MINUS(ibv_get_async_event(context, &event), EINVAL);
	ibv_free_device_list(list);
}

/* Steps of ids that are not due, or of ids that are gone. */
static void ids(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *event;
	struct rdma_cm_id *id, *gone;
	struct sockaddr *to;

	unconnected();
	to = rdma_get_peer_addr(client);
	IS(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	MINUS(rdma_connect(id, NULL), EINVAL);
	MINUS(rdma_accept(id, NULL), EINVAL);
	MINUS(rdma_reject(id, NULL, 0), EINVAL);
	MINUS(rdma_disconnect(id), EINVAL);
	MINUS(rdma_resolve_route(id, 10), EINVAL);
	MINUS(rdma_get_request(id, &gone), EINVAL);
	IS(rdma_resolve_addr(id, NULL, to, 10), 0);
	MINUS(rdma_resolve_addr(id, NULL, to, 10), EINVAL);
	MINUS(rdma_listen(id, 1), EINVAL);
	MINUS(rdma_bind_addr(id, to), EINVAL);
	IS(rdma_get_cm_event(channel, &event), 0);
	IS(event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	IS(rdma_ack_cm_event(event), 0);
	MINUS(rdma_ack_cm_event(event), EINVAL);
	IS(rdma_destroy_id(id), 0);
	MINUS(rdma_destroy_id(id), EINVAL);
	MINUS(rdma_resolve_addr(id, NULL, to, 10), EINVAL);
	MINUS(rdma_connect(id, NULL), EINVAL);
	MINUS(rdma_migrate_id(id, channel), EINVAL);
	rdma_destroy_event_channel(channel);
	rdma_destroy_event_channel(channel);
	MINUS(rdma_get_cm_event(channel, &event), EINVAL);
	MINUS(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), EINVAL);
	MINUS(rdma_listen(listener, 1), EINVAL);
	rdma_destroy_ep(client);
	rdma_destroy_ep(client);
	rdma_destroy_ep(listener);
}

/* An id without a channel that is told to disconnect more than once, in any order. */
static void disconnected_twice(void)
{
	join();
	IS(rdma_disconnect(client), 0);
	IS(rdma_disconnect(client), 0);
	rdma_destroy_qp(client);
	IS(rdma_disconnect(client), 0);
	rdma_destroy_qp(server);
	IS(rdma_disconnect(server), 0);
	IS(rdma_disconnect(server), 0);
	MINUS(rdma_connect(client, NULL), EINVAL);
	rdma_destroy_ep(client);
	rdma_destroy_ep(server);
	rdma_destroy_ep(listener);
}

static void *reject(void *unused)
{
	IS(rdma_get_request(listener, &server), 0);
	IS(rdma_reject(server, NULL, 0), 0);
	IS(rdma_disconnect(server), 0);
	return NULL;
}

static void rejected(void)
{
	pthread_t thread;

	unconnected();
	pthread_create(&thread, NULL, reject, NULL);
	MINUS(rdma_connect(client, NULL), ECONNREFUSED);
	pthread_join(thread, NULL);
	IS(rdma_disconnect(client), 0);
	rdma_destroy_ep(client);
	rdma_destroy_ep(server);
	rdma_destroy_ep(listener);
}

/* Work that is under way when its queue pair, or its memory, goes. */
static void outstanding(void)
{
	struct ibv_mr *from, *to, *small;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	int got;

	join();
	from = ibv_reg_mr(server->pd, octets[0], sizeof octets[0], ALL);
	to = ibv_reg_mr(client->pd, octets[1], sizeof octets[1], ALL);
	small = ibv_reg_mr(server->pd, octets[0], 64, ALL);
	for (int n = 0; n < 8; n++) {
		IS(rdma_post_recv(client, NULL, octets[1], 64, to), 0);
		IS(rdma_post_recv(server, NULL, octets[0], 64, small), 0);
		IS(rdma_post_read(client, NULL, octets[1], sizeof octets[1], to, 0,
				  (uintptr_t)octets[0], from->rkey), 0);
	}
	/* Receives name memory that is gone, and the peer's Reads bring what is gone. */
	IS(ibv_dereg_mr(small), 0);
	IS(ibv_dereg_mr(from), 0);
	IS(ibv_dereg_mr(to), 0);
	IS(rdma_post_send(client, NULL, octets[1], 8, NULL, IBV_SEND_INLINE), 0);
	for (int n = 0; n < 9; n++) {
		wc = next(client->send_cq);
		IS(wc.status == IBV_WC_SUCCESS && n == 8, 0);
	}
	for (int n = 0; n < 8; n++)
		IS(next(server->recv_cq).status == IBV_WC_SUCCESS, 0);
	part();

	join();
	from = ibv_reg_mr(server->pd, octets[0], sizeof octets[0], ALL);
	to = ibv_reg_mr(client->pd, octets[1], sizeof octets[1], ALL);
	for (int n = 0; n < 8; n++) {
		IS(rdma_post_recv(client, NULL, octets[1], 64, to), 0);
		IS(rdma_post_recv(server, NULL, octets[0], 64, from), 0);
		IS(rdma_post_read(client, NULL, octets[1], sizeof octets[1], to, 0,
				  (uintptr_t)octets[0], from->rkey), 0);
	}
	cq = client->send_cq;
	IS(ibv_destroy_cq(cq), EBUSY);
	IS(ibv_destroy_qp(client->qp), 0);
	client->qp = NULL;
	/* What was done before may have completed; nothing comes behind. */
	while ((got = ibv_poll_cq(cq, 1, &wc)) > 0)
		;
	IS(got, 0);
	IS(ibv_dereg_mr(to), 0);
	for (int n = 0; n < 8; n++)
		IS(next(server->recv_cq).status, IBV_WC_WR_FLUSH_ERR);
	IS(rdma_post_send(server, NULL, octets[0], 8, NULL, IBV_SEND_INLINE), 0);
	IS(next(server->send_cq).status, IBV_WC_WR_FLUSH_ERR);
	IS(ibv_dereg_mr(from), 0);
	part();
}

/* A window whose queue pair is destroyed holds its region until it is deallocated. */
static void bound(void)
{
	struct ibv_mw_bind bind = { .wr_id = 7 };
	struct ibv_context *context;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	uint32_t before;

	/* Posted together, so that the second goes by the first's key. */
	join();
	mr = ibv_reg_mr(client->pd, octets[0], 4096, ALL | IBV_ACCESS_MW_BIND);
	mw = ibv_alloc_mw(client->pd, IBV_MW_TYPE_1);
	before = mw->rkey;
	bind.bind_info = (struct ibv_mw_bind_info) { mr, (uintptr_t)octets[0], 64, IBV_ACCESS_REMOTE_READ };
	for (int n = 1; n < 4; n++) {
		IS(ibv_bind_mw(client->qp, mw, &bind), 0);
		IS(mw->rkey, (before & ~0xff) | ((before + n) & 0xff));
	}
	for (int n = 1; n < 4; n++)
		IS(next(client->send_cq).status, IBV_WC_SUCCESS);
	context = mw->context;
	IS(ibv_dereg_mr(mr), EBUSY);
	rdma_destroy_qp(client);
	IS(ibv_dereg_mr(mr), EBUSY);
	IS(context->ops.dealloc_mw(mw), 0);
	IS(ibv_dereg_mr(mr), 0);
	part();
}

/* The next asynchronous event, if there is one within so many milliseconds. */
static int told(struct ibv_context *context, void *element, int milliseconds)
{
	struct pollfd fd = { .fd = context->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	if (!poll(&fd, 1, milliseconds))
		return -1;
	IS(ibv_get_async_event(context, &event), 0);
	IS(event.element.cq == element, 1);
	ibv_ack_async_event(&event);
	return event.event_type;
}

/* Queues too small for what is flushed, by queue pairs that were never connected. */
static void overrun(void)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 2, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_poll_cq_attr poll = { 0 };
	struct ibv_qp_init_attr init;
	struct ibv_cq_ex *extended;
	struct ibv_qp *qps[2];
	struct ibv_cq *cq;
	struct ibv_wc wc[4];

	unconnected();
	cq = ibv_create_cq(client->verbs, 3, NULL, NULL, 0);
	for (int n = 0; n < 2; n++) {
		init = plain(cq);
		qps[n] = ibv_create_qp(client->pd, &init);
		IS(receive(qps[n], 2), 0);
	}
	IS(receive(qps[0], 6), 0);
	IS(receive(qps[0], 1), ENOMEM);
	IS(to_error(qps[1]), 0);
	IS(told(client->verbs, cq, 0), -1);
	IS(to_error(qps[0]), 0);
	IS(told(client->verbs, cq, 20000), IBV_EVENT_CQ_ERR);
	IS(ibv_poll_cq(cq, 4, wc), 3);
	IS(wc[2].status, IBV_WC_WR_FLUSH_ERR);
	IS(ibv_poll_cq(cq, 4, wc), -1);
	IS(ibv_poll_cq(cq, 1, wc), -1);
	IS(ibv_req_notify_cq(cq, 0), 0);
	/* Told once, whatever its queue pairs still do; and nothing is posted whose completion would be
	 * lost. */
	IS(receive(qps[1], 1), EIO);
	IS(told(client->verbs, cq, 100), -1);
	IS(ibv_destroy_cq(cq), EBUSY);
	for (int n = 0; n < 2; n++)
		IS(ibv_destroy_qp(qps[n]), 0);
	IS(ibv_destroy_cq(cq), 0);

	extended = ibv_create_cq_ex(client->verbs, &attr);
	init = plain(ibv_cq_ex_to_cq(extended));
	qps[0] = ibv_create_qp(client->pd, &init);
	IS(receive(qps[0], 3), 0);
	IS(to_error(qps[0]), 0);
	IS(told(client->verbs, extended, 20000), IBV_EVENT_CQ_ERR);
	IS(ibv_start_poll(extended, &poll), 0);
	IS(ibv_next_poll(extended), 0);
	IS(ibv_next_poll(extended), EIO);
	ibv_end_poll(extended);
	IS(ibv_destroy_qp(qps[0]), 0);
	IS(ibv_destroy_cq(ibv_cq_ex_to_cq(extended)), 0);
	rdma_destroy_ep(client);
	rdma_destroy_ep(listener);
}

/* A connection ends when the completions of its end do not fit. */
static void overrun_while_connected(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_cq *cq;
	struct ibv_wc wc[2];

	unconnected();
	cq = ibv_create_cq(client->verbs, 1, NULL, NULL, 0);
	rdma_destroy_qp(client);
	init = plain(cq);
	IS(rdma_create_qp(client, NULL, &init), 0);
	connect_both();
	IS(receive(server->qp, 4), 0);
	for (int n = 0; n < 2; n++)
		IS(rdma_post_send(client, NULL, octets[1], 0, NULL, IBV_SEND_INLINE | IBV_SEND_SIGNALED), 0);
	IS(told(client->verbs, cq, 20000), IBV_EVENT_CQ_ERR);
	while (*(volatile enum ibv_qp_state *)&client->qp->state != IBV_QPS_ERR)
		;
	IS(ibv_poll_cq(cq, 2, wc), 1);
	IS(wc[0].status, IBV_WC_SUCCESS);
	IS(ibv_poll_cq(cq, 1, wc), -1);
	part();
	IS(ibv_destroy_cq(cq), 0);
}

int main(void)
{
	destroyed_twice();
	closed();
	ids();
	disconnected_twice();
	rejected();
	outstanding();
	bound();
	overrun();
	overrun_while_connected();
	return 0;
}
