/* Memory that the program has and the daemon maps, too: rds_adopt. */
#ifndef RDSI_ADOPT_H
#define RDSI_ADOPT_H

#include "buffer.h"

/* rdsi_adopt_end makes the memory of an adopted buffer private again, where no other adopted
 * buffer has it. */
void rdsi_adopt_end(rds_buffer *b);

/* What a fork does to adopted memory. The three are called around it. */
void rdsi_adopt_before_fork(void);
void rdsi_adopt_after_fork(void);
void rdsi_adopt_in_child(void);

#endif
