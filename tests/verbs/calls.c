/*
 * Calls that no program of Debian's makes, both ends in this process: memory windows, regions that
 * are registered anew, extended completion queues. Ends with 1 at the first answer that is not the
 * manual page's.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define IS(what, wanted) is(__LINE__, #what, (long)(what), (long)(wanted))
#define REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)
#define ALL (IBV_ACCESS_LOCAL_WRITE | REMOTE)

static void is(int line, const char *what, long got, long wanted)
{
	if (got == wanted)
		return;
	printf("calls.c:%d: %s is %ld, not %ld (errno %d)\n", line, what, got, wanted, errno);
	exit(1);
}

static struct rdma_cm_id *listener, *server, *client;
static char octets[2][8192];

static void *serve(void *unused)
{
	IS(rdma_get_request(listener, &server), 0);
	IS(rdma_accept(server, NULL), 0);
	return NULL;
}

/* Connects two ids of this process. */
static void join(void)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *info;
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1 };
	char port[8];
	pthread_t thread;

	attr.cap = (struct ibv_qp_cap) { 16, 16, 2, 2, 64 };
	hints.ai_flags = RAI_PASSIVE;
	IS(rdma_getaddrinfo("127.0.0.1", "0", &hints, &info), 0);
	IS(rdma_create_ep(&listener, info, NULL, &attr), 0);
	rdma_freeaddrinfo(info);
	IS(rdma_listen(listener, 1), 0);
	snprintf(port, sizeof port, "%d", ntohs(rdma_get_src_port(listener)));
	pthread_create(&thread, NULL, serve, NULL);
	hints.ai_flags = 0;
	IS(rdma_getaddrinfo("127.0.0.1", port, &hints, &info), 0);
	attr.cap = (struct ibv_qp_cap) { 16, 16, 2, 2, 64 };
	attr.send_cq = attr.recv_cq = NULL;
	IS(rdma_create_ep(&client, info, NULL, &attr), 0);
	rdma_freeaddrinfo(info);
	IS(rdma_connect(client, NULL), 0);
	pthread_join(thread, NULL);
}

static void part(void)
{
	rdma_disconnect(client);
	rdma_destroy_ep(client);
	rdma_destroy_ep(server);
	rdma_destroy_ep(listener);
}

/* Waits for one completion. */
static struct ibv_wc next(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	while (!ibv_poll_cq(cq, 1, &wc))
		;
	return wc;
}

static int posted(struct rdma_cm_id *id, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	return ibv_post_send(id->qp, wr, &bad);
}

static void done(struct rdma_cm_id *id, struct ibv_send_wr *wr, int opcode)
{
	struct ibv_wc wc;

	IS(posted(id, wr), 0);
	wc = next(id->send_cq);
	IS(wc.status, IBV_WC_SUCCESS);
	IS(wc.opcode, opcode);
}

/* Reads by a key of the server's, which is refused if it gives no right to. */
static int reads(struct ibv_mr *sink, void *from, uint32_t rkey)
{
	IS(rdma_post_read(client, NULL, octets[1], 8, sink, 0, (uintptr_t)from, rkey), 0);
	return next(client->send_cq).status;
}

static void windows_of_type_1(void)
{
	struct ibv_mr *mr, *sink;
	struct ibv_mw *mw;
	struct ibv_mw_bind bind = { .wr_id = 7 };
	uint32_t before;

	join();
	mr = ibv_reg_mr(server->pd, octets[0], 4096, ALL | IBV_ACCESS_MW_BIND);
	sink = ibv_reg_mr(client->pd, octets[1], 4096, IBV_ACCESS_LOCAL_WRITE);
	mw = ibv_alloc_mw(server->pd, IBV_MW_TYPE_1);
	IS(mw && mr && sink, 1);
	before = mw->rkey;
	bind.bind_info = (struct ibv_mw_bind_info) { mr, (uintptr_t)octets[0], 64, IBV_ACCESS_REMOTE_READ };
	strcpy(octets[0], "window");
	IS(ibv_bind_mw(server->qp, mw, &bind), 0);
	IS(ibv_bind_mw(server->qp, mw, &bind), 0);
	IS(mw->rkey, (before & ~0xff) | ((before + 2) & 0xff));
	IS(next(server->send_cq).opcode, IBV_WC_BIND_MW);
	IS(next(server->send_cq).status, IBV_WC_SUCCESS);
	IS(reads(sink, octets[0], mw->rkey), IBV_WC_SUCCESS);
	IS(strcmp(octets[1], "window"), 0);
	IS(ibv_dereg_mr(mr), EBUSY);
	bind.bind_info.mw_access_flags |= IBV_ACCESS_ZERO_BASED;
	IS(ibv_bind_mw(server->qp, mw, &bind), EINVAL);
	bind.bind_info = (struct ibv_mw_bind_info) { 0 };
	IS(ibv_bind_mw(server->qp, mw, &bind), 0);
	IS(next(server->send_cq).status, IBV_WC_SUCCESS);
	IS(reads(sink, octets[0], mw->rkey) == IBV_WC_SUCCESS, 0);
	IS(ibv_dereg_mr(mr), 0);
	IS(ibv_dealloc_mw(mw), 0);
	IS(ibv_dereg_mr(sink), 0);
	part();
}

static void windows_of_type_2(void)
{
	struct ibv_mr *mr, *sink;
	struct ibv_mw *mw;
	struct ibv_send_wr inv = { .opcode = IBV_WR_LOCAL_INV }, bind = { .opcode = IBV_WR_BIND_MW };
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND_WITH_INV }, again;
	struct ibv_wc wc;
	uint32_t key;

	join();
	mr = ibv_reg_mr(server->pd, octets[0], 4096, ALL | IBV_ACCESS_MW_BIND);
	sink = ibv_reg_mr(client->pd, octets[1], 4096, IBV_ACCESS_LOCAL_WRITE);
	mw = ibv_alloc_mw(server->pd, IBV_MW_TYPE_2);
	IS(ibv_bind_mw(server->qp, mw, &(struct ibv_mw_bind) { 0 }), EINVAL);
	key = ibv_inc_rkey(mw->rkey);
	bind.bind_mw.mw = mw;
	bind.bind_mw.rkey = key;
	bind.bind_mw.bind_info = (struct ibv_mw_bind_info) { mr, (uintptr_t)octets[0], 64, REMOTE };
	/* A list: bound, invalidated, bound under the next key. */
	inv.invalidate_rkey = key;
	again = bind;
	again.bind_mw.rkey = ibv_inc_rkey(key);
	bind.next = &inv;
	inv.next = &again;
	IS(posted(server, &bind), 0);
	IS(next(server->send_cq).opcode, IBV_WC_BIND_MW);
	IS(next(server->send_cq).opcode, IBV_WC_LOCAL_INV);
	IS(next(server->send_cq).status, IBV_WC_SUCCESS);
	key = again.bind_mw.rkey;
	IS(reads(sink, octets[0], key), IBV_WC_SUCCESS);
	IS(rdma_post_recv(server, NULL, octets[0], 8, mr), 0);
	send.invalidate_rkey = key;
	done(client, &send, IBV_WC_SEND);
	wc = next(server->recv_cq);
	IS(wc.wc_flags, IBV_WC_WITH_INV);
	IS(wc.invalidated_rkey, key);
	IS(reads(sink, octets[0], key) == IBV_WC_SUCCESS, 0);
	IS(ibv_dealloc_pd(server->pd), EBUSY);
	IS(ibv_dealloc_mw(mw), 0);
	IS(mw->context->ops.dealloc_mw(mw), EINVAL);
	IS(ibv_dereg_mr(mr), 0);
	IS(ibv_dereg_mr(sink), 0);
	part();
}

static void regions_anew(void)
{
	struct ibv_mr *mr, *sink;
	int error = IBV_REREG_MR_ERR_INPUT;

	join();
	mr = ibv_reg_mr(server->pd, octets[0], 4096, IBV_ACCESS_LOCAL_WRITE);
	sink = ibv_reg_mr(client->pd, octets[1], 4096, IBV_ACCESS_LOCAL_WRITE);
	IS(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0), error);
	IS(errno, EINVAL);
	IS(ibv_rereg_mr(mr, 8, NULL, NULL, 0, 0), error);
	IS(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 8, 0), error);
	IS(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, octets[0], 8, ALL), error);
	IS(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0), error);
	IS(mr->length, 4096);
	IS(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL), 0);
	IS(mr->length, 4096);
	strcpy(octets[0], "anew");
	IS(reads(sink, octets[0], mr->rkey), IBV_WC_SUCCESS);
	IS(strcmp(octets[1], "anew"), 0);
	IS(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, octets[0] + 4096, 64, 0), 0);
	IS(mr->length == 64 && mr->addr == octets[0] + 4096, 1);
	IS(reads(sink, octets[0] + 4096, mr->rkey), IBV_WC_SUCCESS);
	IS(reads(sink, octets[0], mr->rkey) == IBV_WC_SUCCESS, 0);
	IS(ibv_dereg_mr(mr), 0);
	IS(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL), error);
	IS(ibv_dereg_mr(sink), 0);
	part();
}

static void extended_queues(void)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 8, .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP };
	struct ibv_poll_cq_attr poll = { 0 };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1 };
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct ibv_recv_wr wr = { .wr_id = 5 }, *bad;
	struct ibv_cq_ex *cq;
	struct ibv_qp *qp;
	struct ibv_pd *pd;

	join();
	pd = client->pd;
	IS(ibv_create_cq_ex(client->verbs, &attr), NULL);
	IS(errno, EOPNOTSUPP);
	attr.wc_flags = IBV_WC_STANDARD_FLAGS;
	cq = ibv_create_cq_ex(client->verbs, &attr);
	IS(cq != NULL, 1);
	IS(ibv_start_poll(cq, &poll), ENOENT);
	init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(cq);
	init.cap = (struct ibv_qp_cap) { 4, 4, 1, 1, 0 };
	qp = ibv_create_qp(pd, &init);
	IS(ibv_post_recv(qp, &wr, &bad), 0);
	wr.wr_id = 6;
	IS(ibv_post_recv(qp, &wr, &bad), 0);
	IS(ibv_modify_qp(qp, &error, IBV_QP_STATE), 0);
	poll.comp_mask = 1;
	IS(ibv_start_poll(cq, &poll), EINVAL);
	poll.comp_mask = 0;
	IS(ibv_start_poll(cq, &poll), 0);
	IS(cq->wr_id, 5);
	IS(cq->status, IBV_WC_WR_FLUSH_ERR);
	IS(ibv_wc_read_qp_num(cq), qp->qp_num);
	IS(ibv_wc_read_opcode(cq), IBV_WC_RECV);
	IS(ibv_wc_read_wc_flags(cq), 0);
	IS(ibv_next_poll(cq), 0);
	IS(cq->wr_id, 6);
	IS(ibv_next_poll(cq), ENOENT);
	ibv_end_poll(cq);
	IS(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), EBUSY);
	IS(ibv_destroy_qp(qp), 0);
	IS(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
	part();
}

int main(void)
{
	windows_of_type_1();
	windows_of_type_2();
	regions_anew();
	extended_queues();
	return 0;
}
