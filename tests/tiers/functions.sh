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

# run_what_fits <preset> <label regex>: as build and run_ctest, within the tier's time. Programs that are not built by then
# keep what was compiled of them (the compiler's cache); their tests, and those that time is over for, are left out.
run_what_fits() {
  local preset=$1 labels=$2 code=0 programs=() first tests_are_left_out=
  local until=$((${GANTRY_TIER_UNTIL:?run the tiers by make} - 30))
  local build_s=$((until - 300 - $(date +%s)))
  configure "$preset"
  timeout "$((build_s > 1 ? build_s : 1))" cmake --build --preset "$preset" -j "$jobs" || code=$?
  mapfile -t programs < <(up_to_date "build/$preset")
  if ((code == 124)); then
    echo "not all was built in time: the tests of ${#programs[@]} programs" | tee "$RESULTS/partly"
  elif ((code)); then
    exit "$code"
  fi
  for ((first = 0; first < ${#programs[@]}; first += 8)); do
    run_ctest_until "$until" "$preset" "$labels" "$first" -R "$(tests_of "${programs[@]:first:8}")"
  done
  ((code)) || run_ctest_until "$until" "$preset" "$labels" no-program -E "$(tests_of "${programs[@]}")"
  [[ -z $tests_are_left_out ]] || echo "the time was over before all tests had run" >>"$RESULTS/partly"
}

# up_to_date <build folder>: the programs that are built as the sources say.
up_to_date() {
  local program
  for program in "$1"/bin/*; do
    ninja -C "$1" -n "bin/${program##*/}" | grep -q 'no work to do' && echo "${program##*/}"
  done
  return 0
}

# tests_of <programs>: a regular expression of the tests' names.
tests_of() {
  local IFS='|'
  echo "^($*)(\\.|\$)"
}

# run_ctest_until <seconds since 1970> <preset> <label regex> <name> [ctest options]: what is not through by then does not
# count. (With ctest --stop-time the tests that run at that time have failed.)
run_ctest_until() {
  local left=$(($1 - $(date +%s))) preset=$2 labels=$3 name=$4 code=124
  shift 4
  if ((left > 0)); then
    code=0
    timeout "$left" ctest --preset "$preset" -j "$jobs" -L "$labels" --output-junit "$RESULTS/ctest-$name.xml" "$@" || code=$?
  fi
  if ((code == 124)); then
    rm -f "$RESULTS/ctest-$name.xml"
    echo "the time was over before these tests: $*"
    tests_are_left_out=yes
  elif ((code)); then
    status=1
  fi
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
