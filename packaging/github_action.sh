#!/usr/bin/env bash
# The step of action.yml: reads PATHS (one a line) once, then writes SARIF, a job summary, annotations and the verdict.
# Ends with the status of `analyze --fail-on "$FAIL_ON"`: 1 for a finding, 2 where nothing could be read.
set -uo pipefail

paths=()
while IFS= read -r path; do
    [ -n "$path" ] && paths+=("$path")
done <<<"$PATHS"
facts="$RUNNER_TEMP/nccl-doctor.db"

"$DOCTOR" analyze --fail-on "$FAIL_ON" --save "$facts" -o "$SARIF" -- "${paths[@]}"
status=$?
[ "$status" -le 1 ] || exit "$status"
"$DOCTOR" analyze --fail-on never --format markdown -- "$facts" >>"$GITHUB_STEP_SUMMARY"
"$DOCTOR" analyze --fail-on never --format json -- "$facts" | sed -n 's/^ "verdict": "\([a-z-]*\)",$/verdict=\1/p' >>"$GITHUB_OUTPUT"
"$DOCTOR" analyze --fail-on never --format github -- "$facts"
exit "$status"
