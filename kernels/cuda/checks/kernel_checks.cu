/* Which kernels a backend uses on a device of compute capability 9.0: see kernel_checks.cuh. */
#include "kernels/cuda/checks/kernel_checks.cuh"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/checks/check_memory.cuh"
#include "kernels/cuda/checks/check_process.cuh"
#include "kernels/cuda/products/relu2_products.cuh"

namespace
{

enum { HOPPER = 90, MAX_DEVICES = 64 };
enum verdict { UNKNOWN, AGREES, DISAGREES };

/* Kernels for sm_90a that replace those that run on every device. */
struct sm90_kernels {
  const char *variable;     /* environment variable that forces a choice */
  const char *others, *own; /* its values: the kernels for every device, and these */
  const char *what;         /* for messages: what they compute … */
  const char *instead;      /* … and what happens without them */
  plm_status (*check)(struct plm_cuda *cuda, struct plm_error *error);
  enum verdict verdicts[MAX_DEVICES]; /* for each device; checked once in a process */
  struct plm_error why;               /* of the last check that failed */
};
struct sm90_kernels attention = {
    "PLM_CUDA_ATTENTION",          "mma", "sm90", "attention", "attention runs on mma.sync",
    plm_cuda_attention_sm90_check, {},    {}};
struct sm90_kernels onepass = {"PLM_CUDA_ATTENTION_BACKWARD",
                               "split",
                               "onepass",
                               "attention backward",
                               "attention's backward pass is two kernels",
                               plm_cuda_attention_onepass_check,
                               {},
                               {}};
struct sm90_kernels products = {"PLM_CUDA_RELU2",
                                "library",
                                "fused",
                                "product",
                                "products and relu2 run one after the other",
                                plm_cuda_product_sm90_check,
                                {},
                                {}};

struct sm90_kernels *const all_kernels[] = {&attention, &onepass, &products};

/* What the environment says, or NULL. */
const char *said_of(const struct sm90_kernels *kernels)
{
  const char *said = getenv(kernels->variable);
  return said != nullptr && said[0] != 0 ? said : nullptr;
}

/* Whether the kernels may be used without being forced. Attention's backward pass in one kernel
 * belongs to attention on sm90; where that is forced, nothing is checked. */
bool in_question(const struct sm90_kernels *kernels, int device)
{
  return kernels != &onepass ||
         (said_of(&attention) == nullptr && attention.verdicts[device % MAX_DEVICES] != DISAGREES);
}

/* Whether this process has called CUDA. If so, a child of it could not. */
bool touched;

void say(struct sm90_kernels *kernels, int device, const struct plm_error *found)
{
  kernels->why = *found;
  fprintf(stderr, "cuda: device %d: %s, because the check of the sm_90a kernels failed: %s%s%s%s\n",
          device, kernels->instead, found->what, found->where[0] != 0 ? " (" : "", found->where,
          found->where[0] != 0 ? ")" : "");
}

/* Whether the kernels agree with the others on this device. If that is not known yet, because CUDA
 * was in use before the first backend opened, they are checked here; a fault is then final. */
plm_status check(struct plm_cuda *cuda, struct sm90_kernels *kernels, bool *agree,
                 struct plm_error *error)
{
  struct plm_error found = {};
  enum verdict *verdict = &kernels->verdicts[cuda->device % MAX_DEVICES];
  if (*verdict == UNKNOWN) {
    const plm_status status = kernels->check(cuda, &found);
    if (status != PLM_OK && status != PLM_CORRUPT) {
      plm_error_set(error, status, "device %d: the %s kernels for sm_90a: %s", cuda->device,
                    kernels->what, found.what);
      return plm_error_hint(error, "set %s=%s in the environment", kernels->variable,
                            kernels->others);
    }
    *verdict = status == PLM_OK ? AGREES : DISAGREES;
    if (status != PLM_OK) say(kernels, cuda->device, &found);
  }
  *agree = *verdict == AGREES;
  return PLM_OK;
}

/* The environment may force a choice. Otherwise the kernels are used on a device of compute
 * capability 9.0 if they compute there what the others do. */
plm_status choose(struct plm_cuda *cuda, struct sm90_kernels *kernels, bool *use, bool *forced,
                  struct plm_error *error)
{
  const char *said = said_of(kernels);
  *forced = said != nullptr;
  *use = *forced && strcmp(said, kernels->own) == 0;
  if (*forced && !*use && strcmp(said, kernels->others) != 0) {
    plm_error_set(error, PLM_CONFIG, "%s=%s: no such choice", kernels->variable, said);
    return plm_error_hint(error, "set it to %s or %s, or unset it", kernels->others, kernels->own);
  }
  if (*use && cuda->capability != HOPPER) {
    plm_error_set(error, PLM_UNSUPPORTED,
                  "%s=%s: device %d has compute capability %d.%d, and these kernels need 9.0",
                  kernels->variable, said, cuda->device, cuda->capability / 10,
                  cuda->capability % 10);
    return plm_error_hint(error, "unset it: the backend chooses kernels for the device");
  }
  if (!*forced && cuda->capability == HOPPER && cuda->bf16 && in_question(kernels, cuda->device))
    return check(cuda, kernels, use, error);
  return PLM_OK;
}

/* For the record: which kernels are in use, and why others are not. */
void describe_kernels(struct plm_cuda *cuda)
{
  static const char *const ways[] = {"library", "tuned", "fused"};
  static const char *const backward[] = {"", ", backward tuned", ", backward onepass"};
  snprintf(cuda->kernels, sizeof cuda->kernels, "attention %s%s, relu2 %s",
           cuda->attention_sm90 ? "sm90" : "mma",
           cuda->attention_sm90 ? backward[cuda->attention_backward] : "", ways[cuda->relu2]);
  cuda->ops.kernels = cuda->kernels;
  size_t used = 0;
  for (const struct sm90_kernels *kernels : all_kernels) {
    if (kernels->verdicts[cuda->device % MAX_DEVICES] != DISAGREES) continue;
    if (said_of(kernels) != nullptr || !in_question(kernels, cuda->device)) continue;
    snprintf(cuda->fallback + used, sizeof cuda->fallback - used, "%s%s: %.100s",
             used > 0 ? "; " : "", kernels->instead, kernels->why.what);
    used = strlen(cuda->fallback);
    cuda->ops.fallback = cuda->fallback;
  }
}

struct apart {
  int device;
  plm_cuda_opener open;
  const struct sm90_kernels *only; /* NULL: all that are to be checked */
};

/* Whether the kernels have to be checked before they may be used. */
bool unknown(const struct sm90_kernels *kernels, int device)
{
  return kernels->verdicts[device % MAX_DEVICES] == UNKNOWN && said_of(kernels) == nullptr &&
         in_question(kernels, device);
}

bool is_asked(const struct apart *asked, const struct sm90_kernels *kernels)
{
  return asked->only != nullptr ? asked->only == kernels : unknown(kernels, asked->device);
}

/* In a child: PLM_AGAIN if there is nothing to check. Closes nothing, since the child ends. Kernels
 * that have passed in an earlier process are not run, and then no memory of the device is used. */
plm_status check_apart(void *context, struct plm_error *error)
{
  const struct apart *asked = static_cast<const struct apart *>(context);
  struct plm_cuda *cuda = nullptr;
  if (asked->open(asked->device, false, &cuda, error) != PLM_OK) return PLM_AGAIN;
  if (cuda->capability != HOPPER) return PLM_AGAIN;
  bool is_open = false;
  for (const struct sm90_kernels *kernels : all_kernels) {
    if (!is_asked(asked, kernels) || plm_cuda_check_known(cuda, kernels->what)) continue;
    if (!is_open && asked->open(asked->device, true, &cuda, error) != PLM_OK) return PLM_AGAIN;
    is_open = true;
    PLM_TRY(kernels->check(cuda, error));
    plm_cuda_check_keep(cuda, kernels->what);
  }
  return PLM_OK;
}

} // namespace

/* One child checks all of them. Only if it finds a fault, after which it could not go on, each is
 * checked in a child of its own. */
void plm_cuda_check_kernels(int device, plm_cuda_opener open)
{
  struct apart asked = {device, open, nullptr};
  struct plm_error found = {};
  bool any = false;
  for (const struct sm90_kernels *kernels : all_kernels) any = any || unknown(kernels, device);
  if (touched || !any) return;
  const plm_status all = plm_cuda_check_apart(check_apart, &asked, &found);
  for (struct sm90_kernels *kernels : all_kernels) {
    if (all == PLM_AGAIN || !unknown(kernels, device)) continue;
    asked.only = kernels;
    found = {};
    const plm_status status =
        all == PLM_OK ? PLM_OK : plm_cuda_check_apart(check_apart, &asked, &found);
    if (status == PLM_AGAIN) break;
    kernels->verdicts[device % MAX_DEVICES] = status == PLM_OK ? AGREES : DISAGREES;
    if (status != PLM_OK) say(kernels, device, &found);
  }
}

plm_status plm_cuda_choose_kernels(struct plm_cuda *cuda, struct plm_error *error)
{
  bool use, forced;
  PLM_TRY(choose(cuda, &attention, &cuda->attention_sm90, &forced, error));
  PLM_TRY(choose(cuda, &onepass, &use, &forced, error));
  if (use) cuda->attention_backward = forced ? PLM_WAYS_SECOND : PLM_WAYS_TUNED;
  PLM_TRY(choose(cuda, &products, &use, &forced, error));
  if (use) cuda->relu2 = forced ? PLM_WAYS_SECOND : PLM_WAYS_TUNED;
  if (cuda->attention_sm90 || use) cuda->ops.isa = "sm_90a";
  if (cuda->capability == HOPPER && cuda->bf16) describe_kernels(cuda);
  return PLM_OK;
}

void plm_cuda_forget_checks(void)
{
  for (struct sm90_kernels *kernels : all_kernels)
    for (enum verdict &verdict : kernels->verdicts) verdict = UNKNOWN;
  touched = false;
}

void plm_cuda_touched(void)
{
  touched = true;
}

bool plm_cuda_is_touched(void)
{
  return touched;
}
