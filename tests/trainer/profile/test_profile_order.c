/* Where events without a name fill the steps of a profile, and what becomes of events of a device
 * that do not fit between others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/text/text.h"
#include "tests/support/harness/cmocka_all.h"
#include "trainer/profile/profile_state.h"

struct span {
  enum plm_track track;
  const char *name;
  uint64_t begin_ns, end_ns;
};

static const char tracks[] = {
    [PLM_TRACK_STEP] = 's', [PLM_TRACK_PARTS] = 'p', [PLM_TRACK_DEVICE] = 'd'};

/* Completes the events; fails unless the profile is then as the lines say. */
static void completes(bool on_device, const struct span *spans, size_t count, const char *expected)
{
  struct plm_profile profile = {.on_device = on_device};
  struct plm_text text = {0};
  for (size_t i = 0; i < count; i++) {
    const bool step = strcmp(spans[i].name, "step") == 0;
    const struct plm_profile_event event = {.track = spans[i].track,
                                            .kind = step ? PLM_SPAN_STEP : PLM_SPAN_OPERATOR,
                                            .name = spans[i].name,
                                            .begin_ns = spans[i].begin_ns,
                                            .end_ns = spans[i].end_ns};
    plm_profile_put(&profile, &event);
  }
  plm_profile_complete(&profile);
  for (size_t i = 0; i < profile.count; i++) {
    const struct plm_profile_event *event = &profile.events[i];
    const bool other = strcmp(event->name, "other") == 0, idle = strcmp(event->name, "idle") == 0;
    plm_text_printf(&text, "%c %s %d-%d\n", tracks[event->track], event->name, (int)event->begin_ns,
                    (int)event->end_ns);
    assert_int_equal(event->kind == PLM_SPAN_OTHER, other);
    assert_int_equal(event->kind == PLM_SPAN_IDLE, idle);
    if (other || idle) assert_int_equal(event->number, -1);
  }
  assert_string_equal(text.data, expected);
  plm_text_deinit(&text);
  free(profile.events);
}

#define COMPLETES(on_device, expected, ...)                \
  completes(on_device, (const struct span[]){__VA_ARGS__}, \
            sizeof((const struct span[]){__VA_ARGS__}) / sizeof(struct span), expected)

#define STEP PLM_TRACK_STEP
#define DEVICE PLM_TRACK_DEVICE
#define PARTS PLM_TRACK_PARTS

/* Each gap of a step has an event, and what is within another one leaves none. Between steps, and
 * on other tracks, nothing is filled. */
static void gaps_are_filled(void **state)
{
  (void)state;
  COMPLETES(false,
            "s step 100-200\ns other 100-110\ns a 110-150\ns b 120-130\ns other 150-160\n"
            "s c 160-200\ns between 210-220\ns step 300-400\ns d 300-350\ns inside 300-320\n"
            "s other 350-399\ns e 399-400\np part 120-130\nd k 150-160\n",
            {STEP, "e", 399, 400}, {PARTS, "part", 120, 130}, {STEP, "inside", 300, 320},
            {STEP, "d", 300, 350}, {STEP, "step", 300, 400}, {STEP, "between", 210, 220},
            {DEVICE, "k", 150, 160}, {STEP, "c", 160, 200}, {STEP, "b", 120, 130},
            {STEP, "a", 110, 150}, {STEP, "step", 100, 200});
  COMPLETES(false, "s step 100-200\ns whole 100-200\n", {STEP, "whole", 100, 200},
            {STEP, "step", 100, 200});
  COMPLETES(false, "s step 100-101\ns other 100-101\n", {STEP, "step", 100, 101});
  COMPLETES(false, "s a 100-101\n", {STEP, "a", 100, 101});
}

/* The device has nothing to do in the gaps. */
static void a_device_is_idle_in_gaps(void **state)
{
  (void)state;
  COMPLETES(true,
            "s step 100-200\ns a 100-200\ns step 200-300\ns other 200-300\np part 210-220\n"
            "d idle 100-150\nd k 150-190\nd idle 190-200\nd idle 200-300\nd later 300-310\n",
            {DEVICE, "later", 300, 310}, {PARTS, "part", 210, 220}, {STEP, "step", 200, 300},
            {DEVICE, "k", 150, 190}, {STEP, "a", 100, 200}, {STEP, "step", 100, 200});
}

/* Events of the device lie one after the other, within the step in which they end. */
static void events_of_a_device_are_kept_in_order(void **state)
{
  (void)state;
  COMPLETES(true,
            "s step 100-200\ns other 100-200\nd before 80-100\nd early 100-120\nd idle 120-130\n"
            "d a 130-150\nd overlaps 150-160\nd late 160-200\nd within 160-160\nd just 160-160\n"
            "d last 200-200\n",
            {STEP, "step", 100, 200}, {DEVICE, "before", 80, 100}, {DEVICE, "early", 90, 120},
            {DEVICE, "a", 130, 150}, {DEVICE, "overlaps", 140, 160}, {DEVICE, "within", 141, 155},
            {DEVICE, "just", 142, 159}, {DEVICE, "late", 155, 201}, {DEVICE, "last", 190, 199});
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gaps_are_filled),
      cmocka_unit_test(a_device_is_idle_in_gaps),
      cmocka_unit_test(events_of_a_device_are_kept_in_order),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
