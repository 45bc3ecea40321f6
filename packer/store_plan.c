/* Plans that several workers share. */
#include "packer/store_plan.h"

plm_status store_plan_open(struct store_plan *plan, struct plm_corpus *corpus,
                           struct plm_plan **opened, struct plm_error *error)
{
  plm_status status = PLM_OK;
  pthread_mutex_lock(&plan->lock);
  if (plan->plan == NULL)
    status = plm_plan_open_corpus(&plan->parameters, corpus, plan->split, &plan->plan, error);
  *opened = plan->plan;
  pthread_mutex_unlock(&plan->lock);
  return status;
}

plm_status store_plan_open_unread(struct store_plan *plan, struct plm_corpus *corpus,
                                  struct plm_plan **opened, struct plm_error *error)
{
  const struct plm_corpus_split *split = &plm_corpus_info(corpus)->splits[plan->split];
  plm_status status = PLM_OK;
  pthread_mutex_lock(&plan->lock);
  if (plan->unread == NULL)
    status =
        plm_plan_open(&plan->parameters, split->documents, split->clusters, &plan->unread, error);
  *opened = plan->unread;
  pthread_mutex_unlock(&plan->lock);
  return status;
}

void store_plan_close(struct store_plan *plan)
{
  plm_plan_close(plan->plan);
  plm_plan_close(plan->unread);
  plan->plan = plan->unread = NULL;
}
