/* A job: checking what a packer answered, and planning a window from proven lengths. This is most
 * of the feed's work, so it is done by threads of its own. A job reads only what is in it and what
 * never changes. */
#ifndef PLM_COMMON_FEED_FEED_JOB_H
#define PLM_COMMON_FEED_FEED_JOB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <zmq.h>

#include "common/base/status.h"
#include "common/corpus/corpus.h"
#include "common/wire/data.h"
#include "common/wire/tables.h"

/* A window of an epoch: first the tables that were proven, then what follows from them. */
struct feed_planned {
  atomic_uint references;
  /* never changes */
  const struct plm_plan *plan;
  const struct plm_proof_split *split;
  const struct plm_tokenizer *tokenizer;
  const struct plm_label_schema *schema; /* of the labels; NULL: none */
  uint64_t epoch, index;                 /* the window */
  uint32_t groups;                       /* of the plan, in the window */
  uint64_t tokens; /* of the split before the window; only with a token limit */
  /* a job's until the window is planned; then nobody's */
  struct plm_tables tables;
  struct plm_window window;
  struct plm_proof_digest *digests; /* (window.document_count) of each document's sequence */
  struct plm_proof_digest *labels;  /* the same of each document's label record; or NULL */
  uint64_t *offset;                 /* (window.chunks + 1) in the payload of all chunks */
  uint64_t tokens_after;            /* `tokens` of the next window */
  bool complete;                    /* the window is planned */
  bool last;                        /* of the epoch */
};
/* With one reference. */
struct feed_planned *feed_planned_open(const struct feed_planned *of);
void feed_planned_hold(struct feed_planned *planned);
void feed_planned_release(struct feed_planned *planned); /* any thread */

struct feed_state;
struct feed_job {
  struct feed_job *next;        /* in a queue */
  struct feed_state *feed;      /* that waits for it */
  struct feed_planned *planned; /* held */
  bool tables;                  /* PROOF, else DATA */
  uint32_t first, count;        /* chunks of the window; of PROOF, its groups */
  zmq_msg_t payload;
  uint64_t packer_id; /* who sent it */
  char name[96];
  /* the result */
  struct plm_error error; /* PLM_CORRUPT, PLM_PROTOCOL: the answer is false */
  uint64_t real_tokens;   /* of DATA */
};
/* Does the job. scratch: the thread's. */
void feed_job_do(struct feed_job *job, struct plm_data_scratch *scratch);
/* Releases what it holds. */
void feed_job_free(struct feed_job *job);

#endif
