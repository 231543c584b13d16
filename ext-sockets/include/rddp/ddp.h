/* Sockets in DDPMODE: their octets travel as iWARP (RFC 5040, 5041, 5044).
 *
 *     int on = 1;
 *     int fd = socket(AF_INET, SOCK_STREAM, 0);
 *     if (setsockopt(fd, SOL_DDP, DDPMODE, &on, sizeof on) != 0)
 *         ...; // ENOPROTOOPT: librddp_sockets.so is not loaded
 *     connect(fd, ...); // from here on as any TCP socket
 *
 * A connection that is accepted on a socket in DDPMODE is in DDPMODE too, with the same options.
 */
#ifndef RDDP_DDP_H
#define RDDP_DDP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The level of all options below. Without the library the kernel answers ENOPROTOOPT. */
#define SOL_DDP 0x4444

/* int. Set: 0 off, 1 on, DDPMODE_RAW on without a byte stream (see raw.h), DDPMODE_SDP a byte
 * stream by the Sockets Direct Protocol. Get: an enum ddp_mode.
 *
 * 0 before connect or listen: the socket, and connections accepted on it, are plain TCP, whatever
 * the policy of the process says (rddp run). These options do not pass exec: the new program or its
 * policy sets those of a listener again.
 *
 * Set before connect; on a listening socket, for connections accepted from then on; or on an idle
 * connection, on which DDP_ROLE says which end begins.
 *   EOPNOTSUPP  not a TCP socket
 *   EALREADY    the socket is being connected
 *   EBUSY       octets have arrived that were not read; they are not iWARP
 *   EINVAL      a connection without DDP_ROLE; off, after the startup has begun; SDP on a socket
 *               that has private data
 *   ENOTCONN    one end has closed
 *   ENOBUFS     too many sockets in DDPMODE
 *   ENOSYS      the kernel has no SO_COOKIE: Linux before 4.12, or an emulation of Linux
 */
#define DDPMODE 1
#define DDPMODE_RAW 2
#define DDPMODE_SDP 3

/* int: an enum ddp_role. */
#define DDP_ROLE 2

/* The options below are set before the connection begins; EINVAL afterwards. */

/* int, 0 or 1 (1): ask for CRCs. They are used when either end asks. */
#define DDP_CRC 3
/* int, 0 or 1 (0): ask the peer for markers. */
#define DDP_MARKERS 4
/* int, 0 to 16382 (32): RDMA Reads of the peer that may be outstanding. */
#define DDP_IRD 5
/* int, 0 to 16382 (32): own RDMA Reads that may be outstanding. */
#define DDP_ORD 6
/* int, a set of DDP_RTR_* (Write and Read): messages that may tell the accepting end that it may
 * send (RTR); 0: client-server, where the connecting end sends first. */
#define DDP_RTR 7
/* Octets, at most 508 (none): private data of this end's startup frame. A socket that
 * speaks SDP has none: its frames hold Hello and HelloAck. */
#define DDP_PRIVATE_DATA 8
/* int, 1 to 2^30 (65536): the largest Send of either end. Both ends must have the same or the
 * receiving one the larger. */
#define DDP_LARGEST_SEND 9
/* int, an enum ddp_gather (DDP_GATHER_WRITEV): how the pieces of an FPDU are gathered. */
#define DDP_GATHER 10
/* struct ddp_mode_info, get only. */
#define DDP_MODE_INFO 11
/* Octets, get only (none until it has come): the private data of the peer's startup frame. */
#define DDP_PEER_PRIVATE_DATA 12

/* int, an enum ddp_progress (as RDDP_PROGRESS in the environment says, "caller" or "threads";
 * else DDP_PROGRESS_CALLER): who makes progress in blocking calls. May be set at any time. */
#define DDP_PROGRESS 16

/* int, milliseconds, 0 to 2^31-1 (as RDDP_STARTUP_TIMEOUT in the environment says; else 30000, and
 * 2000 for a client under a policy's "both"; 0 is that default): how long the startup of MPA may
 * take, at either end. After that time calls fail with ETIMEDOUT. */
#define DDP_STARTUP_TIMEOUT 17

/* Options of SDP; those of other sockets have no effect. */

/* int, octets; 0: every call, -1: none. May be set at any time, for calls that begin later. (As
 * RDDP_SDP_SOURCE_THRESHOLD in the environment says, or `threshold source` in the policy; else -1.)
 * The least blocking call to send that is advertised to the peer (SrcAvail) instead of copied. */
#define DDP_SDP_SOURCE_THRESHOLD 18
/* int, octets; 0: every call, -1: none. May be set at any time. (RDDP_SDP_SINK_THRESHOLD,
 * `threshold sink`; else 16384.) The least blocking call to receive into whose memory an RDMA Read
 * fetches what the peer has advertised. */
#define DDP_SDP_SINK_THRESHOLD 19
/* int, 0 or 1 (1 where RDDP_SDP_BCOPY is 1; else 0): octets are copied through private buffers at
 * both ends, as the papers' BCopy has it. Set before the connection begins. */
#define DDP_SDP_BCOPY 20
/* int, 1 to 65535 (RDDP_SDP_BUFS; 0: as many as the stream takes to be enough): the private receive
 * buffers that the peer is told of, which are its credits. The stream has 256 at least, and at most
 * 2000, or as many as fit into 32 MiB. Set before the connection begins. */
#define DDP_SDP_BUFS 21
/* struct ddp_sdp_info, get only. */
#define DDP_SDP_INFO 22
/* int, an enum ddp_sdp_mode, or -1 (as RDDP_SDP_MODE in the environment says, "buffered",
 * "combined", "pipelined" or "auto"; else -1). May be set at any time. The mode that this end asks
 * for on the half on which it sends. -1: Combined, and Pipelined for sends of several adverts, or
 * where the peer would like it. Buffered is asked for once: a peer that wants adverts changes it to
 * Combined. */
#define DDP_SDP_MODE 23

/* int, an enum ddp_placement (as RDDP_PLACEMENT in the environment says, "user", "auto" or
 * "kernel", or `placement` in the policy; else DDP_PLACEMENT_USER): the level at which raw mode
 * puts the payload of what the peer sends into its place. Has no effect on byte streams, which have
 * no memory to place into. Set before ddp_attach; on a listening socket for those that are
 * accepted.
 *
 * The kernel places only on interfaces that RDDP_PLACEMENT_INTERFACES or the policy name, and only
 * into memory of ddp_allocate with DDP_KERNEL. Where it cannot, for want of rights or of Linux 6.1,
 * or on a connection with markers, the payload is placed at user level: DDP_PLACEMENT_INFO tells.
 *   EINVAL      no such level; or after ddp_attach
 *   EOPNOTSUPP  no interface is named, or this library was built without placement in the kernel
 */
#define DDP_PLACEMENT 24
/* struct ddp_placement_info, get only. */
#define DDP_PLACEMENT_INFO 25

enum ddp_placement {
    DDP_PLACEMENT_USER = 0,  /* by the process, when TCP hands the octets over */
    DDP_PLACEMENT_AUTO = 1,  /* by the kernel behind a missing segment, else by the process */
    DDP_PLACEMENT_KERNEL = 2 /* by the kernel, when segments arrive */
};

/* All is 0 where the connection is placed at user level, and before and after a connection. */
struct ddp_placement_info {
    int32_t placement;      /* an enum ddp_placement: the level of this connection */
    uint32_t interface;     /* on which the last segment came, by its index; 0: none came */
    uint64_t segments;      /* that the kernel's program has seen */
    uint64_t placed;        /* FPDUs whose payload it has placed */
    uint64_t confirmed;     /* of these, those that were found right and not placed again */
    uint64_t wrong;         /* those whose octets did not make the CRC, and were placed again */
    uint64_t octets;        /* of payload in confirmed FPDUs */
    uint64_t octets_behind; /* of these, those that were placed behind a missing segment */
    uint64_t octets_unseen; /* of the stream, past the program: by another interface, say */
    uint64_t unaligned;     /* segments left alone: their FPDUs do not begin and end with them */
};

enum ddp_sdp_mode {
    DDP_SDP_BUFFERED = 0,
    DDP_SDP_COMBINED = 1,
    DDP_SDP_PIPELINED = 2
};

/* All is 0 on a socket that does not speak SDP; all but `sdp` is 0 before its startup is over. */
struct ddp_sdp_info {
    int32_t sdp;            /* 1: the socket speaks SDP, or will when connected */
    int32_t send_mode;      /* an enum ddp_sdp_mode: of the half in which this end sends */
    int32_t receive_mode;   /* of the half in which it receives */
    uint32_t credits;       /* messages that the peer has buffers for */
    uint32_t bufs;          /* private receive buffers of this end */
    uint32_t buf_size;      /* octets of each */
    uint32_t peer_buf_size; /* octets of each of the peer's */
    uint32_t reserved;
    uint64_t counters[8]; /* see docs/sdp.md */
};

enum ddp_progress {
    DDP_PROGRESS_CALLER = 0, /* the calling thread itself */
    DDP_PROGRESS_THREADS = 1 /* two threads of the process, one for each direction */
};

enum ddp_mode {
    DDP_MODE_OFF = 0,      /* a TCP socket */
    DDP_MODE_ASKED = 1,    /* will be in DDPMODE when connected */
    DDP_MODE_STARTING = 2, /* connected; the startup of MPA goes on */
    DDP_MODE_ON = 3,
    DDP_MODE_FAILED = 4    /* see ddp_mode_info.failure */
};

enum ddp_role {
    DDP_ROLE_AUTO = 0,      /* the connecting end is the initiator */
    DDP_ROLE_INITIATOR = 1, /* sends the MPA Request */
    DDP_ROLE_RESPONDER = 2  /* answers the MPA Request */
};

enum ddp_gather {
    DDP_GATHER_WRITEV = 0, /* one vectored write */
    DDP_GATHER_COPY = 1,   /* copied into one buffer first */
    DDP_GATHER_CORK = 2    /* TCP_CORK, piece by piece */
};

#define DDP_RTR_WRITE 1
#define DDP_RTR_READ 2
#define DDP_RTR_SEND 4

struct ddp_mode_info {
    int32_t mode;    /* an enum ddp_mode */
    int32_t role;    /* an enum ddp_role */
    int32_t failure; /* the errno of the failure; 0: none, or a raw connection ended in order */
    int32_t raw;     /* 1: in raw mode */
    int32_t terminate; /* the Terminate that ended a stream, sent or received: layer, error type
                          and code (RFC 5040, section 4.8), such as 0x1203; 0: none */
};

/* Returns layer, error type and code of a Terminate (0xLECC) in words: for 0x0101 "RDMAP remote
 * protection error: base or bounds violation". What is in no table of RFC 5040, 5041, 5044 and 6581
 * is named as far as it is known; beyond 0xffff (-1 is) "none". Never NULL. */
const char *ddp_terminate_name(uint32_t terminate);

/* Returns the version of the library, such as "0.1.0". */
const char *ddp_version(void);

#ifdef __cplusplus
}
#endif

#include <rddp/raw.h>

#endif
