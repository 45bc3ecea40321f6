/* The packer as a server: it connects to consumers and answers their requests from the window
 * store. */
#ifndef PLM_PACKER_PACKER_SERVER_H
#define PLM_PACKER_PACKER_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/corpus/corpus.h"

enum { PACKER_ENDPOINTS = 16 };

struct packer_options {
  struct plm_corpus *corpus;
  const char *endpoints[PACKER_ENDPOINTS]; /* given with --connect */
  uint32_t endpoint_count;
  const char *run;  /* run folder, or NULL; its endpoints.json is used if no endpoint is given */
  const char *keys; /* folder with NAME.key and server.pub */
  const char *prometheus; /* where to serve the packer's own metrics, or NULL */
  unsigned threads;       /* workers that plan and decompress */
};

/* Serves until *stop is nonzero, then says BYE and returns PLM_OK. PLM_CORRUPT: the corpus is
 * damaged, and consumers were told so. */
plm_status packer_serve(const struct packer_options *options, const volatile int *stop,
                        struct plm_error *error);

#endif
