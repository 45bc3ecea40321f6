/* "did you mean ...": finds the nearest of a set of names. */
#ifndef PLM_COMMON_BASE_TEXT_SUGGEST_H
#define PLM_COMMON_BASE_TEXT_SUGGEST_H

/* Collects candidates one by one. Initialise it with {.word = "lr_rate"}; best stays NULL until a
 * candidate is near enough. */
struct plm_suggestion {
  const char *word;
  const char *best; /* kept by reference */
  unsigned distance, prefix;
};

/* Offers a candidate. It is near enough if at most half of the word's letters differ (two for a
 * word of fewer than four). Of equally near candidates, the one with the longer common prefix
 * wins, then the first. */
void plm_suggest(struct plm_suggestion *suggestion, const char *candidate);

/* The number of edits (insert, delete, replace, swap of neighbours) between two names of up to 64
 * letters; UINT_MAX for longer ones. */
unsigned plm_edit_distance(const char *a, const char *b);

#endif
