/* An independent trainer: trains a run again in double precision from the run's step_00000000,
 * `trace` and the sequences. The model and its gradients are
 * tests/support/reference/reference_model, the rules of training
 * tests/support/reference/reference_training; this folder reads the files, rebuilds the chunks and
 * makes the initial weights. It calls nothing of common/, kernels/ or trainer/. test_oracle.sh
 * holds real runs against it.
 *
 * Everything here ends the process on bad input. */
#ifndef PLM_TESTS_INTEGRATION_ORACLE_H
#define PLM_TESTS_INTEGRATION_ORACLE_H

#include "tests/support/reference/reference_model.h"
#include "tests/support/reference/reference_training.h"

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
  struct plm_config
      config; /* seed and trainer from settings, model from step_00000000/config.json */
  struct reference_rules rules;
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
  struct reference_masks masks;
  float *weights;   /* of the masks' rows */
  double mask_rate; /* mean over the chunks */
  double padding_fraction;
};

/* ---- oracle_files.c: what is read ---- */

void oracle_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void *oracle_memory(size_t count, size_t size); /* zeroed */
double oracle_number(const struct oracle *o, const char *key);
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
void oracle_initialise(struct oracle *o, uint64_t seed);

/* ---- oracle_batch.c: a step's chunks and masks ---- */

void oracle_step_open(struct oracle *o, uint64_t s, struct oracle_step *step);
void oracle_step_close(struct oracle_step *step);

#endif
