/* Declarations for all files of this program. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rddp/ddp.h>
#include <rddp/exs.h>

#include "../check.h"

#define HANDLE(n) ((exs_ahandle_t)(uintptr_t)(n))
#define NONE EXS_MHANDLE_UNREGISTERED
/* Nothing here takes as long; what does has failed. */
#define LONG_TIME (&(struct timeval){30, 0})
#define NO_TIME (&(struct timeval){0, 0})

int tcp(void);
int listening(struct sockaddr_in *addr);
void connection(int ends[2]);
void send_buffer(int fd, int octets);
unsigned char octet_at(size_t place);
void fill(unsigned char *octets, size_t from, size_t count);
int is_filled(const unsigned char *octets, size_t from, size_t count);
/* The next event: its type, errno, length and handle as given. */
exs_event_t next_at(int line, exs_qhandle_t queue, int type, int error, size_t length, uintptr_t handle);
#define next_is(...) next_at(__LINE__, __VA_ARGS__)
int no_events(exs_qhandle_t queue);
int threads(void);

void arguments(void);
void queues(void);
void memory(void);
void many(void);
void netperf(void);
void files(void);
void connecting(void);
void polling(void);
void cancelling(void);
void closing(void);
void everything(void);
void lending(void);
void ends(void);
void timeouts(void);
void forking(void);
void interrupted(void);
void descriptor(void);
