/*
 * roce_kills [ROUNDS [SEED]]: a peer that is killed or stopped at any moment, in the join too, or
 * leaves with octets unread. The survivor's requests end by an error of their own, in the time that
 * timeout and retry_cnt have, and each completes once.
 */
#include "roce.h"
#include <signal.h>
#include <sys/wait.h>

enum {
	LEN = 1 << 18, /* of a request: longer than what TCP takes at once from time to time */
	DEPTH = 8,
	RECEIVES = 60,
	/* One try takes at most 4 * 4.096 us * 2^12, and there are four: 0.3 s. */
	TRY_TIME = 12,
	TRIES = 3,
	/* Seconds behind which a round hangs. */
	TOO_LONG = 60,
	/* Microseconds, in which a join and some requests are done. */
	LATEST = 4000,
};

static void asks(struct end *end, struct told *peer, uint64_t id)
{
	static const int opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND };
	int opcode = opcodes[id % 3];

	/* There are receives for some Sends only. */
	if (opcode == IBV_WR_SEND && id / 3 >= RECEIVES)
		opcode = IBV_WR_RDMA_WRITE;
	posts(end, opcode, opcode == IBV_WR_SEND ? 64 : LEN, peer->address, peer->key, id);
}

/* Has requests going until one fails. What fails is not answered, and what is behind it flushed. */
static void works_until_it_fails(struct end *end, struct told *peer)
{
	uint64_t asked = 0, answered = 0;
	int failed = 0, received = 0;
	struct ibv_wc wc;

	for (int at = 0; at < RECEIVES; at++)
		receives(end, 64, 1000000 + at);
	while (!failed || answered < asked || received < RECEIVES) {
		while (!failed && asked < answered + DEPTH)
			asks(end, peer, asked++);
		wc = next(end->cq);
		if (wc.wr_id >= 1000000) {
			IS(wc.wr_id, 1000000 + received++);
			IS(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_WR_FLUSH_ERR, 1);
			continue;
		}
		IS(wc.wr_id, answered++);
		if (failed || wc.status)
			IS(wc.status, failed++ ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR);
	}
}

struct deed {
	pid_t whom;
	int signal, after;
};

static void *does(void *of)
{
	struct deed *deed = of;

	usleep(deed->after);
	IS(kill(deed->whom, deed->signal), 0);
	return NULL;
}

static void a_peer_that_is(int signal, int after)
{
	struct deed deed = { .signal = signal, .after = after };
	struct told peer;
	struct end end;
	pthread_t thread;

	try_time = TRY_TIME;
	tries = TRIES;
	deed.whom = forked(&end, LEN, &peer);
	if (deed.whom == 0) {
		joins(&end, &peer, 7);
		works_until_it_fails(&end, &peer);
		_exit(0);
	}
	IS(pthread_create(&thread, NULL, does, &deed), 0);
	joins(&end, &peer, 7);
	works_until_it_fails(&end, &peer);
	IS(pthread_join(thread, NULL), 0);
	kill(deed.whom, SIGKILL);
	IS(waitpid(deed.whom, NULL, 0), deed.whom);
	unmade(&end);
}

/* A peer that has taken a message, and leaves while more comes: the message was sent. */
static void a_peer_that_leaves(void)
{
	struct told peer;
	struct end end;
	struct ibv_wc wc;
	int status, failed = 0;
	pid_t child;

	try_time = 14;
	tries = 7;
	child = forked(&end, LEN, &peer);
	joins(&end, &peer, 7);
	if (child == 0) {
		receives(&end, 64, 0);
		ends(&end, 0, IBV_WC_SUCCESS);
		exit(0);
	}
	posts(&end, IBV_WR_SEND, 64, 0, 0, 0);
	for (int id = 1; id < 60; id++)
		posts(&end, IBV_WR_RDMA_WRITE, LEN, peer.address, peer.key, id);
	ends(&end, 0, IBV_WC_SUCCESS);
	for (int id = 1; id < 60; id++) {
		wc = next(end.cq);
		IS(wc.wr_id, id);
		if (failed || wc.status)
			IS(wc.status, failed++ ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR);
	}
	IS(waitpid(child, &status, 0), child);
	IS(status, 0);
	unmade(&end);
}

int main(int count, char **words)
{
	int rounds = count > 1 ? atoi(words[1]) : 20;
	unsigned seed = count > 2 ? atoi(words[2]) : 1;

	open_device();
	for (int round = 0; round < rounds; round++) {
		int signal = rand_r(&seed) % 4 ? SIGKILL : SIGSTOP, after = rand_r(&seed) % LATEST;

		alarm(TOO_LONG);
		a_peer_that_is(signal, after);
		a_peer_that_leaves();
	}
	return 0;
}
