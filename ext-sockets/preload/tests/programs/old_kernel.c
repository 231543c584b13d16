/* A kernel that gives sockets no cookies: what DDPMODE says there, and the families of a policy. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <rddp/ddp.h>

#include "check.h"

/* getsockopt(SO_COOKIE) is refused from now on, as by a kernel that never heard of it. */
static void forget_cookies(void) {
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getsockopt, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SO_COOKIE, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOPROTOOPT),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof program / sizeof *program, program};
    IS(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    IS(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter), 0);
}

int main(int argc, char **argv) {
    const char *family = argc > 1 ? argv[1] : "tcp";
    int on = 1;
    char octet = 'x';
    struct sockaddr_in addr;
    forget_cookies();
    int asking = socket(AF_INET, SOCK_STREAM, 0);
    FAILS(setsockopt(asking, SOL_DDP, DDPMODE, &on, sizeof on), ENOSYS);
    FAILS(setsockopt(0, SOL_DDP, DDPMODE, &on, sizeof on), ENOTSOCK);

    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    if (strcmp(family, "ddp") == 0) {
        memset(&addr, 0, sizeof addr);
        addr.sin_family = AF_INET;
        FAILS(listen(listener, 5), ENOSYS);
        FAILS(connect(client, (void *)&addr, sizeof addr), ENOSYS);
    } else {
        listen_somewhere(listener, &addr);
        IS(connect(client, (void *)&addr, sizeof addr), 0);
        int server = accept(listener, NULL, NULL);
        IS(write(client, &octet, 1), 1);
        IS(read(server, &octet, 1), 1);
    }
    puts("all is so");
    return 0;
}
