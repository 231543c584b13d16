/* Two endpoints of one process, and what they say to each other. */
#ifndef RAW_H
#define RAW_H

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rddp/ddp.h>

#include "../check.h"

#define SIZE 4096
#define ALL_RIGHTS                                                                                                     \
    (DDP_LOCAL_WRITE | DDP_REMOTE_READ | DDP_REMOTE_WRITE | DDP_REMOTE_ATOMIC | DDP_REMOTE_INVALIDATE | DDP_CAN_BIND)

struct end {
    int fd, queue;
    uint32_t stag;
    _Alignas(8) uint8_t memory[SIZE];
};

struct pair {
    struct end active, passive;
};

/* Milliseconds that a test waits for what has to come. */
#define PATIENCE 20000

int raw_socket(void);
int raw_listener(struct sockaddr_in *addr);
int set(int fd, int option, int value);
int get(int fd, int option);
struct ddp_mode_info mode_info(int fd);

/* Connected, each with a queue and all its memory registered. */
struct pair *connected(uint32_t flags);
/* Makes a pair whose passive end is attached with these settings, to a queue of its own if they
 * name none. */
struct pair *connected_as(uint32_t flags, struct ddp_endpoint passive);
void attach(struct end *end, uint32_t flags, uint64_t tag);
void attach_as(struct end *end, struct ddp_endpoint how);
/* Attaches a socket that is connected. */
void begin(struct end *end, uint32_t flags, uint64_t tag);
void disconnected(struct pair *pair);

struct ddp_sge piece(const struct end *end, size_t offset, uint32_t length);
/* Posts one work, and is the number of those taken. */
int post(const struct end *end, struct ddp_work work);
int receive(const struct end *end, size_t offset, uint32_t length, uint64_t tag);

/* The next event of its queue, which is of this kind and has this status. */
struct ddp_event event(const struct end *end, uint32_t kind, int32_t status);
/* There is none. */
void no_event(const struct end *end);

void operations(void);
void files(void);
void windows(void);
void refusals(void);
void bad_pointers(void);
void connections(void);
void peers(void);
void endings(void);
void readiness(void);
void patience(void);
void forks(void);
void crowds(void);
void answered(void);
void unanswered(void);
void shared_receives(void);
void names(void);
void allocated(void);
void placement(void);

#endif
