/* The Extended Sockets API (ES-API): calls that begin an operation on a socket and return, and
 * events that say how it ended.
 *
 *     exs_init(EXS_VERSION);
 *     exs_qhandle_t queue = exs_qcreate(128);
 *     exs_send(fd, buffer, length, 0, queue, my_handle, EXS_MHANDLE_UNREGISTERED);
 *     exs_event_t events[16];
 *     int count = exs_qdequeue(queue, events, 16, NULL);
 *
 * Sockets are ordinary descriptors, in DDPMODE (rddp/ddp.h) or not. Operations never block, even if
 * the socket does.
 *
 * - Each accepted call yields exactly one event. A call that failed (-1 and errno) yields none.
 * - Events of one socket and direction come in the order of posting. Sends, sendfile and connect
 *   are one direction, receives and accept the other.
 * - From the call to its event the memory belongs to the library: do not change what is sent, do
 *   not touch what is received. The structures that are passed may be used again at once, but for
 *   those of exs_accept and exs_poll, which hold the results.
 * - An event queue does not overflow: a call for which there is no place fails with EAGAIN.
 * - close (also dup2, close_range) ends what is under way for the descriptor with ECONNABORTED,
 *   before the number is free.
 * - A send ends when TCP has taken all of it; no SIGPIPE is sent. A send or receive that fails or
 *   is cancelled says in its event how many octets were moved before.
 *
 * In a child of fork the parent's queues and registrations are unknown: calls with them fail with
 * ECONNABORTED. The child may make its own. Nothing here may be called in a signal handler, and
 * sockets with operations under way may not be closed in one.
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

typedef void *exs_ahandle_t; /* the program's own value, returned in the event */
typedef int exs_qhandle_t;
typedef int exs_mhandle_t;
typedef int exs_signal_t; /* EXS_SIG_* */

#define EXS_QHANDLE_INVALID ((exs_qhandle_t)-1)
#define EXS_MHANDLE_INVALID ((exs_mhandle_t)-1)
#define EXS_MHANDLE_UNREGISTERED ((exs_mhandle_t)0) /* memory need not be registered */

/* The most events that exs_qdequeue gives at a time, and the largest depth of a queue. */
#define EXS_EVTVEC_MAX 65536

/* Begins the use of the API; called before any other function. A second call does nothing. Returns
 * 0, or -1:
 *   EINVAL  another version
 */
int exs_init(int version);

/* ---- Event queues ---- */

/* Makes a queue for up to depth operations that are under way or whose events were not taken.
 * Returns EXS_QHANDLE_INVALID on failure:
 *   EINVAL  depth is not from 1 to EXS_EVTVEC_MAX; no exs_init
 *   ENOMEM  too many were made
 */
exs_qhandle_t exs_qcreate(int depth);

/* Deletes a queue; events that were not taken are lost. Returns 0, or -1:
 *   EBUSY         operations are under way
 *   EINVAL        not a queue. Threads that wait on the queue get this too
 *   ECONNABORTED  the queue of the process that forked this one; so for all calls below
 */
int exs_qdelete(exs_qhandle_t queue);

/* Attributes of queues: int. */
#define EXS_QATTR_DEPTH 1    /* as in exs_qcreate. Set: EBUSY when the queue holds more */
#define EXS_QATTR_SIGNAL 2   /* EXS_SIG_DISABLE; EXS_SIG_ENABLE is refused with ENOTSUP */
#define EXS_QATTR_EVENTS 3   /* number of events that wait to be taken; read-only */
#define EXS_QATTR_WAIT 4     /* EXS_WAIT_* (EXS_WAIT_NOTIFY): how exs_qdequeue waits */
#define EXS_QATTR_PROGRESS 5 /* EXS_PROGRESS_*, an extension. Default: the environment's
                                RDDP_PROGRESS, "caller" or "threads" */
#define EXS_QATTR_PENDING 6  /* number of operations under way, an extension; read-only */

#define EXS_SIG_DISABLE 0
#define EXS_SIG_ENABLE 1

#define EXS_WAIT_ADAPTIVE 1  /* polls for 50 microseconds, then sleeps */
#define EXS_WAIT_NOTIFY 2    /* sleeps */
#define EXS_WAIT_BUSY_POLL 3 /* polls all the time; signals do not end it */

#define EXS_PROGRESS_CALLER 0  /* by the caller, when an operation is posted and in exs_qdequeue */
#define EXS_PROGRESS_THREADS 1 /* by two threads of the process, one for each direction */

/* Set and read an attribute of a queue. Return 0, or -1:
 *   EINVAL   not a queue, no such attribute or value, or a read-only one
 *   EBUSY, ENOTSUP  see the attributes
 */
int exs_qmodify(exs_qhandle_t queue, int attribute, int value);
int exs_qstatus(exs_qhandle_t queue, int attribute, int *value);

/* Returns a descriptor that is readable while there are events; for poll, select and epoll, not to
 * be read or closed. It is closed with the queue. From here on the queue's operations make progress
 * by threads. -1: EINVAL not a queue; EMFILE. */
int exs_qfd(exs_qhandle_t queue);

/* ---- Memory ---- */

#define EXS_MRF_SHARED 1
/* An extension: memory into which the kernel places what arrives. Refused with ENOTSUP, as
 * operations are on byte streams, which have no memory to place into. Memory of ddp_allocate with
 * DDP_KERNEL (raw.h) may be registered without this flag, and used here as any other. */
#define EXS_MRF_KERNEL 2

/* Registers len octets at addr. Returns EXS_MHANDLE_INVALID on failure:
 *   EINVAL  len is 0, unknown flags, no exs_init
 *   EFAULT  no memory is mapped there
 *   ENOTSUP EXS_MRF_KERNEL
 */
exs_mhandle_t exs_mregister(void *addr, size_t len, int flags);

/* Ends a registration. Returns 0, or -1:
 *   EBUSY   an operation under way uses it
 *   EINVAL  no such registration; flags is not 0
 */
int exs_mderegister(exs_mhandle_t memory, int flags);

typedef struct {
    void *iov_base;
    size_t iov_len;
    exs_mhandle_t iov_mhandle; /* registration that the piece lies in, or ..._UNREGISTERED */
} exs_iovec_t;

/* ---- Operations ----
 *
 * Each call returns 0 when the operation has been accepted. -1:
 *   EAGAIN        there is no place in the queue, or in the socket by which the threads get work
 *   EBADF, ENOTSOCK  not a socket
 *   EINVAL        not a queue, no such registration or not all of the memory in it; invalid flags
 *   EFAULT        a null pointer
 *   EMSGSIZE      more than 1024 pieces, or 65536 descriptors
 *   ECONNABORTED  a thread that makes progress has died; see also exs_qdelete
 * All other errors come with the event.
 */

/* Sends octets. flags: MSG_MORE, MSG_EOR, MSG_NOSIGNAL. */
int exs_send(int fd, const void *buf, size_t len, int flags, exs_qhandle_t queue, exs_ahandle_t handle,
             exs_mhandle_t memory);

/* Receives octets. flags: MSG_WAITALL or MSG_PEEK. Ends with the first octets that come, with
 * MSG_WAITALL when all have; 0 octets: the peer has closed. EINVAL: len is 0. */
int exs_recv(int fd, void *buf, size_t len, int flags, exs_qhandle_t queue, exs_ahandle_t handle, exs_mhandle_t memory);

typedef struct {
    void *msg_name;        /* NULL; else EOPNOTSUPP */
    socklen_t msg_namelen; /* 0 */
    int msg_iovlen;
    exs_iovec_t *msg_iov;
    void *msg_control; /* NULL; else EOPNOTSUPP */
    size_t msg_controllen;
    int msg_flags; /* not used: see the event */
} exs_msghdr_t;

int exs_sendmsg(int fd, const exs_msghdr_t *msg, int flags, exs_qhandle_t queue, exs_ahandle_t handle);
int exs_recvmsg(int fd, exs_msghdr_t *msg, int flags, exs_qhandle_t queue, exs_ahandle_t handle);

typedef struct {
    int fdv_fd; /* a regular file, open until the event; else EINVAL */
    off_t fdv_off;
    size_t fdv_len; /* 0: to the end of the file; a part ends there at the latest */
} exs_fdvec_t;

#define EXS_IOVEC 1
#define EXS_FDVEC 2

/* A part of what exs_sendfile sends. The type's name is an extension. */
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

/* Sends parts of files and memory as one. flags as for exs_send. */
int exs_sendfile(int fd, const exs_xferfile_t *file, int flags, exs_qhandle_t queue, exs_ahandle_t handle);

/* Connects. flags: 0. Receives that were posted meanwhile begin when the socket is connected. */
int exs_connect(int fd, const struct sockaddr *addr, socklen_t len, int flags, exs_qhandle_t queue,
                exs_ahandle_t handle);

typedef struct {
    int aa_fildes;        /* result: the accepted socket, which blocks */
    socklen_t aa_addrlen; /* room at aa_addr; result: the address's length */
    struct sockaddr *aa_addr; /* room for the peer's address, or NULL */
    exs_ahandle_t aa_ahandle; /* the program's own value */
} exs_acceptaddr_t;

#define EXS_CAF_FILDES 1  /* return descriptors: always on */
#define EXS_CAF_AHANDLE 2 /* the event has the aa_ahandle of the first place, not the call's */

/* Accepts up to n connections; ends as soon as there is one, with all that wait then. A listening
 * socket that other threads or processes accept on as well is best non-blocking. EINVAL: n is below
 * 1. */
int exs_accept(int fd, exs_acceptaddr_t *list, int n, int flags, exs_qhandle_t queue, exs_ahandle_t handle);

#define EXS_POLLIN 0x001
#define EXS_POLLOUT 0x004

typedef struct {
    int fd;
    short events; /* EXS_POLL*, or any of poll */
    short revents;
} exs_pollfd_t;

/* Polls descriptors; ends when any is ready. EINVAL: n is below 1. */
int exs_poll(exs_pollfd_t *list, int n, exs_qhandle_t queue, exs_ahandle_t handle);

#define EXS_CANCEL_ALL 1 /* whatever the handle; an extension */

/* Cancels the operations of fd with this handle. Each yields its event, with ECANCELED, when it is
 * its turn: operations posted before for the same direction come first. Returns 0, or -1:
 *   ENOENT  no such operation is under way
 *   EINVAL  invalid flags
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
#define EXS_EVT_SENDTIMEOUT 9  /* in place of the operation's kind: see SO_ASYNC_SEND_TIMEOUT */
#define EXS_EVT_RECVTIMEOUT 10 /* see SO_ASYNC_RECV_TIMEOUT */
#define EXS_EVT_SHUTDOWN 11    /* does not come: use shutdown() */
#define EXS_EVT_CLOSE 12       /* does not come: use close() */
#define EXS_SHUT_WR SHUT_WR

typedef struct { /* SEND, RECV, SENDTIMEOUT, RECVTIMEOUT */
    void *exs_xfer_buffer;
    size_t exs_xfer_length; /* octets moved */
    int exs_xfer_flags;     /* of a receive: as recvmsg's msg_flags */
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
    int exs_evt_errno;  /* 0, or the errno of the failure */
    int exs_evt_socket; /* the descriptor; for POLL the first */
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

/* Takes events; makes progress while it waits. Returns their number, which is smaller than asked
 * for when the time is over, or -1 with errno.
 *
 * count n    waits for one event, and takes up to n
 * count -n   waits for n, and takes n
 * count 0    makes progress without waiting, and takes none
 * timeout    NULL: without limit
 *
 *   EINTR   a signal came; no events were taken
 *   EINVAL  not a queue; a count beyond EXS_EVTVEC_MAX; an invalid timeout
 *   EFAULT  no room for events
 */
int exs_qdequeue(exs_qhandle_t queue, exs_event_t *events, int count, struct timeval *timeout);

/* ---- Socket options: level SOL_SOCKET, after exs_init; before, ENOPROTOOPT ---- */

/* int: 1. Receives end in the order of posting. */
#define SO_ASYNC_RECV_ORDERED 0x4501

/* struct timeval, or exs_timeout_t (none): how long an operation may take from when it is the first
 * of its direction. It then ends with EXS_EVT_SENDTIMEOUT or EXS_EVT_RECVTIMEOUT and ETIMEDOUT. 0:
 * without limit. EDOM: an invalid time. */
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
