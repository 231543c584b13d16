/* Requests that the program looks at before it answers. */
#include "raw.h"

enum { ENHANCED_MOST = 508, MOST = 512 };

static uint8_t words[MOST + 1];

/* A peer of plain TCP, and the endpoint that it is accepted as, which asks. */
struct asked {
    int peer;
    struct end end;
};

static void ask(struct asked *asked, uint32_t timeout) {
    struct sockaddr_in addr;
    int listener = raw_listener(&addr);
    asked->peer = socket(AF_INET, SOCK_STREAM, 0);
    IS(connect(asked->peer, (void *)&addr, sizeof addr), 0);
    asked->end.fd = accept(listener, NULL, NULL);
    IS(close(listener), 0);
    struct ddp_endpoint how = {
        .queue = asked->end.queue, .tag = 5, .flags = DDP_ENDPOINT_ASK, .timeout = timeout};
    IS(ddp_attach(asked->end.fd, &how), 0);
    FAILS(ddp_answer(asked->end.fd, DDP_ACCEPT, NULL, 0), ENOTCONN);
    IS(ddp_begin(asked->end.fd), 0);
}

/* A Request with CRC: of revision 1, or of 2 with depths of 3 and 7. */
static void request(int peer, int revision, uint32_t length) {
    uint8_t frame[20 + 4 + MOST] = "MPA ID Req Frame";
    uint32_t enhanced = revision == 2 ? 4 : 0, total = length + enhanced;
    frame[16] = revision == 2 ? 0x50 : 0x40;
    frame[17] = revision;
    frame[18] = total >> 8;
    frame[19] = total;
    if (revision == 2)
        memcpy(frame + 20, "\0\3\0\7", 4);
    memcpy(frame + 20 + enhanced, words, length <= MOST ? length : 0);
    uint32_t octets = length <= MOST ? 20 + total : 20;
    IS(write(peer, frame, octets), octets);
}

static void reply(int peer, int flags, int revision, uint32_t enhanced, uint32_t length) {
    uint8_t frame[20 + MOST];
    IS(recv(peer, frame, 20, MSG_WAITALL), 20);
    IS(memcmp(frame, "MPA ID Rep Frame", 16), 0);
    IS(frame[16], flags);
    IS(frame[17], revision);
    IS(frame[18] << 8 | frame[19], enhanced + length);
    IS(recv(peer, frame, enhanced + length, MSG_WAITALL), enhanced + length);
    IS(memcmp(frame + enhanced, words, length), 0);
}

static int says(const struct ddp_info *info, const void *octets, uint32_t length) {
    return info->private_length == length && memcmp(info->private_data, octets, length) == 0;
}

/* Two ends with their queues, one of them to be accepted. */
static struct pair *two_ends(int *listener, struct sockaddr_in *addr) {
    struct pair *pair = calloc(1, sizeof *pair);
    *listener = raw_listener(addr);
    pair->active.queue = ddp_queue(0);
    pair->passive.queue = ddp_queue(0);
    pair->active.fd = raw_socket();
    return pair;
}

/* Two endpoints, the passive one asked. */
static struct pair *requested(const char *said) {
    struct sockaddr_in addr;
    int listener;
    struct pair *pair = two_ends(&listener, &addr);
    IS(setsockopt(pair->active.fd, SOL_DDP, DDP_PRIVATE_DATA, said, strlen(said)), 0);
    IS(set(pair->active.fd, DDP_IRD, 3), 0);
    IS(set(pair->active.fd, DDP_ORD, 7), 0);
    IS(fcntl(pair->active.fd, F_SETFL, O_NONBLOCK), 0);
    attach(&pair->active, DDP_ENDPOINT_ASK, 1);
    FAILS(ddp_answer(pair->active.fd, DDP_ACCEPT, NULL, 0), ENOTCONN);
    FAILS(connect(pair->active.fd, (void *)&addr, sizeof addr), EINPROGRESS);
    pair->passive.fd = accept(listener, NULL, NULL);
    IS(close(listener), 0);
    IS(setsockopt(pair->passive.fd, SOL_DDP, DDP_PRIVATE_DATA, "as ever", 7), 0);
    attach(&pair->passive, DDP_ENDPOINT_ASK, 2);
    IS(receive(&(struct end){.fd = pair->passive.fd}, 0, 0, 3), 1);
    IS(ddp_begin(pair->passive.fd), 0);
    struct ddp_event asked = event(&pair->passive, DDP_REQUESTED, 0);
    IS(asked.endpoint, 2);
    IS(asked.fd, pair->passive.fd);
    no_event(&pair->active);
    return pair;
}

static void closed(struct end *end) {
    IS(close(end->fd), 0);
    no_event(end);
    IS(close(end->queue), 0);
}

static void accepted(const void *said, size_t length, const char *heard) {
    struct ddp_info info;
    struct pair *pair = requested("may I?");
    IS(ddp_info(pair->passive.fd, &info), 0);
    IS(says(&info, "may I?", 6), 1);
    IS(info.revision, 2);
    IS(info.ird, 7);
    IS(info.ord, 3);
    IS(info.flags, DDP_INFO_CRC);
    IS(info.mode, DDP_MODE_STARTING);
    IS(post(&pair->passive, (struct ddp_work){.op = DDP_SEND, .flags = DDP_QUIET}), 1);
    IS(post(&pair->active, (struct ddp_work){.op = DDP_RECEIVE}), 1);
    IS(ddp_answer(pair->passive.fd, DDP_ACCEPT, said, length), 0);
    FAILS(ddp_answer(pair->passive.fd, DDP_REJECT, NULL, 0), EALREADY);
    event(&pair->passive, DDP_CONNECTED, 0);
    event(&pair->active, DDP_CONNECTED, 0);
    FAILS(ddp_answer(pair->passive.fd, DDP_REJECT, NULL, 0), EALREADY);
    FAILS(ddp_answer(pair->active.fd, DDP_ACCEPT, NULL, 0), ENOTCONN);
    IS(ddp_info(pair->active.fd, &info), 0);
    IS(says(&info, heard, strlen(heard)), 1);
    IS(ddp_info(pair->passive.fd, &info), 0);
    IS(says(&info, "may I?", 6), 1);
    IS(info.mode, DDP_MODE_ON);
    event(&pair->active, DDP_RECEIVE, 0);
    IS(post(&pair->active, (struct ddp_work){.op = DDP_SEND, .flags = DDP_QUIET}), 1);
    IS(event(&pair->passive, DDP_RECEIVE, 0).tag, 3);
    IS(ddp_disconnect(pair->active.fd, DDP_GRACEFUL), 0);
    event(&pair->active, DDP_CLOSED, 0);
    event(&pair->passive, DDP_CLOSED, 0);
    closed(&pair->active);
    closed(&pair->passive);
    free(pair);
}

static void rejected(void) {
    struct ddp_info info;
    struct pair *pair = requested("may I?");
    IS(receive(&(struct end){.fd = pair->active.fd}, 0, 0, 4), 1);
    IS(ddp_answer(pair->passive.fd, DDP_REJECT, words, ENHANCED_MOST), 0);
    IS(event(&pair->passive, DDP_RECEIVE, ECANCELED).tag, 3);
    event(&pair->passive, DDP_CLOSED, ECANCELED);
    FAILS(ddp_answer(pair->passive.fd, DDP_ACCEPT, NULL, 0), EALREADY);
    FAILS(post(&pair->passive, (struct ddp_work){.op = DDP_SEND}), EPIPE);
    FAILS(ddp_disconnect(pair->passive.fd, DDP_ABORT), ENOTCONN);
    IS(event(&pair->active, DDP_RECEIVE, ECANCELED).tag, 4);
    event(&pair->active, DDP_CLOSED, ECONNREFUSED);
    IS(ddp_info(pair->active.fd, &info), 0);
    IS(says(&info, words, ENHANCED_MOST), 1);
    IS(info.failure, ECONNREFUSED);
    char octets[MOST];
    socklen_t len = sizeof octets;
    IS(getsockopt(pair->active.fd, SOL_DDP, DDP_PEER_PRIVATE_DATA, octets, &len), 0);
    IS(len, ENHANCED_MOST);
    IS(ddp_info(pair->passive.fd, &info), 0);
    IS(says(&info, "may I?", 6), 1);
    IS(info.failure, ECANCELED);
    closed(&pair->active);
    closed(&pair->passive);
    free(pair);
}

/* The octets of each Reply; and after a no the peer closes first. */
static void frames(struct asked *asked) {
    struct ddp_info info;
    struct {
        int revision, answer, flags;
        uint32_t enhanced, most;
    } all[] = {{2, DDP_ACCEPT, 0x50, 4, ENHANCED_MOST},
               {2, DDP_REJECT, 0x70, 4, ENHANCED_MOST},
               {1, DDP_ACCEPT, 0x40, 0, MOST},
               {1, DDP_REJECT, 0x60, 0, MOST}};
    for (int i = 0; i < 4; i++) {
        ask(asked, PATIENCE);
        FAILS(ddp_answer(asked->end.fd, DDP_ACCEPT, NULL, 0), ENOTCONN);
        request(asked->peer, all[i].revision, all[i].most);
        event(&asked->end, DDP_REQUESTED, 0);
        IS(ddp_info(asked->end.fd, &info), 0);
        IS(says(&info, words, all[i].most), 1);
        IS(info.revision, all[i].revision);
        IS(info.ird, all[i].revision == 2 ? 7 : 16383);
        IS(info.ord, all[i].revision == 2 ? 3 : 16383);
        FAILS(ddp_answer(asked->end.fd, all[i].answer, words, all[i].most + 1), EMSGSIZE);
        FAILS(ddp_answer(asked->end.fd, all[i].answer, words, ~0ul), EMSGSIZE);
        FAILS(ddp_answer(asked->end.fd, all[i].answer, NULL, 1), EFAULT);
        FAILS(ddp_answer(asked->end.fd, 3, NULL, 0), EINVAL);
        no_event(&asked->end);
        IS(ddp_answer(asked->end.fd, all[i].answer, words, all[i].most), 0);
        reply(asked->peer, all[i].flags, all[i].revision, all[i].enhanced, all[i].most);
        int refused = all[i].answer == DDP_REJECT;
        event(&asked->end, refused ? DDP_CLOSED : DDP_CONNECTED, refused ? ECANCELED : 0);
        IS(close(asked->end.fd), 0);
        if (refused) {
            usleep(20000);
            FAILS(recv(asked->peer, &info, 1, MSG_DONTWAIT), EAGAIN);
        }
        IS(close(asked->peer), 0);
        if (!refused)
            event(&asked->end, DDP_CLOSED, 0);
    }
}

static void without_rtr(void) {
    struct sockaddr_in addr;
    int listener;
    struct pair *pair = two_ends(&listener, &addr);
    IS(connect(pair->active.fd, (void *)&addr, sizeof addr), 0);
    pair->passive.fd = accept(listener, NULL, NULL);
    IS(set(pair->passive.fd, DDP_RTR, 0), 0);
    begin(&pair->active, 0, 0);
    begin(&pair->passive, DDP_ENDPOINT_ASK, 0);
    event(&pair->passive, DDP_REQUESTED, 0);
    FAILS(ddp_answer(pair->passive.fd, DDP_ACCEPT, NULL, 0), EPROTO);
    no_event(&pair->passive);
    IS(ddp_answer(pair->passive.fd, DDP_REJECT, NULL, 0), 0);
    event(&pair->passive, DDP_CLOSED, ECANCELED);
    event(&pair->active, DDP_CLOSED, ECONNREFUSED);
    closed(&pair->active);
    closed(&pair->passive);
    IS(close(listener), 0);
    free(pair);
}

/* Those that were not asked. */
static void nobody_asked(void) {
    struct pair *pair = connected(0);
    int plain = socket(AF_INET, SOCK_STREAM, 0);
    FAILS(ddp_answer(pair->active.fd, DDP_ACCEPT, NULL, 0), EINVAL);
    FAILS(ddp_answer(pair->passive.fd, DDP_ACCEPT, NULL, 0), EINVAL);
    FAILS(ddp_answer(-1, DDP_ACCEPT, NULL, 0), EBADF);
    FAILS(ddp_answer(plain, DDP_ACCEPT, NULL, 0), EOPNOTSUPP);
    IS(close(plain), 0);
    disconnected(pair);
}

void answered(void) {
    for (int i = 0; i < sizeof words; i++)
        words[i] = i * 7;
    struct asked asked = {.end.queue = ddp_queue(0)};
    accepted("you may", 7, "you may");
    accepted("", 0, "");
    accepted(NULL, 0, "as ever");
    rejected();
    frames(&asked);
    without_rtr();
    nobody_asked();
    no_event(&asked.end);
}

static void nothing_left(struct asked *asked) {
    uint8_t octet;
    FAILS(ddp_answer(asked->end.fd, DDP_ACCEPT, NULL, 0), ENOTCONN);
    no_event(&asked->end);
    long got = recv(asked->peer, &octet, 1, 0);
    IS(got <= 0, 1);
    IS(close(asked->end.fd), 0);
    IS(close(asked->peer), 0);
}

/* The startup ends before there is an answer; what came of the Request can be read still. */
static void never_answered(struct asked *asked) {
    struct ddp_info info;
    ask(asked, 100);
    request(asked->peer, 2, 9);
    event(&asked->end, DDP_REQUESTED, 0);
    event(&asked->end, DDP_CLOSED, ETIMEDOUT);
    IS(ddp_info(asked->end.fd, &info), 0);
    IS(says(&info, words, 9), 1);
    nothing_left(asked);

    ask(asked, PATIENCE);
    request(asked->peer, 2, 9);
    event(&asked->end, DDP_REQUESTED, 0);
    IS(shutdown(asked->peer, SHUT_WR), 0);
    event(&asked->end, DDP_CLOSED, ECONNRESET);
    nothing_left(asked);

    ask(asked, PATIENCE);
    request(asked->peer, 2, 9);
    event(&asked->end, DDP_REQUESTED, 0);
    IS(write(asked->peer, "and", 3), 3);
    event(&asked->end, DDP_CLOSED, EPROTO);
    nothing_left(asked);

    ask(asked, PATIENCE);
    request(asked->peer, 2, 9);
    event(&asked->end, DDP_REQUESTED, 0);
    struct linger at_once = {.l_onoff = 1};
    IS(setsockopt(asked->peer, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    IS(close(asked->peer), 0);
    event(&asked->end, DDP_CLOSED, ECONNRESET);
    asked->peer = dup(0);
    nothing_left(asked);
}

/* Requests that never are one. */
static void never_asked(struct asked *asked) {
    ask(asked, 100);
    IS(write(asked->peer, "MPA ID Req", 10), 10);
    event(&asked->end, DDP_CLOSED, ETIMEDOUT);
    nothing_left(asked);

    ask(asked, PATIENCE);
    request(asked->peer, 1, MOST + 1);
    event(&asked->end, DDP_CLOSED, EPROTO);
    nothing_left(asked);

    ask(asked, PATIENCE);
    IS(write(asked->peer, "MPA ID Rep Frame", 16), 16);
    event(&asked->end, DDP_CLOSED, EPROTO);
    nothing_left(asked);
}

static void given_up(struct asked *asked) {
    uint8_t octet;
    ask(asked, PATIENCE);
    request(asked->peer, 2, 9);
    event(&asked->end, DDP_REQUESTED, 0);
    IS(receive(&(struct end){.fd = asked->end.fd}, 0, 0, 3), 1);
    IS(close(asked->end.fd), 0);
    IS(event(&asked->end, DDP_RECEIVE, ECANCELED).tag, 3);
    event(&asked->end, DDP_CLOSED, ECANCELED);
    FAILS(recv(asked->peer, &octet, 1, 0), ECONNRESET);
    IS(close(asked->peer), 0);

    /* At once, though the program keeps the socket. */
    ask(asked, PATIENCE);
    request(asked->peer, 2, 9);
    event(&asked->end, DDP_REQUESTED, 0);
    FAILS(ddp_disconnect(asked->end.fd, DDP_GRACEFUL), ENOTCONN);
    IS(ddp_disconnect(asked->end.fd, DDP_ABORT), 0);
    event(&asked->end, DDP_CLOSED, ECANCELED);
    FAILS(recv(asked->peer, &octet, 1, 0), ECONNRESET);
    nothing_left(asked);

    /* The endpoint's queue is closed. */
    ask(asked, PATIENCE);
    request(asked->peer, 2, 9);
    event(&asked->end, DDP_REQUESTED, 0);
    IS(close(asked->end.queue), 0);
    asked->end.queue = ddp_queue(0);
    FAILS(recv(asked->peer, &octet, 1, 0), ECONNRESET);
    nothing_left(asked);
}

/* Many Requests at a time: each is announced, ends, and leaves room for the next. */
static void many(int queue) {
    enum { MANY = 200 };
    static struct asked all[MANY];
    struct ddp_event got;
    for (int turn = 0; turn < 2; turn++) {
        int seen[2] = {0, 0};
        for (int i = 0; i < MANY; i++) {
            all[i].end.queue = queue;
            ask(&all[i], 1000);
            request(all[i].peer, 1, MOST);
        }
        while (seen[1] < MANY) {
            IS(ddp_events(queue, &got, 1, PATIENCE), 1);
            IS(got.kind == DDP_REQUESTED || got.status == ETIMEDOUT, 1);
            seen[got.kind == DDP_CLOSED]++;
        }
        IS(seen[0], MANY);
        for (int i = 0; i < MANY; i++)
            nothing_left(&all[i]);
    }
}

void unanswered(void) {
    struct asked asked = {.end.queue = ddp_queue(0)};
    never_answered(&asked);
    never_asked(&asked);
    given_up(&asked);
    many(asked.end.queue);
    accepted(NULL, 0, "as ever");
}
