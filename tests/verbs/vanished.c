/*
 * vanished: a peer that vanishes is noticed after the time that ibv_modify_qp sets by `timeout` and
 * `retry_cnt`, before the connection is made or later. In a network of its own, whose only
 * interface goes down. Ends with 2 where such a network cannot be made.
 */
#define _GNU_SOURCE
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "calls.h"

/* One try may take 4 * 4.096 us * 2^18, which is 4.3 s, and the eight of a queue pair for which
 * nobody says how many 34 s. Without a timeout it were two minutes. */
enum { TIMEOUT = 18, PATIENCE = 22 };

static char octets[8];

static void loopback(int up)
{
	struct ifreq lo = { .ifr_name = "lo", .ifr_flags = up ? IFF_UP : 0 };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	IS(ioctl(fd, SIOCSIFFLAGS, &lo), 0);
	close(fd);
}

static void limit(void)
{
	struct ibv_qp_attr attr = { .timeout = TIMEOUT, .retry_cnt = 0 };

	IS(ibv_modify_qp(client->qp, &attr, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT), 0);
}

/* Begins a Read that nobody answers. */
static void ask(struct rdma_cm_id *from, struct rdma_cm_id *of)
{
	struct ibv_mr *sink = rdma_reg_msgs(from, octets, sizeof octets);
	struct ibv_mr *source = rdma_reg_read(of, octets, sizeof octets);

	IS(rdma_post_read(from, NULL, octets, sizeof octets, sink, 0, (uintptr_t)octets, source->rkey), 0);
}

int main(void)
{
	struct rdma_cm_id *ends[2][2];

	if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET)) {
		perror("vanished: no network of its own");
		return 2;
	}
	loopback(1);
	for (int early = 0; early < 2; early++) {
		unconnected();
		if (early)
			limit();
		connect_both();
		if (!early)
			limit();
		ends[early][0] = client;
		ends[early][1] = server;
	}
	loopback(0);
	for (int n = 0; n < 2; n++)
		ask(ends[n][0], ends[n][1]);
	alarm(PATIENCE);
	for (int n = 0; n < 2; n++)
		IS(next(ends[n][0]->send_cq).status, IBV_WC_WR_FLUSH_ERR);
	return 0;
}
