/* Questions to the daemon's control service. */
#ifndef PRE_ASK_H
#define PRE_ASK_H

#include <stddef.h>

/* pre_ask asks the daemon at path (NULL: not said), and stores its answer, which the caller frees. Errors: -EACCES,
 * -ETIMEDOUT, -ECONNREFUSED no daemon answers, -EPROTO, -ENOMEM. */
int pre_ask(const char *path, const char *request, char **answer, size_t *len);

#endif
