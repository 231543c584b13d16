/* The Extended Sockets API (ES-API): calls that begin an operation on a socket and return, and events that say how it ended.
 *
 *     exs_init(EXS_VERSION);
 *     exs_qhandle_t queue = exs_qcreate(128);
 *     exs_send(fd, buffer, length, 0, queue, my_handle, EXS_MHANDLE_UNREGISTERED);
 *     exs_event_t events[16];
 *     int count = exs_qdequeue(queue, events, 16, NULL);
 *
 * Sockets are ordinary descriptors, in DDPMODE (rddp/ddp.h) or not. Whether they block is of no account here.
 *
 * - Each accepted call yields exactly one event. A call that failed (-1 and errno) yields none.
 * - Events of one socket and direction come in the order of posting. Sends, sendfile and connect are one direction, receives and
 *   accept the other.
 * - From the call to its event the memory belongs to the library: do not change what is sent, do not touch what is received. The
 *   structures that are passed may be used again at once, but for those of exs_accept and exs_poll, which hold the results.
 * - An event queue does not overflow: a call for which there is no place fails with EAGAIN.
 * - close (also dup2, close_range) ends what is under way for the descriptor with ECONNABORTED, before the number is free.
 * - A send ends when all of it is TCP's business; no SIGPIPE is sent. A send or receive that fails or is cancelled says in its event
 *   how many octets were moved before.
 *
 * In a child of fork the parent's queues and registrations are unknown: calls with them fail with ECONNABORTED. The child may make
 * its own. Nothing here may be called in a signal handler, and sockets with operations under way may not be closed in one.
 */
#ifndef RDDP_EXS_H
#define RDDP_EXS_H

#include <stddef.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EXS_VERSION1 1
#define EXS_VERSION EXS_VERSION1

typedef void *exs_ahandle_t; /* the program's own: comes back with the event */
typedef int exs_qhandle_t;
typedef int exs_mhandle_t;
typedef int exs_signal_t; /* EXS_SIG_* */

#define EXS_QHANDLE_INVALID ((exs_qhandle_t)-1)
#define EXS_MHANDLE_INVALID ((exs_mhandle_t)-1)
#define EXS_MHANDLE_UNREGISTERED ((exs_mhandle_t)0) /* memory that is not registered may be used as well */

/* The most events that exs_qdequeue gives at a time, and the largest depth of a queue. */
#define EXS_EVTVEC_MAX 65536

/* Before anything else; again in a process that already has does nothing. 0, or -1:
 *   EINVAL  another version
 */
int exs_init(int version);

/* ---- Event queues ---- */

/* A queue for up to depth operations that are under way or whose events were not taken. EXS_QHANDLE_INVALID:
 *   EINVAL  depth is not from 1 to EXS_EVTVEC_MAX; no exs_init
 *   ENOMEM  too many were made
 */
exs_qhandle_t exs_qcreate(int depth);

/* Events that were not taken are lost. 0, or -1:
 *   EBUSY         operations are under way
 *   EINVAL        no queue. Who waits in it gets the same
 *   ECONNABORTED  the queue of the process that forked this one; so for all calls below
 */
int exs_qdelete(exs_qhandle_t queue);

/* Attributes of queues: int. */
#define EXS_QATTR_DEPTH 1    /* as in exs_qcreate. Set: EBUSY when there is more in it */
#define EXS_QATTR_SIGNAL 2   /* EXS_SIG_DISABLE; EXS_SIG_ENABLE is refused with ENOTSUP */
#define EXS_QATTR_EVENTS 3   /* how many events wait to be taken; only to be asked for */
#define EXS_QATTR_WAIT 4     /* EXS_WAIT_* (EXS_WAIT_NOTIFY): how exs_qdequeue waits */
#define EXS_QATTR_PROGRESS 5 /* EXS_PROGRESS_*, not of the ES-API. At first as RDDP_PROGRESS says, "caller" or "threads" */
#define EXS_QATTR_PENDING 6  /* how many operations are under way, not of the ES-API; only to be asked for */

#define EXS_SIG_DISABLE 0
#define EXS_SIG_ENABLE 1

#define EXS_WAIT_ADAPTIVE 1  /* looks for 50 microseconds, then sleeps */
#define EXS_WAIT_NOTIFY 2    /* sleeps */
#define EXS_WAIT_BUSY_POLL 3 /* looks all the time; signals do not end it */

#define EXS_PROGRESS_CALLER 0  /* when an operation is posted and in exs_qdequeue, by whoever calls */
#define EXS_PROGRESS_THREADS 1 /* by two threads of the process, one for each direction */

/* 0, or -1:
 *   EINVAL   no queue, no such attribute or value, or one that is only to be asked for
 *   EBUSY, ENOTSUP  see there
 */
int exs_qmodify(exs_qhandle_t queue, int attribute, int value);
int exs_qstatus(exs_qhandle_t queue, int attribute, int *value);

/* A descriptor that is readable while there are events; for poll, select and epoll, not to be read or closed. It goes with the
 * queue. From here on the queue's operations make progress by threads. -1: EINVAL no queue; EMFILE. */
int exs_qfd(exs_qhandle_t queue);

/* ---- Memory ---- */

#define EXS_MRF_SHARED 1

/* Names len octets at addr. EXS_MHANDLE_INVALID:
 *   EINVAL  len is 0, unknown flags, no exs_init
 *   EFAULT  no memory is mapped there
 */
exs_mhandle_t exs_mregister(void *addr, size_t len, int flags);

/* 0, or -1:
 *   EBUSY   an operation that is under way uses it
 *   EINVAL  no such registration; flags is not 0
 */
int exs_mderegister(exs_mhandle_t memory, int flags);

typedef struct {
    void *iov_base;
    size_t iov_len;
    exs_mhandle_t iov_mhandle; /* all of the piece lies in it, or EXS_MHANDLE_UNREGISTERED */
} exs_iovec_t;

/* ---- Operations ----
 *
 * 0 when it has been accepted. -1:
 *   EAGAIN        there is no place in the queue, or the threads are given too much at a time
 *   EBADF, ENOTSOCK  no socket
 *   EINVAL        no queue, no such registration or not all of the memory in it; flags
 *   EFAULT        a null pointer
 *   EMSGSIZE      more than 1024 pieces, or 65536 descriptors
 *   ECONNABORTED  a thread that makes progress has died; see also exs_qdelete
 * All other errors come with the event.
 */

/* flags: MSG_MORE, MSG_EOR, MSG_NOSIGNAL. */
int exs_send(int fd, const void *buf, size_t len, int flags, exs_qhandle_t queue, exs_ahandle_t handle,
             exs_mhandle_t memory);

/* flags: MSG_WAITALL or MSG_PEEK. Ends with the first octets that come, with MSG_WAITALL when all have; 0 octets: the peer has closed.
 * EINVAL: len is 0. */
int exs_recv(int fd, void *buf, size_t len, int flags, exs_qhandle_t queue, exs_ahandle_t handle, exs_mhandle_t memory);

typedef struct {
    void *msg_name;        /* NULL; else EOPNOTSUPP */
    socklen_t msg_namelen; /* 0 */
    int msg_iovlen;
    exs_iovec_t *msg_iov;
    void *msg_control; /* NULL; else EOPNOTSUPP */
    size_t msg_controllen;
    int msg_flags; /* not looked at: see the event */
} exs_msghdr_t;

int exs_sendmsg(int fd, const exs_msghdr_t *msg, int flags, exs_qhandle_t queue, exs_ahandle_t handle);
int exs_recvmsg(int fd, exs_msghdr_t *msg, int flags, exs_qhandle_t queue, exs_ahandle_t handle);

typedef struct {
    int fdv_fd; /* a regular file, open until the event; else EINVAL */
    off_t fdv_off;
    size_t fdv_len; /* 0: to the end of the file. Where the file ends the part ends */
} exs_fdvec_t;

#define EXS_IOVEC 1
#define EXS_FDVEC 2

/* A part of what exs_sendfile sends. The name is not of the ES-API. */
typedef struct {
    int xfp_type; /* EXS_IOVEC or EXS_FDVEC */
    union {
        exs_fdvec_t xfp_fdvec;
        exs_iovec_t xfp_iovec;
    } xfp_of;
} exs_xferpart_t;

typedef struct {
    const exs_xferpart_t *xf_parts;
    int xf_count;
} exs_xferfile_t;

/* Sends parts of files and memory as one. flags as exs_send. */
int exs_sendfile(int fd, const exs_xferfile_t *file, int flags, exs_qhandle_t queue, exs_ahandle_t handle);

/* flags: 0. Receives that were posted meanwhile begin when it is connected. */
int exs_connect(int fd, const struct sockaddr *addr, socklen_t len, int flags, exs_qhandle_t queue,
                exs_ahandle_t handle);

typedef struct {
    int aa_fildes;        /* result: the accepted socket, which blocks */
    socklen_t aa_addrlen; /* room at aa_addr; result: the address's length */
    struct sockaddr *aa_addr; /* room for the peer's address, or NULL */
    exs_ahandle_t aa_ahandle; /* the program's own */
} exs_acceptaddr_t;

#define EXS_CAF_FILDES 1  /* give descriptors: always so */
#define EXS_CAF_AHANDLE 2 /* the event has the aa_ahandle of the first place, not the call's */

/* Accepts up to n connections; ends as soon as there is one, with those that there are. A listening socket that other threads or
 * processes accept on as well is best non-blocking. EINVAL: n is below 1. */
int exs_accept(int fd, exs_acceptaddr_t *list, int n, int flags, exs_qhandle_t queue, exs_ahandle_t handle);

#define EXS_POLLIN 0x001
#define EXS_POLLOUT 0x004

typedef struct {
    int fd;
    short events; /* EXS_POLL*, or any of poll */
    short revents;
} exs_pollfd_t;

/* Ends when any is ready. EINVAL: n is below 1. */
int exs_poll(exs_pollfd_t *list, int n, exs_qhandle_t queue, exs_ahandle_t handle);

#define EXS_CANCEL_ALL 1 /* whatever the handle; not of the ES-API */

/* Cancels the operations of fd with this handle. Each yields its event, with ECANCELED, when it is its turn: what was posted for
 * the same direction before comes first. 0, or -1:
 *   ENOENT  there is none under way
 *   EINVAL  flags
 */
int exs_cancel(int fd, exs_ahandle_t handle, int flags);

/* ---- Events ---- */

#define EXS_EVT_POLL 1
#define EXS_EVT_CONNECT 2
#define EXS_EVT_ACCEPT 3
#define EXS_EVT_SEND 4
#define EXS_EVT_RECV 5
#define EXS_EVT_SENDMSG 6
#define EXS_EVT_RECVMSG 7
#define EXS_EVT_SENDFILE 8
#define EXS_EVT_SENDTIMEOUT 9  /* instead of the operation's own: see SO_ASYNC_SEND_TIMEOUT */
#define EXS_EVT_RECVTIMEOUT 10 /* see SO_ASYNC_RECV_TIMEOUT */
#define EXS_EVT_SHUTDOWN 11    /* does not come: use shutdown() */
#define EXS_EVT_CLOSE 12       /* does not come: use close() */
#define EXS_SHUT_WR SHUT_WR

typedef struct { /* SEND, RECV, SENDTIMEOUT, RECVTIMEOUT */
    void *exs_xfer_buffer;
    size_t exs_xfer_length; /* octets that were moved */
    int exs_xfer_flags;     /* of a receive: as msg_flags of recvmsg */
} exs_evt_xfer_t;

typedef struct { /* SENDMSG, RECVMSG */
    void *exs_xfermsg_first; /* the first piece */
    size_t exs_xfermsg_length;
    int exs_xfermsg_flags;
} exs_evt_xfermsg_t;

typedef struct { /* SENDFILE */
    void *exs_xferfile_reserved;
    size_t exs_xferfile_length;
    int exs_xferfile_flags;
} exs_evt_xferfile_t;

typedef struct { /* ACCEPT */
    exs_acceptaddr_t *exs_accept_list;
    size_t exs_accept_count; /* places that were filled */
    int exs_accept_flags;
} exs_evt_accept_t;

typedef struct { /* POLL */
    exs_pollfd_t *exs_poll_list;
    size_t exs_poll_count; /* descriptors that are ready */
    int exs_poll_flags;
} exs_evt_poll_t;

typedef struct {
    int exs_evt_type;   /* EXS_EVT_* */
    int exs_evt_errno;  /* 0, or why it failed */
    int exs_evt_socket; /* the descriptor; of POLL the first */
    int exs_evt_reserved;
    exs_ahandle_t exs_evt_ahandle;
    union {
        exs_evt_xfer_t exs_evt_xfer;
        exs_evt_xfermsg_t exs_evt_xfermsg;
        exs_evt_xferfile_t exs_evt_xferfile;
        exs_evt_accept_t exs_evt_accept;
        exs_evt_poll_t exs_evt_poll;
    } exs_evt_union;
} exs_event_t;

/* Takes events; makes progress while it waits. Their number, which is smaller than asked for when the time is over, or -1.
 *
 * count n    waits for one, and takes up to n
 * count -n   waits for n, and takes n
 * count 0    makes progress without waiting, and takes none
 * timeout    NULL: for ever
 *
 *   EINTR   a signal came; no events were taken
 *   EINVAL  no queue; a count beyond EXS_EVTVEC_MAX; a timeout that is none
 *   EFAULT  no room for events
 */
int exs_qdequeue(exs_qhandle_t queue, exs_event_t *events, int count, struct timeval *timeout);

/* ---- Socket options: level SOL_SOCKET, after exs_init; before, ENOPROTOOPT ---- */

/* int: 1. Receives end in the order of posting. */
#define SO_ASYNC_RECV_ORDERED 0x4501

/* struct timeval, or exs_timeout_t (none): how long an operation may take from when it is the first of its direction. It then ends
 * with EXS_EVT_SENDTIMEOUT or EXS_EVT_RECVTIMEOUT and ETIMEDOUT. 0 is for ever. EDOM: no time. */
#define SO_ASYNC_SEND_TIMEOUT 0x4502
#define SO_ASYNC_RECV_TIMEOUT 0x4503

typedef struct {
    struct timeval to_time;
    long to_flags; /* 0, or EXS_TIMEOUT_ONCE: for one operation */
} exs_timeout_t;

#define EXS_TIMEOUT_ONCE 1

#ifdef __cplusplus
}
#endif

#endif
