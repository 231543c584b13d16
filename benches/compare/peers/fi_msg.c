/*
 * Bandwidth and latency of libfabric's FI_EP_MSG endpoints over a provider (see slices.h):
 *
 *   fi_msg server ADDRESS PROVIDER
 *   fi_msg client ADDRESS PORT CONTROL PROVIDER
 *
 * Both ends poll. As in libfabric's own fabtests: up to 64 sends outstanding, and messages that fit
 * are injected.
 */
#include "slices.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#define WINDOW 64
#define RECEIVES 128

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_eq *eq;
static struct fid_domain *domain;
static struct fid_ep *ep;
static struct fid_cq *txcq, *rxcq;

static void check_fi(long result, const char *what)
{
    if (result < 0)
        fprintf(stderr, "%s\n", fi_strerror((int)-result));
    check(result, what);
}

static void await(uint32_t event, struct fi_info **request)
{
    struct fi_eq_cm_entry entry;
    uint32_t got;
    ssize_t result = fi_eq_sread(eq, &got, &entry, sizeof entry, 5000, 0);
    check_fi(result, "waiting for a connection event");
    if (got != event)
        check_fi(-FI_EOTHER, "another connection event than expected");
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
        check_fi(-(long)error.err, "a completion");
    }
    check_fi(count, "fi_cq_read");
    return count;
}

static void post_receive(void)
{
    ssize_t result;
    while ((result = fi_recv(ep, in, LONGEST, NULL, 0, NULL)) == -FI_EAGAIN)
        reap(txcq);
    check_fi(result, "fi_recv");
}

static void make_endpoint(struct fi_info *of)
{
    struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_NONE, .size = 4 * RECEIVES};
    check_fi(fi_domain(fabric, of, &domain, NULL), "fi_domain");
    check_fi(fi_endpoint(domain, of, &ep, NULL), "fi_endpoint");
    check_fi(fi_cq_open(domain, &attr, &txcq, NULL), "fi_cq_open");
    check_fi(fi_cq_open(domain, &attr, &rxcq, NULL), "fi_cq_open");
    check_fi(fi_ep_bind(ep, &eq->fid, 0), "fi_ep_bind");
    check_fi(fi_ep_bind(ep, &txcq->fid, FI_TRANSMIT), "fi_ep_bind");
    check_fi(fi_ep_bind(ep, &rxcq->fid, FI_RECV), "fi_ep_bind");
    check_fi(fi_enable(ep), "fi_enable");
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
            check_fi(-FI_EOTHER, "a completion that nobody counted");
    }
    check_fi(result, "fi_send");
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

static void ping(size_t size)
{
    long owed = post_send(size), answers = 0;
    while (owed > 0 || answers == 0) {
        owed -= reap(txcq);
        answers += reap(rxcq);
    }
    post_receive();
}

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
        if (count == 0 && total == UINT64_MAX && !heard_total(&total))
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
    check_fi(fi_getinfo(FI_VERSION(1, 17), address, port, flags, hints, &found), "fi_getinfo");
    fi_freeinfo(hints);
    return found;
}

static void open_fabric(void)
{
    struct fi_eq_attr attr = {.wait_obj = FI_WAIT_UNSPEC};
    check_fi(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
    check_fi(fi_eq_open(fabric, &attr, &eq, NULL), "fi_eq_open");
}

static int server(const char *address, const char *provider)
{
    struct fid_pep *pep;
    struct fi_info *request;
    struct sockaddr_in name;
    size_t len = sizeof name;
    int control_port, listener = listen_on(address, &control_port);

    info = ask(address, "0", FI_SOURCE, provider);
    open_fabric();
    check_fi(fi_passive_ep(fabric, info, &pep, NULL), "fi_passive_ep");
    check_fi(fi_pep_bind(pep, &eq->fid, 0), "fi_pep_bind");
    check_fi(fi_listen(pep), "fi_listen");
    check_fi(fi_getname(&pep->fid, &name, &len), "fi_getname");
    printf("%d %d\n", ntohs(name.sin_port), control_port);
    fflush(stdout);

    control = accept_one(listener);
    await(FI_CONNREQ, &request);
    make_endpoint(request);
    check_fi(fi_accept(ep, NULL, 0), "fi_accept");
    await(FI_CONNECTED, NULL);
    serve_slices();
    return 0;
}

static int client(const char *address, const char *port, const char *control_port, const char *provider)
{
    control = connect_to(address, control_port);
    info = ask(address, port, 0, provider);
    open_fabric();
    make_endpoint(info);
    check_fi(fi_connect(ep, info->dest_addr, NULL, 0), "fi_connect");
    await(FI_CONNECTED, NULL);
    return ask_slices();
}

int main(int argc, char **argv)
{
    make_memory();
    if (argc == 4 && strcmp(argv[1], "server") == 0)
        return server(argv[2], argv[3]);
    if (argc == 6 && strcmp(argv[1], "client") == 0)
        return client(argv[2], argv[3], argv[4], argv[5]);
    fprintf(stderr, "usage: fi_msg server ADDRESS PROVIDER | fi_msg client ADDRESS PORT CONTROL-PORT PROVIDER\n");
    return 2;
}
