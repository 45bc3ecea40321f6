/* Limits of control groups in trees that the test writes: v1, v2 and both, at every level. */
#include "tests/support/harness/cmocka_all.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/process/cgroup.h"
#include "tests/support/harness/scratch.h"

static char root[1000];

static int begin(void **state)
{
  (void)state;
  static unsigned number;
  char name[32];
  snprintf(name, sizeof name, "tree%u", number++);
  snprintf(root, sizeof root, "%.999s", scratch_path(name));
  plm_cgroup_read_below(root);
  return 0;
}

/* Writes ROOT/PATH and makes the folders above it. */
static void put(const char *path, const char *format, ...)
{
  char full[PLM_PATH_SIZE], folder[PLM_PATH_SIZE], text[2000];
  va_list arguments;
  va_start(arguments, format);
  const int size = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  snprintf(full, sizeof full, "%s/%s", root, path);
  snprintf(folder, sizeof folder, "%s", full);
  *strrchr(folder, '/') = '\0';
  assert_int_equal(plm_directory_make(folder, NULL), PLM_OK);
  scratch_write(full, text, (size_t)size);
}

static void put_mounts(const char *lines, const char *groups)
{
  put("proc/self/mountinfo", "22 1 0:20 / / rw - ext4 /dev/sda rw\n%s", lines);
  put("proc/self/cgroup", "%s", groups);
}

static const char unified[] = "30 22 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
static const char separate[] =
    "31 22 0:27 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"
    "32 22 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "33 22 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";

static void expect(uint64_t memory, uint64_t left, uint32_t cores, const char *folder)
{
  struct plm_cgroup_limits limits;
  plm_cgroup_read(&limits);
  assert_int_equal(limits.memory_bytes, memory);
  assert_int_equal(limits.memory_free_bytes, left);
  assert_int_equal(limits.cores, cores);
  if (folder == NULL) return;
  assert_int_equal(strncmp(limits.memory_folder, root, strlen(root)), 0);
  assert_string_equal(limits.memory_folder + strlen(root), folder);
}

static void without_groups_there_is_no_limit(void **state)
{
  (void)state;
  expect(UINT64_MAX, UINT64_MAX, 0, NULL);
  put_mounts("", "0::/\n");
  expect(UINT64_MAX, UINT64_MAX, 0, NULL);
  put_mounts(unified, "0::/a\n"); /* the folder of the group is not there */
  expect(UINT64_MAX, UINT64_MAX, 0, NULL);
}

static void v2_counts_each_level(void **state)
{
  (void)state;
  put_mounts(unified, "0::/kube/pod/one\n");
  put("sys/fs/cgroup/kube/pod/one/memory.max", "max\n");
  put("sys/fs/cgroup/kube/pod/one/memory.current", "900\n");
  put("sys/fs/cgroup/kube/pod/one/cpu.max", "max 100000\n");
  put("sys/fs/cgroup/kube/pod/cpu.max", "max 100000\n");
  expect(UINT64_MAX, UINT64_MAX, 0, NULL);
  put("sys/fs/cgroup/kube/pod/memory.max", "5000\n");
  put("sys/fs/cgroup/kube/pod/memory.current", "1700\n");
  put("sys/fs/cgroup/kube/pod/cpu.max", "200001 100000\n");
  put("sys/fs/cgroup/kube/cpu.max", "400000 100000\n");
  expect(5000, 3300, 3, "/sys/fs/cgroup/kube/pod");
  put("sys/fs/cgroup/kube/pod/cpu.max", "200000 100000\n"); /* exactly two */
  /* pages of files can be dropped */
  put("sys/fs/cgroup/kube/pod/memory.stat",
      "anon 1000\ninactive_file 500\nactive_file 200\nfile 9\n");
  expect(5000, 4000, 2, "/sys/fs/cgroup/kube/pod");
  /* the level with the least that is left counts, not that with the least limit */
  put("sys/fs/cgroup/kube/memory.max", "9000\n");
  put("sys/fs/cgroup/kube/memory.current", "5001\n");
  expect(9000, 3999, 2, "/sys/fs/cgroup/kube");
  put("sys/fs/cgroup/kube/memory.current", "5000\n");
  expect(5000, 4000, 2, "/sys/fs/cgroup/kube/pod");
  /* the root itself, as a container with its own namespace sees it, and memory.high */
  put("sys/fs/cgroup/memory.max", "8000\n");
  put("sys/fs/cgroup/memory.high", "2500\n");
  put("sys/fs/cgroup/memory.current", "3000\n");
  put("sys/fs/cgroup/cpu.max", "50000 100000\n");
  expect(2500, 0, 1, "/sys/fs/cgroup");
  put("sys/fs/cgroup/memory.high", "8001\n");
  expect(5000, 4000, 1, "/sys/fs/cgroup/kube/pod");
}

static void v1_counts_each_level(void **state)
{
  (void)state;
  put_mounts(separate, "4:memory:/a/b\n3:cpuset:/\n1:cpu,cpuacct:/c\n0::/elsewhere\n");
  put("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
  put("sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", "10\n");
  put("sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us", "-1\n");
  put("sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_period_us", "100000\n");
  expect(UINT64_MAX, UINT64_MAX, 0, NULL);
  put("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "4000\n");
  put("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "1500\n");
  put("sys/fs/cgroup/memory/a/memory.stat",
      "inactive_file 7\ntotal_inactive_file 300\ntotal_active_file 200\n");
  put("sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us", "150000\n");
  expect(4000, 3000, 2, "/sys/fs/cgroup/memory/a");
  put("sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us", "100000\n");
  expect(4000, 3000, 1, NULL);
}

/* Docker without a namespace for groups mounts the group of the container, and /proc names it as
 * the host does. */
static void a_container_sees_only_its_own_group(void **state)
{
  (void)state;
  put_mounts("31 22 0:27 /docker/af3 /sys/fs/cgroup/me\\040mory ro - cgroup cgroup rw,memory\n",
             "4:memory:/docker/af3\n");
  put("sys/fs/cgroup/me mory/memory.limit_in_bytes", "700\n");
  put("sys/fs/cgroup/me mory/memory.usage_in_bytes", "100\n");
  expect(700, 600, 0, "/sys/fs/cgroup/me mory");
  put("proc/self/cgroup", "4:memory:/docker/af3/below\n");
  put("sys/fs/cgroup/me mory/below/memory.limit_in_bytes", "500\n");
  put("sys/fs/cgroup/me mory/below/memory.usage_in_bytes", "0\n");
  expect(500, 500, 0, "/sys/fs/cgroup/me mory/below");
  /* a group that is not below what is mounted, and one that only begins with the same letters */
  put("proc/self/cgroup", "4:memory:/../other\n");
  expect(700, 600, 0, "/sys/fs/cgroup/me mory");
  put("proc/self/cgroup", "4:memory:/docker/af3-2/below\n");
  expect(700, 600, 0, "/sys/fs/cgroup/me mory");
  /* mountinfo escapes the blank in the name of the group, /proc/self/cgroup does not */
  put_mounts("31 22 0:27 /docker/a\\040b /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
             "4:memory:/docker/a b/below\n");
  put("sys/fs/cgroup/memory/below/memory.limit_in_bytes", "300\n");
  put("sys/fs/cgroup/memory/below/memory.usage_in_bytes", "0\n");
  expect(300, 300, 0, "/sys/fs/cgroup/memory/below");
}

static void cores_are_those_of_the_quota_or_of_the_set(void **state)
{
  (void)state;
  cpu_set_t set;
  assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
  const int all = CPU_COUNT(&set);
  put_mounts(unified, "0::/\n");
  assert_int_equal(plm_usable_cores(), all);
  put("sys/fs/cgroup/cpu.max", "%d 1000\n", 1000 * (all + 1));
  assert_int_equal(plm_usable_cores(), all);
  put("sys/fs/cgroup/cpu.max", "10 1000\n");
  assert_int_equal(plm_usable_cores(), 1);
  put("sys/fs/cgroup/cpu.max", "%d 1000\n", 1000 * all - 1000 + 1);
  assert_int_equal(plm_usable_cores(), all);
}

static bool no_affinity;

/* Takes the place of libc's function in this program. */
int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
  memset(set, 0, size);
  return no_affinity || syscall(SYS_sched_getaffinity, pid, size, set) < 0 ? -1 : 0;
}

/* As on a host of more processors than a cpu_set_t has. */
static void an_unknown_set_is_all_cores(void **state)
{
  (void)state;
  put_mounts(unified, "0::/\n");
  no_affinity = true;
  const uint32_t cores = plm_usable_cores();
  no_affinity = false;
  assert_int_equal(cores, sysconf(_SC_NPROCESSORS_ONLN));
}

static void mounts_of_another_form_are_skipped(void **state)
{
  (void)state;
  char lines[500];
  snprintf(lines, sizeof lines,
           " - cgroup2 cgroup2 rw\n30 22 0:26 / /a rw cgroup2 cgroup2 rw\n"
           "30 22 0:26 / /a rw - cgroup2 cgroup2\n%s",
           unified);
  put_mounts(lines, "0::/\n");
  put("sys/fs/cgroup/cpu.max", "3000 1000\n");
  expect(UINT64_MAX, UINT64_MAX, 3, NULL);
}

/* Of two mounts of one hierarchy, the first counts. One whose path is too long does not. */
static void one_mount_of_each_hierarchy_counts(void **state)
{
  (void)state;
  char lines[PLM_CGROUP_PATH_SIZE + 500], name[PLM_CGROUP_PATH_SIZE];
  snprintf(lines, sizeof lines, "%s31 22 0:27 / /second rw - cgroup2 cgroup2 rw\n", unified);
  put_mounts(lines, "0::/\n");
  put("sys/fs/cgroup/cpu.max", "3000 1000\n");
  put("second/cpu.max", "2000 1000\n");
  expect(UINT64_MAX, UINT64_MAX, 3, NULL);
  memset(name, 'n', sizeof name);
  name[0] = '/';
  name[sizeof name - 1] = '\0';
  const int size =
      snprintf(lines, sizeof lines, "29 22 0:26 / %s rw - cgroup2 cgroup2 rw\n%s", name, unified);
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, root, "proc/self/mountinfo", NULL), PLM_OK);
  scratch_write(path, lines, (size_t)size);
  expect(UINT64_MAX, UINT64_MAX, 3, NULL);
}

static void groups_of_another_form_are_skipped(void **state)
{
  (void)state;
  put_mounts(unified, "nothing\n1:memory\n0::/a\n7\n");
  put("sys/fs/cgroup/a/cpu.max", "3000 1000\n");
  put("outside/cpu.max", "1000 1000\n");
  expect(UINT64_MAX, UINT64_MAX, 3, NULL);
  /* one that is not below the mount, which the name of the group would leave */
  put("proc/self/cgroup", "0::/a/../../../../outside\n");
  expect(UINT64_MAX, UINT64_MAX, 0, NULL);
}

/* A limit without the figure that it is compared with, and quotas that say nothing. */
static void a_limit_without_its_figures_is_none(void **state)
{
  (void)state;
  put_mounts(unified, "0::/a\n");
  put("sys/fs/cgroup/a/memory.max", "5000\n");
  expect(UINT64_MAX, UINT64_MAX, 0, NULL);
  static const struct {
    const char *line;
    uint32_t cores;
  } rows[] = {{"0 1000", 0},   {"1000 0", 0},       {"0 0", 0},
              {"1 1000", 1},   {"4294967295 1", 0}, {"4294967294 1", 4294967294u},
              {"max 1000", 0}, {"9000", 0}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    put("sys/fs/cgroup/a/cpu.max", "%s\n", rows[i].line);
    expect(UINT64_MAX, UINT64_MAX, rows[i].cores, NULL);
  }
  put("sys/fs/cgroup/a/cpu.max", "2000 1000\n");
  put("sys/fs/cgroup/cpu.max", "0 1000\n"); /* and the limit below it stays */
  expect(UINT64_MAX, UINT64_MAX, 2, NULL);
  put_mounts(separate, "1:cpu,cpuacct:/c\n");
  put("sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us", "150000\n");
  expect(UINT64_MAX, UINT64_MAX, 0, NULL);
  put("sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_period_us", "100000\n");
  expect(UINT64_MAX, UINT64_MAX, 2, NULL);
}

/* A backslash that begins no escape stands for itself. */
static void a_backslash_may_be_part_of_a_name(void **state)
{
  (void)state;
  put_mounts("30 22 0:26 / /sys/a\\x rw - cgroup2 cgroup2 rw\n", "0::/\n");
  put("sys/a\\x/cpu.max", "3000 1000\n");
  expect(UINT64_MAX, UINT64_MAX, 3, NULL);
}

static void kills_for_lack_of_memory_are_counted(void **state)
{
  (void)state;
  struct plm_cgroup_limits limits;
  put("proc/vmstat", "nr_free_pages 5\noom_kill 12\noom_kill_more 3\n");
  put_mounts(unified, "0::/a\n");
  plm_cgroup_read(&limits);
  assert_false(limits.counts_kills); /* the group does not, so the host does */
  assert_int_equal(limits.kills, 12);
  put("sys/fs/cgroup/a/memory.events", "low 0\noom 7\noom_kill 2\noom_group_kill 1\n");
  plm_cgroup_read(&limits);
  assert_true(limits.counts_kills);
  assert_int_equal(limits.kills, 2);
  put_mounts(separate, "4:memory:/a\n");
  put("sys/fs/cgroup/memory/a/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n");
  plm_cgroup_read(&limits);
  assert_true(limits.counts_kills);
  assert_int_equal(limits.kills, 4);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, begin)
  const struct CMUnitTest tests[] = {
      TEST(without_groups_there_is_no_limit),
      TEST(v2_counts_each_level),
      TEST(v1_counts_each_level),
      TEST(a_container_sees_only_its_own_group),
      TEST(cores_are_those_of_the_quota_or_of_the_set),
      TEST(an_unknown_set_is_all_cores),
      TEST(mounts_of_another_form_are_skipped),
      TEST(one_mount_of_each_hierarchy_counts),
      TEST(groups_of_another_form_are_skipped),
      TEST(a_limit_without_its_figures_is_none),
      TEST(a_backslash_may_be_part_of_a_name),
      TEST(kills_for_lack_of_memory_are_counted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
