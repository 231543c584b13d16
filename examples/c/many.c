/* Many clients in one poll loop, over RDMA Sends: the server returns each message in capitals.
 *
 *   many server PORT CLIENTS            ends when so many clients have come and gone
 *   many client ADDRESS PORT CLIENTS    that many connections, each with ROUNDS messages
 *
 * An event queue is a descriptor: here it stands in one poll with the listener, and a program may
 * have any others beside. All endpoints of a side share one queue; the tag of an endpoint comes
 * back in its events, and says whose they are.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rddp/ddp.h>

enum { ROUNDS = 10, ROOM = 64, AT_A_TIME = 32 };

struct client {
    int fd, rounds;
    struct ddp_sge inbox; /* one receive, posted whenever the peer may send */
    char message[ROOM];
};

static int queue, messages, gone;

static void check(bool good, const char *what) {
    if (!good) {
        perror(what);
        exit(1);
    }
}

static int raw_socket(void) {
    int raw = DDPMODE_RAW, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    check(setsockopt(fd, SOL_DDP, DDPMODE, &raw, sizeof raw) == 0, "raw mode");
    return fd;
}

static struct sockaddr_in address(const char *host, const char *port) {
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    check(inet_pton(AF_INET, host, &addr.sin_addr) == 1, "the address");
    return addr;
}

/* Posts a work. If the connection has ended meanwhile, DDP_CLOSED is on its way. */
static void post(const struct client *client, struct ddp_work work) {
    check(ddp_post(client->fd, &work, 1) == 1 || errno == EPIPE, "posting");
}

static void receive(const struct client *client) {
    post(client, (struct ddp_work){.op = DDP_RECEIVE, .list = &client->inbox, .count = 1});
}

/* Sends a few octets, which the call copies. No event tells that it succeeded. */
static void send_message(const struct client *client, const char *message, size_t length) {
    struct ddp_sge piece = {.to = (uintptr_t)message, .length = length};
    uint32_t flags = DDP_INLINE | DDP_QUIET;
    post(client, (struct ddp_work){.op = DDP_SEND, .flags = flags, .list = &piece, .count = 1});
}

/* Makes a socket an endpoint of the queue, with a receive before its peer can send. */
static struct client *client_on(int fd) {
    struct client *client = calloc(1, sizeof *client);
    *client = (struct client){.fd = fd, .inbox = {.to = (uintptr_t)client->message, .length = ROOM}};
    struct ddp_endpoint how = {.queue = queue, .tag = (uintptr_t)client};
    check(ddp_attach(fd, &how) == 0, "attaching");
    int registered = ddp_register(0, client->message, ROOM, DDP_LOCAL_WRITE, &client->inbox.stag);
    check(registered == 0, "registering memory");
    receive(client);
    return client;
}

static void forget(struct client *client) {
    check(ddp_deregister(client->inbox.stag) == 0 && close(client->fd) == 0, "forgetting a client");
    free(client);
    gone++;
}

/* Says why a connection or a work has failed. Works that end with their connection say nothing. */
static void tell(const struct ddp_event *event) {
    if (event->status == 0 || event->status == ECANCELED)
        return;
    fprintf(stderr, "%s: %s\n", ddp_kind_name(event->kind), ddp_strerror(event->kind, event->status));
    if (event->flags & (DDP_EVENT_TERMINATE_SENT | DDP_EVENT_TERMINATE_RECEIVED))
        fprintf(stderr, "  %s\n", ddp_terminate_name(event->terminate));
}

/* Takes what has come, and has each event handled. The last event of an endpoint is DDP_CLOSED. */
static void take_events(void (*handle)(struct client *, const struct ddp_event *)) {
    struct ddp_event events[AT_A_TIME];
    int count = ddp_events(queue, events, AT_A_TIME, 0);
    check(count >= 0, "taking events");
    for (int i = 0; i < count; i++) {
        struct client *client = (void *)(uintptr_t)events[i].endpoint;
        tell(&events[i]);
        if (events[i].kind == DDP_CLOSED)
            forget(client);
        else if (events[i].status == 0)
            handle(client, &events[i]);
    }
}

/* ---- The server ---- */

static void answer(struct client *client, const struct ddp_event *event) {
    if (event->kind != DDP_RECEIVE)
        return;
    char capitals[ROOM];
    for (uint32_t i = 0; i < event->length; i++)
        capitals[i] = toupper((unsigned char)client->message[i]);
    receive(client); /* before the answer, which lets the client send again */
    send_message(client, capitals, event->length);
    messages++;
}

static void accept_all(int listener) {
    int fd;
    while ((fd = accept(listener, NULL, NULL)) >= 0) {
        client_on(fd);
        check(ddp_begin(fd) == 0, "the startup");
    }
    check(errno == EAGAIN, "accept");
}

static void serve(const char *port, int clients) {
    struct sockaddr_in addr = address("0.0.0.0", port);
    int listener = raw_socket(), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    check(bind(listener, (void *)&addr, sizeof addr) == 0 && listen(listener, 100) == 0, "listening");
    puts("listening");
    fflush(stdout);
    while (gone < clients) {
        struct pollfd ready[] = {{.fd = listener, .events = POLLIN}, {.fd = queue, .events = POLLIN}};
        check(poll(ready, 2, -1) > 0, "poll");
        if (ready[0].revents)
            accept_all(listener);
        if (ready[1].revents)
            take_events(answer);
    }
    printf("%d messages of %d clients answered\n", messages, gone);
}

/* ---- The clients ---- */

static void ask(struct client *client) {
    char words[ROOM];
    int length = snprintf(words, sizeof words, "round %d", client->rounds++);
    send_message(client, words, length);
}

static void go_on(struct client *client, const struct ddp_event *event) {
    if (event->kind == DDP_RECEIVE) {
        check(event->length >= 6 && memcmp(client->message, "ROUND ", 6) == 0, "the answer");
        messages++;
        if (client->rounds == ROUNDS) {
            check(ddp_disconnect(client->fd, DDP_GRACEFUL) == 0, "disconnecting");
            return;
        }
        receive(client);
    }
    ask(client); /* when it is connected, and after each answer */
}

static void crowd(const char *host, const char *port, int clients) {
    struct sockaddr_in addr = address(host, port);
    for (int i = 0; i < clients; i++) {
        struct client *client = client_on(raw_socket());
        int result = connect(client->fd, (void *)&addr, sizeof addr);
        check(result == 0 || errno == EINPROGRESS, "connecting"); /* DDP_CONNECTED tells the rest */
    }
    while (gone < clients) {
        struct pollfd ready = {.fd = queue, .events = POLLIN};
        check(poll(&ready, 1, -1) > 0, "poll");
        take_events(go_on);
    }
    check(messages == clients * ROUNDS, "an answer is missing");
    printf("%d answers to %d clients\n", messages, clients);
}

int main(int count, char **args) {
    queue = ddp_queue(0); /* watched: its descriptor is for poll */
    check(queue >= 0, "an event queue");
    if (count == 4 && strcmp(args[1], "server") == 0)
        serve(args[2], atoi(args[3]));
    else if (count == 5 && strcmp(args[1], "client") == 0)
        crowd(args[2], args[3], atoi(args[4]));
    else
        return fputs("usage: many server PORT CLIENTS | client ADDRESS PORT CLIENTS\n", stderr), 2;
    return 0;
}
