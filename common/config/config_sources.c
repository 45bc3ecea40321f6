/* Several corpora: reading the list form of `corpus`, and what several entries must agree on. */
#include "common/config/config_sources.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/config/config_corpora.h"

#define AT(member) (ptrdiff_t) offsetof(struct plm_config_source, member)

/* The keys of an entry. Their offsets are into struct plm_config_source. */
static const struct plm_setting keys[] = {
    {.key = "path", .type = PLM_SETTING_PATH, .offset = AT(path), .unit = ""},
    {.key = "weight",
     .type = PLM_SETTING_DOUBLE,
     .offset = AT(weight),
     .unit = "",
     .min = 0,
     .max = 1e9,
     .flags = PLM_SETTING_ABOVE_MIN},
    {.key = "final_weight",
     .type = PLM_SETTING_DOUBLE,
     .offset = AT(final_weight),
     .unit = "",
     .min = 0,
     .max = 1e9,
     .flags = PLM_SETTING_NULLABLE},
    {.key = "sampling",
     .type = PLM_SETTING_CHOICE,
     .offset = AT(sampling),
     .unit = "",
     .choices = plm_sampling_names,
     .flags = PLM_SETTING_NULLABLE},
};
static const struct plm_config_source initial = {.weight = 1, .final_weight = -1, .sampling = -1};
static const struct plm_yaml_records records = {.setting = "corpus",
                                                .one = "source",
                                                .many = "sources",
                                                .form = "{path: DIR, weight: NUMBER}",
                                                .keys = keys,
                                                .key_count = sizeof keys / sizeof *keys,
                                                .required = 1,
                                                .least = 1,
                                                .most = PLM_MAX_SOURCES,
                                                .initial = &initial,
                                                .size = sizeof initial};

/* ---- reading ------------------------------------------------------------------------------- */

bool plm_sources_read(struct plm_loader *loader, const struct plm_yaml_list *list)
{
  struct plm_config *config = loader->config;
  plm_sources_release(config);
  const bool good = plm_yaml_records_read(loader, &records, list, config->sources,
                                          &config->source_count, loader->source_places);
  free(config->corpus);
  config->corpus = config->source_count > 0 ? plm_strdup(config->sources[0].path) : NULL;
  return good;
}

/* ---- checks -------------------------------------------------------------------------------- */

static void config_sources_check_twice(struct plm_loader *loader, uint32_t i)
{
  const struct plm_config_source *sources = loader->config->sources;
  for (uint32_t j = 0; j < i; j++) {
    if (strcmp(sources[i].path, sources[j].path) != 0) continue;
    plm_problems_add(loader->problems, loader->source_places[i],
                     "corpus: source %u is the same corpus as source %u, %s", i, j,
                     sources[j].path);
    return;
  }
}

void plm_sources_check(struct plm_loader *loader)
{
  const struct plm_config *config = loader->config;
  const size_t row = plm_setting_index(plm_setting_find("data.mixture_steps"));
  const size_t corpus = plm_setting_index(plm_setting_find("corpus"));
  double sum = 0;
  for (uint32_t i = 0; i < config->source_count; i++) {
    const struct plm_config_source *source = &config->sources[i];
    config_sources_check_twice(loader, i);
    sum += source->final_weight < 0 ? source->weight : source->final_weight;
    if (source->final_weight >= 0 && config->data.mixture_steps == 0 && !loader->bad[row])
      plm_problems_add(loader->problems, loader->source_places[i],
                       "corpus: source %u has a final_weight, but data.mixture_steps is 0; set it "
                       "to the steps in which the weights move",
                       i);
  }
  if (config->source_count > 0 && sum <= 0 && !loader->bad[corpus])
    plm_problems_add(loader->problems, loader->source_places[0],
                     "corpus: every final_weight is 0, so nothing would be left to train on");
}
