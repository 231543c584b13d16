/* A program of statements that are so, or it ends with the line of the one that is not. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int is_so(const char *file, int line, const char *what, long got, long wanted) {
    if (got == wanted)
        return 1;
    printf("%s, line %d: %s is %ld, not %ld (errno %s)\n", file, line, what, got, wanted, strerror(errno));
    exit(1);
}
#define IS(what, wanted) is_so(__FILE_NAME__, __LINE__, #what, (long)(what), (long)(wanted))
/* A call that fails with this errno. */
#define FAILS(what, with) (IS(what, -1), IS(errno, with))

#endif
