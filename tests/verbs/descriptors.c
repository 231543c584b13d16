/*
 * The descriptors that a program's objects take: of a connection its socket, and those that it is
 * shown, which are the channels'. Ends with 1 at the first number that is wrong.
 */
#include "calls.h"
#include <dirent.h>
#include <unistd.h>

#define MANY 50

static int descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	/* ".", "..", and the folder's own. */
	int count = -3;

	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

/* Waits until there are so many descriptors: what is gone may take a moment to go. */
static void await_descriptors(int wanted)
{
	for (int tries = 0; descriptors() != wanted && tries < 2000; tries++)
		usleep(5000);
	IS(descriptors(), wanted);
}

/* An id of an event channel of its own, with queues and a completion channel of its own. */
struct end {
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq[2];
};

static struct rdma_cm_id *next_event(struct rdma_event_channel *events, int wanted)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	IS(rdma_get_cm_event(events, &event), 0);
	IS(event->event, wanted);
	id = event->id;
	rdma_ack_cm_event(event);
	return id;
}

static void make_queues(struct end *end)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1 };

	end->channel = ibv_create_comp_channel(end->id->verbs);
	for (int n = 0; n < 2; n++)
		end->cq[n] = ibv_create_cq(end->id->verbs, 16, NULL, end->channel, 0);
	attr.send_cq = end->cq[0];
	attr.recv_cq = end->cq[1];
	attr.cap = (struct ibv_qp_cap) { 4, 4, 1, 1, 0 };
	IS(rdma_create_qp(end->id, NULL, &attr), 0);
}

static void destroy(struct end *end)
{
	rdma_destroy_qp(end->id);
	for (int n = 0; n < 2; n++)
		IS(ibv_destroy_cq(end->cq[n]), 0);
	IS(ibv_destroy_comp_channel(end->channel), 0);
	IS(rdma_destroy_id(end->id), 0);
}

int main(void)
{
	struct rdma_event_channel *requests = rdma_create_event_channel();
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct end active[MANY], passive[MANY];
	struct ibv_cq *cq[MANY];
	struct rdma_cm_id *listening;
	int before, first = 0;

	IS(rdma_create_id(requests, &listening, NULL, RDMA_PS_TCP), 0);
	IS(rdma_bind_addr(listening, (struct sockaddr *)&addr), 0);
	IS(rdma_listen(listening, MANY), 0);
	addr.sin_port = rdma_get_src_port(listening);

	before = descriptors();
	for (int n = 0; n < MANY; n++)
		cq[n] = ibv_create_cq(listening->verbs, 16, NULL, NULL, 0);
	await_descriptors(before);
	for (int n = 0; n < MANY; n++)
		IS(ibv_destroy_cq(cq[n]), 0);

	for (int n = 0; n < MANY; n++) {
		active[n].events = rdma_create_event_channel();
		IS(rdma_create_id(active[n].events, &active[n].id, NULL, RDMA_PS_TCP), 0);
		IS(rdma_resolve_addr(active[n].id, NULL, (struct sockaddr *)&addr, 2000), 0);
		next_event(active[n].events, RDMA_CM_EVENT_ADDR_RESOLVED);
		IS(rdma_resolve_route(active[n].id, 2000), 0);
		next_event(active[n].events, RDMA_CM_EVENT_ROUTE_RESOLVED);
		make_queues(&active[n]);
		IS(rdma_connect(active[n].id, NULL), 0);
		passive[n].id = next_event(requests, RDMA_CM_EVENT_CONNECT_REQUEST);
		make_queues(&passive[n]);
		IS(rdma_accept(passive[n].id, NULL), 0);
		next_event(requests, RDMA_CM_EVENT_ESTABLISHED);
		next_event(active[n].events, RDMA_CM_EVENT_ESTABLISHED);
		if (!n)
			first = descriptors();
	}
	/* Socket and completion channel of either end, and the event channel of the active one. The
	 * first connection brings what all have together. */
	await_descriptors(first + 5 * (MANY - 1));

	for (int n = 0; n < MANY; n++) {
		destroy(&active[n]);
		destroy(&passive[n]);
		rdma_destroy_event_channel(active[n].events);
	}
	await_descriptors(first - 5);
	IS(rdma_destroy_id(listening), 0);
	rdma_destroy_event_channel(requests);
	return 0;
}
