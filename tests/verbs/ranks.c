/*
 * An MPI program whose ranks exchange and sum arrays of many lengths. Its first rank ends with 1 if
 * any number is wrong.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

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
	MPI_Reduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	if (me == 0)
		printf("%d ranks, %ld wrong\n", count, all);
	MPI_Finalize();
	return me == 0 && all != 0;
}
