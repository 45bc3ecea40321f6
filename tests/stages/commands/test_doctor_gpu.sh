#!/usr/bin/env bash
# `plm-pipeline doctor` about a GPU that this host only seems to have: a card without a driver, a driver without
# its device node, a card without the CUDA backend. The files are put over the real ones in a mount namespace.
. "$PLM_ROOT/tests/support/shell/own_mounts.sh"
. "$PLM_ROOT/tests/support/shell/lib.sh"
export PLM_CUDA_LIBRARY=$PLM_TMP/none/libplm_cuda.so
small_config p.yaml transformer
[ -d /sys/bus/pci/devices ] && [ -d /proc/driver ] || { echo "no PCI bus or no /proc/driver here"; exit 77; }

# driver GRADE REGEX-FOUND REGEX-FIX: what doctor says about the driver; DEVICE is what the trainer asks for
driver() {
  plm-pipeline doctor p.yaml --run run --set corpus=null --set "trainer.device=$DEVICE" --json >out 2>err || true
  jq -e --arg grade "$1" --arg found "$2" --arg fix "$3" \
    'any(.[]; .check == "driver" and .grade == $grade and (.found | test($found)) and ((.fix // "") | test($fix)))' \
    out >/dev/null || fail "no $1 that says $2, with the fix $3: $(cat out err)"
}

# an empty bus, no driver, and of /dev only what programs need
mount -t tmpfs none /sys/bus/pci/devices
mount -t tmpfs none /proc/driver
mkdir dev
for node in null zero full random urandom; do
  touch "dev/$node"
  mount --bind "/dev/$node" "dev/$node"
done
mkdir dev/shm
ln -s /proc/self/fd dev/fd
mount --rbind dev /dev

DEVICE=auto driver ok '^no NVIDIA GPU$' '^$'
DEVICE=cuda driver problem '^no NVIDIA GPU, but the configuration asks for cuda' 'auto or cpu'

# a network card of another vendor, and NVIDIA's sound controller, are no GPUs
card() {
  mkdir "/sys/bus/pci/devices/$1"
  echo "$2" >"/sys/bus/pci/devices/$1/vendor"
  echo "$3" >"/sys/bus/pci/devices/$1/class"
}
card 0000:00:01.0 0x8086 0x030000
card 0000:00:02.1 0x10de 0x040300
DEVICE=auto driver ok '^no NVIDIA GPU$' '^$'

card 0000:00:02.0 0x10de 0x030200
DEVICE=auto driver warning '^1 NVIDIA GPU, but no driver is loaded' 'install the NVIDIA driver'
DEVICE=cuda driver problem 'no driver is loaded' 'install the NVIDIA driver'

mkdir /proc/driver/nvidia
echo 'NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.1' >/proc/driver/nvidia/version
DEVICE=auto driver warning '^1 NVIDIA GPU, but /dev/nvidia0 is missing' 'nvidia-modprobe'

touch /dev/nvidia0
DEVICE=auto driver ok '^1 GPU; NVRM version: .*580\.1$' '^$'
DEVICE=auto driver warning "the CUDA backend $PLM_CUDA_LIBRARY is missing" 'CUDA Toolkit'
jq -e 'any(.[]; .check == "device" and .grade == "ok" and (.found | test("on the CPU")))' out >/dev/null ||
  fail "the trainer does not fall back to the CPU: $(cat out)"
