/* Scenario `fault`: one violation, and what is reported to each end. */

#include <string.h>

#include "peer.h"

enum { ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };
enum { OCTETS = 64, OUTSIDE = 32, FIRST_LEFT = 3, RECEIVES_LEFT = 3 };

/* The violation. OWN is a Send whose own buffer is wrong, so that its sender itself sends the
 * Terminate. */
enum misdeed { WRITE_IT, READ_IT, INVALIDATE_IT, TOO_LONG, TOO_MANY, OWN, READ_TRUNCATED };

/* The place in the token at which a Write or Read begins. */
enum place { AT_START, BEFORE_END, BEFORE_START, BEFORE_WRAP };

enum { UNKNOWN_STAG = 0x5A5A5A00, BAD_KEY = 1 };

static const struct fault {
	const char *name;
	enum misdeed misdeed;
	enum place place;
	uint32_t stag_change;
	int access_withheld;
	bool other_pd, invalidate_first;
} faults[] = {
	{ "write-unknown", WRITE_IT, .stag_change = UNKNOWN_STAG },
	{ "write-bad-key", WRITE_IT, .stag_change = BAD_KEY },
	{ "write-bounds", WRITE_IT, .place = BEFORE_END },
	{ "write-before", WRITE_IT, .place = BEFORE_START },
	{ "write-wrap", WRITE_IT, .place = BEFORE_WRAP },
	{ "write-no-right", WRITE_IT, .access_withheld = IBV_ACCESS_REMOTE_WRITE },
	{ "write-other-pd", WRITE_IT, .other_pd = true },
	{ "write-invalidated", WRITE_IT, .invalidate_first = true },
	{ "read-unknown", READ_IT, .stag_change = UNKNOWN_STAG },
	{ "read-bad-key", READ_IT, .stag_change = BAD_KEY },
	{ "read-bounds", READ_IT, .place = BEFORE_END },
	{ "read-before", READ_IT, .place = BEFORE_START },
	{ "read-wrap", READ_IT, .place = BEFORE_WRAP },
	{ "read-no-right", READ_IT, .access_withheld = IBV_ACCESS_REMOTE_READ },
	{ "read-other-pd", READ_IT, .other_pd = true },
	{ "read-invalidated", READ_IT, .invalidate_first = true },
	{ "invalidate-unknown", INVALIDATE_IT, .stag_change = UNKNOWN_STAG },
	{ "invalidate-bad-key", INVALIDATE_IT, .stag_change = BAD_KEY },
	{ "invalidate-other-pd", INVALIDATE_IT, .other_pd = true },
	{ "send-too-long", TOO_LONG },
	{ "send-no-receive", TOO_MANY },
	{ "local-error", OWN },
	{ "read-truncated", READ_TRUNCATED },
};

static const struct fault *find(const char *name)
{
	for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
		if (!strcmp(faults[i].name, name))
			return &faults[i];
	fail("no such kind of fault: '%s'", name);
}

static bool is_fault(const struct options *options)
{
	return !strcmp(options->scenario, "fault");
}

int token_access(const struct options *options)
{
	return is_fault(options) ? ACCESS & ~find(options->kind)->access_withheld : ACCESS;
}

bool token_in_other_pd(const struct options *options)
{
	return is_fault(options) && find(options->kind)->other_pd;
}

static uint64_t address_of(const struct fault *fault, const struct advert *token)
{
	switch (fault->place) {
	case BEFORE_END:
		return token->address + token->length - OUTSIDE;
	case BEFORE_START:
		return token->address - OUTSIDE;
	case BEFORE_WRAP:
		return -(uint64_t)OUTSIDE;
	default:
		return token->address;
	}
}

/*
 * complete_somehow: waits for a Send or Write, which is complete when TCP has it and so mostly
 * succeeds; but the peer's Terminate can come first.
 */
static void complete_somehow(struct link *link, uint32_t index)
{
	const struct completion *completion = completed(link, &link->sends, index, link->options->timeout * 1000);

	check(completion, "see its request complete");
	say(link, "its own request completes: %s", ibv_wc_status_str(completion->status));
}

/* send_invalidate: sends 16 octets by a Send with Invalidate. */
static void send_invalidate(struct link *link, uint32_t stag)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = stag, .wr.rdma.rkey = stag };

	put_message(link->scratch.base, "DONE    ", 0);
	uint32_t index = post(link, wr, link->scratch.base, MESSAGE, link->scratch.mr->lkey);
	complete_somehow(link, index);
}

static void access_token(struct link *link, const struct fault *fault)
{
	bool read = fault->misdeed == READ_IT;
	struct ibv_send_wr wr = { .opcode = read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE };

	if (fault->invalidate_first)
		send_invalidate(link, link->peer_token.stag);
	wr.wr.rdma.remote_addr = address_of(fault, &link->peer_token);
	wr.wr.rdma.rkey = link->peer_token.stag ^ fault->stag_change;
	uint32_t index = post(link, wr, link->scratch.base, OCTETS, link->scratch.mr->lkey);

	if (read)
		expect_status(link, &link->sends, index, IBV_WC_WR_FLUSH_ERR);
	else
		complete_somehow(link, index);
}

static uint32_t send_from(struct link *link, const uint8_t *from, uint32_t length)
{
	return post(link, (struct ibv_send_wr){ .opcode = IBV_WR_SEND }, from, length, link->scratch.mr->lkey);
}

static void misbehave(struct link *link, const struct fault *fault)
{
	uint8_t *scratch = link->scratch.base;
	uint32_t own;

	switch (fault->misdeed) {
	case WRITE_IT:
	case READ_IT:
		access_token(link, fault);
		break;
	case INVALIDATE_IT:
		send_invalidate(link, link->peer_token.stag ^ fault->stag_change);
		break;
	case TOO_LONG:
		complete_somehow(link, send_from(link, scratch, link->options->size));
		break;
	case TOO_MANY:
		put_message(scratch, "DONE    ", 0);
		for (int i = 0; i <= RECEIVES_LEFT; i++)
			complete_somehow(link, send_from(link, scratch, MESSAGE));
		break;
	case OWN:
		own = send_from(link, scratch + link->scratch.length - OUTSIDE, OCTETS);
		expect_status(link, &link->sends, own, IBV_WC_LOC_QP_OP_ERR);
		break;
	case READ_TRUNCATED:
		expect_status(link, &link->sends, start_item(link, 0), IBV_WC_WR_FLUSH_ERR);
		break;
	}
	say(link, "did what '%s' says", fault->name);
}

/* status_at_target: returns the status with which siw's receives end at the end
 * whose rules were broken. */
static enum ibv_wc_status status_at_target(const struct fault *fault, int receive)
{
	if (fault->misdeed == TOO_MANY || (fault->invalidate_first && receive == 0))
		return IBV_WC_SUCCESS;
	if (fault->misdeed == INVALIDATE_IT && receive == 0)
		return IBV_WC_REM_INV_REQ_ERR;
	if (fault->misdeed == TOO_LONG && receive == 0)
		return IBV_WC_LOC_LEN_ERR;
	return IBV_WC_WR_FLUSH_ERR;
}

static void check_receives(struct link *link, const struct fault *fault, bool target)
{
	/* siw leaves the receives alone when it was its sending half that ended the connection. */
	struct ibv_qp_attr attributes = { .qp_state = IBV_QPS_ERR };

	ibv_modify_qp(link->id->qp, &attributes, IBV_QP_STATE);
	for (int i = 0; i < RECEIVES_LEFT; i++) {
		enum ibv_wc_status status = target ? status_at_target(fault, i) : IBV_WC_WR_FLUSH_ERR;

		expect_status(link, &link->receives, FIRST_LEFT + i, status);
	}
	say(link, "the receives ended as they have to");
}

static void check_terminate(const struct link *link)
{
	int wanted = link->options->terminate, code = received_terminate(link->options->rfc_order, 2000);

	if (code < 0)
		fail("no Terminate was received");
	if (wanted >= 0 && code != wanted)
		fail("Terminate 0x%04X where 0x%04X is expected", code, wanted);
	say(link, "received Terminate 0x%04X", code);
}

void run_fault(struct link *link)
{
	const struct options *options = link->options;
	const struct fault *fault = find(options->kind);
	bool we_do = doer(options, options->role);

	if (we_do) {
		link->scratch = add_region(link->pd, options->size < OCTETS ? OCTETS : options->size, IBV_ACCESS_LOCAL_WRITE);
		misbehave(link, fault);
	}
	if (fault->misdeed == INVALIDATE_IT && !we_do) {
		/* siw fails the receive, and sends its Terminate only when its user then closes. */
		expect_status(link, &link->receives, FIRST_LEFT, IBV_WC_REM_INV_REQ_ERR);
		check(rdma_disconnect(link->id) == 0, "disconnect");
	}
	expect_cm_event(link, RDMA_CM_EVENT_DISCONNECTED);
	say(link, "disconnected");
	if (we_do != (fault->misdeed == OWN))
		check_terminate(link);
	check_receives(link, fault, !we_do);
	check_regions(link);
}
