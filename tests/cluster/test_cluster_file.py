"""cluster.yaml passes the launcher's own checks, agrees with constraints.txt and opens nothing but SSH."""

from __future__ import annotations

import copy
import logging
import shlex
from pathlib import Path
from typing import Any

import pytest
from cluster_files import CLUSTER_FILE, LABEL, ROOT, cluster_config, local_alternative, pinned
from written_commands import click_trouble


def prepared(config: dict[str, Any]) -> dict[str, Any]:
    """As `ray up` reads it, checked against the schema that Ray ships."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    logging.getLogger("ray.autoscaler").setLevel(logging.ERROR)
    ready = prepare_config(copy.deepcopy(config))
    validate_config(ready)
    return ready


def node_types() -> dict[str, Any]:
    return dict(cluster_config()["available_node_types"])


def workers() -> dict[str, Any]:
    return {name: each for name, each in node_types().items() if name != cluster_config()["head_node_type"]}


def environment() -> dict[str, str]:
    """What the containers of all nodes are given."""
    options = [shlex.split(option) for option in cluster_config()["docker"]["run_options"]]
    return dict(words[1].split("=", 1) for words in options if words[0] == "--env")


@pytest.mark.parametrize("config", [cluster_config(), local_alternative()], ids=["aws", "local"])
def test_the_launcher_takes_the_file(config: dict[str, Any]) -> None:
    ready = prepared(config)
    assert ready["cluster_name"] == "vsetune"
    assert ready["max_workers"] >= sum(each["min_workers"] for each in ready["available_node_types"].values())


def test_image_and_ray_are_those_of_the_constraints() -> None:
    docker = cluster_config()["docker"]
    for image in (docker["image"], docker["head_image"]):
        assert image.startswith(f"rayproject/ray:{pinned('ray')}-py311"), image
    assert 'requires-python = ">=3.11"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_the_head_takes_no_trials_and_stays() -> None:
    head = node_types()[cluster_config()["head_node_type"]]
    assert head["resources"]["CPU"] == 0
    assert "InstanceMarketOptions" not in head["node_config"]


def test_workers_are_spot_nodes_of_several_kinds_that_come_and_go() -> None:
    assert all(each["node_config"]["InstanceMarketOptions"] == {"MarketType": "spot"} for each in workers().values())
    assert all(each["min_workers"] == 0 < each["max_workers"] for each in workers().values())
    assert len({each["node_config"]["InstanceType"] for each in workers().values() if each["resources"].get("GPU")}) > 2
    assert [name for name, each in workers().items() if not each["resources"].get("GPU")] == ["cpu"]
    assert 0 < cluster_config()["idle_timeout_minutes"] <= 15


def test_every_node_type_says_its_name_and_its_price_in_labels_that_ray_takes() -> None:
    from ray._private.label_utils import validate_node_label_syntax, validate_node_labels

    for name, each in node_types().items():
        validate_node_labels(each["labels"])
        validate_node_label_syntax(each["labels"])
        assert each["labels"][f"{LABEL}node-type"] == name
        assert float(each["labels"][f"{LABEL}usd-per-hour"]) > 0


def test_nodes_have_roles_and_no_keys() -> None:
    profiles = {name: each["node_config"]["IamInstanceProfile"]["Name"] for name, each in node_types().items()}
    assert profiles.pop("head") == "vsetune-head"
    assert set(profiles.values()) == {"vsetune-worker"}
    assert all(each["node_config"]["MetadataOptions"]["HttpTokens"] == "required" for each in node_types().values())
    text = CLUSTER_FILE.read_text(encoding="utf-8")
    assert not any(word in text for word in ("AKIA", "ACCESS_KEY", "PASSWORD="))


def test_every_node_asks_for_the_token_and_finds_home_and_tracking_elsewhere() -> None:
    assert environment()["RAY_AUTH_MODE"] == "token"
    assert environment()["VSETUNE_HOME"].startswith("s3://")
    assert environment()["MLFLOW_TRACKING_URI"].startswith("http://")
    assert int(environment()["RAY_JOB_STOP_WAIT_TIME_S"]) >= 60
    for config in (cluster_config(), local_alternative()):
        assert config["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"


@pytest.mark.parametrize("config", [cluster_config(), local_alternative()], ids=["aws", "local"])
def test_ray_start_is_accepted_and_listens_to_this_machine_alone(config: dict[str, Any]) -> None:
    from ray.scripts.scripts import cli

    lines = [*config["head_start_ray_commands"], *config["worker_start_ray_commands"]]
    started = [shlex.split(line) for line in lines if "ray start" in line]
    assert len(started) == 2
    for words in started:
        assert click_trouble(cli, words[words.index("start"):]) is None
    (head,) = (words for words in started if "--head" in words)
    assert "--dashboard-host=127.0.0.1" in head
    assert "0.0.0.0" not in CLUSTER_FILE.read_text(encoding="utf-8")


def test_files_that_are_sent_are_there() -> None:
    assert cluster_config()["file_mounts"]["~/vsetune"] == "."
    (line,) = cluster_config()["setup_commands"]
    assert "$HOME/vsetune/constraints.txt" in line
    assert (ROOT / "constraints.txt").is_file()


@pytest.mark.slow  # boto3's models of EC2 take seconds
@pytest.mark.filterwarnings("ignore")  # of botocore and moto
def test_aws_would_be_asked_for_one_group_that_lets_in_ssh_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's bootstrap and its node provider against moto's EC2: what they ask is checked by boto3, not its prices."""
    import boto3
    from moto import mock_aws
    from ray.autoscaler._private.aws.config import bootstrap_aws
    from ray.autoscaler._private.aws.node_provider import AWSNodeProvider

    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        ready = bootstrap_aws(prepared(cluster_config()))
        region = ready["provider"]["region"]
        ec2 = boto3.client("ec2", region_name=region)
        groups = {each["node_config"]["SecurityGroupIds"][0] for each in ready["available_node_types"].values()}
        (group,) = ec2.describe_security_groups(GroupIds=sorted(groups))["SecurityGroups"]
        open_ports = [rule.get("FromPort") for rule in group["IpPermissions"] if rule["IpRanges"]]
        assert group["GroupName"] == "vsetune"
        assert open_ports == [22]
        iam = boto3.client("iam", region_name=region)
        for profile in ("vsetune-head", "vsetune-worker"):
            iam.create_instance_profile(InstanceProfileName=profile)
        provider = AWSNodeProvider(ready["provider"], ready["cluster_name"])
        for name, each in ready["available_node_types"].items():
            provider.create_node(each["node_config"], {"ray-user-node-type": name}, 1)
        started = [
            machine for answer in ec2.describe_instances()["Reservations"] for machine in answer["Instances"]
        ]
        assert {machine["InstanceType"] for machine in started} == {
            each["node_config"]["InstanceType"] for each in node_types().values()
        }
