/* Memory and queues of one connection. */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "peer.h"

struct region add_region(struct ibv_pd *pd, uint32_t length, int access)
{
	struct region region = { .length = length };

	region.base = malloc(length);
	if (!region.base)
		fail("no memory for a region of %u octets", length);
	memset(region.base, FILL, length);
	region.mr = ibv_reg_mr(pd, region.base, length, access);
	if (!region.mr)
		fail("cannot register %u octets: %s", length, strerror(errno));
	return region;
}

static void drop_region(struct region *region)
{
	if (!region->mr)
		return;
	check(ibv_dereg_mr(region->mr) == 0, "deregister a region");
	free(region->base);
	region->mr = NULL;
}

static struct queue make_queue(uint32_t depth)
{
	struct queue queue = { .depth = depth };

	queue.completions = calloc(depth, sizeof *queue.completions);
	if (!queue.completions)
		fail("no memory for a queue of %u", depth);
	return queue;
}

/* open_queues: makes everything that the connection's id, which has found its device, still
 * lacks. */
void open_queues(struct link *link, uint32_t sends, uint32_t receives)
{
	struct ibv_context *device = link->id->verbs;

	link->sends = make_queue(sends);
	link->receives = make_queue(receives);
	link->pd = ibv_alloc_pd(device);
	link->other_pd = ibv_alloc_pd(device);
	link->completion_channel = ibv_create_comp_channel(device);
	check(link->pd && link->other_pd && link->completion_channel, "open protection domains and a completion channel");
	link->cq = ibv_create_cq(device, sends + receives, NULL, link->completion_channel, 0);
	check(link->cq, "create a completion queue");

	struct ibv_qp_init_attr attributes = {
		.send_cq = link->cq, .recv_cq = link->cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = sends, .max_recv_wr = receives, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	check(rdma_create_qp(link->id, link->pd, &attributes) == 0, "create a queue pair");
}

void close_link(struct link *link)
{
	if (link->cq) {
		rdma_destroy_qp(link->id);
		check(ibv_destroy_cq(link->cq) == 0, "destroy the completion queue");
		check(ibv_destroy_comp_channel(link->completion_channel) == 0, "destroy the completion channel");
	}
	drop_region(&link->messages);
	drop_region(&link->inbox);
	drop_region(&link->source);
	drop_region(&link->sink);
	drop_region(&link->token);
	drop_region(&link->scratch);
	if (link->pd) {
		check(ibv_dealloc_pd(link->pd) == 0, "free the protection domain");
		check(ibv_dealloc_pd(link->other_pd) == 0, "free the other protection domain");
	}
	free(link->sends.completions);
	free(link->receives.completions);
	check(rdma_destroy_id(link->id) == 0, "destroy the id");
	rdma_destroy_event_channel(link->channel);
}

/* A wr_id is the request's index in its queue; this bit says which queue. */
static const uint64_t is_receive = 1ull << 32;

void post_receive(struct link *link, uint8_t *to, uint32_t length, const struct region *region)
{
	uint32_t index = link->receives.posted++;
	struct ibv_sge sge = { .addr = (uintptr_t)to, .length = length, .lkey = region->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = is_receive | index, .sg_list = &sge, .num_sge = 1 }, *bad;

	check(index < link->receives.depth, "stay within the receive queue");
	check(ibv_post_recv(link->id->qp, &wr, &bad) == 0, "post a receive");
}

/* post: posts this request with one SGE, and returns its index in the send queue. */
uint32_t post(struct link *link, struct ibv_send_wr wr, const uint8_t *from, uint32_t length, uint32_t lkey)
{
	struct ibv_sge sge = { .addr = (uintptr_t)from, .length = length, .lkey = lkey };
	struct ibv_send_wr *bad;

	wr.wr_id = link->sends.posted++;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	check(wr.wr_id < link->sends.depth, "stay within the send queue");
	check(ibv_post_send(link->id->qp, &wr, &bad) == 0, "post a work request");
	return wr.wr_id;
}

static void poll_completions(struct link *link)
{
	struct ibv_wc wc;
	int count;

	while ((count = ibv_poll_cq(link->cq, 1, &wc)) > 0) {
		struct queue *queue = wc.wr_id & is_receive ? &link->receives : &link->sends;
		uint32_t index = wc.wr_id;
		struct completion *completion = &queue->completions[index];

		check(index < queue->posted && !completion->done, "see every request complete once");
		*completion = (struct completion){ .done = true, .status = wc.status, .length = wc.byte_len };
	}
	check(count == 0, "poll the completion queue");
}

static int64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000ll + time.tv_nsec / 1000000;
}

/* sleep_until_notice: returns when an armed completion queue has an entry, or at the deadline. */
static void sleep_until_notice(struct link *link, int64_t deadline)
{
	struct pollfd fd = { .fd = link->completion_channel->fd, .events = POLLIN };
	int64_t left = deadline - now();
	struct ibv_cq *cq;
	void *context;

	if (poll(&fd, 1, left > 0 ? left : 0) <= 0)
		return;
	check(ibv_get_cq_event(link->completion_channel, &cq, &context) == 0, "take a completion event");
	ibv_ack_cq_events(cq, 1);
}

/* completed: returns this request's completion, or NULL if it does not come in that time. */
struct completion *completed(struct link *link, struct queue *queue, uint32_t index, int milliseconds)
{
	struct completion *completion = &queue->completions[index];
	int64_t deadline = now() + milliseconds;

	poll_completions(link);
	while (!completion->done && now() < deadline) {
		check(ibv_req_notify_cq(link->cq, 0) == 0, "arm the completion queue");
		poll_completions(link);
		if (!completion->done)
			sleep_until_notice(link, deadline);
		poll_completions(link);
	}
	return completion->done ? completion : NULL;
}

/* expect_status: waits for this request, which has to end with this status. Returns the length
 * that a receive reports. */
uint32_t expect_status(struct link *link, struct queue *queue, uint32_t index, enum ibv_wc_status status)
{
	const char *kind = queue == &link->receives ? "receive" : "send";
	const struct completion *completion = completed(link, queue, index, link->options->timeout * 1000);

	if (!completion)
		fail("%s %u of %u does not complete", kind, index, queue->posted);
	if (completion->status != status)
		fail("%s %u of %u completes with '%s' where '%s' is expected", kind, index, queue->posted,
		     ibv_wc_status_str(completion->status), ibv_wc_status_str(status));
	return completion->length;
}

/* take_async_events: prints what the device has reported; a QP with events not
 * acknowledged cannot be destroyed. */
void take_async_events(struct link *link)
{
	struct ibv_async_event event;
	int fd = link->id->verbs->async_fd;

	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	while (ibv_get_async_event(link->id->verbs, &event) == 0) {
		say(link, "the device reports: %s", ibv_event_type_str(event.event_type));
		ibv_ack_async_event(&event);
	}
}
