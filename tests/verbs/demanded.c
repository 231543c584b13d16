/*
 * Faults on demand, on a device that looks like RoCE, as programs of no other project see them:
 * what a peer learns of a request that fails, and what a device makes that has failed. Ends with 1
 * at the first wrong answer.
 */
#include "roce.h"
#include <poll.h>
#include <sys/wait.h>

/* The kind of the next event, which is of this element. */
static int event_of(void *element)
{
	struct ibv_async_event event;

	IS(ibv_get_async_event(device, &event), 0);
	IS((long)event.element.qp, (long)element);
	ibv_ack_async_event(&event);
	return event.event_type;
}

/* With a status that a responder finds, the responder is told, and the requester is not. */
static void the_peer_learns_of_a_refused_request(const char *rule, int status, int kind)
{
	struct end end;
	struct told peer;
	struct pollfd news;
	pid_t child;
	int ended;

	setenv("RDDP_VERBS_FAULTS", rule, 1);
	open_device();
	child = forked(&end, 64, &peer);
	joins(&end, &peer, 7);
	if (child == 0) {
		IS(event_of(end.qp), kind);
		exit(0);
	}
	/* Now they are joined. */
	posts(&end, IBV_WR_RDMA_WRITE, 8, peer.address, peer.key, 1);
	ends(&end, 1, IBV_WC_SUCCESS);
	posts(&end, IBV_WR_RDMA_WRITE, 8, peer.address, peer.key, 2);
	ends(&end, 2, status);
	IS(waitpid(child, &ended, 0), child);
	IS(ended, 0);
	news = (struct pollfd) { device->async_fd, POLLIN };
	IS(poll(&news, 1, 0), 0);
}

/* What a device that has failed has made is destroyed, and nothing new is to be had. */
static void a_device_that_has_failed(void)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 } };
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_RESET };
	struct end end;

	setenv("RDDP_VERBS_FAULTS", "device at=200ms fatal", 1);
	open_device();
	end = made(64);
	IS(event_of((void *)1), IBV_EVENT_DEVICE_FATAL);
	attr.send_cq = attr.recv_cq = end.cq;
	IS((long)ibv_create_qp(pd, &attr), 0);
	IS(errno, EIO);
	IS((long)ibv_create_cq(device, 8, NULL, NULL, 0), 0);
	IS(errno, EIO);
	IS((long)ibv_alloc_pd(device), 0);
	IS(errno, EIO);
	IS((long)ibv_reg_mr(pd, end.octets, 64, 0), 0);
	IS(errno, EIO);
	IS(ibv_modify_qp(end.qp, &init, IBV_QP_STATE), EIO);
	unmade(&end);
	IS(ibv_dealloc_pd(pd), 0);
	IS(ibv_close_device(device), 0);
}

static void in_a_process_of_its_own(int number)
{
	pid_t child = fork();
	int ended;

	if (child == 0) {
		alarm(30);
		switch (number) {
		case 0: the_peer_learns_of_a_refused_request("op=write nth=2 status=REM_INV_REQ_ERR", IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR); break;
		case 1: the_peer_learns_of_a_refused_request("op=write nth=2 status=REM_ACCESS_ERR", IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR); break;
		case 2: the_peer_learns_of_a_refused_request("op=write nth=2 status=REM_OP_ERR", IBV_WC_REM_OP_ERR, IBV_EVENT_QP_FATAL); break;
		case 3: a_device_that_has_failed(); break;
		}
		exit(0);
	}
	IS(waitpid(child, &ended, 0), child);
	IS(ended, 0);
}

int main(void)
{
	for (int number = 0; number < 4; number++)
		in_a_process_of_its_own(number);
	return 0;
}
