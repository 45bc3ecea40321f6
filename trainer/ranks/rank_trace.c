/* Writes the events of a rank as a JSON array. */
#include "trainer/ranks/rank_trace.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/alloc.h"

struct plm_rank_trace {
  FILE *file;
  uint32_t rank;
  const char *separator;
};

plm_status plm_rank_trace_open(uint32_t rank, struct plm_rank_trace **out, struct plm_error *error)
{
  const char *folder = getenv("PLM_RANK_TRACE");
  char path[4096];
  *out = NULL;
  if (folder == NULL || folder[0] == '\0') return PLM_OK;
  if ((size_t)snprintf(path, sizeof path, "%s/rank-%u.json", folder, rank) >= sizeof path)
    return plm_error_set(error, PLM_CONFIG, "PLM_RANK_TRACE names a path that is too long");
  struct plm_rank_trace *trace = plm_alloc(sizeof *trace);
  *trace = (struct plm_rank_trace){.file = fopen(path, "we"), .rank = rank, .separator = "[\n"};
  if (trace->file == NULL) {
    free(trace);
    return plm_error_errno(error, "cannot write the trace %s", path);
  }
  *out = trace;
  return PLM_OK;
}

void plm_rank_trace_close(struct plm_rank_trace *trace)
{
  if (trace == NULL) return;
  (void)fprintf(trace->file, "%s]\n", trace->separator[0] == '[' ? "[" : "\n");
  (void)fclose(trace->file);
  free(trace);
}

void plm_rank_trace_add(struct plm_rank_trace *trace, int row, const char *what, uint64_t number,
                        uint64_t begin_ns, uint64_t end_ns)
{
  if (trace == NULL) return;
  (void)fprintf(trace->file,
                "%s{\"name\": \"%s %llu\", \"ph\": \"X\", \"pid\": %u, \"tid\": %d, \"ts\": %.3f, "
                "\"dur\": %.3f}",
                trace->separator, what, (unsigned long long)number, trace->rank, row,
                1e-3 * (double)begin_ns, 1e-3 * (double)(end_ns - begin_ns));
  trace->separator = ",\n";
}
