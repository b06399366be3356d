# What the tiers share. Sourced at the root of the repository; RESULTS is the folder for JUnit files.
set -euo pipefail
: "${RESULTS:?run the tiers by make, or set RESULTS to a folder}"

status=0
jobs=$(nproc)

configure() {
  cmake --preset "$@" >"$RESULTS/configure.log" || {
    cat "$RESULTS/configure.log"
    exit 1
  }
}

# build <preset> [cmake options]
build() {
  configure "$@"
  cmake --build --preset "$1" -j "$jobs"
}

# run_ctest <preset> <label regex> [ctest options]
run_ctest() {
  local preset=$1 labels=$2
  shift 2
  ctest --preset "$preset" -j "$jobs" -L "$labels" --output-junit "$RESULTS/ctest.xml" "$@" || status=1
}

# run_pytest <preset whose programs are tested> <files, folders, options...>: nothing when there are no files
run_pytest() {
  local preset=$1 venv promtool code=0
  shift
  venv=$(tools/test-venv)
  promtool=$(tools/promtool-path)
  PATH=$venv/bin:$promtool:$PATH GANTRY_BIN_DIR=$PWD/build/$preset/bin GANTRY_LIB_DIR=$PWD/build/release/lib \
    "$venv/bin/python" -m pytest -c tests/pytest.ini --rootdir . --junitxml "$RESULTS/pytest.xml" "$@" || code=$?
  # 5 says that no test was selected; the summary tells that by itself.
  ((code == 0 || code == 5)) || status=1
}

# skip_unless "" goes on; skip_unless REASON ends the tier, which the summary shows as skipped.
skip_unless() {
  [[ -n $1 ]] || return 0
  echo "skipped: $1"
  echo "$1" >"$RESULTS/skipped"
  exit 0
}

# run_sanitized_pytest <asan|tsan> <options...>: the suites of processes over the programs of that preset.
run_sanitized_pytest() {
  local preset=$1
  shift
  ASAN_OPTIONS=log_path=$RESULTS/sanitizer.asan UBSAN_OPTIONS=print_stacktrace=1:log_path=$RESULTS/sanitizer.ubsan \
    TSAN_OPTIONS=ignore_noninstrumented_modules=1:report_thread_leaks=0:suppressions=$PWD/tests/tiers/tsan.supp:log_path=$RESULTS/sanitizer.tsan \
    run_pytest "$preset" "$@" "${api_files[@]}" "${end_to_end_files[@]}"
  sanitizer_reports
}

# sanitizer_reports: fails the tier if a program that some test started in the background has left a report.
sanitizer_reports() {
  local report
  for report in "$RESULTS"/sanitizer.*; do
    cat "$report"
    status=1
  done
}

shopt -s nullglob extglob
api_files=(tests/end_to_end/test_api_*.py)               # the REST interface against docs/rest_api.yaml
end_to_end_files=(tests/end_to_end/test_!(api_*).py)
monitoring_files=(tests/monitoring/test_!(*_queries).py)  # dashboards and alert rules as files
