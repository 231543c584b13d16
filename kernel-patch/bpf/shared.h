/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Layout of what the program and its user share by maps. `src/layout.rs` has the same in Rust, and
 * the assertions at the end hold both to it.
 */
#ifndef RDDP_SHARED_H
#define RDDP_SHARED_H

/* Memory for placement comes in blocks of this size, and each has padding for the largest payload,
 * since the verifier bounds offset and length apart. A piece has as many blocks as are needed, up
 * to PIECE_LEN octets. */
#define BLOCK_LEN (1u << 20)
#define BLOCK_PADDING (64u << 10)
#define PIECE_LEN (64 * BLOCK_LEN)

/* Entries of the STag mirror, a power of two; an STag's place is its index modulo that. */
#define STAGS 4096u
/* Connections at one time; records that one keeps, and receives and sinks of Reads that the program
 * knows of it, powers of two. */
#define CONNECTIONS 64u
#define RECORDS 1024u
#define RECEIVES 256u
#define SINKS 32u
/* Words on octets that have come again, and on holes, that nobody has taken: a power of two. */
#define TOLD 1024u

/* Bits in the low half of an entry's state, as in the engine's own slots; the rest counts pins. */
#define STAG_OPEN (1u << 31)
#define STAG_WRITING (1u << 30)

/* Rights of an entry: the peer's Writes may go there, and what this end has asked for. */
#define RIGHT_WRITE 1u
#define RIGHT_OWN 2u

/* An STag that is open, and the memory behind it. */
struct entry {
	__u64 state;  /* STag in the high half, then STAG_OPEN and the number of pins */
	__u64 base;   /* first Tagged Offset */
	__u64 len;    /* octets */
	__u64 start;  /* place of the first octet: piece * PIECE_LEN + offset in the piece */
	__u64 pd;     /* protection domain */
	__u32 qp;     /* the only QP that may use it, 0 for all of the PD */
	__u32 rights; /* RIGHT_... */
	__u32 opening; /* number of the time that it was opened */
	__u32 unused[3];
};

/* An FPDU whose payload has been placed. */
struct record {
	__u32 seq;    /* TCP sequence number of its first octet */
	__u32 len;    /* octets of payload */
	__u32 stamp;  /* (number of the record + 1) << 3, then RECORD_... */
	__u32 crc;    /* the CRC field */
	__u64 at;     /* place of the payload, as `start` of an entry */
	__u8 front[20]; /* first octets of the FPDU, up to the payload; the rest means nothing */
	__u32 opening; /* of the STag by which it was placed */
};

/* The payload is in its place. */
#define RECORD_PLACED 1u
/* Set by user space: the CRC fits the FPDU, with the payload as it was in its place then. */
#define RECORD_SUMMED 2u
/* The segment lay behind a hole. */
#define RECORD_BEHIND 4u

#define SLOT_OPEN 1u

/* Memory for a message that this end waits for: a posted receive, or the sink of a Read. */
struct slot {
	__u64 name; /* 0 if there is none; else SLOT_OPEN, and of a receive its MSN in the high half */
	__u64 to;   /* Tagged Offset of the first octet */
	__u32 stag;
	__u32 len;  /* octets */
};

/* Bits in the low half of a gate. The high half is the floor: the sequence number in front of which
 * nothing may be placed any more. */
#define GATE_OPEN 1u
#define GATE_BUSY 2u

/* What to place for a connection. */
#define PLACE_ALL 1u   /* not only what is behind a hole */
#define TRUST_LINK 2u  /* the interface's partial checksums are taken for right ones */
#define PLACE_LAST 4u  /* also last segments of Writes, whose octets a program may poll */
#define NO_WRITES 8u   /* the peer may not write at all */

/* Why a segment of a known connection was not placed, or only in part. */
enum outcome {
	NOT_WHOLE,       /* a fragment, other headers, a VLAN tag, no payload, or not all of it */
	FLAGS,           /* SYN, FIN, RST or URG */
	NO_SOCKET,       /* TCP has no such connection in state ESTABLISHED */
	OUT_OF_WINDOW,   /* by its numbers TCP would not take it, or has it already */
	OLD_TIMESTAMP,   /* PAWS (RFC 7323 §5), or options where a timestamp cannot be found quickly */
	IN_ORDER,        /* nothing is missing in front of it */
	UNALIGNED,       /* no chain of FPDUs from its first octet to its last */
	BAD_CHECKSUM,    /* of TCP */
	STALE,           /* in front of the floor */
	CONTENDED,       /* another processor, or the engine, has the gate */
	FULL,            /* the engine has not taken the records of before */
	NO_PAYLOAD,      /* an FPDU, but none with payload for registered memory */
	REFUSED,         /* STag, protection domain, right or bounds */
	ACROSS_BLOCKS,   /* the payload would lie in two blocks */
	LAST_OF_WRITE,   /* the last segment of a Write, without PLACE_LAST */
	NOT_AWAITED,     /* a Send or a Read Response, without a receive or a sink that is known here */
	OUTCOMES
};

/* A connection's name: addresses and ports in network order, the peer's first. An IPv4 address is
 * written as IPv6 has it (::ffff:192.0.2.1, RFC 4291 §2.5.5.2). */
struct tuple {
	__u32 peer_addr[4];
	__u32 own_addr[4];
	__u16 peer_port;
	__u16 own_port;
};

/* A connection whose segments are placed. What user space writes for every read, and the program
 * for every segment, lies in cache lines of their own. */
struct connection {
	__u64 gate;
	__u64 tail;            /* records that the engine is done with */
	__u64 told_tail;      /* words that user space has taken */
	__u64 unused[5];

	__u64 head;            /* records made */
	__u64 told_head;      /* words on octets that have come again, and on holes */
	__u64 pd;
	__u32 qp;
	__u32 flags;           /* PLACE_ALL and those that follow it */
	__u64 segments;        /* seen */
	__u32 next;            /* sequence number behind the last segment that came in order */
	__u32 top;             /* and behind the last octet that has come by */
	__u32 interface;       /* on which the last segment came, by its index */
	__u32 unused_too;
	__u64 fpdus;           /* placed */

	__u64 octets;          /* of payload placed */
	__u64 octets_behind;   /* of these, behind a hole */
	__u64 outcomes[16];    /* by `enum outcome` */
	struct tuple tuple;
	__u32 unused_at_last[3];
	__u64 told[TOLD];      /* each that of a segment, and in the low half that up to which it tells */
	struct slot receives[RECEIVES]; /* by MSN, modulo their number */
	struct slot sinks[SINKS];
	struct record records[RECORDS];
};

/* What `ask` says of a connection. */
struct answer {
	__u32 found;
	__u32 copied_seq;  /* the octet that the next read begins with */
	__u32 rcv_nxt;
	__u32 window_end;
	__u32 ts_recent;   /* the peer's last timestamp, 0 without (RFC 7323 §3) */
	__u32 last_ack;    /* what the peer may acknowledge */
	__u32 has_more;    /* not 0: TCP has segments behind `rcv_nxt` */
};

_Static_assert(sizeof(struct entry) == 64, "entry");
_Static_assert(sizeof(struct record) == 48, "record");
_Static_assert(sizeof(struct slot) == 24, "slot");
_Static_assert(sizeof(struct connection) % 64 == 0, "connection");
_Static_assert(sizeof(struct connection) == 320 + 8 * TOLD + 24 * (RECEIVES + SINKS) + 48 * RECORDS, "connection");
_Static_assert(sizeof(struct tuple) == 36, "tuple");
_Static_assert(sizeof(struct answer) == 28, "answer");
_Static_assert(OUTCOMES <= 16, "outcomes");

#endif
