/* The resolved configuration: pipeline.yaml, PLM_* variables, flags and defaults combined.
 *
 * The table in settings.c (key, type, unit, default, range, on-resume, help) drives parsing,
 * validation, `plm-pipeline config`, --set, the environment and doc/configuration.md. This struct
 * holds the values. It owns its strings, which plm_config_deinit frees.
 *
 * Relative paths in a file are relative to that file's folder, those from flags and variables to
 * the working directory. After loading, all paths are absolute.
 */
#ifndef PLM_COMMON_CONFIG_CONFIG_H
#define PLM_COMMON_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/corpus/corpus.h"
#include "common/corpus/tokenizer.h"
#include "common/model/freeze.h"
#include "common/model/model_config.h"
#include "common/ops/device.h"
#include "common/plan/mixture.h"
#include "common/plan/plan.h"

/* Choices that only the stages act on. Those of tokenizers, plans, models and devices are declared
 * by their modules. */
enum plm_rate_scope { PLM_RATE_CHUNK, PLM_RATE_BATCH };
enum plm_optimizer_name { PLM_OPTIMIZER_MUON, PLM_OPTIMIZER_ADAMW };
enum plm_muon_scale { PLM_MUON_MATCH_ADAMW, PLM_MUON_SPECTRAL };
enum plm_schedule_name {
  PLM_SCHEDULE_WSD,
  PLM_SCHEDULE_LINEAR,
  PLM_SCHEDULE_COSINE,
  PLM_SCHEDULE_RANGE_TEST
};
/* How a rank rounds its sum of gradients before it sends it to the others. */
enum plm_compress { PLM_COMPRESS_NONE, PLM_COMPRESS_BF16 };
enum plm_restart { PLM_RESTART_NO, PLM_RESTART_ON_FAILURE, PLM_RESTART_ALWAYS };
/* Their names in the file: NULL-terminated, in the order of the enums. */
extern const char *const plm_rate_scope_names[];
extern const char *const plm_optimizer_names[];
extern const char *const plm_muon_scale_names[];
extern const char *const plm_schedule_names[];
extern const char *const plm_compress_names[];
extern const char *const plm_restart_names[];
extern const char *const plm_stop_metric_names[];
extern const char *const plm_preset_names[]; /* of model.preset; the first is "none" */

enum {
  PLM_MAX_MASK_RATES = 16, /* entries of evaluator.mask_rates */
  PLM_MAX_SPLITS = 3,      /* train, valid, test */
  PLM_MAX_SETS = 16,       /* entries of evaluator.sets */
  PLM_MAX_TASKS = 8,       /* entries of evaluator.tasks */
  PLM_MAX_TASK_IDS = 256,  /* assays that a task names */
  PLM_SET_NAME_MOST = 32,  /* most letters of a set's or task's name */
  PLM_MAX_RANKS = 4096,    /* trainer.ranks, and the slots of one host */
  PLM_MAX_HOSTS = 512,     /* entries of trainer.hosts */
  PLM_MAX_LABELS = 64,     /* entries of trainer.labels */
  PLM_MAX_SHARES = 4096,   /* trainer.shares */
  PLM_HOST_SIZE = 254,     /* of the name in an entry, with its NUL */
};

/* One corpus of the list `corpus`. */
struct plm_config_source {
  char *path; /* absolute */
  double weight;
  double final_weight; /* negative: none */
  int sampling;        /* enum plm_sampling; negative: that of data.sampling */
};

struct plm_config_network {
  char *feed, *feed_address;                       /* to bind; for others to connect to, */
  char *evaluation_feed, *evaluation_feed_address; /* where NULL means the bound endpoint */
  char *announcements, *announcements_address;
  char *keys; /* folder of CURVE keys; NULL: the run's own keys */
  double wait_packers_s;
  uint64_t credit_bytes;
};

struct plm_config_data {
  enum plm_tokenizer_kind tokenizer;
  uint32_t max_length;
  uint32_t document_alignment; /* 0: auto, until plm_config_alignment() */
  enum plm_packing packing;
  uint32_t window_groups;
  enum plm_truncate truncate;
  enum plm_sampling sampling;
  uint64_t mixture_steps;
};

struct plm_config_masking {
  double mask_rate, starting_mask_rate;
  uint64_t mask_rate_steps;
  enum plm_rate_scope rate_scope;
  double random_fraction, keep_fraction;
  uint64_t mlm_warmup_steps;
};

struct plm_config_optimizer {
  enum plm_optimizer_name name;
  double lr_hidden, lr_embed, lr_head, lr_scalar;
  double momentum;
  uint64_t momentum_warmup_steps;
  enum plm_muon_scale scale;
  double weight_decay;
  double betas[2];
};

struct plm_config_schedule {
  enum plm_schedule_name name;
  uint64_t warmup_steps, cooldown_steps;
  double min_lr_fraction;
};

struct plm_config_checkpoint {
  uint64_t every;
  uint32_t keep_last, keep_best;
  char *best_by; /* by which keep_best judges (best_by.h) */
  uint64_t keep_every;
  uint32_t max_unevaluated;
  uint32_t max_failed; /* checkpoint.max_failed_checkpoints, default 3 */
};

/* The others are named only in plm_stop_metric_names; best_by.h says which objective has which. */
enum plm_stop_metric { PLM_STOP_LOSS };
/* Early stopping, by the first split that is evaluated. */
struct plm_config_stop_when {
  enum plm_stop_metric metric;
  uint32_t patience; /* evaluated checkpoints; 0: never */
};

enum plm_class_weights { PLM_CLASS_WEIGHTS_NONE, PLM_CLASS_WEIGHTS_BALANCED };
extern const char *const plm_class_weights_names[]; /* "none", "balanced", NULL */

/* Steps from 1, both included; {0}: none. */
struct plm_step_range {
  uint64_t first, last;
};

struct plm_config_trainer {
  enum plm_device device;
  uint32_t threads; /* 0: all */
  uint32_t ranks;
  char *hosts[PLM_MAX_HOSTS]; /* "name:slots", in the order in which ranks are placed */
  uint32_t host_count;        /* 0: all ranks run on this host */
  enum plm_compress compress;
  double rank_timeout_s;
  uint32_t shares; /* 0: those of the run so far; in a new run, one for each rank */
  enum plm_precision precision;
  uint64_t steps;
  uint64_t batch_tokens, micro_batch_tokens;
  enum plm_objective objective;
  char *labels[PLM_MAX_LABELS]; /* columns that an objective with labels predicts */
  uint32_t label_count;
  enum plm_class_weights class_weights;
  struct plm_config_masking masking;
  double label_smoothing, z_loss;
  struct plm_config_optimizer optimizer;
  struct plm_config_schedule schedule;
  double clip_norm, clip_auto_percentile;
  double ema;
  struct plm_config_checkpoint checkpoint;
  double stop_timeout_s;
  enum plm_recompute recompute;
  char *init_from; /* or NULL */
  struct plm_freeze freeze;
  struct plm_config_stop_when stop_when;
  uint32_t max_skipped_steps;
  struct plm_step_range profile;
  enum plm_restart restart;
};

struct plm_config_supervisor {
  double wait_s, silent_s, silent_start_s;
};

/* A held-out set beside the run's own corpus. */
struct plm_config_set {
  char *name;   /* letters, digits, dots, hyphens and underscores */
  char *corpus; /* absolute */
  enum plm_split split;
};

enum plm_task_kind { PLM_TASK_PROBE, PLM_TASK_ASSAYS, PLM_TASK_CONTACTS };
extern const char *const plm_task_kind_names[];
/* What a probe predicts: the first is to guess, the others are in the order of enum plm_label_kind.
 */
extern const char *const plm_task_label_names[];

/* Something else that is measured of checkpoints: a probe or contacts (doc/probe.md), or assays in
 * ProteinGym's format. */
struct plm_config_task {
  char *name;                    /* as that of a set */
  char *path;                    /* absolute; a table, or a folder of assays or proteins */
  int kind;                      /* enum plm_task_kind */
  uint64_t every;                /* checkpoints */
  char *reference;               /* of assays: the file that lists them, absolute */
  char *ids[PLM_MAX_TASK_IDS];   /* of assays: those that are scored */
  uint32_t id_count;             /* 0: all */
  uint64_t max_variants;         /* of assays: of each one; 0: all */
  char *target, *split, *column; /* of a probe: columns; split and column may be NULL */
  int labels;                    /* of a probe: an index of plm_task_label_names */
};

struct plm_config_evaluator {
  enum plm_device device;
  uint32_t threads; /* 0: auto, one beside a CPU trainer */
  uint64_t seed;
  char *splits[PLM_MAX_SPLITS];
  uint32_t split_count;
  struct plm_config_set sets[PLM_MAX_SETS];
  uint32_t set_count;
  struct plm_config_task tasks[PLM_MAX_TASKS];
  uint32_t task_count;
  double mask_rate;
  double mask_rates[PLM_MAX_MASK_RATES];
  uint32_t mask_rate_count;
  uint32_t elbo_rates;
  uint64_t max_tokens; /* 0: the whole split (null in the file) */
  enum plm_restart restart;
};

struct plm_config {
  char *path;   /* the file, absolute; NULL when there was none */
  char **files; /* names of the files that were read, as problems name them: the one at path, then
                   those that it includes */
  uint32_t file_count;
  char *run; /* the run folder, absolute */
  uint64_t seed;
  char *corpus; /* absolute, or NULL; of a list, the first one */
  struct plm_config_source sources[PLM_MAX_SOURCES];
  uint32_t source_count; /* entries of a list; 0: corpus is not a list */
  struct plm_config_network network;
  struct plm_config_data data;
  uint32_t packer_instances;
  enum plm_restart packer_restart;
  char *packer_cache; /* folder, absolute, or NULL */
  bool packer_allow_remote;
  int model_preset; /* an index of plm_preset_names; its sizes are already those of model */
  struct plm_model_config model;
  struct plm_config_trainer trainer;
  struct plm_config_evaluator evaluator;
  struct plm_config_supervisor supervisor;
  bool tensorboard;
  uint64_t norms;                    /* steps between two measurements; 0: none */
  char *prometheus;                  /* address or NULL */
  uint32_t version;                  /* of the file's format: 1 */
  struct plm_config_origin *origins; /* where each value comes from, by row of the settings table */
};

enum plm_origin_kind {
  PLM_ORIGIN_DEFAULT,
  PLM_ORIGIN_PRESET, /* model.preset gives it, and nothing else does */
  PLM_ORIGIN_FILE,
  PLM_ORIGIN_ENVIRONMENT,
  PLM_ORIGIN_FLAG
};
struct plm_config_origin {
  enum plm_origin_kind kind;
  uint32_t file;         /* of a value from a file: its index in files */
  uint32_t line, column; /* of the value in the file, from 1 */
  double share;          /* of trainer.steps, if the value was written as one ("25%"); else 0 */
};

/* One `--set key=value` or `--run DIR`: a full key ("trainer.steps") and its value as YAML. */
struct plm_config_override {
  const char *key;
  const char *value;
};

/* Reads path (NULL: no file) after the files that it includes (`include: base.yaml` or a list of
 * paths, relative to the file's folder), whose values it overrides; applies PLM_* variables from
 * the environment, then the overrides, and checks everything. A key of the model that none of these
 * gives has the value of model.preset, if there is one. All mistakes are found, not only the first.
 * If there are any, the result is PLM_CONFIG, *config is deinitialised, and *problems (problems may
 * be NULL) holds their texts, which the caller prints (plm_config_problems_print) and frees. On
 * success *problems is NULL.
 *
 * A variable is named PLM_ and the key in capitals, with _ for each dot: PLM_TRAINER_STEPS=100. A
 * variable that begins with a section's name but names no key is an error; any other PLM_* variable
 * is ignored. Values of variables and overrides are YAML, with two exceptions: strings and paths
 * are taken literally, and a list may be written without brackets. */
struct plm_config_problems;
struct plm_text;
plm_status plm_config_load(const char *path, const struct plm_config_override *overrides,
                           size_t override_count, struct plm_config *config,
                           struct plm_config_problems **problems, struct plm_error *error);
/* Reads a configuration that plm_config_print wrote, without environment or overrides. PLM_CONFIG
 * reports the first problem. */
plm_status plm_config_load_text(const char *yaml, size_t size, struct plm_config *config,
                                struct plm_error *error);
size_t plm_config_problems_count(const struct plm_config_problems *problems);
/* Text of problem i: `pipeline.yaml:14:5: unknown key "lr_rate"; did you mean "lr"?` */
const char *plm_config_problem(const struct plm_config_problems *problems, size_t i);
void plm_config_problems_print(const struct plm_config_problems *problems); /* to stderr */
void plm_config_problems_free(struct plm_config_problems *problems);

/* The resolved configuration as YAML: every key in the order of the table, with absolute paths.
 * Loading it again gives the same configuration. The caller frees it. */
char *plm_config_print(const struct plm_config *config);

/* The configuration of a run whose trainer does not run: what describes training (seed, data, model
 * and trainer, and the corpora if their mixture differs) is that of `before`, and everything else
 * is that of `now`. The caller frees *yaml. */
plm_status plm_config_print_kept(const struct plm_config *before, const struct plm_config *now,
                                 char **yaml, struct plm_error *error);

/* Appends warnings about a valid configuration that may surprise, one on each line:
 * `plm-pipeline validate` prints them beside "valid". */
void plm_config_advise(const struct plm_config *config, struct plm_text *text);
/* The line of these that `up` says too when a run begins: a file with token_dropout: false, as the
 * shipped one, makes another model of esm2. With trainer.init_from, what differs from the weights
 * is listed instead. */
void plm_config_advise_dropout(const struct plm_config *config, struct plm_text *text);

/* The key of the warm-up or the cool-down of the learning rate if they do not fit into
 * trainer.steps, with a message; NULL if they fit. */
enum { PLM_CONFIG_FAULT_SIZE = 256 };
const char *plm_config_schedule_fault(const struct plm_config *config,
                                      char message[PLM_CONFIG_FAULT_SIZE]);

/* data.document_alignment with `auto` resolved: 2^min(n-1, log2 max_length) for a patch_unet of 2n
 * layers, 1 for the other architectures. */
uint32_t plm_config_alignment(const struct plm_config *config);

/* Whether a name may stand in evaluator.sets and evaluator.tasks: 1 to 32 letters, digits, dots,
 * hyphens and underscores. "corpus" is such a name as well, although it stands for the run's own
 * corpus. */
bool plm_config_is_set_name(const char *name);

/* Splits an entry of trainer.hosts, "name:slots". Returns false if it is not one: names have
 * letters, digits, dots, hyphens and underscores, and slots are 1 to PLM_MAX_RANKS. */
bool plm_config_host(const char *entry, char name[PLM_HOST_SIZE], uint32_t *slots);

/* Slots of an entry of trainer.hosts, which the configuration's checks have accepted. */
uint32_t plm_config_slots(const struct plm_config_trainer *trainer, uint32_t host);

/* The number of the trainer's ranks on the host of rank 0. */
uint32_t plm_config_ranks_here(const struct plm_config *config);

void plm_config_deinit(struct plm_config *config);

/* Compares the configuration that a run was started with to the current one, by the on-resume
 * column of the table. changes (may be NULL) receives a line for each key that changes the run.
 * PLM_CONFIG, with the key's name, if a refused key differs. */
plm_status plm_config_check_resume(const struct plm_config *before, const struct plm_config *now,
                                   struct plm_text *changes, struct plm_error *error);

/* The corpora that a run trains on. A single corpus is a list of one: its path may be NULL, and its
 * weight is 1. */
uint32_t plm_config_source_count(const struct plm_config *config);
struct plm_config_source plm_config_source(const struct plm_config *config, uint32_t source);
/* What one of them is called in metrics: the name of its folder, with "#" and its number behind it
 * if another one has the same; "source K" without a path. Cut to the size. */
enum { PLM_SOURCE_NAME_SIZE = 64 };
void plm_config_source_name(const struct plm_config *config, uint32_t source,
                            char name[PLM_SOURCE_NAME_SIZE]);
/* The plan of one of them, and how they are mixed. */
struct plm_plan_parameters plm_config_source_plan(const struct plm_config *config, uint32_t source);
struct plm_mixture plm_config_mixture(const struct plm_config *config);
/* Compares the sources of a run with those of its resume, as plm_config_check_resume does, which
 * calls it. Sources may be added at the end, and weights may change. */
plm_status plm_config_check_sources(const struct plm_config *before, const struct plm_config *now,
                                    struct plm_text *changes, struct plm_error *error);

/* The two plans of a configuration: the one that the trainer consumes, and the
 * evaluator's (truncated head, best fit, no shuffle, seed 0, up to evaluator.max_tokens). */
struct plm_plan_parameters plm_config_training_plan(const struct plm_config *config);
/* What a run leaves unchanged: with adapters, everything but them and a head for labels. */
struct plm_freeze plm_config_freeze(const struct plm_config_trainer *trainer,
                                    const struct plm_model_config *model);
struct plm_plan_parameters plm_config_evaluation_plan(const struct plm_config *config);

#endif
