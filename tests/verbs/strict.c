/*
 * What adapters refuse: on a device that looks like RoCE, and on the iWARP device with
 * RDDP_VERBS_STRICT=on; `strict TEST` tries one thing. `strict lenient` is for the iWARP device
 * without. Ends with 1 at the first wrong answer.
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

static void quiet_requests_of_the_connection_manager(void)
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

static void quiet_requests(void)
{
	struct end one = made_as(quiet, 64), other = made(64);
	struct told to_one = telling(&one), to_other = telling(&other);
	struct pair pair = { one.qp, one.cq, one.mr, other.mr };

	joins(&one, &to_other, 7);
	joins(&other, &to_one, 7);
	a_quiet_request_keeps_its_place(&pair);
	unmade(&one);
	unmade(&other);
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

#define FIRST (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define OF_PEER (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define INBOUND (IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define OUTBOUND (IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)

/* A queue pair, and the attributes of all its steps. */
static struct ibv_qp *stepping;
static struct ibv_qp_attr attributes;

static int goes(int state, int mask)
{
	attributes.qp_state = state;
	return ibv_modify_qp(stepping, &attributes, IBV_QP_STATE | mask);
}

/* A step that is refused leaves the queue pair where it was. */
static void goes_with_all(int state, int mask)
{
	int before = stepping->state;

	for (int bit = 1; bit <= mask; bit <<= 1) {
		if (mask & bit)
			IS(goes(state, mask & ~bit), EINVAL);
	}
	IS(goes(state, mask | IBV_QP_CAP), EINVAL);
	IS(goes(state, mask | IBV_QP_QKEY), EINVAL);
	IS(stepping->state, before);
	IS(goes(state, mask), 0);
	IS(stepping->state, state);
}

static void refuses(uint8_t *value, uint8_t wrong, int state, int mask)
{
	uint8_t right = *value;

	*value = wrong;
	IS(goes(state, mask), EINVAL);
	*value = right;
}

/* InfiniBand Architecture, table of the states: the attributes that each step needs, and others
 * that it has not. */
static void a_step_has_its_attributes(int kind)
{
	int reliable = kind == IBV_QPT_RC;
	int third = IBV_QP_SQ_PSN | (reliable ? OUTBOUND : 0), second = OF_PEER | (reliable ? INBOUND : 0);
	struct ibv_qp_init_attr attr = { .qp_type = kind, .cap = { 4, 4, 1, 1, 0 } };
	struct end end = made_as(attr, 64);
	struct told self = telling(&end);

	stepping = end.qp;
	attributes = (struct ibv_qp_attr) { .port_num = 1, .path_mtu = IBV_MTU_1024, .dest_qp_num = self.number,
		.max_dest_rd_atomic = 1, .max_rd_atomic = 1, .timeout = 14, .cur_qp_state = IBV_QPS_RTR,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = self.gid, .hop_limit = 1 } } };
	IS(goes(IBV_QPS_RTR, second), EINVAL);
	IS(goes(IBV_QPS_RTS, third), EINVAL);
	refuses(&attributes.port_num, 2, IBV_QPS_INIT, FIRST);
	goes_with_all(IBV_QPS_INIT, FIRST);
	IS(goes(IBV_QPS_INIT, IBV_QP_PORT), 0);
	IS(goes(IBV_QPS_RTS, third), EINVAL);
	refuses((uint8_t *)&attributes.path_mtu, 6, IBV_QPS_RTR, second);
	refuses(&attributes.ah_attr.port_num, 2, IBV_QPS_RTR, second);
	refuses(&attributes.ah_attr.is_global, 0, IBV_QPS_RTR, second);
	if (reliable)
		refuses(&attributes.max_dest_rd_atomic, 17, IBV_QPS_RTR, second);
	goes_with_all(IBV_QPS_RTR, second);
	IS(goes(IBV_QPS_RTR, second), EINVAL);
	if (reliable) {
		refuses(&attributes.max_rd_atomic, 17, IBV_QPS_RTS, third);
		refuses(&attributes.timeout, 32, IBV_QPS_RTS, third);
	}
	refuses((uint8_t *)&attributes.cur_qp_state, IBV_QPS_INIT, IBV_QPS_RTS, third | IBV_QP_CUR_STATE);
	goes_with_all(IBV_QPS_RTS, third);
	IS(ibv_modify_qp(stepping, &attributes, IBV_QP_TIMEOUT), EINVAL);
	IS(ibv_modify_qp(stepping, &attributes, IBV_QP_MIN_RNR_TIMER), reliable ? 0 : EINVAL);
	IS(goes(IBV_QPS_INIT, FIRST), EINVAL);
	IS(goes(IBV_QPS_SQD, 0), 0);
	IS(goes(IBV_QPS_SQD, IBV_QP_TIMEOUT), reliable ? 0 : EINVAL);
	IS(goes(IBV_QPS_RTS, 0), 0);
	IS(goes(IBV_QPS_ERR, IBV_QP_TIMEOUT), EINVAL);
	IS(goes(IBV_QPS_ERR, 0), 0);
	IS(goes(IBV_QPS_RTS, 0), EINVAL);
	IS(goes(IBV_QPS_RESET, 0), 0);
	IS(goes(IBV_QPS_INIT, FIRST), 0);
	unmade(&end);
}

static int posts_inline(struct ibv_qp *qp, uint32_t lkey, int elements, size_t len, int flags)
{
	static char octets[64];
	struct ibv_sge sge[2] = { { (uintptr_t)octets, len, lkey }, { (uintptr_t)octets, len, lkey } };
	struct ibv_send_wr *bad, wr = { .sg_list = sge, .num_sge = elements, .opcode = IBV_WR_SEND, .send_flags = flags };

	return ibv_post_send(qp, &wr, &bad);
}

static int posts_receive(struct ibv_qp *qp, int elements)
{
	struct ibv_sge sge[2] = { { 0 } };
	struct ibv_recv_wr *bad, wr = { .wr_id = 9, .sg_list = sge, .num_sge = elements };

	return ibv_post_recv(qp, &wr, &bad);
}

/* Receives are posted from INIT on, requests from RTS on; in ERR both are flushed. */
static void posts_belong_to_states(void)
{
	struct end end = made(64);
	struct told self = telling(&end);
	struct ibv_qp_attr broken = { .qp_state = IBV_QPS_ERR };

	IS(posts_receive(end.qp, 0), EINVAL);
	IS(posts_inline(end.qp, 0, 0, 0, 0), EINVAL);
	comes_to_init(&end);
	IS(posts_receive(end.qp, 0), 0);
	IS(posts_inline(end.qp, 0, 0, 0, 0), EINVAL);
	comes_to_rtr(&end, &self, 0);
	IS(posts_inline(end.qp, 0, 0, 0, 0), EINVAL);
	IS(comes_to_rts(&end, 7, 0), 0);
	IS(ibv_modify_qp(end.qp, &broken, IBV_QP_STATE), 0);
	ends(&end, 9, IBV_WC_WR_FLUSH_ERR);
	IS(posts_receive(end.qp, 0), 0);
	ends(&end, 9, IBV_WC_WR_FLUSH_ERR);
	IS(posts_inline(end.qp, 0, 0, 0, 0), 0);
	ends(&end, 0, IBV_WC_WR_FLUSH_ERR);
	unmade(&end);
}

static void a_queue_pair_in_reset_takes_no_receives(void)
{
	struct end end = made(64);

	IS(posts_receive(end.qp, 0), EINVAL);
	unmade(&end);
}

static struct ibv_qp *with(struct ibv_cq *cq, struct ibv_qp_cap *cap)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .cap = *cap, .send_cq = cq, .recv_cq = cq };
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);

	*cap = attr.cap;
	return qp;
}

static void refuses_cap(struct ibv_cq *cq, struct ibv_qp_cap cap)
{
	IS((long)with(cq, &cap), 0);
	IS(errno, EINVAL);
}

/* What a program gets is what it has asked for, and no more than the device has. */
static void limits_are_as_asked(void)
{
	struct ibv_cq *cq = ibv_create_cq(device, 8, NULL, NULL, 0);
	struct ibv_qp_cap cap = { 4, 3, 2, 1, 0 };
	struct ibv_srq_init_attr shares = { .attr = { 1, 1 } };
	struct ibv_device_attr has;
	struct ibv_qp *qp = with(cq, &cap);

	IS(cap.max_send_wr, 4);
	IS(cap.max_recv_wr, 3);
	IS(cap.max_send_sge, 2);
	IS(cap.max_recv_sge, 1);
	IS(cap.max_inline_data, 0);
	IS(ibv_destroy_qp(qp), 0);
	IS(ibv_query_device(device, &has), 0);
	refuses_cap(cq, (struct ibv_qp_cap) { has.max_qp_wr + 1, 4, 1, 1, 0 });
	refuses_cap(cq, (struct ibv_qp_cap) { 4, has.max_qp_wr + 1, 1, 1, 0 });
	refuses_cap(cq, (struct ibv_qp_cap) { 4, 4, has.max_sge + 1, 1, 0 });
	refuses_cap(cq, (struct ibv_qp_cap) { 4, 4, 1, has.max_sge + 1, 0 });
	refuses_cap(cq, (struct ibv_qp_cap) { 4, 4, 1, 1, 1 << 20 });
	IS((long)ibv_create_cq(device, has.max_cqe + 1, NULL, NULL, 0), 0);
	IS(errno, EINVAL);
	shares.attr.max_wr = has.max_srq_wr + 1;
	IS((long)ibv_create_srq(pd, &shares), 0);
	IS(errno, EINVAL);
	IS(ibv_destroy_cq(cq), 0);
}

/* More elements or inline octets than were granted. */
static void requests_keep_to_the_limits(void)
{
	struct ibv_qp_init_attr small = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .cap = { 4, 4, 1, 1, 8 } };
	struct end one = made_as(small, 64), other = made(64);
	struct told to_one = telling(&one), to_other = telling(&other);

	joins(&one, &to_other, 7);
	joins(&other, &to_one, 7);
	receives(&other, 8, 1);
	IS(posts_inline(one.qp, one.mr->lkey, 2, 1, 0), EINVAL);
	IS(posts_inline(one.qp, 0, 1, 9, IBV_SEND_INLINE), ENOMEM);
	IS(posts_inline(one.qp, 0, 1, 8, IBV_SEND_INLINE), 0);
	ends(&one, 0, IBV_WC_SUCCESS);
	IS(posts_receive(one.qp, 2), EINVAL);
	unmade(&one);
	unmade(&other);
}

/* Reads beyond max_rd_atomic wait; those beyond the peer's max_dest_rd_atomic are refused there. */
static void reads_are_bounded(int of_one, int of_other)
{
	size_t len = 1 << 20;
	struct end one = made(len), other = made(len);
	struct told to_one = telling(&one), to_other = telling(&other);
	struct ibv_sge sge = { (uintptr_t)one.octets, len, one.mr->lkey };
	struct ibv_send_wr *bad, list[8] = { { 0 } };
	int refused = 0;

	outbound = of_one;
	inbound = of_other;
	joins(&one, &to_other, 7);
	joins(&other, &to_one, 7);
	inbound = outbound = 4;
	posts(&one, IBV_WR_RDMA_WRITE, 8, to_other.address, to_other.key, 1);
	ends(&one, 1, IBV_WC_SUCCESS);
	for (int at = 0; at < 8; at++) {
		list[at] = (struct ibv_send_wr) { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
			.next = at < 7 ? &list[at + 1] : NULL };
		list[at].wr.rdma.remote_addr = to_other.address;
		list[at].wr.rdma.rkey = to_other.key;
	}
	IS(ibv_post_send(one.qp, list, &bad), 0);
	for (int at = 0; at < 8; at++) {
		int status = next(one.cq).status;

		IS(status, refused ? IBV_WC_WR_FLUSH_ERR : status ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_SUCCESS);
		refused |= status;
	}
	IS(!!refused, of_one > of_other);
	unmade(&one);
	unmade(&other);
}

static void more_reads_than_agreed(void)
{
	reads_are_bounded(1, 1);
	reads_are_bounded(8, 8);
	reads_are_bounded(8, 1);
	reads_are_bounded(1, 0);
}

static int state_of(struct end *end)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	IS(ibv_query_qp(end->qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.qp_state;
}

/* The peer refuses what is no request of its: both ends are in ERR behind that. */
static void a_request_is_invalid(int opcode, size_t len, int at)
{
	struct end one = made(64), other = made(64);
	struct told to_one = telling(&one), to_other = telling(&other);

	joins(&one, &to_other, 7);
	joins(&other, &to_one, 7);
	receives(&other, 8, 1);
	posts(&one, opcode, len, to_other.address + at, to_other.key, 2);
	ends(&one, 2, IBV_WC_REM_INV_REQ_ERR);
	ends(&other, 1, opcode == IBV_WR_SEND ? IBV_WC_LOC_LEN_ERR : IBV_WC_WR_FLUSH_ERR);
	IS(state_of(&one), IBV_QPS_ERR);
	IS(state_of(&other), IBV_QPS_ERR);
	unmade(&one);
	unmade(&other);
}

static void atomics_are_aligned(void)
{
	a_request_is_invalid(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 4);
}

static void messages_fit_into_receives(void)
{
	a_request_is_invalid(IBV_WR_SEND, 9, 0);
}

/* A peer that may write needs memory into which this end may write. */
static void rights_of_a_peer_need_those_of_this_end(void)
{
	static char octets[64];
	static const int wrong[] = { IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };
	struct ibv_mr *mr;

	for (int at = 0; at < 3; at++) {
		IS((long)ibv_reg_mr(pd, octets, sizeof octets, wrong[at]), 0);
		IS(errno, EINVAL);
	}
	mr = ibv_reg_mr(pd, octets, sizeof octets, IBV_ACCESS_REMOTE_READ);
	IS(!mr, 0);
	IS(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE), IBV_REREG_MR_ERR_INPUT);
	IS(ibv_dereg_mr(mr), 0);
}

/* UC has no Reads and no atomics, and all else. */
static void unreliable_connections_have_no_reads(void)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_UC, .sq_sig_all = 1, .cap = { 4, 4, 1, 1, 0 } };
	struct end ends_of[2] = { made_as(attr, 64), made_as(attr, 64) };
	struct ibv_sge sge = { (uintptr_t)ends_of[0].octets, 8, ends_of[0].mr->lkey };
	static const int opcodes[] = { IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP };

	for (int at = 0; at < 2; at++) {
		struct told peer = telling(&ends_of[!at]);

		stepping = ends_of[at].qp;
		attributes = (struct ibv_qp_attr) { .port_num = 1, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer.number,
			.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = peer.gid, .hop_limit = 1 } } };
		IS(goes(IBV_QPS_INIT, FIRST), 0);
		IS(goes(IBV_QPS_RTR, OF_PEER), 0);
		IS(goes(IBV_QPS_RTS, IBV_QP_SQ_PSN), 0);
	}
	receives(&ends_of[1], 8, 1);
	posts(&ends_of[0], IBV_WR_SEND, 8, 0, 0, 2);
	ends(&ends_of[0], 2, IBV_WC_SUCCESS);
	ends(&ends_of[1], 1, IBV_WC_SUCCESS);
	for (int at = 0; at < 3; at++) {
		struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcodes[at] };

		IS(ibv_post_send(ends_of[0].qp, &wr, &bad), EINVAL);
	}
	unmade(&ends_of[0]);
	unmade(&ends_of[1]);
}

/* A completion queue that is too small tells so by an event, and then has no more. */
static void a_completion_queue_overflows(void)
{
	struct end one = made(64), other = made(64);
	struct told to_one = telling(&one), to_other = telling(&other);
	struct ibv_async_event event;
	struct ibv_wc wc;

	IS(ibv_resize_cq(other.cq, 2), 0);
	joins(&one, &to_other, 7);
	joins(&other, &to_one, 7);
	for (int at = 0; at < 3; at++)
		receives(&other, 8, at);
	for (int at = 0; at < 3; at++)
		posts(&one, IBV_WR_SEND, 8, 0, 0, at);
	do {
		IS(ibv_get_async_event(device, &event), 0);
		ibv_ack_async_event(&event);
	} while (event.event_type != IBV_EVENT_CQ_ERR);
	IS(event.element.cq == other.cq, 1);
	IS(ibv_poll_cq(other.cq, 1, &wc), 1);
	IS(ibv_poll_cq(other.cq, 1, &wc), 1);
	IS(ibv_poll_cq(other.cq, 1, &wc), -1);
	unmade(&one);
	unmade(&other);
}

static void receives_keep_their_places(void)
{
	a_receive_keeps_its_place(0);
	a_receive_keeps_its_place(1);
}

static void steps_have_their_attributes(void)
{
	a_step_has_its_attributes(IBV_QPT_RC);
	a_step_has_its_attributes(IBV_QPT_UC);
}

struct test {
	const char *name;
	void (*run)(void);
};

#define TEST(name) { #name, name }
static const struct test on_roce[] = {
	TEST(quiet_requests),
	TEST(receives_keep_their_places),
	TEST(steps_have_their_attributes),
	TEST(posts_belong_to_states),
	TEST(limits_are_as_asked),
	TEST(requests_keep_to_the_limits),
	TEST(more_reads_than_agreed),
	TEST(atomics_are_aligned),
	TEST(messages_fit_into_receives),
	TEST(rights_of_a_peer_need_those_of_this_end),
	TEST(unreliable_connections_have_no_reads),
	TEST(a_completion_queue_overflows),
	{ NULL },
};
static const struct test on_iwarp[] = {
	TEST(quiet_requests_of_the_connection_manager),
	TEST(a_queue_pair_in_reset_takes_no_receives),
	TEST(limits_are_as_asked),
	TEST(rights_of_a_peer_need_those_of_this_end),
	{ NULL },
};

int main(int count, char **words)
{
	const char *only = count > 1 ? words[1] : "";

	alarm(60);
	lenient = !strcmp(only, "lenient");
	open_device();
	for (const struct test *test = getenv("RDDP_ROCE") ? on_roce : on_iwarp; test->name; test++) {
		if (!*only || lenient || !strcmp(test->name, only))
			test->run();
		if (lenient)
			break;
	}
	return 0;
}
