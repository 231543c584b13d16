/*
 * Asks, twice each, for what this device refuses, or does not take: `refused WHAT`. refused.py
 * looks at what the user is told.
 */
#include "calls.h"
#include <rdma/rsocket.h>

static struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } };

static void numbers(struct ibv_pd *pd)
{
	struct ibv_qp_attr to = { .qp_state = IBV_QPS_INIT, .port_num = 1, .dest_qp_num = 7 };
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);

	IS(ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_PORT), 0);
	to.qp_state = IBV_QPS_RTR;
	IS(ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_DEST_QPN), 0);
	to.qp_state = IBV_QPS_RTS;
	IS(ibv_modify_qp(qp, &to, IBV_QP_STATE), EINVAL);
}

static void extensions(void)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND_WITH_IMM };

	join();
	IS(posted(client, &wr), EOPNOTSUPP);
}

static void unconnected_request(struct ibv_pd *pd)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;

	IS(ibv_post_send(ibv_create_qp(pd, &attr), &wr, &bad), ENOTCONN);
}

static void other_types(struct ibv_pd *pd, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr other = attr;

	other.qp_type = type;
	IS(ibv_create_qp(pd, &other), NULL);
	IS(errno, EOPNOTSUPP);
}

/* Listens in a port space, or for a type of queue pairs, in which nothing connects. */
static void listening(enum rdma_port_space space, enum ibv_qp_type type)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE, .ai_port_space = space,
		.ai_qp_type = type }, *info;
	struct rdma_cm_id *id;

	IS(rdma_getaddrinfo("127.0.0.1", "0", &hints, &info), 0);
	IS(rdma_create_ep(&id, info, NULL, NULL), 0);
	IS(rdma_listen(id, 1), -1);
	IS(errno, EOPNOTSUPP);
	rdma_destroy_ep(id);
	rdma_freeaddrinfo(info);
}

/* A queue pair for XRC, in the port space in which rdma_xclient asks for one. */
static void xrc_endpoint(void)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_IB, .ai_qp_type = IBV_QPT_XRC_SEND };
	struct rdma_addrinfo *info;
	struct ibv_qp_init_attr other = attr;
	struct rdma_cm_id *id;

	IS(rdma_getaddrinfo("127.0.0.1", "7", &hints, &info), 0);
	IS(rdma_create_ep(&id, info, NULL, &other), -1);
	IS(errno, EOPNOTSUPP);
	rdma_freeaddrinfo(info);
}

static void no_pointer(void *answer)
{
	IS(answer, NULL);
	IS(errno, EOPNOTSUPP);
}

/* Calls of inline functions, which find them in the context. Returns whether there is this one. */
static int inline_calls(struct ibv_pd *pd, const char *call)
{
	struct ibv_context *context = pd->context;
	struct ibv_srq_init_attr_ex xrc = { .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_XRC, .pd = pd, .attr = { 4, 1 } }, tags = xrc;
	struct ibv_srq_init_attr plain = { .attr = { 4, 1 } };
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	struct ibv_sge sge = { 0 };
	uint32_t num;

	tags.srq_type = IBV_SRQT_TM;
#define NULLS(name, ...) if (!strcmp(call, #name)) return no_pointer(name(__VA_ARGS__)), 1
#define NUMBERS(name, ...) if (!strcmp(call, #name)) { IS(name(__VA_ARGS__), EOPNOTSUPP); return 1; }
	NULLS(ibv_open_xrcd, context, &(struct ibv_xrcd_init_attr) { 0 });
	NULLS(ibv_open_qp, context, &(struct ibv_qp_open_attr) { 0 });
	NUMBERS(ibv_get_srq_num, ibv_create_srq(pd, &plain), &num);
	NULLS(ibv_alloc_dm, context, &(struct ibv_alloc_dm_attr) { .length = 64 });
	NULLS(ibv_alloc_null_mr, pd);
	NULLS(ibv_alloc_td, context, &(struct ibv_td_init_attr) { 0 });
	NULLS(ibv_alloc_parent_domain, context, &(struct ibv_parent_domain_init_attr) { .pd = pd });
	NULLS(ibv_create_counters, context, &(struct ibv_counters_init_attr) { 0 });
	NULLS(ibv_create_flow, ibv_create_qp(pd, &attr), &(struct ibv_flow_attr) { 0 });
	NULLS(ibv_create_flow_action_esp, context, &(struct ibv_flow_action_esp_attr) { 0 });
	NULLS(ibv_create_wq, context, &(struct ibv_wq_init_attr) { .wq_type = IBV_WQT_RQ });
	NULLS(ibv_create_rwq_ind_table, context, &(struct ibv_rwq_ind_table_init_attr) { 0 });
	NUMBERS(ibv_query_rt_values_ex, context, &values);
	NUMBERS(ibv_advise_mr, pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1);
	NUMBERS(ibv_modify_cq, attr.send_cq, &(struct ibv_modify_cq_attr) { 0 });
	NUMBERS(ibv_modify_qp_rate_limit, ibv_create_qp(pd, &attr),
		&(struct ibv_qp_rate_limit_attr) { 0 });
	if (!strcmp(call, "ibv_create_srq_ex, XRC"))
		return no_pointer(ibv_create_srq_ex(context, &xrc)), 1;
	if (!strcmp(call, "ibv_create_srq_ex"))
		return no_pointer(ibv_create_srq_ex(context, &tags)), 1;
	return 0;
}

static void datagram_socket(void)
{
	IS(rsocket(AF_INET, SOCK_DGRAM, 0), -1);
	IS(errno, EOPNOTSUPP);
}

enum { SIZE = 1 << 19 };

static char octets[8];

static void *change(void *sent)
{
	for (volatile char *octets = sent;;)
		for (int at = 0; at < SIZE; at += 64)
			octets[at]++;
	return NULL;
}

/* Sends memory that changes, until the peer finds a wrong CRC. It is no static memory, which begins
 * in a mapping of the program's file: such is copied before it is summed. A Read behind each Write
 * keeps the next one back: a peer that has sent a Terminate resets TCP after so much more. */
static void changed(void)
{
	char *sent = malloc(SIZE), *taken = malloc(SIZE);
	struct ibv_mr *source, *sink, *read;
	pthread_t thread;

	join();
	source = ibv_reg_mr(client->pd, sent, SIZE, 0);
	sink = ibv_reg_mr(server->pd, taken, SIZE,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	read = rdma_reg_msgs(client, octets, sizeof octets);
	pthread_create(&thread, NULL, change, sent);
	do
		if (rdma_post_write(client, NULL, sent, SIZE, source, 0, (uintptr_t)taken, sink->rkey) ||
		    rdma_post_read(client, NULL, octets, sizeof octets, read, 0, (uintptr_t)taken, sink->rkey))
			break;
	while (next(client->send_cq).status == IBV_WC_SUCCESS &&
	       next(client->send_cq).status == IBV_WC_SUCCESS);
}

int main(int argc, char **argv)
{
	struct ibv_context *context = ibv_open_device(ibv_get_device_list(NULL)[0]);
	struct ibv_pd *pd = ibv_alloc_pd(context);

	attr.send_cq = attr.recv_cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	for (int n = 0; n < 2; n++) {
		if (!strcmp(argv[1], "numbers"))
			numbers(pd);
		else if (!strcmp(argv[1], "extensions"))
			extensions();
		else if (!strcmp(argv[1], "unconnected"))
			unconnected_request(pd);
		else if (!strcmp(argv[1], "listens for datagrams"))
			listening(RDMA_PS_UDP, 0);
		else if (!strcmp(argv[1], "listens for XRC"))
			listening(RDMA_PS_IB, IBV_QPT_XRC_RECV);
		else if (!strcmp(argv[1], "listens elsewhere"))
			listening(RDMA_PS_IB, IBV_QPT_RC);
		else if (!strcmp(argv[1], "XRC endpoint"))
			xrc_endpoint();
		else if (!strcmp(argv[1], "datagram socket"))
			datagram_socket();
		else if (!strcmp(argv[1], "datagrams"))
			other_types(pd, IBV_QPT_UD);
		else if (!strcmp(argv[1], "xrc"))
			other_types(pd, IBV_QPT_XRC_SEND);
		else if (!strcmp(argv[1], "changed"))
			changed();
		else if (!strcmp(argv[1], "missing"))
			IS(ibv_import_pd(context, 1), NULL);
		else if (!inline_calls(pd, argv[1]))
			IS(ibv_dereg_mr((struct ibv_mr *)pd), EINVAL);
	}
	return 0;
}
