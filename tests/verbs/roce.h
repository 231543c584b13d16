/*
 * For programs with queue pairs that are joined by numbers, on a device that looks like RoCE.
 */
#include "calls.h"
#include <sys/socket.h>
#include <unistd.h>

/* A queue pair, and memory that a peer may reach. */
struct end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	unsigned char *octets;
};

/* What a peer has to know. */
struct told {
	uint32_t number, key;
	uint64_t address;
	union ibv_gid gid;
};

static struct ibv_context *device;
static struct ibv_pd *pd;

static inline void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	device = ibv_open_device(list[0]);
	pd = ibv_alloc_pd(device);
	ibv_free_device_list(list);
}

/* Makes a queue pair of these attributes. */
static inline struct end made_as(struct ibv_qp_init_attr attr, size_t len)
{
	int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	struct end end = { ibv_create_cq(device, 256, NULL, NULL, 0) };

	attr.send_cq = attr.recv_cq = end.cq;
	end.qp = ibv_create_qp(pd, &attr);
	IS(posix_memalign((void **)&end.octets, 4096, len), 0);
	memset(end.octets, 0, len);
	end.mr = ibv_reg_mr(pd, end.octets, len, all);
	IS(!end.cq || !end.qp || !end.mr, 0);
	return end;
}

static inline struct end made(size_t len)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .cap = { 64, 64, 1, 1, 64 } };

	return made_as(attr, len);
}

static inline void unmade(struct end *end)
{
	IS(ibv_destroy_qp(end->qp), 0);
	IS(ibv_destroy_cq(end->cq), 0);
	IS(ibv_dereg_mr(end->mr), 0);
	free(end->octets);
}

static inline struct told telling(struct end *end)
{
	struct told told = { end->qp->qp_num, end->mr->rkey, (uintptr_t)end->octets };

	IS(ibv_query_gid(device, 1, 0, &told.gid), 0);
	return told;
}

/* Forks a peer, which is the child, and has a device of its own. Both know of each other. */
static inline pid_t forked(struct end *end, size_t len, struct told *peer)
{
	int sockets[2], self;
	struct told told;
	pid_t child;

	IS(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
	child = fork();
	self = sockets[child == 0];
	if (child == 0)
		open_device();
	*end = made(len);
	told = telling(end);
	IS(write(self, &told, sizeof told), sizeof told);
	IS(read(self, peer, sizeof *peer), sizeof *peer);
	close(sockets[0]);
	close(sockets[1]);
	return child;
}

static inline void comes_to_init(struct end *end)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
		IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

	IS(ibv_modify_qp(end->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
}

/* Most Reads and atomics at a time, of the peer's and of the own. */
static int inbound = 4, outbound = 4;

static inline void comes_to_rtr(struct end *end, struct told *peer, uint32_t psn)
{
	struct ibv_qp_attr rtr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->number,
		.rq_psn = psn, .max_dest_rd_atomic = inbound, .min_rnr_timer = 12, .ah_attr = { .is_global = 1, .port_num = 1,
		.grh = { .dgid = peer->gid, .hop_limit = 1 } } };

	comes_to_init(end);
	IS(ibv_modify_qp(end->qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), 0);
}

/* How long an answer is waited for: 2.1 s. */
static int try_time = 14, tries = 7;

static inline int comes_to_rts(struct end *end, int rnr, uint32_t psn)
{
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .timeout = try_time, .retry_cnt = tries, .rnr_retry = rnr,
		.sq_psn = psn, .max_rd_atomic = outbound };

	return ibv_modify_qp(end->qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		IBV_QP_MAX_QP_RD_ATOMIC);
}

/* Goes to RTS, with so many tries of a Send without a receive. */
static inline void joins(struct end *end, struct told *peer, int rnr)
{
	comes_to_rtr(end, peer, 0);
	IS(comes_to_rts(end, rnr, 0), 0);
}

static inline void posts(struct end *end, int opcode, size_t len, uint64_t address, uint32_t key, uint64_t id)
{
	struct ibv_sge sge = { (uintptr_t)end->octets, len, end->mr->lkey };
	struct ibv_send_wr *bad, wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = opcode };

	wr.wr.rdma.remote_addr = address;
	wr.wr.rdma.rkey = key;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.compare_add = 1;
		wr.wr.atomic.rkey = key;
	}
	IS(ibv_post_send(end->qp, &wr, &bad), 0);
}

static inline void receives(struct end *end, size_t len, uint64_t id)
{
	struct ibv_sge sge = { (uintptr_t)end->octets, len, end->mr->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };

	IS(ibv_post_recv(end->qp, &wr, &bad), 0);
}

static inline void ends(struct end *end, uint64_t id, int status)
{
	struct ibv_wc wc = next(end->cq);

	IS(wc.wr_id, id);
	IS(wc.status, status);
}
