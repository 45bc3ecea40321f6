/* Finds the nearest name, for misspelt keys, options, commands and values. */
#include "common/base/text/suggest.h"

#include <limits.h>
#include <string.h>

enum { LONGEST = 64 };

static unsigned suggest_least(unsigned a, unsigned b)
{
  return a < b ? a : b;
}

unsigned plm_edit_distance(const char *a, const char *b)
{
  const size_t rows = strlen(a), columns = strlen(b);
  if (rows > LONGEST || columns > LONGEST) return UINT_MAX;
  unsigned cost[3][LONGEST + 1]; /* this row and the two above it */
  for (size_t j = 0; j <= columns; j++) cost[0][j] = (unsigned)j;
  for (size_t i = 1; i <= rows; i++) {
    unsigned *row = cost[i % 3];
    const unsigned *above = cost[(i + 2) % 3], *above2 = cost[(i + 1) % 3];
    row[0] = (unsigned)i;
    for (size_t j = 1; j <= columns; j++) {
      row[j] = suggest_least(above[j] + 1, row[j - 1] + 1);
      row[j] = suggest_least(row[j], above[j - 1] + (a[i - 1] != b[j - 1]));
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = suggest_least(row[j], above2[j - 2] + 1);
      }
    }
  }
  return cost[rows % 3][columns];
}

static unsigned common_prefix(const char *a, const char *b)
{
  unsigned n = 0;
  while (a[n] != '\0' && a[n] == b[n]) n++;
  return n;
}

void plm_suggest(struct plm_suggestion *suggestion, const char *candidate)
{
  const size_t length = strlen(suggestion->word);
  const unsigned distance = plm_edit_distance(suggestion->word, candidate);
  const unsigned limit = length < 4 ? 2 : (unsigned)(length + 1) / 2;
  if (distance > limit || distance >= strlen(candidate)) return;
  const unsigned prefix = common_prefix(suggestion->word, candidate);
  if (suggestion->best != NULL &&
      (distance > suggestion->distance ||
       (distance == suggestion->distance && prefix <= suggestion->prefix))) {
    return;
  }
  suggestion->best = candidate;
  suggestion->distance = distance;
  suggestion->prefix = prefix;
}
