/* The packer as a server: it connects to consumers and answers their requests from the window
 * store. If it holds several corpora, it has a store and a connection to each consumer for each of
 * them. */
#ifndef PLM_PACKER_PACKER_SERVER_H
#define PLM_PACKER_PACKER_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/corpus/corpus.h"
#include "common/plan/mixture.h"
#include "common/run/run_pulse.h"

enum { PACKER_ENDPOINTS = 16, PACKER_CORPORA = PLM_MAX_SOURCES };

struct packer_options {
  struct plm_corpus *corpora[PACKER_CORPORA]; /* each is served to whoever asks for it */
  uint32_t corpus_count;
  const char *const *endpoints; /* (endpoint_count), given with --connect */
  uint32_t endpoint_count;
  const char *run;  /* run folder, or NULL; its endpoints.json is used if no endpoint is given */
  const char *keys; /* folder with NAME.key and server.pub */
  const char *prometheus;      /* where to serve the packer's own metrics, or NULL */
  unsigned threads;            /* workers that plan and decompress, for each corpus */
  struct plm_run_pulse *pulse; /* for signs of life; {0} unless a supervisor started this process */
};

/* Serves until *stop is nonzero, then says BYE and returns PLM_OK. PLM_CORRUPT: the corpus is
 * damaged, and consumers were told so. */
plm_status packer_serve(const struct packer_options *options, const volatile int *stop,
                        struct plm_error *error);

#endif
