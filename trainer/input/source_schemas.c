/* Schemas go from the feed of rank 0 to all ranks as bytes. */
#include "trainer/input/source_schemas.h"

#include <stdlib.h>

#include "common/base/alloc.h"

static const uint64_t no_more = UINT64_MAX; /* a size that says that rank 0 stops */

/* Says to the other ranks that no schema follows. If one of them has gone, it has a reason of its
 * own. */
static void send_stop(struct plm_ranks *ranks)
{
  for (uint32_t r = 1; r < ranks->ranks; r++)
    (void)plm_collective_send(ranks->collective, PLM_LANE_INPUT, r, &no_more, sizeof no_more, NULL);
}

/* Sends a schema, which may be NULL, to the other ranks. */
static plm_status send_schema(struct plm_ranks *ranks, const struct plm_label_schema *schema,
                              struct plm_error *error)
{
  const uint64_t size = schema == NULL ? 0 : plm_label_schema_bytes(schema);
  uint8_t *bytes = plm_alloc(size);
  plm_status status = PLM_OK;
  if (size > 0) plm_label_schema_encode(schema, bytes);
  for (uint32_t r = 1; r < ranks->ranks && status == PLM_OK; r++) {
    status = plm_collective_send(ranks->collective, PLM_LANE_INPUT, r, &size, sizeof size, error);
    if (status == PLM_OK && size > 0)
      status = plm_collective_send(ranks->collective, PLM_LANE_INPUT, r, bytes, size, error);
  }
  free(bytes);
  return status;
}

static plm_status receive_schema(struct plm_ranks *ranks, struct plm_label_schema *schema,
                                 struct plm_error *error)
{
  uint64_t size = 0;
  PLM_TRY(plm_collective_receive(ranks->collective, PLM_LANE_INPUT, 0, &size, sizeof size, error));
  if (size == 0) return PLM_OK;
  if (size == no_more) return plm_error_set(error, PLM_INTERRUPTED, "rank 0 stops");
  uint8_t *bytes = plm_alloc(size);
  plm_status status =
      plm_collective_receive(ranks->collective, PLM_LANE_INPUT, 0, bytes, size, error);
  if (status == PLM_OK) status = plm_label_schema_decode(bytes, size, schema, error);
  free(bytes);
  return status;
}

plm_status plm_label_schemas_receive(struct plm_feed *feed, struct plm_ranks *ranks,
                                     uint32_t source_count, const volatile int *stop,
                                     struct plm_label_schemas *out, struct plm_error *error)
{
  *out = (struct plm_label_schemas){.count = source_count};
  PLM_ASSERT(source_count <= PLM_MAX_SOURCES);
  for (uint32_t k = 0; k < source_count; k++) {
    if (feed != NULL) {
      const struct plm_label_schema *schema;
      const plm_status status = plm_feed_labels(feed, k, stop, &schema, error);
      if (status == PLM_INTERRUPTED) send_stop(ranks);
      PLM_TRY(status);
      if (schema != NULL) plm_label_schema_copy(schema, &out->owned[k]);
      PLM_TRY(send_schema(ranks, schema, error));
    } else {
      PLM_TRY(receive_schema(ranks, &out->owned[k], error));
    }
    if (out->owned[k].count > 0) out->schemas[k] = &out->owned[k];
  }
  return PLM_OK;
}

void plm_label_schemas_deinit(struct plm_label_schemas *schemas)
{
  for (uint32_t k = 0; k < schemas->count; k++) plm_label_schema_deinit(&schemas->owned[k]);
  *schemas = (struct plm_label_schemas){0};
}
