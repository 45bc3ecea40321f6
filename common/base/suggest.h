/* "did you mean …": the nearest of a set of names. */
#ifndef PLM_COMMON_BASE_SUGGEST_H
#define PLM_COMMON_BASE_SUGGEST_H

/* Collects candidates one by one; best is NULL while none is near enough. {.word = "lr_rate"}. */
struct plm_suggestion {
  const char *word;
  const char *best; /* kept by reference */
  unsigned distance, prefix;
};

/* Near enough: at most half of the word's letters differ (two for short words). Of equally distant
 * names the one with the longer common beginning wins, then the first offered. */
void plm_suggest(struct plm_suggestion *suggestion, const char *candidate);

/* Edits (insert, delete, replace, swap of neighbours) between two names, up to 64 letters each;
 * longer ones are infinitely far. */
unsigned plm_edit_distance(const char *a, const char *b);

#endif
