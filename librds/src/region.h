/* What region.c needs of socket.c. */
#ifndef RDSI_REGION_H
#define RDSI_REGION_H

#include "int.h"

/* rdsi_put_expose writes the body of Expose and returns its length. */
uint32_t rdsi_put_expose(uint8_t *body, uint32_t region, const struct rds_addr *peer);

#endif
