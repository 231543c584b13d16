/* Tests of how connections are made, and with which peers they are not. */
#include "raw.h"

#include <fcntl.h>
#include <pthread.h>

static void data_calls_are_refused(int fd) {
    char octet = 'x';
    FAILS(read(fd, &octet, 1), EOPNOTSUPP);
    FAILS(recv(fd, &octet, 1, MSG_DONTWAIT), EOPNOTSUPP);
    FAILS(write(fd, &octet, 1), EOPNOTSUPP);
    FAILS(send(fd, &octet, 1, 0), EOPNOTSUPP);
    FAILS(shutdown(fd, SHUT_WR), EOPNOTSUPP);
}

static void plain_pair(int fds[2]) {
    struct sockaddr_in addr;
    int listener = raw_listener(&addr);
    IS(set(listener, DDPMODE, 0), 0);
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    IS(connect(fds[0], (void *)&addr, sizeof addr), 0);
    fds[1] = accept(listener, NULL, NULL);
    IS(close(listener), 0);
}

/* Sends one message each way, then ends the connection. */
static void talk(struct end *one, struct end *other) {
    struct end *ends[] = {one, other};
    for (int i = 0; i < 2; i++) {
        IS(post(ends[!i], (struct ddp_work){.op = DDP_RECEIVE}), 1);
        IS(post(ends[i], (struct ddp_work){.op = DDP_SEND}), 1);
        event(ends[i], DDP_SEND, 0);
        event(ends[!i], DDP_RECEIVE, 0);
    }
    IS(ddp_disconnect(one->fd, DDP_GRACEFUL), 0);
    for (int i = 0; i < 2; i++) {
        event(ends[i], DDP_CLOSED, 0);
        IS(mode_info(ends[i]->fd).mode, DDP_MODE_FAILED);
        IS(mode_info(ends[i]->fd).failure, 0);
        FAILS(post(ends[i], (struct ddp_work){.op = DDP_SEND}), EPIPE);
        FAILS(post(ends[i], (struct ddp_work){.op = DDP_RECEIVE}), EPIPE);
        FAILS(ddp_disconnect(ends[i]->fd, DDP_ABORT), ENOTCONN);
        IS(close(ends[i]->fd), 0);
        no_event(ends[i]);
    }
}

/* TCP first, then both are attached. */
static void attached_later(struct end *one, struct end *other) {
    struct sockaddr_in addr;
    int listener = raw_listener(&addr);
    one->fd = raw_socket();
    IS(mode_info(one->fd).mode, DDP_MODE_ASKED);
    IS(mode_info(one->fd).raw, 1);
    IS(connect(one->fd, (void *)&addr, sizeof addr), 0);
    FAILS(connect(one->fd, (void *)&addr, sizeof addr), EISCONN);
    other->fd = accept(listener, NULL, NULL);
    IS(mode_info(other->fd).mode, DDP_MODE_STARTING);
    IS(mode_info(other->fd).role, DDP_ROLE_RESPONDER);
    data_calls_are_refused(one->fd);
    data_calls_are_refused(other->fd);
    FAILS(post(one, (struct ddp_work){.op = DDP_SEND}), ENOTCONN);
    FAILS(set(one->fd, DDPMODE, 0), EINVAL);
    FAILS(set(one->fd, DDPMODE, 1), EINVAL);
    IS(set(one->fd, DDPMODE, DDPMODE_RAW), 0);
    begin(one, 0, 0);
    IS(mode_info(one->fd).mode, DDP_MODE_STARTING);
    no_event(one);
    /* Sends that are posted before there is a connection leave when there is one. */
    IS(post(one, (struct ddp_work){.op = DDP_SEND, .flags = DDP_QUIET}), 1);
    attach(other, 0, 0);
    IS(post(other, (struct ddp_work){.op = DDP_RECEIVE}), 1);
    IS(ddp_begin(other->fd), 0);
    event(one, DDP_CONNECTED, 0);
    event(other, DDP_CONNECTED, 0);
    event(other, DDP_RECEIVE, 0);
    IS(mode_info(one->fd).mode, DDP_MODE_ON);
    IS(mode_info(other->fd).mode, DDP_MODE_ON);
    data_calls_are_refused(one->fd);
    FAILS(set(one->fd, DDPMODE, 0), EINVAL);
    IS(close(listener), 0);
    talk(one, other);
}

/* Options of each end, and the private data of either. */
static void agreed(struct end *one, struct end *other) {
    struct sockaddr_in addr;
    struct ddp_info info;
    int listener = raw_listener(&addr);
    one->fd = raw_socket();
    IS(setsockopt(one->fd, SOL_DDP, DDP_PRIVATE_DATA, "a request", 9), 0);
    IS(set(one->fd, DDP_IRD, 4), 0);
    IS(set(one->fd, DDP_ORD, 8), 0);
    IS(set(one->fd, DDP_MARKERS, 1), 0);
    IS(set(one->fd, DDP_CRC, 0), 0);
    IS(connect(one->fd, (void *)&addr, sizeof addr), 0);
    other->fd = accept(listener, NULL, NULL);
    IS(setsockopt(other->fd, SOL_DDP, DDP_PRIVATE_DATA, "this reply", 10), 0);
    IS(set(other->fd, DDP_CRC, 0), 0);
    begin(one, 0, 0);
    begin(other, 0, 0);
    FAILS(set(other->fd, DDP_CRC, 1), EINVAL);
    event(one, DDP_CONNECTED, 0);
    event(other, DDP_CONNECTED, 0);
    IS(ddp_info(one->fd, &info), 0);
    IS(info.private_length, 10);
    IS(memcmp(info.private_data, "this reply", 10), 0);
    IS(info.ord, 8);
    IS(info.flags, DDP_INFO_MARKERS_RECEIVED);
    char octets[600];
    socklen_t len = sizeof octets;
    IS(getsockopt(one->fd, SOL_DDP, DDP_PEER_PRIVATE_DATA, octets, &len), 0);
    IS(len, 10);
    IS(memcmp(octets, "this reply", 10), 0);
    IS(ddp_info(other->fd, &info), 0);
    IS(info.private_length, 9);
    IS(memcmp(info.private_data, "a request", 9), 0);
    IS(info.ord, 4);
    IS(info.flags, DDP_INFO_MARKERS_SENT);
    IS(close(listener), 0);
    talk(one, other);
}

static void established(struct end *one, struct end *other) {
    int fds[2];
    plain_pair(fds);
    FAILS(set(fds[0], DDPMODE, DDPMODE_RAW), EINVAL); /* without a role */
    for (int i = 0; i < 2; i++) {
        IS(set(fds[i], DDP_ROLE, i == 0 ? DDP_ROLE_RESPONDER : DDP_ROLE_INITIATOR), 0);
        IS(set(fds[i], DDPMODE, DDPMODE_RAW), 0);
    }
    one->fd = fds[0];
    other->fd = fds[1];
    begin(one, 0, 0);
    begin(other, DDP_ENDPOINT_REVISION_1, 0);
    event(one, DDP_CONNECTED, 0);
    event(other, DDP_CONNECTED, 0);
    struct ddp_info info;
    IS(ddp_info(one->fd, &info), 0);
    IS(info.revision, 1);
    /* With revision 1 the initiator speaks first. */
    talk(other, one);
}

static void *passive(void *end) {
    struct end *passive = end;
    int listener = passive->fd;
    passive->fd = accept(listener, NULL, NULL);
    IS(passive->fd >= 0, 1);
    IS(close(listener), 0);
    begin(passive, 0, 0);
    event(passive, DDP_CONNECTED, 0);
    return NULL;
}

static void blocking(struct end *one, struct end *other) {
    struct sockaddr_in addr;
    pthread_t thread;
    other->fd = raw_listener(&addr);
    IS(pthread_create(&thread, NULL, passive, other), 0);
    one->fd = raw_socket();
    attach(one, 0, 0);
    IS(connect(one->fd, (void *)&addr, sizeof addr), 0);
    IS(mode_info(one->fd).mode, DDP_MODE_ON);
    event(one, DDP_CONNECTED, 0);
    IS(pthread_join(thread, NULL), 0);
    /* Until the last descriptor is closed. */
    int again = dup(one->fd);
    IS(close(one->fd), 0);
    one->fd = again;
    talk(one, other);
}

void connections(void) {
    struct end one = {.queue = ddp_queue(0)}, other = {.queue = ddp_queue(DDP_QUEUE_UNWATCHED)};
    attached_later(&one, &other);
    agreed(&one, &other);
    established(&one, &other);
    blocking(&one, &other);
}

/* Answers to a Request by peers that do not speak MPA. */
static void answers(struct end *end, const char *octets, size_t length, int status) {
    int fds[2];
    char request[512];
    plain_pair(fds);
    end->fd = fds[0];
    IS(set(end->fd, DDP_ROLE, DDP_ROLE_INITIATOR), 0);
    IS(set(end->fd, DDPMODE, DDPMODE_RAW), 0);
    begin(end, 0, 0);
    IS(receive(&(struct end){.fd = end->fd}, 0, 0, 3), 1);
    IS(recv(fds[1], request, 16, MSG_WAITALL), 16);
    IS(memcmp(request, "MPA ID Req Frame", 16), 0);
    IS(write(fds[1], octets, length), length);
    if (length == 0)
        IS(close(fds[1]), 0);
    IS(event(end, DDP_RECEIVE, ECANCELED).tag, 3);
    event(end, DDP_CLOSED, status);
    IS(mode_info(end->fd).failure, status);
    FAILS(post(end, (struct ddp_work){.op = DDP_SEND}), EPIPE);
    IS(close(end->fd), 0);
    no_event(end);
    if (length != 0)
        IS(close(fds[1]), 0);
}

void peers(void) {
    struct end end = {.queue = ddp_queue(0)};
    struct sockaddr_in addr;
    answers(&end, "HTTP/1.1 400 Bad Request\r\n\r\n", 28, EPROTONOSUPPORT);
    answers(&end, "MPA ID Rep Frame\x20\2\0\0", 20, ECONNREFUSED);
    answers(&end, "", 0, ECONNRESET);

    /* Nothing listens: the endpoint can try again. */
    int listener = raw_listener(&addr);
    IS(close(listener), 0);
    end.fd = raw_socket();
    attach(&end, 0, 0);
    FAILS(connect(end.fd, (void *)&addr, sizeof addr), ECONNREFUSED);
    IS(mode_info(end.fd).mode, DDP_MODE_ASKED);
    no_event(&end);
    IS(close(end.fd), 0);
    event(&end, DDP_CLOSED, ECANCELED);
    end.fd = raw_socket();
    IS(fcntl(end.fd, F_SETFL, O_NONBLOCK), 0);
    attach(&end, 0, 0);
    FAILS(connect(end.fd, (void *)&addr, sizeof addr), EINPROGRESS);
    event(&end, DDP_CLOSED, ECONNREFUSED);
    IS(close(end.fd), 0);

    /* Somebody who says nothing. */
    listener = raw_listener(&addr);
    end.fd = raw_socket();
    struct ddp_endpoint how = {.queue = end.queue, .timeout = 50};
    IS(ddp_attach(end.fd, &how), 0);
    FAILS(connect(end.fd, (void *)&addr, sizeof addr), ETIMEDOUT);
    event(&end, DDP_CLOSED, ETIMEDOUT);
    IS(mode_info(end.fd).mode, DDP_MODE_FAILED);
    IS(close(end.fd), 0);
    no_event(&end);
}
