/*
 * roce_children: a program that forks when it has queue pairs which are joined by numbers. Whatever
 * its child does, they go on; the child has none of them, and may have its own.
 */
#include "roce.h"
#include <signal.h>
#include <sys/wait.h>

static struct end one, other;
static struct told to_one, to_other;

static void join_both(void)
{
	one = made(64);
	other = made(64);
	to_one = telling(&one);
	to_other = telling(&other);
	joins(&one, &to_other, 7);
	joins(&other, &to_one, 7);
}

/* Writes and Sends go both ways. */
static void goes_on(uint64_t id)
{
	posts(&one, IBV_WR_RDMA_WRITE, 8, to_other.address, to_other.key, id);
	ends(&one, id, IBV_WC_SUCCESS);
	posts(&other, IBV_WR_RDMA_READ, 8, to_one.address, to_one.key, id);
	ends(&other, id, IBV_WC_SUCCESS);
	receives(&other, 8, id + 1);
	posts(&one, IBV_WR_SEND, 8, 0, 0, id);
	ends(&one, id, IBV_WC_SUCCESS);
	ends(&other, id + 1, IBV_WC_SUCCESS);
}

static void execs(void)
{
	execlp("true", "true", NULL);
}

static void leaves(void)
{
	exit(0);
}

static void leaves_at_once(void)
{
	_exit(0);
}

static void uses_its_own(void)
{
	struct ibv_sge sge = { (uintptr_t)one.octets, 8, one.mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE };

	/* Its parent's are none of its own. */
	IS(ibv_post_send(one.qp, &wr, &bad) != 0, 1);
	open_device();
	join_both();
	goes_on(1);
	unmade(&one);
	unmade(&other);
	exit(0);
}

static void a_child(void (*does)(void), uint64_t id)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		does();
		_exit(1);
	}
	/* While the child is there, and when it is not. */
	goes_on(id);
	IS(waitpid(child, &status, 0), child);
	IS(status, 0);
	goes_on(id + 2);
}

/* A program that is killed has left its peer, although its child lives. */
static void an_heir_keeps_no_connection(void)
{
	struct told told, peer;
	int sockets[2], self;
	pid_t client, heir;
	struct end end;

	IS(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
	client = fork();
	self = sockets[client == 0];
	if (client == 0)
		open_device();
	end = made(64);
	told = telling(&end);
	IS(write(self, &told, sizeof told), sizeof told);
	IS(read(self, &peer, sizeof peer), sizeof peer);
	joins(&end, &peer, 7);
	if (client == 0) {
		posts(&end, IBV_WR_RDMA_WRITE, 8, peer.address, peer.key, 1);
		ends(&end, 1, IBV_WC_SUCCESS);
		heir = fork();
		if (heir == 0)
			pause();
		IS(write(self, &heir, sizeof heir), sizeof heir);
		pause();
	}
	IS(read(self, &heir, sizeof heir), sizeof heir);
	IS(kill(client, SIGKILL), 0);
	IS(waitpid(client, NULL, 0), client);
	posts(&end, IBV_WR_RDMA_WRITE, 8, peer.address, peer.key, 1);
	ends(&end, 1, IBV_WC_RETRY_EXC_ERR);
	IS(kill(heir, SIGKILL), 0);
	unmade(&end);
}

int main(void)
{
	static void (*const does[])(void) = { leaves, leaves_at_once, execs, uses_its_own };

	alarm(120);
	IS(ibv_fork_init(), 0);
	open_device();
	join_both();
	for (int at = 0; at < 4; at++)
		a_child(does[at], 4 * at + 1);
	an_heir_keeps_no_connection();
	goes_on(100);
	return 0;
}
