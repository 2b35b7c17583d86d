#!/usr/bin/env bash
# One run of the gate: reports, summary and annotations first, the verdict as the step's output. A later step ends the
# job with it, so that nothing that people should read is lost when the gate is red.
set -uo pipefail
out=${GATE_OUT:-memplan-report}
mkdir -p "$out"
arguments=(check --color never)
[ -z "${GATE_CONFIG:-}" ] || arguments+=(--config "$GATE_CONFIG")
[ -z "${GATE_FAIL_ON:-}" ] || arguments+=(--fail-on "$GATE_FAIL_ON")
[ -z "${GATE_BASELINE:-}" ] || arguments+=(--baseline "$GATE_BASELINE")
read -r -a targets <<<"${GATE_TARGETS:-}"
for format in json md sarif github; do arguments+=(--export "$format=$out/memplan.$format"); done
rm -f "$out"/memplan.{json,md,sarif,github}
"$GATE_MEMPLAN" "${arguments[@]}" ${targets[@]+"${targets[@]}"} 2>"$out/errors.txt"
code=$?
cat "$out/errors.txt" >&2
verdict=error
case $code in
  0) verdict=passed; if grep -q '^    "status": "warned"' "$out/memplan.json" 2>/dev/null; then verdict=warned; fi ;;
  1) verdict=failed ;;
esac
if [ "${GATE_SUMMARY:-true}" = true ] && [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then
  if [ -f "$out/memplan.md" ]; then
    cat "$out/memplan.md" >>"$GITHUB_STEP_SUMMARY"
  else  # a configuration that cannot be read has no report
    { printf '### GPU memory: not checked\n\n'; sed 's/^/    /' "$out/errors.txt"; } >>"$GITHUB_STEP_SUMMARY"
  fi
fi
if [ "${GATE_ANNOTATIONS:-true}" = true ]; then
  if [ -f "$out/memplan.github" ]; then
    cat "$out/memplan.github"
  else
    message=$(head -c 2000 "$out/errors.txt")
    message=${message//'%'/%25}
    message=${message//$'\r'/%0D}
    printf '::error title=memplan::%s\n' "${message//$'\n'/%0A}"
  fi
fi
{
  printf 'verdict=%s\nexit-code=%s\n' "$verdict" "$code"
  printf 'report-json=%s\nreport-md=%s\nsarif=%s\n' "$out/memplan.json" "$out/memplan.md" "$out/memplan.sarif"
} >>"$GITHUB_OUTPUT"
exit 0
