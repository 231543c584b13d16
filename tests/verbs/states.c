/*
 * States of a queue pair that is joined by numbers, on a device that looks like RoCE: what leaves
 * a completion queue with it. Ends with 1 at the first wrong answer.
 */
#include "roce.h"

static void goes(struct end *end, int state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	IS(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE), 0);
}

/* Makes another queue pair that completes into the queue of the first. */
static struct end beside(struct end *end)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .cap = { 64, 64, 1, 1, 64 },
		.send_cq = end->cq, .recv_cq = end->cq };
	struct end other = { end->cq, ibv_create_qp(pd, &attr), end->mr, end->octets };

	IS(!other.qp, 0);
	return other;
}

/* The completions of a queue pair that is reset or destroyed leave their queue, and those of
 * others stay. */
static void completions_leave_with_their_queue_pair(void)
{
	struct end one = made(64), other = beside(&one);
	struct told to_one = telling(&one), to_other = telling(&other);
	struct ibv_wc wc;

	for (int round = 0; round < 2; round++) {
		joins(&one, &to_other, 7);
		if (round == 0)
			joins(&other, &to_one, 7);
		receives(&other, 8, 1);
		goes(&one, IBV_QPS_ERR);
		posts(&one, IBV_WR_SEND, 8, 0, 0, 2);
		goes(&other, IBV_QPS_ERR);
		receives(&one, 8, 3);
		receives(&other, 8, 4);
		if (round == 0) {
			goes(&one, IBV_QPS_RESET);
		} else {
			IS(ibv_destroy_qp(one.qp), 0);
		}
		ends(&other, 1, IBV_WC_WR_FLUSH_ERR);
		ends(&other, 4, IBV_WC_WR_FLUSH_ERR);
		IS(ibv_poll_cq(one.cq, 1, &wc), 0);
	}
	one.qp = other.qp;
	unmade(&one);
}

int main(void)
{
	alarm(60);
	open_device();
	completions_leave_with_their_queue_pair();
	return 0;
}
