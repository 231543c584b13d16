/*
 * A program for verbs and the RDMA connection manager that knows nothing of gateways: a server
 * whose peers write, read and change its memory and whose messages come back, and a client that
 * checks each octet.
 *
 *   octets serve ADDRESS PORT [KEY=VALUE...]
 *   octets ask ADDRESS PORT [KEY=VALUE...]
 *
 * ops=LIST        of the client: write (and read what was written), send, inval, add, swap, imm
 * rounds=N        through all sizes; 0: until the connection is lost
 * most=N          octets of the longest Write and Read
 * message=N       octets of the longest Send; the same at both ends
 * solicited=1     the client's Sends are solicited, and its server sleeps through all others
 * wait=FILE       the client goes on from its connection when there is such a file
 * wrong=KIND      write, read or add: with a key that the server did not give; inval: with one that
 *                 the client has invalidated
 *
 * Exit status of the client: 0 all octets are right, 3 some are wrong, 4 the connection was lost,
 * 5 nothing came in time, 1 anything else.
 */

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { WRONG = 3, LOST, HANG };
enum { SLOTS = 8, AT_ONCE = 4, GAP = 37, SHIFT = 7, WINDOW = 4096, COUNTERS = 64, DEPTH = 64, PATIENCE = 30000 };
/* Milliseconds in which Linux's connection manager tells a silent peer of an end, 16 times. */
enum { PARTING = 80000 };

/* The first message of the server. */
struct advert {
	uint64_t address, window_address;
	uint32_t key, window_key;
};

/* A message that has the server bind its window anew, which only one that was invalidated can be.
 * rxe's completions do not say that. */
static const char renewal[] = "another key, please";

static struct {
	const char *ops, *wrong, *wait;
	uint32_t rounds, most, message;
	bool solicited;
} options = { "write,send", "", NULL, 1, 1 << 20, 1 << 16, false };

/* A connection. Slots are for messages: those received first, then those sent. */
struct conn {
	struct rdma_cm_id *id;
	struct rdma_event_channel *events;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mw *window;
	uint8_t *memory, *slots, *shown;
	struct ibv_mr *memory_mr, *slots_mr, *shown_mr;
	uint32_t window_key;
	bool is_server, gone;
};

static void finish(int status, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));

static void finish(int status, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("\n");
	fflush(NULL);
	_exit(status);
}

static void must(bool good, const char *what)
{
	if (!good)
		finish(1, "cannot %s: %s", what, strerror(errno));
}

static bool does(const char *op)
{
	return strstr(options.ops, op);
}

static size_t memory_len(void)
{
	return (size_t)options.most + AT_ONCE * (GAP + SHIFT) + COUNTERS;
}

/* counter_at: offset of eight octets that atomics change. */
static size_t counter_at(void)
{
	return memory_len() / 8 * 8 - COUNTERS / 2;
}

static uint8_t *slot(const struct conn *conn, uint32_t number)
{
	return conn->slots + (size_t)number * options.message;
}

static void await(struct pollfd *fd, struct conn *conn)
{
	if (fd[0].revents) {
		struct ibv_cq *cq;
		void *context;

		if (!ibv_get_cq_event(conn->channel, &cq, &context))
			ibv_ack_cq_events(cq, 1);
	}
	if (fd[1].revents) {
		struct rdma_cm_event *event;

		if (!rdma_get_cm_event(conn->events, &event)) {
			conn->gone |= event->event == RDMA_CM_EVENT_DISCONNECTED ||
				      event->event == RDMA_CM_EVENT_DEVICE_REMOVAL;
			rdma_ack_cm_event(event);
		}
	}
}

/* next: waits for a completion; false when the connection is gone. */
static bool next(struct conn *conn, struct ibv_wc *wc, bool solicited)
{
	for (;;) {
		if (ibv_poll_cq(conn->cq, 1, wc) > 0)
			return wc->status == IBV_WC_SUCCESS;
		if (conn->gone)
			return false;
		must(ibv_req_notify_cq(conn->cq, solicited) == 0, "arm the completion queue");
		if (ibv_poll_cq(conn->cq, 1, wc) > 0)
			return wc->status == IBV_WC_SUCCESS;
		struct pollfd fds[] = { { conn->channel->fd, POLLIN, 0 }, { conn->events->fd, POLLIN, 0 } };

		if (poll(fds, 2, conn->is_server ? -1 : PATIENCE) == 0)
			finish(HANG, "HANG: no completion");
		await(fds, conn);
	}
}

static void unblock(int fd)
{
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static uint8_t *octets(size_t len)
{
	uint8_t *at = calloc(1, len);

	must(at, "have memory");
	return at;
}

static struct ibv_mr *registered(struct conn *conn, uint8_t *at, size_t len, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(conn->pd, at, len, access);

	must(mr, "register memory");
	return mr;
}

static void receive(struct conn *conn, uint32_t number)
{
	struct ibv_sge sge = { (uintptr_t)slot(conn, number), options.message, conn->slots_mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = number, .sg_list = &sge, .num_sge = 1 }, *bad;

	ibv_post_recv(conn->id->qp, &wr, &bad);
}

/* open_queues: makes what a connection's id still lacks. */
static void open_queues(struct conn *conn)
{
	struct ibv_context *device = conn->id->verbs;

	conn->pd = ibv_alloc_pd(device);
	conn->channel = ibv_create_comp_channel(device);
	must(conn->pd && conn->channel, "have a protection domain and a channel");
	unblock(conn->channel->fd);
	unblock(conn->events->fd);
	conn->cq = ibv_create_cq(device, 2 * DEPTH, NULL, conn->channel, 0);
	must(conn->cq, "have a completion queue");
	struct ibv_qp_init_attr attributes = {
		.send_cq = conn->cq, .recv_cq = conn->cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = SLOTS, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	/* A peer of a server may have given up before. */
	conn->gone = rdma_create_qp(conn->id, conn->pd, &attributes) != 0;
	must(!conn->gone || conn->is_server, "have a queue pair");
	if (conn->gone)
		return;

	int remote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

	conn->memory = octets(memory_len());
	conn->slots = octets(2 * SLOTS * (size_t)options.message);
	conn->memory_mr = registered(conn, conn->memory, memory_len(),
				     IBV_ACCESS_LOCAL_WRITE | (conn->is_server ? remote : 0));
	conn->slots_mr = registered(conn, conn->slots, 2 * SLOTS * (size_t)options.message, IBV_ACCESS_LOCAL_WRITE);
	for (uint32_t number = 0; number < SLOTS; number++)
		receive(conn, number);
	if (!conn->is_server)
		return;
	conn->shown = octets(WINDOW);
	conn->shown_mr = registered(conn, conn->shown, WINDOW, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	conn->window = ibv_alloc_mw(conn->pd, IBV_MW_TYPE_2);
	must(conn->window, "have a window");
	conn->window_key = conn->window->rkey;
}

/* part: disconnects, and waits until the peer has heard of it: the connection manager says it again
 * where a datagram was lost, but not for an id that is destroyed. */
static void part(struct conn *conn)
{
	struct pollfd fds[] = { { -1, 0, 0 }, { conn->events->fd, POLLIN, 0 } };
	bool is_told = rdma_disconnect(conn->id) == 0;

	while (conn->is_server && is_told && !conn->gone && poll(fds, 2, PARTING) > 0)
		await(fds, conn);
}

static void close_queues(struct conn *conn)
{
	struct ibv_mr *regions[] = { conn->memory_mr, conn->slots_mr, conn->shown_mr };

	part(conn);
	if (conn->window)
		ibv_dealloc_mw(conn->window);
	if (conn->id->qp)
		rdma_destroy_qp(conn->id);
	ibv_destroy_cq(conn->cq);
	ibv_destroy_comp_channel(conn->channel);
	for (size_t i = 0; i < 3; i++)
		if (regions[i])
			ibv_dereg_mr(regions[i]);
	ibv_dealloc_pd(conn->pd);
	rdma_destroy_id(conn->id);
	rdma_destroy_event_channel(conn->events);
	free(conn->memory);
	free(conn->slots);
	free(conn->shown);
}

/* post: posts a request of one piece, or of none. */
static void post(struct conn *conn, struct ibv_send_wr wr, const uint8_t *at, uint32_t len, const struct ibv_mr *mr)
{
	struct ibv_sge sge = { (uintptr_t)at, len, mr ? mr->lkey : 0 };
	struct ibv_send_wr *bad;

	wr.sg_list = &sge;
	wr.num_sge = len > 0;
	int error = ibv_post_send(conn->id->qp, &wr, &bad);

	if (error && !conn->is_server)
		finish(conn->gone ? LOST : 1, "cannot post operation %u: %d", wr.opcode, error);
}

/* bind_window: shows memory by a key that a peer may invalidate. */
static void bind_window(struct conn *conn)
{
	int access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW, .wr_id = SLOTS, .bind_mw = {
		.mw = conn->window, .rkey = conn->window_key = ibv_inc_rkey(conn->window_key),
		.bind_info = { conn->shown_mr, (uintptr_t)conn->shown, WINDOW, access } } };

	post(conn, wr, NULL, 0, NULL);
	/* The provider of rxe does not note it, and names the window by it. */
	conn->window->rkey = conn->window_key;
}

/* answer: sends back what came in a slot. The slot is received into again when that is sent. */
static void answer(struct conn *conn, const struct ibv_wc *wc, bool *has_begun)
{
	uint32_t len = wc->byte_len;
	uint8_t *at = slot(conn, wc->wr_id);
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .wr_id = wc->wr_id };

	if (!*has_begun) {
		bind_window(conn);
		*(struct advert *)at = (struct advert){ (uintptr_t)conn->memory, (uintptr_t)conn->shown,
							conn->memory_mr->rkey, conn->window_key };
		*has_begun = true, len = sizeof(struct advert);
	} else if (wc->wc_flags & IBV_WC_WITH_IMM) {
		wr.opcode = IBV_WR_SEND_WITH_IMM, wr.imm_data = wc->imm_data, len = 0;
	} else if (len == sizeof renewal && !memcmp(at, renewal, len)) {
		bind_window(conn);
		memcpy(at, &conn->window_key, 4);
		len = 4;
	}
	post(conn, wr, at, len, conn->slots_mr);
}

static void *serve_one(void *context)
{
	struct conn *conn = context;
	struct rdma_conn_param param = { .responder_resources = 16, .initiator_depth = 0, .rnr_retry_count = 7 };
	struct ibv_wc wc;
	bool has_begun = false;

	open_queues(conn);
	conn->gone = conn->gone || rdma_accept(conn->id, &param) != 0;
	while (next(conn, &wc, options.solicited && has_begun)) {
		if (wc.opcode & IBV_WC_RECV)
			answer(conn, &wc, &has_begun);
		else if (wc.wr_id < SLOTS)
			receive(conn, wc.wr_id);
	}
	close_queues(conn);
	free(conn);
	return NULL;
}

static struct sockaddr_in address_of(const char *address, const char *port)
{
	struct addrinfo *found;

	must(getaddrinfo(address, port, &(struct addrinfo){ .ai_family = AF_INET }, &found) == 0, "know the address");
	struct sockaddr_in result = *(struct sockaddr_in *)found->ai_addr;

	freeaddrinfo(found);
	return result;
}

static void serve(struct sockaddr_in address)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener;
	struct rdma_cm_event *event;

	must(channel && rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0, "have an id");
	must(rdma_bind_addr(listener, (struct sockaddr *)&address) == 0 && rdma_listen(listener, 128) == 0, "listen");
	printf("listening\n");
	fflush(NULL);
	while (rdma_get_cm_event(channel, &event) == 0) {
		struct conn *conn = NULL;
		pthread_t thread;

		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			conn = calloc(1, sizeof *conn);
			must(conn, "have memory");
			conn->id = event->id, conn->is_server = true;
			conn->events = rdma_create_event_channel();
		}
		rdma_ack_cm_event(event);
		if (!conn)
			continue;
		must(conn->events && rdma_migrate_id(conn->id, conn->events) == 0, "have events");
		must(pthread_create(&thread, NULL, serve_one, conn) == 0, "have a thread");
		pthread_detach(thread);
	}
}

static void expect_event(struct conn *conn, enum rdma_cm_event_type type)
{
	struct pollfd fd = { conn->events->fd, POLLIN, 0 };
	struct rdma_cm_event *event;

	if (poll(&fd, 1, PATIENCE) == 0)
		finish(HANG, "HANG: no event %s", rdma_event_str(type));
	must(rdma_get_cm_event(conn->events, &event) == 0, "get an event");
	if (event->event != type)
		finish(LOST, "%s, status %d: %.*s", rdma_event_str(event->event), event->status,
		       event->param.conn.private_data_len, (const char *)event->param.conn.private_data);
	rdma_ack_cm_event(event);
}

static void connect_to(struct conn *conn, struct sockaddr_in address)
{
	struct rdma_conn_param param = { .responder_resources = 0, .initiator_depth = 16, .retry_count = 7,
					 .rnr_retry_count = 7 };

	conn->events = rdma_create_event_channel();
	must(conn->events && rdma_create_id(conn->events, &conn->id, NULL, RDMA_PS_TCP) == 0, "have an id");
	must(rdma_resolve_addr(conn->id, NULL, (struct sockaddr *)&address, 2000) == 0, "resolve the address");
	expect_event(conn, RDMA_CM_EVENT_ADDR_RESOLVED);
	must(rdma_resolve_route(conn->id, 2000) == 0, "resolve the route");
	expect_event(conn, RDMA_CM_EVENT_ROUTE_RESOLVED);
	open_queues(conn);
	if (rdma_connect(conn->id, &param))
		finish(LOST, "rdma_connect: %s", strerror(errno));
	expect_event(conn, RDMA_CM_EVENT_ESTABLISHED);
}

/* done: waits for so many completions of sends, and for those of receives, whose slots it notes. */
static void done(struct conn *conn, uint32_t sends, uint32_t receives, struct ibv_wc *received)
{
	struct ibv_wc wc;

	while (sends + receives > 0) {
		if (!next(conn, &wc, false))
			finish(LOST, "the connection is lost");
		if (wc.opcode & IBV_WC_RECV) {
			if (receives-- == 0)
				finish(WRONG, "WRONG: a message that nobody expects");
			*received++ = wc;
		} else if (sends-- == 0) {
			finish(WRONG, "WRONG: a completion that nobody expects");
		}
	}
}

static void put_pattern(uint8_t *at, uint32_t len, uint32_t seed)
{
	uint64_t v = seed * 0x9E3779B97F4A7C15u + 1;

	for (uint32_t p = 0; p < len; p++) {
		v = v * 6364136223846793005u + 1442695040888963407u;
		at[p] = v >> 56;
	}
}

static void compare(const uint8_t *got, uint32_t len, uint32_t seed, const char *what)
{
	uint8_t *wanted = octets(len + 1);

	put_pattern(wanted, len, seed);
	for (uint32_t p = 0; p < len; p++)
		if (got[p] != wanted[p])
			finish(WRONG, "WRONG: octet %u of %u of a %s, seed %u", p, len, what, seed);
	free(wanted);
}

/* memory: several Writes, and Reads of the same octets behind them, all at once. */
static void memory(struct conn *conn, const struct advert *there, uint32_t size, uint32_t seed)
{
	uint32_t count = options.most / size < AT_ONCE ? 1 : AT_ONCE;
	uint8_t *sinks = octets(count * (size_t)size);
	struct ibv_mr *mr = registered(conn, sinks, count * (size_t)size, IBV_ACCESS_LOCAL_WRITE);

	for (uint32_t i = 0; i < count; i++) {
		size_t at = SHIFT + (size_t)i * (size + GAP);
		struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .wr_id = SLOTS,
					  .wr.rdma = { there->address + at, there->key } };

		put_pattern(conn->memory + at, size, seed + i);
		post(conn, wr, conn->memory + at, size, conn->memory_mr);
	}
	for (uint32_t i = 0; i < count; i++) {
		size_t at = SHIFT + (size_t)i * (size + GAP);
		struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_READ, .wr_id = SLOTS,
					  .wr.rdma = { there->address + at, there->key } };

		post(conn, wr, sinks + (size_t)i * size, size, mr);
	}
	done(conn, 2 * count, 0, NULL);
	for (uint32_t i = 0; i < count; i++)
		compare(sinks + (size_t)i * size, size, seed + i, "Read behind a Write");
	ibv_dereg_mr(mr);
	free(sinks);
}

/* messages: several Sends at once, which come back. */
static void messages(struct conn *conn, uint32_t size, uint32_t seed)
{
	struct ibv_wc received[AT_ONCE];
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .wr_id = SLOTS,
				  .send_flags = options.solicited ? IBV_SEND_SOLICITED : 0 };

	for (uint32_t i = 0; i < AT_ONCE; i++) {
		put_pattern(slot(conn, SLOTS + i), size, seed + i);
		post(conn, wr, slot(conn, SLOTS + i), size, conn->slots_mr);
	}
	done(conn, AT_ONCE, AT_ONCE, received);
	for (uint32_t i = 0; i < AT_ONCE; i++) {
		if (received[i].byte_len != size)
			finish(WRONG, "WRONG: a Send of %u octets came back with %u", size, received[i].byte_len);
		compare(slot(conn, received[i].wr_id), size, seed + i, "Send");
		receive(conn, received[i].wr_id);
	}
}

/* invalidate: writes by a window's key, invalidates it by a message, and returns the answer. */
static struct ibv_wc invalidate(struct conn *conn, const struct advert *there, uint32_t seed, uint32_t len)
{
	struct ibv_wc received;
	struct ibv_send_wr write = { .opcode = IBV_WR_RDMA_WRITE, .wr_id = SLOTS,
				     .wr.rdma = { there->window_address + seed % 100, there->window_key } };
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND_WITH_INV, .wr_id = SLOTS,
				    .send_flags = options.solicited ? IBV_SEND_SOLICITED : 0 };

	/* siw's provider takes the key from the other one. */
	send.invalidate_rkey = send.wr.rdma.rkey = there->window_key;
	memcpy(slot(conn, SLOTS), renewal, sizeof renewal);
	post(conn, write, slot(conn, SLOTS), 100, conn->slots_mr);
	post(conn, send, slot(conn, SLOTS), len, conn->slots_mr);
	done(conn, 2, 1, &received);
	receive(conn, received.wr_id);
	return received;
}

static void renew(struct conn *conn, struct advert *there, uint32_t seed)
{
	struct ibv_wc received = invalidate(conn, there, seed, sizeof renewal);

	if (received.byte_len != 4)
		finish(WRONG, "WRONG: an answer of %u octets in place of a key", received.byte_len);
	memcpy(&there->window_key, slot(conn, received.wr_id), 4);
}

static void immediate(struct conn *conn, const struct advert *there, uint32_t size, uint32_t seed, bool writes)
{
	struct ibv_wc received;
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND_WITH_IMM, .wr_id = SLOTS, .imm_data = seed,
				  .send_flags = options.solicited ? IBV_SEND_SOLICITED : 0 };

	if (writes) {
		wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		wr.wr.rdma.remote_addr = there->address, wr.wr.rdma.rkey = there->key;
	}
	post(conn, wr, conn->memory, writes ? size : 0, conn->memory_mr);
	done(conn, 1, 1, &received);
	if (!(received.wc_flags & IBV_WC_WITH_IMM) || received.imm_data != seed)
		finish(WRONG, "WRONG: immediate value %x came back as %x", seed, received.imm_data);
	receive(conn, received.wr_id);
}

static uint64_t atomic(struct conn *conn, const struct advert *there, bool adds, uint64_t first, uint64_t second)
{
	uint8_t *sink = conn->memory + counter_at();
	struct ibv_send_wr wr = { .opcode = adds ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP,
				  .wr_id = SLOTS, .wr.atomic = { .remote_addr = there->address + counter_at(),
				  .compare_add = first, .swap = second, .rkey = there->key } };
	uint64_t old;

	post(conn, wr, sink, 8, conn->memory_mr);
	done(conn, 1, 0, NULL);
	memcpy(&old, sink, 8);
	return old;
}

/* atomics: the counter is this client's alone. */
static void atomics(struct conn *conn, const struct advert *there, uint32_t seed)
{
	static uint64_t counter;
	uint64_t more = seed * 0x123456789abu, found;

	if (does("add") && (found = atomic(conn, there, true, more, 0)) != counter)
		finish(WRONG, "WRONG: FetchAdd found %lx, not %lx", found, counter);
	counter += does("add") ? more : 0;
	if (!does("swap"))
		return;
	if ((found = atomic(conn, there, false, counter + 1, 5)) != counter)
		finish(WRONG, "WRONG: CmpSwap found %lx, not %lx", found, counter);
	if ((found = atomic(conn, there, false, counter, more)) != counter)
		finish(WRONG, "WRONG: CmpSwap found %lx behind one that does not match, not %lx", found, counter);
	counter = more;
}

/* misuse: one request with a key that nobody gave, or that is no more, ends the connection. */
static void misuse(struct conn *conn, struct advert there)
{
	struct ibv_send_wr wr = { .opcode = options.wrong[0] == 'r' ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
				  .wr_id = SLOTS, .wr.rdma = { there.address, there.key ^= 0xff } };
	struct ibv_wc wc;

	if (options.wrong[0] == 'i') {
		invalidate(conn, &there, 0, 100);
		wr.wr.rdma.remote_addr = there.window_address, wr.wr.rdma.rkey = there.window_key;
	}
	if (options.wrong[0] == 'a')
		atomic(conn, &there, true, 1, 0);
	else
		post(conn, wr, conn->memory, 64, conn->memory_mr);
	while (next(conn, &wc, false))
		;
	finish(LOST, "the connection is lost");
}

static void ask(struct sockaddr_in address)
{
	static const uint32_t sizes[] = { 1, 2, 3, 7, 64, 1000, 1448, 4095, 4096, 4097, 65535, 65536, 65537, 262144,
					  1 << 20 };
	struct conn conn = { .gone = false };
	struct advert there;
	struct ibv_wc received;
	uint32_t seed = 1, rounds;

	connect_to(&conn, address);
	post(&conn, (struct ibv_send_wr){ .opcode = IBV_WR_SEND, .wr_id = SLOTS }, slot(&conn, SLOTS), 8, conn.slots_mr);
	done(&conn, 1, 1, &received);
	there = *(struct advert *)slot(&conn, received.wr_id);
	receive(&conn, received.wr_id);
	printf("connected\n");
	fflush(NULL);
	while (options.wait && access(options.wait, F_OK) != 0)
		usleep(50000);
	if (*options.wrong)
		misuse(&conn, there);
	for (rounds = 0; options.rounds == 0 || rounds < options.rounds; rounds++) {
		for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++, seed += 2 * AT_ONCE) {
			if (does("write") && sizes[i] <= options.most)
				memory(&conn, &there, sizes[i], seed);
			if (does("send") && sizes[i] <= options.message)
				messages(&conn, sizes[i], seed);
			if (does("inval"))
				renew(&conn, &there, seed);
			if (does("imm")) {
				immediate(&conn, &there, sizes[i] <= options.most ? sizes[i] : 1, seed, true);
				immediate(&conn, &there, 0, seed + 1, false);
			}
			atomics(&conn, &there, seed);
		}
	}
	close_queues(&conn);
	finish(0, "all octets are right: %u rounds", rounds);
}

static void parse(char *argument)
{
	char *value = strchr(argument, '=');
	struct {
		const char *name;
		uint32_t *to;
	} numbers[] = { { "rounds", &options.rounds }, { "most", &options.most }, { "message", &options.message } };

	if (!value)
		finish(2, "not KEY=VALUE: %s", argument);
	*value++ = 0;
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		if (!strcmp(argument, numbers[i].name)) {
			*numbers[i].to = strtoul(value, NULL, 0);
			return;
		}
	if (!strcmp(argument, "ops"))
		options.ops = value;
	else if (!strcmp(argument, "wrong"))
		options.wrong = value;
	else if (!strcmp(argument, "wait"))
		options.wait = value;
	else if (!strcmp(argument, "solicited"))
		options.solicited = *value == '1';
	else
		finish(2, "no such key: %s", argument);
}

int main(int argc, char **argv)
{
	setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){ RLIM_INFINITY, RLIM_INFINITY });
	if (argc < 4)
		finish(2, "usage: octets serve|ask ADDRESS PORT [KEY=VALUE...]");
	for (int i = 4; i < argc; i++)
		parse(argv[i]);
	struct sockaddr_in address = address_of(argv[2], argv[3]);

	if (!strcmp(argv[1], "serve"))
		serve(address);
	else
		ask(address);
	return 1;
}
