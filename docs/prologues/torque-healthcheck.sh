#!/bin/sh
# $node_check_script of mom_priv/config, with `$node_check_interval 5,jobstart`: a line that starts with ERROR takes the
# node out when $down_on_error is 1.
exec "${NCCL_DOCTOR:-/opt/nccl-doctor/bin/nccl-doctor}" preflight --for torque --timeout 5 ${NCCL_DOCTOR_OPTIONS:-}
