/* Arguments, good and bad; queues; registered memory. */
#include "exs_test.h"

void arguments(void) {
    int on = 1, ends[2];
    char octets[8] = "octets";
    struct timeval time = {1, 0};
    FAILS(exs_qcreate(16), EINVAL); /* before exs_init */
    FAILS(exs_mregister(octets, sizeof octets, 0), EINVAL);
    connection(ends);
    FAILS(setsockopt(ends[0], SOL_SOCKET, SO_ASYNC_SEND_TIMEOUT, &time, sizeof time), ENOPROTOOPT);
    FAILS(exs_init(EXS_VERSION + 1), EINVAL);
    IS(exs_init(EXS_VERSION), 0);
    IS(exs_init(EXS_VERSION1), 0);
    exs_qhandle_t queue = exs_qcreate(16);
    IS(queue != EXS_QHANDLE_INVALID, 1);

    FAILS(exs_send(ends[0], octets, 1, 0, queue + 1, NULL, NONE), EINVAL);
    FAILS(exs_send(ends[0], octets, 1, 0, EXS_QHANDLE_INVALID, NULL, NONE), EINVAL);
    FAILS(exs_send(ends[0], octets, 1, 0, queue, NULL, EXS_MHANDLE_INVALID), EINVAL);
    FAILS(exs_send(ends[0], NULL, 1, 0, queue, NULL, NONE), EFAULT);
    FAILS(exs_send(ends[0], octets, 1, MSG_OOB, queue, NULL, NONE), EOPNOTSUPP);
    FAILS(exs_send(ends[0], octets, 1, MSG_WAITALL, queue, NULL, NONE), EINVAL);
    FAILS(exs_send(ends[0], octets, SIZE_MAX, 0, queue, NULL, NONE), EINVAL);
    FAILS(exs_send(999, octets, 1, 0, queue, NULL, NONE), EBADF);
    FAILS(exs_send(-1, octets, 1, 0, queue, NULL, NONE), EBADF);
    FAILS(exs_send(0, octets, 1, 0, queue, NULL, NONE), ENOTSOCK);
    FAILS(exs_recv(0, octets, 1, 0, queue, NULL, NONE), ENOTSOCK);
    FAILS(exs_recv(ends[0], octets, 0, 0, queue, NULL, NONE), EINVAL);
    FAILS(exs_recv(ends[0], octets, 1, MSG_WAITALL | MSG_PEEK, queue, NULL, NONE), EINVAL);
    FAILS(exs_recv(ends[0], octets, 1, MSG_OOB, queue, NULL, NONE), EOPNOTSUPP);
    FAILS(exs_recv(ends[0], NULL, 1, 0, queue, NULL, NONE), EFAULT);

    exs_iovec_t piece = {octets, 1, NONE};
    exs_msghdr_t msg = {.msg_iov = &piece, .msg_iovlen = 1};
    FAILS(exs_sendmsg(ends[0], NULL, 0, queue, NULL), EFAULT);
    FAILS(exs_recvmsg(ends[0], NULL, 0, queue, NULL), EFAULT);
    msg.msg_iovlen = 1025;
    FAILS(exs_sendmsg(ends[0], &msg, 0, queue, NULL), EMSGSIZE);
    msg.msg_iovlen = 0;
    FAILS(exs_sendmsg(ends[0], &msg, 0, queue, NULL), EINVAL);
    msg.msg_iovlen = 1;
    msg.msg_control = octets;
    FAILS(exs_sendmsg(ends[0], &msg, 0, queue, NULL), EOPNOTSUPP);
    FAILS(exs_sendfile(ends[0], NULL, 0, queue, NULL), EFAULT);
    FAILS(exs_connect(ends[0], NULL, 16, 0, queue, NULL), EFAULT);
    FAILS(exs_connect(ends[0], (void *)octets, 1000, 0, queue, NULL), EINVAL);
    FAILS(exs_connect(ends[0], (void *)octets, 8, 1, queue, NULL), EINVAL);
    FAILS(exs_accept(ends[0], NULL, 1, 0, queue, NULL), EFAULT);
    FAILS(exs_accept(ends[0], (void *)octets, 0, 0, queue, NULL), EINVAL);
    FAILS(exs_accept(ends[0], (void *)octets, 1, 4, queue, NULL), EINVAL);
    FAILS(exs_poll(NULL, 1, queue, NULL), EFAULT);
    FAILS(exs_poll((void *)octets, -1, queue, NULL), EINVAL);
    FAILS(exs_cancel(ends[0], NULL, 0), ENOENT);
    FAILS(exs_cancel(999, NULL, EXS_CANCEL_ALL), ENOENT);
    FAILS(exs_cancel(ends[0], NULL, 2), EINVAL);

    /* None of these has left anything. */
    int value = -1;
    IS(exs_qstatus(queue, EXS_QATTR_PENDING, &value), 0);
    IS(value, 0);
    IS(no_events(queue), 1);
    IS(setsockopt(ends[0], SOL_SOCKET, SO_ASYNC_RECV_ORDERED, &on, sizeof on), 0);
    IS(exs_qdelete(queue), 0);
    close(ends[0]);
    close(ends[1]);
}

void queues(void) {
    int ends[2], value;
    char octets[8];
    exs_event_t events[4];
    connection(ends);
    FAILS(exs_qcreate(0), EINVAL);
    FAILS(exs_qcreate(-1), EINVAL);
    FAILS(exs_qcreate(EXS_EVTVEC_MAX + 1), EINVAL);
    exs_qhandle_t queue = exs_qcreate(2);
    FAILS(exs_qdequeue(queue + 1, events, 1, NO_TIME), EINVAL);
    FAILS(exs_qdequeue(queue, NULL, 1, NO_TIME), EFAULT);
    FAILS(exs_qdequeue(queue, events, EXS_EVTVEC_MAX + 1, NO_TIME), EINVAL);
    FAILS(exs_qdequeue(queue, events, 1, (&(struct timeval){0, 1000000})), EINVAL);
    FAILS(exs_qdequeue(queue, events, 1, (&(struct timeval){-1, 0})), EINVAL);
    IS(exs_qdequeue(queue, NULL, 0, NULL), 0);
    IS(exs_qdequeue(queue, events, 1, (&(struct timeval){0, 10000})), 0);
    IS(exs_qdequeue(queue, events, -2, (&(struct timeval){0, 10000})), 0);

    /* EX4: a place for each. */
    IS(exs_recv(ends[0], octets, 1, 0, queue, HANDLE(1), NONE), 0);
    IS(exs_recv(ends[0], octets + 1, 1, 0, queue, HANDLE(2), NONE), 0);
    FAILS(exs_recv(ends[0], octets + 2, 1, 0, queue, HANDLE(3), NONE), EAGAIN);
    FAILS(exs_poll(&(exs_pollfd_t){ends[0], EXS_POLLOUT, 0}, 1, queue, HANDLE(3)), EAGAIN);
    IS(exs_qstatus(queue, EXS_QATTR_PENDING, &value), 0);
    IS(value, 2);
    FAILS(exs_qmodify(queue, EXS_QATTR_DEPTH, 1), EBUSY);
    FAILS(exs_qdelete(queue), EBUSY);
    IS(write(ends[1], "ab", 2), 2);
    next_is(queue, EXS_EVT_RECV, 0, 1, 1);
    IS(exs_recv(ends[0], octets + 2, 1, 0, queue, HANDLE(3), NONE), 0);
    FAILS(exs_recv(ends[0], octets + 3, 1, 0, queue, HANDLE(4), NONE), EAGAIN);
    IS(exs_qmodify(queue, EXS_QATTR_DEPTH, 3), 0);
    IS(exs_qstatus(queue, EXS_QATTR_DEPTH, &value), 0);
    IS(value, 3);
    IS(exs_recv(ends[0], octets + 3, 1, 0, queue, HANDLE(4), NONE), 0);
    IS(write(ends[1], "cd", 2), 2);
    IS(exs_qdequeue(queue, events, -3, LONG_TIME), 3);
    IS(events[2].exs_evt_ahandle, 4);
    IS(memcmp(octets, "abcd", 4), 0);

    FAILS(exs_qstatus(queue, EXS_QATTR_DEPTH, NULL), EFAULT);
    FAILS(exs_qstatus(queue, 99, &value), EINVAL);
    FAILS(exs_qmodify(queue, EXS_QATTR_EVENTS, 1), EINVAL);
    FAILS(exs_qmodify(queue, EXS_QATTR_WAIT, 0), EINVAL);
    FAILS(exs_qmodify(queue, EXS_QATTR_PROGRESS, 2), EINVAL);
    FAILS(exs_qmodify(queue, EXS_QATTR_SIGNAL, EXS_SIG_ENABLE), ENOTSUP);
    IS(exs_qmodify(queue, EXS_QATTR_SIGNAL, EXS_SIG_DISABLE), 0);
    for (int wait = EXS_WAIT_ADAPTIVE; wait <= EXS_WAIT_BUSY_POLL; wait++) {
        IS(exs_qmodify(queue, EXS_QATTR_WAIT, wait), 0);
        IS(exs_qstatus(queue, EXS_QATTR_WAIT, &value), 0);
        IS(value, wait);
        IS(exs_recv(ends[0], octets, 1, 0, queue, HANDLE(wait), NONE), 0);
        IS(no_events(queue), 1);
        IS(write(ends[1], "w", 1), 1);
        next_is(queue, EXS_EVT_RECV, 0, 1, wait);
    }
    /* Events that are not taken are lost with the queue. */
    IS(exs_send(ends[0], "x", 1, 0, queue, NULL, NONE), 0);
    do
        IS(exs_qstatus(queue, EXS_QATTR_PENDING, &value), 0);
    while (value != 0);
    IS(exs_qstatus(queue, EXS_QATTR_EVENTS, &value), 0);
    IS(value, 1);
    IS(exs_qdelete(queue), 0);
    FAILS(exs_qdelete(queue), EINVAL);
    FAILS(exs_recv(ends[0], octets, 1, 0, queue, NULL, NONE), EINVAL);
    close(ends[0]);
    close(ends[1]);
}

void memory(void) {
    static char octets[10000];
    int ends[2];
    connection(ends);
    exs_qhandle_t queue = exs_qcreate(4);
    FAILS(exs_mregister(octets, 0, 0), EINVAL);
    FAILS(exs_mregister(octets, 1, 4), EINVAL);
    FAILS(exs_mregister(octets, 1, EXS_MRF_KERNEL | 4), EINVAL);
    FAILS(exs_mregister(octets, 1, EXS_MRF_KERNEL), ENOTSUP);
    FAILS(exs_mregister(octets, SIZE_MAX, 0), EINVAL);
    FAILS(exs_mregister(NULL, 1, 0), EFAULT);
    exs_mhandle_t region = exs_mregister(octets + 100, 1000, EXS_MRF_SHARED);
    IS(region != EXS_MHANDLE_INVALID && region != EXS_MHANDLE_UNREGISTERED, 1);
    /* EX6 */
    FAILS(exs_send(ends[0], octets + 99, 2, 0, queue, NULL, region), EINVAL);
    FAILS(exs_send(ends[0], octets + 100, 1001, 0, queue, NULL, region), EINVAL);
    FAILS(exs_recv(ends[0], octets + 1100, 1, 0, queue, NULL, region), EINVAL);
    FAILS(exs_send(ends[0], octets + 100, 1, 0, queue, NULL, region + 1), EINVAL);
    exs_iovec_t pieces[2] = {{octets + 100, 1000, region}, {octets, 101, region}};
    exs_msghdr_t msg = {.msg_iov = pieces, .msg_iovlen = 2};
    FAILS(exs_sendmsg(ends[0], &msg, 0, queue, NULL), EINVAL);
    pieces[1].iov_mhandle = NONE;
    IS(exs_sendmsg(ends[0], &msg, 0, queue, HANDLE(1)), 0);
    next_is(queue, EXS_EVT_SENDMSG, 0, 1101, 1);
    /* EX7 */
    IS(exs_recv(ends[0], octets + 100, 1000, 0, queue, HANDLE(2), region), 0);
    FAILS(exs_mderegister(region, 0), EBUSY);
    IS(write(ends[1], "x", 1), 1);
    next_is(queue, EXS_EVT_RECV, 0, 1, 2);
    FAILS(exs_mderegister(region, 1), EINVAL);
    IS(exs_mderegister(region, 0), 0);
    FAILS(exs_mderegister(region, 0), EINVAL);
    FAILS(exs_send(ends[0], octets + 100, 1, 0, queue, NULL, region), EINVAL);
    IS(exs_qdelete(queue), 0);
    close(ends[0]);
    close(ends[1]);
}
