/*
 * Two connected queue pairs on a device that looks like RoCE, which do what a seed says, beside a
 * model of what they have to do: each request completes once and in order, with the octets that it
 * had, and behind an error all are flushed. Uses libibverbs alone, so it judges any device. Ends
 * with 1 at the first wrong answer, and tells the seed of it.
 *
 *     model [OPERATIONS [SEED]]
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define IS(what, wanted) is(__LINE__, #what, (long)(what), (long)(wanted))
#define LONGEST 65536
#define DEEPEST 16
#define INLINE 64
#define PARTS 3
#define MESSAGES (4 * DEEPEST)
/* Set in the number of a receive: what completes with an error does not say what it was. */
#define RECEIVE (1ULL << 63)

/* Where things lie in an end's memory: pieces of its requests and receives, what the peer writes,
 * what it reads, and the word that it adds to. */
#define SENT(at) ((size_t)(at) * LONGEST)
#define RECEIVED(at) ((size_t)(DEEPEST + (at)) * LONGEST)
#define WRITTEN(at) ((size_t)(2 * DEEPEST + (at)) * LONGEST)
#define READ_FROM ((size_t)3 * DEEPEST * LONGEST)
#define WORD (READ_FROM + 2 * LONGEST)
#define ALL (WORD + 4096)

enum { FINE, WRONG_KEY, TOO_LONG, NOT_READY, ERR, DESTROYED, ENDINGS };

struct request {
	uint64_t before; /* what an atomic has to find; the number of a message's request */
	int opcode, signaled;
	uint32_t len, offset;
};

/* Requests or receives by number: those from `done` up to `posted` have not completed, as far as
 * the program knows. */
struct queue {
	uint64_t posted, done;
	uint32_t depth;
	int failed; /* the status that came first of those that are none of success, or 0 */
	struct request of[DEEPEST];
};

struct end {
	const char *name;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	unsigned char *octets;
	struct queue sends, receives;
	/* Messages of this end, which each take a receive of the peer. */
	uint64_t messages;
	struct request message[MESSAGES];
	uint64_t word; /* the peer's, when all that was posted has been done */
	uint32_t limit; /* octets of a receive */
};

static struct ibv_context *device;
static struct ibv_pd *pd;
static struct end ends[2] = { { "one" }, { "other" } };
static uint64_t seed, state, episode;
static int ending, read_parts;

static void is(int line, const char *what, long got, long wanted)
{
	if (got == wanted)
		return;
	printf("model.c:%d: %s is %ld, not %ld (errno %d; seed %llu, episode %llu, ending %d)\n", line, what, got, wanted,
		errno, (unsigned long long)seed, (unsigned long long)episode, ending);
	exit(1);
}

static uint32_t below(uint32_t limit)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (state >> 20) % limit;
}

static uint32_t some_len(void)
{
	switch (below(8)) {
	case 0:
		return 0;
	case 1:
		return 1 + below(LONGEST);
	case 2:
		return 1 + below(8192);
	default:
		return 1 + below(128);
	}
}

static struct end *peer_of(struct end *end)
{
	return &ends[end == ends];
}

/* The octets of the request with this number. */
static void fill(unsigned char *at, uint32_t len, struct end *end, uint64_t number)
{
	for (uint32_t octet = 0; octet < len; octet++)
		at[octet] = number * 31 + octet * 7 + (octet >> 8) + (end == ends);
}

static void is_filled(int line, unsigned char *at, uint32_t len, struct end *end, uint64_t number)
{
	static unsigned char wanted[LONGEST];

	fill(wanted, len, end, number);
	is(line, "difference of octets", memcmp(at, wanted, len) != 0, 0);
}

static void made(struct end *end)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .cap = { 2 + below(DEEPEST - 1), 1 + below(DEEPEST), PARTS,
		PARTS, INLINE } };

	end->sends = (struct queue) { .depth = attr.cap.max_send_wr };
	end->receives = (struct queue) { .depth = attr.cap.max_recv_wr };
	end->messages = end->word = 0;
	end->limit = LONGEST;
	end->recv_cq = end->send_cq = ibv_create_cq(device, 4 * DEEPEST, NULL, NULL, 0);
	if (below(2))
		end->recv_cq = ibv_create_cq(device, 4 * DEEPEST, NULL, NULL, 0);
	attr.send_cq = end->send_cq;
	attr.recv_cq = end->recv_cq;
	end->qp = ibv_create_qp(pd, &attr);
	if (!end->octets) {
		IS(posix_memalign((void **)&end->octets, 4096, ALL), 0);
		end->mr = ibv_reg_mr(pd, end->octets, ALL, access);
		fill(end->octets + READ_FROM, LONGEST, end, 1);
		fill(end->octets + READ_FROM + LONGEST, LONGEST, end, 2);
	}
	memset(end->octets + WORD, 0, 8);
	IS(!end->send_cq || !end->recv_cq || !end->qp || !end->mr, 0);
}

static void joins(struct end *end, int tries)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
		IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };
	struct ibv_qp_attr rtr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer_of(end)->qp->qp_num,
		.max_dest_rd_atomic = 4, .min_rnr_timer = 1, .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } } };
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = tries,
		.max_rd_atomic = 1 + below(4) };

	IS(ibv_query_gid(device, 1, 0, &rtr.ah_attr.grh.dgid), 0);
	IS(ibv_modify_qp(end->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
	IS(ibv_modify_qp(end->qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), 0);
	IS(ibv_modify_qp(end->qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		IBV_QP_MAX_QP_RD_ATOMIC), 0);
}

/* Cuts a piece of memory into elements. Returns their number. */
static int cut(struct end *end, size_t from, uint32_t len, struct ibv_sge *parts, int most)
{
	int count = len ? 1 + below(most) : below(2);

	for (int at = 0; at < count; at++) {
		uint32_t now = at + 1 < count ? below(len + 1) : len;

		parts[at] = (struct ibv_sge) { (uintptr_t)end->octets + from, now, end->mr->lkey };
		from += now;
		len -= now;
	}
	return count;
}

static int is_message(int opcode)
{
	return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static int is_atomic(int opcode)
{
	return opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
}

/* What an atomic does to the peer's word, in the order in which they are posted. */
static void operates(struct end *end, struct ibv_send_wr *wr)
{
	wr->wr.atomic.swap = wr->wr_id << 8;
	if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr->wr.atomic.compare_add = wr->wr_id;
		end->word += wr->wr_id;
		return;
	}
	wr->wr.atomic.compare_add = end->word + below(2);
	if (wr->wr.atomic.compare_add == end->word)
		end->word = wr->wr.atomic.swap;
}

static void sends(struct end *end, int opcode, uint32_t len, uint32_t wrong)
{
	struct end *peer = peer_of(end);
	struct queue *queue = &end->sends;
	uint64_t number = queue->posted++;
	size_t at = number % DEEPEST;
	struct request *request = &queue->of[at];
	unsigned char *mine = end->octets + SENT(at);
	struct ibv_sge parts[PARTS] = { { (uintptr_t)mine, 8, end->mr->lkey } };
	struct ibv_send_wr *bad, wr = { .wr_id = number, .sg_list = parts, .num_sge = 1, .opcode = opcode,
		.imm_data = htobe32(number) };

	*request = (struct request) { end->word, opcode, queue->posted - queue->done >= queue->depth || !below(3), len };
	wr.send_flags = (request->signaled ? IBV_SEND_SIGNALED : 0) | (below(8) ? 0 : IBV_SEND_FENCE);
	if (is_atomic(opcode)) {
		operates(end, &wr);
		wr.wr.atomic.remote_addr = (uintptr_t)peer->octets + WORD;
		wr.wr.atomic.rkey = peer->mr->rkey ^ wrong;
	} else {
		request->offset = opcode == IBV_WR_RDMA_READ ? below(LONGEST) : 0;
		wr.wr.rdma.remote_addr = (uintptr_t)peer->octets +
			(opcode == IBV_WR_RDMA_READ ? READ_FROM + request->offset : WRITTEN(at));
		wr.wr.rdma.rkey = peer->mr->rkey ^ wrong;
		wr.num_sge = cut(end, SENT(at), len, parts, opcode == IBV_WR_RDMA_READ ? read_parts : PARTS);
		fill(mine, len, end, number);
		if (opcode != IBV_WR_RDMA_READ && len <= INLINE && below(2))
			wr.send_flags |= IBV_SEND_INLINE;
	}
	IS(ibv_post_send(end->qp, &wr, &bad), 0);
	if (wr.send_flags & IBV_SEND_INLINE)
		memset(mine, 0xee, len);
	if (is_message(opcode))
		end->message[end->messages++ % MESSAGES] = (struct request) { number, opcode, 0, len };
}

static void receives(struct end *end)
{
	uint64_t number = end->receives.posted++;
	struct ibv_sge parts[PARTS];
	struct ibv_recv_wr *bad, wr = { .wr_id = number | RECEIVE, .sg_list = parts };

	wr.num_sge = cut(end, RECEIVED(number % DEEPEST), end->limit, parts, PARTS);
	IS(ibv_post_recv(end->qp, &wr, &bad), 0);
}

/* Looks at what a request that has been done has done. */
static void has_been_done(struct end *end, uint64_t number, struct ibv_wc *wc)
{
	struct request *request = &end->sends.of[number % DEEPEST];
	unsigned char *mine = end->octets + SENT(number % DEEPEST);
	uint64_t found;

	switch (request->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		is_filled(__LINE__, peer_of(end)->octets + WRITTEN(number % DEEPEST), request->len, end, number);
		break;
	case IBV_WR_RDMA_READ:
		IS(memcmp(mine, peer_of(end)->octets + READ_FROM + request->offset, request->len), 0);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		memcpy(&found, mine, 8);
		IS(found, request->before);
	}
	if (wc && request->opcode == IBV_WR_RDMA_READ)
		IS(wc->byte_len, request->len);
}

static int is_of(int opcode, int completed)
{
	switch (opcode) {
	case IBV_WR_RDMA_READ:
		return completed == IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return completed == IBV_WC_FETCH_ADD;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return completed == IBV_WC_COMP_SWAP;
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		return completed == IBV_WC_SEND;
	default:
		return completed == IBV_WC_RDMA_WRITE;
	}
}

/* Behind the first error all are flushed. */
static void completes(struct queue *queue, struct ibv_wc *wc)
{
	IS(queue->failed && wc->status != IBV_WC_WR_FLUSH_ERR, 0);
	if (!queue->failed)
		queue->failed = wc->status;
	queue->done++;
}

/* A completion of a request: those in front that have none of their own have been done too, but
 * for those behind an error. */
static void a_request_completes(struct end *end, struct ibv_wc *wc)
{
	struct queue *queue = &end->sends;

	for (; !queue->failed && queue->done < wc->wr_id && !queue->of[queue->done % DEEPEST].signaled; queue->done++)
		has_been_done(end, queue->done, NULL);
	IS(queue->done, wc->wr_id);
	IS(queue->done < queue->posted, 1);
	if (wc->status == IBV_WC_SUCCESS) {
		IS(queue->failed, 0);
		IS(queue->of[queue->done % DEEPEST].signaled, 1);
		IS(is_of(queue->of[queue->done % DEEPEST].opcode, wc->opcode), 1);
		has_been_done(end, queue->done, wc);
	}
	completes(queue, wc);
}

static void a_receive_completes(struct end *end, struct ibv_wc *wc)
{
	struct queue *queue = &end->receives;
	struct end *peer = peer_of(end);
	struct request *message = &peer->message[queue->done % MESSAGES];

	IS(queue->done, wc->wr_id & ~RECEIVE);
	IS(queue->done < queue->posted, 1);
	if (wc->status == IBV_WC_SUCCESS) {
		IS(queue->failed, 0);
		IS(queue->done < peer->messages, 1);
		IS(wc->byte_len, message->len);
		IS(wc->wc_flags & IBV_WC_WITH_IMM, message->opcode == IBV_WR_SEND ? 0 : IBV_WC_WITH_IMM);
		if (message->opcode != IBV_WR_SEND)
			IS(wc->imm_data, htobe32(message->before));
		IS(wc->opcode, message->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
		if (wc->opcode == IBV_WC_RECV)
			is_filled(__LINE__, end->octets + RECEIVED(queue->done % DEEPEST), message->len, peer, message->before);
	}
	completes(queue, wc);
}

/* Takes some completions of an end. Returns their number. */
static int polls(struct end *end)
{
	struct ibv_cq *cq = below(2) ? end->send_cq : end->recv_cq;
	struct ibv_wc wc[4];
	int count = ibv_poll_cq(cq, 1 + below(4), wc);

	IS(count < 0, 0);
	for (int at = 0; at < count; at++) {
		IS(wc[at].qp_num, end->qp->qp_num);
		if (wc[at].wr_id & RECEIVE) {
			IS(cq == end->recv_cq, 1);
			a_receive_completes(end, &wc[at]);
		} else {
			IS(cq == end->send_cq, 1);
			a_request_completes(end, &wc[at]);
		}
	}
	return count;
}

/* Does something that is right at any time. */
static void acts(struct end *end)
{
	static const int opcodes[] = { IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
		IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP };
	int opcode = opcodes[below(7)];

	/* With one try alone a message has to find its receive. */
	int waits = is_message(opcode) && ending == NOT_READY && end->messages == peer_of(end)->receives.posted;

	if (below(3) == 0)
		polls(end);
	else if (below(2) && end->receives.posted - end->receives.done < end->receives.depth)
		receives(end);
	else if (end->sends.posted - end->sends.done < end->sends.depth && !waits)
		sends(end, opcode, is_atomic(opcode) ? 8 : some_len(), 0);
	else
		polls(end);
}

static void in_time(time_t *begun)
{
	if (!*begun)
		*begun = time(NULL);
	IS(time(NULL) - *begun > 60, 0);
}

/* Gives each message a receive until all requests have been done that complete. */
static void drains(struct end *end)
{
	struct end *peer = peer_of(end);
	time_t begun = 0;

	while (end->sends.done < end->sends.posted) {
		/* Those behind the last signaled one do not tell. */
		if (end->sends.posted - end->sends.done < end->sends.depth && !end->sends.of[(end->sends.posted - 1) % DEEPEST].signaled)
			sends(end, IBV_WR_RDMA_WRITE, 1, 0);
		if (end->messages > peer->receives.posted && peer->receives.posted - peer->receives.done < peer->receives.depth)
			receives(peer);
		polls(end);
		polls(peer);
		in_time(&begun);
	}
}

/* Uses up the receives of the peer. */
static void exhausts(struct end *end)
{
	struct end *peer = peer_of(end);

	for (drains(end); end->messages < peer->receives.posted; drains(end))
		sends(end, IBV_WR_SEND, below(32), 0);
}

/* Polls until nothing is left to complete. */
static void settles(struct end *end)
{
	time_t begun = 0;

	while (end->sends.done < end->sends.posted || end->receives.done < end->receives.posted) {
		polls(end);
		in_time(&begun);
	}
}

static int state_of(struct end *end)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	IS(ibv_query_qp(end->qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.qp_state;
}

static void to_err(struct end *end)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	IS(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE), 0);
}

/* A peer that is gone is noticed by a request that nobody answers. */
static void notices(struct end *end)
{
	time_t begun = 0;

	while (end->sends.posted - end->sends.done == end->sends.depth && !end->sends.failed) {
		polls(end);
		in_time(&begun);
	}
	if (!end->sends.failed)
		sends(end, IBV_WR_RDMA_WRITE, 8, 0);
	settles(end);
	IS(end->sends.failed, IBV_WC_RETRY_EXC_ERR);
	IS(end->receives.failed == 0 || end->receives.failed == IBV_WC_WR_FLUSH_ERR, 1);
}

/* Brings an end into trouble of the episode's kind. */
static void ends_badly(struct end *end)
{
	static const int opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD };
	struct end *peer = peer_of(end);

	switch (ending) {
	case WRONG_KEY:
		drains(end);
		sends(end, opcodes[below(3)], 8, 1);
		settles(end);
		IS(end->sends.failed, IBV_WC_REM_ACCESS_ERR);
		break;
	case TOO_LONG:
		exhausts(end);
		peer->limit = below(32);
		while (peer->receives.posted - peer->receives.done == peer->receives.depth)
			polls(peer);
		receives(peer);
		sends(end, IBV_WR_SEND, peer->limit + 1 + below(32), 0);
		settles(end);
		IS(end->sends.failed, IBV_WC_REM_INV_REQ_ERR);
		for (time_t begun = 0; !peer->receives.failed; in_time(&begun))
			polls(peer);
		IS(peer->receives.failed, IBV_WC_LOC_LEN_ERR);
		break;
	case NOT_READY:
		exhausts(end);
		sends(end, IBV_WR_SEND_WITH_IMM, below(64), 0);
		settles(end);
		IS(end->sends.failed, IBV_WC_RNR_RETRY_EXC_ERR);
		notices(peer);
		break;
	case ERR:
		to_err(end);
		notices(peer);
		break;
	case DESTROYED:
		IS(ibv_destroy_qp(end->qp), 0);
		end->qp = NULL;
		notices(peer);
		break;
	}
}

static void unmade(struct end *end)
{
	if (end->qp) {
		to_err(end);
		IS(state_of(end), IBV_QPS_ERR);
		/* What is flushed tells of those in front that have no completion. */
		if (end->sends.posted - end->sends.done < end->sends.depth)
			sends(end, IBV_WR_SEND, 1, 0);
		settles(end);
		IS(ibv_destroy_qp(end->qp), 0);
	}
	if (end->recv_cq != end->send_cq)
		IS(ibv_destroy_cq(end->recv_cq), 0);
	IS(ibv_destroy_cq(end->send_cq), 0);
}

static uint64_t plays(void)
{
	uint64_t operations = 20 + below(2000);
	struct end *troubled = &ends[below(2)];

	ending = below(ENDINGS);
	for (int at = 0; at < 2; at++)
		made(&ends[at]);
	for (int at = 0; at < 2; at++)
		joins(&ends[at], ending == NOT_READY ? 1 : 7);
	for (uint64_t operation = 0; operation < operations; operation++)
		acts(&ends[below(2)]);
	if (ending == FINE) {
		drains(troubled);
		drains(peer_of(troubled));
	}
	ends_badly(troubled);
	if (ending == WRONG_KEY || ending == TOO_LONG)
		IS(state_of(peer_of(troubled)), IBV_QPS_ERR);
	for (int at = 0; at < 2; at++)
		unmade(&ends[at]);
	return operations;
}

int main(int count, char **words)
{
	uint64_t operations = count > 1 ? strtoull(words[1], NULL, 0) : 100000;
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_device_attr attr;

	seed = count > 2 ? strtoull(words[2], NULL, 0) : time(NULL);
	state = seed * 0x9e3779b97f4a7c15 + 1;
	device = ibv_open_device(list[0]);
	pd = ibv_alloc_pd(device);
	ibv_free_device_list(list);
	IS(ibv_query_device(device, &attr), 0);
	read_parts = attr.max_sge_rd < PARTS ? attr.max_sge_rd : PARTS;
	for (uint64_t done = 0; done < operations; episode++)
		done += plays();
	return 0;
}
