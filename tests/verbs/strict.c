/*
 * What adapters refuse: on a device that looks like RoCE, and on the iWARP device with
 * RDDP_VERBS_STRICT=on. `strict lenient` is for the iWARP device without. Ends with 1 at the first
 * wrong answer.
 */
#include "roce.h"
#include <unistd.h>

#define DEPTH 4

static int lenient;

/* Two ends on which a Write goes from the first to the second. */
struct pair {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_mr *here, *there;
};

static int writes(struct pair *pair, int signals)
{
	struct ibv_sge sge = { (uintptr_t)pair->here->addr, 8, pair->here->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = signals ? IBV_SEND_SIGNALED : 0 };

	wr.wr.rdma.remote_addr = (uintptr_t)pair->there->addr;
	wr.wr.rdma.rkey = pair->there->rkey;
	return ibv_post_send(pair->qp, &wr, &bad);
}

/* A request without a completion holds its place until a later completion has been polled: it is
 * not enough that the Write is done. */
static void a_quiet_request_keeps_its_place(struct pair *pair)
{
	for (int round = 0; round < 3 && !lenient; round++) {
		for (int at = 1; at < DEPTH; at++)
			IS(writes(pair, 0), 0);
		IS(writes(pair, 1), 0);
		IS(writes(pair, 0), ENOMEM);
		IS(writes(pair, 1), ENOMEM);
		IS(next(pair->cq).status, IBV_WC_SUCCESS);
	}
	for (int at = 0; at < DEPTH; at++)
		IS(writes(pair, 0), 0);
	if (lenient) {
		IS(writes(pair, 0), 0);
		return;
	}
	/* Time in which they are done: nothing tells. */
	usleep(50000);
	IS(writes(pair, 1), ENOMEM);
}

static struct ibv_qp_init_attr quiet = { .qp_type = IBV_QPT_RC, .cap = { DEPTH, DEPTH, 1, 1, 8 } };

static void by_manager(void)
{
	static char octets[8];
	struct pair pair;

	made_for = quiet;
	join();
	pair = (struct pair) { client->qp, client->send_cq, rdma_reg_msgs(client, octets, 8), rdma_reg_write(server, octets, 8) };
	a_quiet_request_keeps_its_place(&pair);
	IS(rdma_dereg_mr(pair.here), 0);
	IS(rdma_dereg_mr(pair.there), 0);
	part();
}

/* Receives, also shared ones, hold their places until their completions have been polled. */
static void a_receive_keeps_its_place(int shared)
{
	struct ibv_srq_init_attr shares = { .attr = { DEPTH, 1 } };
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .cap = { 8, DEPTH, 1, 1, 8 },
		.srq = shared ? ibv_create_srq(pd, &shares) : NULL };
	struct end one = made(64), other = made_as(attr, 64);
	struct told to_one = telling(&one), to_other = telling(&other);
	struct ibv_recv_wr *bad, wr = { .wr_id = 1 };

#define POSTED (shared ? ibv_post_srq_recv(attr.srq, &wr, &bad) : ibv_post_recv(other.qp, &wr, &bad))
	joins(&one, &to_other, 7);
	joins(&other, &to_one, 7);
	for (int at = 0; at < DEPTH; at++)
		IS(POSTED, 0);
	IS(POSTED, ENOMEM);
	posts(&one, IBV_WR_SEND, 0, 0, 0, 2);
	ends(&one, 2, IBV_WC_SUCCESS);
	IS(POSTED, ENOMEM);
	ends(&other, 1, IBV_WC_SUCCESS);
	IS(POSTED, 0);
	IS(POSTED, ENOMEM);
	unmade(&one);
	unmade(&other);
	if (shared)
		IS(ibv_destroy_srq(attr.srq), 0);
}

static void by_numbers(void)
{
	struct end one = made_as(quiet, 64), other = made(64);
	struct told to_one = telling(&one), to_other = telling(&other);
	struct pair pair = { one.qp, one.cq, one.mr, other.mr };

	joins(&one, &to_other, 7);
	joins(&other, &to_one, 7);
	a_quiet_request_keeps_its_place(&pair);
	unmade(&one);
	unmade(&other);
	a_receive_keeps_its_place(0);
	a_receive_keeps_its_place(1);
}

int main(int count, char **words)
{
	alarm(60);
	lenient = count > 1;
	if (!getenv("RDDP_ROCE")) {
		by_manager();
		return 0;
	}
	open_device();
	by_numbers();
	return 0;
}
