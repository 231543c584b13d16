/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Maps: what the program shares with user space, and its own memory. */
#ifndef RDDP_MAPS_H
#define RDDP_MAPS_H

#define SUM_CHUNK 512u /* octets that `csum_diff` takes at a time */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(key_size, sizeof(struct tuple));
	__uint(value_size, sizeof(__u32));
	__uint(max_entries, CONNECTIONS);
} tuples SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct connection));
	__uint(max_entries, CONNECTIONS);
	__uint(map_flags, BPF_F_MMAPABLE);
} connections SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct entry));
	__uint(max_entries, STAGS);
	__uint(map_flags, BPF_F_MMAPABLE);
} stags SEC(".maps");

/* A piece of memory, whose values are its blocks: each piece has a number of its own of them. */
struct piece {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, BLOCK_LEN + BLOCK_PADDING);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
	__uint(max_entries, 1024);
	__array(values, struct piece);
} pieces SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, SUM_CHUNK + 8);
	__uint(max_entries, 1);
} scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct answer));
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
} answers SEC(".maps");

#endif
