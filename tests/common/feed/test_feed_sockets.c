/* A feed, and a link that fetches, whose sockets cannot be set up: it is said, and nothing is left.
 */
#include "tests/support/peers/failing_sockets.h"

#include <stdio.h>

#include "common/base/files/file.h"
#include "common/feed/feed.h"
#include "common/fetch/fetch_link.h"
#include "common/wire/security.h"
#include "tests/support/harness/scratch.h"

static char keys[PLM_PATH_SIZE];
static const char *used; /* NULL: no keys */

static plm_status feed(void **opened, struct plm_error *error)
{
  const struct plm_feed_options options = {.endpoint = "tcp://127.0.0.1:*",
                                           .keys = used,
                                           .plan = {.max_length = 64,
                                                    .alignment = 1,
                                                    .window_groups = 1,
                                                    .tokenizer = PLM_TOKENIZER_ESM,
                                                    .shuffle = true}};
  return plm_feed_open(&options, (struct plm_feed **)opened, error);
}
static void close_feed(void *opened)
{
  plm_feed_close(opened);
}

static plm_status link_of(void **opened, struct plm_error *error)
{
  return plm_fetch_link_open("tcp://127.0.0.1:9", used, (struct plm_fetch_link **)opened, error);
}
static void close_link(void *opened)
{
  plm_fetch_link_close(opened);
}

static void what_cannot_be_set_up_is_said(void **state)
{
  struct plm_error error = {0};
  (void)state;
  snprintf(keys, sizeof keys, "%s", scratch_path("keys"));
  assert_int_equal(plm_keys_write(keys, "client", NULL, &error), PLM_OK);
  for (int with = 0; with < 2; with++) {
    used = with ? keys : NULL;
    failing_sockets_try(feed, close_feed, with ? 25 : 19);
    failing_sockets_try(link_of, close_link, with ? 21 : 18);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_cannot_be_set_up_is_said)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
