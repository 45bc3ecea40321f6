/* The table of settings: key, type, unit, default, range, what a change means on resume, help.
 *
 * One row a key of pipeline.yaml. It drives parsing, validation, --set, PLM_* variables,
 * `plm-pipeline config`, the resume check and the manual; a new key is a new row. Rows of one
 * section stand together, in the order of the file.
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
  PLM_SETTING_ENDPOINT, /* char *, tcp://HOST:PORT or ipc://PATH (made absolute) */
  PLM_SETTING_ADDRESS,  /* char *, HOST:PORT; an empty host or * is every one, * as port any */
  PLM_SETTING_DOUBLES,  /* double[count_max], and how many where count_offset says */
  PLM_SETTING_SPLITS,   /* char *[count_max], of choices, each once */
  PLM_SETTING_PATTERN,  /* uint8_t[count_max] of plm_attention_kind bits */
};

enum plm_on_resume {
  PLM_RESUME_FREE,    /* may change at will */
  PLM_RESUME_CHANGES, /* allowed, changes the run; reported and kept as history */
  PLM_RESUME_REFUSED, /* another run */
  PLM_RESUME_CONTENT, /* a path that may change; another run when what lies there differs, which
                         `up` and the trainer find out by the corpus's fingerprint */
};

enum plm_setting_flag {
  PLM_SETTING_NULLABLE = 1,     /* null is allowed: NULL */
  PLM_SETTING_ABOVE_MIN = 2,    /* min itself is excluded */
  PLM_SETTING_BELOW_MAX = 4,    /* max itself is excluded */
  PLM_SETTING_POWER_OF_TWO = 8, /* besides its word */
};

enum { PLM_NO_OFFSET = 0 }; /* the struct does not begin with a count */

struct plm_setting {
  const char *key;
  enum plm_setting_type type;
  ptrdiff_t offset;           /* into struct plm_config */
  const char *unit;           /* "tokens", "" */
  const char *fallback;       /* the default, as YAML */
  double min, max;            /* numbers, and the elements of PLM_SETTING_DOUBLES */
  unsigned flags;             /* plm_setting_flag */
  const char *word;           /* a word of the file that is stored as 0: "auto", "null"; or NULL */
  const char *const *choices; /* NULL-terminated; index = value */
  ptrdiff_t count_offset;     /* lists: uint32_t; PLM_NO_OFFSET: exactly count_max */
  unsigned count_min, count_max;
  enum plm_on_resume resume;
  const char *help;
};

const struct plm_setting *plm_settings(size_t *count);
const struct plm_setting *plm_setting_find(const char *key); /* NULL: no such key */
size_t plm_setting_index(const struct plm_setting *setting);
/* A key is a section when it is the beginning of others: "trainer", "trainer.clip". */
bool plm_setting_is_section(const char *key);
/* "trainer.steps" to "PLM_TRAINER_STEPS". */
void plm_setting_variable(const char *key, char variable[96]);
const char *plm_on_resume_name(enum plm_on_resume resume); /* "free", "changes the run", … */
/* "whole number", "one of mlm, masked_diffusion, causal", …: for messages and help. */
void plm_setting_describe(const struct plm_setting *setting, char text[256]);
/* A number's least (or most) value, whole numbers digit by digit. */
void plm_setting_limit(const struct plm_setting *setting, bool most, char text[40]);
/* Appends the reference of pipeline.yaml, which is doc/configuration.md: a Markdown table for each
 * section. */
void plm_settings_reference(struct plm_text *text);
/* The value of config as YAML on one line. Caller frees; NULL: no memory. */
char *plm_setting_print(const struct plm_setting *setting, const struct plm_config *config);

/* One value on its way into the configuration: a scalar, or a flow of scalars. */
struct plm_scalar {
  const char *text;
  bool quoted; /* a quoted scalar is a string, whatever it looks like */
  uint32_t line, column;
};
struct plm_value {
  bool is_list;
  const struct plm_scalar *items; /* one, or `count` of a list */
  size_t count;
};

/* Checks type and range and stores. base: the folder relative paths start at. On failure nothing
 * is stored, message says why, and *culprit is the index of the offending item. */
bool plm_setting_store(const struct plm_setting *setting, const struct plm_value *value,
                       const char *base, struct plm_config *config, size_t *culprit,
                       char message[512]);
/* Frees what the row holds. */
void plm_setting_release(const struct plm_setting *setting, struct plm_config *config);

#endif
