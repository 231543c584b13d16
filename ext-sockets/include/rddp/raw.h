/* RDMA over a program's own socket: DDPMODE without a byte stream. The wire is iWARP (RFC 5040,
 * 5041, 5044, 6581, 7306).
 *
 *     int raw = DDPMODE_RAW;
 *     int queue = ddp_queue(0), fd = socket(AF_INET, SOCK_STREAM, 0);
 *     setsockopt(fd, SOL_DDP, DDPMODE, &raw, sizeof raw);
 *     ddp_attach(fd, &(struct ddp_endpoint){.queue = queue});
 *     ddp_post(fd, receives, 10);  // before the peer can send
 *     connect(fd, ...);            // TCP, then the startup
 *     ddp_register(0, memory, sizeof memory, DDP_LOCAL_WRITE | DDP_REMOTE_WRITE, &stag);
 *     ddp_post(fd, &(struct ddp_work){.op = DDP_SEND, .list = &piece, .count = 1}, 1);
 *     ddp_events(queue, events, 16, -1);
 *
 * A connection that is accepted on a socket in raw mode is in raw mode too:
 *
 *     fd = accept(listener, ...);  // TCP alone: it never waits for a peer's startup
 *     ddp_attach(fd, ...);
 *     ddp_post(fd, receives, 10);
 *     ddp_begin(fd);               // the startup, in the background
 *
 * With DDP_ENDPOINT_ASK the program reads the peer's Request first (DDP_REQUESTED, ddp_info) and
 * accepts or rejects it (ddp_answer).
 *
 * All calls may be made by any thread, but not in a signal handler; nor may a handler close a
 * socket in raw mode. Unless something else is said they return 0, or -1 with errno:
 *   EBADF, ENOTSOCK  not an open descriptor, not a socket
 *   EOPNOTSUPP       not a socket in raw mode
 *   ENOTCONN         not attached, or no connection
 *   ECONNABORTED     attached by another process, from which this one was forked
 *   EFAULT           a null pointer, or memory that is not mapped
 *   EINVAL           an invalid argument
 *   EIO              a defect of this library
 * read, write, send, recv, sendfile, shutdown and their like on a connected socket in raw mode fail
 * with EOPNOTSUPP. The events that poll finds on it mean nothing: poll the queue.
 */
#ifndef RDDP_RAW_H
#define RDDP_RAW_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Memory ---------------------------------------------------------------------------------- */

/* A protection domain: peers reach memory of their endpoint's own domain only. Domain 0 always
 * exists. Returns the number of a new domain, above 0. */
int ddp_domain(void);
/* Closes a domain. Its memory and endpoints stay as they are; none can be added. */
int ddp_domain_close(int domain);

/* Rights to registered memory. Sends may come from any of it. */
#define DDP_LOCAL_WRITE 1       /* own receives, own Reads and atomics write to it */
#define DDP_REMOTE_READ 2       /* Reads of the peer */
#define DDP_REMOTE_WRITE 4      /* Writes of the peer; with DDP_LOCAL_WRITE */
#define DDP_REMOTE_ATOMIC 8     /* atomics of the peer; with DDP_LOCAL_WRITE */
#define DDP_CAN_BIND 16         /* windows may be bound to it; not with DDP_ZERO_BASED */
#define DDP_REMOTE_INVALIDATE 32 /* a Send of the peer's may invalidate the STag */
#define DDP_ZERO_BASED 64       /* the Tagged Offset of its first octet is 0, else its address */
/* For ddp_register and ddp_allocate: */
#define DDP_POPULATE 256 /* fault all pages in now */
#define DDP_LOCK 512     /* mlock, until it is deregistered */
/* For ddp_allocate alone: */
#define DDP_KERNEL 1024 /* memory that the kernel can place into */

/* Registers memory, and sets its STag. The memory must stay mapped until it is deregistered. No
 * page is touched.
 *   EFAULT  part of it is not mapped
 *   EACCES  part of it is mapped without the rights that these need
 *   ENOMEM  too many; or as mlock
 */
int ddp_register(int domain, void *begin, size_t length, int access, uint32_t *stag);
/* Allocates length octets that are 0, registers them, and sets their address and STag.
 * ddp_deregister gives them back: they are not mapped any more.
 *
 * With DDP_KERNEL, the kernel can place there what comes to endpoints of this process whose sockets
 * have DDP_PLACEMENT (ddp.h). Such memory takes whole pieces of 64 MiB, is resident from the start
 * and never swapped; a child of fork has nothing mapped there. Whether there is any is settled by
 * the first call of this file, with which the process opens its device; the log says more.
 *   EINVAL      length is 0
 *   ENOMEM      too much, or too many
 *   EOPNOTSUPP  DDP_KERNEL: no interface is named (RDDP_PLACEMENT_INTERFACES, or the policy) or the
 *               program cannot be put on one; or this library was built without placement in the
 *               kernel
 *   EPERM       DDP_KERNEL: CAP_BPF, CAP_NET_ADMIN or CAP_PERFMON is missing
 *   others      DDP_KERNEL: as the system calls by which the program is loaded
 */
int ddp_allocate(int domain, size_t length, int access, void **begin, uint32_t *stag);
/* Registers length octets of a file from offset on, and sets their STag and the Tagged Offset of
 * the first. Nothing is mapped: a Read of the peer's reads the file, for which the process needs no
 * buffer, and own Sends and Writes may be of it (ddp_sge.to counts from *to). fd stays the
 * program's, which may close it.
 *
 * The rights may be DDP_REMOTE_READ, DDP_REMOTE_INVALIDATE, DDP_CAN_BIND and DDP_ZERO_BASED. A Read
 * returns octets that the file had between its request and its answer, old and new ones side by
 * side where the file is written meanwhile. Where the file has been cut short, or its disk fails, a
 * Read ends the connection with the Terminate 0x0101, and an own work with EFAULT.
 *   EBADF   fd is not open, or not for reading
 *   EINVAL  another right; no regular file; the file ends before the octets do
 *   ENOMEM  too many
 */
int ddp_register_file(int domain, int fd, uint64_t offset, uint64_t length, int access, uint32_t *stag, uint64_t *to);
/* Makes a region valid again that was invalidated, or changes its rights; sets the STag, which has
 * another key. */
int ddp_reregister(uint32_t stag, int access, uint32_t *now);
/* Makes a memory window that is not bound: see DDP_BIND. */
int ddp_window(int domain, uint32_t *stag);
/* Sets the STag that a region or window has now: every DDP_BIND gives a window another key. */
int ddp_stag(uint32_t stag, uint32_t *now);
/* Deregisters a region or a window. After that the library does not access the memory any more.
 * Works that name it fail.
 *   EBUSY  windows are bound to it
 */
int ddp_deregister(uint32_t stag);

/* ---- Events ---------------------------------------------------------------------------------- */

/* Makes an event queue, and returns its descriptor for poll, select, epoll and ddp_events, readable
 * while there are events. Close it with close; that disconnects its endpoints. With
 * DDP_QUEUE_UNWATCHED, which is faster, only ddp_events serves it. */
int ddp_queue(int flags);
#define DDP_QUEUE_UNWATCHED 1

struct ddp_event {
    uint64_t endpoint;    /* ddp_endpoint.tag */
    uint64_t tag;         /* ddp_work.tag; DDP_LIMIT: the number of the receives */
    uint32_t kind;        /* enum ddp_op, DDP_CONNECTED, DDP_CLOSED, DDP_REQUESTED, DDP_LIMIT */
    int32_t status;       /* 0, or an errno: see below */
    int32_t fd;           /* the descriptor that was attached */
    uint32_t length;      /* octets received or read; with DDP_EVENT_IMMEDIATE those of the peer's
                             last Write before it, or 0 */
    uint32_t flags;       /* DDP_EVENT_* */
    uint32_t stag;        /* with DDP_EVENT_INVALIDATED */
    uint8_t immediate[8]; /* with DDP_EVENT_IMMEDIATE */
    int32_t terminate;    /* DDP_CLOSED: 0xLECC, layer, error type and code of the Terminate
                             (RFC 5040, section 4.8); -1: none */
    uint32_t reserved;
};

/* Every endpoint has at most one DDP_CONNECTED, before everything that arrives, and exactly one
 * DDP_CLOSED, its last event. The status of DDP_CLOSED:
 *   0             in good order
 *   ECONNREFUSED  TCP was refused; or the peer's program rejected the Request
 *   ETIMEDOUT     no answer
 *   EPROTO        the peer broke a rule; terminate is the Terminate that was sent
 *   EPROTONOSUPPORT  the peer does not speak MPA
 *   EREMOTEIO     the peer sent a Terminate
 *   ECONNRESET    TCP lost the connection, or the peer closed over outstanding work
 *   ECONNABORTED  this end closed over outstanding work, or because a work of its own failed
 *   EIO           a defect of this library, or a descriptor of its own that the program has closed
 *   ECANCELED     this end gave up (DDP_ABORT, or a close before it was connected) or rejected the
 *                 Request (DDP_REJECT)
 *   or what connect may fail with
 */
#define DDP_CONNECTED 101
#define DDP_CLOSED 102
/* With DDP_ENDPOINT_ASK: the peer's Request waits for ddp_answer. At most one, before
 * DDP_CONNECTED. */
#define DDP_REQUESTED 103
/* See ddp_receives_arm. */
#define DDP_LIMIT 104

#define DDP_EVENT_SOLICITED 1 /* the peer set the Solicited Event bit */
#define DDP_EVENT_INVALIDATED 2
#define DDP_EVENT_IMMEDIATE 4
#define DDP_EVENT_TERMINATE_SENT 8
#define DDP_EVENT_TERMINATE_RECEIVED 16

/* Return the name of a kind of events, such as "RDMA Write"; and what the status of an event of
 * that kind means, such as "the peer refused the Read or atomic". With DDP_CLOSED ddp_strerror
 * names also ddp_info.failure and the errno of a connect that failed. Never NULL; like strerror's,
 * a text may change with the thread's next call. ddp_terminate_name (ddp.h) has the words of a
 * Terminate. */
const char *ddp_kind_name(uint32_t kind);
const char *ddp_strerror(uint32_t kind, int status);

/* Takes at most room events and waits for the first at most timeout milliseconds (-1: without
 * limit; 0: not at all). Returns their number.
 *   EBADF, EINVAL  not a queue
 *   EINTR          a signal came first
 */
int ddp_events(int queue, struct ddp_event *events, int room, int timeout);

/* ---- Connections ----------------------------------------------------------------------------- */

struct ddp_endpoint {
    int32_t queue;     /* from ddp_queue */
    int32_t domain;    /* from ddp_domain, or 0 */
    uint64_t tag;      /* the program's own value, returned in events */
    uint32_t max_send; /* sends whose events were not taken yet, at most 65536; 0: 128 */
    uint32_t max_recv; /* the same for receives; 0 with shared receives */
    uint32_t flags;    /* DDP_ENDPOINT_* */
    uint32_t timeout;  /* milliseconds for the startup, ddp_answer included; 0: 5000 */
    int32_t receives;  /* from ddp_receives; 0: the endpoint has its own */
    uint32_t reserved; /* 0 */
};

/* A Send that finds no receive waits until one is posted, and TCP's window stops the peer; without
 * this flag it ends the connection with a Terminate, as RFC 5041 says. Cannot be used together with
 * Reads and atomics of either end, or with shared receives. */
#define DDP_ENDPOINT_WAIT 1
#define DDP_ENDPOINT_NO_INBOUND_READ 2
#define DDP_ENDPOINT_NO_INBOUND_WRITE 4
/* MPA revision 1, for peers that refuse 2. Only the connecting end chooses. */
#define DDP_ENDPOINT_REVISION_1 8
/* Writes are placed before their CRC was checked. That is faster, but an FPDU that is damaged on
 * the way may overwrite anything that the peer may write to. */
#define DDP_ENDPOINT_EARLY_PLACEMENT 16
/* The peer's Request is not accepted at once, but waits for ddp_answer. Has no meaning at the
 * connecting end. */
#define DDP_ENDPOINT_ASK 32

/* Makes a socket in raw mode an endpoint. Receives can be posted from now on, before there is a
 * connection. Options of SOL_DDP (CRC, markers, IRD, ORD, RTR, private data) are those that the
 * socket has at this call.
 *
 * connect on it does TCP and the startup. A blocking connect returns when both are done (0, or -1
 * with the status of DDP_CLOSED as errno). A non-blocking one fails with EINPROGRESS, and one that
 * a signal interrupts with EINTR; DDP_CONNECTED or DDP_CLOSED then tells the result. The socket is
 * non-blocking from then on.
 *   EALREADY  the socket is attached
 *   ENOTCONN  the connection is over
 *   EBADF, EINVAL  not a queue
 *   EINVAL    no such domain or receives; invalid flags or numbers
 *   ENOBUFS   the queue has as many endpoints as it can have
 */
int ddp_attach(int fd, const struct ddp_endpoint *endpoint);

/* Begins the startup on a connection that exists, or that was being made when the socket was
 * attached. It goes on in the background, and DDP_CONNECTED or DDP_CLOSED tells the result. The
 * socket is non-blocking from then on.
 *   EALREADY  the startup has begun
 *   ENOTCONN  TCP is not connected
 */
int ddp_begin(int fd);

/* Answers a Request that DDP_REQUESTED announced. DDP_ACCEPT: DDP_CONNECTED follows. DDP_REJECT:
 * the peer gets a Reply that rejects, its status is ECONNREFUSED, and its program finds the private
 * data with ddp_info; here DDP_CLOSED follows with ECANCELED. The peer closes TCP after that, so
 * that it does not overlook the Reply: TCP stays open for two seconds at most, even if fd is
 * closed, as long as this process lives.
 *
 * At most 508 octets of private data, or 512 to a peer of revision 1; null and 0: the value of
 * DDP_PRIVATE_DATA at ddp_attach.
 *
 * Before an answer the connection can end with ETIMEDOUT, as every startup; with ECONNRESET when
 * the peer has gone; with EPROTO when it sends more. close(fd) and DDP_ABORT reset it, with
 * ECANCELED. If the peer goes while it is answered, this call does not fail: DDP_CLOSED tells.
 *   EALREADY  the Request has been answered
 *   ENOTCONN  there is no Request yet, or the connection has ended before an answer
 *   EINVAL    not attached with DDP_ENDPOINT_ASK; no such answer
 *   EMSGSIZE  too much private data. The Request still waits
 *   EPROTO    the peer wants a first message (RTR), and DDP_RTR allows none: it can only be
 *             rejected. The Request still waits
 */
int ddp_answer(int fd, int answer, const void *private_data, size_t length);
enum ddp_answer { DDP_ACCEPT = 1, DDP_REJECT = 2 };

/* DDP_GRACEFUL   the peer sees an orderly end, if no work of the send queue and no Read of the
 *                peer's is outstanding; else the connection is reset. close(fd) of the last
 *                descriptor does the same
 * DDP_TERMINATE  with a Terminate, 0x0000
 * DDP_ABORT      TCP is reset, in a startup as well
 * Works that are outstanding end with ECANCELED; DDP_CLOSED follows.
 *   ENOTCONN  there is no connection any more, or not yet
 */
int ddp_disconnect(int fd, int how);
enum ddp_disconnect { DDP_GRACEFUL = 0, DDP_TERMINATE = 1, DDP_ABORT = 2 };

struct ddp_info {
    int32_t mode;               /* an enum ddp_mode */
    int32_t failure;            /* the status of DDP_CLOSED */
    int32_t terminate_sent;     /* 0xLECC, or -1: none */
    int32_t terminate_received; /* the same of the peer's Terminate */
    uint32_t ird;               /* Reads and atomics of the peer that may be outstanding */
    uint32_t ord;               /* own Reads and atomics that may be outstanding; more wait */
    uint32_t revision;          /* revision of MPA: 1 or 2 */
    uint32_t flags;             /* DDP_INFO_* */
    uint64_t octets_sent;       /* to TCP */
    uint64_t octets_received;   /* from TCP */
    uint32_t private_length;    /* octets of private_data */
    uint32_t reserved;
    uint8_t private_data[512]; /* from the peer's startup frame; not authenticated */
};
#define DDP_INFO_CRC 1
#define DDP_INFO_MARKERS_SENT 2
#define DDP_INFO_MARKERS_RECEIVED 4

/* Tells the state of a connection. The values agreed in the startup are there from DDP_CONNECTED
 * on. From DDP_REQUESTED until then they are those of the peer's Request: the number of Reads and
 * atomics that it wants to have outstanding (ird), and takes (ord); 16383 where it names none. The
 * private data of a peer that rejected is there, too.
 */
int ddp_info(int fd, struct ddp_info *info);

/* ---- Works ----------------------------------------------------------------------------------- */

/* A piece of registered memory. */
struct ddp_sge {
    uint64_t to; /* address of its first octet, or offset in a zero-based region; with DDP_INLINE
                    always an address */
    uint32_t length;
    uint32_t stag;
};

struct ddp_work {
    uint64_t tag;               /* the program's own value, returned in the event */
    uint32_t op;                /* an enum ddp_op */
    uint32_t flags;             /* DDP_INLINE and so on */
    const struct ddp_sge *list; /* local memory: at most 32 pieces; copied by the call */
    uint32_t count;             /* of pieces */
    uint32_t stag;              /* see the operation */
    uint64_t to;                /* Tagged Offset in the peer's memory stag */
    union {
        uint8_t immediate[8];
        struct {
            uint64_t add;
            uint64_t mask; /* the top bit of each field of the sum; 0: one field of 64 bits */
        } fetch_add;
        struct {
            uint64_t compare, compare_mask; /* bits that are compared; ~0: all */
            uint64_t swap, swap_mask;       /* bits that are replaced; ~0: all */
        } cmp_swap;
        uint64_t access; /* DDP_REMOTE_* and DDP_ZERO_BASED */
    } with;
};

enum ddp_op {
    DDP_RECEIVE = 1,         /* one Send of the peer into list, or Immediate Data */
    DDP_SEND = 2,            /* list */
    DDP_SEND_INVALIDATE = 3, /* list, and the peer invalidates its stag */
    DDP_WRITE = 4,           /* list to the peer's memory */
    DDP_WRITE_IMMEDIATE = 5, /* as DDP_WRITE, then with.immediate completes a receive of the peer */
    DDP_IMMEDIATE = 6,       /* with.immediate completes a receive of the peer */
    DDP_READ = 7,            /* from the peer's memory into list, of one piece */
    DDP_READ_INVALIDATE = 8, /* as DDP_READ; then the STag of the piece is invalidated here */
    DDP_FETCH_ADD = 9,       /* adds to 8 aligned octets of the peer; list gets the old ones */
    DDP_CMP_SWAP = 10,       /* as DDP_FETCH_ADD, but compares and swaps */
    DDP_BIND = 11,           /* binds window stag to list, one piece: with.access, ddp_stag */
    DDP_INVALIDATE = 12      /* invalidates an own stag */
};

#define DDP_INLINE 1     /* Send and Write: at most 512 octets of any memory, copied by the call */
#define DDP_SOLICITED 2  /* Send and Immediate: with DDP_EVENT_SOLICITED at the peer */
#define DDP_QUIET 4      /* no event if it succeeds */
#define DDP_READ_FENCE 8 /* begins when all own Reads and atomics before it are done */
#define DDP_FENCE 16     /* begins when all own works before it are done */

/* Posts works, receives to the receive queue and others to the send queue; each queue carries out
 * its own in order. Returns how many were taken, which may be fewer than all: then post the next
 * again to learn why. Memory that works name must stay as it is until their event.
 *   EAGAIN    as many works are outstanding as the endpoint allows: take events first
 *   EPIPE     the connection is over
 *   EINVAL    an STag that this process does not have; an unknown operation or flag; too many
 *             pieces, or too few; a receive of an endpoint with shared receives
 *   EACCES    memory of another domain, or without DDP_LOCAL_WRITE where it is to be written
 *   EFAULT    a piece that is not inside its region
 *   EMSGSIZE  more than 512 octets inline; a message of 4 GiB or more
 *
 * Sends that are posted before there is a connection leave when there is one. The status of a
 * work's event:
 *   EFAULT      its memory was deregistered or invalidated meanwhile, or its file cut short
 *   EOPNOTSUPP  the connection does not allow it: a Read where ORD is 0
 *   EACCES      a bind or an invalidation was refused
 *   EMSGSIZE    the receive was too short
 *   EPERM       a receive: the peer named an STag that it may not invalidate
 *   EREMOTEIO   the peer refused a Read or an atomic
 *   ECANCELED   the connection ended first
 * Each of these ends the connection.
 */
int ddp_post(int fd, const struct ddp_work *works, int count);

/* ---- Shared receives ------------------------------------------------------------------------- */

/* Makes a shared receive queue, from which the messages of several endpoints take receives, in the
 * order in which they come. The memory is of this domain, whatever the endpoints' domain is. At
 * most max receives (1 to 1048576) may be posted whose events were not taken yet. One endpoint
 * holds at most quota of them at a time (0: any number), begun but their events not taken, so that
 * one peer cannot use up those of all (RFC 5042, section 6.4.3.1): beyond that, and when none is
 * left, its message finds no receive. Returns the number, above 0, for ddp_endpoint.receives.
 *   EINVAL  no such domain, or max is out of range
 */
int ddp_receives(int domain, uint32_t max, uint32_t quota);

/* Posts receives, as ddp_post does; every event names the endpoint that the message came to. When
 * an endpoint ends, receives that no message has begun to fill stay posted.
 *   EINVAL  no such receives, or a work is not a receive
 *   others as ddp_post's
 */
int ddp_post_shared(int receives, const struct ddp_work *works, int count);

/* Asks for one DDP_LIMIT event, which comes when a message takes a receive and fewer than limit are
 * left. It comes to the queue of the endpoint that the message came to, and names that endpoint.
 * When fewer are left already, it comes at once, for one of the endpoints; where there is no
 * endpoint yet, for the first. 0: no event.
 *   EINVAL  no such receives
 */
int ddp_receives_arm(int receives, uint32_t limit);

/* Closes a shared receive queue. Posted receives are dropped without events.
 *   EINVAL  no such receives
 *   EBUSY   an endpoint that takes from it has not had its DDP_CLOSED yet, and its event queue is
 *           not closed
 */
int ddp_receives_close(int receives);

#ifdef __cplusplus
}
#endif

#endif
