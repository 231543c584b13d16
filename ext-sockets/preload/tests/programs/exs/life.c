/* Tests of how operations and sockets begin and end. */
#include "exs_test.h"

void connecting(void) {
    struct sockaddr_in addr, peers[3];
    char octets[4] = {0};
    int listener = listening(&addr);
    exs_qhandle_t queue = exs_qcreate(16), other = exs_qcreate(16);
    exs_acceptaddr_t places[3];
    for (int i = 0; i < 3; i++)
        places[i] = (exs_acceptaddr_t){-1, sizeof peers[i], (void *)&peers[i], HANDLE(50 + i)};
    IS(exs_accept(listener, places, 3, EXS_CAF_FILDES, other, HANDLE(1)), 0);
    int client = tcp();
    IS(exs_connect(client, (void *)&addr, sizeof addr, 0, queue, HANDLE(2)), 0);
    IS(exs_recv(client, octets, 4, 0, queue, HANDLE(3), NONE), 0); /* waits for the connection */
    exs_event_t event = next_is(other, EXS_EVT_ACCEPT, 0, 1, 1);
    next_is(queue, EXS_EVT_CONNECT, 0, 0, 2);
    IS(event.exs_evt_union.exs_evt_accept.exs_accept_list, places);
    int server = places[0].aa_fildes;
    IS(places[1].aa_fildes, -1);
    IS(fcntl(server, F_GETFL) & O_NONBLOCK, 0);
    IS(fcntl(client, F_GETFL) & O_NONBLOCK, 0);
    IS(fcntl(listener, F_GETFL) & O_NONBLOCK, 0);
    struct sockaddr_in own;
    socklen_t len = sizeof own;
    IS(getsockname(client, (void *)&own, &len), 0);
    IS(places[0].aa_addrlen, len);
    IS(peers[0].sin_port, own.sin_port);
    IS(exs_send(server, "hey", 3, 0, other, HANDLE(4), NONE), 0);
    next_is(other, EXS_EVT_SEND, 0, 3, 4);
    next_is(queue, EXS_EVT_RECV, 0, 3, 3);
    IS(memcmp(octets, "hey", 3), 0);
    /* Once more, for a handle of the place and without an address. */
    places[0] = (exs_acceptaddr_t){-1, 0, NULL, HANDLE(60)};
    IS(exs_accept(listener, places, 1, EXS_CAF_AHANDLE, other, HANDLE(5)), 0);
    int second = tcp();
    IS(connect(second, (void *)&addr, sizeof addr), 0);
    next_is(other, EXS_EVT_ACCEPT, 0, 1, 60);
    close(places[0].aa_fildes);
    close(second);
    /* Calls that are refused. */
    IS(exs_connect(server, (void *)&addr, sizeof addr, 0, queue, HANDLE(6)), 0);
    next_is(queue, EXS_EVT_CONNECT, EISCONN, 0, 6);
    IS(exs_accept(client, places, 1, 0, queue, HANDLE(7)), 0);
    IS(write(server, "x", 1), 1); /* so that poll finds it readable */
    next_is(queue, EXS_EVT_ACCEPT, EINVAL, 0, 7);
    close(listener);
    int refused = socket(AF_INET, SOCK_STREAM, 0);
    IS(exs_connect(refused, (void *)&addr, sizeof addr, 0, queue, HANDLE(8)), 0);
    IS(exs_recv(refused, octets, 4, 0, queue, HANDLE(9), NONE), 0);
    next_is(queue, EXS_EVT_CONNECT, ECONNREFUSED, 0, 8);
    next_is(queue, EXS_EVT_RECV, 0, 0, 9); /* as recv says of it */
    close(refused);
    close(client);
    close(server);
    IS(exs_qdelete(queue), 0);
    IS(exs_qdelete(other), 0);
}

void polling(void) {
    int one[2], two[2];
    connection(one);
    connection(two);
    exs_qhandle_t queue = exs_qcreate(4);
    exs_pollfd_t fds[2] = {{one[0], EXS_POLLIN, 0}, {two[0], EXS_POLLIN, 0}};
    IS(exs_poll(fds, 2, queue, HANDLE(1)), 0);
    IS(no_events(queue), 1);
    IS(write(two[1], "x", 1), 1);
    exs_event_t event = next_is(queue, EXS_EVT_POLL, 0, 1, 1);
    IS(event.exs_evt_union.exs_evt_poll.exs_poll_list, fds);
    IS(fds[0].revents, 0);
    IS(fds[1].revents, EXS_POLLIN);
    fds[0].events = EXS_POLLOUT;
    IS(exs_poll(fds, 2, queue, HANDLE(2)), 0);
    next_is(queue, EXS_EVT_POLL, 0, 2, 2);
    fds[0].events = EXS_POLLIN;
    IS(exs_poll(fds, 1, queue, HANDLE(3)), 0);
    IS(exs_poll(fds, 1, queue, HANDLE(4)), 0);
    IS(exs_cancel(one[0], HANDLE(4), 0), 0);
    next_is(queue, EXS_EVT_POLL, ECANCELED, 0, 4);
    close(one[0]);
    next_is(queue, EXS_EVT_POLL, ECONNABORTED, 0, 3);
    IS(no_events(queue), 1);
    IS(exs_qdelete(queue), 0);
    close(one[1]);
    close(two[0]);
    close(two[1]);
}

void cancelling(void) {
    int ends[2];
    char octets[8];
    connection(ends);
    exs_qhandle_t queue = exs_qcreate(8);
    for (int i = 1; i <= 4; i++)
        IS(exs_recv(ends[0], octets + i, 1, 0, queue, HANDLE(i), NONE), 0);
    IS(exs_cancel(ends[0], HANDLE(2), 0), 0);
    FAILS(exs_cancel(ends[0], HANDLE(2), 0), ENOENT);
    IS(no_events(queue), 1); /* EX2: the first comes first */
    IS(write(ends[1], "ab", 2), 2);
    next_is(queue, EXS_EVT_RECV, 0, 1, 1);
    next_is(queue, EXS_EVT_RECV, ECANCELED, 0, 2);
    next_is(queue, EXS_EVT_RECV, 0, 1, 3);
    IS(octets[3], 'b');
    IS(exs_cancel(ends[0], NULL, EXS_CANCEL_ALL), 0);
    next_is(queue, EXS_EVT_RECV, ECANCELED, 0, 4);
    FAILS(exs_cancel(ends[0], NULL, EXS_CANCEL_ALL), ENOENT);
    /* Octets that were moved before the cancel are counted. */
    IS(exs_recv(ends[0], octets, 8, MSG_WAITALL, queue, HANDLE(5), NONE), 0);
    IS(write(ends[1], "xyz", 3), 3);
    struct pollfd drained = {ends[0], POLLIN, 0};
    for (drained.revents = POLLIN; drained.revents != 0; poll(&drained, 1, 0))
        IS(no_events(queue), 1);
    IS(exs_cancel(ends[0], HANDLE(5), 0), 0);
    next_is(queue, EXS_EVT_RECV, ECANCELED, 3, 5);
    IS(exs_qdelete(queue), 0);
    close(ends[0]);
    close(ends[1]);
}

/* Sends until nothing more fits, and receives twice. Returns how many operations were posted. */
static int busy(int fd, exs_qhandle_t queue, char *octets, size_t count) {
    int posted = 0, pending = 0, before;
    IS(exs_recv(fd, octets, 1, 0, queue, HANDLE(1), NONE), 0);
    IS(exs_recv(fd, octets + 1, 1, 0, queue, HANDLE(2), NONE), 0);
    for (posted = 2; posted < 20; posted++)
        IS(exs_send(fd, octets, count, 0, queue, HANDLE(posted + 1), NONE), 0);
    do {
        before = pending;
        usleep(20000);
        IS(exs_qstatus(queue, EXS_QATTR_PENDING, &pending), 0);
    } while (pending != before);
    IS(pending > 2, 1);
    return posted;
}

/* EX8: all of them have ended when the call comes back. */
static void ended(exs_qhandle_t queue, int count) {
    exs_event_t events[64];
    int value, aborted = 0;
    IS(exs_qstatus(queue, EXS_QATTR_PENDING, &value), 0);
    IS(value, 0);
    IS(exs_qdequeue(queue, events, 64, NO_TIME), count);
    for (int i = 0; i < count; i++) {
        IS(events[i].exs_evt_errno == 0 || events[i].exs_evt_errno == ECONNABORTED, 1);
        aborted += events[i].exs_evt_errno != 0;
    }
    IS(aborted > 2, 1);
}

void closing(void) {
    static char octets[1000000];
    int ends[2];
    exs_qhandle_t queue = exs_qcreate(64);
    for (int how = 0; how < 4; how++) {
        connection(ends);
        int count = busy(ends[0], queue, octets, sizeof octets), fd = ends[0];
        if (how == 0)
            IS(close(fd), 0);
        if (how == 1) {
            FAILS(dup2(-1, fd), EBADF); /* closes nothing */
            int pending;
            IS(exs_qstatus(queue, EXS_QATTR_PENDING, &pending), 0);
            IS(pending > 2, 1);
            int null = open("/dev/null", O_RDWR);
            IS(dup2(null, fd), fd);
            close(null);
        }
        if (how == 2)
            IS(close_range(fd, fd, 0), 0);
        if (how == 3) {
            int null = open("/dev/null", O_RDWR);
            IS(dup3(null, fd, O_CLOEXEC), fd);
            close(null);
        }
        ended(queue, count);
        if (how % 2)
            close(fd);
        /* The number is another's, and nothing of the old one comes to it. */
        int pair[2];
        connection(pair);
        IS(exs_send(pair[0], "new", 3, 0, queue, HANDLE(1), NONE), 0);
        next_is(queue, EXS_EVT_SEND, 0, 3, 1);
        IS(recv(pair[1], octets, 3, MSG_WAITALL), 3);
        IS(memcmp(octets, "new", 3), 0);
        /* The peer sees the end at once: no process holds the socket. */
        while (recv(ends[1], octets, sizeof octets, 0) > 0)
            ;
        close(pair[0]);
        close(pair[1]);
        close(ends[1]);
    }
    /* A close that the library did not see: operations under way end, and the new socket is not
     * touched. */
    connection(ends);
    IS(exs_recv(ends[0], octets, 1, 0, queue, HANDLE(1), NONE), 0);
    FILE *hidden = fdopen(ends[0], "r+");
    fclose(hidden);
    int pair[2];
    connection(pair);
    IS(pair[0] == ends[0] || pair[1] == ends[0], 1);
    IS(exs_recv(ends[0], octets, 1, 0, queue, HANDLE(2), NONE), 0);
    next_is(queue, EXS_EVT_RECV, ECONNABORTED, 0, 1);
    IS(write(pair[0] == ends[0] ? pair[1] : pair[0], "x", 1), 1);
    next_is(queue, EXS_EVT_RECV, 0, 1, 2);
    close(pair[0]);
    close(pair[1]);
    close(ends[1]);
    IS(exs_qdelete(queue), 0);
}

/* A program that closes every number: the library's descriptors are not closed, and work on. */
void everything(void) {
    char octet;
    int ends[2];
    exs_qhandle_t queue = exs_qcreate(4);
    int fd = exs_qfd(queue);
    IS(fd >= 0, 1);
    FAILS(close(fd), EBADF);
    IS(close_range(3, ~0U, 0), 0);
    for (int i = 0; i < 2; i++) {
        connection(ends);
        IS(exs_recv(ends[0], &octet, 1, 0, queue, HANDLE(1), NONE), 0);
        IS(write(ends[1], "x", 1), 1);
        next_is(queue, EXS_EVT_RECV, 0, 1, 1);
        IS(exs_recv(ends[0], &octet, 1, 0, queue, HANDLE(2), NONE), 0);
        closefrom(3);
        next_is(queue, EXS_EVT_RECV, ECONNABORTED, 0, 2);
    }
    IS(exs_qdelete(queue), 0);
}

/* EX5, EX9: what the peer's end comes to. */
void ends(void) {
    static char octets[100000];
    int ends[2];
    connection(ends);
    exs_qhandle_t queue = exs_qcreate(16);
    IS(exs_recv(ends[0], octets, 100, MSG_WAITALL, queue, HANDLE(1), NONE), 0);
    IS(exs_recv(ends[0], octets, 100, 0, queue, HANDLE(2), NONE), 0);
    IS(exs_recv(ends[0], octets, 100, 0, queue, HANDLE(3), NONE), 0);
    IS(write(ends[1], "short", 5), 5);
    IS(shutdown(ends[1], SHUT_WR), 0);
    next_is(queue, EXS_EVT_RECV, 0, 5, 1);
    next_is(queue, EXS_EVT_RECV, 0, 0, 2);
    next_is(queue, EXS_EVT_RECV, 0, 0, 3);
    /* The other direction goes on; peeking takes nothing. */
    exs_iovec_t pieces[3] = {{"a", 1, NONE}, {NULL, 0, NONE}, {"bc", 2, NONE}};
    exs_msghdr_t msg = {.msg_iov = pieces, .msg_iovlen = 3};
    IS(exs_sendmsg(ends[0], &msg, MSG_NOSIGNAL, queue, HANDLE(4)), 0);
    next_is(queue, EXS_EVT_SENDMSG, 0, 3, 4);
    IS(exs_recv(ends[1], octets, 3, MSG_PEEK, queue, HANDLE(5), NONE), 0);
    next_is(queue, EXS_EVT_RECV, 0, 3, 5);
    exs_iovec_t into[2] = {{octets + 10, 1, NONE}, {octets, 5, NONE}};
    msg = (exs_msghdr_t){.msg_iov = into, .msg_iovlen = 2};
    IS(exs_recvmsg(ends[1], &msg, 0, queue, HANDLE(6)), 0);
    next_is(queue, EXS_EVT_RECVMSG, 0, 3, 6);
    IS(octets[10] == 'a' && octets[0] == 'b' && octets[1] == 'c', 1);
    /* A peer that is gone: events say so, and no signal does. */
    close(ends[1]);
    exs_event_t event;
    do {
        IS(exs_send(ends[0], octets, sizeof octets, 0, queue, HANDLE(7), NONE), 0);
        IS(exs_qdequeue(queue, &event, 1, LONG_TIME), 1);
    } while (event.exs_evt_errno == 0);
    IS(event.exs_evt_errno == EPIPE || event.exs_evt_errno == ECONNRESET, 1);
    IS(exs_qdelete(queue), 0);
    close(ends[0]);
}
