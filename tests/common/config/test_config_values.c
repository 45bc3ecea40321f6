/* Values of single settings, from a file, a flag or a variable: both sides of each limit. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/expected/config_outcome.h"

#define EXPECT(cases) expect_config_outcomes(cases, sizeof cases / sizeof *cases)

static const struct config_outcome endpoints[] = {
    {"network: {feed: 'ipc:///a', evaluation_feed: 'ipc:///a'}\n", "",
     "pipeline.yaml:1:46: network.evaluation_feed: is the same endpoint as network.feed\n"},
    {"network: {feed: 'ipc:///a', evaluation_feed: 'ipc:///b', announcements: 'ipc:///a'}\n", "",
     "pipeline.yaml:1:73: network.announcements: is the same endpoint as network.feed\n"},
    {"network: {feed: 'tcp://127.0.0.1:5', evaluation_feed: 'tcp://127.0.0.1:5'}\n", "",
     "pipeline.yaml:1:55: network.evaluation_feed: is the same endpoint as network.feed\n"},
    {"network: {feed: 'tcp://127.0.0.1:*', evaluation_feed: 'tcp://127.0.0.1:*', announcements: "
     "'tcp://127.0.0.1:*'}\n",
     "network.feed", "network.feed: tcp://127.0.0.1:*\n"},
    {"network: {feed: 'tcp://127.0.0.1:0', evaluation_feed: 'tcp://127.0.0.1:0'}\n", "network.feed",
     "network.feed: tcp://127.0.0.1:0\n"},
    {"network: {feed: 'tcp://localhost:1', evaluation_feed: 'tcp://[::1]:2', announcements: "
     "'tcp://127.1.2.3:3'}\n",
     "network.feed network.evaluation_feed network.announcements",
     "network.feed: tcp://localhost:1\n"
     "network.evaluation_feed: \"tcp://[::1]:2\"\n"
     "network.announcements: tcp://127.1.2.3:3\n"},
    {"network: {feed: 'tcp://localhost.x:1', evaluation_feed: 'tcp://[::]:2', announcements: "
     "'tcp://128.1.2.3:3'}\n",
     "",
     "pipeline.yaml:1:17: network.feed: other hosts can reach tcp://localhost.x:1, so CURVE keys "
     "are required; run `plm-pipeline keys keys` and set network.keys: keys\n"
     "pipeline.yaml:1:57: network.evaluation_feed: other hosts can reach tcp://[::]:2, so CURVE "
     "keys are required; run `plm-pipeline keys keys` and set network.keys: keys\n"
     "pipeline.yaml:1:88: network.announcements: other hosts can reach tcp://128.1.2.3:3, so CURVE "
     "keys are required; run `plm-pipeline keys keys` and set network.keys: keys\n"},
    {"network: {feed: 'tcp://*:1', keys: /k}\n", "network.feed network.keys",
     "network.feed: tcp://*:1\n"
     "network.keys: /k\n"},
    {"network: {feed: x, evaluation_feed: x}\n", "",
     "pipeline.yaml:1:17: network.feed: expected tcp://HOST:PORT or ipc://PATH, found \"x\"\n"
     "pipeline.yaml:1:37: network.evaluation_feed: expected tcp://HOST:PORT or ipc://PATH, found "
     "\"x\"\n"},
    {"network: {feed: 'tcp://a:65535', evaluation_feed: 'tcp://a:65536', keys: /k}\n", "",
     "pipeline.yaml:1:51: network.evaluation_feed: expected tcp://HOST:PORT or ipc://PATH, found "
     "\"tcp://a:65536\"\n"},
    {"network: {feed: 'tcp://:5', evaluation_feed: 'tcp://a/b:5', announcements: 'tcp://a b:5', "
     "keys: /k}\n",
     "",
     "pipeline.yaml:1:17: network.feed: expected tcp://HOST:PORT or ipc://PATH, found "
     "\"tcp://:5\"\n"
     "pipeline.yaml:1:46: network.evaluation_feed: expected tcp://HOST:PORT or ipc://PATH, found "
     "\"tcp://a/b:5\"\n"
     "pipeline.yaml:1:76: network.announcements: expected tcp://HOST:PORT or ipc://PATH, found "
     "\"tcp://a b:5\"\n"},
    {"network: {feed: 'tcp://a', evaluation_feed: 'tcp://a:', announcements: 'tcp://a:05', keys: "
     "/k}\n",
     "",
     "pipeline.yaml:1:17: network.feed: expected tcp://HOST:PORT or ipc://PATH, found \"tcp://a\"\n"
     "pipeline.yaml:1:45: network.evaluation_feed: expected tcp://HOST:PORT or ipc://PATH, found "
     "\"tcp://a:\"\n"
     "pipeline.yaml:1:72: network.announcements: expected tcp://HOST:PORT or ipc://PATH, found "
     "\"tcp://a:05\"\n"},
    {"network: {feed: 'ipc://', evaluation_feed: 'ipc://@name', announcements: 'udp://a:5', keys: "
     "/k}\n",
     "",
     "pipeline.yaml:1:17: network.feed: expected tcp://HOST:PORT or ipc://PATH, found \"ipc://\"\n"
     "pipeline.yaml:1:74: network.announcements: expected tcp://HOST:PORT or ipc://PATH, found "
     "\"udp://a:5\"\n"},
    {"network: {feed: 'ipc://@name'}\n", "network.feed", "network.feed: \"ipc://@name\"\n"},
    {"network: {feed: "
     "'ipc:///"
     "sssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssss"
     "sssssssssssss'}\n",
     "network.feed",
     "network.feed: "
     "ipc:///"
     "sssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssss"
     "sssssssssssss\n"},
    {"network: {feed: "
     "'ipc:///"
     "sssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssss"
     "ssssssssssssss'}\n",
     "",
     "pipeline.yaml:1:17: network.feed: the path of the socket has 108 bytes, but the system "
     "allows only 107; use a shorter one\n"},
    {"network: {feed: null, keys: ''}\n", "",
     "pipeline.yaml:1:17: network.feed: expected tcp://HOST:PORT or ipc://PATH, found null\n"
     "pipeline.yaml:1:29: network.keys: must not be empty\n"},
    {"metrics: {prometheus: ':9464'}\n", "metrics.prometheus", "metrics.prometheus: \":9464\"\n"},
    {"metrics: {prometheus: 'h:*'}\n", "metrics.prometheus", "metrics.prometheus: \"h:*\"\n"},
    {"metrics: {prometheus: 9464}\n", "",
     "pipeline.yaml:1:23: metrics.prometheus: expected HOST:PORT, for example 127.0.0.1:9464, "
     "found \"9464\"\n"},
    {"metrics: {prometheus: 'h:65536'}\n", "",
     "pipeline.yaml:1:23: metrics.prometheus: expected HOST:PORT, for example 127.0.0.1:9464, "
     "found \"h:65536\"\n"},
};

static const struct config_outcome values[] = {
    {"seed: 007\n", "", "pipeline.yaml:1:7: seed: expected a whole number, found \"007\"\n"},
    {"seed: +5\n", "", "pipeline.yaml:1:7: seed: expected a whole number, found \"+5\"\n"},
    {"seed: 1e3\n", "", "pipeline.yaml:1:7: seed: expected a whole number, found \"1e3\"\n"},
    {"seed: 0\n", "seed", "seed: 0\n"},
    {"seed: -0\n", "",
     "pipeline.yaml:1:7: seed: -0 is out of range: must be at least 0 and at most "
     "18446744073709551615\n"},
    {"seed: -1e999\n", "", "pipeline.yaml:1:7: seed: expected a whole number, found \"-1e999\"\n"},
    {"seed: [1]\n", "", "pipeline.yaml:1:8: seed: expected a whole number, found a list\n"},
    {"seed: null\n", "", "pipeline.yaml:1:7: seed: expected a whole number, found null\n"},
    {"seed: ~\n", "", "pipeline.yaml:1:7: seed: expected a whole number, found null\n"},
    {"seed: {a: 1}\n", "", "pipeline.yaml:1:7: seed: expected a whole number, found a section\n"},
    {"seed: -x\n", "", "pipeline.yaml:1:7: seed: expected a whole number, found \"-x\"\n"},
    {"trainer: {ema: .5}\n", "trainer.ema", "trainer.ema: 0.5\n"},
    {"trainer: {ema: 0}\n", "trainer.ema", "trainer.ema: 0\n"},
    {"trainer: {ema: 1}\n", "",
     "pipeline.yaml:1:16: trainer.ema: 1 is out of range: must be at least 0 and below 1\n"},
    {"trainer: {ema: -0.1}\n", "",
     "pipeline.yaml:1:16: trainer.ema: -0.1 is out of range: must be at least 0 and below 1\n"},
    {"trainer: {ema: 1e999}\n", "",
     "pipeline.yaml:1:16: trainer.ema: expected a number, found \"1e999\"\n"},
    {"trainer: {ema: nan}\n", "",
     "pipeline.yaml:1:16: trainer.ema: expected a number, found \"nan\"\n"},
    {"trainer: {ema: 0x1p-1}\n", "",
     "pipeline.yaml:1:16: trainer.ema: expected a number, found \"0x1p-1\"\n"},
    {"trainer: {ema: '0.5'}\n", "",
     "pipeline.yaml:1:16: trainer.ema: expected a number, found the string \"0.5\"\n"},
    {"trainer: {ema: 0.5.5}\n", "",
     "pipeline.yaml:1:16: trainer.ema: expected a number, found \"0.5.5\"\n"},
    {"trainer: {ema: e}\n", "",
     "pipeline.yaml:1:16: trainer.ema: expected a number, found \"e\"\n"},
    {"data: {max_length: 1}\n", "",
     "pipeline.yaml:1:20: data.max_length: 1 is out of range: must be at least 2 and at most "
     "1048576 tokens\n"},
    {"data: {max_length: 2}\n"
     "trainer: {batch_tokens: 8}\n",
     "data.max_length", "data.max_length: 2\n"},
    {"data: {max_length: 3}\n", "",
     "pipeline.yaml:1:20: data.max_length: expected a power of two, found \"3\"\n"},
    {"data: {document_alignment: auto}\n", "data.document_alignment",
     "data.document_alignment: auto\n"},
    {"data: {document_alignment: 'auto'}\n", "",
     "pipeline.yaml:1:28: data.document_alignment: expected a power of two or auto, found the "
     "string \"auto\"\n"},
    {"data: {document_alignment: 0}\n", "",
     "pipeline.yaml:1:28: data.document_alignment: 0 is out of range: must be at least 1 and at "
     "most 1048576 tokens\n"},
    {"evaluator: {max_tokens: null}\n", "evaluator.max_tokens", "evaluator.max_tokens: null\n"},
    {"evaluator: {max_tokens: ~}\n", "evaluator.max_tokens", "evaluator.max_tokens: null\n"},
    {"evaluator: {max_tokens: }\n", "evaluator.max_tokens", "evaluator.max_tokens: null\n"},
    {"evaluator: {max_tokens: 'null'}\n", "",
     "pipeline.yaml:1:25: evaluator.max_tokens: expected a whole number or null, found the string "
     "\"null\"\n"},
    {"metrics: {tensorboard: yes}\n", "",
     "pipeline.yaml:1:24: metrics.tensorboard: expected true or false, found \"yes\"\n"},
    {"metrics: {tensorboard: 'true'}\n", "",
     "pipeline.yaml:1:24: metrics.tensorboard: expected true or false, found the string "
     "\"true\"\n"},
    {"metrics: {tensorboard: true}\n", "metrics.tensorboard", "metrics.tensorboard: true\n"},
    {"metrics: {tensorboard: false}\n", "metrics.tensorboard", "metrics.tensorboard: false\n"},
    {"run: ''\n", "", "pipeline.yaml:1:6: run: must not be empty\n"},
    {"run: '~'\n", "", ""},
    {"run: ~\n", "", "pipeline.yaml:1:6: run: expected a path, found null\n"},
    {"run: []\n", "", "pipeline.yaml:1:6: run: expected a path, found a list\n"},
    {"corpus: ~\n", "corpus", "corpus: null\n"},
    {"run: \"/a\\\"b\\\\c\\td\\x7F \\u00e9\"\n", "run",
     "run: \"/a\\\"b\\\\c\\x09d\\x7F \u00e9\"\n"},
    {"run: /azAZ09._-+@=\n", "run", "run: /azAZ09._-+@=\n"},
    {"run: /a:b\n", "run", "run: \"/a:b\"\n"},
    {"run: //a//\n", "run", "run: //a\n"},
    {"run: /\n", "run", "run: /\n"},
    {"run: .//\n", "", ""},
    {"trainer: {optimizer: {betas: [0.9]}}\n", "",
     "pipeline.yaml:1:31: trainer.optimizer.betas: expected 2 entries, found 1\n"},
    {"trainer: {optimizer: {betas: [0.9, 0.9, 0.9]}}\n", "",
     "pipeline.yaml:1:31: trainer.optimizer.betas: expected 2 entries, found 3\n"},
    {"trainer: {optimizer: {betas: [0.9, x]}}\n", "",
     "pipeline.yaml:1:36: trainer.optimizer.betas: expected a number, found \"x\"\n"},
    {"trainer: {optimizer: {betas: 0.9}}\n", "",
     "pipeline.yaml:1:30: trainer.optimizer.betas: expected a list of two numbers, found "
     "\"0.9\"\n"},
    {"evaluator: {splits: []}\n", "evaluator.splits",
     "pipeline.yaml:1:21: evaluator.splits: expected 1 to 3 entries, found 0\n"},
    {"evaluator: {splits: [valid, tset]}\n", "",
     "pipeline.yaml:1:29: evaluator.splits: expected a list of train, valid or test, found "
     "\"tset\"; did you mean \"test\"?\n"},
    {"evaluator: {splits: [valid, [test]]}\n", "",
     "pipeline.yaml:1:29: evaluator.splits: expected a list of train, valid or test, found a list "
     "or section in the list\n"},
    {"evaluator: {splits: [train, valid, test, train]}\n", "",
     "pipeline.yaml:1:22: evaluator.splits: expected 1 to 3 entries, found 4\n"},
    {"evaluator: {mask_rates: [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, "
     "0.5, 0.5, 0.5]}\n",
     "evaluator.mask_rates",
     "evaluator.mask_rates: [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, "
     "0.5, 0.5]\n"},
    {"evaluator: {mask_rates: [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, "
     "0.5, 0.5, 0.5, 0.5]}\n",
     "", "pipeline.yaml:1:26: evaluator.mask_rates: expected 0 to 16 entries, found 17\n"},
    {"model: {attention: {pattern: []}}\n", "",
     "pipeline.yaml:1:30: model.attention.pattern: expected 1 to 64 entries, found 0\n"},
    {"model: {attention: {pattern: document}}\n", "",
     "pipeline.yaml:1:30: model.attention.pattern: expected a list of masks, found \"document\"\n"},
    {"model: {attention: {pattern: [local+local]}}\n", "", ""},
    {"trainer: {device: gpu}\n", "",
     "pipeline.yaml:1:19: trainer.device: expected auto, cpu or cuda, found \"gpu\"; did you mean "
     "\"cpu\"?\n"},
    {"trainer: {objective: mlm}\n", "trainer.objective", "trainer.objective: mlm\n"},
    {"trainer: {objective: [mlm]}\n", "",
     "pipeline.yaml:1:23: trainer.objective: expected mlm, masked_diffusion, causal, regression, "
     "classification, multilabel or residues, found a "
     "list\n"},
    {"trainer: {objective: qqqqqqq}\n", "",
     "pipeline.yaml:1:22: trainer.objective: expected mlm, masked_diffusion, causal, regression, "
     "classification, multilabel or residues, found "
     "\"qqqqqqq\"\n"},
};

static const struct config_outcome sets[] = {
    {"evaluator: {sets: [{name: nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn, corpus: /x}, {name: 'Az0_-.', "
     "corpus: ' y', split: train}]}\n",
     "evaluator.sets",
     "evaluator.sets: [{name: \"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn\", corpus: /x, split: valid}, "
     "{name: \"Az0_-.\", corpus: \"DIR/ y\", split: train}]\n"},
    {"evaluator: {sets: [{name: nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn, corpus: /x}]}\n", "",
     "pipeline.yaml:1:27: evaluator.sets: name: expected 1 to 32 letters, digits, dots, hyphens "
     "and underscores, found \"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn\"\n"},
    {"evaluator: {sets: [{name: 'a b', corpus: /x}]}\n", "",
     "pipeline.yaml:1:27: evaluator.sets: name: expected 1 to 32 letters, digits, dots, hyphens "
     "and underscores, found \"a b\"\n"},
    {"evaluator: {sets: [{name: '', corpus: /x}]}\n", "",
     "pipeline.yaml:1:27: evaluator.sets: name: expected 1 to 32 letters, digits, dots, hyphens "
     "and underscores, found \"\"\n"},
    {"evaluator: {sets: [{name: a, corpus: ''}]}\n", "",
     "pipeline.yaml:1:38: evaluator.sets: corpus: must not be empty\n"},
    {"evaluator: {sets: [{corpus: x}]}\n", "",
     "pipeline.yaml:1:20: evaluator.sets: a set has no name\n"},
    {"evaluator: {sets: [{name: b, corpus: x}, {corpus: x}]}\n", "",
     "pipeline.yaml:1:42: evaluator.sets: a set has no name\n"},
    {"evaluator: {sets: []}\n", "evaluator.sets", "evaluator.sets: []\n"},
    {"evaluator: {sets: {name: a, corpus: x}}\n", "",
     "pipeline.yaml:1:19: evaluator.sets: expected a list of {name: NAME, corpus: DIR, split: "
     "SPLIT}, found a section\n"},
    {"evaluator: {sets: a}\n", "",
     "pipeline.yaml:1:19: evaluator.sets: expected a list of {name: NAME, corpus: DIR, split: "
     "SPLIT}, found \"a\"\n"},
    {"evaluator: {sets: [{[a]: a, corpus: x}]}\n", "",
     "pipeline.yaml:1:20: evaluator.sets: a set has no name\n"
     "pipeline.yaml:1:21: evaluator.sets: unknown key \"(a list)\" of a set; expected name, corpus "
     "or split\n"},
};

static const struct config_outcome files[] = {
    {"", "seed", "seed: 1\n"},
    {"''\n", "", ""},
    {"abc\n", "", "pipeline.yaml:1:1: expected keys with values, found a single value\n"},
    {"{[a]: 1}\n", "", "pipeline.yaml:1:2: a key must be a word\n"},
    {"seed: 1\n"
     "---\n"
     "[\n",
     "", "pipeline.yaml:4:1: not valid YAML: did not find expected node content\n"},
    {"seed: 1\n"
     "---\n",
     "seed", "pipeline.yaml:3:1: a second YAML document begins here; only one is expected\n"},
    {"seed: 1\n"
     "run: 'a\xff"
     "'\n",
     "", "pipeline.yaml:2:8: not valid YAML: invalid leading UTF-8 octet\n"},
    {"a.b: 1\n", "", "pipeline.yaml:1:1: unknown key \"a.b\"\n"},
    {"trainer:\n", "trainer.steps", "trainer.steps: 300\n"},
    {"trainer: ~\n", "",
     "pipeline.yaml:1:10: trainer: expected a section (keys with values), found a value\n"},
    {"seed: &a 5\n"
     "trainer: {steps: *a}\n",
     "trainer.steps", "trainer.steps: 5\n"},
    {"tranier: {steps: 1}\n", "",
     "pipeline.yaml:1:1: unknown key \"tranier\"; did you mean \"trainer\"?\n"},
    {"trainer: {batch: 1}\n", "",
     "pipeline.yaml:1:11: unknown key \"batch\"; did you mean \"batch_tokens\"?\n"},
    {"model: {attention: {widnow: {start: 1}}}\n", "",
     "pipeline.yaml:1:21: unknown key \"widnow\"; did you mean \"window\"?\n"},
    {"model: {start: 1}\n", "",
     "pipeline.yaml:1:9: unknown key \"start\"; did you mean \"model.attention.window.start\"?\n"},
    {"max_length: 5\n", "",
     "pipeline.yaml:1:1: unknown key \"max_length\"; did you mean \"data.max_length\"?\n"},
    {"seed: 1\n"
     "seed: 1\n",
     "", "pipeline.yaml:2:1: duplicate key \"seed\"; first on line 1\n"},
    {"evaluator: {device: cpu, device: cpu}\n", "",
     "pipeline.yaml:1:26: duplicate key \"device\"; first on line 1\n"},
    {"run: \"a\\0b\"\n", "run", "run: DIR/a\n"},
    {"trainer:\n"
     "  steps: 0\n"
     " run: 1\n",
     "", "pipeline.yaml:3:2: not valid YAML: did not find expected key\n"},
};

static void endpoints_are_checked(void **state)
{
  (void)state;
  EXPECT(endpoints);
}

static void values_are_checked(void **state)
{
  (void)state;
  EXPECT(values);
}

static void sets_are_checked(void **state)
{
  (void)state;
  EXPECT(sets);
}

static void files_are_checked(void **state)
{
  (void)state;
  EXPECT(files);
}

/* The longest host, name and path, and one that is longer by one letter. */
static void lengths_have_limits(void **state)
{
  static const struct {
    const char *before, *after, *problem;
    size_t most;
  } limits[] = {
      {"trainer: {hosts: ['", ":1']}\n",
       "pipeline.yaml:1:19: trainer.hosts: expected NAME:SLOTS with 1 to 4096 slots, for example "
       "node1:8, found \"",
       253},
      {"evaluator: {sets: [{name: a, corpus: /", "}]}\n",
       "pipeline.yaml:1:38: evaluator.sets: corpus: must not be longer than 4095 bytes\n", 4094},
      {"run: /", "\n", "pipeline.yaml:1:6: run: must not be longer than 4095 bytes\n", 4094},
      {"corpus: [{path: /", "}]\n",
       "pipeline.yaml:1:17: corpus: path: must not be longer than 4095 bytes\n", 4094},
  };
  (void)state;
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
    for (size_t more = 0; more < 2; more++) {
      char letters[4200], text[4400], expected[400];
      const size_t count = limits[i].most + more;
      memset(letters, 'h', count);
      letters[count] = '\0';
      snprintf(text, sizeof text, "%s%s%s", limits[i].before, letters, limits[i].after);
      snprintf(expected, sizeof expected, "%s", more ? limits[i].problem : "");
      if (more && i == 0) sprintf(expected + strlen(expected), "%.200s\"\n", letters);
      expect_config_outcome(&(struct config_outcome){text, "", expected}, NULL, 0);
    }
}

/* A list of as many entries as there may be, and one more. */
static void lists_have_limits(void **state)
{
  static const struct {
    const char *before, *entry, *after, *problem;
    int most;
  } limits[] = {
      {"corpus: [", "{path: /%d},", "]\n",
       "pipeline.yaml:1:9: corpus: expected 1 to 16 sources in the list, found 17\n", 16},
      {"evaluator: {sets: [", "{name: s%d, corpus: /c},", "]}\n",
       "pipeline.yaml:1:19: evaluator.sets: expected 0 to 16 sets in the list, found 17\n", 16},
      {"trainer: {hosts: [", "h%d:1,", "]}\n",
       "pipeline.yaml:1:19: trainer.hosts: expected 0 to 512 entries, found 513\n", 512},
      {"model: {attention: {pattern: [", "local,", "]}}\n",
       "pipeline.yaml:1:31: model.attention.pattern: expected 1 to 64 entries, found 65\n", 64},
  };
  (void)state;
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
    for (int more = 0; more < 2; more++) {
      char text[6000];
      int used = sprintf(text, "%s", limits[i].before);
      for (int entry = 0; entry < limits[i].most + more; entry++)
        used += sprintf(text + used, limits[i].entry, entry);
      strcpy(text + used, limits[i].after);
      expect_config_outcome(&(struct config_outcome){text, "", more ? limits[i].problem : ""}, NULL,
                            0);
    }
}

static const struct {
  const char *key, *value;
  struct config_outcome outcome;
} flags[] = {
    {"steps", "5", {NULL, "", "--set steps: unknown key \"steps\"; did you mean \"seed\"?\n"}},
    {"trainer.optimizer.weight",
     "5",
     {NULL, "",
      "--set trainer.optimizer.weight: unknown key \"weight\"; did you mean \"weight_decay\"?\n"}},
    {"trainer",
     "5",
     {NULL, "", "--set trainer: trainer: expected a section (keys with values), found a value\n"}},
    {"trainer", "{steps: 5}", {NULL, "trainer.steps", "trainer.steps: 5\n"}},
    {"trainer", "", {NULL, "trainer.steps", "trainer.steps: 300\n"}},
    {"seed", "", {NULL, "", "--set seed: seed: expected a whole number, found null\n"}},
    {"seed", "[", {NULL, "", "--set seed: not valid YAML: did not find expected node content\n"}},
    {"evaluator.max_tokens", "", {NULL, "evaluator.max_tokens", "evaluator.max_tokens: null\n"}},
    {"evaluator.mask_rates",
     "0.5,",
     {NULL, "evaluator.mask_rates", "evaluator.mask_rates: [0.5]\n"}},
    {"evaluator.mask_rates",
     "[0.5]",
     {NULL, "evaluator.mask_rates", "evaluator.mask_rates: [0.5]\n"}},
    {"evaluator.mask_rates",
     "0.5, x",
     {NULL, "",
      "--set evaluator.mask_rates: evaluator.mask_rates: expected a number, found \"x\"\n"}},
    {"corpus",
     "[{path: a}]",
     {NULL, "corpus", "corpus: [{path: DIR/a, weight: 1, final_weight: null, sampling: null}]\n"}},
    {"corpus", "{a: b}", {NULL, "corpus", "corpus: \"DIR/{a: b}\"\n"}},
    {"corpus",
     "[{path: /a}, {path: /a}]",
     {NULL, "", "corpus: source 1 is the same corpus as source 0, /a\n"}},
    {"run", "a: [b", {NULL, "run", "run: \"DIR/a: [b\"\n"}},
    {"run", "", {NULL, "", "--run: run: expected a path, found null\n"}},
    {"network.feed", "ipc:///s", {NULL, "network.feed", "network.feed: ipc:///s\n"}},
    {"metrics.prometheus", ":9", {NULL, "metrics.prometheus", "metrics.prometheus: \":9\"\n"}},
    {"model.hidden_size",
     "100",
     {NULL, "",
      "model.hidden_size: 100 is not a multiple of 64, the least common multiple of 64 and 4 "
      "heads\n"}},
};

/* The flag is named only by problems with its own text; later checks name only the key. */
static void flags_are_checked(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
    const struct plm_config_override flag = {flags[i].key, flags[i].value};
    expect_config_outcome(&flags[i].outcome, &flag, 1);
  }
}

static const struct {
  const char *name, *value;
  struct config_outcome outcome;
} variables[] = {
    {"PLM_NETWORK_X",
     "1",
     {NULL, "", "PLM_NETWORK_X: unknown variable; did you mean \"PLM_NETWORK_FEED\"?\n"}},
    {"PLM_NETWORK_XXXXXXXXXXXXXXXXXXXXXXXXXXXXXX",
     "1",
     {NULL, "", "PLM_NETWORK_XXXXXXXXXXXXXXXXXXXXXXXXXXXXXX: unknown variable\n"}},
    {"PLM_DATA_XXXXXXXXXXXXXXXXXXXXXXXXXXXXXX",
     "1",
     {NULL, "", "PLM_DATA_XXXXXXXXXXXXXXXXXXXXXXXXXXXXXX: unknown variable\n"}},
    {"PLM_PACKER_XXXXXXXXXXXXXXXXXXXXXXXXXXXXXX",
     "1",
     {NULL, "", "PLM_PACKER_XXXXXXXXXXXXXXXXXXXXXXXXXXXXXX: unknown variable\n"}},
    {"PLM_MODEL_XXXXXXXXXXXXXXXXXXXXXXXXXXXXXX",
     "1",
     {NULL, "", "PLM_MODEL_XXXXXXXXXXXXXXXXXXXXXXXXXXXXXX: unknown variable\n"}},
    {"PLM_TRAINER_XXXXXXXXXXXXXXXXXXXXXXXXXXXXXX",
     "1",
     {NULL, "", "PLM_TRAINER_XXXXXXXXXXXXXXXXXXXXXXXXXXXXXX: unknown variable\n"}},
    {"PLM_EVALUATOR_XXXXXXXXXXXXXXXXXXXXXXXXXXXXXX",
     "1",
     {NULL, "", "PLM_EVALUATOR_XXXXXXXXXXXXXXXXXXXXXXXXXXXXXX: unknown variable\n"}},
    {"PLM_METRICS_XXXXXXXXXXXXXXXXXXXXXXXXXXXXXX",
     "1",
     {NULL, "", "PLM_METRICS_XXXXXXXXXXXXXXXXXXXXXXXXXXXXXX: unknown variable\n"}},
    {"PLM_STEPS", "1", {NULL, "trainer.steps", "trainer.steps: 300\n"}}, /* not of a section */
    {"PLM_TRAINER_STEPS", "5", {NULL, "trainer.steps", "trainer.steps: 5\n"}},
    {"PLM_TRAINER_STEPS",
     "5=5",
     {NULL, "", "PLM_TRAINER_STEPS: trainer.steps: expected a whole number, found \"5=5\"\n"}},
    {"PLM_RUN", "a", {NULL, "run", "run: DIR/a\n"}},
    {"PLM_MODEL_HIDDEN_SIZE",
     "100",
     {NULL, "",
      "model.hidden_size: 100 is not a multiple of 64, the least common multiple of 64 and 4 "
      "heads\n"}},
};

static void variables_are_checked(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
    assert_int_equal(setenv(variables[i].name, variables[i].value, 1), 0);
    expect_config_outcome(&variables[i].outcome, NULL, 0);
    assert_int_equal(unsetenv(variables[i].name), 0);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(endpoints_are_checked), cmocka_unit_test(values_are_checked),
      cmocka_unit_test(sets_are_checked),      cmocka_unit_test(files_are_checked),
      cmocka_unit_test(lengths_have_limits),   cmocka_unit_test(lists_have_limits),
      cmocka_unit_test(flags_are_checked),     cmocka_unit_test(variables_are_checked),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
