/* The program's own handlers and masks of SIGSEGV and SIGBUS, beside which bad pointers are
 * found out. */
#include "faults.h"
#include <spawn.h>

static volatile sig_atomic_t calls, code, inside;
static void *volatile address, *volatile stack;
static struct cut page;

static void count(int signal) {
    (void)signal;
    char here;
    stack = &here;
    calls++;
}

/* Makes the page good, or the fault would recur. */
static void mend(int signal, siginfo_t *info, void *context) {
    (void)context;
    sigset_t mask;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    inside = sigismember(&mask, signal) + 2 * sigismember(&mask, SIGUSR1);
    code = info->si_code;
    address = info->si_addr;
    count(signal);
    if (page.file > 0)
        grow(page, 2);
}

static void install(int signal, void *handler, int flags) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = flags};
    sigaddset(&action.sa_mask, SIGUSR1);
    IS(sigaction(signal, &action, NULL), 0);
}

static void is_installed(int signal, void *handler, unsigned flags) {
    struct sigaction found;
    IS(sigaction(signal, NULL, &found), 0);
    IS((void *)found.sa_sigaction == handler, 1);
    IS(found.sa_flags & (SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART | SA_RESETHAND), flags);
}

static void touch(void) {
    page = cut(2, 1);
    *(volatile char *)(page.at + PAGE) = 1;
}

static void block(int how, int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    IS(sigprocmask(how, &set, NULL), 0);
}

static int is_blocked(int signal) {
    sigset_t mask;
    IS(pthread_sigmask(SIG_BLOCK, NULL, &mask), 0);
    return sigismember(&mask, signal);
}

static void *blocks_and_sends(void *all) {
    sigset_t set;
    sigfillset(&set);
    if (all)
        IS(pthread_sigmask(SIG_SETMASK, &set, NULL), 0);
    for (int i = 0; i < 10; i++)
        bad_send();
    IS(is_blocked(SIGSEGV) && is_blocked(SIGBUS) && is_blocked(SIGTERM), 1);
    return NULL;
}

/* sigfillset in every thread: before the first socket, behind it, and inherited. */
void all_blocked(void) {
    sigset_t set;
    sigfillset(&set);
    pthread_t threads[8];
    for (int i = 0; i < 4; i++)
        IS(pthread_create(&threads[i], NULL, blocks_and_sends, &set), 0);
    IS(sigprocmask(SIG_SETMASK, &set, NULL), 0);
    bad_send();
    for (int i = 4; i < 8; i++)
        IS(pthread_create(&threads[i], NULL, blocks_and_sends, NULL), 0);
    bad_send();
    for (int i = 0; i < 8; i++)
        IS(pthread_join(threads[i], NULL), 0);
    IS(is_blocked(SIGSEGV) && is_blocked(SIGBUS) && is_blocked(SIGTERM), 1);
    sigemptyset(&set);
    IS(sigprocmask(SIG_SETMASK, &set, &set), 0);
    IS(sigismember(&set, SIGSEGV) && sigismember(&set, SIGBUS) && sigismember(&set, SIGTERM), 1);
    IS(is_blocked(SIGSEGV) || is_blocked(SIGBUS) || is_blocked(SIGTERM), 0);
}

/* A handler is called for the program's faults and for no other, whenever it was installed. */
void own_handlers(void) {
    install(SIGBUS, mend, SA_SIGINFO | SA_RESTART);
    bad_send();
    is_installed(SIGBUS, mend, SA_SIGINFO | SA_RESTART);
    touch();
    IS(calls, 1);
    IS(address == page.at + PAGE, 1);
    IS(code > 0, 1);
    IS(inside, 3);
    IS(is_blocked(SIGBUS) + is_blocked(SIGUSR1), 0);
    page.file = 0;
    install(SIGSEGV, mend, SA_SIGINFO | SA_NODEFER);
    is_installed(SIGSEGV, mend, SA_SIGINFO | SA_NODEFER);
    IS(kill(getpid(), SIGSEGV), 0);
    IS(calls, 2);
    IS(code, SI_USER);
    IS(inside, 2);
    bad_send();
    IS(calls, 2);
    /* signal() installs a handler and returns the old one. */
    IS((void *)signal(SIGSEGV, count) == (void *)mend, 1);
    raise(SIGSEGV);
    IS(calls, 3);
    bad_send();
    IS((void *)signal(SIGSEGV, SIG_DFL) == (void *)count, 1);
    is_installed(SIGSEGV, (void *)SIG_DFL, SA_RESTART);
    bad_send();
    IS(calls, 3);
    FAILS(sigaction(SIGKILL, &(struct sigaction){0}, NULL), EINVAL);
    FAILS((long)signal(SIGKILL, count), EINVAL);
}

static void twice(void) {
    touch();
    touch();
}

static void dies(void) {
    bad_send();
    install(SIGBUS, mend, SA_SIGINFO | SA_RESETHAND);
    bad_send();
    touch();
    IS(calls, 1);
    is_installed(SIGBUS, (void *)SIG_DFL, SA_SIGINFO | SA_RESETHAND);
    bad_send();
    touch();
}

static void overflows(void) {
    volatile char big[1024];
    big[0] = 1;
    overflows();
    big[1] = big[0];
}

static void overflowed(int signal) { _exit(signal == SIGSEGV ? 7 : 8); }

static void on_the_other_stack(void) {
    static char other[1 << 16];
    stack_t alternate = {.ss_sp = other, .ss_size = sizeof other};
    bad_send();
    IS(sigaltstack(&alternate, NULL), 0);
    install(SIGBUS, mend, SA_SIGINFO);
    touch();
    IS((char *)stack >= other && (char *)stack < other + sizeof other, 0);
    install(SIGBUS, mend, SA_SIGINFO | SA_ONSTACK);
    touch();
    IS((char *)stack >= other && (char *)stack < other + sizeof other, 1);
    bad_send();
    install(SIGSEGV, overflowed, SA_ONSTACK);
    overflows();
}

void flags(void) {
    IS(ended(dies), -SIGBUS);
    IS(ended(on_the_other_stack), 7);
    bad_send();
    IS(ended(twice), -SIGBUS);
}

/* A signal sent to a thread that blocks it waits until it is unblocked. */
void held_back(void) {
    install(SIGSEGV, mend, SA_SIGINFO);
    bad_send();
    for (int i = 0; i < 3; i++) {
        calls = 0;
        block(SIG_BLOCK, SIGSEGV);
        IS(kill(getpid(), SIGSEGV), 0);
        bad_send();
        IS(calls, 0);
        sigset_t pending;
        IS(sigpending(&pending), 0);
        IS(sigismember(&pending, SIGSEGV), 1);
        if (i < 2)
            block(SIG_UNBLOCK, SIGSEGV);
        else
            block(SIG_SETMASK, SIGUSR2);
        IS(calls, 1);
        IS(code, SI_USER);
        IS(sigpending(&pending), 0);
        IS(sigismember(&pending, SIGSEGV), 0);
    }
}

static void blocked_fault(void) {
    bad_send();
    install(SIGBUS, mend, SA_SIGINFO);
    block(SIG_BLOCK, SIGBUS);
    touch();
}

static void again(int signal) {
    (void)signal;
    if (calls++ > 0)
        _exit(9);
    *(volatile char *)(page.at + PAGE) = 1;
}

static void fault_in_handler(void) {
    bad_send();
    install(SIGBUS, again, 0);
    touch();
}

static void fault_in_handler_that_may(void) {
    bad_send();
    install(SIGBUS, again, SA_NODEFER);
    touch();
}

/* A fault while its signal is blocked ends the process. */
void ends_blocked(void) {
    IS(ended(blocked_fault), -SIGBUS);
    IS(ended(fault_in_handler), -SIGBUS);
    IS(ended(fault_in_handler_that_may), 9);
}

static void ignores(void) {
    bad_send();
    signal(SIGBUS, SIG_IGN);
    IS(kill(getpid(), SIGBUS), 0);
    bad_send();
    touch();
}

static void killed(void) {
    bad_send();
    kill(getpid(), SIGSEGV);
}

void ignored(void) {
    IS(ended(ignores), -SIGBUS);
    IS(ended(killed), -SIGSEGV);
    signal(SIGBUS, SIG_IGN);
    IS(ended(ignores), -SIGBUS);
}

static void sends_badly(int signal) {
    (void)signal;
    calls++;
    bad_send();
}

/* A handler that runs with everything blocked, by its own mask or a wait's, sends from a bad
 * page. */
void masks_of_waits(void) {
    sigset_t all;
    sigfillset(&all);
    struct sigaction action = {.sa_handler = sends_badly, .sa_mask = all};
    IS(sigaction(SIGUSR1, &action, NULL), 0);
    bad_send();
    raise(SIGUSR1);
    IS(calls, 1);
    IS(sigaction(SIGUSR1, NULL, &action), 0);
    IS(sigismember(&action.sa_mask, SIGSEGV) && sigismember(&action.sa_mask, SIGBUS), 1);
    IS(sigaction(SIGUSR1, &action, NULL), 0);
    raise(SIGUSR1);
    IS(calls, 2);
    sigset_t but = all;
    sigdelset(&but, SIGUSR1);
    struct timespec long_time = {.tv_sec = 60};
    int set = epoll_create1(0);
    struct epoll_event event;
    for (int i = 0; i < 4; i++) {
        block(SIG_BLOCK, SIGUSR1);
        raise(SIGUSR1);
        switch (i) {
        case 0:
            FAILS(ppoll(NULL, 0, &long_time, &but), EINTR);
            break;
        case 1:
            FAILS(pselect(0, NULL, NULL, NULL, &long_time, &but), EINTR);
            break;
        case 2:
            FAILS(epoll_pwait(set, &event, 1, 60000, &but), EINTR);
            break;
        default:
            FAILS(sigsuspend(&but), EINTR);
        }
        IS(calls, 3 + i);
        block(SIG_UNBLOCK, SIGUSR1);
        IS(is_blocked(SIGSEGV), 0);
    }
    bad_send();
}

static void *sends_one(void *nothing) {
    usleep(20000);
    IS(kill(getpid(), SIGSEGV), 0);
    return nothing;
}

/* sigwait takes a signal, whether it was sent before or comes later. */
void waited_for(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGSEGV);
    sigaddset(&set, SIGUSR2);
    bad_send();
    IS(sigprocmask(SIG_BLOCK, &set, NULL), 0);
    siginfo_t info;
    int signal = 0;
    IS(kill(getpid(), SIGSEGV), 0);
    IS(sigwait(&set, &signal), 0);
    IS(signal, SIGSEGV);
    pthread_t thread;
    for (int i = 0; i < 10; i++) {
        IS(pthread_create(&thread, NULL, sends_one, NULL), 0);
        IS(sigwaitinfo(&set, &info), SIGSEGV);
        IS(info.si_code, SI_USER);
        IS(pthread_join(thread, NULL), 0);
    }
    struct timespec soon = {.tv_nsec = 1000};
    FAILS(sigtimedwait(&set, &info, &soon), EAGAIN);
    IS(kill(getpid(), SIGUSR2), 0);
    IS(sigtimedwait(&set, &info, &soon), SIGUSR2);
    bad_send();
}

static void runs(void) { execl("/proc/self/exe", "program", "found", NULL); }

static void runs_with(void) {
    char *arguments[] = {"program", "found", NULL};
    execv("/proc/self/exe", arguments);
}

static int vforked(void) {
    char *arguments[] = {"program", "found", NULL};
    pid_t pid = vfork();
    if (pid == 0) {
        execve("/proc/self/exe", arguments, environ);
        _exit(99);
    }
    int status = 0;
    IS(waitpid(pid, &status, 0), pid);
    return WEXITSTATUS(status);
}

static int spawned(sigset_t *mask) {
    char *arguments[] = {"program", "found", NULL};
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    if (mask) {
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
        posix_spawnattr_setsigmask(&attributes, mask);
    }
    pid_t pid;
    IS(posix_spawn(&pid, "/proc/self/exe", NULL, mask ? &attributes : NULL, arguments, environ), 0);
    int status = 0;
    IS(waitpid(pid, &status, 0), pid);
    return WEXITSTATUS(status);
}

/* A program that is started finds what its starter has set. */
void passed_on(void) {
    bad_send();
    IS(ended(runs), 8);
    IS(vforked(), 8);
    block(SIG_BLOCK, SIGSEGV);
    IS(ended(runs), 8 + 2);
    IS(ended(runs_with), 8 + 2);
    IS(vforked(), 8 + 2);
    IS(spawned(NULL), 8 + 2);
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGBUS);
    IS(spawned(&mask), 8 + 4);
    bad_send();
    signal(SIGSEGV, SIG_IGN);
    IS(ended(runs), 1 + 2);
    IS(ended(runs_with), 1 + 2);
    IS(vforked(), 1 + 2);
    bad_send();
    FAILS(execl("/nothing/here", "nothing", NULL), ENOENT);
    IS(is_blocked(SIGSEGV), 1);
    bad_send();
}

static sigjmp_buf out;

static void leaves(int signal) {
    (void)signal;
    siglongjmp(out, 1);
}

/* A handler that jumps out of the middle of a copy leaves no guard, and no signal blocked,
 * behind. */
void jumps(void) {
    int ends[2];
    install(SIGSEGV, leaves, 0);
    install(SIGBUS, leaves, 0);
    bad_send();
    for (volatile int i = 0; i < 100; i++) {
        if (sigsetjmp(out, 1) == 0) {
            *(volatile char *)NOWHERE = 1;
            IS(0, 1);
        }
        if (sigsetjmp(out, 1) == 0)
            touch();
        IS(is_blocked(SIGSEGV) + is_blocked(SIGBUS), 0);
        if (page.at)
            munmap(page.at, 2 * PAGE), close(page.file);
        bad_send();
    }
    /* Out of the middle of calls, wherever they are: of each socket the calls may fail from then
     * on, and nothing else. */
    install(SIGALRM, leaves, 0);
    static char octets[8 << 20];
    for (volatile int i = 0; i < 5; i++) {
        pid_t pid = 0;
        connection(ends);
        if ((pid = fork()) == 0) {
            static char drain[1 << 16];
            close(ends[0]);
            while (recv(ends[1], drain, sizeof drain, 0) > 0)
                ;
            _exit(0);
        }
        close(ends[1]);
        if (sigsetjmp(out, 1) == 0) {
            ualarm(1000 + 300 * i, 0);
            for (;;)
                send(ends[0], octets, sizeof octets, MSG_NOSIGNAL);
        }
        kill(pid, SIGKILL);
        IS(waitpid(pid, NULL, 0), pid);
        close(ends[0]);
        if (sigsetjmp(out, 1) == 0)
            touch();
        bad_send();
    }
}

static struct cut within;
static int pair[2];

static void calls_us(int signal) {
    (void)signal;
    int before = errno;
    calls++;
    FAILS(send(pair[0], within.at, PAGE, MSG_DONTWAIT), EFAULT);
    errno = before;
}

/* A handler that sends from a bad page, in the middle of sends that meet one too. */
void nested(void) {
    struct sigaction action = {.sa_handler = calls_us, .sa_flags = SA_RESTART};
    within = cut(1, 0);
    connection(pair);
    IS(sigaction(SIGALRM, &action, NULL), 0);
    ualarm(200, 200);
    for (int i = 0; i < 300 || calls < 20; i++)
        bad_send();
    ualarm(0, 0);
    exchange(pair);
}

/* The form that the kernel takes. */
struct raw_action {
    void *handler;
    unsigned long flags;
    void *restorer;
    uint64_t mask;
};

static int raw_sigaction(int signal, const void *new, void *old) {
    return syscall(SYS_rt_sigaction, signal, new, old, sizeof(uint64_t));
}

static int raw_mask(int how, const void *new, void *old) {
    return syscall(SYS_rt_sigprocmask, how, new, old, sizeof(uint64_t));
}

static uint64_t bit(int signal) { return (uint64_t)1 << (signal - 1); }

/* Handlers and masks by way of syscall are those of the functions. */
void raw_calls(void) {
    struct raw_action action, found;
    uint64_t all = ~(uint64_t)0, before = 0, now = 0;
    bad_send();
    IS(raw_mask(SIG_BLOCK, &all, &before), 0);
    IS(before, 0);
    bad_send();
    IS(is_blocked(SIGSEGV) && is_blocked(SIGBUS) && is_blocked(SIGUSR2), 1);
    IS(raw_mask(SIG_SETMASK, NULL, &now), 0);
    IS(now & bit(SIGSEGV) & ~bit(SIGKILL), bit(SIGSEGV));
    IS(raw_mask(SIG_SETMASK, &before, NULL), 0);
    IS(is_blocked(SIGSEGV) || is_blocked(SIGUSR2), 0);
    FAILS(raw_mask(SIG_BLOCK, NOWHERE, NULL), EFAULT);
    FAILS(raw_mask(77, &all, NULL), EINVAL);
    FAILS(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, NULL, sizeof all - 1), EINVAL);

    /* A handler of another signal, which gives us what a raw one returns by. */
    struct sigaction usual = {.sa_handler = sends_badly};
    IS(sigaction(SIGUSR1, &usual, NULL), 0);
    IS(raw_sigaction(SIGUSR1, NULL, &action), 0);
    IS(action.handler == (void *)sends_badly, 1);
    action.mask = all;
    IS(raw_sigaction(SIGUSR1, &action, NULL), 0);
    calls = 0;
    raise(SIGUSR1);
    IS(calls, 1);
    IS(raw_sigaction(SIGUSR1, NULL, &found), 0);
    IS(found.mask & bit(SIGSEGV) & bit(SIGSEGV), bit(SIGSEGV));

    action = (struct raw_action){(void *)mend, action.flags | SA_SIGINFO, action.restorer, bit(SIGUSR1)};
    IS(raw_sigaction(SIGBUS, &action, NULL), 0);
    IS(raw_sigaction(SIGBUS, NULL, &found), 0);
    IS(found.handler == (void *)mend && found.mask == action.mask, 1);
    is_installed(SIGBUS, mend, SA_SIGINFO);
    for (int i = 1; i < 3; i++) {
        touch();
        IS(calls, i + 1);
        IS(inside, 3);
        bad_send();
    }
    FAILS(raw_sigaction(SIGBUS, NOWHERE, NULL), EFAULT);
    FAILS(raw_sigaction(SIGKILL, &action, NULL), EINVAL);
    FAILS(syscall(SYS_rt_sigaction, SIGBUS, &action, NULL, sizeof all + 1), EINVAL);

    /* A held signal ends the wait. */
    uint64_t one = bit(SIGSEGV);
    siginfo_t info;
    IS(raw_mask(SIG_BLOCK, &one, NULL), 0);
    IS(kill(getpid(), SIGSEGV), 0);
    IS(syscall(SYS_rt_sigpending, &now, sizeof now), 0);
    IS(now, one);
    IS(syscall(SYS_rt_sigtimedwait, &one, &info, NULL, sizeof one), SIGSEGV);
    IS(raw_mask(SIG_UNBLOCK, &one, NULL), 0);
    bad_send();
}

/* Masks that are not there. */
void bad_masks(void) {
    struct timespec now = {0};
    struct epoll_event event;
    siginfo_t info;
    int set = epoll_create1(0);
    bad_send();
    FAILS(ppoll(NULL, 0, &now, NOWHERE), EFAULT);
    FAILS(pselect(0, NULL, NULL, NULL, &now, NOWHERE), EFAULT);
    FAILS(epoll_pwait(set, &event, 1, 0, NOWHERE), EFAULT);
    FAILS(sigsuspend(NOWHERE), EFAULT);
    FAILS(sigtimedwait(NOWHERE, &info, &now), EFAULT);
    bad_send();
}

/* A signal that is let through and ignored interrupts no wait, but for epoll's, which the kernel
 * never restarts. */
void ignored_in_waits(void) {
    sigset_t none, pending;
    struct timespec soon = {.tv_nsec = 1000000};
    sigemptyset(&none);
    bad_send();
    IS(signal(SIGSEGV, SIG_IGN) != SIG_ERR, 1);
    block(SIG_BLOCK, SIGSEGV);
    for (int i = 0; i < 2; i++) {
        IS(kill(getpid(), SIGSEGV), 0);
        IS(sigpending(&pending), 0);
        IS(sigismember(&pending, SIGSEGV), 1);
        if (i == 0)
            IS(ppoll(NULL, 0, &soon, &none), 0);
        else
            IS(pselect(0, NULL, NULL, NULL, &soon, &none), 0);
        IS(sigpending(&pending), 0);
        IS(sigismember(&pending, SIGSEGV), 0);
    }
    bad_send();
}
