/*
 * leaving exit|_exit|parent: a program that forks, with ibv_fork_init. The child, or with "parent"
 * the parent, is the client: it sends, takes its completions, disconnects and leaves at once. The
 * other end says "all" if it has each message. A line by plain TCP tells the client the port.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/rdma_verbs.h>

enum { MESSAGES = 48, SIZE = 65536 };

#define IS(call, wanted) is(#call, (long)(call), (long)(wanted), __LINE__)

static void is(const char *call, long got, long wanted, int line)
{
	if (got == wanted)
		return;
	fprintf(stderr, "leaving: line %d, process %d: %s is %ld, not %ld (%s)\n", line, getpid(), call,
		got, wanted, strerror(errno));
	_exit(1);
}

static struct ibv_qp_init_attr attributes(void)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1 };

	attr.cap = (struct ibv_qp_cap) { MESSAGES, MESSAGES, 1, 1, 0 };
	return attr;
}

static char *memory(void)
{
	char *at = calloc(MESSAGES, SIZE);

	for (int message = 0; at && message < MESSAGES; message++)
		memset(at + message * SIZE, 'a' + message % 26, SIZE);
	return at;
}

/* Returns a TCP socket that is bound, or connected to the port, which is stored. */
static int tcp(unsigned short *port, int listens)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof at;
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	at.sin_port = *port;
	if (!listens) {
		IS(connect(fd, (struct sockaddr *)&at, len), 0);
		return fd;
	}
	IS(bind(fd, (struct sockaddr *)&at, len), 0);
	IS(listen(fd, 4), 0);
	IS(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	*port = at.sin_port;
	return fd;
}

static void serve(int listening)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP }, *info;
	struct ibv_qp_init_attr attr = attributes();
	struct rdma_cm_id *listener, *id;
	char *into = calloc(MESSAGES, SIZE), *wanted = memory();
	unsigned short port;
	struct ibv_mr *mr;
	struct ibv_wc wc;
	int fd;

	IS(rdma_getaddrinfo("127.0.0.1", "0", &hints, &info), 0);
	IS(rdma_create_ep(&listener, info, NULL, &attr), 0);
	IS(rdma_listen(listener, 1), 0);
	fd = accept(listening, NULL, NULL);
	port = rdma_get_src_port(listener);
	IS(write(fd, &port, sizeof port), sizeof port);
	IS(rdma_get_request(listener, &id), 0);
	mr = rdma_reg_msgs(id, into, MESSAGES * SIZE);
	IS(mr != NULL, 1);
	for (int message = 0; message < MESSAGES; message++)
		IS(rdma_post_recv(id, NULL, into + message * SIZE, SIZE, mr), 0);
	IS(rdma_accept(id, NULL), 0);
	for (int message = 0; message < MESSAGES; message++) {
		IS(rdma_get_recv_comp(id, &wc), 1);
		IS(wc.status, IBV_WC_SUCCESS);
		IS(wc.byte_len, SIZE);
	}
	IS(memcmp(into, wanted, MESSAGES * SIZE), 0);
	IS(read(fd, &port, sizeof port), 0);
	puts("all");
	fflush(stdout);
}

static void talk(unsigned short control)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *info;
	struct ibv_qp_init_attr attr = attributes();
	unsigned short port;
	char *from = memory(), text[8];
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	struct ibv_wc wc;
	int fd = tcp(&control, 0);

	IS(read(fd, &port, sizeof port), sizeof port);
	snprintf(text, sizeof text, "%d", ntohs(port));
	IS(rdma_getaddrinfo("127.0.0.1", text, &hints, &info), 0);
	IS(rdma_create_ep(&id, info, NULL, &attr), 0);
	mr = rdma_reg_msgs(id, from, MESSAGES * SIZE);
	IS(mr != NULL, 1);
	IS(rdma_connect(id, NULL), 0);
	for (int message = 0; message < MESSAGES; message++)
		IS(rdma_post_send(id, NULL, from + message * SIZE, SIZE, mr, 0), 0);
	for (int message = 0; message < MESSAGES; message++) {
		IS(rdma_get_send_comp(id, &wc), 1);
		IS(wc.status, IBV_WC_SUCCESS);
	}
	IS(rdma_disconnect(id), 0);
}

int main(int count, char **words)
{
	const char *word = count > 1 ? words[1] : "exit";
	int parent_talks = !strcmp(word, "parent"), listening, status;
	struct ibv_context *context;
	struct ibv_pd *pd;
	unsigned short port = 0;
	pid_t child;
	char room[64];

	IS(ibv_fork_init(), 0);
	listening = tcp(&port, 1);
	/* Objects of before the fork: the parent's own. */
	context = ibv_open_device(ibv_get_device_list(NULL)[0]);
	IS(context != NULL, 1);
	pd = ibv_alloc_pd(context);
	IS(pd != NULL, 1);
	child = fork();
	IS(child >= 0, 1);
	alarm(60); /* which a child does not inherit */
	if (!child) {
		errno = 0;
		IS(ibv_reg_mr(pd, room, sizeof room, IBV_ACCESS_LOCAL_WRITE), NULL);
		IS(errno, EINVAL);
	}
	if (parent_talks == (child == 0)) {
		serve(listening);
	} else {
		talk(port);
		if (!strcmp(word, "_exit"))
			_exit(0);
		exit(0);
	}
	if (!child)
		return 0;
	/* The parent's objects have stayed its own. */
	IS(ibv_reg_mr(pd, room, sizeof room, IBV_ACCESS_LOCAL_WRITE) != NULL, 1);
	IS(waitpid(child, &status, 0), child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
