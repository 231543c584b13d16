/*
 * A peer of rsockets that does not keep to their protocol, made of librdmacm's functions. It is a
 * process of its own; the rsockets are in its parent, which says what each connection came to. Ends
 * with 1 at the first answer that is wrong.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>

#define IS(what, wanted) is(__LINE__, #what, (long)(what), (long)(wanted))

static void is(int line, const char *what, long got, long wanted)
{
	if (got == wanted)
		return;
	printf("rsocket_peers.c:%d: %s is %ld, not %ld (errno %d)\n", line, what, got, wanted, errno);
	exit(1);
}

/* Private data, in network order of octets. */
struct place { uint64_t addr; uint32_t key, len; } __attribute__((packed));
struct hello { uint8_t version, flags; uint16_t credits; uint8_t none[4]; struct place list, data; }
	__attribute__((packed));

/* The rsocket's table of mappings. */
enum { MAPPINGS = 2 };
enum { DATA = 0, CREDITS = 4, MAPPING = 6, CONTROL = 7 };
#define WORD(kind, value) ((uint32_t)(kind) << 29 | (value))
#define MOST 0x1fffffff

/* Attacks: a message of so many octets, perhaps behind a Write of `write` octets at an offset of
 * the place that was told; and how the rsocket's reads end. One that comes several `times` is sent
 * before anybody reads; how many octets are read then is not said. */
static const struct attack {
	const char *name;
	uint32_t word;
	int octets;
	uint64_t at;
	int write, count, end, times;
} attacks[] = {
	{ "none", WORD(DATA, 5), 4, 0, 5, 5, 0 },
	{ "data beyond the ring", WORD(DATA, 131073), 4, 0, 0, 0, EPROTO },
	{ "data without end", WORD(DATA, MOST), 4, 0, 0, 0, EPROTO },
	{ "no data", WORD(DATA, 0), 4, 0, 0, 0, EPROTO },
	{ "a kind that is none", WORD(1, 1), 4, 0, 0, 0, EPROTO },
	{ "immediate data's kind", WORD(2, 1), 4, 0, 0, 0, EPROTO },
	{ "control that is none", WORD(CONTROL, 9), 4, 0, 0, 0, EPROTO },
	{ "control beyond the last that is known", WORD(CONTROL, 3), 4, 0, 0, 0, EPROTO },
	{ "control without end", WORD(CONTROL, MOST), 4, 0, 0, 0, EPROTO },
	{ "a kind between those known", WORD(3, 1), 4, 0, 0, 0, EPROTO },
	{ "immediate data for a map", WORD(5, 1), 4, 0, 0, 0, EPROTO },
	{ "the last mapping", WORD(MAPPING, MAPPINGS - 1), 4, 0, 0, 0, 0 },
	{ "a mapping behind the table", WORD(MAPPING, MAPPINGS), 4, 0, 0, 0, EPROTO },
	{ "a mapping's number beyond any", WORD(MAPPING, 65536), 4, 0, 0, 0, EPROTO },
	{ "an empty message", 0, 0, 0, 0, 0, EPROTO },
	{ "a short message", WORD(DATA, 1), 3, 0, 0, 0, EPROTO },
	{ "a long message", WORD(DATA, 1), 8, 0, 0, 0, ECONNRESET },
	{ "more messages than credits", WORD(DATA, 1), 4, 0, 0, 0, EPROTO, 2000 },
	{ "a Write behind the ring", WORD(DATA, 5), 4, 131072, 5, 0, ECONNRESET },
	{ "a Write before the ring", WORD(DATA, 5), 4, (uint64_t)-8, 5, 0, ECONNRESET },
};
enum { ATTACKS = sizeof attacks / sizeof attacks[0] };

static struct ibv_mr *mr;
static int done;
static uint8_t memory[4096] __attribute__((aligned(8)));

/* Connects with private data, and returns what the rsocket has told. */
static struct rdma_cm_id *come(const char *port, struct hello *hello, int len, struct hello *told)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *info;
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1 };
	struct rdma_conn_param param = { .private_data = hello, .private_data_len = len };
	struct rdma_cm_id *id;

	attr.cap = (struct ibv_qp_cap) { 16, 256, 2, 2, 64 };
	IS(rdma_getaddrinfo("127.0.0.1", port, &hints, &info), 0);
	IS(rdma_create_ep(&id, info, NULL, &attr), 0);
	rdma_freeaddrinfo(info);
	mr = ibv_reg_mr(id->pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (hello)
		hello->list.key = hello->data.key = htonl(mr->rkey);
	for (int n = 0; n < 200; n++)
		IS(rdma_post_recv(id, NULL, memory + 2048, 4, mr), 0);
	if (rdma_connect(id, &param)) {
		IS(errno, ECONNREFUSED);
		return NULL;
	}
	memcpy(told, id->event->param.conn.private_data, sizeof *told);
	return id;
}

static struct hello greeting(void)
{
	struct hello hello = { .version = 1, .credits = htons(200) };

	hello.list = (struct place) { htobe64((uintptr_t)memory), 0, htonl(2) };
	hello.data = (struct place) { htobe64((uintptr_t)memory + 64), 0, htonl(1 << 30) };
	return hello;
}

static void attack(struct rdma_cm_id *id, const struct attack *attack, const struct hello *told)
{
	uint32_t words[2] = { attack->word, attack->word };
	struct ibv_wc wc;

	memcpy(memory + 3072, words, sizeof words);
	memcpy(memory + 3200, "twenty-one", 10);
	if (attack->write)
		IS(rdma_post_write(id, NULL, memory + 3200, attack->write, mr, 0,
				   be64toh(told->data.addr) + attack->at, ntohl(told->data.key)), 0);
	IS(rdma_post_send(id, NULL, memory + 3072, attack->octets, mr, 0), 0);
	for (int n = 1; n < attack->times; n++) {
		while (rdma_get_send_comp(id, &wc) == 1 && wc.opcode != IBV_WC_SEND)
			;
		if (wc.status || rdma_post_send(id, NULL, memory + 3072, attack->octets, mr, 0))
			break;
	}
	if (attack->times)
		IS(write(done, "", 1), 1);
	if (!attack->end) {
		words[0] = WORD(CONTROL, 0);
		memcpy(memory + 3080, words, 4);
		IS(rdma_post_send(id, NULL, memory + 3080, 4, mr, 0), 0);
	}
	/* Until the other end has ended the connection. */
	while (!rdma_get_recv_comp(id, &wc) || wc.status == IBV_WC_SUCCESS)
		;
}

/* The peer: private data that are refused, attacks, and silence. */
static int peer(int from, int to)
{
	struct hello hello = greeting(), told, bad;
	struct rdma_cm_id *id;
	char port[8] = "", more[56] = "";

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	done = to;
	IS(read(from, port, sizeof port) > 0, 1);
	IS(come(port, NULL, 0, &told) == NULL, 1);
	IS(come(port, &hello, 39, &told) == NULL, 1);
	bad = hello;
	bad.version = 2;
	IS(come(port, &bad, sizeof bad, &told) == NULL, 1);
	bad = hello;
	bad.list.len = 0;
	IS(come(port, &bad, sizeof bad, &told) == NULL, 1);
	for (int n = 0; n < ATTACKS; n++) {
		id = come(port, &hello, sizeof hello, &told);
		IS(id != NULL, 1);
		attack(id, &attacks[n], &told);
	}
	/* More private data than rsockets have are no fault. */
	memcpy(more, &hello, sizeof hello);
	IS(come(port, (void *)more, sizeof more, &told) != NULL, 1);
	raise(SIGSTOP);
	return 0;
}

static void reads(int rs, const struct attack *attack)
{
	char octets[64];
	int got = 0;
	ssize_t n;

	while ((n = rrecv(rs, octets, sizeof octets, 0)) > 0)
		got += n;
	if ((got != attack->count && !attack->times) || (n < 0 ? errno : 0) != attack->end) {
		printf("rsocket_peers.c: %s: %d octets, then %zd (%s)\n", attack->name, got, n, strerror(errno));
		exit(1);
	}
	IS(rclose(rs), 0);
}

/* A peer that takes nothing more holds a socket that is closed for a while, not for ever. */
static void silence(int rs, pid_t pid)
{
	static char octets[1 << 16];
	time_t begun;
	int status;

	IS(waitpid(pid, &status, WUNTRACED), pid);
	IS(WIFSTOPPED(status), 1);
	for (int tries = 0; tries < 200; tries++) {
		if (rsend(rs, octets, sizeof octets, MSG_DONTWAIT) < 0)
			usleep(1000);
	}
	begun = time(NULL);
	IS(rclose(rs), 0);
	IS(time(NULL) - begun < 100, 1);
	IS(rclose(rs), -1);
	IS(errno, EBADF);
}

int main(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t len = sizeof at;
	char port[8] = "";
	int ends[2], dones[2], listener, rs, mappings = MAPPINGS;
	pid_t pid;

	IS(pipe(ends) | pipe(dones), 0);
	pid = fork();
	if (!pid)
		return peer(ends[0], dones[1]);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	IS((listener = rsocket(AF_INET, SOCK_STREAM, 0)) >= 0, 1);
	IS(rbind(listener, (void *)&at, len), 0);
	IS(rsetsockopt(listener, SOL_RDMA, RDMA_IOMAPSIZE, &mappings, sizeof mappings), 0);
	IS(rlisten(listener, 8), 0);
	IS(rgetsockname(listener, (void *)&at, &len), 0);
	snprintf(port, sizeof port, "%d", ntohs(at.sin_port));
	IS(write(ends[1], port, sizeof port), sizeof port);
	for (int n = 0; n < ATTACKS; n++) {
		rs = raccept(listener, NULL, NULL);
		if (attacks[n].times)
			IS(read(dones[0], port, 1), 1);
		reads(rs, &attacks[n]);
	}
	silence(raccept(listener, NULL, NULL), pid);
	kill(pid, SIGKILL);
	return 0;
}
