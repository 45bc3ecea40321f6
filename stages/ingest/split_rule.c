/* Choosing splits by fractions. */
#include "stages/ingest/split_rule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static plm_status parse_part(const char *part, double fractions[PLM_SPLIT_COUNT],
                             bool given[PLM_SPLIT_COUNT], struct plm_error *error)
{
  char name[16];
  const char *equals = strchr(part, '=');
  const size_t length = equals == NULL ? 0 : (size_t)(equals - part);
  if (equals == NULL || length >= sizeof name)
    return plm_error_set(error, PLM_USAGE, "--split: \"%.60s\" is not NAME=FRACTION", part);
  memcpy(name, part, length);
  name[length] = '\0';
  enum plm_split split;
  PLM_TRY(plm_split_parse(name, &split, error));
  char *end;
  fractions[split] = strtod(equals + 1, &end);
  if (end == equals + 1 || *end != '\0' || !(fractions[split] >= 0.0 && fractions[split] <= 1.0))
    return plm_error_set(error, PLM_USAGE, "--split: \"%.60s\" is not a fraction from 0 to 1",
                         equals + 1);
  if (given[split])
    return plm_error_set(error, PLM_USAGE, "--split names %s twice", plm_split_name(split));
  given[split] = true;
  return PLM_OK;
}

plm_status plm_split_rule_parse(const char *text, struct plm_split_rule *rule,
                                struct plm_error *error)
{
  static const double rounding = 1e-9;
  double fractions[PLM_SPLIT_COUNT] = {0}, sum = 0.0;
  bool given[PLM_SPLIT_COUNT] = {false};
  char copy[256];
  if (strlen(text) >= sizeof copy)
    return plm_error_set(error, PLM_USAGE, "--split \"%.60s...\" is too long", text);
  strcpy(copy, text);
  char *state = NULL;
  for (char *part = strtok_r(copy, ",", &state); part != NULL; part = strtok_r(NULL, ",", &state))
    PLM_TRY(parse_part(part, fractions, given, error));
  int last = -1;
  for (int s = 0; s < PLM_SPLIT_COUNT; s++) {
    sum += fractions[s];
    rule->below[s] = sum;
    if (fractions[s] > 0.0) last = s;
  }
  if (fabs(sum - 1.0) > rounding) {
    plm_error_set(error, PLM_USAGE, "--split %s: the fractions sum to %g instead of 1", text, sum);
    return plm_error_hint(error, "the default is train=0.98,valid=0.01,test=0.01");
  }
  for (int s = last; s < PLM_SPLIT_COUNT; s++) rule->below[s] = 1.0;
  return PLM_OK;
}

enum plm_split plm_split_rule_choose(const struct plm_split_rule *rule, uint64_t hash)
{
  const double unit = (double)(hash >> 11) * 0x1p-53;
  int split = 0;
  while (split < PLM_SPLIT_COUNT - 1 && unit >= rule->below[split]) split++;
  return (enum plm_split)split;
}
