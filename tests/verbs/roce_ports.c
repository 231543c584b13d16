/*
 * roce_ports: numbers of queue pairs are ports, which a host may have none left of. In a network of
 * its own, which has two. Ends with 2 where such a network cannot be made.
 */
#define _GNU_SOURCE
#include "roce.h"
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>

static const char RANGE[] = "40000 40001";

static int own_network(void)
{
	struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	int fd;

	if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET))
		return -1;
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (ioctl(fd, SIOCSIFFLAGS, &lo))
		return -1;
	close(fd);
	fd = open("/proc/sys/net/ipv4/ip_local_port_range", O_WRONLY);
	return write(fd, RANGE, sizeof RANGE - 1) < 0 ? -1 : close(fd);
}

static struct ibv_qp *asked(struct ibv_cq *cq, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr attr = { .send_cq = cq, .recv_cq = cq, .qp_type = type, .cap = { 1, 1, 1, 1, 0 } };

	errno = 0;
	return ibv_create_qp(pd, &attr);
}

int main(void)
{
	enum { PORTS = 2, EACH = 256 };
	struct ibv_qp *qps[PORTS * EACH], *qp;
	struct told to_one, to_other;
	struct ibv_cq *cq;
	struct end ends[2];

	if (own_network()) {
		perror("roce_ports: no network of its own");
		return 2;
	}
	alarm(60);
	open_device();
	cq = ibv_create_cq(device, 16, NULL, NULL, 0);
	ends[0] = made(64);
	ends[1] = made(64);
	for (int at = 2; at < PORTS * EACH; at++) {
		qps[at] = asked(cq, IBV_QPT_RC);
		IS(!qps[at], 0);
	}
	IS(asked(cq, IBV_QPT_RC), NULL);
	IS(errno, ENOMEM);
	IS(asked(cq, IBV_QPT_UD), NULL);
	IS(errno, ENOMEM);
	/* A connection has a port, too. */
	to_one = telling(&ends[0]);
	to_other = telling(&ends[1]);
	comes_to_rtr(&ends[0], &to_other, 0);
	comes_to_rtr(&ends[1], &to_one, 0);
	IS(comes_to_rts(&ends[0], 7, 0), ENOMEM);
	IS(ends[0].qp->state, IBV_QPS_RTR);
	/* What is given back is there for others. */
	for (int at = 2; at < PORTS * EACH; at++)
		IS(ibv_destroy_qp(qps[at]), 0);
	qp = asked(cq, IBV_QPT_RC);
	IS(!qp, 0);
	IS(ibv_destroy_qp(qp), 0);
	return 0;
}
