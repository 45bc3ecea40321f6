/* The Hub's list of licences. */
#include "stages/export/hub_license.h"

#include <string.h>

#include "common/base/suggest.h"

/* clang-format off */
static const char *const licenses[] = {
  "apache-2.0", "mit", "openrail", "bigscience-openrail-m", "creativeml-openrail-m",
  "bigscience-bloom-rail-1.0", "bigcode-openrail-m", "afl-3.0", "artistic-2.0", "bsl-1.0", "bsd",
  "bsd-2-clause", "bsd-3-clause", "bsd-3-clause-clear", "c-uda", "cc", "cc0-1.0", "cc-by-2.0",
  "cc-by-2.5", "cc-by-3.0", "cc-by-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0", "cc-by-nc-2.0",
  "cc-by-nc-3.0", "cc-by-nc-4.0", "cc-by-nd-4.0", "cc-by-nc-nd-3.0", "cc-by-nc-nd-4.0",
  "cc-by-nc-sa-2.0", "cc-by-nc-sa-3.0", "cc-by-nc-sa-4.0", "cdla-sharing-1.0",
  "cdla-permissive-1.0", "cdla-permissive-2.0", "wtfpl", "ecl-2.0", "epl-1.0", "epl-2.0",
  "etalab-2.0", "eupl-1.1", "agpl-3.0", "gfdl", "gpl", "gpl-2.0", "gpl-3.0", "lgpl", "lgpl-2.1",
  "lgpl-3.0", "isc", "lppl-1.3c", "ms-pl", "mpl-2.0", "odc-by", "odbl", "openrail++", "osl-3.0",
  "postgresql", "ofl-1.1", "ncsa", "unlicense", "zlib", "pddl", "lgpl-lr", "unknown", "other",
};
/* clang-format on */

plm_status plm_hub_license_check(const char *license, struct plm_error *error)
{
  struct plm_suggestion suggestion = {.word = license};
  for (size_t i = 0; i < sizeof licenses / sizeof *licenses; i++) {
    if (strcmp(licenses[i], license) == 0) return PLM_OK;
    plm_suggest(&suggestion, licenses[i]);
  }
  plm_error_set(error, PLM_USAGE, "the Hub knows no licence \"%.80s\"", license);
  if (suggestion.best != NULL) return plm_error_hint(error, "did you mean %s?", suggestion.best);
  return plm_error_hint(error, "its list: https://huggingface.co/docs/hub/repositories-licenses; "
                               "any other licence is `other`, with a LICENSE file in the folder");
}
