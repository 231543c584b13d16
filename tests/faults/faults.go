// Sends mappings of files that are truncated, by C functions, while goroutines dereference nil, which Go's runtime makes a
// panic of that is recovered.
package main

/*
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static int ends[2];

static int connect_both(void) {
	struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof here;
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (void *)&here, len) || listen(listener, 1) || getsockname(listener, (void *)&here, &len))
		return -1;
	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(ends[0], (void *)&here, len))
		return -1;
	ends[1] = accept(listener, NULL, NULL);
	return close(listener);
}

// An octet each way.
static int exchange(void) {
	for (int i = 0; i < 2; i++) {
		char got = 0;
		if (send(ends[i], "x", 1, 0) != 1 || recv(ends[!i], &got, 1, MSG_WAITALL) != 1 || got != 'x')
			return -1;
	}
	return 0;
}

// The errno of a send whose first page is gone.
static int bad_send(int blocked) {
	int file = memfd_create("pages", 0);
	sigset_t all, before;
	sigfillset(&all);
	if (ftruncate(file, 8192))
		return -1;
	char *at = mmap(NULL, 8192, PROT_READ, MAP_SHARED, file, 0);
	if (ftruncate(file, 0))
		return -1;
	if (blocked)
		pthread_sigmask(SIG_SETMASK, &all, &before);
	ssize_t sent = send(ends[0], at, 8192, 0);
	int error = errno;
	if (blocked)
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	munmap(at, 8192);
	close(file);
	return sent < 0 ? error : 0;
}
*/
import "C"

import (
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

type thing struct{ field int }

var caught int64

func provoke(one *thing) (sum int) {
	defer func() {
		if recover() != nil {
			atomic.AddInt64(&caught, 1)
		}
	}()
	return one.field
}

func main() {
	count, _ := strconv.Atoi(os.Args[1])
	for i := 0; i < 2; i++ {
		go func() {
			for {
				provoke(nil)
				time.Sleep(time.Microsecond)
			}
		}()
	}
	if C.connect_both() != 0 || C.exchange() != 0 {
		fmt.Println("no connection")
		os.Exit(1)
	}
	for i := 0; i < count; i++ {
		if got := syscall.Errno(C.bad_send(C.int(i % 2))); got != syscall.EFAULT {
			fmt.Println("a bad send:", got)
			os.Exit(1)
		}
		if C.exchange() != 0 {
			fmt.Println("the connection is gone")
			os.Exit(1)
		}
		for before := atomic.LoadInt64(&caught); atomic.LoadInt64(&caught) == before; {
			time.Sleep(time.Millisecond)
		}
	}
	fmt.Println("as it should be")
}
