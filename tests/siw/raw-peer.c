/*
 * One end of the scenarios in SCENARIOS.md, on the raw mode of extended sockets (rddp/raw.h):
 * `transfer`, `reject`, and of `fault` what is done with a Send, a Write or a Read.
 *
 *   raw-peer active|passive ADDRESS PORT SCENARIO [KEY=VALUE...]
 *
 * Prints a line for each step; exits with 0 only if every step was as that page has it.
 */

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rddp/ddp.h>

#include "peer.h"

enum { ADVERTS = 3, LAST_RECEIVES = 3 };
enum { DONE_PLACE = ADVERTS, VERIFIED_PLACE, SPARE_PLACE, SENT_PLACE, PLACES };
enum { OCTETS = 64, OUTSIDE = 32, UNKNOWN_STAG = 0x5A5A5A00 };

struct memory {
	uint8_t *base;
	uint32_t length, stag;
};

/* The state of the work with this index. */
struct fate {
	bool done;
	int32_t status;
	uint32_t length, flags, stag;
};

static struct {
	struct options options;
	uint32_t number; /* of this connection, from 0 */
	int queue, fd;
	bool connected, closed, requested;
	struct ddp_event end;
	struct memory messages, inbox, source, sink, token;
	struct advert peer_inbox, peer_source, peer_token;
	struct fate *sends, *receives;
	uint32_t sent, received;
} here;

static void fail_that(const char *what)
{
	printf("FAIL: %s (%s)\n", what, strerror(errno));
	exit(1);
}

static void check_that(bool good, const char *what)
{
	if (!good)
		fail_that(what);
}

static uint32_t items(void)
{
	return here.options.count * here.options.op_count;
}

static enum operation operation_of(uint32_t item)
{
	return here.options.ops[item % here.options.op_count];
}

static enum end other(void)
{
	return here.options.role == ACTIVE ? PASSIVE : ACTIVE;
}

static uint64_t seed(void)
{
	return here.options.seed + here.number;
}

static uint32_t sends_of(enum end end)
{
	uint32_t sends = 0;

	for (uint32_t item = 0; doer(&here.options, end) && item < items(); item++)
		sends += operation_of(item) <= SEND_SE_INV;
	return sends;
}

static uint8_t *slot(const struct memory *memory, uint32_t item)
{
	return memory->base + MARGIN + (uint64_t)item * here.options.size;
}

static uint8_t *place(uint32_t number)
{
	return here.messages.base + number * MESSAGE;
}

/* heed: handles one event, if one comes in time; returns whether one did. */
static bool heed(int milliseconds)
{
	struct ddp_event event;
	int count = ddp_events(here.queue, &event, 1, milliseconds);

	check_that(count >= 0, "take events");
	if (count == 0)
		return false;
	check_that(event.endpoint == here.number, "see events of this connection only");
	if (event.kind == DDP_CONNECTED) {
		here.connected = true;
	} else if (event.kind == DDP_REQUESTED) {
		here.requested = true;
	} else if (event.kind == DDP_CLOSED) {
		here.closed = true;
		here.end = event;
	} else {
		struct fate *fate = (event.kind == DDP_RECEIVE ? here.receives : here.sends) + event.tag;

		check_that(!fate->done, "see each work end once");
		*fate = (struct fate){ true, event.status, event.length, event.flags, event.stag };
	}
	return true;
}

static void await(const bool *what, const char *name)
{
	while (!*what)
		check_that(heed(here.options.timeout * 1000), name);
}

static struct fate *expect(struct fate *fate, int32_t status, const char *name)
{
	await(&fate->done, name);
	if (fate->status != status)
		printf("%s: %s\n", name, strerror(fate->status));
	check_that(fate->status == status, name);
	return fate;
}

static struct memory add_memory(uint32_t length, int access)
{
	struct memory memory = { .length = length };

	memory.base = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check_that(memory.base != MAP_FAILED, "have memory");
	memset(memory.base, FILL, length);
	check_that(ddp_register(0, memory.base, length, access, &memory.stag) == 0, "register memory");
	return memory;
}

static void drop_memory(struct memory *memory)
{
	check_that(ddp_deregister(memory->stag) == 0, "deregister memory");
	munmap(memory->base, memory->length);
}

static struct ddp_sge in(const struct memory *memory, const uint8_t *at, uint32_t length)
{
	return (struct ddp_sge){ .to = (uintptr_t)at, .length = length, .stag = memory->stag };
}

static void post_place(uint8_t *at, uint32_t length, const struct memory *memory)
{
	struct ddp_sge into = in(memory, at, length);
	struct ddp_work work = { .op = DDP_RECEIVE, .tag = here.received++, .list = &into, .count = 1 };

	check_that(ddp_post(here.fd, &work, 1) == 1, "post a receive");
}

static uint32_t post_work(struct ddp_work work, const struct memory *memory, const uint8_t *at, uint32_t length)
{
	struct ddp_sge from = in(memory, at, length);

	work.tag = here.sent++;
	work.list = &from;
	work.count = 1;
	check_that(ddp_post(here.fd, &work, 1) == 1, "post a work");
	return work.tag;
}

static void prepare(void)
{
	const struct options *options = &here.options;
	uint32_t length = 2 * MARGIN + items() * options->size, sends = items() + 64;

	here.sends = calloc(sends, sizeof *here.sends);
	here.receives = calloc(ADVERTS + sends_of(other()) + LAST_RECEIVES, sizeof *here.receives);
	here.messages = add_memory(PLACES * MESSAGE + OCTETS, DDP_LOCAL_WRITE);
	here.inbox = add_memory(length, DDP_LOCAL_WRITE | DDP_REMOTE_WRITE);
	here.source = add_memory(length, DDP_REMOTE_READ);
	here.sink = add_memory(length, DDP_LOCAL_WRITE);
	here.token = add_memory(TOKEN_LENGTH,
				 DDP_LOCAL_WRITE | DDP_REMOTE_READ | DDP_REMOTE_WRITE | DDP_REMOTE_INVALIDATE);
	for (uint32_t item = 0; item < items(); item++)
		put_pattern(slot(&here.source, item), options->size, seed(), options->role, item);
	struct ddp_endpoint how = { .queue = here.queue, .tag = here.number, .max_send = sends, .max_recv = sends };

	check_that(ddp_attach(here.fd, &how) == 0, "attach the socket");
	for (uint32_t number = 0; number < ADVERTS; number++)
		post_place(place(number), MESSAGE, &here.messages);
	for (uint32_t item = 0; doer(options, other()) && item < items(); item++)
		if (operation_of(item) <= SEND_SE_INV)
			post_place(slot(&here.inbox, item), options->size, &here.inbox);
	for (uint32_t number = DONE_PLACE; number <= SPARE_PLACE; number++)
		post_place(place(number), MESSAGE, &here.messages);
}

static void send_octets(const void *octets)
{
	memcpy(place(SENT_PLACE), octets, MESSAGE);
	uint32_t index = post_work((struct ddp_work){ .op = DDP_SEND }, &here.messages, place(SENT_PLACE), MESSAGE);

	expect(here.sends + index, 0, "see a message sent");
}

static void message(uint8_t *to, const char *name, uint64_t value)
{
	value = htobe64(value);
	memcpy(to, name, 8);
	memcpy(to + 8, &value, 8);
}

static void send_message(const char *name, uint64_t value)
{
	uint8_t octets[MESSAGE];

	message(octets, name, value);
	send_octets(octets);
}

static void expect_message(uint32_t number, uint32_t receive, const char *name, uint64_t value)
{
	uint8_t wanted[MESSAGE];

	message(wanted, name, value);
	check_that(expect(here.receives + receive, 0, name)->length == MESSAGE && !memcmp(place(number), wanted, MESSAGE), name);
}

static void send_advert(const struct memory *memory)
{
	uint8_t octets[MESSAGE];
	uint64_t address = htobe64((uintptr_t)memory->base);
	uint32_t rest[] = { htobe32(memory->stag), htobe32(memory->length) };

	memcpy(octets, &address, 8);
	memcpy(octets + 8, rest, 8);
	send_octets(octets);
}

static struct advert expect_advert(uint32_t number)
{
	struct advert advert;

	check_that(expect(here.receives + number, 0, "receive an advert")->length == MESSAGE, "receive a whole advert");
	memcpy(&advert.address, place(number), 8);
	memcpy(&advert.stag, place(number) + 8, 4);
	memcpy(&advert.length, place(number) + 12, 4);
	return (struct advert){ be64toh(advert.address), be32toh(advert.stag), be32toh(advert.length) };
}

static void exchange_adverts(void)
{
	for (int turn = 0; turn < 2; turn++) {
		if ((turn == 0) == (here.options.role == ACTIVE)) {
			send_advert(&here.inbox);
			send_advert(&here.source);
			send_advert(&here.token);
		} else {
			here.peer_inbox = expect_advert(0);
			here.peer_source = expect_advert(1);
			here.peer_token = expect_advert(2);
		}
	}
	printf("adverts exchanged\n");
}

static void post_item(uint32_t item)
{
	uint64_t offset = MARGIN + (uint64_t)item * here.options.size;
	struct ddp_work work = { .op = DDP_SEND };
	const struct memory *memory = &here.source;

	switch (operation_of(item)) {
	case READ:
		work = (struct ddp_work){ .op = DDP_READ, .stag = here.peer_source.stag };
		work.to = here.peer_source.address + offset;
		memory = &here.sink;
		break;
	case WRITE:
		work = (struct ddp_work){ .op = DDP_WRITE, .stag = here.peer_inbox.stag };
		work.to = here.peer_inbox.address + offset;
		break;
	case SEND_INV:
	case SEND_SE_INV:
		work = (struct ddp_work){ .op = DDP_SEND_INVALIDATE, .stag = here.peer_token.stag };
		break;
	default:
		break;
	}
	if (operation_of(item) == SEND_SE || operation_of(item) == SEND_SE_INV)
		work.flags = DDP_SOLICITED;
	post_work(work, memory, slot(memory, item), here.options.size);
}

static void do_items(void)
{
	uint32_t first = here.sent;

	if (here.options.size == 0)
		usleep(100000); /* SCENARIOS.md step 6 */
	for (uint32_t item = 0; item < items(); item++)
		post_item(item);
	for (uint32_t item = 0; item < items(); item++)
		expect(here.sends + first + item, 0, "see an item done");
	printf("%u items of %u octets are done\n", items(), here.options.size);
}

static void check_slots(const struct memory *memory, bool done, bool reads, const char *what)
{
	for (uint32_t item = 0; item < items(); item++) {
		bool written = done && (operation_of(item) == READ) == reads;

		check_that(written ? is_pattern(slot(memory, item), here.options.size, seed(), other(), item) :
				 is_fill(slot(memory, item), here.options.size), what);
	}
	check_that(is_fill(memory->base, MARGIN) && is_fill(slot(memory, items()), MARGIN), what);
}

static void check_memory(void)
{
	check_slots(&here.inbox, doer(&here.options, other()), false, "find the inbox as it has to be");
	for (uint32_t item = 0; item < items(); item++)
		check_that(is_pattern(slot(&here.source, item), here.options.size, seed(), here.options.role, item),
		       "find the source unchanged");
	check_that(is_fill(here.token.base, TOKEN_LENGTH), "find the token untouched");
}

/* SCENARIOS.md step 6: the flags arrive if and only if they were sent. */
static void check_receives(void)
{
	uint32_t receive = ADVERTS;

	for (uint32_t item = 0; doer(&here.options, other()) && item < items(); item++) {
		enum operation operation = operation_of(item);
		bool solicited = operation == SEND_SE || operation == SEND_SE_INV;
		bool invalidated = operation == SEND_INV || operation == SEND_SE_INV;

		if (operation > SEND_SE_INV)
			continue;
		struct fate *fate = expect(here.receives + receive++, 0, "receive an item");

		check_that(fate->length == here.options.size, "receive all of an item");
		check_that(!(fate->flags & DDP_EVENT_SOLICITED) == !solicited, "see the Solicited Event flag as it was sent");
		check_that(!(fate->flags & DDP_EVENT_INVALIDATED) == !invalidated, "see the invalidation as it was sent");
		check_that(!invalidated || fate->stag == here.token.stag, "see the token invalidated");
	}
}

static void run_transfer(void)
{
	const struct options *options = &here.options;
	bool we_do = doer(options, options->role), peer_does = doer(options, other());
	uint32_t after_items = ADVERTS + sends_of(other());

	if (we_do) {
		do_items();
		send_message("DONE    ", items());
	}
	check_receives();
	expect_message(DONE_PLACE, after_items, "DONE    ", peer_does ? items() : 0);
	if (!we_do)
		send_message("DONE    ", 0);
	check_slots(&here.sink, we_do, true, "find the sink as it has to be");
	check_memory();
	send_message("VERIFIED", 0);
	expect_message(VERIFIED_PLACE, after_items + 1, "VERIFIED", 0);
	if (options->close == options->role)
		check_that(ddp_disconnect(here.fd, options->abort ? DDP_ABORT : DDP_GRACEFUL) == 0, "disconnect");
	await(&here.closed, "see the connection end");
	printf("closed: %s\n", strerror(here.end.status));
	check_that(options->abort || here.end.status == 0, "see an orderly end");
	expect(here.receives + after_items + 2, ECANCELED, "see the spare receive flushed");
}

static bool kind_has(const char *part)
{
	return strstr(here.options.kind, part) != NULL;
}

static void misbehave(void)
{
	struct ddp_work work = { .op = kind_has("read") ? DDP_READ : DDP_WRITE, .stag = here.peer_token.stag };
	uint8_t *scratch = place(PLACES);
	uint32_t index;

	if (kind_has("send-")) {
		uint32_t count = kind_has("no-receive") ? 4 : 1, length = count == 4 ? MESSAGE : here.options.size;

		if (count == 4)
			message(scratch, "DONE    ", 0);
		for (; count > 0; count--)
			post_work((struct ddp_work){ .op = DDP_SEND }, &here.messages, scratch, length);
		return;
	}
	work.to = here.peer_token.address;
	if (kind_has("bounds"))
		work.to += here.peer_token.length - OUTSIDE;
	else if (kind_has("before"))
		work.to -= OUTSIDE;
	else
		work.stag ^= kind_has("bad-key") ? 1 : UNKNOWN_STAG;
	index = post_work(work, &here.messages, scratch, OCTETS);
	if (work.op == DDP_READ) {
		await(&here.sends[index].done, "see the Read fail");
		check_that(here.sends[index].status != 0, "see the Read fail");
	}
}

static void run_misdeed(void)
{
	bool ours = doer(&here.options, here.options.role);

	if (ours)
		misbehave();
	await(&here.closed, "see the connection end");
	printf("closed: %s, Terminate 0x%04x\n", strerror(here.end.status), here.end.terminate);
	check_that(here.end.status == (ours ? EREMOTEIO : EPROTO), "see why");
	check_that(here.end.flags == (ours ? DDP_EVENT_TERMINATE_RECEIVED : DDP_EVENT_TERMINATE_SENT), "see whose fault it was");
	check_that((int)here.end.terminate == here.options.terminate, "see the Terminate that was expected");
	for (uint32_t receive = ADVERTS; receive < here.received; receive++)
		await(&here.receives[receive].done, "see all receives end");
	check_memory();
}

static int raw_socket(void)
{
	int raw = DDPMODE_RAW, fd = socket(AF_INET, SOCK_STREAM, 0), depth = here.options.reads;

	check_that(setsockopt(fd, SOL_DDP, DDPMODE, &raw, sizeof raw) == 0, "put a socket into raw mode");
	check_that(setsockopt(fd, SOL_DDP, DDP_IRD, &depth, sizeof depth) == 0, "set the IRD");
	check_that(setsockopt(fd, SOL_DDP, DDP_ORD, &depth, sizeof depth) == 0, "set the ORD");
	return fd;
}

/* private_data: stores the private data of this connection's frame of an end; returns its
 * length. */
static uint32_t private_data(enum end end, uint8_t *octets)
{
	uint32_t length = end == ACTIVE ? here.options.request : here.options.reply;

	if (here.options.grow && here.number < length)
		length = here.number;
	put_pattern(octets, length, seed(), end, PRIVATE_ITEM);
	return length;
}

static void check_peer(uint32_t depth)
{
	uint8_t wanted[MAX_PRIVATE];
	uint32_t length = private_data(other(), wanted);
	struct ddp_info info;

	check_that(ddp_info(here.fd, &info) == 0, "ask about the endpoint");
	check_that(info.ird == depth && info.ord == depth, "see the depths that the peer asks for");
	check_that(info.private_length == length && !memcmp(info.private_data, wanted, length), "see the peer's private data");
}

/* SCENARIOS.md, `reject`: the passive end rejects, the active one gets the rejection. */
static void run_rejection(const struct sockaddr_in *addr)
{
	struct ddp_endpoint how = { .queue = here.queue, .tag = here.number, .flags = DDP_ENDPOINT_ASK };
	bool active = here.options.role == ACTIVE;
	uint8_t octets[MAX_PRIVATE];
	uint32_t length = private_data(here.options.role, octets);

	if (active)
		check_that(setsockopt(here.fd, SOL_DDP, DDP_PRIVATE_DATA, octets, length) == 0, "set the private data");
	check_that(ddp_attach(here.fd, &how) == 0, "attach the socket");
	if (active) {
		check_that(connect(here.fd, (const void *)addr, sizeof *addr) < 0 && errno == ECONNREFUSED, "be rejected");
	} else {
		check_that(ddp_begin(here.fd) == 0, "begin");
		await(&here.requested, "see the Request");
		check_peer(here.options.reads);
		check_that(ddp_answer(here.fd, DDP_REJECT, octets, length) == 0, "reject");
	}
	await(&here.closed, "see the startup end");
	check_that(here.end.status == (active ? ECONNREFUSED : ECANCELED), "see why it ended");
	if (active)
		check_peer(0);
	check_that(close(here.fd) == 0, "close the socket");
	printf("rejected with %u octets of private data\n", length);
}

static void run_one(int listener, const struct sockaddr_in *addr)
{
	struct memory *all[] = { &here.messages, &here.inbox, &here.source, &here.sink, &here.token };

	here.connected = here.closed = here.requested = false;
	here.sent = here.received = 0;
	here.fd = listener < 0 ? raw_socket() : accept(listener, NULL, NULL);
	check_that(here.fd >= 0, "accept");
	if (!strcmp(here.options.scenario, "reject")) {
		run_rejection(addr);
		return;
	}
	prepare();
	if (listener < 0)
		check_that(connect(here.fd, (const void *)addr, sizeof *addr) == 0, "connect");
	else
		check_that(ddp_begin(here.fd) == 0, "begin");
	await(&here.connected, "be connected");
	exchange_adverts();
	if (!strcmp(here.options.scenario, "fault"))
		run_misdeed();
	else
		run_transfer();
	check_that(close(here.fd) == 0, "close the socket");
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		drop_memory(all[i]);
	free(here.sends);
	free(here.receives);
}

int main(int argc, char **argv)
{
	struct sockaddr_in addr = { .sin_family = AF_INET };
	int listener = -1, on = 1;

	setvbuf(stdout, NULL, _IOLBF, 0);
	here.options = parse_options(argc, argv);
	addr.sin_port = htons(atoi(here.options.port));
	check_that(inet_pton(AF_INET, here.options.address, &addr.sin_addr) == 1, "read the address");
	here.queue = ddp_queue(0);
	check_that(here.queue >= 0, "make an event queue");
	if (here.options.role == PASSIVE) {
		listener = raw_socket();
		setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
		check_that(bind(listener, (void *)&addr, sizeof addr) == 0 && listen(listener, 5) == 0, "listen");
		printf("listening\n");
	}
	for (; here.number < here.options.connections; here.number++)
		run_one(listener, &addr);
	if (!strcmp(here.options.scenario, "reject"))
		/* A process that ends closes TCP, and siw reads nothing of a Reply whose FIN has come. */
		usleep(500000);
	printf("all is as expected\n");
	return 0;
}
