/*
 * Immediate Data and atomics (RFC 7306), both ends in this process. With "off" as the argument, the
 * setting is off, and nothing of them is sent. Ends with 1 at the first answer that is wrong.
 */
#include "calls.h"

#define ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

#define LONG 200000

static uint64_t numbers[2][LONG / 8 + 8] __attribute__((aligned(8)));
static struct ibv_mr *theirs, *ours;

/* Connects both ends; the server's has receives. */
static void join_with_receives(void)
{
	unconnected();
	connect_both();
	theirs = ibv_reg_mr(server->pd, numbers[0], sizeof numbers[0], ALL);
	for (int n = 0; n < 4; n++)
		IS(rdma_post_recv(server, (void *)(uintptr_t)(100 + n), numbers[0], 8, theirs), 0);
	ours = ibv_reg_mr(client->pd, numbers[1], sizeof numbers[1], IBV_ACCESS_LOCAL_WRITE);
}

static int put(int opcode, int length, uint64_t add, uint64_t swap)
{
	struct ibv_sge sge = { (uintptr_t)numbers[1], length, ours->lkey };
	struct ibv_send_wr wr = { .wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = opcode }, *bad;

	wr.imm_data = htonl(0x01020304);
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = (uintptr_t)&numbers[0][1];
		wr.wr.atomic.rkey = theirs->rkey;
		wr.wr.atomic.compare_add = add;
		wr.wr.atomic.swap = swap;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)&numbers[0][2];
		wr.wr.rdma.rkey = theirs->rkey;
	}
	return ibv_post_send(client->qp, &wr, &bad);
}

static void done(int opcode)
{
	struct ibv_wc wc = next(client->send_cq);

	IS(wc.status, IBV_WC_SUCCESS);
	IS(wc.opcode, opcode);
	IS(wc.wr_id, 7);
}

static void came(int opcode, int wr_id, int length)
{
	struct ibv_wc wc = next(server->recv_cq);

	IS(wc.status, IBV_WC_SUCCESS);
	IS(wc.opcode, opcode);
	IS(wc.wr_id, wr_id);
	IS(wc.byte_len, length);
	IS(wc.wc_flags, IBV_WC_WITH_IMM);
	IS(wc.imm_data, htonl(0x01020304));
}

/* Makes an extended queue pair for the client's next connection. */
static struct ibv_qp *extended(struct ibv_cq *cq, uint64_t operations)
{
	struct ibv_qp_init_attr_ex attr = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1 };

	attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	attr.pd = client->pd;
	attr.send_ops_flags = operations;
	attr.send_cq = attr.recv_cq = cq;
	attr.cap = (struct ibv_qp_cap) { 8, 8, 2, 2, 64 };
	rdma_destroy_qp(client);
	return rdma_create_qp_ex(client, &attr) ? NULL : client->qp;
}

#define OPERATIONS (IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | \
	IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)

static void ends(struct ibv_qp_ex *qp, struct ibv_cq *cq, int opcode)
{
	struct ibv_wc wc;

	IS(ibv_wr_complete(qp), 0);
	wc = next(cq);
	IS(wc.status, IBV_WC_SUCCESS);
	IS(wc.opcode, opcode);
}

/* The same by function calls. */
static void on_by_calls(void)
{
	struct ibv_cq *cq;
	struct ibv_qp_ex *qp;

	unconnected();
	cq = ibv_create_cq(client->verbs, 16, NULL, NULL, 0);
	IS(extended(cq, IBV_QP_EX_WITH_ATOMIC_WRITE), NULL);
	qp = ibv_qp_to_qp_ex(extended(cq, OPERATIONS));
	connect_both();
	theirs = ibv_reg_mr(server->pd, numbers[0], sizeof numbers[0], ALL);
	ours = ibv_reg_mr(client->pd, numbers[1], sizeof numbers[1], IBV_ACCESS_LOCAL_WRITE);
	for (int n = 0; n < 4; n++)
		IS(rdma_post_recv(server, (void *)(uintptr_t)(100 + n), numbers[0], 8, theirs), 0);
	numbers[1][0] = 0x99aabbccddeeff00;
	ibv_wr_start(qp);
	qp->wr_flags = 0;
	ibv_wr_rdma_write_imm(qp, theirs->rkey, (uintptr_t)&numbers[0][3], htonl(0x01020304));
	ibv_wr_set_sge(qp, ours->lkey, (uintptr_t)numbers[1], 8);
	ends(qp, cq, IBV_WC_RDMA_WRITE);
	came(IBV_WC_RECV_RDMA_WITH_IMM, 100, 8);
	IS(numbers[0][3], 0x99aabbccddeeff00);
	ibv_wr_start(qp);
	ibv_wr_send_imm(qp, htonl(0x01020304));
	ends(qp, cq, IBV_WC_SEND);
	came(IBV_WC_RECV, 101, 0);
	numbers[0][4] = 1ull << 40;
	ibv_wr_start(qp);
	ibv_wr_atomic_fetch_add(qp, theirs->rkey, (uintptr_t)&numbers[0][4], 3ull << 40);
	ibv_wr_set_sge(qp, ours->lkey, (uintptr_t)numbers[1], 8);
	ends(qp, cq, IBV_WC_FETCH_ADD);
	IS(numbers[1][0], 1ull << 40);
	IS(numbers[0][4], 4ull << 40);
	ibv_wr_start(qp);
	ibv_wr_atomic_cmp_swp(qp, theirs->rkey, (uintptr_t)&numbers[0][4], 4ull << 40, 5ull << 41);
	ibv_wr_set_sge(qp, ours->lkey, (uintptr_t)numbers[1], 8);
	ends(qp, cq, IBV_WC_COMP_SWAP);
	IS(numbers[1][0], 4ull << 40);
	IS(numbers[0][4], 5ull << 41);
	ibv_wr_start(qp);
	ibv_wr_atomic_fetch_add(qp, theirs->rkey, (uintptr_t)&numbers[0][4], 1);
	ibv_wr_set_inline_data(qp, numbers[1], 8);
	IS(ibv_wr_complete(qp), EINVAL);
	IS(ibv_dereg_mr(ours), 0);
	IS(ibv_dereg_mr(theirs), 0);
	rdma_disconnect(client);
	rdma_destroy_ep(client);
	IS(ibv_destroy_cq(cq), 0);
	rdma_destroy_ep(server);
	rdma_destroy_ep(listener);
}

static void on(void)
{
	numbers[1][0] = 0x1122334455667788;
	numbers[0][0] = 5;
	IS(put(IBV_WR_RDMA_WRITE_WITH_IMM, 8, 0, 0), 0);
	done(IBV_WC_RDMA_WRITE);
	came(IBV_WC_RECV_RDMA_WITH_IMM, 100, 8);
	IS(numbers[0][2], 0x1122334455667788);
	IS(numbers[0][0], 5);
	IS(put(IBV_WR_SEND_WITH_IMM, 0, 0, 0), 0);
	done(IBV_WC_SEND);
	came(IBV_WC_RECV, 101, 0);
	IS(put(IBV_WR_SEND_WITH_IMM, 8, 0, 0), EOPNOTSUPP);
	/* A Write of many segments, behind one that no value follows, and one of none. */
	IS(put(IBV_WR_RDMA_WRITE, 8, 0, 0), 0);
	done(IBV_WC_RDMA_WRITE);
	IS(put(IBV_WR_RDMA_WRITE_WITH_IMM, LONG, 0, 0), 0);
	done(IBV_WC_RDMA_WRITE);
	came(IBV_WC_RECV_RDMA_WITH_IMM, 102, LONG);
	IS(put(IBV_WR_RDMA_WRITE, 8, 0, 0), 0);
	done(IBV_WC_RDMA_WRITE);
	IS(put(IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0, 0), 0);
	done(IBV_WC_RDMA_WRITE);
	came(IBV_WC_RECV_RDMA_WITH_IMM, 103, 0);
	numbers[0][1] = 40;
	IS(put(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 2, 0), 0);
	done(IBV_WC_FETCH_ADD);
	IS(numbers[1][0], 40);
	IS(numbers[0][1], 42);
	IS(put(IBV_WR_ATOMIC_CMP_AND_SWP, 8, 41, 1), 0);
	done(IBV_WC_COMP_SWAP);
	IS(numbers[1][0], 42);
	IS(numbers[0][1], 42);
	IS(put(IBV_WR_ATOMIC_CMP_AND_SWP, 8, 42, (uint64_t)7 << 40), 0);
	done(IBV_WC_COMP_SWAP);
	IS(numbers[0][1], (uint64_t)7 << 40);
	IS(put(IBV_WR_ATOMIC_FETCH_AND_ADD, 4, 1, 0), EINVAL);
}

static void off(void)
{
	struct ibv_wc wc;

	IS(put(IBV_WR_RDMA_WRITE_WITH_IMM, 8, 0, 0), EOPNOTSUPP);
	IS(put(IBV_WR_SEND_WITH_IMM, 0, 0, 0), EOPNOTSUPP);
	IS(put(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 1, 0), EOPNOTSUPP);
	IS(put(IBV_WR_ATOMIC_CMP_AND_SWP, 8, 1, 2), EOPNOTSUPP);
	/* Nothing was sent: this is the first that takes a receive. */
	IS(put(IBV_WR_SEND, 8, 0, 0), 0);
	done(IBV_WC_SEND);
	wc = next(server->recv_cq);
	IS(wc.wr_id, 100);
	IS(wc.wc_flags, 0);
}

int main(int count, char **words)
{
	int is_on = count < 2 || strcmp(words[1], "off");
	struct ibv_device_attr attr;

	join_with_receives();
	IS(ibv_query_device(client->verbs, &attr), 0);
	IS(attr.atomic_cap, is_on ? IBV_ATOMIC_GLOB : IBV_ATOMIC_NONE);
	if (is_on)
		on();
	else
		off();
	IS(ibv_dereg_mr(ours), 0);
	IS(ibv_dereg_mr(theirs), 0);
	part();
	if (is_on)
		on_by_calls();
	return 0;
}
