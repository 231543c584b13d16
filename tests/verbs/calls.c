/*
 * Calls that no program of Debian's makes, both ends in this process: memory windows, regions that
 * are registered anew, extended completion queues and queue pairs. Ends with 1 at the first answer
 * that is not the manual page's.
 */
#include "calls.h"

#define REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)
#define ALL (IBV_ACCESS_LOCAL_WRITE | REMOTE)

static char octets[2][8192];

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
	/* The right of this end changes nothing. */
	bind.bind_mw.bind_info = (struct ibv_mw_bind_info) {
		mr, (uintptr_t)octets[0], 64, REMOTE | IBV_ACCESS_LOCAL_WRITE };
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

/* Gives an id of this process, whose end is `client`, an extended queue pair. */
static struct ibv_qp_ex *extended(uint64_t operations, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr_ex attr = { .qp_type = IBV_QPT_RC };

	attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	attr.pd = client->pd;
	attr.send_ops_flags = operations;
	attr.send_cq = attr.recv_cq = cq;
	attr.cap = (struct ibv_qp_cap) { 8, 8, 2, 2, 64 };
	rdma_destroy_qp(client);
	return rdma_create_qp_ex(client, &attr) ? NULL : ibv_qp_to_qp_ex(client->qp);
}

/* Operations that the device lacks, or that nobody asked for; setters that do not fit. */
static void batches_fail(struct ibv_qp_ex *qp, struct ibv_cq *cq)
{
	struct ibv_data_buf bufs[3] = { { octets[1], 32 }, { octets[1], 33 } };
	struct ibv_sge sges[3] = { { 0 } };
	struct ibv_wc wc;

#define FAILS(error, ...) do { \
	ibv_wr_start(qp); \
	qp->wr_id = 90; \
	ibv_wr_send(qp); \
	ibv_wr_set_inline_data(qp, octets[1], 1); \
	__VA_ARGS__; \
	ibv_wr_send(qp); \
	IS(ibv_wr_complete(qp), error); \
	IS(ibv_poll_cq(cq, 1, &wc), 0); \
} while (0)
	FAILS(EOPNOTSUPP, ibv_wr_rdma_write_imm(qp, 1, 2, 3));
	FAILS(EOPNOTSUPP, ibv_wr_send_imm(qp, 1));
	FAILS(EOPNOTSUPP, ibv_wr_atomic_fetch_add(qp, 1, 2, 3));
	FAILS(EOPNOTSUPP, ibv_wr_atomic_cmp_swp(qp, 1, 2, 3, 4));
	FAILS(EOPNOTSUPP, ibv_wr_send_tso(qp, octets[1], 1, 1));
	FAILS(EOPNOTSUPP, ibv_wr_set_ud_addr(qp, NULL, 1, 1));
	FAILS(EOPNOTSUPP, ibv_wr_set_xrc_srqn(qp, 1));
	FAILS(EOPNOTSUPP, qp->wr_atomic_write(qp, 1, 2, octets));
	FAILS(EINVAL, ibv_wr_bind_mw(qp, NULL, 1, NULL));
	FAILS(EINVAL, ibv_wr_local_inv(qp, 1); ibv_wr_set_sge(qp, 1, 1, 1));
	FAILS(EINVAL, ibv_wr_rdma_read(qp, 1, 1); ibv_wr_set_inline_data(qp, octets[1], 1));
	FAILS(EINVAL, ibv_wr_send(qp); ibv_wr_set_sge(qp, 1, (uintptr_t)octets[1], 1));
	FAILS(EINVAL, ibv_wr_send(qp); ibv_wr_set_sge_list(qp, 3, sges));
	FAILS(EINVAL, ibv_wr_send(qp); ibv_wr_set_sge_list(qp, 2, NULL));
	FAILS(ENOMEM, ibv_wr_send(qp); ibv_wr_set_inline_data(qp, octets[1], 65));
	FAILS(ENOMEM, ibv_wr_send(qp); ibv_wr_set_inline_data_list(qp, 2, bufs));
	FAILS(ENOMEM, for (int i = 0; i < 7; i++) ibv_wr_send(qp));
#undef FAILS
	ibv_wr_start(qp);
	ibv_wr_set_sge(qp, 1, 1, 1);
	IS(ibv_wr_complete(qp), EINVAL);
	IS(ibv_wr_complete(qp), EINVAL);
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	ibv_wr_abort(qp);
	ibv_wr_start(qp);
	IS(ibv_wr_complete(qp), 0);
	IS(ibv_poll_cq(cq, 1, &wc), 0);
}

/* Posts a Send, a Read, a Write, and a window that is bound twice, in one batch each. */
static void batches_are_done(struct ibv_qp_ex *qp, struct ibv_cq *cq)
{
	struct ibv_mr *there = ibv_reg_mr(server->pd, octets[0], 4096, ALL);
	struct ibv_mr *here = ibv_reg_mr(client->pd, octets[1], 4096, ALL | IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = ibv_alloc_mw(client->pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind_info info = { here, (uintptr_t)octets[1], 64, IBV_ACCESS_REMOTE_READ };
	struct ibv_sge sges[2] = {
		{ (uintptr_t)octets[1], 2, here->lkey }, { (uintptr_t)octets[1] + 4, 2, here->lkey }
	};
	struct ibv_data_buf bufs[2] = { { octets[1], 3 }, { octets[1] + 5, 1 } };
	uint32_t key = mw->rkey;
	struct ibv_wc wc;

	IS(rdma_post_recv(server, NULL, octets[0], 64, there), 0);
	IS(rdma_post_recv(server, NULL, octets[0] + 64, 64, there), 0);
	strcpy(octets[1], "abcdef");
	ibv_wr_start(qp);
	qp->wr_flags = 0;
	ibv_wr_rdma_write(qp, there->rkey, (uintptr_t)octets[0] + 128);
	ibv_wr_set_sge_list(qp, 2, sges);
	ibv_wr_rdma_write(qp, there->rkey, (uintptr_t)octets[0] + 132);
	ibv_wr_set_inline_data_list(qp, 2, bufs);
	ibv_wr_send(qp);
	ibv_wr_set_inline_data(qp, octets[1], 7);
	qp->wr_id = 11;
	qp->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
	ibv_wr_rdma_read(qp, there->rkey, (uintptr_t)octets[0] + 128);
	ibv_wr_set_sge(qp, here->lkey, (uintptr_t)octets[1] + 1024, 8);
	/* The octets were copied by now; those of a list are still to be sent. */
	memset(octets[1], 'A', 3);
	IS(ibv_wr_complete(qp), 0);
	wc = next(cq);
	IS(wc.status, IBV_WC_SUCCESS);
	IS(wc.wr_id, 11);
	IS(wc.opcode, IBV_WC_RDMA_READ);
	IS(wc.byte_len, 8);
	IS(memcmp(octets[1] + 1024, "AAefabcf", 8), 0);
	wc = next(server->recv_cq);
	IS(wc.byte_len, 7);
	IS(strcmp(octets[0], "abcdef"), 0);

	/* A batch knows the key that it has given to a window, also when an earlier batch failed. */
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_start(qp);
	ibv_wr_bind_mw(qp, mw, ibv_inc_rkey(key), &info);
	ibv_wr_bind_mw(qp, mw, key ^ 0x100, &info);
	IS(ibv_wr_complete(qp), EINVAL);
	ibv_wr_start(qp);
	ibv_wr_bind_mw(qp, mw, key = ibv_inc_rkey(key), &info);
	ibv_wr_local_inv(qp, key);
	ibv_wr_bind_mw(qp, mw, key = ibv_inc_rkey(key), &info);
	IS(ibv_wr_complete(qp), 0);
	ibv_wr_start(qp);
	ibv_wr_local_inv(qp, key);
	ibv_wr_bind_mw(qp, mw, key = ibv_inc_rkey(key), &info);
	ibv_wr_send_inv(qp, there->rkey);
	IS(ibv_wr_complete(qp), 0);
	for (int i = 0; i < 6; i++)
		IS(next(cq).status, IBV_WC_SUCCESS);
	wc = next(server->recv_cq);
	IS(wc.wc_flags, IBV_WC_WITH_INV);
	IS(wc.invalidated_rkey, there->rkey);
	IS(ibv_dealloc_mw(mw), 0);
	IS(ibv_dereg_mr(here), 0);
	IS(ibv_dereg_mr(there), 0);
}

static void extended_pairs(void)
{
	uint64_t operations = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_INV |
		IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
		IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
	struct ibv_qp_init_attr_ex attr = { .qp_type = IBV_QPT_RC };
	struct ibv_qp_ex *qp;
	struct ibv_cq *cq;
	struct ibv_qp *other;

	unconnected();
	cq = ibv_create_cq(client->verbs, 32, NULL, NULL, 0);
	IS(ibv_qp_to_qp_ex(client->qp), NULL);
	IS(ibv_qp_to_qp_ex(NULL), NULL);
	for (int bit = 0; bit < 16; bit++) {
		int is_known = (operations & 1ull << bit) != 0;

		IS(extended(1ull << bit, cq) != NULL, is_known);
		if (!is_known)
			IS(errno, EOPNOTSUPP);
	}
	attr.send_cq = attr.recv_cq = cq;
	attr.comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	IS(ibv_create_qp_ex(client->verbs, &attr), NULL);
	IS(errno, EINVAL);
	attr.comp_mask |= IBV_QP_INIT_ATTR_PD;
	attr.pd = client->pd;
	other = ibv_create_qp_ex(client->verbs, &attr);
	qp = ibv_qp_to_qp_ex(other);
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	IS(ibv_wr_complete(qp), EOPNOTSUPP);
	IS(ibv_destroy_qp(other), 0);
	qp = extended(operations, cq);
	IS(qp != NULL, 1);
	connect_both();
	batches_fail(qp, cq);
	batches_are_done(qp, cq);
	rdma_disconnect(client);
	ibv_wr_start(qp);
	qp->wr_id = 77;
	ibv_wr_send(qp);
	IS(ibv_wr_complete(qp), 0);
	IS(next(cq).status, IBV_WC_WR_FLUSH_ERR);
	rdma_destroy_ep(client);
	IS(ibv_destroy_cq(cq), 0);
	rdma_destroy_ep(server);
	rdma_destroy_ep(listener);
}

/* A list that leads back to itself is posted as far as the queue goes. */
static void lists_without_an_end(void)
{
	struct ibv_sge sge = { (uintptr_t)octets[0], 1 };
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_READ }, *bad;
	struct ibv_mr *mr;

	join();
	mr = ibv_reg_mr(client->pd, octets[0], sizeof octets[0], IBV_ACCESS_LOCAL_WRITE);
	sge.lkey = mr->lkey;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.next = &wr;
	IS(ibv_post_send(client->qp, &wr, &bad), ENOMEM);
	part();
}

static int posted_until_full(struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int error, count = 0;

	while (!(error = ibv_post_send(client->qp, wr, &bad)) && count < 1000)
		count++;
	IS(error, ENOMEM);
	return count;
}

static int received_until_full(struct rdma_cm_id *id, struct ibv_mr *mr)
{
	int count = 0;

	while (!rdma_post_recv(id, NULL, octets[0], 8, mr) && count < 1000)
		count++;
	IS(errno, ENOMEM);
	return count;
}

/* As the libraries of RNICs count, a request has its place until its completion is polled: of
   queues of 16 that complete into queues of 16, a program may post as long as there are places. */
static void places_until_polled(void)
{
	struct ibv_sge sge = { (uintptr_t)octets[1], 8 };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };
	struct ibv_mr *there, *here;

	join();
	there = ibv_reg_mr(server->pd, octets[0], 4096, ALL);
	here = ibv_reg_mr(client->pd, octets[1], 4096, ALL);
	sge.lkey = here->lkey;
	IS(received_until_full(server, there), 16);
	IS(posted_until_full(&wr), 16);
	IS(next(client->send_cq).status, IBV_WC_SUCCESS);
	wr.opcode = IBV_WR_RDMA_WRITE;
	wr.wr.rdma.remote_addr = (uintptr_t)octets[0];
	wr.wr.rdma.rkey = there->rkey;
	IS(posted_until_full(&wr), 1);
	for (int n = 0; n < 16; n++)
		IS(next(client->send_cq).status, IBV_WC_SUCCESS);
	/* What was sent has arrived before this is answered. */
	IS(reads(here, octets[0], there->rkey), IBV_WC_SUCCESS);
	IS(received_until_full(server, there), 0);
	for (int n = 0; n < 2; n++)
		IS(next(server->recv_cq).status, IBV_WC_SUCCESS);
	IS(received_until_full(server, there), 2);
	part();
}

/* Devices are opened and closed as often as a program likes, and what a closed one had is gone. */
static void devices_are_closed(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = ibv_open_device(list[0]);
	int first = context->async_fd;

	IS(ibv_close_device(context), 0);
	IS(ibv_close_device(context), -1);
	for (int n = 0; n < 100; n++) {
		context = ibv_open_device(list[0]);
		IS(context->async_fd, first);
		IS(ibv_close_device(context), 0);
	}
	ibv_free_device_list(list);
}

int main(void)
{
	devices_are_closed();
	lists_without_an_end();
	places_until_polled();
	windows_of_type_1();
	windows_of_type_2();
	regions_anew();
	extended_queues();
	extended_pairs();
	return 0;
}
