/*
 * rsockets: a signal in rpoll and rselect, plain descriptors beside sockets, two threads on one
 * socket, a child of fork, memory that the other end writes to, and calls that are not done. Ends
 * with 1 at the first answer that is wrong.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <rdma/rsocket.h>

#define IS(what, wanted) is(__LINE__, #what, (long)(what), (long)(wanted))

static void is(int line, const char *what, long got, long wanted)
{
	if (got == wanted)
		return;
	printf("rsockets.c:%d: %s is %ld, not %ld (errno %d)\n", line, what, got, wanted, errno);
	exit(1);
}

static struct sockaddr_in at = { .sin_family = AF_INET };
static int listener, left, right;
/* What the listener's end lets the other one map. That end lets nobody. */
static int mappings = 2;

static void *accepts(void *unused)
{
	IS((right = raccept(listener, NULL, NULL)) >= 0, 1);
	return NULL;
}

static void join(void)
{
	socklen_t len = sizeof at;
	pthread_t thread;

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	at.sin_port = 0;
	IS((listener = rsocket(AF_INET, SOCK_STREAM, 0)) >= 0, 1);
	IS(rbind(listener, (void *)&at, len), 0);
	IS(rsetsockopt(listener, SOL_RDMA, RDMA_IOMAPSIZE, &mappings, sizeof mappings), 0);
	IS(rlisten(listener, 8), 0);
	IS(rgetsockname(listener, (void *)&at, &len), 0);
	pthread_create(&thread, NULL, accepts, NULL);
	IS((left = rsocket(AF_INET, SOCK_STREAM, 0)) >= 0, 1);
	IS(rconnect(left, (void *)&at, len), 0);
	pthread_join(thread, NULL);
}

static void on_alarm(int unused) { }

/* The alarm comes again until one comes in the sleep. */
static void signals(void)
{
	struct itimerval often = { { 0, 20000 }, { 0, 20000 } }, never = { 0 };
	struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	struct pollfd fd = { left, POLLIN, 0 };
	fd_set set;

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	IS(rpoll(&fd, 1, -1), -1);
	IS(errno, EINTR);
	FD_ZERO(&set);
	FD_SET(left, &set);
	IS(rselect(left + 1, &set, NULL, NULL, NULL), -1);
	IS(errno, EINTR);
	setitimer(ITIMER_REAL, &never, NULL);
}

/* A descriptor that becomes ready in the sleep, and both kinds at a time. */
static void *writes(void *to)
{
	usleep(50000);
	IS(write(*(int *)to, "x", 1), 1);
	return NULL;
}

static void plain_descriptors(void)
{
	struct pollfd fds[2];
	pthread_t thread;
	int ends[2];
	char octet;

	IS(pipe(ends), 0);
	fds[0] = (struct pollfd) { left, POLLIN, 0 };
	fds[1] = (struct pollfd) { ends[0], POLLIN, 0 };
	IS(rpoll(fds, 2, 0), 0);
	pthread_create(&thread, NULL, writes, &ends[1]);
	IS(rpoll(fds, 2, -1), 1);
	IS(fds[0].revents, 0);
	IS(fds[1].revents, POLLIN);
	pthread_join(thread, NULL);
	IS(rsend(right, "y", 1, 0), 1);
	fds[1].fd = -1;
	IS(rpoll(fds, 2, -1), 1);
	fds[1].fd = ends[0];
	IS(rpoll(fds, 2, -1), 2);
	IS(rrecv(left, &octet, 1, 0), 1);
	close(ends[0]);
	close(ends[1]);
}

enum { TURNS = 2000, SIZE = 3001 };

static void *sends(void *number)
{
	char octets[SIZE];

	for (int turn = 0; turn < TURNS; turn++) {
		memset(octets, turn, SIZE);
		IS(rsend(*(int *)number, octets, SIZE, 0), SIZE);
	}
	return NULL;
}

static void *receives(void *number)
{
	char octets[SIZE], wanted[SIZE];

	for (int turn = 0; turn < TURNS; turn++) {
		memset(wanted, turn, SIZE);
		IS(rrecv(*(int *)number, octets, SIZE, MSG_WAITALL), SIZE);
		IS(memcmp(octets, wanted, SIZE), 0);
	}
	return NULL;
}

/* Each socket is sent to and received from by threads of their own. */
static void threads(void)
{
	pthread_t all[4];

	pthread_create(&all[0], NULL, sends, &left);
	pthread_create(&all[1], NULL, receives, &left);
	pthread_create(&all[2], NULL, sends, &right);
	pthread_create(&all[3], NULL, receives, &right);
	for (int n = 0; n < 4; n++)
		pthread_join(all[n], NULL);
}

/* A child has none of its parent's sockets, and makes its own. The parent's go on. */
static void child(void)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		IS(rsend(left, "x", 1, 0), -1);
		IS(errno, EBADF);
		IS(rclose(left), -1);
		join();
		IS(rsend(left, "x", 1, 0), 1);
		exit(0);
	}
	IS(waitpid(pid, &status, 0), pid);
	IS(status, 0);
	threads();
}

#define FAILS(call, error) IS((long)(call), -1); IS(errno, error)

static void pass(int from, int to)
{
	char octet;

	IS(rsend(from, "m", 1, 0), 1);
	IS(rrecv(to, &octet, 1, 0), 1);
}

/* Memory of the left end, which the right one writes to. */
static void mapped(void)
{
	static char area[1 << 18], source[1 << 18], other[100];
	void *constant = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t done, part;
	int value = 0;
	socklen_t len = sizeof value;

	for (size_t n = 0; n < sizeof source; n++)
		source[n] = n * 7 + (n >> 8);
	IS(rgetsockopt(right, SOL_RDMA, RDMA_IOMAPSIZE, &value, &len), 0);
	IS(value, mappings);
	FAILS(rsetsockopt(right, SOL_RDMA, RDMA_IOMAPSIZE, &value, len), EINVAL);
	FAILS(riomap(right, area, sizeof area, PROT_WRITE, 0, -1), ENOMEM);
	FAILS(riomap(left, area, sizeof area, PROT_READ | PROT_WRITE, 0, -1), EINVAL);
	FAILS(riomap(left, area, 0, PROT_WRITE, 0, -1), EINVAL);
	FAILS(riomap(left, NULL, 64, PROT_WRITE, 0, -1), EINVAL);
	FAILS(riomap(left, constant, 64, PROT_WRITE, 0, -1), EFAULT);
	FAILS(riomap(listener, area, 64, PROT_WRITE, 0, -1), EINVAL);
	FAILS(riomap(-1, area, 64, PROT_WRITE, 0, -1), EBADF);
	FAILS(riowrite(listener, area, 64, 0, 0), ENOTCONN);
	FAILS(riounmap(left, area, sizeof area), EINVAL);

	IS(riomap(left, area, sizeof area, PROT_WRITE, 0, 100000), 100000);
	IS(riomap(left, other, sizeof other, PROT_WRITE, 0, -1), (off_t)other);
	FAILS(riomap(left, area, 64, PROT_WRITE, 0, 0), ENOMEM);
	IS(riomap(left, source, 64, PROT_NONE, 0, -1), (off_t)source);
	/* The right end knows of them from the next data on. */
	IS(riowrite(right, source, 64, 100000, 0), 0);
	pass(left, right);
	IS(riowrite(right, source, 64, 99999, 0), 0);
	IS(riowrite(right, source, sizeof source, 100000, 0), sizeof source);
	IS(riowrite(right, source, 64, (off_t)other + 90, 0), 10);
	IS(riowrite(right, source, 64, 100000 + sizeof area, 0), 0);
	pass(right, left);
	IS(memcmp(area, source, sizeof area), 0);
	IS(memcmp(other + 90, source, 10), 0);
	IS(other[89], 0);
	for (done = 0; done < sizeof source; done += part) {
		part = riowrite(right, source + done, sizeof source - done, 100000 + done, MSG_DONTWAIT);
		if (part == (size_t)-1) {
			IS(errno, EAGAIN);
			part = 0;
		}
	}

	FAILS(riounmap(left, area, sizeof area - 1), EINVAL);
	pass(right, left);
	IS(riounmap(left, area, sizeof area), 0);
	FAILS(riounmap(left, area, sizeof area), EINVAL);
	/* Its number is free again. */
	IS(riomap(left, area + 64, 64, PROT_WRITE, 0, 100000), 100000);
	pass(left, right);
	IS(riowrite(right, "again", 5, 100000, 0), 5);
	pass(right, left);
	IS(memcmp(area + 64, "again", 5), 0);
}

static void not_done(void)
{
	IS(rsocket(AF_INET, SOCK_DGRAM, 0), -1);
	IS(errno, EOPNOTSUPP);
}

/* What was sent before a direction ends comes, then the end; the other direction goes on. */
static void ends(void)
{
	char octet;

	IS(rsend(left, "z", 1, 0), 1);
	IS(rshutdown(left, SHUT_WR), 0);
	IS(rrecv(right, &octet, 1, 0), 1);
	IS(rrecv(right, &octet, 1, 0), 0);
	IS(rsend(right, "z", 1, 0), 1);
	IS(rrecv(left, &octet, 1, 0), 1);
	IS(rclose(left), 0);
	IS(rclose(right), 0);
	IS(rclose(listener), 0);
}

int main(void)
{
	join();
	signals();
	plain_descriptors();
	threads();
	child();
	mapped();
	not_done();
	ends();
	return 0;
}
