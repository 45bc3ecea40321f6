/* Describes the machine and makes corpora for benchmarks. */
#include "tests/support/bench/bench_scene.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/numbers/philox.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/peers/packers.h"

enum { DOCUMENTS = 200000, MEDIAN = 300 };

void bench_machine(void)
{
  char line[256], model[256] = "unknown processor\n";
  FILE *file = fopen("/proc/cpuinfo", "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL)
    if (strncmp(line, "model name", 10) == 0 && strchr(line, ':') != NULL) {
      snprintf(model, sizeof model, "%s", strchr(line, ':') + 2);
      break;
    }
  if (file != NULL) fclose(file);
  double load = 0;
  if (getloadavg(&load, 1) != 1) load = -1;
  model[strcspn(model, "\n")] = '\0';
  printf("%s, %ld cores, load %.1f\n", model, sysconf(_SC_NPROCESSORS_ONLN), load);
}

static const char *ingest(const char *fasta, const char *path)
{
  const char *const argv[] = {
      packers_program("plm-pipeline"), "ingest", fasta, "--corpus", path, "--quiet", NULL};
  return packers_run(argv, NULL) == 0 ? path : NULL;
}

const char *bench_corpus(void)
{
  static const char residues[] = "LLLLLLLLLLAAAAAAAAAGGGGGGGVVVVVVVSSSSSSSEEEEEEERRRRRRTTTTTTIIIIII"
                                 "DDDDDDPPPPPKKKKKKQQQQNNNNFFFFYYYMMHHWC";
  const char *path = scratch_path("bench.corpus"), *fasta = scratch_path("bench.fasta");
  FILE *file = fopen(fasta, "w");
  if (file == NULL) return NULL;
  char line[8192];
  for (uint32_t i = 0; i < DOCUMENTS; i++) {
    const struct plm_philox_words w = plm_philox(1, 0, i, 100);
    const double normal =
        sqrt(-2 * log(1 - plm_philox_unit(w.w[0]))) * cos(6.283185307 * plm_philox_unit(w.w[1]));
    double length = MEDIAN * exp(0.75 * normal);
    if (length < 30) length = 30;
    if (length > 8000) length = 8000;
    const uint32_t count = (uint32_t)length;
    for (uint32_t j = 0; j < count; j += 4) {
      const struct plm_philox_words draw = plm_philox(1, j + 1, i, 100);
      for (uint32_t k = 0; k < 4; k++)
        line[j + k] = residues[((uint64_t)draw.w[k] * (sizeof residues - 1)) >> 32];
    }
    fprintf(file, ">s%u\n%.*s\n", i, (int)count, line);
  }
  fclose(file);
  return ingest(fasta, path);
}

const char *bench_sample_corpus(void)
{
  char sample[PLM_PATH_SIZE];
  const char *root = getenv("PLM_ROOT");
  snprintf(sample, sizeof sample, "%.4000s/tests/data/sample.fasta.gz", root != NULL ? root : ".");
  return ingest(sample, scratch_path("sample.corpus"));
}
