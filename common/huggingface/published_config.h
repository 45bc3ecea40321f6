/* config.json of published weights, as transformers 5.24 writes it for EsmForMaskedLM (ESM-2,
 * model_type "esm") and EsmcForMaskedLM (ESM-C, "esmc"); older versions lack some of its keys.
 * Source: transformers, configuration_esm.py and configuration_esmc.py.
 *
 * A folder that a run wrote also has the key "plm_pipeline", an object with the run's max_length
 * and objective. Without it, max_length is max_position_embeddings and the objective is mlm. */
#ifndef PLM_COMMON_HUGGINGFACE_PUBLISHED_CONFIG_H
#define PLM_COMMON_HUGGINGFACE_PUBLISHED_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/model/model_config.h"

struct cJSON;

/* The name of the class that transformers opens weights of an architecture with: "EsmForMaskedLM";
 * NULL if it is not one of published weights. */
const char *plm_published_class(enum plm_architecture architecture);

/* Whether a model_type ("esm") is read here, and as which architecture. */
bool plm_published_model_type(const char *model_type, enum plm_architecture *architecture);
/* All that are read here, as "esm (ESM-2)". Returns how many there are. */
enum { PLM_PUBLISHED_TYPE_SIZE = 40 };
size_t plm_published_model_types(char types[PLM_ARCHITECTURES][PLM_PUBLISHED_TYPE_SIZE]);

/* Puts a number in place of any that the key has, exactly, and with a point: transformers 5 refuses
 * a whole number where its class has a float. */
void plm_published_number_put(struct cJSON *json, const char *key, double value);

/* Adds the keys that transformers' config class has to an empty object. dtype: of the weights. */
void plm_published_config_print(const struct plm_model_config *model, enum plm_objective objective,
                                const char *dtype, struct cJSON *json);

/* The numbers of a config.json that nothing here computes with: rates of dropout, and the spread of
 * initial values. NaN: the key is missing. */
enum { PLM_PUBLISHED_KEPT = 5 };
struct plm_published_kept {
  double numbers[PLM_PUBLISHED_KEPT];
};
/* Reads them from the config.json of a folder. Errors as plm_file_read and plm_json_parse. */
plm_status plm_published_kept_read(const char *directory, struct plm_published_kept *kept,
                                   struct plm_error *error);
/* Puts those that its class has into what plm_published_config_print made. */
void plm_published_kept_put(const struct plm_published_kept *kept, struct cJSON *json);

/* Reads a config.json whose model_type belongs to this architecture. A key that is missing has
 * transformers' default. PLM_FORMAT: a key has another type. PLM_UNSUPPORTED: it has a value with
 * which the class computes what is not computed here (absolute positions, a decoder, …).
 * PLM_CONFIG as plm_model_config_check, with the key in error->where. */
plm_status plm_published_config_parse(const struct cJSON *json, enum plm_architecture architecture,
                                      struct plm_model_config *model, enum plm_objective *objective,
                                      struct plm_error *error);

#endif
