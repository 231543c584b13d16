/* Declarations shared by the files of verbs-peer. SCENARIOS.md is the protocol. */

#ifndef PEER_H
#define PEER_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { MARGIN = 61, FILL = 0xA5, MESSAGE = 16, TOKEN_LENGTH = 4096, MAX_PRIVATE = 256, MAX_OPS = 16 };
enum { PRIVATE_ITEM = 0x3FFFFFFF };

enum operation { SEND, SEND_SE, SEND_INV, SEND_SE_INV, WRITE, READ, OPERATIONS };

enum end { ACTIVE, PASSIVE, BOTH };

struct options {
	enum end role;
	const char *address, *port, *scenario;

	uint64_t seed;
	uint32_t connections, request, reply, reads, revision, timeout, wait;
	bool grow;

	enum operation ops[MAX_OPS];
	uint32_t op_count, count, size;
	enum end by, close;
	bool abort;

	const char *kind;
	int terminate; /* -1: not given */
	bool rfc_order; /* of the peer's Terminates */
};

/* options.c */
struct options parse_options(int argc, char **argv);

/* A registered region. `base` is the address that the peer, or a work request, uses. */
struct region {
	uint8_t *base;
	uint32_t length;
	struct ibv_mr *mr;
};

struct advert {
	uint64_t address;
	uint32_t stag, length;
};

struct completion {
	bool done;
	enum ibv_wc_status status;
	uint32_t length;
};

/* One queue of work requests, each known by its index. */
struct queue {
	struct completion *completions;
	uint32_t depth, posted;
};

/* One connection and all that belongs to it. */
struct link {
	const struct options *options;
	uint32_t number; /* of this connection, from 0 */
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_pd *pd, *other_pd;
	struct ibv_comp_channel *completion_channel;
	struct ibv_cq *cq;
	struct queue sends, receives;
	struct region messages, inbox, source, sink, token, scratch;
	struct advert peer_inbox, peer_source, peer_token;
};

/* pattern.c: the data */
void put_pattern(uint8_t *to, uint32_t length, uint64_t seed, enum end end, uint32_t item);
bool is_pattern(const uint8_t *data, uint32_t length, uint64_t seed, enum end end, uint32_t item);
bool is_fill(const uint8_t *data, uint64_t length);

/* link.c: devices, memory, queues */
struct region add_region(struct ibv_pd *pd, uint32_t length, int access);
void open_queues(struct link *link, uint32_t sends, uint32_t receives);
void close_link(struct link *link);
void post_receive(struct link *link, uint8_t *to, uint32_t length, const struct region *region);
uint32_t post(struct link *link, struct ibv_send_wr wr, const uint8_t *from, uint32_t length, uint32_t lkey);
struct completion *completed(struct link *link, struct queue *queue, uint32_t index, int milliseconds);
uint32_t expect_status(struct link *link, struct queue *queue, uint32_t index, enum ibv_wc_status status);
void take_async_events(struct link *link);

/* connection.c: the connection manager */
struct cm_event {
	enum rdma_cm_event_type type;
	int status;
	struct rdma_cm_id *id;
	struct rdma_conn_param parameters;
	uint8_t private_data[MAX_PRIVATE];
};

struct cm_event next_cm_event(struct rdma_event_channel *channel, int milliseconds);
struct cm_event expect_cm_event(struct link *link, enum rdma_cm_event_type type);
void resolve(struct link *link);
void connect_to_peer(struct link *link);
struct rdma_cm_id *listen_for_peer(const struct options *options);
struct cm_event take_request(struct link *link, struct rdma_cm_id *listener);
void accept_peer(struct link *link);
void reject_peer(struct link *link);
void expect_rejection(struct link *link);
void expect_refusal(struct link *link);
void close_connection(struct link *link, bool we_close);

/* terminate.c: what siw tells the kernel's log */
void watch_terminates(void);
int received_terminate(bool rfc_order, int milliseconds);

/* fault.c */
void run_fault(struct link *link);
int token_access(const struct options *options);
bool token_in_other_pd(const struct options *options);

/* verbs-peer.c */
void say(const struct link *link, const char *format, ...) __attribute__((format(printf, 2, 3)));
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void check(bool good, const char *what);
void put_message(uint8_t *to, const char *name, uint64_t value);
void check_regions(const struct link *link);
uint32_t start_item(struct link *link, uint32_t item);

static inline enum end peer_of(const struct link *link)
{
	return link->options->role == ACTIVE ? PASSIVE : ACTIVE;
}

/* doer: returns whether this end does the part that `by` names. */
static inline bool doer(const struct options *options, enum end end)
{
	return options->by == BOTH || options->by == end;
}

static inline uint64_t seed_of(const struct link *link)
{
	return link->options->seed + link->number;
}

#endif
