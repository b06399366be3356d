"""What a vLLM server with the connector exports, made from the connector's page, for Replay: nothing runs.

tests/vllm/stats_cases.py compares that page with what the connector does export.
"""

from monitoring_files import PATHS, VLLM_PAGE, metric_rows

SECONDS = (0.001, 0.01, 0.1, 1)


def _series(name, kind, labels, value):
    """(name of the series, labels, value): where all observations are the value, in histograms."""
    for path in (*PATHS, "other") if "path" in labels else ("",):
        of_path = f',path="{path}"' if path else ""
        if kind == "histogram":
            for bucket in (*SECONDS, "+Inf"):
                yield f'{name}_bucket', f'{of_path},le="{bucket}"', value
            yield f"{name}_sum", of_path, value * SECONDS[0]
            yield f"{name}_count", of_path, value
        else:
            yield name, of_path, value


def vllm_records(count):
    """`count` texts; every number grows by one from each to the next."""
    return ["".join(f'{name}{{model_name="tiny",engine="0"{labels}}} {value}\n' for row in metric_rows(VLLM_PAGE)
                    for name, labels, value in _series(*row, number)) for number in range(count)]
