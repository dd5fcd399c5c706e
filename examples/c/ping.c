/* Round trips, one message at a time.
 *
 *	echo -bind 10.0.0.1:4001
 *	ping -bind 10.0.0.2:0 -to 10.0.0.1:4001 10000
 */
#include <time.h>

#include "example.h"

static double now_us(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

int main(int argc, char **argv)
{
	struct example e = example_open(argc, argv);
	int n = e.nargs ? atoi(e.args[0]) : 1000;
	double least = 1e9, sum = 0;
	if (!e.is_client || n < 1)
		must(-EINVAL, "ping -to ADDR:PORT [COUNT]; echo is the server");
	must(rds_set_option(e.socket, RDS_OPT_RCVTIMEO, 5000), "rds_set_option");
	for (int i = 0; i < n; i++) {
		int got = -1;
		double start = now_us(), took;
		must(rds_send(e.socket, &i, sizeof i, &e.to, 0), "rds_send");
		must(rds_recv(e.socket, &got, sizeof got, NULL, 0), "no answer");
		took = now_us() - start;
		if (got != i)
			must(-EBADMSG, "a wrong answer");
		sum += took;
		least = took < least ? took : least;
	}
	printf("%d round trips: min %.1f us, mean %.1f us\n", n, least, sum / n);
	example_close(&e);
	return 0;
}
