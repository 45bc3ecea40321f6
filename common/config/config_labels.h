/* Rules of objectives that predict labels: what they need, and the head that they imply. */
#ifndef PLM_COMMON_CONFIG_CONFIG_LABELS_H
#define PLM_COMMON_CONFIG_CONFIG_LABELS_H

struct plm_config;
struct plm_loader;
struct plm_text;

/* After the settings of the model are settled. Completes config->model.head: its kind and loss, and
 * what esm2 and esmc imply. How many outputs it has depends on the corpus, so that here it is only
 * a lower bound, which estimates use. Reports settings that contradict each other. */
void plm_config_check_labels(struct plm_loader *loader);
/* Adds a line for each setting of the loss, the masks and the measures of a language model that was
 * given and has no effect. */
void plm_config_advise_labels(const struct plm_config *config, struct plm_text *text);

#endif
