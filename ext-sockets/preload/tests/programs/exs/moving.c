/* Operations that move octets. */
#include "exs_test.h"

#define MANY 1000

static size_t length_of(int index) { return 1 + (size_t)index * 7919 % 9000; }

/* Threads may be given too much at a time. */
static int full(int result) { return result == -1 && errno == EAGAIN && usleep(1000) == 0; }

/* EX1, EX2, EX3: receives, then sends, then their events. */
void many(void) {
    static unsigned char out[9000 * MANY], in[9000 * MANY];
    static size_t places[MANY + 1];
    static exs_event_t events[2 * MANY];
    int pair[2], result, next_send = 0, next_receive = 0;
    connection(pair);
    send_buffer(pair[0], 20000);
    exs_qhandle_t queue = exs_qcreate(2 * MANY);
    for (int i = 0; i < MANY; i++)
        places[i + 1] = places[i] + length_of(i);
    fill(out, 0, places[MANY]);
    for (int i = 0; i < MANY; i++) {
        do
            result = exs_recv(pair[1], in + places[i], length_of(i), MSG_WAITALL, queue, HANDLE(i), NONE);
        while (full(result));
        IS(result, 0);
    }
    for (int i = 0; i < MANY; i++) {
        do
            result = exs_send(pair[0], out + places[i], length_of(i), 0, queue, HANDLE(i), NONE);
        while (full(result));
        IS(result, 0);
    }
    for (int left = 2 * MANY; left > 0;) {
        int count = exs_qdequeue(queue, events, left > 300 ? -300 : -left, LONG_TIME);
        IS(count, left > 300 ? 300 : left);
        left -= count;
        for (int i = 0; i < count; i++) {
            int *next = events[i].exs_evt_type == EXS_EVT_SEND ? &next_send : &next_receive;
            IS(events[i].exs_evt_type, next == &next_send ? EXS_EVT_SEND : EXS_EVT_RECV);
            IS(events[i].exs_evt_socket, next == &next_send ? pair[0] : pair[1]);
            IS(events[i].exs_evt_errno, 0);
            IS(events[i].exs_evt_ahandle, *next);
            IS(events[i].exs_evt_union.exs_evt_xfer.exs_xfer_length, length_of(*next));
            IS(events[i].exs_evt_union.exs_evt_xfer.exs_xfer_buffer, (next == &next_send ? out : in) + places[*next]);
            ++*next;
        }
    }
    IS(next_send, MANY);
    IS(next_receive, MANY);
    IS(no_events(queue), 1);
    IS(is_filled(in, 0, places[MANY]), 1);
    IS(exs_qdelete(queue), 0);
    close(pair[0]);
    close(pair[1]);
}

/* A child that reads as any program does: 0 if that many octets came and were right. */
static pid_t reader(int fd, int other, size_t total, size_t period) {
    pid_t child = fork();
    if (child != 0)
        return child;
    static unsigned char octets[100000];
    size_t got = 0;
    close(other);
    for (;;) {
        ssize_t count = read(fd, octets, sizeof octets);
        if (count <= 0)
            break;
        for (ssize_t i = 0; i < count; i++, got++)
            if (octets[i] != octet_at(got % period))
                _exit(2);
    }
    shutdown(fd, SHUT_WR);
    _exit(got == total ? 0 : 3);
}

static int status_of(pid_t child) {
    int status;
    IS(waitpid(child, &status, 0), child);
    return status;
}

/* Sends as netperf's test of exs_send does. */
void netperf(void) {
    enum { PENDING = 16, SIZE = 16384, WIDTH = 20, MESSAGES = 3000 };
    static unsigned char ring[WIDTH * SIZE];
    exs_event_t events[128];
    int pair[2], pending = 0, sent = 0, next = 0;
    connection(pair);
    fill(ring, 0, sizeof ring);
    pid_t child = reader(pair[1], pair[0], (size_t)MESSAGES * SIZE, sizeof ring);
    close(pair[1]);
    exs_qhandle_t queue = exs_qcreate(128);
    exs_mhandle_t region = exs_mregister(ring, sizeof ring, EXS_MRF_SHARED);
    IS(region != EXS_MHANDLE_INVALID, 1);
    while (sent < MESSAGES) {
        while (pending < PENDING && sent < MESSAGES) {
            if (exs_send(pair[0], ring + (size_t)next * SIZE, SIZE, 0, queue, (exs_ahandle_t)-1, region) != 0) {
                IS(errno, EAGAIN);
                break;
            }
            pending++;
            sent++;
            next = (next + 1) % WIDTH;
        }
        int count = exs_qdequeue(queue, events, -(pending >> 1), NULL);
        IS(count, pending >> 1);
        pending -= count;
    }
    IS(exs_qdequeue(queue, events, -pending, NULL), pending);
    IS(shutdown(pair[0], SHUT_WR), 0);
    IS(recv(pair[0], ring, SIZE, 0), 0);
    close(pair[0]);
    IS(status_of(child), 0);
    IS(exs_mderegister(region, 0), 0);
    IS(exs_qdelete(queue), 0);
}

void files(void) {
    enum { LENGTH = 3000001, HEAD = 700, TAIL = 1234, FROM = 4097 };
    static unsigned char octets[LENGTH], head[HEAD], tail[TAIL];
    char name[] = "file.XXXXXX";
    int file = mkstemp(name), pair[2], tube[2];
    connection(pair);
    fill(octets, 0, LENGTH);
    IS(write(file, octets, LENGTH), LENGTH);
    unlink(name);
    /* The parts that are sent make one pattern: memory, most of the file, all of its
     * end, memory. */
    fill(head, 0, HEAD);
    fill(tail, LENGTH, TAIL);
    exs_xferpart_t parts[4] = {
        {EXS_IOVEC, {.xfp_iovec = {head, HEAD, NONE}}},
        {EXS_FDVEC, {.xfp_fdvec = {file, HEAD, FROM - HEAD}}},
        {EXS_FDVEC, {.xfp_fdvec = {file, FROM, 0}}},
        {EXS_IOVEC, {.xfp_iovec = {tail, TAIL, NONE}}},
    };
    exs_xferfile_t whole = {parts, 4};
    exs_qhandle_t queue = exs_qcreate(4);
    pid_t child = reader(pair[1], pair[0], LENGTH + TAIL, SIZE_MAX);
    close(pair[1]);
    IS(exs_sendfile(pair[0], &whole, 0, queue, HANDLE(7)), 0);
    memset(parts, 0, sizeof parts); /* they are the program's again */
    next_is(queue, EXS_EVT_SENDFILE, 0, LENGTH + TAIL, 7);
    IS(lseek(file, 0, SEEK_CUR), LENGTH); /* as it was */
    IS(shutdown(pair[0], SHUT_WR), 0);
    IS(status_of(child), 0);
    close(pair[0]);

    connection(pair);
    IS(pipe(tube), 0);
    /* The second part reaches past the end of the file. */
    parts[0] = (exs_xferpart_t){EXS_FDVEC, {.xfp_fdvec = {file, LENGTH - 5, 100}}};
    whole.xf_count = 1;
    IS(exs_sendfile(pair[0], &whole, MSG_MORE, queue, HANDLE(8)), 0);
    next_is(queue, EXS_EVT_SENDFILE, 0, 5, 8);
    parts[0].xfp_of.xfp_fdvec.fdv_off = LENGTH + 5;
    IS(exs_sendfile(pair[0], &whole, 0, queue, HANDLE(9)), 0);
    next_is(queue, EXS_EVT_SENDFILE, 0, 0, 9);
    parts[0].xfp_of.xfp_fdvec.fdv_off = -1;
    FAILS(exs_sendfile(pair[0], &whole, 0, queue, NULL), EINVAL);
    parts[0].xfp_of.xfp_fdvec = (exs_fdvec_t){tube[0], 0, 1};
    FAILS(exs_sendfile(pair[0], &whole, 0, queue, NULL), EINVAL);
    parts[0].xfp_of.xfp_fdvec.fdv_fd = 999;
    FAILS(exs_sendfile(pair[0], &whole, 0, queue, NULL), EBADF);
    parts[0].xfp_type = 3;
    FAILS(exs_sendfile(pair[0], &whole, 0, queue, NULL), EINVAL);
    FAILS(exs_sendfile(pair[0], &whole, MSG_PEEK, queue, NULL), EINVAL);
    IS(exs_qdelete(queue), 0);
    close(file);
    close_range(tube[0], tube[1], 0);
    close(pair[0]);
    close(pair[1]);
}
