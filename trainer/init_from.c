/* First weights from a folder. */
#include "trainer/init_from.h"

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/checkpoint/checkpoint.h"
#include "common/huggingface/model_folder.h"

static void say_what_differs(const struct plm_text *notes)
{
  if (notes->length > 0)
    plm_info("trainer.init_from: the weights were trained with other settings:\n%.*s",
             (int)notes->length - 1, notes->data);
}

static plm_status load(const struct plm_model_folder *folder, struct plm_model *model,
                       struct plm_error *error)
{
  struct plm_text notes = {0};
  plm_status status = plm_model_folder_fits(folder, plm_model_config(model), &notes, error);
  if (status == PLM_OK) say_what_differs(&notes);
  plm_text_deinit(&notes);
  const char *file = plm_model_folder_weights(folder);
  if (status == PLM_OK) status = plm_checkpoint_load_weights(folder->directory, file, model, error);
  if (status != PLM_OK) return status;
  if (folder->checkpoint)
    plm_info("initial weights from %s (%s, step %llu)", folder->directory, file,
             (unsigned long long)folder->step);
  else
    plm_info("initial weights from %s", folder->directory);
  return PLM_OK;
}

plm_status plm_init_from(const char *directory, struct plm_model *model, struct plm_error *error)
{
  struct plm_model_folder folder;
  plm_status status = plm_model_folder_check(directory, &folder, error);
  if (status == PLM_OK) status = load(&folder, model, error);
  if (status == PLM_OK || status == PLM_NO_MEMORY) return status;
  if (error->hint[0] == '\0')
    plm_error_hint(error, "trainer.init_from wants a checkpoint, or a Hugging Face folder of the "
                          "same model");
  return error->status = PLM_CONFIG;
}
