/* An independent trainer: a run done again in double precision from model.md's formulas, the run's
 * step_00000000, `trace` and the sequences. It shares no code with common/model, common/plan,
 * kernels/ or trainer/: the model and its gradients are tests/support/reference_model, the rest is
 * here. test_oracle.sh holds real runs against it.
 *
 * A planted fault makes it deviate from the page in one place, to show that the comparison sees
 * it. Everything ends the process on bad input: this is a test's tool. */
#ifndef PLM_TESTS_INTEGRATION_ORACLE_H
#define PLM_TESTS_INTEGRATION_ORACLE_H

#include "tests/support/reference_model.h"

enum oracle_fault {
  ORACLE_NO_FAULT,
  ORACLE_FAULT_SEED,        /* initial weights of the next seed */
  ORACLE_FAULT_POSITION,    /* masks drawn one position further */
  ORACLE_FAULT_CHUNK,       /* masks drawn for the next chunk of the run */
  ORACLE_FAULT_RESIDUE,     /* random residues from word 3 */
  ORACLE_FAULT_RATE,        /* masked_diffusion's draw of the next step */
  ORACLE_FAULT_VALUE_MIX,   /* no gradient into the value embeddings */
  ORACLE_FAULT_NESTEROV,    /* plain momentum */
  ORACLE_FAULT_CORRECTION,  /* Adam without bias correction */
  ORACLE_FAULT_LAST_TARGET, /* causal: no target for <eos> */
};

struct oracle_parameter {
  char name[96];
  int64_t rows, cols; /* a vector has rows 1 */
  bool vector;
  int64_t count;
  double *value, *gradient, *first, *second, *average; /* count each */
  float *initial;
};

struct oracle_sequence {
  char *name;     /* first word of the header */
  char *residues; /* capital letters */
};

struct cJSON;
struct oracle {
  const char *run;        /* the run folder */
  struct cJSON *settings; /* of `plm-pipeline config --json` */
  enum oracle_fault fault;
  uint64_t seed;
  struct plm_model_config model; /* of step_00000000/config.json */
  struct oracle_parameter *parameters;
  size_t parameter_count;
  struct oracle_sequence *sequences; /* of the training split, by number */
  size_t sequence_count;
  struct cJSON **trace; /* a chunk each, in the run's order */
  size_t trace_count;
  uint64_t tokens; /* real ones of all steps so far */
};

/* The chunks of one step with their masks. */
struct oracle_step {
  struct plm_batch batch;
  uint8_t *tokens; /* (B, L) */
  struct plm_chunk_document *documents;
  uint32_t *document_begin;
  int32_t *inputs, *positions, *labels;
  float *weights;
  uint32_t rows;
  uint64_t count;   /* divisor of loss and gradients */
  double mask_rate; /* mean over the chunks */
  double padding_fraction;
};

/* ---- oracle_files.c: what is read ---- */

void oracle_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void *oracle_memory(size_t count, size_t size); /* zeroed */
double oracle_number(const struct oracle *o, const char *key);
bool oracle_setting_is(const struct oracle *o, const char *key, const char *value);
double oracle_beta(const struct oracle *o, int i);
void oracle_read_settings(struct oracle *o, const char *path);
void oracle_read_model(struct oracle *o);
void oracle_read_sequences(struct oracle *o, const char *fasta);
void oracle_read_trace(struct oracle *o, const char *path);
/* JSON objects, one a line, of path; the caller keeps them. */
struct cJSON **oracle_read_lines(const char *path, size_t *count);
/* The F32 tensors of RUN/checkpoints/step_…/FILE, one for each parameter and no other, the shapes
 * as in the parameter table: values[i] belongs to parameter i and is freed by the caller. */
void oracle_read_weights(const struct oracle *o, unsigned step, const char *file, float **values);

/* ---- oracle_model.c: parameters and their initial values ---- */

void oracle_list_parameters(struct oracle *o);
void oracle_initialise(struct oracle *o);

/* ---- oracle_batch.c: Philox, chunks, masks ---- */

struct oracle_words {
  uint32_t w[4];
};
struct oracle_words oracle_philox(uint64_t seed, uint32_t x, uint64_t y, uint32_t purpose);
void oracle_step_open(struct oracle *o, uint64_t s, struct oracle_step *step);
void oracle_step_close(struct oracle_step *step);

/* ---- oracle_update.c: schedules and optimizers ---- */

double oracle_rate_factor(const struct oracle *o, uint64_t s);
uint32_t oracle_window(const struct oracle *o, uint64_t s);
/* "trainer.optimizer.lr_…" of the parameter's group */
const char *oracle_rate_key(const struct oracle_parameter *parameter);
/* Gradients are divided and clipped. */
void oracle_update(struct oracle *o, uint64_t s);

#endif
