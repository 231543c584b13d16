/* Time, signals, other processes. */
#include "exs_test.h"

void timeouts(void) {
    static char octets[1000000];
    int ends[2], value;
    connection(ends);
    exs_qhandle_t queue = exs_qcreate(64);
    exs_timeout_t time = {{0, 20000}, EXS_TIMEOUT_ONCE};
    socklen_t len = sizeof time;
    FAILS(setsockopt(0, SOL_SOCKET, SO_ASYNC_RECV_TIMEOUT, &time, sizeof time), ENOTSOCK);
    FAILS(setsockopt(ends[0], SOL_SOCKET, SO_ASYNC_RECV_TIMEOUT, &time, 8), EINVAL);
    FAILS(setsockopt(ends[0], SOL_SOCKET, SO_ASYNC_RECV_TIMEOUT, (&(struct timeval){0, 1000000}), 16), EDOM);
    FAILS(setsockopt(ends[0], SOL_SOCKET, SO_ASYNC_RECV_TIMEOUT, (&(exs_timeout_t){{0, 1}, 2}), sizeof time), EINVAL);
    IS(setsockopt(ends[0], SOL_SOCKET, SO_ASYNC_RECV_TIMEOUT, &time, sizeof time), 0);
    memset(&time, 0, sizeof time);
    IS(getsockopt(ends[0], SOL_SOCKET, SO_ASYNC_RECV_TIMEOUT, &time, &len), 0);
    IS(time.to_time.tv_usec, 20000);
    IS(time.to_flags, EXS_TIMEOUT_ONCE);
    len = sizeof value;
    IS(getsockopt(ends[0], SOL_SOCKET, SO_ASYNC_RECV_ORDERED, &value, &len), 0);
    IS(value, 1);
    IS(exs_recv(ends[0], octets, 9, 0, queue, HANDLE(1), NONE), 0);
    IS(exs_recv(ends[0], octets, 9, 0, queue, HANDLE(2), NONE), 0);
    next_is(queue, EXS_EVT_RECVTIMEOUT, ETIMEDOUT, 0, 1);
    len = sizeof time;
    IS(getsockopt(ends[0], SOL_SOCKET, SO_ASYNC_RECV_TIMEOUT, &time, &len), 0);
    IS(time.to_time.tv_usec, 0); /* that was the one */
    IS(exs_qdequeue(queue, (exs_event_t[1]){}, 1, (&(struct timeval){0, 60000})), 0);
    IS(write(ends[1], "x", 1), 1);
    next_is(queue, EXS_EVT_RECV, 0, 1, 2);
    /* A peer that does not read. */
    IS(setsockopt(ends[0], SOL_SOCKET, SO_ASYNC_SEND_TIMEOUT, (&(struct timeval){0, 20000}), 16), 0);
    for (;;) {
        exs_event_t event;
        IS(exs_send(ends[0], octets, sizeof octets, 0, queue, HANDLE(3), NONE), 0);
        IS(exs_qdequeue(queue, &event, 1, LONG_TIME), 1);
        if (event.exs_evt_errno == 0)
            continue;
        IS(event.exs_evt_errno, ETIMEDOUT);
        IS(event.exs_evt_type, EXS_EVT_SENDTIMEOUT);
        IS(event.exs_evt_union.exs_evt_xfer.exs_xfer_length < sizeof octets, 1);
        break;
    }
    IS(exs_qdelete(queue), 0);
    close(ends[0]);
    close(ends[1]);
}

static int child_of(int parents, exs_qhandle_t queue, exs_mhandle_t region) {
    char octet;
    exs_event_t event;
    FAILS(exs_recv(parents, &octet, 1, 0, queue, NULL, NONE), ECONNABORTED);
    FAILS(exs_qdequeue(queue, &event, -1, NULL), ECONNABORTED);
    FAILS(exs_qdelete(queue), ECONNABORTED);
    FAILS(exs_mderegister(region, 0), ECONNABORTED);
    FAILS(exs_cancel(parents, NULL, EXS_CANCEL_ALL), ENOENT);
    int pair[2];
    connection(pair);
    exs_qhandle_t own = exs_qcreate(4);
    IS(own != EXS_QHANDLE_INVALID && own != queue, 1);
    IS(exs_recv(pair[0], &octet, 1, 0, own, HANDLE(1), NONE), 0);
    IS(exs_send(pair[1], "y", 1, 0, own, HANDLE(2), NONE), 0);
    IS(exs_qdequeue(own, (exs_event_t[2]){}, -2, LONG_TIME), 2);
    IS(octet, 'y');
    IS(close(parents), 0);
    return 0;
}

void forking(void) {
    int ends[2], status;
    char octet = 0;
    connection(ends);
    exs_qhandle_t queue = exs_qcreate(4);
    exs_mhandle_t region = exs_mregister(&octet, 1, 0);
    IS(exs_recv(ends[0], &octet, 1, 0, queue, HANDLE(1), region), 0);
    pid_t child = fork();
    if (child == 0)
        _exit(child_of(ends[0], queue, region));
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
    child = vfork();
    if (child == 0) {
        close_range(3, ~0U, 0);
        _exit(0);
    }
    IS(waitpid(child, &status, 0), child);
    /* The children's operations had no effect here. */
    IS(exs_qstatus(queue, EXS_QATTR_PENDING, &status), 0);
    IS(status, 1);
    IS(write(ends[1], "z", 1), 1);
    next_is(queue, EXS_EVT_RECV, 0, 1, 1);
    IS(octet, 'z');
    IS(exs_mderegister(region, 0), 0);
    IS(exs_qdelete(queue), 0);
    close(ends[0]);
    close(ends[1]);
}

static void on_alarm(int signal) { (void)signal; }

void interrupted(void) {
    int ends[2];
    char octets[2];
    exs_event_t events[2];
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART}, before;
    struct itimerval soon = {{0, 30000}, {0, 30000}}, never = {{0, 0}, {0, 0}};
    connection(ends);
    exs_qhandle_t queue = exs_qcreate(4);
    IS(exs_recv(ends[0], octets, 1, 0, queue, HANDLE(1), NONE), 0);
    IS(exs_recv(ends[0], octets + 1, 1, 0, queue, HANDLE(2), NONE), 0);
    IS(write(ends[1], "a", 1), 1);
    IS(sigaction(SIGALRM, &action, &before), 0);
    IS(setitimer(ITIMER_REAL, &soon, NULL), 0);
    FAILS(exs_qdequeue(queue, events, -2, NULL), EINTR);
    IS(setitimer(ITIMER_REAL, &never, NULL), 0);
    IS(sigaction(SIGALRM, &before, NULL), 0);
    alarm(120);
    /* Nothing was lost. */
    IS(write(ends[1], "b", 1), 1);
    IS(exs_qdequeue(queue, events, -2, LONG_TIME), 2);
    IS(events[0].exs_evt_ahandle, 1);
    IS(events[1].exs_evt_ahandle, 2);
    IS(exs_qdelete(queue), 0);
    close(ends[0]);
    close(ends[1]);
}

void descriptor(void) {
    int ends[2], value;
    char octets[2];
    connection(ends);
    exs_qhandle_t queue = exs_qcreate(4);
    IS(exs_recv(ends[0], octets, 1, 0, queue, HANDLE(1), NONE), 0);
    struct pollfd one = {exs_qfd(queue), POLLIN, 0};
    IS(one.fd >= 0, 1);
    IS(exs_qfd(queue), one.fd);
    FAILS(exs_qfd(queue + 1), EINVAL);
    IS(exs_qstatus(queue, EXS_QATTR_PROGRESS, &value), 0);
    IS(value, EXS_PROGRESS_THREADS);
    IS(poll(&one, 1, 0), 0);
    IS(write(ends[1], "ab", 2), 2);
    IS(poll(&one, 1, 30000), 1); /* no call is made meanwhile */
    IS(exs_recv(ends[0], octets + 1, 1, 0, queue, HANDLE(2), NONE), 0);
    next_is(queue, EXS_EVT_RECV, 0, 1, 1);
    next_is(queue, EXS_EVT_RECV, 0, 1, 2);
    IS(poll(&one, 1, 0), 0);
    IS(exs_qdelete(queue), 0);
    close(ends[0]);
    close(ends[1]);
}
