/* Cases of attention for the kernels for sm_90a: see attention_sm90_case.h. */
#include "tests/support/operators/attention_sm90_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/model/model_config.h"
#include "tests/emulation/controls.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/operators/device_case.h"

void attention_sm90_two_chunks(struct attention_case *p, int32_t K)
{
  static struct attention_batch sample;
  attention_batch_of(&sample, 2, 260, {0, 0, 150}, {0, 150, 100}, {1, 5, 250});
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
