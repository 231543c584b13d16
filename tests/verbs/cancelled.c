/*
 * Threads that are cancelled (pthread_cancel) while they are in the library. Where programs of
 * rdma-core can be ended, in a call that sleeps, the thread ends there; elsewhere the call is done
 * as if nothing were; and the process goes on with the same objects. Ends with 1 at the first wrong
 * answer.
 */
#include "calls.h"
#include <poll.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <rdma/rsocket.h>

static struct rdma_event_channel *channel;
static struct sockaddr_in silent = { .sin_family = AF_INET };
static int socket_of_rdma;
static char octets[2][8192];
static struct ibv_mr *source, *target;

static void sleep_for_completion(void)
{
	struct ibv_cq *cq;
	void *context;

	ibv_get_cq_event(client->recv_cq_channel, &cq, &context);
}

static void sleep_for_event(void)
{
	struct rdma_cm_event *event;

	rdma_get_cm_event(channel, &event);
}

static void sleep_for_async_event(void)
{
	struct ibv_async_event event;

	ibv_get_async_event(client->verbs, &event);
}

static void sleep_for_request(void)
{
	struct rdma_cm_id *id;

	rdma_get_request(listener, &id);
}

static void connect_to_a_silent_server(void)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } };
	struct rdma_conn_param param = { 0 };
	struct rdma_cm_id *id;

	IS(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), 0);
	IS(rdma_resolve_addr(id, NULL, (struct sockaddr *)&silent, 100), 0);
	IS(rdma_resolve_route(id, 100), 0);
	IS(rdma_create_qp(id, NULL, &attr), 0);
	rdma_connect(id, &param);
}

static void accept_a_socket(void)
{
	raccept(socket_of_rdma, NULL, NULL);
}

static void connect_a_socket(void)
{
	rconnect(rsocket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&silent, sizeof silent);
}

static void poll_a_socket(void)
{
	struct pollfd fd = { socket_of_rdma, POLLIN };

	rpoll(&fd, 1, -1);
}

static void write_and_poll(void)
{
	struct ibv_sge sge = { (uintptr_t)octets[0], 4096, source->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE };
	struct ibv_wc wc;

	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.rdma.remote_addr = (uintptr_t)octets[1];
	wr.wr.rdma.rkey = target->rkey;
	for (;;) {
		posted(client, &wr);
		ibv_poll_cq(client->send_cq, 1, &wc);
		pthread_testcancel();
	}
}

static void make_and_destroy(void)
{
	struct rdma_cm_id *id;

	for (;;) {
		IS(ibv_dereg_mr(ibv_reg_mr(client->pd, octets[0], 100, IBV_ACCESS_LOCAL_WRITE)), 0);
		IS(ibv_destroy_cq(ibv_create_cq(client->verbs, 3, NULL, NULL, 0)), 0);
		IS(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
		IS(rdma_destroy_id(id), 0);
		pthread_testcancel();
	}
}

static void *call(void *function)
{
	(*(void (**)(void))function)();
	return NULL;
}

/* Cancels a thread that is in `function`, after so many microseconds. */
static void cancel(void (*function)(void), int after)
{
	pthread_t thread;
	void *result;

	pthread_create(&thread, NULL, call, &function);
	usleep(after);
	IS(pthread_cancel(thread), 0);
	IS(pthread_join(thread, &result), 0);
	IS(result == PTHREAD_CANCELED, 1);
}

/* The connection, and what the threads have used, are as they were. */
static void all_is_well(void)
{
	struct ibv_wc wc;

	IS(rdma_post_recv(server, NULL, octets[1], 64, target), 0);
	/* A request has its place until its completion is polled, and some may be under way. */
	while (rdma_post_send(client, NULL, octets[0], 8, source, IBV_SEND_SIGNALED)) {
		IS(errno, ENOMEM);
		while (ibv_poll_cq(client->send_cq, 1, &wc) > 0)
			IS(wc.status, IBV_WC_SUCCESS);
	}
	do {
		wc = next(client->send_cq);
		IS(wc.status, IBV_WC_SUCCESS);
	} while (wc.opcode != IBV_WC_SEND);
	wc = next(server->recv_cq);
	IS(wc.status, IBV_WC_SUCCESS);
}

/* Makes a TCP socket that takes connections and says nothing, and an rsocket that listens. */
static void listen_for_sockets(void)
{
	int tcp = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in any = { .sin_family = AF_INET };
	socklen_t len = sizeof silent;

	silent.sin_addr.s_addr = any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	IS(bind(tcp, (struct sockaddr *)&silent, sizeof silent), 0);
	IS(listen(tcp, 5), 0);
	IS(getsockname(tcp, (struct sockaddr *)&silent, &len), 0);
	socket_of_rdma = rsocket(AF_INET, SOCK_STREAM, 0);
	IS(rbind(socket_of_rdma, (struct sockaddr *)&any, sizeof any), 0);
	IS(rlisten(socket_of_rdma, 4), 0);
}

int main(void)
{
	void (*sleeping[])(void) = { sleep_for_completion, sleep_for_event, sleep_for_async_event,
		sleep_for_request, connect_to_a_silent_server, accept_a_socket, connect_a_socket,
		poll_a_socket };

	alarm(120);
	channel = rdma_create_event_channel();
	join();
	source = ibv_reg_mr(client->pd, octets[0], sizeof octets[0], IBV_ACCESS_LOCAL_WRITE);
	target = ibv_reg_mr(server->pd, octets[1], sizeof octets[1],
			    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	listen_for_sockets();
	for (size_t n = 0; n < sizeof sleeping / sizeof *sleeping; n++) {
		cancel(sleeping[n], 100000);
		all_is_well();
	}
	for (int n = 0; n < 20; n++) {
		cancel(write_and_poll, 1000 + 700 * n);
		cancel(make_and_destroy, 1000 + 700 * n);
		all_is_well();
	}
	part();
	return 0;
}
