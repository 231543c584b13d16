/*
 * Children of fork: they have no connection and no listener of their parent's. Ends with 1 at the
 * first wrong answer.
 */
#include "calls.h"
#include <poll.h>
#include <signal.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <sys/wait.h>

static struct sockaddr_in address = { .sin_family = AF_INET };

static struct rdma_cm_event *event(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event;

	IS(rdma_get_cm_event(channel, &event), 0);
	return event;
}

static struct rdma_cm_id *listening(struct rdma_event_channel *channel)
{
	struct rdma_cm_id *id;

	IS(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	IS(rdma_bind_addr(id, (struct sockaddr *)&address), 0);
	IS(rdma_listen(id, 4), 0);
	address.sin_port = rdma_get_src_port(id);
	return id;
}

/* Connects, forks a child that sleeps for long, says its number, and waits for its own end. */
static void have_an_heir(int say)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *info;
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } };
	struct rdma_cm_id *id;
	char port[8];
	pid_t heir;

	snprintf(port, sizeof port, "%d", ntohs(address.sin_port));
	IS(rdma_getaddrinfo("127.0.0.1", port, &hints, &info), 0);
	IS(rdma_create_ep(&id, info, NULL, &attr), 0);
	IS(rdma_connect(id, NULL), 0);
	heir = fork();
	if (heir == 0) {
		pause();
		_exit(1);
	}
	IS(write(say, &heir, sizeof heir), sizeof heir);
	pause();
}

/* A program that is killed has left its peer, whether it has a child or not. */
static void an_heir_keeps_no_connection(void)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } };
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listens, *id;
	struct rdma_cm_event *got;
	struct pollfd ready;
	pid_t client, heir;
	int ends[2], start[2];
	char octet;

	IS(pipe(ends) | pipe(start), 0);
	client = fork();
	if (client == 0) {
		/* The port is known when the parent listens. */
		IS(read(start[0], &address.sin_port, 2), 2);
		have_an_heir(ends[1]);
	}
	channel = rdma_create_event_channel();
	listens = listening(channel);
	IS(write(start[1], &address.sin_port, 2), 2);
	got = event(channel);
	IS(got->event, RDMA_CM_EVENT_CONNECT_REQUEST);
	id = got->id;
	rdma_ack_cm_event(got);
	IS(rdma_create_qp(id, NULL, &attr), 0);
	IS(rdma_accept(id, NULL), 0);
	got = event(channel);
	IS(got->event, RDMA_CM_EVENT_ESTABLISHED);
	rdma_ack_cm_event(got);
	IS(read(ends[0], &heir, sizeof heir), sizeof heir);
	IS(kill(client, SIGKILL), 0);
	waitpid(client, NULL, 0);
	ready = (struct pollfd) { channel->fd, POLLIN };
	octet = poll(&ready, 1, 60000);
	kill(heir, SIGKILL);
	IS(octet, 1);
	got = event(channel);
	IS(got->event, RDMA_CM_EVENT_DISCONNECTED);
	rdma_ack_cm_event(got);
	rdma_destroy_qp(id);
	IS(rdma_destroy_id(id), 0);
	IS(rdma_destroy_id(listens), 0);
	rdma_destroy_event_channel(channel);
	address.sin_port = 0;
}

/* A child may listen where its parent did, once that is gone, as after daemon(3). */
static void a_child_may_have_the_port(void)
{
	int ends[2], status = 0;
	pid_t parent;

	IS(pipe(ends), 0);
	parent = fork();
	if (parent == 0) {
		parent = getpid();
		listening(rdma_create_event_channel());
		if (fork())
			_exit(0);
		while (getppid() == parent)
			usleep(1000);
		listening(rdma_create_event_channel());
		status = 1;
		IS(write(ends[1], &status, sizeof status), sizeof status);
		_exit(0);
	}
	waitpid(parent, NULL, 0);
	close(ends[1]);
	IS(read(ends[0], &status, sizeof status), sizeof status);
}

int main(void)
{
	alarm(120);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	a_child_may_have_the_port();
	an_heir_keeps_no_connection();
	return 0;
}
