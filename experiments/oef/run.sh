#!/usr/bin/env bash
# Makes every result that experiments/oef/README.md speaks of, then its tables and figures. Finished runs are skipped: run it again after
# an interruption. oef_native is measured on this machine: leave it alone for those nine minutes. HETSYS_RESULTS chooses the results folder (default: ./results).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
hetsys=(.venv/bin/python -m hetsys)

make install
"${hetsys[@]}" run experiment=oef_native
"${hetsys[@]}" run experiment=oef_live
"${hetsys[@]}" run experiment=oef_mix
for study in spread misreports misreport_curve profile_error rounding adjacency cross_kind weights churn null ablation ablation_few_kinds solver_time; do
  "${hetsys[@]}" run experiment="oef_$study"
done
if [ -n "${HETSYS_DATA:-}" ]; then   # the published trace is not shipped
  "${hetsys[@]}" run experiment=oef_tenants
  "${hetsys[@]}" run experiment=oef_philly
  "${hetsys[@]}" run experiment=oef_philly_week
fi
for experiment in oef_mix ${HETSYS_DATA:+oef_tenants}; do
  "${hetsys[@]}" compare "${HETSYS_RESULTS:-results}/$experiment" --baseline oef_coop
done
"${hetsys[@]}" figures
