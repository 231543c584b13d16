/*
 * For programs that are both ends of a connection: checks of answers, and two connected ids.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define IS(what, wanted) is(__FILE__, __LINE__, #what, (long)(what), (long)(wanted))

static inline void is(const char *file, int line, const char *what, long got, long wanted)
{
	if (got == wanted)
		return;
	printf("%s:%d: %s is %ld, not %ld (errno %d)\n", file, line, what, got, wanted, errno);
	exit(1);
}

/* Takes the next event of a channel, which has to be of this kind. Returns its id. */
static inline struct rdma_cm_id *expect_event(struct rdma_event_channel *channel, enum rdma_cm_event_type kind)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	IS(rdma_get_cm_event(channel, &event), 0);
	IS(event->event, kind);
	id = event->id;
	IS(rdma_ack_cm_event(event), 0);
	return id;
}

static struct rdma_cm_id *listener, *server, *client;

/* What the queue pairs of `unconnected` are made for. */
static struct ibv_qp_init_attr made_for = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .cap = { 16, 16, 2, 2, 64 } };

static inline void *serve(void *unused)
{
	IS(rdma_get_request(listener, &server), 0);
	IS(rdma_accept(server, NULL), 0);
	return NULL;
}

/* Makes two ids of this process, `client` and one that listens. */
static inline void unconnected(void)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *info;
	struct ibv_qp_init_attr attr = made_for;
	char port[8];

	hints.ai_flags = RAI_PASSIVE;
	IS(rdma_getaddrinfo("127.0.0.1", "0", &hints, &info), 0);
	IS(rdma_create_ep(&listener, info, NULL, &attr), 0);
	rdma_freeaddrinfo(info);
	IS(rdma_listen(listener, 1), 0);
	snprintf(port, sizeof port, "%d", ntohs(rdma_get_src_port(listener)));
	hints.ai_flags = 0;
	IS(rdma_getaddrinfo("127.0.0.1", port, &hints, &info), 0);
	attr = made_for;
	IS(rdma_create_ep(&client, info, NULL, &attr), 0);
	rdma_freeaddrinfo(info);
}

static inline void connect_both(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, serve, NULL);
	IS(rdma_connect(client, NULL), 0);
	pthread_join(thread, NULL);
}

static inline void join(void)
{
	unconnected();
	connect_both();
}

static inline void part(void)
{
	rdma_disconnect(client);
	rdma_destroy_ep(client);
	rdma_destroy_ep(server);
	rdma_destroy_ep(listener);
}

/* Waits for one completion. */
static inline struct ibv_wc next(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	while (!ibv_poll_cq(cq, 1, &wc))
		;
	return wc;
}

static inline int posted(struct rdma_cm_id *id, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	return ibv_post_send(id->qp, wr, &bad);
}

