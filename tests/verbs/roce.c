/*
 * Queue pairs that are joined by numbers, on a device that looks like RoCE: what completes has
 * happened, and what is refused is named. Ends with 1 at the first wrong answer.
 *
 *     roce [ROUNDS]
 */
#include "roce.h"
#include <signal.h>
#include <sys/wait.h>

#define LONGEST (8 << 20)

/* A Write that has completed is in the memory of another process: its last octet is looked at when
 * the writer says so, with nothing of ours in between. */
static void what_has_completed_is_there(size_t len, int rounds)
{
	int sockets[2], writes, self, stale = 0, status;
	struct told told, peer;
	struct end end;
	unsigned char octet;
	pid_t child;

	IS(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
	child = fork();
	writes = child == 0;
	self = sockets[writes];
	open_device();
	end = made(len);
	told = telling(&end);
	IS(write(self, &told, sizeof told), sizeof told);
	IS(read(self, &peer, sizeof peer), sizeof peer);
	joins(&end, &peer, 7);
	for (int round = 1; round <= rounds; round++) {
		octet = round;
		if (writes) {
			end.octets[len - 1] = round;
			posts(&end, IBV_WR_RDMA_WRITE, len, peer.address, peer.key, round);
			ends(&end, round, IBV_WC_SUCCESS);
			IS(write(self, &octet, 1), 1);
			IS(read(self, &octet, 1), 1);
		} else {
			IS(read(self, &octet, 1), 1);
			stale += *(volatile unsigned char *)&end.octets[len - 1] != octet;
			IS(write(self, &octet, 1), 1);
		}
	}
	if (writes)
		_exit(0);
	IS(waitpid(child, &status, 0), child);
	IS(status, 0);
	IS(stale, 0);
	unmade(&end);
}

/* The first request that is refused says why, and those behind it are flushed. */
static void a_refusal_is_named(int opcode, size_t len, int wanted)
{
	struct end one = made(64), other = made(64);
	struct told to_one = telling(&one), to_other = telling(&other);

	joins(&one, &to_other, 7);
	joins(&other, &to_one, 7);
	receives(&other, 8, 9);
	posts(&one, IBV_WR_RDMA_WRITE, 8, to_other.address, to_other.key, 1);
	posts(&one, opcode, len, to_other.address, to_other.key ^ 1, 2);
	posts(&one, IBV_WR_RDMA_WRITE, 8, to_other.address, to_other.key, 3);
	ends(&one, 1, IBV_WC_SUCCESS);
	ends(&one, 2, wanted);
	ends(&one, 3, IBV_WC_WR_FLUSH_ERR);
	unmade(&one);
	unmade(&other);
}

/* The end of a peer is noticed by a request that nobody answers, and by nothing else. */
static void nobody_answers(void)
{
	struct end one = made(64), other = made(64);
	struct told to_one = telling(&one), to_other = telling(&other);
	struct ibv_wc wc;

	joins(&one, &to_other, 7);
	joins(&other, &to_one, 7);
	receives(&one, 8, 9);
	posts(&one, IBV_WR_RDMA_WRITE, 8, to_other.address, to_other.key, 1);
	ends(&one, 1, IBV_WC_SUCCESS);
	unmade(&other);
	usleep(100000);
	receives(&one, 8, 10);
	IS(ibv_poll_cq(one.cq, 1, &wc), 0);
	IS(one.qp->state, IBV_QPS_RTS);
	posts(&one, IBV_WR_RDMA_WRITE, 8, to_other.address, to_other.key, 2);
	ends(&one, 2, IBV_WC_RETRY_EXC_ERR);
	ends(&one, 9, IBV_WC_WR_FLUSH_ERR);
	ends(&one, 10, IBV_WC_WR_FLUSH_ERR);
	unmade(&one);
}

/* The host of a stopped process acknowledges octets, and nobody there answers. Nor does anybody
 * where the peer never comes. */
static void a_peer_that_does_not_answer(int comes)
{
	struct told peer;
	struct end end;
	pid_t child = forked(&end, 64, &peer);

	if (child || comes)
		joins(&end, &peer, 7);
	if (child == 0) {
		for (;;)
			pause();
	}
	if (comes) {
		posts(&end, IBV_WR_RDMA_WRITE, 8, peer.address, peer.key, 1);
		ends(&end, 1, IBV_WC_SUCCESS);
	}
	IS(kill(child, SIGSTOP), 0);
	IS(waitpid(child, NULL, WUNTRACED), child);
	receives(&end, 8, 9);
	posts(&end, IBV_WR_RDMA_WRITE, 8, peer.address, peer.key, 2);
	posts(&end, IBV_WR_RDMA_WRITE, 8, peer.address, peer.key, 3);
	ends(&end, 2, IBV_WC_RETRY_EXC_ERR);
	ends(&end, 3, IBV_WC_WR_FLUSH_ERR);
	ends(&end, 9, IBV_WC_WR_FLUSH_ERR);
	IS(kill(child, SIGKILL), 0);
	IS(waitpid(child, NULL, 0), child);
	unmade(&end);
}

/* Both ends begin with the number that the other expects, whoever comes first, and whether its peer
 * ever sends. An adapter drops packets with other numbers. */
static void first_numbers(int is_first, int expects, uint32_t sends, int wanted)
{
	struct end one = made(64), other = made(64);
	struct told to_one = telling(&one), to_other = telling(&other);

	one.octets[0] = 5;
	if (is_first) {
		comes_to_rtr(&other, &to_one, expects);
		IS(comes_to_rts(&other, 7, 0x123456), 0);
	}
	comes_to_rtr(&one, &to_other, 0x123456);
	IS(comes_to_rts(&one, 7, sends), 0);
	if (!is_first)
		comes_to_rtr(&other, &to_one, expects);
	posts(&one, IBV_WR_RDMA_WRITE, 8, to_other.address, to_other.key, 1);
	ends(&one, 1, wanted);
	IS(other.octets[0], wanted ? 0 : 5);
	if (!is_first && !wanted) {
		/* A number that the peer does not expect, told when the peer has come. */
		IS(comes_to_rts(&other, 7, 0x123457), 0);
		other.octets[8] = 6;
		posts(&other, IBV_WR_RDMA_WRITE, 16, to_one.address, to_one.key, 2);
		ends(&other, 2, IBV_WC_RETRY_EXC_ERR);
		IS(one.octets[8], 0);
	}
	unmade(&one);
	unmade(&other);
}

/* A Send waits for a receive as long as the program says, and so does what is behind it. */
static void a_receiver_that_is_not_ready(void)
{
	struct end one = made(64), other = made(64);
	struct told to_one = telling(&one), to_other = telling(&other);
	struct ibv_wc wc;

	joins(&one, &to_other, 7);
	joins(&other, &to_one, 1);
	one.octets[0] = 5;
	posts(&one, IBV_WR_SEND, 8, 0, 0, 1);
	posts(&one, IBV_WR_RDMA_WRITE, 8, to_other.address + 8, to_other.key, 2);
	/* Its own request is done all the same. */
	posts(&other, IBV_WR_RDMA_WRITE, 8, to_one.address + 8, to_one.key, 3);
	ends(&other, 3, IBV_WC_SUCCESS);
	usleep(50000);
	IS(ibv_poll_cq(one.cq, 1, &wc), 0);
	IS(other.octets[8], 0);
	receives(&other, 8, 4);
	ends(&other, 4, IBV_WC_SUCCESS);
	ends(&one, 1, IBV_WC_SUCCESS);
	ends(&one, 2, IBV_WC_SUCCESS);
	IS(other.octets[8], 5);
	receives(&other, 8, 5);
	posts(&other, IBV_WR_SEND, 8, 0, 0, 6);
	posts(&other, IBV_WR_SEND, 8, 0, 0, 7);
	ends(&other, 6, IBV_WC_RNR_RETRY_EXC_ERR);
	ends(&other, 7, IBV_WC_WR_FLUSH_ERR);
	ends(&other, 5, IBV_WC_WR_FLUSH_ERR);
	IS(one.qp->state, IBV_QPS_RTS);
	unmade(&one);
	unmade(&other);
}

/* A queue pair that names itself is its own peer: MPICH has such, also with a shared queue. */
static void the_own_peer(void)
{
	struct end end = made(65536);
	struct told self = telling(&end);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	struct ibv_wc wc;

	joins(&end, &self, 7);
	memset(end.octets, 5, 32768);
	posts(&end, IBV_WR_SEND, 32768, 0, 0, 1);
	IS(ibv_poll_cq(end.cq, 1, &wc), 0);
	receives(&end, 32768, 2);
	ends(&end, 2, IBV_WC_SUCCESS);
	ends(&end, 1, IBV_WC_SUCCESS);
	posts(&end, IBV_WR_RDMA_WRITE, 32768, self.address + 32768, self.key, 3);
	ends(&end, 3, IBV_WC_SUCCESS);
	IS(memcmp(end.octets, end.octets + 32768, 32768), 0);
	end.octets[65535] = 6;
	posts(&end, IBV_WR_RDMA_READ, 4, self.address + 65532, self.key, 4);
	ends(&end, 4, IBV_WC_SUCCESS);
	IS(end.octets[3], 6);
	posts(&end, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, self.address + 64, self.key, 5);
	ends(&end, 5, IBV_WC_SUCCESS);
	IS(end.octets[7], 5);
	IS(end.octets[64], 6);
	posts(&end, IBV_WR_RDMA_WRITE, 8, self.address, self.key ^ 1, 6);
	ends(&end, 6, IBV_WC_REM_ACCESS_ERR);
	IS(ibv_query_qp(end.qp, &attr, IBV_QP_STATE, &init), 0);
	IS(attr.qp_state, IBV_QPS_ERR);
	attr.qp_state = IBV_QPS_RESET;
	IS(ibv_modify_qp(end.qp, &attr, IBV_QP_STATE), 0);
	joins(&end, &self, 1);
	posts(&end, IBV_WR_SEND, 8, 0, 0, 7);
	ends(&end, 7, IBV_WC_RNR_RETRY_EXC_ERR);
	unmade(&end);
}

/* A queue pair that the program has made, connected by the connection manager to one of its own:
 * the two need not be of one kind. */
static void a_queue_pair_for_the_connection_manager(void)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .cap = { 8, 8, 1, 1, 64 } };
	struct rdma_event_channel *channels[2] = { rdma_create_event_channel(), rdma_create_event_channel() };
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1 };
	struct rdma_cm_id *listens, *connects, *accepts;
	struct ibv_sge sge;
	struct ibv_send_wr *bad, both = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM };
	static char octets[8];
	struct ibv_mr *mr;
	struct ibv_wc wc;
	struct end end;

	IS(rdma_create_id(channels[0], &listens, NULL, RDMA_PS_TCP), 0);
	IS(rdma_bind_addr(listens, (struct sockaddr *)&addr), 0);
	IS(rdma_listen(listens, 1), 0);
	addr.sin_port = rdma_get_src_port(listens);
	IS(rdma_create_id(channels[1], &connects, NULL, RDMA_PS_TCP), 0);
	IS(rdma_resolve_addr(connects, NULL, (struct sockaddr *)&addr, 1000), 0);
	expect_event(channels[1], RDMA_CM_EVENT_ADDR_RESOLVED);
	IS(rdma_resolve_route(connects, 1000), 0);
	expect_event(channels[1], RDMA_CM_EVENT_ROUTE_RESOLVED);
	IS(rdma_create_qp(connects, NULL, &attr), 0);
	IS(rdma_connect(connects, &param), 0);
	accepts = expect_event(channels[0], RDMA_CM_EVENT_CONNECT_REQUEST);
	end = made(64);
	IS(ibv_modify_qp(end.qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
	param.qp_num = end.qp->qp_num;
	mr = rdma_reg_msgs(connects, octets, 8);
	IS(rdma_post_recv(connects, NULL, octets, 8, mr), 0);
	receives(&end, 8, 1);
	IS(rdma_accept(accepts, &param), 0);
	expect_event(channels[0], RDMA_CM_EVENT_ESTABLISHED);
	expect_event(channels[1], RDMA_CM_EVENT_ESTABLISHED);
	IS(rdma_post_send(connects, NULL, octets, 8, mr, 0), 0);
	ends(&end, 1, IBV_WC_SUCCESS);
	IS(rdma_get_send_comp(connects, &wc), 1);
	IS(wc.status, IBV_WC_SUCCESS);
	posts(&end, IBV_WR_SEND, 8, 0, 0, 2);
	ends(&end, 2, IBV_WC_SUCCESS);
	IS(rdma_get_recv_comp(connects, &wc), 1);
	IS(wc.status, IBV_WC_SUCCESS);
	/* The peer may be any iWARP device, and of RFC 7306 no message has octets and a value. */
	sge = (struct ibv_sge) { (uintptr_t)end.octets, 8, end.mr->lkey };
	IS(ibv_post_send(end.qp, &both, &bad), EOPNOTSUPP);
	IS(rdma_dereg_mr(mr), 0);
	rdma_destroy_ep(connects);
	unmade(&end);
	IS(rdma_destroy_id(accepts), 0);
	IS(rdma_destroy_id(listens), 0);
	for (int at = 0; at < 2; at++)
		rdma_destroy_event_channel(channels[at]);
}

/* Headers older than the function do not have it. */
int ibv_query_port_speed(struct ibv_context *context, uint32_t port, uint64_t *speed);

static void the_port_has_a_speed(void)
{
	struct ibv_port_attr port;
	uint64_t speed;

	IS(ibv_query_port(device, 1, &port), 0);
	IS(ibv_query_port_speed(device, 1, &speed), 0);
	/* Four lanes of 10 Gb/s, in units of 100 Mb/s. */
	IS(port.active_width, 2);
	IS(port.active_speed, 4);
	IS(speed, 400);
	IS(ibv_query_port_speed(device, 2, &speed), EINVAL);
}

int main(int count, char **words)
{
	static const size_t lengths[] = { 64, 65536, 1 << 20, LONGEST };
	int rounds = count > 1 ? atoi(words[1]) : 20;

	alarm(240);
	for (int at = 0; at < 4; at++)
		what_has_completed_is_there(lengths[at], rounds);
	open_device();
	the_port_has_a_speed();
	a_refusal_is_named(IBV_WR_RDMA_WRITE, 8, IBV_WC_REM_ACCESS_ERR);
	a_refusal_is_named(IBV_WR_RDMA_READ, 8, IBV_WC_REM_ACCESS_ERR);
	a_refusal_is_named(IBV_WR_SEND, 64, IBV_WC_REM_INV_REQ_ERR);
	nobody_answers();
	a_peer_that_does_not_answer(1);
	a_peer_that_does_not_answer(0);
	for (int is_first = 0; is_first < 2; is_first++) {
		/* Of 24 bits. */
		first_numbers(is_first, 7, 0xff000007, IBV_WC_SUCCESS);
		first_numbers(is_first, 7, 8, IBV_WC_RETRY_EXC_ERR);
	}
	a_receiver_that_is_not_ready();
	the_own_peer();
	if (strstr(getenv("RDDP_ROCE"), "127.0.0.1"))
		a_queue_pair_for_the_connection_manager();
	return 0;
}
