/* The table by operator of a profile (RUN/profile.json, doc/profile.md). */
#ifndef PLM_STAGES_VIEWS_PROFILE_TABLE_H
#define PLM_STAGES_VIEWS_PROFILE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/status.h"
#include "common/base/text/text.h"

enum { PLM_PROFILE_NAME_SIZE = 128, PLM_PROFILE_WORD_SIZE = 96 };

/* Events of one name, and of one shape if shapes are wanted, over all steps and ranks. */
struct plm_profile_row {
  char name[PLM_PROFILE_NAME_SIZE];
  char kind[16]; /* the category of the events */
  uint64_t calls, ns;
  double bytes, flops;
};

struct plm_profile_rows {
  struct plm_profile_row *rows; /* (count), the longest time first */
  size_t count;
};

struct plm_profile_table {
  char device[PLM_PROFILE_WORD_SIZE], isa[PLM_PROFILE_WORD_SIZE],
      precision[PLM_PROFILE_WORD_SIZE]; /* "" if the file does not say */
  uint64_t first_step, last_step;
  uint32_t ranks, threads;
  bool incomplete;                /* there was no memory for some events */
  double flops_limit;             /* per second and rank; 0: not known */
  double bytes_limit;             /* the same, of a copy, read and written */
  uint64_t steps, ns;             /* steps of all ranks together, and how long they took */
  struct plm_profile_rows in;     /* what the steps consist of: their times add up to ns */
  struct plm_profile_rows beside; /* what ran beside the steps or between them */
};

struct plm_profile_view {
  bool shapes;  /* a row for each shape of an operator */
  int64_t rank; /* only this one; negative: all */
};

/* Reads a profile from its beginning. PLM_FORMAT: it is none, or not whole. PLM_USAGE: it has not
 * the rank. PLM_IO, PLM_NO_MEMORY. The caller deinits *table, also after an error. */
plm_status plm_profile_table_read(FILE *file, const struct plm_profile_view *view,
                                  struct plm_profile_table *table, struct plm_error *error);
void plm_profile_table_deinit(struct plm_profile_table *table);

/* What the limits of the machine would need for the row's work, as a part of its time: 1 is as fast
 * as products and copies can be. NAN if that is not known. */
double plm_profile_of_limit(const struct plm_profile_table *table,
                            const struct plm_profile_row *row);

/* Appends the table for people, with times by step and rank. */
void plm_profile_table_print(const struct plm_profile_table *table, struct plm_text *text);
/* Appends it as one line of JSON. */
void plm_profile_table_json(const struct plm_profile_table *table, struct plm_text *text);

#endif
