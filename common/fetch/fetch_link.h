/* The fetching host's connection to the head: asks for a file part by part. */
#ifndef PLM_COMMON_FETCH_FETCH_LINK_H
#define PLM_COMMON_FETCH_FETCH_LINK_H

#include <stdint.h>

#include "common/wire/message.h"

struct plm_fetch_link;

/* Connects in the background. keys: the folder of the client's key. */
plm_status plm_fetch_link_open(const char *endpoint, const char *keys, struct plm_fetch_link **link,
                               struct plm_error *error);
void plm_fetch_link_close(struct plm_fetch_link *link); /* NULL is fine */

/* Takes the bytes of a part, which follow each other without gaps. */
typedef plm_status plm_fetch_sink(void *context, const struct plm_file_part *part,
                                  const uint8_t *bytes, struct plm_error *error);

/* Fetches a file of a corpus from from->offset on, until the sink has had all of it; from->bytes is
 * ignored. *sources receives how many corpora the run has. Waits for the head as long as it takes,
 * and says every 10 s what it waits for. Returns what the head refused with (PLM_NOT_FOUND), an
 * error of the sink, or the status of plm_stop_check(stop_consequence). */
plm_status plm_fetch_file(struct plm_fetch_link *link, const struct plm_fetch_request *from,
                          const char *stop_consequence, plm_fetch_sink *sink, void *context,
                          uint16_t *sources, struct plm_error *error);

#endif
