# What the tiers share. Sourced at the root of the repository; RESULTS is the folder for JUnit files.
set -euo pipefail
: "${RESULTS:?run the tiers by make, or set RESULTS to a folder}"

status=0
pytest_options=()
jobs=$(nproc)

# What names the functions in the reports of clang's sanitizers, and in their suppressions.
export ASAN_SYMBOLIZER_PATH=/usr/bin/llvm-symbolizer-14
export TSAN_SYMBOLIZER_PATH=$ASAN_SYMBOLIZER_PATH UBSAN_SYMBOLIZER_PATH=$ASAN_SYMBOLIZER_PATH

# The folders of tests lie in this one, in which nothing may be left. Other users may pass through it.
GANTRY_TEST_ROOT=$(mktemp -d /tmp/gantry-XXXXXX)
chmod 711 "$GANTRY_TEST_ROOT"
export GANTRY_TEST_ROOT
trap 'rm -rf "$GANTRY_TEST_ROOT"' EXIT

# nothing_is_left: fails, names what tests left behind, and removes it.
nothing_is_left() {
  [[ -n $(ls -A "$GANTRY_TEST_ROOT") ]] || return 0
  echo "tests left behind in $GANTRY_TEST_ROOT:"
  find "$GANTRY_TEST_ROOT" -mindepth 1 -maxdepth 3 | head -n 50
  find "$GANTRY_TEST_ROOT" -mindepth 1 -delete
  return 1
}

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

# run_ctest <preset> <label regex> [ctest options]: some cases wait, so there are more at once than processors.
run_ctest() {
  local preset=$1 labels=$2
  shift 2
  ctest --preset "$preset" -j "$((jobs + (jobs + 1) / 2))" -L "$labels" --no-tests=error --output-junit "$RESULTS/ctest.xml" "$@" || status=1
  nothing_is_left || status=1
}

# run_gtest_programs <preset> <label regex>: as run_ctest, with many cases in each process. A case cannot rely on a
# process of its own then, so the release tiers have run_ctest.
run_gtest_programs() {
  tests/tiers/run_gtest_programs.py "$1" "$2" "$((jobs * 2))" "$RESULTS" || status=1
  nothing_is_left || status=1
}

# run_pytest <preset whose programs are tested> <files, folders, options...>: one case after the other
run_pytest() {
  local code=0
  pytest_to pytest.xml "$@" || code=$?
  # 5 says that no test was selected; the summary tells that by itself.
  ((code == 0 || code == 5)) || status=1
}

# run_pytest_parallel <preset> <marks> <files, folders, options...>: several cases at once. Those that are marked alone
# follow one by one. GANTRY_TEST_JOBS says how many run at once. Most cases wait, so there are more than processors.
run_pytest_parallel() {
  local preset=$1 marks=$2 beside=0 alone=5
  shift 2
  pytest_to pytest.xml "$preset" -n "${GANTRY_TEST_JOBS:-$((jobs * 3))}" --dist worksteal -m "($marks) and not alone" "$@" || beside=$?
  if grep -qrs --include='*.py' 'mark\.alone' -- "$@"; then
    alone=0
    pytest_to alone.xml "$preset" -m "($marks) and alone" "$@" || alone=$?
  fi
  # One of the two may have no case (5), and not both.
  ((beside == 0 || beside == 5)) && ((alone == 0 || alone == 5)) && ((beside + alone < 10)) || status=1
}

# pytest_to <JUnit file> <preset> <files, folders, options...>: pytest's exit code; 1 also when something is left
pytest_to() {
  local junit=$1 preset=$2 venv promtool code=0
  shift 2
  venv=$(tools/test-venv)
  promtool=$(tools/promtool-path)
  PATH=$venv/bin:$promtool:$PATH GANTRY_BIN_DIR=$PWD/build/$preset/bin GANTRY_LIB_DIR=$PWD/build/release/lib \
    "$venv/bin/python" -m pytest "${pytest_options[@]}" -c tests/pytest.ini --rootdir . --junitxml "$RESULTS/$junit" "$@" || code=$?
  nothing_is_left || return 1
  return $code
}

# skip_unless "" goes on; skip_unless REASON ends the tier, which the summary shows as skipped.
skip_unless() {
  [[ -n $1 ]] || return 0
  echo "skipped: $1"
  echo "$1" >"$RESULTS/skipped"
  exit 0
}

# Schemathesis and Hypothesis, which the api tier alone uses, cost a second at each start of pytest.
without_unused_plugins=(-p no:schemathesis -p no:hypothesispytest)

# run_sanitized_pytest <asan|tsan> <marks> [files]: the end-to-end cases with these marks over the programs of that preset.
# The files follow, one case after the other: each process of a parallel run would read the REST schema for 20 seconds.
run_sanitized_pytest() {
  local preset=$1 marks=$2 code=0
  shift 2
  export ASAN_OPTIONS=log_path=$RESULTS/sanitizer.asan UBSAN_OPTIONS=print_stacktrace=1:log_path=$RESULTS/sanitizer.ubsan
  export LSAN_OPTIONS=print_suppressions=0:suppressions=$PWD/tests/tiers/lsan.supp
  export TSAN_OPTIONS=ignore_noninstrumented_modules=1:report_thread_leaks=0:suppressions=$PWD/tests/tiers/tsan.supp:log_path=$RESULTS/sanitizer.tsan
  GANTRY_TEST_JOBS=${GANTRY_TEST_JOBS:-$((jobs * 2))} run_pytest_parallel "$preset" "$marks" "${end_to_end_files[@]}"
  if (($#)); then
    pytest_to api.xml "$preset" -m "$marks" "$@" || code=$?
    ((code == 0)) || status=1
  fi
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
