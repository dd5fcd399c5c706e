/* Reads calls of rdsi_next and rdsi_over from standard input, and prints what they decided.
 * usage: patience STRATEGY WINDOW; lines: "n TIME" and "o TIME". */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "patience.h"

int main(int argc, char **argv)
{
	struct rdsi_patience p;
	char what;
	int64_t now;
	if (argc != 3)
		return 2;
	rdsi_patience_init(&p, (enum rds_way)atoi(argv[1]), atoll(argv[2]));
	while (scanf(" %c %" SCNd64, &what, &now) == 2) {
		if (what == 'n')
			printf("%d\n", (int)rdsi_next(&p, now));
		else
			rdsi_over(&p, now);
	}
	printf("%d %" PRId64 " %" PRId64 "\n", p.ways.look, p.ways.mean[0], p.ways.mean[1]);
	return 0;
}
