/*
 * Asks, twice each, for what this device refuses, or does not take: `refused WHAT`. refused.py
 * looks at what the user is told.
 */
#include "calls.h"

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

static void extensions(struct ibv_pd *pd)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND_WITH_IMM }, *bad;

	IS(ibv_post_send(ibv_create_qp(pd, &attr), &wr, &bad), EOPNOTSUPP);
}

static void other_types(struct ibv_pd *pd, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr other = attr;

	other.qp_type = type;
	IS(ibv_create_qp(pd, &other), NULL);
	IS(errno, EOPNOTSUPP);
}

enum { SIZE = 1 << 20 };

static void *change(void *sent)
{
	for (volatile char *octets = sent;;)
		for (int at = 0; at < SIZE; at += 64)
			octets[at]++;
	return NULL;
}

/* Sends memory that changes, until the peer finds a wrong CRC. It is no static memory, which begins
 * in a mapping of the program's file: such is copied before it is summed. */
static void changed(void)
{
	char *sent = malloc(SIZE), *taken = malloc(SIZE);
	struct ibv_mr *source, *sink;
	pthread_t thread;

	join();
	source = ibv_reg_mr(client->pd, sent, SIZE, 0);
	sink = rdma_reg_write(server, taken, SIZE);
	pthread_create(&thread, NULL, change, sent);
	do
		if (rdma_post_write(client, NULL, sent, SIZE, source, 0, (uintptr_t)taken, sink->rkey))
			break;
	while (next(client->send_cq).status == IBV_WC_SUCCESS);
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
			extensions(pd);
		else if (!strcmp(argv[1], "datagrams"))
			other_types(pd, IBV_QPT_UD);
		else if (!strcmp(argv[1], "xrc"))
			other_types(pd, IBV_QPT_XRC_SEND);
		else if (!strcmp(argv[1], "changed"))
			changed();
		else if (!strcmp(argv[1], "missing"))
			IS(ibv_import_pd(context, 1), NULL);
		else
			IS(ibv_dereg_mr((struct ibv_mr *)pd), EINVAL);
	}
	return 0;
}
