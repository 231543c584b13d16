/* Sends over SDP that the peer reads from the program's memory, several at a time.
 * RDDP_SDP_SOURCE_THRESHOLD is below LENGTH; RDDP_SDP_SINK_THRESHOLD as well, or "none". */
#include "exs_test.h"

#include <rddp/ddp.h>
#include <signal.h>

enum { LENGTH = 100000, COUNT = 6, READ = 6, SENT = 1, WRITTEN = 7 };

static unsigned char out[COUNT * LENGTH], in[COUNT * LENGTH];

/* A connection whose startup is over. */
static void established(int ends[2]) {
    char octet = 'x';
    connection(ends);
    for (int from = 0; from < 2; from++) {
        IS(write(ends[from], &octet, 1), 1);
        IS(recv(ends[1 - from], &octet, 1, MSG_WAITALL), 1);
    }
}

static uint64_t count_of(int fd, int counter) {
    struct ddp_sdp_info info;
    socklen_t len = sizeof info;
    IS(getsockopt(fd, SOL_DDP, DDP_SDP_INFO, &info, &len), 0);
    return info.counters[counter];
}

static void post(int fd, exs_qhandle_t queue, int count) {
    fill(out, 0, sizeof out);
    for (int i = 0; i < count; i++)
        IS(exs_send(fd, out + i * LENGTH, LENGTH, 0, queue, HANDLE(i), NONE), 0);
}

/* The memory is the program's again with the event. */
static void take(exs_qhandle_t queue, int index, int error) {
    next_is(queue, EXS_EVT_SEND, error, LENGTH, index);
    memset(out + index * LENGTH, 0xee, LENGTH);
}

static void expect(int fd, size_t count) {
    memset(in, 0, sizeof in);
    IS(recv(fd, in, count, MSG_WAITALL), count);
    IS(is_filled(in, 0, count), 1);
}

static pid_t receiver(int fd, size_t count) {
    pid_t child = fork();
    if (child == 0) {
        expect(fd, count);
        _exit(0);
    }
    return child;
}

static void succeeds(pid_t child) {
    int status;
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
}

static void all_are_read(void) {
    int ends[2];
    int offers = atoi(getenv("RDDP_SDP_SINK_THRESHOLD"));
    established(ends);
    exs_qhandle_t queue = exs_qcreate(2 * COUNT);
    uint64_t copied = count_of(ends[0], SENT);
    for (int round = 1; round <= 3; round++) {
        post(ends[0], queue, COUNT);
        expect(ends[1], sizeof in);
        for (int i = 0; i < COUNT; i++)
            take(queue, i, 0);
        uint64_t read = count_of(ends[0], READ), written = count_of(ends[0], WRITTEN);
        IS(read + written + count_of(ends[0], SENT) - copied, round * sizeof out);
        if (!offers)
            IS(read, round * sizeof out);
    }
    /* Receives that wait offer their room, and are written to. */
    uint64_t before = count_of(ends[0], WRITTEN);
    for (int i = 0; i < 3; i++)
        IS(exs_recv(ends[1], in + i * LENGTH, LENGTH, MSG_WAITALL, queue, HANDLE(i), NONE), 0);
    memset(in, 0, sizeof in);
    fill(out, 0, sizeof out);
    exs_qhandle_t other = exs_qcreate(COUNT);
    for (int i = 0; i < 3; i++)
        IS(exs_send(ends[0], out + i * LENGTH, LENGTH, 0, other, HANDLE(i), NONE), 0);
    for (int i = 0; i < 3; i++)
        next_is(queue, EXS_EVT_RECV, 0, LENGTH, i);
    for (int i = 0; i < 3; i++)
        take(other, i, 0);
    IS(exs_qdelete(other), 0);
    IS(is_filled(in, 0, 3 * LENGTH), 1);
    if (offers)
        IS(count_of(ends[0], WRITTEN) - before >= LENGTH, 1);
    IS(exs_qdelete(queue), 0);
    close(ends[0]);
    close(ends[1]);
}

/* A short send between long ones, and one that is no multiple of anything. */
static void short_and_long(void) {
    int ends[2];
    established(ends);
    exs_qhandle_t queue = exs_qcreate(COUNT);
    static unsigned char big[3000001], got[3000001 + 3 * LENGTH + 5];
    fill(out, 0, sizeof out);
    fill(big, 2 * LENGTH + 5, sizeof big);
    IS(exs_send(ends[0], out, LENGTH, 0, queue, HANDLE(0), NONE), 0);
    IS(exs_send(ends[0], out + LENGTH, 5, 0, queue, HANDLE(1), NONE), 0);
    IS(exs_send(ends[0], out + LENGTH + 5, LENGTH, 0, queue, HANDLE(2), NONE), 0);
    IS(exs_send(ends[0], big, sizeof big, 0, queue, HANDLE(3), NONE), 0);
    IS(recv(ends[1], got, 2 * LENGTH + 5 + sizeof big, MSG_WAITALL), 2 * LENGTH + 5 + sizeof big);
    IS(is_filled(got, 0, 2 * LENGTH + 5 + sizeof big), 1);
    next_is(queue, EXS_EVT_SEND, 0, LENGTH, 0);
    next_is(queue, EXS_EVT_SEND, 0, 5, 1);
    next_is(queue, EXS_EVT_SEND, 0, LENGTH, 2);
    next_is(queue, EXS_EVT_SEND, 0, sizeof big, 3);
    IS(exs_qdelete(queue), 0);
    close(ends[0]);
    close(ends[1]);
}

static void cancelled(void) {
    int ends[2];
    established(ends);
    exs_qhandle_t queue = exs_qcreate(COUNT);
    post(ends[0], queue, 3);
    usleep(20000);
    IS(exs_cancel(ends[0], HANDLE(1), 0), 0);
    take(queue, 0, 0);
    exs_event_t event;
    IS(exs_qdequeue(queue, &event, 1, LONG_TIME), 1);
    IS(event.exs_evt_errno, ECANCELED);
    size_t sent = event.exs_evt_union.exs_evt_xfer.exs_xfer_length;
    IS(sent == 0 || sent == LENGTH, 1); /* it was advertised, or not yet */
    take(queue, 2, 0);
    memset(out, 0xee, sizeof out);
    memset(in, 0, sizeof in);
    IS(recv(ends[1], in, 2 * LENGTH + sent, MSG_WAITALL), 2 * LENGTH + sent);
    IS(is_filled(in, 0, LENGTH + sent), 1);
    IS(is_filled(in + LENGTH + sent, 2 * LENGTH, LENGTH), 1);
    IS(exs_qdelete(queue), 0);
    close(ends[0]);
    close(ends[1]);
}

static void closed(void) {
    int ends[2];
    established(ends);
    exs_qhandle_t queue = exs_qcreate(COUNT);
    post(ends[0], queue, 3);
    usleep(20000);
    IS(close(ends[0]), 0);
    size_t sent = 0;
    for (int i = 0; i < 3; i++) {
        exs_event_t event;
        IS(exs_qdequeue(queue, &event, 1, NO_TIME), 1);
        IS(event.exs_evt_ahandle, i);
        IS(event.exs_evt_errno == 0 || event.exs_evt_errno == ECONNABORTED, 1);
        sent += event.exs_evt_union.exs_evt_xfer.exs_xfer_length;
    }
    memset(out, 0xee, sizeof out);
    memset(in, 0, sizeof in);
    IS(recv(ends[1], in, sizeof in, MSG_WAITALL), sent); /* up to the end */
    IS(is_filled(in, 0, sent), 1);
    IS(exs_qdelete(queue), 0);
    close(ends[1]);
}

/* Two processes have the socket: nothing is advertised. */
static void forked(void) {
    int ends[2];
    established(ends);
    exs_qhandle_t queue = exs_qcreate(COUNT);
    uint64_t copied = count_of(ends[0], SENT);
    pid_t child = receiver(ends[1], 2 * LENGTH);
    post(ends[0], queue, 2);
    take(queue, 0, 0);
    take(queue, 1, 0);
    IS(count_of(ends[0], READ), 0);
    IS(count_of(ends[0], SENT) - copied, 2 * LENGTH);
    succeeds(child);
    /* A child that comes while memory is lent has no part in it. */
    post(ends[0], queue, 2);
    usleep(20000);
    child = receiver(ends[1], 2 * LENGTH);
    take(queue, 0, 0);
    take(queue, 1, 0);
    succeeds(child);
    IS(exs_qdelete(queue), 0);
    close(ends[0]);
    close(ends[1]);
}

/* A process that dies with its memory lent. */
static void killed(void) {
    int ends[2], status;
    established(ends);
    pid_t child = fork();
    if (child == 0) {
        close(ends[1]);
        exs_qhandle_t queue = exs_qcreate(COUNT);
        post(ends[0], queue, COUNT);
        pause();
    }
    close(ends[0]);
    IS(recv(ends[1], in, 1, MSG_WAITALL), 1);
    kill(child, SIGKILL);
    IS(waitpid(child, &status, 0), child);
    size_t got = 1;
    for (ssize_t count; got < sizeof in && (count = recv(ends[1], in + got, sizeof in - got, 0)) > 0;)
        got += count;
    IS(is_filled(in, 0, got), 1);
    close(ends[1]);
}

void lending(void) {
    IS(exs_init(EXS_VERSION), 0);
    all_are_read();
    short_and_long();
    cancelled();
    closed();
    forked();
    killed();
}
