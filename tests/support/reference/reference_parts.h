/* What the two files of the reference model share. */
#ifndef PLM_TESTS_SUPPORT_REFERENCE_REFERENCE_PARTS_H
#define PLM_TESTS_SUPPORT_REFERENCE_REFERENCE_PARTS_H

#include "tests/support/reference/reference_model.h"

struct level {
  int64_t length, width;
  int32_t *ids; /* (B, length): document in its chunk, from 1; padding repeats the last */
  bool *real;
  struct tensor *x0;
};

struct reference {
  const struct reference_request *request;
  const struct plm_model_config *config;
  struct tape *tape;
  struct tensor **leaves; /* one for each parameter, made when it is first used */
  int64_t B, L, H;
  struct level levels[32];
  int level_count;
  int executed; /* blocks executed so far, for the attention pattern */
  struct tensor *embedding;
  void *scratch[512]; /* masks */
  size_t scratch_count;
};

/* NULL if there is no parameter of this name. */
struct tensor *reference_parameter_of(struct reference *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* (B, L, L): the keys that each query may see, by plm_attention_kind bits. */
bool *reference_mask(struct reference *r, const struct level *level, unsigned kinds);

/* ESM-2 and ESM-C: the state after the last norm, (B L, D), and the logits of the targets' rows. */
struct tensor *reference_published_hidden(struct reference *r);
struct tensor *reference_published_head(struct reference *r, struct tensor *hidden);

#endif
