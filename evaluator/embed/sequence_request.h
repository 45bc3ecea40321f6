/* What `embed` and `predict` are asked for alike, and the options that say it. */
#ifndef PLM_EVALUATOR_EMBED_SEQUENCE_REQUEST_H
#define PLM_EVALUATOR_EMBED_SEQUENCE_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/cli/options.h"
#include "common/sequences/sequence_reader.h"

struct plm_sequence_request {
  const char *checkpoint;
  const char *weights;       /* NULL, "model" or "ema" */
  const char *const *inputs; /* "-" is standard input */
  size_t input_count;
  const char *output;    /* a file or a stream (common/cli/output_file.h) */
  uint32_t max_length;   /* sequences are cut to so many tokens; 0: the model's max_length */
  uint32_t batch_tokens; /* in one forward pass, which has at least one chunk */
  struct plm_sequence_choices choices;
  bool strict; /* a bad record is an error */
  bool fresh;  /* discard what an earlier run has done */
  bool json;   /* print the summary as one JSON object on one line of stdout */
};

/* What differs between the commands. */
struct plm_sequence_needs {
  const struct plm_option *options;
  const char *checkpoint, *output; /* what is asked for if the option is missing */
  uint32_t batch_tokens;           /* the default */
};

/* PLM_USAGE: an option is missing or wrong. The request borrows the arguments. */
plm_status plm_sequence_request_parse(const struct plm_arguments *arguments,
                                      const struct plm_sequence_needs *needs,
                                      struct plm_sequence_request *request,
                                      struct plm_error *error);

#endif
