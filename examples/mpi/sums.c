/*
 * sums - an MPI job that checks every byte. Each round every rank sends one message of each size around the ring, adds up a number
 * of all ranks, exchanges a block with every other rank, and adds to a counter in rank 0's memory. It ends after a number of seconds.
 *
 *   mpicc -O2 -o sums sums.c && mpirun -np 4 ./sums 30
 *
 * Rank 0 prints a line every few seconds. The status is 1 if a byte or a sum was wrong.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 1 << 20, BLOCK = 4096, EVERY = 5 };
static const int sizes[] = {1, 64, 4000, 65536, 65537, LARGEST};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static int rank, ranks;
static unsigned char *out, *in;

/* fill writes the bytes that rank from sends in a round, and wrong counts those that are others. */
static void fill(unsigned char *b, size_t n, long round, int from)
{
	for (size_t i = 0; i < n; i++)
		b[i] = (unsigned char)(i * 7 + i / 251 + (size_t)round * 13 + (size_t)from);
}

static long wrong(const unsigned char *b, size_t n, long round, int from)
{
	long bad = 0;
	for (size_t i = 0; i < n; i++)
		bad += b[i] != (unsigned char)(i * 7 + i / 251 + (size_t)round * 13 + (size_t)from);
	return bad;
}

/* ring sends a message of each size to the next rank and checks that of the previous one. */
static long ring(long round)
{
	long bad = 0;
	int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
	for (int i = 0; i < SIZES; i++) {
		MPI_Request q[2];
		fill(out, (size_t)sizes[i], round + i, rank);
		memset(in, 0, (size_t)sizes[i]);
		MPI_Irecv(in, sizes[i], MPI_BYTE, from, i, MPI_COMM_WORLD, &q[0]);
		MPI_Isend(out, sizes[i], MPI_BYTE, to, i, MPI_COMM_WORLD, &q[1]);
		MPI_Waitall(2, q, MPI_STATUSES_IGNORE);
		bad += wrong(in, (size_t)sizes[i], round + i, from);
	}
	return bad;
}

/* together has all ranks add a number and exchange blocks. */
static long together(long round)
{
	long mine = round * (rank + 1), sum = 0, bad;
	MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	bad = sum != round * ranks * (ranks + 1) / 2;
	for (int i = 0; i < ranks; i++)
		fill(out + (size_t)i * BLOCK, BLOCK, round + i, rank);
	MPI_Alltoall(out, BLOCK, MPI_BYTE, in, BLOCK, MPI_BYTE, MPI_COMM_WORLD);
	for (int i = 0; i < ranks; i++)
		bad += wrong(in + (size_t)i * BLOCK, BLOCK, round + rank, i);
	return bad;
}

/* go tells all ranks whether there is another round, and reports. Rank 0 decides. */
static int go(double start, double seconds, long rounds, long bad)
{
	static double next = EVERY;
	double t = MPI_Wtime() - start;
	int more = t < seconds;
	if (!rank && t >= next) {
		printf("  %3.0f s: %ld rounds, %s\n", t, rounds, bad ? "wrong" : "all sums right");
		fflush(stdout);
		next += EVERY;
	}
	MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
	return more;
}

int main(int argc, char **argv)
{
	long rounds = 0, bad = 0, one = 1, *counter, bytes = 0;
	double seconds = argc > 1 ? atof(argv[1]) : 10, start;
	MPI_Win window;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	size_t room = (size_t)ranks * BLOCK > LARGEST ? (size_t)ranks * BLOCK : LARGEST;
	out = malloc(room);
	in = malloc(room);
	if (!out || !in || seconds <= 0) {
		fprintf(stderr, "sums: usage: sums [SECONDS], more than 0; each rank takes 2 MiB\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	MPI_Win_allocate(sizeof *counter, sizeof *counter, MPI_INFO_NULL, MPI_COMM_WORLD, &counter, &window);
	*counter = 0;
	MPI_Win_fence(0, window);
	for (start = MPI_Wtime(); go(start, seconds, rounds, bad); rounds++) {
		bad += ring(rounds) + together(rounds);
		MPI_Accumulate(&one, 1, MPI_LONG, 0, 0, 1, MPI_LONG, MPI_SUM, window);
		MPI_Win_fence(0, window);
		MPI_Allreduce(MPI_IN_PLACE, &bad, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
	}
	if (!rank)
		bad += *counter != rounds * ranks;
	for (int i = 0; i < SIZES; i++)
		bytes += sizes[i];
	bytes += (ranks - 1) * BLOCK;
	if (!rank)
		printf("ended: %d ranks, %ld rounds, %.0f MB checked, %ld wrong\n", ranks, rounds, (double)bytes * rounds * ranks / 1e6, bad);
	fflush(stdout);
	MPI_Win_free(&window);
	MPI_Bcast(&bad, 1, MPI_LONG, 0, MPI_COMM_WORLD);
	MPI_Finalize();
	return bad != 0;
}
