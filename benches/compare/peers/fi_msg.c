/*
 * Bandwidth and latency of libfabric's FI_EP_MSG endpoints over a provider, driven like
 * rddp-compare:
 *
 *   fi_msg server ADDRESS PROVIDER             prints "PORT CONTROL-PORT", serves one client
 *   fi_msg client ADDRESS PORT CONTROL PROVIDER
 *
 * The client takes "bw SIZE MS" and "lat SIZE MS" on standard input, one a line, and answers each
 * with a line of JSON. Both ends poll. As in libfabric's own fabtests: up to 64 sends outstanding,
 * and messages that fit are injected.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#define WINDOW 64
#define RECEIVES 128
#define LONGEST ((size_t)4 << 20)
#define MOST_TIMES 1000000

/* A command of the client before a slice, and (bw) the number of its messages after it. */
struct command {
    uint64_t is_latency, size;
};

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_eq *eq;
static struct fid_domain *domain;
static struct fid_ep *ep;
static struct fid_cq *txcq, *rxcq;
static char *out, *in;
static int control;

static void check(long result, const char *what)
{
    if (result >= 0)
        return;
    fprintf(stderr, "fi_msg: %s: %s\n", what, fi_strerror((int)-result));
    exit(1);
}

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void tell(const void *octets, size_t len)
{
    if (send(control, octets, len, MSG_NOSIGNAL) != (ssize_t)len)
        check(-errno, "control connection");
}

static int hear(void *octets, size_t len)
{
    return recv(control, octets, len, MSG_WAITALL) == (ssize_t)len;
}

static void await(uint32_t event, struct fi_info **request)
{
    struct fi_eq_cm_entry entry;
    uint32_t got;
    ssize_t result = fi_eq_sread(eq, &got, &entry, sizeof entry, 5000, 0);
    check(result, "waiting for a connection event");
    if (got != event)
        check(-FI_EOTHER, "another connection event than expected");
    if (request)
        *request = entry.info;
}

/* Takes completions of one queue; returns their number. */
static long reap(struct fid_cq *cq)
{
    struct fi_cq_entry entries[64];
    ssize_t count = fi_cq_read(cq, entries, 64);
    if (count == -FI_EAGAIN)
        return 0;
    if (count == -FI_EAVAIL) {
        struct fi_cq_err_entry error = {0};
        fi_cq_readerr(cq, &error, 0);
        check(-(long)error.err, "a completion");
    }
    check(count, "fi_cq_read");
    return count;
}

static void post_receive(void)
{
    ssize_t result;
    while ((result = fi_recv(ep, in, LONGEST, NULL, 0, NULL)) == -FI_EAGAIN)
        reap(txcq);
    check(result, "fi_recv");
}

static void make_endpoint(struct fi_info *of)
{
    struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_NONE, .size = 4 * RECEIVES};
    check(fi_domain(fabric, of, &domain, NULL), "fi_domain");
    check(fi_endpoint(domain, of, &ep, NULL), "fi_endpoint");
    check(fi_cq_open(domain, &attr, &txcq, NULL), "fi_cq_open");
    check(fi_cq_open(domain, &attr, &rxcq, NULL), "fi_cq_open");
    check(fi_ep_bind(ep, &eq->fid, 0), "fi_ep_bind");
    check(fi_ep_bind(ep, &txcq->fid, FI_TRANSMIT), "fi_ep_bind");
    check(fi_ep_bind(ep, &rxcq->fid, FI_RECV), "fi_ep_bind");
    check(fi_enable(ep), "fi_enable");
    for (int i = 0; i < RECEIVES; i++)
        post_receive();
}

/* Posts one send; returns whether it will make a completion. */
static int post_send(size_t size)
{
    int inject = size <= info->tx_attr->inject_size;
    ssize_t result;
    while ((result = inject ? fi_inject(ep, out, size, 0) : fi_send(ep, out, size, NULL, 0, NULL)) == -FI_EAGAIN) {
        if (reap(txcq) > 0)
            check(-FI_EOTHER, "a completion that nobody counted");
    }
    check(result, "fi_send");
    return !inject;
}

static uint64_t send_for(size_t size, uint64_t ms)
{
    uint64_t end = now() + ms * 1000000, messages = 0;
    long outstanding = 0;
    while (now() < end) {
        for (int i = 0; i < 8 && outstanding < WINDOW; i++, messages++)
            outstanding += post_send(size);
        outstanding -= reap(txcq);
    }
    while (outstanding > 0)
        outstanding -= reap(txcq);
    return messages;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t ping_for(size_t size, uint64_t ms, uint64_t *p50)
{
    static uint64_t times[MOST_TIMES];
    uint64_t begun = now(), end = begun + ms * 1000000, count = 0;
    while (begun < end && count < MOST_TIMES) {
        long owed = post_send(size), answers = 0;
        while (owed > 0 || answers == 0) {
            owed -= reap(txcq);
            answers += reap(rxcq);
        }
        post_receive();
        uint64_t then = now();
        times[count++] = (then - begun) / 2;
        begun = then;
    }
    qsort(times, count, sizeof times[0], by_size);
    *p50 = times[count / 2];
    return count;
}

/* Receives, and answers if that is asked for, until the client has told the number of its
 * messages. */
static void serve(const struct command *command)
{
    uint64_t received = 0, total = UINT64_MAX;
    long owed = 0;
    while (received < total) {
        long count = reap(rxcq);
        for (long i = 0; i < count; i++) {
            post_receive();
            if (command->is_latency)
                owed += post_send(command->size);
        }
        received += count;
        owed -= owed > 0 ? reap(txcq) : 0;
        if (count == 0 && total == UINT64_MAX && recv(control, &total, sizeof total, MSG_DONTWAIT) < 0)
            total = UINT64_MAX;
    }
    while (owed > 0)
        owed -= reap(txcq);
}

static struct fi_info *ask(const char *address, const char *port, uint64_t flags, const char *provider)
{
    struct fi_info *hints = fi_allocinfo(), *found;
    hints->ep_attr->type = FI_EP_MSG;
    hints->caps = FI_MSG;
    hints->addr_format = FI_SOCKADDR_IN;
    hints->fabric_attr->prov_name = strdup(provider);
    check(fi_getinfo(FI_VERSION(1, 17), address, port, flags, hints, &found), "fi_getinfo");
    fi_freeinfo(hints);
    return found;
}

static void open_fabric(void)
{
    struct fi_eq_attr attr = {.wait_obj = FI_WAIT_UNSPEC};
    check(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
    check(fi_eq_open(fabric, &attr, &eq, NULL), "fi_eq_open");
}

static void accept_control(int listener)
{
    int one = 1;
    control = accept(listener, NULL, NULL);
    check(control < 0 ? -errno : 0, "accept");
    setsockopt(control, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static int listen_control(const char *address, int *port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET};
    socklen_t len = sizeof addr;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    inet_pton(AF_INET, address, &addr.sin_addr);
    if (bind(listener, (void *)&addr, len) || listen(listener, 1) || getsockname(listener, (void *)&addr, &len))
        check(-errno, "listening");
    *port = ntohs(addr.sin_port);
    return listener;
}

static int server(const char *address, const char *provider)
{
    struct fid_pep *pep;
    struct fi_info *request;
    struct sockaddr_in name;
    struct command command;
    size_t len = sizeof name;
    int control_port, listener = listen_control(address, &control_port);

    info = ask(address, "0", FI_SOURCE, provider);
    open_fabric();
    check(fi_passive_ep(fabric, info, &pep, NULL), "fi_passive_ep");
    check(fi_pep_bind(pep, &eq->fid, 0), "fi_pep_bind");
    check(fi_listen(pep), "fi_listen");
    check(fi_getname(&pep->fid, &name, &len), "fi_getname");
    printf("%d %d\n", ntohs(name.sin_port), control_port);
    fflush(stdout);

    accept_control(listener);
    await(FI_CONNREQ, &request);
    make_endpoint(request);
    check(fi_accept(ep, NULL, 0), "fi_accept");
    await(FI_CONNECTED, NULL);
    while (hear(&command, sizeof command)) {
        tell("r", 1);
        serve(&command);
        tell("d", 1);
    }
    return 0;
}

static void connect_control(const char *address, const char *port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    int one = 1;
    inet_pton(AF_INET, address, &addr.sin_addr);
    control = socket(AF_INET, SOCK_STREAM, 0);
    check(connect(control, (void *)&addr, sizeof addr) ? -errno : 0, "connect");
    setsockopt(control, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static void slice(int is_latency, size_t size, uint64_t ms)
{
    struct command command = {(uint64_t)is_latency, size};
    uint64_t p50 = 0, messages;
    char nod;
    tell(&command, sizeof command);
    if (!hear(&nod, 1))
        check(-FI_EOTHER, "the server has gone");
    uint64_t begun = now();
    messages = is_latency ? ping_for(size, ms, &p50) : send_for(size, ms);
    tell(&messages, sizeof messages);
    if (!hear(&nod, 1))
        check(-FI_EOTHER, "the server has gone");
    double seconds = (now() - begun) / 1e9;
    printf("{\"messages\": %llu, \"octets\": %llu, \"seconds\": %.9f, \"p50\": %llu}\n", (unsigned long long)messages,
           (unsigned long long)(messages * size), seconds, (unsigned long long)p50);
    fflush(stdout);
}

static int client(const char *address, const char *port, const char *control_port, const char *provider)
{
    char line[128], what[8];
    unsigned long long size, ms;
    connect_control(address, control_port);
    info = ask(address, port, 0, provider);
    open_fabric();
    make_endpoint(info);
    check(fi_connect(ep, info->dest_addr, NULL, 0), "fi_connect");
    await(FI_CONNECTED, NULL);
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "%7s %llu %llu", what, &size, &ms) != 3 || size == 0 || size > LONGEST)
            return 2;
        slice(strcmp(what, "lat") == 0, size, ms);
    }
    return 0;
}

int main(int argc, char **argv)
{
    out = malloc(LONGEST);
    in = malloc(LONGEST);
    memset(out, 0x5a, LONGEST);
    memset(in, 0x5a, LONGEST);
    if (argc == 4 && strcmp(argv[1], "server") == 0)
        return server(argv[2], argv[3]);
    if (argc == 6 && strcmp(argv[1], "client") == 0)
        return client(argv[2], argv[3], argv[4], argv[5]);
    fprintf(stderr, "usage: fi_msg server ADDRESS PROVIDER | fi_msg client ADDRESS PORT CONTROL-PORT PROVIDER\n");
    return 2;
}
