"""Values for charts of others say what the library's templates make."""

import yaml
from conftest import pod_spec

TOKEN = {"image": {"registry": "registry.example.com"},
         "authentication": {"mode": "token", "token": {"existingSecret": "gantry-peer-token"}}}


def test_values_for_llm_d_are_what_the_library_makes(charts):
    made = pod_spec(charts.render(charts.example, values={"gantry-lib": TOKEN}).one("Deployment", "prefill"))
    values = yaml.safe_load((charts.main / "examples" / "llm-d-values.yaml").read_text())
    engine = made["containers"][0]
    for role in ("decode", "prefill"):
        assert values[role]["initContainers"] == made["initContainers"]
        assert values[role]["volumes"] == [each for each in made["volumes"] if each["name"].startswith("gantry-")]
        container, = values[role]["containers"]
        assert container["env"] == engine["env"]
        assert container["volumeMounts"] == [each for each in engine["volumeMounts"] if each["name"].startswith("gantry-")]


def test_the_label_for_the_production_stack_is_the_policys(charts):
    labels = yaml.safe_load((charts.main / "examples" / "vllm-stack-values.yaml").read_text())["servingEngineSpec"]["labels"]
    label = yaml.safe_load((charts.main / "values.yaml").read_text())["injection"]["podLabel"]
    assert labels == {label["key"]: label["value"]}
