#!/usr/bin/env bash
# Kills by SIGKILL between two steps and while a checkpoint is published: see kill_trainer.sh. The architectures of
# published weights have parameters of their own, so two moments are enough. A run that begins with a folder of ESM-2
# resumes without it, and keeps its contact head.
. "$PLM_ROOT/tests/chaos/kill_trainer.sh"
kill_and_resume esm2 fp32 'lines 27
publishing step_00000040'
plm-pipeline export --checkpoint "$PLM_TMP/reference/checkpoints/step_00000010" --output "$PLM_TMP/source" \
  >"$PLM_TMP/export.log" 2>&1 || fail "export: $(cat "$PLM_TMP/export.log")"
rm -rf "$PLM_TMP/reference" "$PLM_TMP/killed"

# contact_head FILE [VALUE...]: prints the contact head of a file of weights, after giving it one of these values
contact_head() {
  python3 - "$@" <<'PYTHON'
import array, json, struct, sys

content = open(sys.argv[1], "rb").read()
size = 8 + struct.unpack("<Q", content[:8])[0]
header, data = json.loads(content[8:size]), content[size:]
values = [float(word) for word in sys.argv[2:]]
head = "esm.contact_head.regression."
for name, part, shape in (("weight", values[1:], [1, len(values) - 1]), ("bias", values[:1], [1])):
    if values:
        begin, data = len(data), data + array.array("f", part).tobytes()
        header[head + name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    begin, end = header[head + name]["data_offsets"]
    print(name, header[head + name]["shape"], list(array.array("f", data[begin:end])))
if values:
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + data)
PYTHON
}

head=$(contact_head "$PLM_TMP/source/model.safetensors" -0.5 1 0.25 2 4) || fail "no contact head was made"
sed -i "s|^trainer:|trainer:\n  init_from: $PLM_TMP/source|; s/steps: 60/steps: 20/" "$PLM_TMP/pipeline.yaml"
run_undisturbed "$PLM_TMP/reference"
start_packer "$PLM_TMP/killed"
kill_at lines 17 "$PLM_TMP/killed"
rm -r "$PLM_TMP/source"
run_trainer "$PLM_TMP/killed" || fail "the resume without the folder ended with $?"
stop_packer
same_run "$PLM_TMP/reference" "$PLM_TMP/killed" 20
[ "$(contact_head "$PLM_TMP/killed/checkpoints/step_00000020/model.safetensors")" = "$head" ] ||
  fail "the contact head has changed"
rm -rf "$PLM_TMP/reference" "$PLM_TMP/killed"

trainer_config esmc
kill_and_compare esmc 'lines 27
publishing step_00000040'
