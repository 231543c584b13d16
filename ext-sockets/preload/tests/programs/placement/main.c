/* Placement in the kernel: the ends of a connection over a bad path, and a process without rights.
 *
 *     placement receive ADDRESS LEVEL            prints the place to write to, later the counts
 *     placement send ADDRESS PORT STAG TO
 *     placement refused
 */
#include "../raw/raw.h"

#include <net/if.h>
#include <netdb.h>

#define OCTETS (4u << 20)
#define WRITE (1u << 20)

static struct sockaddr_storage addr;
static socklen_t addr_len;

static int raw_socket_for(const char *name, const char *port) {
    struct addrinfo *found, hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    IS(getaddrinfo(name, port, &hints, &found), 0);
    memcpy(&addr, found->ai_addr, addr_len = found->ai_addrlen);
    int raw = DDPMODE_RAW, fd = socket(found->ai_family, SOCK_STREAM, 0);
    IS(setsockopt(fd, SOL_DDP, DDPMODE, &raw, sizeof raw), 0);
    freeaddrinfo(found);
    return fd;
}

static uint8_t octet(uint32_t at) { return at * 2654435761u >> 24; }

static struct ddp_placement_info placed(int fd) {
    struct ddp_placement_info info;
    socklen_t len = sizeof info;
    IS(getsockopt(fd, SOL_DDP, DDP_PLACEMENT_INFO, &info, &len), 0);
    IS(len, sizeof info);
    return info;
}

static void await(int queue, uint32_t kind) {
    struct ddp_event event;
    IS(ddp_events(queue, &event, 1, PATIENCE), 1);
    IS(event.kind, kind);
    IS(event.status, 0);
}

static void receiver(const char *name, int level) {
    int queue = ddp_queue(0), listener = raw_socket_for(name, "0");
    void *begin;
    uint32_t stag;
    IS(setsockopt(listener, SOL_DDP, DDP_PLACEMENT, &level, sizeof level), 0);
    IS(ddp_allocate(0, OCTETS, DDP_LOCAL_WRITE | DDP_REMOTE_WRITE | DDP_KERNEL, &begin, &stag), 0);
    IS(bind(listener, (void *)&addr, addr_len), 0);
    IS(listen(listener, 1), 0);
    IS(getsockname(listener, (void *)&addr, &addr_len), 0);
    /* Both families have the port at the same place. */
    printf("%d %u %llu\n", ntohs(((struct sockaddr_in *)&addr)->sin_port), stag,
           (unsigned long long)(uintptr_t)begin);
    fflush(stdout);
    int fd = accept(listener, NULL, NULL);
    IS(ddp_attach(fd, &(struct ddp_endpoint){.queue = queue}), 0);
    IS(placed(fd).placement, DDP_PLACEMENT_USER);
    IS(ddp_post(fd, &(struct ddp_work){.op = DDP_RECEIVE}, 1), 1);
    IS(ddp_begin(fd), 0);
    await(queue, DDP_CONNECTED);
    IS(placed(fd).placement, level);
    await(queue, DDP_RECEIVE);
    const uint8_t *octets = begin;
    uint32_t right = 0;
    while (right < OCTETS && octets[right] == octet(right))
        right++;
    IS(right, OCTETS);
    struct ddp_placement_info info = placed(fd);
    printf("placed %llu confirmed %llu wrong %llu octets %llu behind %llu\n", (unsigned long long)info.placed,
           (unsigned long long)info.confirmed, (unsigned long long)info.wrong, (unsigned long long)info.octets,
           (unsigned long long)info.octets_behind);
    IS(info.segments > 0 && info.confirmed > 0 && info.confirmed <= info.placed, 1);
    IS(info.octets > 0 && info.octets <= OCTETS, 1);
    IS(info.octets_behind > 0, 1);
    IS(info.octets_unseen < OCTETS / 2, 1);
    IS(info.interface, if_nametoindex("tap0"));
    IS(info.wrong, 0);
    IS(ddp_disconnect(fd, DDP_GRACEFUL), 0);
    await(queue, DDP_CLOSED);
    IS(ddp_deregister(stag), 0);
}

static void sender(const char *name, const char *port, uint32_t stag, uint64_t to) {
    int queue = ddp_queue(0), fd = raw_socket_for(name, port);
    uint8_t *octets = malloc(OCTETS);
    uint32_t own;
    for (uint32_t at = 0; at < OCTETS; at++)
        octets[at] = octet(at);
    IS(ddp_register(0, octets, OCTETS, 0, &own), 0);
    IS(ddp_attach(fd, &(struct ddp_endpoint){.queue = queue}), 0);
    IS(connect(fd, (void *)&addr, addr_len), 0);
    await(queue, DDP_CONNECTED);
    for (uint32_t at = 0; at < OCTETS; at += WRITE) {
        struct ddp_sge part = {.to = (uintptr_t)octets + at, .length = WRITE, .stag = own};
        struct ddp_work write = {
            .op = DDP_WRITE, .flags = DDP_QUIET, .list = &part, .count = 1, .stag = stag, .to = to + at};
        IS(ddp_post(fd, &write, 1), 1);
    }
    IS(ddp_post(fd, &(struct ddp_work){.op = DDP_SEND}, 1), 1);
    await(queue, DDP_SEND);
    await(queue, DDP_CLOSED);
}

/* A process without rights goes on at user level: memory is refused, connections are not. */
static void refused(void) {
    IS(setuid(65534), 0);
    int queue = ddp_queue(0), listener = raw_socket_for("127.0.0.1", "0"), level = DDP_PLACEMENT_KERNEL;
    void *begin;
    uint32_t stag;
    FAILS(ddp_allocate(0, 1, DDP_LOCAL_WRITE | DDP_KERNEL, &begin, &stag), EPERM);
    IS(setsockopt(listener, SOL_DDP, DDP_PLACEMENT, &level, sizeof level), 0);
    IS(bind(listener, (void *)&addr, addr_len), 0);
    IS(listen(listener, 1), 0);
    IS(getsockname(listener, (void *)&addr, &addr_len), 0);
    int near = raw_socket_for("127.0.0.1", "0");
    getsockname(listener, (void *)&addr, &addr_len);
    IS(fcntl(near, F_SETFL, O_NONBLOCK), 0);
    IS(ddp_attach(near, &(struct ddp_endpoint){.queue = queue}), 0);
    FAILS(connect(near, (void *)&addr, addr_len), EINPROGRESS);
    int far = accept(listener, NULL, NULL);
    IS(ddp_attach(far, &(struct ddp_endpoint){.queue = queue}), 0);
    IS(ddp_begin(far), 0);
    await(queue, DDP_CONNECTED);
    await(queue, DDP_CONNECTED);
    IS(placed(far).placement, DDP_PLACEMENT_USER);
}

int main(int count, char **args) {
    alarm(60);
    if (count == 4 && strcmp(args[1], "receive") == 0)
        receiver(args[2], atoi(args[3]));
    else if (count == 6 && strcmp(args[1], "send") == 0)
        sender(args[2], args[3], strtoul(args[4], NULL, 10), strtoull(args[5], NULL, 10));
    else if (count == 2 && strcmp(args[1], "refused") == 0)
        refused();
    else
        return 2;
    puts("all is so");
    return 0;
}
