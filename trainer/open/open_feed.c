/* Opens the feed and the announcements. */
#include "trainer/open/open_feed.h"

#include "trainer/trainer_options.h"

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

/* Called by the thread that waits for packers: while the run is opened, the one that trains, which
 * tells it itself; later the one that fills inputs. */
static void count_turn(void *context, uint32_t packers)
{
  struct plm_trainer *trainer = context;
  if (trainer->awaits_labels) {
    plm_run_pulse_wait(&trainer->pulse,
                       packers == 0 ? "waiting for packers" : "waiting for labels");
    return;
  }
  trainer->feed_packers = packers;
  trainer->feed_turns++;
}

plm_status plm_open_feed(struct plm_trainer *trainer, struct plm_error *error)
{
  const struct plm_config *config = trainer->config;
  const struct plm_data_cursor *cursor = &trainer->state.cursor;
  const struct plm_data_sources corpora = plm_data_sources_of(config);
  struct plm_feed_source_options sources[PLM_MAX_SOURCES];
  plm_data_mixture_feed(cursor, &corpora, trainer->roots, sources);
  PLM_TRY(plm_corpus_paths_find(NULL, config, &trainer->corpora, error));
  const struct plm_feed_options options = {
      .sources = sources,
      .source_count = cursor->source_count,
      .endpoint = config->network.feed,
      .keys = trainer->keys,
      .role = "trainer",
      .run_id = trainer->run_id,
      .plan = corpora.plans[0],
      .split = PLM_SPLIT_TRAIN,
      .credit_bytes = config->network.credit_bytes,
      .wait_packers_s = config->network.wait_packers_s,
      .waiting = count_turn,
      .waiting_context = trainer,
      .folders = (const char *const *)trainer->corpora.paths,
      .folder_count = trainer->corpora.count,
  };
  PLM_TRY(plm_feed_open(&options, &trainer->feed, error));
  PLM_TRY(tell_run_folder(trainer, error));
  plm_data_cursor_seek(trainer->feed, cursor);
  PLM_TRY(plm_endpoint_write(trainer->run, "feed", plm_feed_bound(trainer->feed), error));
  PLM_TRY(
      plm_announcer_open(config->network.announcements, trainer->keys, &trainer->announcer, error));
  return plm_endpoint_write(trainer->run, "announcements", plm_announcer_bound(trainer->announcer),
                            error);
}

void plm_close_feed(struct plm_trainer *trainer)
{
  if (trainer->announcer != NULL) {
    plm_endpoint_remove(trainer->run, "announcements");
    plm_announcer_close(trainer->announcer);
  }
  plm_feed_run_close(trainer->feed_run);
  if (trainer->feed != NULL) plm_endpoint_remove(trainer->run, "feed");
  plm_feed_close(trainer->feed);
  plm_corpus_paths_deinit(&trainer->corpora);
}

void plm_remove_endpoints(const struct plm_trainer *trainer)
{
  plm_peers_remove(trainer->run, "trainer");
  plm_endpoint_remove(trainer->run, "announcements");
  plm_endpoint_remove(trainer->run, "feed");
}
