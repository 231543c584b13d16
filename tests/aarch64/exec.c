/* Calls the variadic functions that start a program, with arguments in registers alone and on
 * the stack as well. The program started is the host's, which an emulator can start. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define IN_CHILD(call)                                                                                                 \
    do {                                                                                                               \
        int status = -1;                                                                                               \
        pid_t pid = fork();                                                                                            \
        if (pid == 0) {                                                                                                \
            call;                                                                                                      \
            _exit(99);                                                                                                 \
        }                                                                                                              \
        waitpid(pid, &status, 0);                                                                                      \
        printf("%s: %d\n", #call, status);                                                                             \
        fflush(stdout);                                                                                                \
    } while (0)

int main(void) {
    char *environment[] = {"A=1", "B=2", NULL};
    char *with_nothing[] = {NULL};
    setvbuf(stdout, NULL, _IONBF, 0);
    unsetenv("LD_PRELOAD");
    IN_CHILD(execl("/bin/echo", "echo", NULL));
    IN_CHILD(execl("/bin/echo", "echo", "1", "2", "3", "4", "5", NULL));
    IN_CHILD(execl("/bin/echo", "echo", "1", "2", "3", "4", "5", "6", NULL));
    IN_CHILD(execl("/bin/echo", "echo", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", NULL));
    IN_CHILD(execlp("echo", "echo", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", NULL));
    IN_CHILD(execle("/usr/bin/env", "env", NULL, environment));
    IN_CHILD(execle("/usr/bin/env", "env", "C=3", "D=4", "E=5", "F=6", "G=7", "H=8", "I=9", NULL, environment));
    IN_CHILD(execle("/usr/bin/env", "env", "C=3", "D=4", "E=5", "F=6", NULL, with_nothing));
    IN_CHILD(execl("/nothing/here", "nothing", NULL));
    return 0;
}
