#!/bin/bash
# Train a run on several machines under Slurm.  Preempted or near its time limit, the job saves a
# checkpoint, is queued again, and continues: one command for the first start and all later ones.
#
#     sbatch slurm.sh RUN OUT
#
# RUN is a run file, and OUT a folder, both on a file system that all machines share.

#SBATCH --job-name=weft
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@180
#SBATCH --requeue
#SBATCH --open-mode=append

set -uo pipefail

run=${1:?usage: sbatch slurm.sh RUN OUT}
out=${2:?usage: sbatch slurm.sh RUN OUT}
processes=${PROCESSES:-${SLURM_GPUS_ON_NODE:-1}}
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
port=$((29500 + SLURM_JOB_ID % 1000))

stopped=""
trap 'stopped=yes; kill -TERM "$step"' TERM

srun torchrun --nnodes "$SLURM_NNODES" --nproc-per-node "$processes" \
    --rdzv-backend c10d --rdzv-endpoint "$first:$port" \
    --rdzv-id "$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}" --max-restarts 3 \
    -m weft train "$run" --out "$out" --resume auto &
step=$!
wait "$step"
code=$?
if [ -n "$stopped" ]; then # the trap ended the first wait: the checkpoint is still being written
    wait "$step"
    scontrol requeue "$SLURM_JOB_ID"
    exit 0
fi
exit "$code"
