/* The folder of a run whose checkpoints say what it has consumed. */
#ifndef PLM_TESTS_SUPPORT_CORPORA_CHAINED_RUN_H
#define PLM_TESTS_SUPPORT_CORPORA_CHAINED_RUN_H

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "common/base/files/file.h"
#include "common/base/numbers/hash.h"
#include "common/config/config.h"
#include "common/corpus/corpus.h"

enum { CHAINED_CORPORA = 2, CHAINED_CHUNKS = 3 /* of a step */ };

extern char chained_run[PLM_PATH_SIZE], chained_checkpoints[PLM_PATH_SIZE];
extern struct plm_corpus *chained_corpora[CHAINED_CORPORA];

/* For all tests of a program, and a new folder for each. */
int chained_open_corpora(void **state);
int chained_close_corpora(void **state);
int chained_setup(void **state);

/* The configuration of a run on the first `count` corpora; as a list if it says so. */
void chained_configure(int count, bool listed, struct plm_config *config);

/* What the trainer has consumed of a run. */
struct chained_consumed {
  const struct plm_config *config;
  struct plm_hash chain;
  uint64_t steps, chunks, of[CHAINED_CORPORA];
};

/* Trains until a step. mixed: chunks are hashed with their sources. */
void chained_train(struct chained_consumed *consumed, uint64_t until, bool mixed);
/* Trains until a step, which has a checkpoint; sources: 0: the run is no mixture. */
void chained_train_and_save(struct chained_consumed *consumed, uint64_t step, int sources);

struct plm_hash chained_fingerprint(int k);
void chained_put_hash(cJSON *json, const char *name, struct plm_hash hash);
/* The cursor of a checkpoint, as the trainer writes it. */
cJSON *chained_cursor_of(const struct chained_consumed *consumed, int sources);
/* Take over the cursor. */
void chained_write_state(const char *folder, uint64_t step, cJSON *cursor);
void chained_write_checkpoint(uint64_t step, cJSON *cursor);
void chained_remove_checkpoint(uint64_t step);

#endif
