/* Whom the trainer speaks to: packers over the feed, everybody over the announcements. */
#include "common/plan/plan.h"
#include "trainer/trainer.h"

static plm_status tell_run_folder(struct plm_trainer *trainer, struct plm_error *error)
{
  const struct plm_config_network *network = &trainer->config->network;
  const struct plm_feed_run_options options = {
      .run = trainer->run,
      .role = "trainer",
      .feed = trainer->feed,
      .other_key = "evaluation_feed",
      .other_bind = network->evaluation_feed,
      .other_address = network->evaluation_feed_address,
  };
  return plm_feed_run_open(&options, &trainer->feed_run, error);
}

plm_status plm_trainer_open_feed(struct plm_trainer *trainer, struct plm_error *error)
{
  const struct plm_config *config = trainer->config;
  const struct plm_feed_options options = {
      .endpoint = config->network.feed,
      .keys = config->network.keys,
      .role = "trainer",
      .run_id = trainer->run_id,
      .plan = plm_plan_training(config),
      .split = PLM_SPLIT_TRAIN,
      .fingerprint = trainer->state.cursor.fingerprint,
      .credit_bytes = config->network.credit_bytes,
      .wait_packers_s = config->network.wait_packers_s,
  };
  uint64_t epoch, chunk;
  PLM_TRY(plm_feed_open(&options, &trainer->feed, error));
  PLM_TRY(tell_run_folder(trainer, error));
  plm_data_cursor_position(&trainer->state.cursor, &epoch, &chunk);
  plm_feed_seek(trainer->feed, PLM_SPLIT_TRAIN, epoch, chunk);
  PLM_TRY(plm_endpoint_write(trainer->run, "feed", plm_feed_bound(trainer->feed), error));
  PLM_TRY(plm_announcer_open(config->network.announcements, config->network.keys,
                             &trainer->announcer, error));
  return plm_endpoint_write(trainer->run, "announcements", plm_announcer_bound(trainer->announcer),
                            error);
}
