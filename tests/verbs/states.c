/*
 * States of queue pairs that are joined by numbers, on a device that looks like RoCE: what leaves
 * a completion queue with RESET, and what waits in SQD. Ends with 1 at the first wrong answer.
 */
#include "roce.h"
#include <sys/resource.h>
#include <unistd.h>

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

static struct ibv_qp_attr now(struct end *end)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	IS(ibv_query_qp(end->qp, &attr, IBV_QP_STATE, &init), 0);
	return attr;
}

static void drains(struct end *end)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };

	IS(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
}

static void is_drained(struct end *end)
{
	struct ibv_async_event event;

	IS(ibv_get_async_event(device, &event), 0);
	IS(event.event_type, IBV_EVENT_SQ_DRAINED);
	IS(event.element.qp == end->qp, 1);
	ibv_ack_async_event(&event);
	IS(now(end).sq_draining, 0);
	IS(now(end).qp_state, IBV_QPS_SQD);
}

/* Leaves no room for the stack of a thread, or as much as there was. */
static void limits_memory(int limited)
{
	struct rlimit limit;
	long pages;
	FILE *file;

	IS(getrlimit(RLIMIT_AS, &limit), 0);
	file = fopen("/proc/self/statm", "r");
	IS(!file || fscanf(file, "%ld", &pages) != 1, 0);
	fclose(file);
	limit.rlim_cur = limited ? pages * getpagesize() + (1 << 20) : limit.rlim_max;
	IS(setrlimit(RLIMIT_AS, &limit), 0);
}

/* Where no thread can be made that tells of the event, the queue pair stays in RTS. */
static void a_step_that_fails_changes_nothing(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	struct end one = made(64);
	struct told to_one = telling(&one);

	joins(&one, &to_one, 7);
	limits_memory(1);
	IS(ibv_modify_qp(one.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), EAGAIN);
	limits_memory(0);
	IS(now(&one).qp_state, IBV_QPS_RTS);
	receives(&one, 8, 1);
	posts(&one, IBV_WR_SEND, 8, 0, 0, 2);
	for (int at = 0; at < 2; at++)
		IS(next(one.cq).status, IBV_WC_SUCCESS);
	unmade(&one);
}

/* In SQD nothing is begun: the event comes when what was posted before is done, and what is posted
 * then waits for RTS, as long as the queue is. */
static void a_queue_pair_is_drained(void)
{
	struct ibv_qp_init_attr short_queue = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .cap = { 2, 2, 1, 1, 64 } };
	struct end one = made_as(short_queue, 64), other = made(64);
	struct told to_one = telling(&one), to_other = telling(&other);
	struct ibv_sge sge = { (uintptr_t)one.octets, 8, one.mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };
	struct ibv_wc wc;

	joins(&one, &to_other, 7);
	joins(&other, &to_one, 7);
	drains(&one);
	is_drained(&one);
	goes(&one, IBV_QPS_RTS);
	posts(&one, IBV_WR_SEND, 8, 0, 0, 1);
	drains(&one);
	IS(now(&one).sq_draining, 1);
	posts(&one, IBV_WR_SEND, 8, 0, 0, 2);
	IS(ibv_post_send(one.qp, &wr, &bad), ENOMEM);
	receives(&other, 8, 3);
	ends(&other, 3, IBV_WC_SUCCESS);
	ends(&one, 1, IBV_WC_SUCCESS);
	is_drained(&one);
	receives(&other, 8, 4);
	sge.lkey ^= 0xff;
	IS(ibv_post_send(one.qp, &wr, &bad), EINVAL);
	usleep(20000);
	IS(ibv_poll_cq(other.cq, 1, &wc), 0);
	goes(&one, IBV_QPS_RTS);
	ends(&one, 2, IBV_WC_SUCCESS);
	ends(&other, 4, IBV_WC_SUCCESS);
	unmade(&one);
	unmade(&other);
}

/* What waits in SQD is flushed by ERR, and gone with RESET. */
static void what_waits_to_be_sent_ends(void)
{
	struct end one = made(64), other = made(64);
	struct told to_one = telling(&one), to_other = telling(&other);
	struct ibv_wc wc;

	joins(&one, &to_other, 7);
	joins(&other, &to_one, 7);
	goes(&one, IBV_QPS_SQD);
	posts(&one, IBV_WR_SEND, 8, 0, 0, 1);
	goes(&one, IBV_QPS_ERR);
	ends(&one, 1, IBV_WC_WR_FLUSH_ERR);
	goes(&one, IBV_QPS_RESET);
	goes(&other, IBV_QPS_RESET);
	joins(&one, &to_other, 7);
	joins(&other, &to_one, 7);
	goes(&one, IBV_QPS_SQD);
	posts(&one, IBV_WR_SEND, 8, 0, 0, 2);
	posts(&other, IBV_WR_RDMA_WRITE, 8, to_one.address, to_one.key ^ 0xff, 3);
	ends(&other, 3, IBV_WC_REM_ACCESS_ERR);
	ends(&one, 2, IBV_WC_WR_FLUSH_ERR);
	goes(&one, IBV_QPS_RESET);
	goes(&other, IBV_QPS_RESET);
	joins(&one, &to_other, 7);
	joins(&other, &to_one, 7);
	receives(&other, 8, 4);
	goes(&one, IBV_QPS_SQD);
	posts(&one, IBV_WR_SEND, 8, 0, 0, 5);
	goes(&one, IBV_QPS_RESET);
	IS(ibv_poll_cq(one.cq, 1, &wc), 0);
	IS(ibv_poll_cq(other.cq, 1, &wc), 0);
	unmade(&one);
	unmade(&other);
}

/* Has a request wait in SQD whose memory is gone before it is posted, and one behind it. */
static void waits_without_memory(struct end *one, struct end *other, struct told *to_one, struct told *to_other)
{
	struct end gone = { one->cq, one->qp, ibv_reg_mr(pd, one->octets, 64, 0), one->octets };

	joins(one, to_other, 7);
	joins(other, to_one, 7);
	goes(one, IBV_QPS_SQD);
	posts(&gone, IBV_WR_RDMA_WRITE, 8, to_other->address, to_other->key, 1);
	posts(one, IBV_WR_SEND, 8, 0, 0, 2);
	IS(ibv_dereg_mr(gone.mr), 0);
}

/* Each request that waits ends, though its memory is gone: it is flushed by ERR, and fails with
 * RTS. */
static void what_waits_without_memory_ends(void)
{
	struct end one = made(64), other = made(64);
	struct told to_one = telling(&one), to_other = telling(&other);

	waits_without_memory(&one, &other, &to_one, &to_other);
	goes(&one, IBV_QPS_ERR);
	ends(&one, 1, IBV_WC_WR_FLUSH_ERR);
	ends(&one, 2, IBV_WC_WR_FLUSH_ERR);
	goes(&one, IBV_QPS_RESET);
	goes(&other, IBV_QPS_RESET);
	waits_without_memory(&one, &other, &to_one, &to_other);
	goes(&one, IBV_QPS_RTS);
	ends(&one, 1, IBV_WC_LOC_PROT_ERR);
	ends(&one, 2, IBV_WC_WR_FLUSH_ERR);
	unmade(&one);
	unmade(&other);
}

int main(void)
{
	alarm(60);
	open_device();
	/* While no thread has ended, whose stack the C library would keep. */
	a_step_that_fails_changes_nothing();
	completions_leave_with_their_queue_pair();
	a_queue_pair_is_drained();
	what_waits_to_be_sent_ends();
	what_waits_without_memory_ends();
	return 0;
}
