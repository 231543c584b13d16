/* Declarations for all files of this program: see main.c. */
#ifndef FAULTS_H
#define FAULTS_H

#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

extern const char *way;
#define WHERE way
#include "../check.h"

#define PAGE 4096
/* An address at which no program has memory. */
#define NOWHERE ((void *)0x1000)

/* A mapping of a file of which all pages but the first `good` are gone. */
struct cut {
    char *at;
    int file;
};
struct cut cut(int pages, int good);
void grow(struct cut cut, int pages);

/* Two ends that have exchanged an octet each way. */
void connection(int ends[2]);
/* An octet each way: the connection goes on. */
void exchange(int ends[2]);
/* Runs `body` in a child; returns its status, or minus the signal that ended it. */
int ended(void (*body)(void));
/* Makes one send that meets a bad page, which fails as it does over TCP. */
void bad_send(void);

void unmapped(void);
void sends(void);
void receives(void);
void lists(void);
void arguments(void);
void lists_that_change(void);
void sandboxed(void);

void all_blocked(void);
void own_handlers(void);
void flags(void);
void held_back(void);
void ends_blocked(void);
void ignored(void);
void masks_of_waits(void);
void waited_for(void);
void passed_on(void);
void jumps(void);
void nested(void);
void raw_calls(void);
void bad_masks(void);
void ignored_in_waits(void);

#endif
