/* Sends a file by the ES-API: calls that begin an operation and return, and events that say how it
 * ended. Several operations are under way at once, and no call of this program waits but the one
 * that takes events.
 *
 *   exs_put server PORT FILE           waits for one client, and stores in FILE what it sends
 *   exs_put client ADDRESS PORT FILE   sends FILE
 *
 * Operations of one socket and direction end in the order in which they were posted: so the server
 * writes each piece as its event comes.
 */
#include <arpa/inet.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rddp/ddp.h>
#include <rddp/exs.h>

enum { PIECE = 1 << 16, UNDER_WAY = 4 };

static exs_qhandle_t queue;
static char pieces[UNDER_WAY][PIECE];

static void check(bool good, const char *what) {
    if (!good) {
        perror(what);
        exit(1);
    }
}

/* Returns the next event, which has to be a success. */
static exs_event_t next_event(void) {
    exs_event_t event;
    check(exs_qdequeue(queue, &event, 1, NULL) == 1, "taking an event");
    if (event.exs_evt_errno != 0) {
        fprintf(stderr, "event %d: %s\n", event.exs_evt_type, strerror(event.exs_evt_errno));
        exit(1);
    }
    return event;
}

static int ddp_socket(void) {
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    check(setsockopt(fd, SOL_DDP, DDPMODE, &on, sizeof on) == 0, "DDPMODE");
    return fd;
}

static struct sockaddr_in address(const char *host, const char *port) {
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    check(inet_pton(AF_INET, host, &addr.sin_addr) == 1, "the address");
    return addr;
}

/* Begins to receive into a piece, which the event then names. */
static void begin_receive(int fd, char *piece) {
    check(exs_recv(fd, piece, PIECE, 0, queue, piece, EXS_MHANDLE_UNREGISTERED) == 0, "exs_recv");
}

static void serve(const char *port, const char *path) {
    struct sockaddr_in addr = address("0.0.0.0", port);
    int listener = ddp_socket(), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    check(bind(listener, (void *)&addr, sizeof addr) == 0 && listen(listener, 1) == 0, "listening");
    exs_acceptaddr_t accepted = {.aa_addr = NULL};
    check(exs_accept(listener, &accepted, 1, EXS_CAF_FILDES, queue, NULL) == 0, "exs_accept");
    puts("listening");
    fflush(stdout);
    next_event();
    int fd = accepted.aa_fildes;

    FILE *file = fopen(path, "w");
    check(file != NULL, path);
    for (int i = 0; i < UNDER_WAY; i++)
        begin_receive(fd, pieces[i]);
    for (;;) {
        exs_event_t event = next_event();
        size_t length = event.exs_evt_union.exs_evt_xfer.exs_xfer_length;
        if (length == 0)
            break; /* the client has closed */
        char *piece = event.exs_evt_ahandle;
        check(fwrite(piece, 1, length, file) == length, path);
        begin_receive(fd, piece);
    }
    check(fclose(file) == 0 && close(fd) == 0, path);
}

/* Begins to send the file's next piece; returns false at its end. */
static bool begin_send(int fd, FILE *file, char *piece) {
    size_t length = fread(piece, 1, PIECE, file);
    if (length == 0)
        return false;
    check(exs_send(fd, piece, length, 0, queue, piece, EXS_MHANDLE_UNREGISTERED) == 0, "exs_send");
    return true;
}

static void put_file(const char *host, const char *port, const char *path) {
    struct sockaddr_in addr = address(host, port);
    FILE *file = fopen(path, "r");
    check(file != NULL, path);
    int fd = ddp_socket(), under_way = 0;
    check(exs_connect(fd, (void *)&addr, sizeof addr, 0, queue, NULL) == 0, "exs_connect");
    next_event();
    for (int i = 0; i < UNDER_WAY; i++)
        under_way += begin_send(fd, file, pieces[i]);
    uint64_t sent = 0;
    for (; under_way > 0; under_way--) {
        exs_event_t event = next_event();
        sent += event.exs_evt_union.exs_evt_xfer.exs_xfer_length;
        under_way += begin_send(fd, file, event.exs_evt_ahandle);
    }
    check(!ferror(file) && close(fd) == 0, path);
    printf("%llu octets sent\n", (unsigned long long)sent);
}

int main(int count, char **args) {
    check(exs_init(EXS_VERSION) == 0, "the ES-API");
    queue = exs_qcreate(2 * UNDER_WAY);
    check(queue != EXS_QHANDLE_INVALID, "an event queue");
    if (count == 4 && strcmp(args[1], "server") == 0)
        serve(args[2], args[3]);
    else if (count == 5 && strcmp(args[1], "client") == 0)
        put_file(args[2], args[3], args[4]);
    else
        return fputs("usage: exs_put server PORT FILE | client ADDRESS PORT FILE\n", stderr), 2;
    return 0;
}
