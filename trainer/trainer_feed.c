/* Whom the trainer speaks to: packers over the feed, everybody over the announcements. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/plan/plan.h"
#include "trainer/trainer.h"

enum { LOOK_EVERY_MS = 1000 };

/* The evaluator's feed, for packers that joined the trainer: its address where it is known before
 * it is bound, else what stands in endpoints.json, else "". */
static void evaluation_address(const struct plm_trainer *trainer, char address[512])
{
  const struct plm_config_network *network = &trainer->config->network;
  const char *known = network->evaluation_feed_address;
  if (known == NULL && strchr(network->evaluation_feed, '*') == NULL)
    known = network->evaluation_feed;
  address[0] = '\0';
  if (known != NULL && strlen(known) < 512)
    strcpy(address, known);
  else if (plm_endpoint_read(trainer->run, "evaluation_feed", address, NULL) != PLM_OK)
    address[0] = '\0';
}

/* For `ps`: the packers that serve now, joined ones too. Readers see a whole file; it need not
 * reach the disk, and a failure to write it is nothing to stop for. */
static void say_packers(const struct plm_trainer *trainer)
{
  char path[PLM_PATH_SIZE], fresh[PLM_PATH_SIZE];
  if (plm_path_join(path, trainer->run, PLM_RUN_PACKERS, NULL) != PLM_OK ||
      plm_path_join(fresh, trainer->run, ".tmp-" PLM_RUN_PACKERS, NULL) != PLM_OK) {
    return;
  }
  char *text = plm_feed_peers_json(trainer->feed);
  const int file = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  const bool written = text != NULL && file >= 0 &&
                       plm_file_write_all(file, text, strlen(text), fresh, NULL) == PLM_OK;
  if (file >= 0) close(file);
  if (!written || rename(fresh, path) != 0) unlink(fresh);
  free(text);
}

void plm_trainer_follow_evaluator(struct plm_trainer *trainer)
{
  char address[512];
  const char *const others[] = {address};
  const char *const keys[] = {NULL}; /* the run's consumers share one key */
  const int64_t now = plm_clock_ms();
  if (trainer->looked_ms != 0 && now - trainer->looked_ms < LOOK_EVERY_MS) return;
  trainer->looked_ms = now;
  say_packers(trainer);
  evaluation_address(trainer, address);
  if (address[0] == '\0' || strcmp(address, trainer->evaluator) == 0) return;
  strcpy(trainer->evaluator, address);
  plm_feed_others(trainer->feed, others, keys, 1);
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
      .packers_given_up = plm_run_packers_given_up,
      .packers_context = trainer->run,
  };
  uint64_t epoch, chunk;
  PLM_TRY(plm_feed_open(&options, &trainer->feed, error));
  plm_trainer_follow_evaluator(trainer);
  plm_data_cursor_position(&trainer->state.cursor, &epoch, &chunk);
  plm_feed_seek(trainer->feed, PLM_SPLIT_TRAIN, epoch, chunk);
  PLM_TRY(plm_endpoint_write(trainer->run, "feed", plm_feed_bound(trainer->feed), error));
  PLM_TRY(plm_announcer_open(config->network.announcements, config->network.keys,
                             &trainer->announcer, error));
  return plm_endpoint_write(trainer->run, "announcements", plm_announcer_bound(trainer->announcer),
                            error);
}
