/*
 * An MPI program whose ranks exchange and sum arrays of many lengths, and with the word "atomics"
 * count at the first one. Its first rank ends with 1 if any number is wrong.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

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

int main(int argc, char **argv)
{
	long wrong = 0, all = 0;
	int me, count;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	MPI_Comm_size(MPI_COMM_WORLD, &count);
	for (int len = 1; len <= 1 << 18; len *= 8) {
		int *out = malloc(len * sizeof *out), *in = malloc(len * sizeof *in);
		int next = (me + 1) % count, last = (me + count - 1) % count;

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
	}
	if (argc > 1)
		wrong += counts(count);
	MPI_Reduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	if (me == 0)
		printf("%d ranks, %ld wrong\n", count, all);
	MPI_Finalize();
	return me == 0 && all != 0;
}
