/*
 * Queue pairs of unreliable datagrams, on a device that looks like RoCE: states, address handles,
 * keys, what is in front of a message, and what is dropped. Ends with 1 at the first wrong answer.
 */
#include "calls.h"
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define KEY 0x11111111
#define FRONT 40
#define ROOM 8192

struct end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	unsigned char *octets;
};

static struct ibv_context *device;
static struct ibv_pd *pd;
static union ibv_gid gid;
static int ipv6;

static int goes(struct end *end, int state, int mask)
{
	struct ibv_qp_attr attr = { .qp_state = state, .port_num = 1, .qkey = KEY };

	return ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | mask);
}

static struct end idle(int extended)
{
	struct end end = { ibv_create_cq(device, 256, NULL, NULL, 0) };
	struct ibv_qp_init_attr_ex attr = { .send_cq = end.cq, .recv_cq = end.cq, .qp_type = IBV_QPT_UD, .sq_sig_all = 1,
		.cap = { 64, 64, 2, 2, 64 }, .pd = pd, .comp_mask = IBV_QP_INIT_ATTR_PD };

	if (extended) {
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
	}
	end.qp = ibv_create_qp_ex(device, &attr);
	end.octets = calloc(1, ROOM);
	end.mr = ibv_reg_mr(pd, end.octets, ROOM, IBV_ACCESS_LOCAL_WRITE);
	IS(!end.cq || !end.qp || !end.mr, 0);
	return end;
}

static void begins(struct end *end)
{
	IS(goes(end, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
	IS(goes(end, IBV_QPS_RTR, 0), 0);
	IS(goes(end, IBV_QPS_RTS, IBV_QP_SQ_PSN), 0);
}

static struct end made(int extended)
{
	struct end end = idle(extended);

	begins(&end);
	return end;
}

static void unmade(struct end *end)
{
	IS(ibv_destroy_qp(end->qp), 0);
	IS(ibv_destroy_cq(end->cq), 0);
	IS(ibv_dereg_mr(end->mr), 0);
	free(end->octets);
}

/* Receives are into the second half of the memory, messages from the first. */
static void receives(struct end *end, size_t len, uint64_t id)
{
	struct ibv_sge sge = { (uintptr_t)end->octets + ROOM / 2, len, end->mr->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };

	IS(ibv_post_recv(end->qp, &wr, &bad), 0);
}

static int posts(struct end *end, struct ibv_ah *ah, uint32_t number, uint32_t key, int opcode, size_t len)
{
	struct ibv_sge sge = { (uintptr_t)end->octets, len, end->mr->lkey };
	struct ibv_send_wr *bad, wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = opcode };

	wr.imm_data = htonl(0x01020304);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = number;
	wr.wr.ud.remote_qkey = key;
	return ibv_post_send(end->qp, &wr, &bad);
}

static void sends(struct end *end, struct ibv_ah *ah, uint32_t number, uint32_t key)
{
	IS(posts(end, ah, number, key, IBV_WR_SEND, 8), 0);
	IS(next(end->cq).status, IBV_WC_SUCCESS);
}

static struct ibv_ah *handle(void)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .hop_limit = 1 } };
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);

	IS(!ah, 0);
	return ah;
}

static void a_step_needs_its_attributes(void)
{
	struct end end = idle(0);
	struct ibv_ah *ah = handle();
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	IS(goes(&end, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT), EINVAL);
	IS(goes(&end, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
	IS(goes(&end, IBV_QPS_RTR, IBV_QP_AV), EINVAL);
	IS(goes(&end, IBV_QPS_RTS, IBV_QP_SQ_PSN), EINVAL);
	IS(posts(&end, ah, end.qp->qp_num, KEY, IBV_WR_SEND, 8), EINVAL);
	IS(goes(&end, IBV_QPS_RTR, 0), 0);
	IS(goes(&end, IBV_QPS_RTS, 0), EINVAL);
	IS(posts(&end, ah, end.qp->qp_num, KEY, IBV_WR_SEND, 8), EINVAL);
	IS(goes(&end, IBV_QPS_RTS, IBV_QP_SQ_PSN), 0);
	IS(ibv_query_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_QKEY, &init), 0);
	IS(attr.qp_state, IBV_QPS_RTS);
	IS(attr.qkey, KEY);
	IS(init.qp_type, IBV_QPT_UD);
	/* And again, with the same number. */
	IS(goes(&end, IBV_QPS_ERR, 0), 0);
	IS(goes(&end, IBV_QPS_RESET, 0), 0);
	begins(&end);
	receives(&end, 64, 2);
	sends(&end, ah, end.qp->qp_num, KEY);
	IS(next(end.cq).wr_id, 2);
	IS(ibv_destroy_ah(ah), 0);
	unmade(&end);
}

static void what_is_refused(void)
{
	struct end end = made(0);
	struct ibv_ah *ah = handle();
	struct ibv_ah_attr attr = { .port_num = 1 };
	struct ibv_port_attr port;

	IS(ibv_query_port(device, 1, &port), 0);
	IS(!!ibv_create_ah(pd, &attr), 0);
	IS(errno, EINVAL);
	attr.is_global = 1;
	attr.grh.dgid.raw[0] = 0xff;
	IS(!!ibv_create_ah(pd, &attr), 0);
	IS(posts(&end, NULL, end.qp->qp_num, KEY, IBV_WR_SEND, 8), EINVAL);
	IS(posts(&end, ah, end.qp->qp_num, KEY, IBV_WR_RDMA_WRITE, 8), EINVAL);
	IS(posts(&end, ah, end.qp->qp_num, KEY, IBV_WR_SEND, (128 << port.active_mtu) + 1), EINVAL);
	/* As long as it may be, and into too short a receive. */
	receives(&end, 64, 2);
	IS(posts(&end, ah, end.qp->qp_num, KEY, IBV_WR_SEND, 128 << port.active_mtu), 0);
	for (int at = 0; at < 2; at++) {
		struct ibv_wc wc = next(end.cq);

		IS(wc.status, wc.wr_id == 2 ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS);
	}
	IS(ibv_destroy_ah(ah), 0);
	IS(ibv_destroy_ah(ah), EINVAL);
	unmade(&end);
}

/* The receiver answers by what came with the message. */
static void a_message_is_answered(void)
{
	struct end one = made(0), other = made(0);
	struct ibv_ah *ah = handle(), *back;
	unsigned char *front = other.octets + ROOM / 2;
	struct ibv_ah_attr attr;
	struct ibv_wc wc;

	receives(&other, 200, 2);
	receives(&one, 200, 3);
	memcpy(one.octets, "question", 8);
	IS(posts(&one, ah, other.qp->qp_num, KEY, IBV_WR_SEND_WITH_IMM, 8), 0);
	IS(next(one.cq).opcode, IBV_WC_SEND);
	wc = next(other.cq);
	IS(wc.wr_id, 2);
	IS(wc.opcode, IBV_WC_RECV);
	IS(wc.byte_len, FRONT + 8);
	IS(wc.src_qp, one.qp->qp_num);
	IS(wc.qp_num, other.qp->qp_num);
	IS(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
	IS(ntohl(wc.imm_data), 0x01020304);
	IS(memcmp(front + FRONT, "question", 8), 0);
	/* A GRH, or an IPv4 header from octet 20 on. */
	IS(ipv6 ? front[0] >> 4 : front[20], ipv6 ? 6 : 0x45);
	IS(memcmp(ipv6 ? front + 8 : front + 32, ipv6 ? gid.raw : gid.raw + 12, ipv6 ? 16 : 4), 0);
	IS(memcmp(ipv6 ? front + 24 : front + 36, ipv6 ? gid.raw : gid.raw + 12, ipv6 ? 16 : 4), 0);

	IS(ibv_init_ah_from_wc(device, 1, &wc, (struct ibv_grh *)front, &attr), 0);
	IS(attr.is_global, 1);
	IS(memcmp(&attr.grh.dgid, &gid, sizeof gid), 0);
	back = ibv_create_ah_from_wc(pd, &wc, (struct ibv_grh *)front, 1);
	IS(!back, 0);
	memcpy(other.octets, "response", 8);
	sends(&other, back, wc.src_qp, KEY);
	wc = next(one.cq);
	IS(wc.wr_id, 3);
	IS(wc.wc_flags, IBV_WC_GRH);
	IS(wc.src_qp, other.qp->qp_num);
	IS(memcmp(one.octets + ROOM / 2 + FRONT, "response", 8), 0);
	memset(front, 0, FRONT);
	IS(ibv_init_ah_from_wc(device, 1, &wc, (struct ibv_grh *)front, &attr), -1);
	IS(ibv_destroy_ah(ah), 0);
	IS(ibv_destroy_ah(back), 0);
	unmade(&one);
	unmade(&other);
}

static uint32_t violations(void)
{
	struct ibv_port_attr port;

	IS(ibv_query_port(device, 1, &port), 0);
	return port.qkey_viol_cntr;
}

/* A key with the highest bit stands for the sender's own. Messages with another key, to other
 * numbers, or from nobody, are not there. */
static void only_what_is_meant_arrives(void)
{
	struct end one = made(0), other = made(0);
	struct ibv_ah *ah = handle();
	struct sockaddr_storage at = { ipv6 ? AF_INET6 : AF_INET };
	int stranger = socket(at.ss_family, SOCK_DGRAM, 0);
	uint32_t before = violations();

	/* Ports are at one place, and addresses not. */
	((struct sockaddr_in *)&at)->sin_port = htons(other.qp->qp_num >> 8);
	if (ipv6) {
		memcpy(&((struct sockaddr_in6 *)&at)->sin6_addr, gid.raw, 16);
		/* The interface of a link-local address, and of no other. */
		((struct sockaddr_in6 *)&at)->sin6_scope_id = if_nametoindex("link0");
	} else {
		memcpy(&((struct sockaddr_in *)&at)->sin_addr, gid.raw + 12, 4);
	}
	receives(&other, 200, 2);
	for (int len = 0; len < 200; len++) {
		unsigned char octets[200];

		for (int octet = 0; octet < len; octet++)
			octets[octet] = rand();
		*octets = 1;
		memcpy(octets + 1, (unsigned char[]) { other.qp->qp_num >> 16, other.qp->qp_num >> 8, other.qp->qp_num }, 3);
		IS(sendto(stranger, octets, len, 0, (struct sockaddr *)&at, ipv6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in)), len);
	}
	sends(&one, ah, other.qp->qp_num, KEY ^ 1);
	sends(&one, ah, other.qp->qp_num ^ 1, KEY);
	sends(&one, ah, other.qp->qp_num, 0x80000001);
	IS(next(other.cq).wr_id, 2);
	IS(memcmp(other.octets + ROOM / 2 + FRONT, one.octets, 8), 0);
	IS(violations() - before, 1);
	close(stranger);
	IS(ibv_destroy_ah(ah), 0);
	unmade(&one);
	unmade(&other);
}

/* A request that fails brings its queue pair to SQE: others are flushed, receives go on, and the
 * program goes back to RTS. */
static void a_request_fails(void)
{
	struct end one = made(0), other = made(0);
	struct ibv_ah *ah = handle();
	void *gone = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct end bad = { one.cq, one.qp, ibv_reg_mr(pd, gone, 4096, 0), gone };
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	IS(munmap(gone, 4096), 0);
	IS(posts(&bad, ah, other.qp->qp_num, KEY, IBV_WR_SEND, 8), 0);
	IS(next(one.cq).status, IBV_WC_LOC_PROT_ERR);
	IS(posts(&one, ah, other.qp->qp_num, KEY, IBV_WR_SEND, 8), 0);
	IS(next(one.cq).status, IBV_WC_WR_FLUSH_ERR);
	IS(ibv_query_qp(one.qp, &attr, IBV_QP_STATE, &init), 0);
	IS(attr.qp_state, IBV_QPS_SQE);
	receives(&one, 64, 2);
	sends(&other, ah, one.qp->qp_num, KEY);
	IS(next(one.cq).wr_id, 2);
	IS(goes(&one, IBV_QPS_SQD, 0), EINVAL);
	IS(goes(&one, IBV_QPS_RTS, IBV_QP_QKEY), 0);
	receives(&other, 64, 3);
	sends(&one, ah, other.qp->qp_num, KEY);
	IS(next(other.cq).wr_id, 3);
	IS(ibv_query_qp(one.qp, &attr, IBV_QP_STATE, &init), 0);
	IS(attr.qp_state, IBV_QPS_RTS);
	IS(ibv_dereg_mr(bad.mr), 0);
	IS(ibv_destroy_ah(ah), 0);
	unmade(&one);
	unmade(&other);
}

static void extended_requests(void)
{
	struct end one = made(1), other = made(0);
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(one.qp);
	struct ibv_ah *ah = handle();
	struct ibv_wc wc;

	for (int at = 0; at < 2; at++)
		receives(&other, 200, 2 + at);
	memcpy(one.octets, "octets", 6);
	ibv_wr_start(qp);
	qp->wr_id = 1;
	ibv_wr_send_imm(qp, htonl(7));
	ibv_wr_set_ud_addr(qp, ah, other.qp->qp_num, KEY);
	ibv_wr_set_sge(qp, one.mr->lkey, (uintptr_t)one.octets, 6);
	ibv_wr_send(qp);
	ibv_wr_set_ud_addr(qp, ah, other.qp->qp_num, KEY);
	ibv_wr_set_inline_data(qp, "inline", 6);
	IS(ibv_wr_complete(qp), 0);
	wc = next(other.cq);
	IS(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
	IS(ntohl(wc.imm_data), 7);
	wc = next(other.cq);
	IS(wc.wc_flags, IBV_WC_GRH);
	IS(memcmp(other.octets + ROOM / 2 + FRONT, "inline", 6), 0);
	/* Without an address there is nobody to send to. */
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	ibv_wr_set_inline_data(qp, "inline", 6);
	IS(ibv_wr_complete(qp), EINVAL);
	IS(ibv_destroy_ah(ah), 0);
	unmade(&one);
	unmade(&other);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	alarm(60);
	device = ibv_open_device(list[0]);
	pd = ibv_alloc_pd(device);
	ibv_free_device_list(list);
	IS(ibv_query_gid(device, 1, 0, &gid), 0);
	ipv6 = memcmp(gid.raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12) != 0;
	a_step_needs_its_attributes();
	what_is_refused();
	a_message_is_answered();
	only_what_is_meant_arrives();
	a_request_fails();
	extended_requests();
	IS(ibv_dealloc_pd(pd), 0);
	IS(ibv_close_device(device), 0);
	return 0;
}
