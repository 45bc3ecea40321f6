/* Cases of attention for the kernels for sm_90a: see attention_sm90_case.h. */
#include "tests/support/attention_sm90_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/model/model_config.h"
#include "tests/emulation/controls.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/device_case.h"

static struct attention_batch sample;

void attention_sm90_check(const struct attention_batch *of, unsigned kinds, uint32_t window,
                          uint32_t block, int32_t heads, int32_t K, float cap)
{
  attention_case_check_cuda(
      &(struct attention_request){&of->batch, kinds, window, block, heads, K, cap, true});
}

void attention_sm90_check_widths(const int32_t *widths, size_t count)
{
  attention_batch_begin(&sample, 1, 80);
  attention_batch_add(&sample, 0, 0, 50);
  attention_batch_add(&sample, 0, 52, 26);
  for (size_t i = 0; i < count; i++)
    attention_sm90_check(&sample, PLM_ATTENTION_DOCUMENT, 0, 0, 2, widths[i], 0);
}

void attention_sm90_check_lengths(const uint32_t *lengths, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    const unsigned kind = i % 2 ? PLM_ATTENTION_CAUSAL : PLM_ATTENTION_DOCUMENT;
    attention_batch_begin(&sample, 2, lengths[i]);
    attention_batch_add(&sample, 0, 0, lengths[i]);
    attention_batch_add(&sample, 1, 0, (lengths[i] + 1) / 2);
    attention_sm90_check(&sample, kind, 0, 0, 1, 64, 0);
  }
}

void attention_sm90_check_padding(void)
{
  attention_batch_mixed(&sample);
  const struct attention_request request = {
      .batch = &sample.batch, .kinds = PLM_ATTENTION_DOCUMENT, .heads = 1, .K = 64, .bf16 = true};
  assert_true(attention_case_check_padding(&request) > 150);
}

void attention_sm90_two_chunks(struct attention_case *p, int32_t K)
{
  attention_batch_begin(&sample, 2, 260);
  attention_batch_add(&sample, 0, 0, 150);
  attention_batch_add(&sample, 0, 150, 100);
  attention_batch_add(&sample, 1, 5, 250);
  attention_case_init(p, &sample.batch, PLM_ATTENTION_DOCUMENT, 0, 0, 1, K, true);
}

/* ---- planted faults ---- */

static enum plm_planted_everywhere planted;
static __typeof__(((struct plm_ops *)NULL)->attention_backward) sound_backward;

/* Only the backward pass is faulty. */
static void faulty_backward(struct plm_ops *ops, const struct plm_attention_gradients *to,
                            const act *dout, const act *out, const float *lse,
                            const struct plm_attention_inputs *in,
                            const struct plm_interval_mask *mask,
                            const struct plm_attention_shape *shape)
{
  ops->synchronize(ops, NULL);
  plm_cuda_planted_everywhere(planted);
  sound_backward(ops, to, dout, out, lse, in, mask, shape);
  ops->synchronize(ops, NULL);
}

static bool differs(const struct attention_case *a, const struct attention_case *b,
                    enum attention_tensor first, size_t tensors)
{
  return memcmp(a->data[first], b->data[first], tensors * a->rows * a->width * 2) != 0;
}

bool attention_sm90_fault_shows(const struct attention_case *sound, enum attention_pass pass,
                                enum plm_planted_everywhere fault, uint64_t order)
{
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    struct attention_case p;
    if (freopen("/dev/null", "w", stderr) == NULL) _exit(0);
    attention_sm90_two_chunks(&p, sound->shape.K);
    plm_emulation_card("multiprocessors=2");
    struct plm_ops *ops = device_case_open(PLM_PRECISION_BF16, order);
    if (pass == ATTENTION_BACKWARD) {
      planted = fault;
      sound_backward = ops->attention_backward;
      ops->attention_backward = faulty_backward;
    } else {
      plm_cuda_planted_everywhere(fault);
    }
    attention_case_run_on(&p, ops);
    const bool out = differs(&p, sound, OUT, 1), gradients = differs(&p, sound, DQ, 3);
    _exit(pass == ATTENTION_FORWARD ? out : !out && gradients);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}
