/* Puts a file into another program's memory by RDMA Write, reads it back by RDMA Read, and
 * compares.
 *
 *   put server PORT FILE           waits for one client, and stores in FILE the octets that it has
 *                                  put into the server's memory
 *   put client ADDRESS PORT FILE   puts FILE there
 *
 * The server sends the place of its memory: address (8 octets), STag (4), length (4). The client,
 * when it has compared, sends the number of octets that it has put there (4). All numbers are
 * big-endian.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rddp/ddp.h>

enum { MEMORY = 1 << 24, PIECE = 1 << 20, PATIENCE = 10000 };

static int queue, fd;

static void check(bool good, const char *what) {
    if (!good) {
        perror(what);
        exit(1);
    }
}

/* Returns the next event, which has to be a success of this kind. */
static struct ddp_event expect(uint32_t kind) {
    struct ddp_event event;
    check(ddp_events(queue, &event, 1, PATIENCE) == 1, "waiting for an event");
    if (event.kind != kind || event.status != 0) {
        fprintf(stderr, "%s: %s\n", ddp_kind_name(event.kind), ddp_strerror(event.kind, event.status));
        if (event.flags & (DDP_EVENT_TERMINATE_SENT | DDP_EVENT_TERMINATE_RECEIVED))
            fprintf(stderr, "  %s\n", ddp_terminate_name(event.terminate));
        exit(1);
    }
    return event;
}

static struct ddp_sge registered(void *memory, size_t length, int access) {
    struct ddp_sge piece = {.to = (uintptr_t)memory, .length = length};
    check(ddp_register(0, memory, length, access, &piece.stag) == 0, "registering memory");
    return piece;
}

static void post(struct ddp_work work) { check(ddp_post(fd, &work, 1) == 1, "posting"); }

static void receive(const struct ddp_sge *piece) {
    post((struct ddp_work){.op = DDP_RECEIVE, .list = piece, .count = 1});
}

/* Sends a few octets, which the call copies. */
static void send_octets(const void *octets, size_t length) {
    struct ddp_sge piece = {.to = (uintptr_t)octets, .length = length};
    post((struct ddp_work){.op = DDP_SEND, .flags = DDP_INLINE, .list = &piece, .count = 1});
    expect(DDP_SEND);
}

/* Returns a socket in raw mode. */
static int raw_socket(void) {
    int raw = DDPMODE_RAW, made = socket(AF_INET, SOCK_STREAM, 0);
    check(setsockopt(made, SOL_DDP, DDPMODE, &raw, sizeof raw) == 0, "raw mode");
    return made;
}

static struct sockaddr_in address(const char *host, const char *port) {
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    check(inet_pton(AF_INET, host, &addr.sin_addr) == 1, "the address");
    return addr;
}

static void serve(const char *port, const char *path) {
    struct sockaddr_in addr = address("0.0.0.0", port);
    int listener = raw_socket(), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    check(bind(listener, (void *)&addr, sizeof addr) == 0 && listen(listener, 1) == 0, "listening");
    puts("listening");
    fflush(stdout);
    fd = accept(listener, NULL, NULL);
    check(fd >= 0, "accept");
    check(ddp_attach(fd, &(struct ddp_endpoint){.queue = queue}) == 0, "attaching");

    uint8_t *memory = calloc(1, MEMORY);
    uint32_t put;
    struct ddp_sge all = registered(memory, MEMORY, DDP_LOCAL_WRITE | DDP_REMOTE_WRITE | DDP_REMOTE_READ);
    struct ddp_sge answer = registered(&put, sizeof put, DDP_LOCAL_WRITE);
    receive(&answer); /* before the client can send */
    check(ddp_begin(fd) == 0, "the startup");
    expect(DDP_CONNECTED);

    uint64_t to = htobe64(all.to);
    uint32_t rest[2] = {htonl(all.stag), htonl(all.length)};
    uint8_t advert[16];
    memcpy(advert, &to, 8);
    memcpy(advert + 8, rest, 8);
    send_octets(advert, sizeof advert);
    expect(DDP_RECEIVE);
    check(ntohl(put) <= MEMORY, "the client's answer");
    FILE *file = fopen(path, "w");
    check(file && fwrite(memory, 1, ntohl(put), file) == ntohl(put) && fclose(file) == 0, path);
    expect(DDP_CLOSED);
}

static void put_file(const char *host, const char *port, const char *path) {
    struct sockaddr_in addr = address(host, port);
    uint8_t *memory = calloc(2, MEMORY), advert[16];
    FILE *file = fopen(path, "r");
    check(file != NULL, path);
    size_t length = fread(memory, 1, MEMORY, file);
    fd = raw_socket();
    check(ddp_attach(fd, &(struct ddp_endpoint){.queue = queue}) == 0, "attaching");
    struct ddp_sge inbox = registered(advert, sizeof advert, DDP_LOCAL_WRITE);
    receive(&inbox);
    check(connect(fd, (void *)&addr, sizeof addr) == 0, "connecting");
    expect(DDP_CONNECTED);
    expect(DDP_RECEIVE);

    uint64_t to;
    uint32_t stag;
    memcpy(&to, advert, 8);
    memcpy(&stag, advert + 8, 4);
    to = be64toh(to);
    stag = ntohl(stag);
    struct ddp_sge all = registered(memory, 2 * (size_t)MEMORY, DDP_LOCAL_WRITE);
    for (size_t at = 0; at < length; at += PIECE) {
        struct ddp_sge from = {.to = all.to + at, .stag = all.stag}, into = from;
        from.length = into.length = length - at < PIECE ? length - at : PIECE;
        into.to += MEMORY;
        /* A Read is done after the Writes before it: RFC 5040, section 5.5. */
        struct ddp_work both[] = {
            {.op = DDP_WRITE, .flags = DDP_QUIET, .list = &from, .count = 1, .stag = stag, .to = to + at},
            {.op = DDP_READ, .list = &into, .count = 1, .stag = stag, .to = to + at},
        };
        check(ddp_post(fd, both, 2) == 2, "posting");
        expect(DDP_READ);
    }
    if (memcmp(memory, memory + MEMORY, length) != 0) {
        fputs("what was read back is something else\n", stderr);
        exit(1);
    }
    uint32_t put = htonl(length);
    send_octets(&put, sizeof put);
    check(ddp_disconnect(fd, DDP_GRACEFUL) == 0, "disconnecting");
    expect(DDP_CLOSED);
    printf("%zu octets put, read back and compared\n", length);
}

int main(int count, char **args) {
    queue = ddp_queue(DDP_QUEUE_UNWATCHED);
    check(queue >= 0, "an event queue");
    if (count == 4 && strcmp(args[1], "server") == 0)
        serve(args[2], args[3]);
    else if (count == 5 && strcmp(args[1], "client") == 0)
        put_file(args[2], args[3], args[4]);
    else
        return fputs("usage: put server PORT FILE | put client ADDRESS PORT FILE\n", stderr), 2;
    return 0;
}
