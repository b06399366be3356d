"""Values for charts of others say what the library's templates make."""

import json

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


def test_engines_that_stand_in_need_no_gpu_and_find_each_other(charts):
    """By the variable that Kubernetes makes of the Service's name: the release has to be called as the values say."""
    rendered = charts.render(charts.example, name="chat", files=[charts.example / "stand-in-values.yaml"])
    service = rendered.one("Service", "prefill")
    variable = service["metadata"]["name"].upper().replace("-", "_") + "_SERVICE_HOST"
    prefill, decode = (rendered.one("Deployment", role) for role in ("prefill", "decode"))
    assert pod_spec(prefill)["containers"][0]["args"] == ["prefill"]
    assert pod_spec(decode)["containers"][0]["args"] == ["decode", f"http://$({variable}):{service['spec']['ports'][0]['port']}"]
    assert service["spec"]["selector"].items() <= prefill["spec"]["template"]["metadata"]["labels"].items()
    for role in (prefill, decode):
        engine = pod_spec(role)["containers"][0]
        assert "resources" not in engine and pod_spec(role).get("enableServiceLinks", True)
    assert pod_spec(charts.render(charts.example).one("Deployment", "prefill"))["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 1}


def test_both_roles_of_vllm_have_the_connector_and_find_their_sidecar(charts):
    rendered = charts.render(charts.example, files=[charts.example / "vllm-values.yaml"])
    for role in ("prefill", "decode"):
        engine = pod_spec(rendered.one("Deployment", role))["containers"][0]
        said, = [argument.partition("=")[2] for argument in engine["args"] if argument.startswith("--kv-transfer-config=")]
        assert json.loads(said) == {"kv_connector": "GantryConnector", "kv_connector_module_path": "gantry_vllm", "kv_role": "kv_both",
                                    "kv_load_failure_policy": "recompute"}
        assert {each["name"]: each["value"] for each in engine["env"]}["GANTRY_RUN_DIR"] == "/run/gantry"


def test_nixls_own_connector_finds_the_backend_and_its_sidecar(charts):
    """The init container runs Gantry's image before the engine; the engine sees the one file among its NIXL's plugins."""
    rendered = charts.render(charts.example, files=[charts.example / "vllm-nixl-values.yaml"])
    for role in ("prefill", "decode"):
        spec = pod_spec(rendered.one("Deployment", role))
        engine = spec["containers"][0]
        said, = [argument.partition("=")[2] for argument in engine["args"] if argument.startswith("--kv-transfer-config=")]
        assert json.loads(said)["kv_connector_extra_config"] == {"backends": ["GANTRY"]}
        plugin, sidecar = spec["initContainers"]
        assert plugin["command"] == ["gantryctl", "nixl-plugin", plugin["volumeMounts"][0]["mountPath"]] and "restartPolicy" not in plugin
        assert plugin["image"] == sidecar["image"] and sidecar["restartPolicy"] == "Always"
        mount, = [each for each in engine["volumeMounts"] if each["name"] == plugin["volumeMounts"][0]["name"]]
        assert mount["mountPath"].endswith(".mesonpy.libs/plugins/libplugin_GANTRY.so")
        assert mount["subPath"] == "libplugin_GANTRY.so" and mount["readOnly"] is True
        assert mount["name"] in {volume["name"] for volume in spec["volumes"] if "emptyDir" in volume}
        assert {each["name"]: each["value"] for each in engine["env"]}["GANTRY_RUN_DIR"] == "/run/gantry"
