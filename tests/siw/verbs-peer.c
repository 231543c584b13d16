/*
 * One end of the scenarios in SCENARIOS.md, on libibverbs and librdmacm.
 *
 *   verbs-peer active|passive ADDRESS PORT SCENARIO [KEY=VALUE...]
 *
 * Prints a line for each step; exits with 0 only if every step was as that page has it.
 */

#include <dirent.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "peer.h"

/* The receives of SCENARIOS.md step 1: adverts, the peer's Sends, then the last three. */
enum { ADVERTS = 3, LAST_RECEIVES = 3, EXTRA_SENDS = 64 };
enum { INBOX_ADVERT, SOURCE_ADVERT, TOKEN_ADVERT };

/* Places of messages in their region: received ones first, in order, then those sent. */
enum { RECEIVED_DONE = ADVERTS, RECEIVED_VERIFIED, RECEIVED_SPARE, FIRST_SENT, MESSAGES = FIRST_SENT + 16 };

static double seconds(void)
{
	static struct timespec start;
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	if (!start.tv_sec)
		start = time;
	return time.tv_sec - start.tv_sec + (time.tv_nsec - start.tv_nsec) / 1e9;
}

/* say: prints one step. Of many connections only the first prints all. */
void say(const struct link *link, const char *format, ...)
{
	va_list arguments;

	if (link->number > 0)
		return;
	printf("[%7.3f] ", seconds());
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("\n");
}

void fail(const char *format, ...)
{
	va_list arguments;

	printf("[%7.3f] FAIL: ", seconds());
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("\n");
	exit(1);
}

void check(bool good, const char *what)
{
	if (!good)
		fail("could not %s", what);
}

static uint32_t item_count(const struct options *options)
{
	return options->count * options->op_count;
}

static enum operation operation_of(const struct options *options, uint32_t item)
{
	return options->ops[item % options->op_count];
}

static bool is_send(enum operation operation)
{
	return operation <= SEND_SE_INV;
}

static bool invalidates(enum operation operation)
{
	return operation == SEND_INV || operation == SEND_SE_INV;
}

static bool is_solicited(enum operation operation)
{
	return operation == SEND_SE || operation == SEND_SE_INV;
}

/* sends_of: returns the number of Sends among this end's items. */
static uint32_t sends_of(const struct options *options, enum end end)
{
	uint32_t sends = 0;

	for (uint32_t item = 0; doer(options, end) && item < item_count(options); item++)
		sends += is_send(operation_of(options, item));
	return sends;
}

static uint8_t *slot(const struct link *link, const struct region *region, uint32_t item)
{
	return region->base + MARGIN + (uint64_t)item * link->options->size;
}

static uint8_t *message(const struct link *link, uint32_t number)
{
	return link->messages.base + number * MESSAGE;
}

static void add_regions(struct link *link)
{
	const struct options *options = link->options;
	uint64_t length = 2 * MARGIN + (uint64_t)item_count(options) * options->size;

	check(length <= UINT32_MAX, "have regions this large");
	link->messages = add_region(link->pd, MESSAGES * MESSAGE, IBV_ACCESS_LOCAL_WRITE);
	link->inbox = add_region(link->pd, length, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	link->source = add_region(link->pd, length, IBV_ACCESS_REMOTE_READ);
	link->sink = add_region(link->pd, length, IBV_ACCESS_LOCAL_WRITE);
	link->token = add_region(token_in_other_pd(options) ? link->other_pd : link->pd, TOKEN_LENGTH,
				 token_access(options));
	for (uint32_t item = 0; item < item_count(options); item++)
		put_pattern(slot(link, &link->source, item), options->size, seed_of(link), options->role, item);
}

static void post_receives(struct link *link)
{
	const struct options *options = link->options;

	for (uint32_t number = 0; number < ADVERTS; number++)
		post_receive(link, message(link, number), MESSAGE, &link->messages);
	for (uint32_t item = 0; doer(options, peer_of(link)) && item < item_count(options); item++)
		if (is_send(operation_of(options, item)))
			post_receive(link, slot(link, &link->inbox, item), options->size, &link->inbox);
	for (uint32_t number = RECEIVED_DONE; number <= RECEIVED_SPARE; number++)
		post_receive(link, message(link, number), MESSAGE, &link->messages);
}

static void prepare(struct link *link)
{
	uint32_t receives = ADVERTS + sends_of(link->options, peer_of(link)) + LAST_RECEIVES;

	open_queues(link, item_count(link->options) + EXTRA_SENDS, receives);
	add_regions(link);
	post_receives(link);
}

/* send_octets: sends from the next place for messages. */
static void send_octets(struct link *link, const uint8_t octets[MESSAGE])
{
	uint8_t *from = message(link, FIRST_SENT + link->sends.posted % (MESSAGES - FIRST_SENT));

	memcpy(from, octets, MESSAGE);
	uint32_t index = post(link, (struct ibv_send_wr){ .opcode = IBV_WR_SEND }, from, MESSAGE, link->messages.mr->lkey);
	expect_status(link, &link->sends, index, IBV_WC_SUCCESS);
}

/* put_message: writes a name of eight octets and a number. */
void put_message(uint8_t *to, const char *name, uint64_t value)
{
	value = htobe64(value);
	memcpy(to, name, 8);
	memcpy(to + 8, &value, 8);
}

static void send_message(struct link *link, const char *name, uint64_t value)
{
	uint8_t octets[MESSAGE];

	put_message(octets, name, value);
	send_octets(link, octets);
	say(link, "sent %.8s %llu", name, (unsigned long long)value);
}

static void expect_message(struct link *link, uint32_t number, uint32_t receive, const char *name, uint64_t value)
{
	uint8_t wanted[MESSAGE];

	put_message(wanted, name, value);
	if (expect_status(link, &link->receives, receive, IBV_WC_SUCCESS) != MESSAGE ||
	    memcmp(message(link, number), wanted, MESSAGE))
		fail("another message than %.8s %llu", name, (unsigned long long)value);
	say(link, "received %.8s %llu", name, (unsigned long long)value);
}

static void send_advert(struct link *link, const struct region *region)
{
	uint8_t octets[MESSAGE];
	uint64_t address = htobe64((uintptr_t)region->base);
	uint32_t stag = htobe32(region->mr->rkey), length = htobe32(region->length);

	memcpy(octets, &address, 8);
	memcpy(octets + 8, &stag, 4);
	memcpy(octets + 12, &length, 4);
	send_octets(link, octets);
}

static void send_adverts(struct link *link)
{
	send_advert(link, &link->inbox);
	send_advert(link, &link->source);
	send_advert(link, &link->token);
	say(link, "sent three adverts");
}

static struct advert expect_advert(struct link *link, uint32_t number)
{
	struct advert advert;
	uint32_t received = expect_status(link, &link->receives, number, IBV_WC_SUCCESS);
	const uint8_t *octets = message(link, number);

	if (received != MESSAGE)
		fail("an advert of %u octets", received);
	memcpy(&advert.address, octets, 8);
	memcpy(&advert.stag, octets + 8, 4);
	memcpy(&advert.length, octets + 12, 4);
	return (struct advert){ be64toh(advert.address), be32toh(advert.stag), be32toh(advert.length) };
}

static void expect_adverts(struct link *link)
{
	link->peer_inbox = expect_advert(link, INBOX_ADVERT);
	link->peer_source = expect_advert(link, SOURCE_ADVERT);
	link->peer_token = expect_advert(link, TOKEN_ADVERT);
	check(link->peer_inbox.length == link->inbox.length && link->peer_source.length == link->source.length &&
	      link->peer_token.length == TOKEN_LENGTH, "find the peer's regions as large as its own");
	say(link, "received three adverts: inbox 0x%08x, source 0x%08x, token 0x%08x", link->peer_inbox.stag,
	    link->peer_source.stag, link->peer_token.stag);
}

/* nudge: SCENARIOS.md step 5, for an siw that has left the first FPDU unread. */
static void nudge_until_heard(struct link *link)
{
	for (int patience = 50; !completed(link, &link->receives, INBOX_ADVERT, patience); patience *= 2) {
		struct ibv_send_wr write = { .opcode = IBV_WR_RDMA_WRITE, .wr.rdma.rkey = 1 };

		if (patience > 20000)
			fail("the peer stays silent");
		printf("nudge\n");
		expect_status(link, &link->sends, post(link, write, NULL, 0, 0), IBV_WC_SUCCESS);
	}
}

/* begin: goes from nothing to adverts exchanged. */
static void begin(struct link *link, struct rdma_cm_id *listener)
{
	if (link->options->role == ACTIVE) {
		resolve(link);
		prepare(link);
		connect_to_peer(link);
		send_adverts(link);
		nudge_until_heard(link);
		expect_adverts(link);
	} else {
		take_request(link, listener);
		prepare(link);
		accept_peer(link);
		expect_cm_event(link, RDMA_CM_EVENT_ESTABLISHED);
		say(link, "accepted");
		expect_adverts(link);
		send_adverts(link);
	}
}

/* start_item: posts operation k, between slots k. siw's provider takes the STag to
 * invalidate from wr.rdma.rkey. */
uint32_t start_item(struct link *link, uint32_t item)
{
	enum operation operation = operation_of(link->options, item);
	uint64_t offset = MARGIN + (uint64_t)item * link->options->size;
	uint8_t *from = slot(link, &link->source, item);
	uint32_t size = link->options->size, lkey = link->source.mr->lkey;
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND };

	if (operation == READ) {
		wr.opcode = IBV_WR_RDMA_READ;
		wr.wr.rdma.remote_addr = link->peer_source.address + offset;
		wr.wr.rdma.rkey = link->peer_source.stag;
		return post(link, wr, slot(link, &link->sink, item), size, link->sink.mr->lkey);
	}
	if (operation == WRITE) {
		wr.opcode = IBV_WR_RDMA_WRITE;
		wr.wr.rdma.remote_addr = link->peer_inbox.address + offset;
		wr.wr.rdma.rkey = link->peer_inbox.stag;
	} else if (invalidates(operation)) {
		wr.opcode = IBV_WR_SEND_WITH_INV;
		wr.invalidate_rkey = wr.wr.rdma.rkey = link->peer_token.stag;
	}
	if (is_solicited(operation))
		wr.send_flags = IBV_SEND_SOLICITED;
	return post(link, wr, from, size, lkey);
}

/* reads_nothing: returns whether there are Reads of no octets, which siw handles wrongly while
 * it is sending; SCENARIOS.md step 6. */
static bool reads_nothing(const struct options *options)
{
	bool reads = false;

	for (uint32_t i = 0; i < options->op_count; i++)
		reads |= options->ops[i] == READ;
	return reads && options->size == 0;
}

static void do_items(struct link *link)
{
	uint32_t first = link->sends.posted, items = item_count(link->options);

	if (reads_nothing(link->options))
		usleep(100000);
	for (uint32_t item = 0; item < items; item++)
		start_item(link, item);
	for (uint32_t item = 0; item < items; item++)
		expect_status(link, &link->sends, first + item, IBV_WC_SUCCESS);
	say(link, "%u items of %u octets are done", items, link->options->size);
}

/* check_slots: checks that the slots of Reads (or of all else) hold the peer's items if any were
 * done, and that nothing is anywhere else. */
static void check_slots(const struct link *link, const struct region *region, bool done, bool reads, const char *name)
{
	const struct options *options = link->options;
	uint32_t items = item_count(options);

	for (uint32_t item = 0; item < items; item++) {
		const uint8_t *at = slot(link, region, item);
		bool written = done && (operation_of(options, item) == READ) == reads;
		bool right = written ? is_pattern(at, options->size, seed_of(link), peer_of(link), item) :
				       is_fill(at, options->size);

		if (!right)
			fail("the %s's slot %u is not as it has to be", name, item);
	}
	check(is_fill(region->base, MARGIN) && is_fill(slot(link, region, items), MARGIN), "find the margins untouched");
}

static void check_source(const struct link *link)
{
	const struct options *options = link->options;

	for (uint32_t item = 0; item < item_count(options); item++)
		check(is_pattern(slot(link, &link->source, item), options->size, seed_of(link), options->role, item),
		      "find the source unchanged");
}

/* check_regions: checks all memory of this end that the peer could reach. */
void check_regions(const struct link *link)
{
	check_slots(link, &link->inbox, doer(link->options, peer_of(link)), false, "inbox");
	check_source(link);
	check(is_fill(link->token.base, TOKEN_LENGTH), "find the token untouched");
	say(link, "inbox, source and token are as they have to be");
}

static void check_received_lengths(struct link *link)
{
	uint32_t sends = sends_of(link->options, peer_of(link));

	for (uint32_t i = 0; i < sends; i++) {
		uint32_t length = expect_status(link, &link->receives, ADVERTS + i, IBV_WC_SUCCESS);

		if (length != link->options->size)
			fail("receive %u reports %u octets, not %u", i, length, link->options->size);
	}
}

static void transfer(struct link *link)
{
	const struct options *options = link->options;
	bool we_do = doer(options, options->role), peer_does = doer(options, peer_of(link));
	uint32_t after_items = ADVERTS + sends_of(options, peer_of(link));

	if (we_do) {
		do_items(link);
		send_message(link, "DONE    ", item_count(options));
	}
	check_received_lengths(link);
	expect_message(link, RECEIVED_DONE, after_items, "DONE    ", peer_does ? item_count(options) : 0);
	if (!we_do)
		send_message(link, "DONE    ", 0);
	check_slots(link, &link->sink, we_do, true, "sink");
	check_regions(link);
	send_message(link, "VERIFIED", 0);
	expect_message(link, RECEIVED_VERIFIED, after_items + 1, "VERIFIED", 0);
	close_connection(link, options->close == options->role);
	expect_status(link, &link->receives, after_items + 2, IBV_WC_WR_FLUSH_ERR);
	say(link, "the spare receive is flushed");
}

/* refused: checks that no connection is made. */
static void refused(struct link *link, struct rdma_cm_id *listener)
{
	if (link->options->role == ACTIVE) {
		resolve(link);
		prepare(link);
		expect_refusal(link);
		return;
	}
	struct cm_event event = next_cm_event(listener->channel, link->options->wait * 1000);

	if ((int)event.type == -1)
		exit(0);
	check(event.type == RDMA_CM_EVENT_CONNECT_REQUEST, "see a request");
	link->id = event.id;
	link->channel = rdma_create_event_channel();
	check(rdma_migrate_id(link->id, link->channel) == 0, "give the connection events of its own");
	prepare(link);
	accept_peer(link);
	const struct completion *first = completed(link, &link->receives, 0, link->options->wait * 1000);

	check(!first || first->status != IBV_WC_SUCCESS, "see no message arrive");
}

static void run_connection(struct link *link, struct rdma_cm_id *listener)
{
	const char *scenario = link->options->scenario;

	if (!strcmp(scenario, "refused")) {
		refused(link, listener);
	} else if (!strcmp(scenario, "reject") && link->options->role == ACTIVE) {
		resolve(link);
		prepare(link);
		expect_rejection(link);
	} else if (!strcmp(scenario, "reject")) {
		take_request(link, listener);
		reject_peer(link);
	} else {
		begin(link, listener);
		if (!strcmp(scenario, "fault"))
			run_fault(link);
		else
			transfer(link);
	}
}

/* allow_pinning: raises the limit against which siw of 6.1 counts pinned memory, and with which
 * even root starts. */
static void allow_pinning(void)
{
	struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };

	setrlimit(RLIMIT_MEMLOCK, &unlimited);
}

static unsigned open_descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	unsigned count = 0;

	check(folder, "read /proc/self/fd");
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

int main(int argc, char **argv)
{
	struct options options = parse_options(argc, argv);
	struct rdma_cm_id *listener = NULL;
	unsigned descriptors = 0;

	allow_pinning();
	setvbuf(stdout, NULL, _IOLBF, 0);
	seconds();
	watch_terminates();
	if (options.role == PASSIVE)
		listener = listen_for_peer(&options);
	for (uint32_t number = 0; number < options.connections; number++) {
		struct link link = { .options = &options, .number = number };

		run_connection(&link, listener);
		take_async_events(&link);
		close_link(&link);
		if (number == 0)
			descriptors = open_descriptors();
		if ((number + 1) % 100 == 0)
			printf("[%7.3f] %u connections\n", seconds(), number + 1);
	}
	/* A connection that was rejected is open until its peer has closed it. */
	for (int tries = 0; tries < 300 && open_descriptors() > descriptors; tries++)
		usleep(10000);
	check(open_descriptors() <= descriptors, "close all that it opened");
	printf("[%7.3f] all is as expected\n", seconds());
	return 0;
}
