/*
 * An MPI program whose ranks exchange and sum arrays of many lengths, and with the word "atomics"
 * count at the first one; with the words "for ever", they exchange until they are ended. Its first
 * rank ends with 1 if any number is wrong.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns how much the counter of the first rank differs from what all have added. */
static long counts(int count)
{
	long *counter, one = 1, last, sum;
	MPI_Win window;

	MPI_Win_allocate(sizeof *counter, sizeof *counter, MPI_INFO_NULL, MPI_COMM_WORLD, &counter, &window);
	*counter = 0;
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 0; i < 10; i++) {
		MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
		MPI_Fetch_and_op(&one, &last, MPI_LONG, 0, 0, MPI_SUM, window);
		MPI_Win_unlock(0, window);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
	MPI_Fetch_and_op(&one, &sum, MPI_LONG, 0, 0, MPI_NO_OP, window);
	MPI_Win_unlock(0, window);
	MPI_Win_free(&window);
	return sum - 10 * count;
}

/* Returns how many numbers are wrong of arrays that go to the next rank, and of their sums. */
static long ring(int me, int count, int len)
{
	int *out = calloc(len, sizeof *out), *in = calloc(len, sizeof *in);
	int next = (me + 1) % count, last = (me + count - 1) % count;
	long wrong = 0;

	for (int i = 0; i < len; i++)
		out[i] = me * 31 + i;
	MPI_Sendrecv(out, len, MPI_INT, next, 1, in, len, MPI_INT, last, 1, MPI_COMM_WORLD,
		MPI_STATUS_IGNORE);
	for (int i = 0; i < len; i++)
		wrong += in[i] != last * 31 + i;
	MPI_Allreduce(out, in, len, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < len; i++)
		wrong += in[i] != 31 * (count * (count - 1) / 2) + count * i;
	free(out);
	free(in);
	return wrong;
}

/* Returns how many numbers are wrong of arrays that go from each rank to each. */
static long exchange(int me, int count, int len)
{
	int *out = calloc(len * count, sizeof *out), *in = calloc(len * count, sizeof *in);
	long wrong = 0;

	for (int i = 0; i < len * count; i++)
		out[i] = me * 1000 + i;
	MPI_Alltoall(out, len, MPI_INT, in, len, MPI_INT, MPI_COMM_WORLD);
	for (int i = 0; i < len * count; i++)
		wrong += in[i] != i / len * 1000 + me * len + i % len;
	free(out);
	free(in);
	return wrong;
}

/* Returns the number of hosts, if each has as many ranks as the next or one more, in turns. */
static int hosts(int me, int count)
{
	char own[MPI_MAX_PROCESSOR_NAME] = "", first[MPI_MAX_PROCESSOR_NAME];
	int len, others, alike, every;

	MPI_Get_processor_name(own, &len);
	memcpy(first, own, sizeof first);
	MPI_Bcast(first, sizeof first, MPI_CHAR, 0, MPI_COMM_WORLD);
	others = strcmp(own, first) ? me : count;
	MPI_Allreduce(&others, &alike, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	/* The first rank that has the first host again, or the number of ranks. */
	others = me > 0 && !strcmp(own, first) ? me : count;
	MPI_Allreduce(&others, &every, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	return alike == count ? 1 : every;
}

int main(int argc, char **argv)
{
	long wrong = 0, all = 0;
	int me, count, on;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	MPI_Comm_size(MPI_COMM_WORLD, &count);
	on = hosts(me, count);
	for (int len = 1; len <= 1 << 18; len *= 8)
		wrong += ring(me, count, len) + exchange(me, count, len);
	if (argc > 1 && !strcmp(argv[1], "for ever")) {
		if (me == 0) {
			printf("going on\n");
			fflush(stdout);
		}
		for (;;)
			ring(me, count, 1000);
	}
	if (argc > 1)
		wrong += counts(count);
	MPI_Reduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	if (me == 0)
		printf("%d ranks on %d hosts, %ld wrong\n", count, on, all);
	MPI_Finalize();
	return me == 0 && all != 0;
}
