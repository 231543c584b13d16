/*
 * Signals that come while a call sleeps. One whose handler was installed without SA_RESTART ends
 * the call with EINTR, another does not, as with a read(2) of the kernel's devices. Ends with 1 at
 * the first answer that is wrong.
 */
#include "calls.h"
#include <signal.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <sys/wait.h>
#include <rdma/rsocket.h>

/* How many signals a call has to sleep through, one each MILLISECONDS: it goes to sleep in more
 * than one way, the longer it sleeps. */
#define MANY 30
#define MILLISECONDS 3

static volatile sig_atomic_t count;

static void handle(int number)
{
	count++;
}

static void install(int number, int flags)
{
	struct sigaction action = { .sa_handler = handle, .sa_flags = flags };

	IS(sigaction(number, &action, NULL), 0);
}

/* A thread that sends signals to another. */
static struct {
	pthread_t to, thread;
	int number, first;
	void (*then)(void);
	volatile int over;
} sender;

static void *send_signals(void *unused)
{
	usleep(sender.first * 1000);
	for (int n = 0; !sender.over && (!sender.then || n < MANY); n++) {
		pthread_kill(sender.to, sender.number);
		usleep(MILLISECONDS * 1000);
	}
	if (sender.then)
		sender.then();
	return NULL;
}

/* Has the calling thread get signals until `end_signals`: the first after so many milliseconds.
 * With `then`, they are MANY, and it is called behind them. */
static void begin_signals(int number, int first, void (*then)(void))
{
	sigset_t all, before;

	sender.to = pthread_self();
	sender.number = number;
	sender.first = first;
	sender.then = then;
	sender.over = count = 0;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_create(&sender.thread, NULL, send_signals, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void end_signals(void)
{
	sender.over = 1;
	pthread_join(sender.thread, NULL);
}

/* Calls, each with what makes it return 0. */
static struct ibv_comp_channel *channel;
static struct rdma_event_channel *events;
static struct rdma_cm_id *id;
static struct ibv_qp *qp, *shared;
static int socket_that_listens, stream[2];

static int get_cq_event(void)
{
	struct ibv_cq *cq;
	void *context;
	int result = ibv_get_cq_event(channel, &cq, &context);

	if (!result)
		ibv_ack_cq_events(cq, 1);
	return result;
}

static void flush(void)
{
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };

	IS(ibv_modify_qp(qp, &error, IBV_QP_STATE), 0);
}

static int get_async_event(void)
{
	struct ibv_async_event event;
	int result = ibv_get_async_event(client->verbs, &event);

	if (!result) {
		IS(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
		ibv_ack_async_event(&event);
	}
	return result;
}

static void take_the_last(void)
{
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };

	IS(ibv_modify_qp(shared, &error, IBV_QP_STATE), 0);
}

static int get_cm_event(void)
{
	struct rdma_cm_event *event;
	int result = rdma_get_cm_event(events, &event);

	if (!result)
		rdma_ack_cm_event(event);
	return result;
}

static void resolve(void)
{
	IS(rdma_resolve_addr(id, NULL, rdma_get_peer_addr(client), 1000), 0);
}

static int get_request(void)
{
	return rdma_get_request(listener, &server);
}

static void *ask(void *unused)
{
	IS(rdma_connect(client, NULL), 0);
	return NULL;
}

static pthread_t asking;

static void request(void)
{
	pthread_create(&asking, NULL, ask, NULL);
}

static int accept_stream(void)
{
	stream[1] = raccept(socket_that_listens, NULL, NULL);
	return stream[1] < 0 ? -1 : 0;
}

static void connect_stream(void)
{
	struct sockaddr_in to;
	socklen_t length = sizeof to;

	IS(rgetsockname(socket_that_listens, (struct sockaddr *)&to, &length), 0);
	stream[0] = rsocket(AF_INET, SOCK_STREAM, 0);
	IS(rconnect(stream[0], (struct sockaddr *)&to, length), 0);
}

static int receive(void)
{
	char octet;

	return rrecv(stream[1], &octet, 1, 0) == 1 ? 0 : -1;
}

static void send_octet(void)
{
	IS(rsend(stream[0], "a", 1, 0), 1);
}

/* Has `call` end by a signal, then sleep through signals until `event`. */
static void sleeps(int (*call)(void), void (*event)(void))
{
	for (int first = 0; first < 200; first += 60) {
		install(SIGUSR1, 0);
		begin_signals(SIGUSR1, first, NULL);
		IS(call(), -1);
		IS(errno, EINTR);
		end_signals();
	}
	install(SIGUSR1, SA_RESTART);
	begin_signals(SIGUSR1, 0, event);
	IS(call(), 0);
	end_signals();
	IS(count > 0, 1);
}

static void prepare(void)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC };
	struct ibv_srq_init_attr receives = { .attr = { 4, 1, 0 } };
	struct ibv_recv_wr wr = { .wr_id = 1 }, *bad;
	struct sockaddr_in here = { .sin_family = AF_INET };
	struct ibv_cq *cq;

	unconnected();
	channel = ibv_create_comp_channel(client->verbs);
	cq = ibv_create_cq(client->verbs, 8, NULL, channel, 0);
	IS(ibv_req_notify_cq(cq, 0), 0);
	attr.cap = (struct ibv_qp_cap) { 4, 4, 1, 1, 0 };
	attr.send_cq = attr.recv_cq = cq;
	qp = ibv_create_qp(client->pd, &attr);
	IS(ibv_post_recv(qp, &wr, &bad), 0);
	attr.srq = ibv_create_srq(client->pd, &receives);
	shared = ibv_create_qp(client->pd, &attr);
	events = rdma_create_event_channel();
	IS(rdma_create_id(events, &id, NULL, RDMA_PS_TCP), 0);
	socket_that_listens = rsocket(AF_INET, SOCK_STREAM, 0);
	inet_pton(AF_INET, "127.0.0.1", &here.sin_addr);
	IS(rbind(socket_that_listens, (struct sockaddr *)&here, sizeof here), 0);
	IS(rlisten(socket_that_listens, 1), 0);
}

static void homogeneous(void)
{
	struct sigaction none = { .sa_handler = SIG_DFL };

	prepare();
	sleeps(get_cq_event, flush);
	sleeps(get_async_event, take_the_last);
	sleeps(get_cm_event, resolve);
	sleeps(get_request, request);
	/* The client's own step ends, and what it waits for is still to come. */
	IS(rdma_accept(server, NULL), 0);
	pthread_join(asking, NULL);
	part();
	sleeps(accept_stream, connect_stream);
	sleeps(receive, send_octet);
	IS(sigaction(SIGUSR1, &none, NULL), 0);
}

/* A step of an id without a channel, which no peer answers. */
static void unanswered(void)
{
	unconnected();
	install(SIGUSR1, 0);
	begin_signals(SIGUSR1, 0, NULL);
	IS(rdma_connect(client, NULL), -1);
	IS(errno, EINTR);
	end_signals();
	rdma_destroy_ep(client);
	rdma_destroy_ep(listener);
}

static void other_signals(void)
{
	sender.number = SIGUSR1;
	for (int n = 0; n < MANY; n++) {
		pthread_kill(sender.to, SIGUSR1);
		usleep(MILLISECONDS * 1000);
	}
}

/* A program with handlers of both kinds. */
static void mixed(void)
{
	prepare();
	install(SIGUSR1, 0);
	install(SIGUSR2, SA_RESTART);
	begin_signals(SIGUSR2, 0, flush);
	IS(get_cq_event(), 0);
	end_signals();
	IS(count > 0, 1);
	begin_signals(SIGUSR2, 0, other_signals);
	IS(get_cq_event(), -1);
	IS(errno, EINTR);
	IS(sender.number, SIGUSR1);
	end_signals();
}

int main(void)
{
	int status;
	pid_t child = fork();

	if (!child) {
		mixed();
		_exit(0);
	}
	IS(waitpid(child, &status, 0), child);
	IS(status, 0);
	homogeneous();
	unanswered();
	return 0;
}
