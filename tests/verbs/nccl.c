/*
 * Drives the InfiniBand transport of an unmodified libnccl.so.2 between two processes, without a
 * GPU: messages of many lengths over each of its devices, their octets compared.
 *
 *     nccl LIBRARY OFFSET MESSAGES listen|connect ADDRESS PORT
 *
 * OFFSET is that of the local symbol ncclNetIb, a table of functions (the library's net_v12.h),
 * as `nm` prints it. Ends with 1 if anything is wrong.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <link.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NAME, INIT, DEVICES, PROPERTIES, LISTEN, CONNECT, ACCEPT, REGISTER, REGISTER_DMA, DEREGISTER,
       SEND, RECEIVE, FLUSH, TEST, CLOSE_SEND, CLOSE_RECEIVE, CLOSE_LISTEN };
#define HANDLE 512
#define LONGEST (8 << 20)
#define HOST_MEMORY 1
#define TAG 7

typedef int (*function)();
static function *net;
static void *context;

static void print(int level, unsigned long flags, const char *file, int line, const char *format, ...)
{
	va_list words;

	(void)level, (void)flags, (void)file, (void)line;
	va_start(words, format);
	vfprintf(stderr, format, words);
	va_end(words);
	fputc('\n', stderr);
}

static void must(int status, const char *what)
{
	if (status) {
		fprintf(stderr, "nccl: %s: %d\n", what, status);
		exit(1);
	}
}

/* Returns a TCP connection between the two processes. */
static int meet(int listens, const char *address, const char *port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
	int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;

	inet_pton(AF_INET, address, &at.sin_addr);
	if (listens) {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
		must(bind(fd, (void *)&at, sizeof at) || listen(fd, 1), "listen");
		return accept(fd, NULL, NULL);
	}
	while (connect(fd, (void *)&at, sizeof at))
		usleep(10000);
	return fd;
}

static size_t length(int message)
{
	static const size_t special[] = { 1, 2, 4095, 4096, 65536, 1 << 20, LONGEST - 1, LONGEST };
	size_t count = sizeof special / sizeof *special;

	if (message % 10 == 0)
		return special[message / 10 % count];
	return 1 + (size_t)message * 7919 % 100000;
}

static unsigned char octet(int message, size_t at)
{
	return (unsigned char)(message * 31 + at + at / 251);
}

/* Waits until a request ends, and returns its length. */
static int ended(void *request)
{
	int done = 0, len = 0;

	while (!done)
		must(net[TEST](request, &done, &len), "test");
	return len;
}

static void send_all(void *comm, void *region, unsigned char *octets, int messages)
{
	for (int message = 0; message < messages; message++) {
		size_t len = length(message);
		void *request = NULL;

		for (size_t at = 0; at < len; at++)
			octets[at] = octet(message, at);
		while (!request)
			must(net[SEND](comm, octets, len, TAG, region, NULL, &request), "isend");
		ended(request);
	}
}

static void receive_all(void *comm, void *region, unsigned char *octets, int messages)
{
	for (int message = 0; message < messages; message++) {
		size_t len = length(message), room = len;
		void *request = NULL, *data = octets;
		int tag = TAG;

		memset(octets, 0, len);
		while (!request)
			must(net[RECEIVE](comm, 1, &data, &room, &tag, &region, NULL, &request), "irecv");
		must((size_t)ended(request) != len, "length");
		for (size_t at = 0; at < len; at++)
			must(octets[at] != octet(message, at), "octets");
	}
}

static void over_device(int device, int listens, int meeting, int messages)
{
	char handle[HANDLE] = { 0 };
	void *listener = NULL, *comm = NULL, *of_device = NULL, *region = NULL;
	unsigned char *octets = aligned_alloc(4096, LONGEST);

	if (listens) {
		must(net[LISTEN](context, device, handle, &listener), "listen");
		must(write(meeting, handle, HANDLE) != HANDLE, "write");
		while (!comm)
			must(net[ACCEPT](listener, &comm, &of_device), "accept");
	} else {
		must(recv(meeting, handle, HANDLE, MSG_WAITALL) != HANDLE, "read");
		while (!comm)
			must(net[CONNECT](context, device, handle, &comm, &of_device), "connect");
	}
	must(net[REGISTER](comm, octets, (size_t)LONGEST, HOST_MEMORY, &region), "regMr");
	(listens ? receive_all : send_all)(comm, region, octets, messages);
	must(net[DEREGISTER](comm, region), "deregMr");
	must(net[listens ? CLOSE_RECEIVE : CLOSE_SEND](comm), "close");
	if (listens)
		must(net[CLOSE_LISTEN](listener), "closeListen");
	free(octets);
}

int main(int argc, char **argv)
{
	int listens, meeting, messages, devices = 0, settings[64] = { -1, -1 };
	struct link_map *map;
	void *library;

	must(argc != 7, "LIBRARY OFFSET MESSAGES listen|connect ADDRESS PORT");
	messages = atoi(argv[3]);
	listens = !strcmp(argv[4], "listen");
	library = dlopen(argv[1], RTLD_NOW);
	if (!library) {
		fprintf(stderr, "nccl: %s\n", dlerror());
		return 1;
	}
	dlinfo(library, RTLD_DI_LINKMAP, &map);
	net = (function *)(map->l_addr + strtoull(argv[2], NULL, 16));
	meeting = meet(listens, argv[5], argv[6]);
	must(net[INIT](&context, 1UL, settings, print, NULL), "init");
	must(net[DEVICES](&devices), "devices");
	for (int device = 0; device < devices; device++)
		over_device(device, listens, meeting, messages);
	printf("nccl: %d devices, %d messages each\n", devices, messages);
	return devices == 0;
}
