/* The table of settings: key, type, unit, default, range, what a change means on resume, help.
 *
 * Each key of pipeline.yaml is one row. The table drives parsing, validation, --set, PLM_*
 * variables, `plm-pipeline config`, the resume check and doc/configuration.md, so a new key needs
 * only a new row; one below `model.` needs more (CONTRIBUTING.md, "An option of the model"). Rows
 * are in the order of the file, and those of one section are adjacent.
 */
#ifndef PLM_COMMON_CONFIG_SETTINGS_H
#define PLM_COMMON_CONFIG_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/config/config.h"

enum plm_setting_type {
  PLM_SETTING_BOOL,     /* bool */
  PLM_SETTING_U32,      /* uint32_t */
  PLM_SETTING_U64,      /* uint64_t */
  PLM_SETTING_DOUBLE,   /* double */
  PLM_SETTING_CHOICE,   /* an enum, stored as int; names in choices */
  PLM_SETTING_STRING,   /* char * */
  PLM_SETTING_PATH,     /* char *, made absolute */
  PLM_SETTING_CORPUS,   /* a path, or a list of plm_config_source */
  PLM_SETTING_ENDPOINT, /* char *, tcp://HOST:PORT or ipc://PATH (made absolute) */
  PLM_SETTING_STEPS,    /* struct plm_step_range, FIRST-LAST */
  PLM_SETTING_ADDRESS,  /* char *, HOST:PORT; host "" or *: every interface; port *: any */
  PLM_SETTING_DOUBLES,  /* double[count_max]; count_offset locates their number */
  PLM_SETTING_SPLITS,   /* char *[count_max], each one of the choices, none twice */
  PLM_SETTING_CHOICES,  /* uint32_t: bits of the choices that are listed, none twice */
  PLM_SETTING_HOSTS,    /* char *[count_max], name:slots, no name twice */
  PLM_SETTING_NAMES,    /* char *[count_max], no name twice; a scalar is a list of one */
  PLM_SETTING_PATTERN,  /* uint8_t[count_max] of plm_attention_kind bits */
  PLM_SETTING_SETS,     /* struct plm_config_set[count_max]: a list of records */
  PLM_SETTING_TASKS,    /* struct plm_config_task[count_max]: a list of records */
};

enum plm_on_resume {
  PLM_RESUME_FREE,    /* may change */
  PLM_RESUME_CHANGES, /* may change, but that changes the run: reported and kept in its history */
  PLM_RESUME_REFUSED, /* must not change: it would be another run */
  PLM_RESUME_CONTENT, /* a path that may change, but whose content must not: `up` and the trainer
                         compare the fingerprint of the corpus */
};

enum plm_setting_flag {
  PLM_SETTING_NULLABLE = 1,     /* null is allowed and stored as NULL */
  PLM_SETTING_ABOVE_MIN = 2,    /* min itself is excluded */
  PLM_SETTING_BELOW_MAX = 4,    /* max itself is excluded */
  PLM_SETTING_POWER_OF_TWO = 8, /* the value is a power of two, or the row's word */
  PLM_SETTING_SHARE = 16,       /* may be written as a share of trainer.steps: 25%, 6.7% */
};

enum { PLM_NO_OFFSET = 0 }; /* never the offset of a count: the struct begins with a string */

struct plm_setting {
  const char *key;
  enum plm_setting_type type;
  ptrdiff_t offset;           /* into struct plm_config */
  const char *unit;           /* "tokens", "" */
  const char *fallback;       /* the default, as YAML */
  double min, max;            /* of a number, or of each element of PLM_SETTING_DOUBLES */
  unsigned flags;             /* plm_setting_flag */
  const char *word;           /* "auto", "null": a word that is stored as 0; NULL: none */
  const char *const *choices; /* NULL-terminated; the index is the value */
  ptrdiff_t count_offset;     /* of a list's uint32_t count; PLM_NO_OFFSET: always count_max */
  unsigned count_min, count_max;
  enum plm_on_resume resume;
  const char *help;
};

const struct plm_setting *plm_settings(size_t *count);
const struct plm_setting *plm_setting_find(const char *key); /* NULL: no such key */
size_t plm_setting_index(const struct plm_setting *setting);
/* Whether the row's value is a list. */
bool plm_setting_is_list(const struct plm_setting *setting);
/* Whether key is a section, that is, the beginning of other keys: "trainer", "trainer.clip". */
bool plm_setting_is_section(const char *key);
/* The name of a key's environment variable: "PLM_TRAINER_STEPS" for "trainer.steps". False and ""
 * for `version`, which belongs to the file. */
bool plm_setting_variable(const char *key, char variable[96]);
const char *plm_on_resume_name(enum plm_on_resume resume); /* "free", "changes the run", … */
/* What values a row takes, for messages and help: "a whole number", "mlm, masked_diffusion or
 * causal". */
void plm_setting_describe(const struct plm_setting *setting, char text[256]);
/* The row's minimum or maximum as text; whole numbers have all their digits. */
void plm_setting_limit(const struct plm_setting *setting, bool most, char text[40]);
/* Appends the range of a row, for people: "0 to 4096", "above 0, at most 1; 1 to 16 entries". */
void plm_setting_put_range(struct plm_text *text, const struct plm_setting *setting);
/* Length of the part of a key that names its section: 12, for "trainer.clip", of
 * "trainer.clip.norm"; 0 at the top level. */
size_t plm_setting_section_length(const char *key);
/* Whether row i of the table is the first of its section. */
bool plm_setting_begins_section(size_t i);
/* Whether two keys are of the same section. */
bool plm_setting_same_section(const char *key, const char *other);
/* Appends the reference of pipeline.yaml, which is doc/configuration.md: a Markdown table for each
 * section. */
void plm_settings_reference(struct plm_text *text);
/* The row's value in config as YAML, on one line. The caller frees it. */
char *plm_setting_print(const struct plm_setting *setting, const struct plm_config *config);

/* A value to be stored: a scalar or a list of scalars. */
struct plm_scalar {
  const char *text;
  bool quoted; /* then it is a string, even if it looks like a number */
  uint32_t line, column;
};
bool plm_scalar_is_null(const struct plm_scalar *scalar);
struct plm_value {
  bool is_list;
  const struct plm_scalar *items; /* (count); a scalar has one */
  size_t count;
};

/* Checks a value's type and range and stores it. Lists of records are not read by this, but by
 * config_sources.h and setting_sets.h. base is the folder that relative paths are
 * relative to. If it returns false, nothing is stored, message says why, and *culprit is the index
 * of the offending item. */
bool plm_setting_store(const struct plm_setting *setting, const struct plm_value *value,
                       const char *base, struct plm_config *config, size_t *culprit,
                       char message[512]);
/* Appends a string as YAML, in quotes where they are needed. string NULL: null. */
void plm_setting_put_string(struct plm_text *text, const char *string);
/* Appends a number as YAML, with as few digits as give it back. */
void plm_setting_print_number(struct plm_text *text, double value);
/* path, relative to base, as an absolute one without a final slash. The caller frees it; NULL: out
 * of memory. */
char *plm_setting_absolute_path(const char *base, const char *path);
/* Frees the strings of the row's value. */
void plm_setting_release(const struct plm_setting *setting, struct plm_config *config);

#endif
