/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Headers of Ethernet, IP and TCP (RFC 791, RFC 8200, RFC 9293). */
#ifndef RDDP_HEADERS_H
#define RDDP_HEADERS_H

#define ETH_LEN 14u
#define IPV4_LEN 20u
#define IPV6_LEN 40u
#define TCP_LEN 20u
#define LOOPBACK 1u /* index of `lo`, in every network namespace */
#define TCP 6 /* the protocol's number, and those of headers that IPv6 may have in front */
#define HOP_BY_HOP 0
#define ROUTING 43
#define FRAGMENT 44
#define DESTINATION 60
#define MOST_HEADERS 4
/* The third word of an IPv4 address that is written as IPv6 has it. */
#define MAPPED __builtin_bswap32(0xffffu)
#define TIMESTAMP_FIRST 0x0101080au /* NOP, NOP, timestamps: kind 8, 10 octets (RFC 7323 §3.2) */

/* A TCP segment: where it is in the frame, and what its headers say. */
struct segment {
	struct tuple tuple;
	__u32 tcp_at;      /* offset of the TCP header in the frame */
	__u32 tcp_len;     /* octets of header and payload, as IP has them */
	__u32 payload_at;  /* offset of the payload in the frame */
	__u32 payload_len;
	__u32 seq;
	__u32 ack;
	__u8 flags;
	__u8 has_timestamp;
	__u8 is_v6;
	__u8 is_fragment;
	__u8 is_tagged;    /* of a VLAN, by whose own interface it may come once more */
	__u8 has_others;   /* there are headers between IPv6's and TCP's */
	__u8 is_whole;     /* the headers are as expected, and all of the payload is in the frame */
	__u32 timestamp;
	__u16 checksum;    /* in network order */
};

/* Notes the length that IP's header says. It says 0 of several segments in one that are longer than
 * the field can tell (BIG TCP), and then the frame has no padding. */
static __always_inline void set_len(struct __sk_buff *skb, struct segment *seg, __u32 len, __u32 before)
{
	if (!len && skb->gso_segs > 1 && skb->len > seg->tcp_at)
		seg->tcp_len = skb->len - seg->tcp_at;
	else
		seg->tcp_len = len < before ? 0 : len - before;
}

/* Reads the header of IPv4. Says whether TCP's follows it. */
static __always_inline int parse_v4(struct __sk_buff *skb, struct segment *seg)
{
	__u8 ip[IPV4_LEN];
	__u32 len;

	if (skb_load(skb, ETH_LEN, ip, sizeof(ip)) || ip[0] >> 4 != 4 || ip[9] != TCP)
		return 0;
	/* The ports of a fragment other than the first are none. */
	if (octets16(ip + 6) & 0x1fff)
		return 0;
	len = (ip[0] & 15) * 4;
	if (len < IPV4_LEN)
		return 0;
	seg->is_fragment = octets16(ip + 6) >> 13 & 1;
	seg->tcp_at = ETH_LEN + len;
	set_len(skb, seg, octets16(ip + 2), len);
	seg->tuple.peer_addr[2] = seg->tuple.own_addr[2] = MAPPED;
	__builtin_memcpy(&seg->tuple.peer_addr[3], ip + 12, 4);
	__builtin_memcpy(&seg->tuple.own_addr[3], ip + 16, 4);
	/* IP drops loopback addresses that come from elsewhere (RFC 1122 §3.2.1.3). */
	return skb->ifindex == LOOPBACK || (ip[12] != 127 && ip[16] != 127);
}

static __always_inline int is_loopback(const __u32 *addr)
{
	return !addr[0] && !addr[1] && !addr[2] && addr[3] == __builtin_bswap32(1);
}

static __always_inline int is_mapped(const __u32 *addr)
{
	return !addr[0] && !addr[1] && addr[2] == MAPPED;
}

/* Passes over the headers between IPv6's and TCP's, of which `next` is the first (RFC 8200 §4).
 * Returns their octets; -1 if TCP's does not follow. */
static __always_inline int pass_over(struct __sk_buff *skb, struct segment *seg, __u8 next)
{
	__u32 number, len = 0;
	__u8 header[4];

	for (number = 0; number < MOST_HEADERS && next != TCP; number++) {
		if (next != HOP_BY_HOP && next != ROUTING && next != FRAGMENT && next != DESTINATION)
			return -1;
		if (skb_load(skb, ETH_LEN + IPV6_LEN + len, header, sizeof(header)))
			return -1;
		/* The ports of a fragment other than the first are none. */
		if (next == FRAGMENT && octets16(header + 2) & 0xfff8)
			return -1;
		if (next == FRAGMENT)
			seg->is_fragment = 1;
		len += next == FRAGMENT ? 8 : (header[1] + 1u) * 8;
		seg->has_others = 1;
		next = header[0];
	}
	return next == TCP ? (int)len : -1;
}

/* Reads the header of IPv6. Says whether TCP's follows it. */
static __always_inline int parse_v6(struct __sk_buff *skb, struct segment *seg)
{
	__u8 ip[IPV6_LEN];
	int others;

	if (skb_load(skb, ETH_LEN, ip, sizeof(ip)) || ip[0] >> 4 != 6)
		return 0;
	others = pass_over(skb, seg, ip[6]);
	if (others < 0)
		return 0;
	seg->is_v6 = 1;
	seg->tcp_at = ETH_LEN + IPV6_LEN + others;
	set_len(skb, seg, octets16(ip + 4), others);
	__builtin_memcpy(seg->tuple.peer_addr, ip + 8, 16);
	__builtin_memcpy(seg->tuple.own_addr, ip + 24, 16);
	/* Such an address is none on the wire, and would be the name of a connection over IPv4. */
	if (is_mapped(seg->tuple.peer_addr) || is_mapped(seg->tuple.own_addr))
		return 0;
	/* RFC 4291 §2.5.3. */
	return skb->ifindex == LOOPBACK || (!is_loopback(seg->tuple.peer_addr) && !is_loopback(seg->tuple.own_addr));
}

/* Reads the headers of a TCP segment. Says whether it is one. */
static __always_inline int parse(struct __sk_buff *skb, struct segment *seg)
{
	__u8 type[2], ports[4], tcp[TCP_LEN], option[8];
	__u32 header_len;

	/* IP drops what is for another host. */
	if (skb->pkt_type || skb_load(skb, ETH_LEN - sizeof(type), type, sizeof(type)))
		return 0;
	if (octets16(type) == 0x0800) {
		if (!parse_v4(skb, seg))
			return 0;
	} else if (octets16(type) != 0x86dd || !parse_v6(skb, seg)) {
		return 0;
	}
	if (skb_load(skb, seg->tcp_at, ports, sizeof(ports)))
		return 0;
	__builtin_memcpy(&seg->tuple.peer_port, ports, 2);
	__builtin_memcpy(&seg->tuple.own_port, ports + 2, 2);
	/* Of a fragment there may be no more. */
	if (seg->is_fragment)
		return 1;
	if (skb_load(skb, seg->tcp_at, tcp, sizeof(tcp)))
		return 0;
	seg->seq = octets32(tcp + 4);
	seg->ack = octets32(tcp + 8);
	seg->flags = tcp[13];
	__builtin_memcpy(&seg->checksum, tcp + 16, 2);

	/* The length is IP's own: short frames have padding behind it. */
	header_len = (tcp[12] >> 4) * 4;
	seg->payload_at = seg->tcp_at + header_len;
	seg->payload_len = seg->tcp_len > header_len ? seg->tcp_len - header_len : 0;
	seg->is_tagged = !!skb->vlan_present;
	seg->is_whole = !seg->is_tagged && !seg->has_others && header_len >= TCP_LEN && seg->payload_len &&
			seg->tcp_len <= 0xffff && seg->tcp_at + seg->tcp_len <= skb->len;
	if (!seg->is_whole)
		return 1;
	seg->has_timestamp = 0;
	if (header_len >= TCP_LEN + 12 && !skb_load(skb, seg->tcp_at + TCP_LEN, option, sizeof(option))) {
		seg->has_timestamp = octets32(option) == TIMESTAMP_FIRST;
		seg->timestamp = octets32(option + 4);
	}
	return 1;
}

#endif
