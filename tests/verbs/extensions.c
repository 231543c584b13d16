/*
 * Immediate Data and atomics (RFC 7306), both ends in this process. With "off" as the argument, the
 * setting is off, and nothing of them is sent. Ends with 1 at the first answer that is wrong.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define IS(what, wanted) is(__LINE__, #what, (long)(what), (long)(wanted))
#define ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

static void is(int line, const char *what, long got, long wanted)
{
	if (got == wanted)
		return;
	printf("extensions.c:%d: %s is %ld, not %ld (errno %d)\n", line, what, got, wanted, errno);
	exit(1);
}

static struct rdma_cm_id *listener, *server, *client;
static uint64_t numbers[2][8] __attribute__((aligned(8)));
static struct ibv_mr *theirs, *ours;

static void *serve(void *unused)
{
	IS(rdma_get_request(listener, &server), 0);
	theirs = ibv_reg_mr(server->pd, numbers[0], sizeof numbers[0], ALL);
	for (int n = 0; n < 4; n++)
		IS(rdma_post_recv(server, (void *)(uintptr_t)(100 + n), numbers[0], 8, theirs), 0);
	IS(rdma_accept(server, NULL), 0);
	return NULL;
}

static void join(void)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *info;
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1 };
	char port[8];
	pthread_t thread;

	attr.cap = (struct ibv_qp_cap) { 4, 4, 2, 2, 64 };
	hints.ai_flags = RAI_PASSIVE;
	IS(rdma_getaddrinfo("127.0.0.1", "0", &hints, &info), 0);
	IS(rdma_create_ep(&listener, info, NULL, &attr), 0);
	rdma_freeaddrinfo(info);
	IS(rdma_listen(listener, 1), 0);
	snprintf(port, sizeof port, "%d", ntohs(rdma_get_src_port(listener)));
	pthread_create(&thread, NULL, serve, NULL);
	hints.ai_flags = 0;
	IS(rdma_getaddrinfo("127.0.0.1", port, &hints, &info), 0);
	attr.cap = (struct ibv_qp_cap) { 4, 4, 2, 2, 64 };
	attr.send_cq = attr.recv_cq = NULL;
	IS(rdma_create_ep(&client, info, NULL, &attr), 0);
	rdma_freeaddrinfo(info);
	IS(rdma_connect(client, NULL), 0);
	pthread_join(thread, NULL);
	ours = ibv_reg_mr(client->pd, numbers[1], sizeof numbers[1], IBV_ACCESS_LOCAL_WRITE);
}

static struct ibv_wc next(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	while (!ibv_poll_cq(cq, 1, &wc))
		;
	return wc;
}

static int posted(int opcode, int length, uint64_t add, uint64_t swap)
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

static void came(int opcode, int wr_id)
{
	struct ibv_wc wc = next(server->recv_cq);

	IS(wc.status, IBV_WC_SUCCESS);
	IS(wc.opcode, opcode);
	IS(wc.wr_id, wr_id);
	IS(wc.wc_flags, IBV_WC_WITH_IMM);
	IS(wc.imm_data, htonl(0x01020304));
}

static void on(void)
{
	numbers[1][0] = 0x1122334455667788;
	numbers[0][0] = 5;
	IS(posted(IBV_WR_RDMA_WRITE_WITH_IMM, 8, 0, 0), 0);
	done(IBV_WC_RDMA_WRITE);
	came(IBV_WC_RECV_RDMA_WITH_IMM, 100);
	IS(numbers[0][2], 0x1122334455667788);
	IS(numbers[0][0], 5);
	IS(posted(IBV_WR_SEND_WITH_IMM, 0, 0, 0), 0);
	done(IBV_WC_SEND);
	came(IBV_WC_RECV, 101);
	IS(posted(IBV_WR_SEND_WITH_IMM, 8, 0, 0), EOPNOTSUPP);
	numbers[0][1] = 40;
	IS(posted(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 2, 0), 0);
	done(IBV_WC_FETCH_ADD);
	IS(numbers[1][0], 40);
	IS(numbers[0][1], 42);
	IS(posted(IBV_WR_ATOMIC_CMP_AND_SWP, 8, 41, 1), 0);
	done(IBV_WC_COMP_SWAP);
	IS(numbers[1][0], 42);
	IS(numbers[0][1], 42);
	IS(posted(IBV_WR_ATOMIC_CMP_AND_SWP, 8, 42, (uint64_t)7 << 40), 0);
	done(IBV_WC_COMP_SWAP);
	IS(numbers[0][1], (uint64_t)7 << 40);
	IS(posted(IBV_WR_ATOMIC_FETCH_AND_ADD, 4, 1, 0), EINVAL);
}

static void off(void)
{
	struct ibv_wc wc;

	IS(posted(IBV_WR_RDMA_WRITE_WITH_IMM, 8, 0, 0), EOPNOTSUPP);
	IS(posted(IBV_WR_SEND_WITH_IMM, 0, 0, 0), EOPNOTSUPP);
	IS(posted(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 1, 0), EOPNOTSUPP);
	IS(posted(IBV_WR_ATOMIC_CMP_AND_SWP, 8, 1, 2), EOPNOTSUPP);
	/* Nothing was sent: this is the first that takes a receive. */
	IS(posted(IBV_WR_SEND, 8, 0, 0), 0);
	done(IBV_WC_SEND);
	wc = next(server->recv_cq);
	IS(wc.wr_id, 100);
	IS(wc.wc_flags, 0);
}

int main(int count, char **words)
{
	int is_on = count < 2 || strcmp(words[1], "off");
	struct ibv_device_attr attr;

	join();
	IS(ibv_query_device(client->verbs, &attr), 0);
	IS(attr.atomic_cap, is_on ? IBV_ATOMIC_GLOB : IBV_ATOMIC_NONE);
	if (is_on)
		on();
	else
		off();
	rdma_disconnect(client);
	IS(ibv_dereg_mr(ours), 0);
	IS(ibv_dereg_mr(theirs), 0);
	rdma_destroy_ep(client);
	rdma_destroy_ep(server);
	rdma_destroy_ep(listener);
	return 0;
}
